//! What the library holds for the program: the world, and a communicator for each handle.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use libmp::tagged::{Options, Tagged};
use libmp::{Communicator, Config, Deadline, World};

use crate::abi::{COMM_NULL, COMM_SELF, COMM_WORLD, Handle};
use crate::topology::Grid;

/// A communicator of the program.
pub struct Comm {
    pub communicator: Communicator,
    /// Of the program's sends and receives, and of collectives.
    pub messages: Tagged,
    pub collective: Tagged,
    /// How many collectives there were: their tag.
    pub turn: AtomicUsize,
    pub grid: Option<Grid>,
}

struct State {
    world: Mutex<Option<World>>,
    all: Comm,
    own: Comm,
    others: RwLock<HashMap<Handle, Arc<Comm>>>,
    next: AtomicUsize,
    timeout: Duration,
}

static STATE: OnceLock<State> = OnceLock::new();
static FINALIZED: AtomicBool = AtomicBool::new(false);

/// The first handle of a communicator that the program makes. The ABI's are below 4096.
const FIRST: Handle = 0x1000;

/// Ends the program, and the world, with a sentence.
pub fn fail(call: &str, what: impl Display) -> ! {
    let sentence = format!("{call}: {what}");
    eprintln!("libmpi_abi: {sentence}");
    if let Some(state) = STATE.get()
        && let Ok(world) = state.world.try_lock()
        && let Some(world) = &*world
    {
        world.abort(sentence);
    }
    std::process::exit(1)
}

/// What a call of libmp gives; an error ends the program, as under `MPI_ERRORS_ARE_FATAL`.
pub fn expect<T>(call: &str, result: libmp::Result<T>) -> T {
    match result {
        Ok(value) => value,
        // Another rank has ended the program with that status.
        Err(libmp::Error::Exited { status, .. }) => std::process::exit(status),
        Err(error) => fail(call, error),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn state(call: &str) -> &'static State {
    match STATE.get() {
        Some(state) if !FINALIZED.load(Ordering::Acquire) => state,
        Some(_) => fail(call, "called after MPI_Finalize"),
        None => fail(call, "called before MPI_Init"),
    }
}

impl Comm {
    fn new(call: &str, communicator: Communicator, grid: Option<Grid>) -> Comm {
        let open = || expect(call, communicator.tagged(&Options::default()));
        let (messages, collective) = (open(), open());
        Comm { communicator, messages, collective, turn: AtomicUsize::new(0), grid }
    }

    /// One that is never freed.
    fn predefined(call: &str, communicator: Communicator) -> Comm {
        let comm = Comm::new(call, communicator, None);
        Comm { messages: comm.messages.forever(), collective: comm.collective.forever(), ..comm }
    }

    pub fn rank(&self) -> usize {
        self.communicator.rank()
    }

    pub fn size(&self) -> usize {
        self.communicator.size()
    }
}

/// Starts the world.
pub fn init(call: &str) {
    if STATE.get().is_some() {
        fail(call, "MPI is initialised already");
    }
    let config = expect(call, Config::from_env());
    let world = expect(call, World::init());
    let all = Comm::predefined(call, Communicator::clone(&world));
    let own = Comm::predefined(call, expect(call, world.team(&[world.rank()])));
    let (others, next) = (RwLock::default(), AtomicUsize::new(FIRST));
    let world = Mutex::new(Some(world));
    let made = State { world, all, own, others, next, timeout: config.timeout };
    if STATE.set(made).is_err() {
        fail(call, "MPI is initialised already");
    }
}

pub fn is_initialized() -> bool {
    STATE.get().is_some()
}

pub fn is_finalized() -> bool {
    FINALIZED.load(Ordering::Acquire)
}

/// Ends the world in good order.
pub fn finalize(call: &str) {
    let state = state(call);
    let Some(world) = lock(&state.world).take() else { fail(call, "called twice") };
    expect(call, world.finish());
    FINALIZED.store(true, Ordering::Release);
}

/// Ends the program of all ranks.
pub fn abort(status: c_int) -> ! {
    if let Some(state) = STATE.get()
        && let Some(world) = &*lock(&state.world)
    {
        world.exit(status);
    }
    std::process::exit(status)
}

/// A wait's end.
pub fn deadline(call: &str) -> Deadline {
    Deadline::after(state(call).timeout)
}

/// A communicator as a call uses it.
#[derive(Clone)]
pub enum Used {
    /// One that there is from start to end: of all ranks, or of this one alone.
    Predefined {
        comm: &'static Comm,
        of_self: bool,
    },
    Made(Arc<Comm>),
}

impl std::ops::Deref for Used {
    type Target = Comm;

    fn deref(&self) -> &Comm {
        match self {
            Used::Predefined { comm, .. } => comm,
            Used::Made(comm) => comm,
        }
    }
}

/// The communicator of a handle.
#[inline(always)]
pub fn comm(call: &str, handle: Handle) -> Used {
    let state = state(call);
    match handle {
        COMM_WORLD => Used::Predefined { comm: &state.all, of_self: false },
        COMM_SELF => Used::Predefined { comm: &state.own, of_self: true },
        other => Used::Made(made(call, state, other)),
    }
}

/// `MPI_COMM_WORLD`, or `MPI_COMM_SELF`.
#[inline]
pub fn predefined(call: &str, of_self: bool) -> &'static Comm {
    let state = state(call);
    if of_self { &state.own } else { &state.all }
}

fn made(call: &str, state: &State, handle: Handle) -> Arc<Comm> {
    let others = state.others.read().unwrap_or_else(PoisonError::into_inner);
    let Some(known) = others.get(&handle) else {
        fail(call, format!("handle {handle:#x} is no communicator"))
    };
    known.clone()
}

/// A handle for a new communicator, and its topology.
pub fn add(call: &str, communicator: Option<Communicator>, grid: Option<Grid>) -> Handle {
    let Some(communicator) = communicator else { return COMM_NULL };
    let state = state(call);
    let made = Arc::new(Comm::new(call, communicator, grid));
    let handle = state.next.fetch_add(1, Ordering::Relaxed);
    state.others.write().unwrap_or_else(PoisonError::into_inner).insert(handle, made);
    handle
}

/// Forgets a communicator that the program made.
pub fn remove(call: &str, handle: Handle) {
    let removed =
        state(call).others.write().unwrap_or_else(PoisonError::into_inner).remove(&handle);
    if removed.is_none() {
        fail(call, format!("handle {handle:#x} is no communicator that can be freed"));
    }
}
