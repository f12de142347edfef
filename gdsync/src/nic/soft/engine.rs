//! The engine, in the place of the hardware. A pass looks at the doorbells, rings and sockets of all queue pairs of one
//! NIC. The NIC's thread makes them: it spins while there is work, and sleeps in short steps while there is none. A thread
//! that waits for what comes over a socket makes them in its place meanwhile ([`help`]), which spares it the way through
//! the scheduler.
//!
//! A pass calls nothing that may wait for a GPU's work, and takes no lock that others hold over a driver call. Copies of
//! registered GPU memory are its only CUDA calls ([`copies`](crate::cuda::copies)): copy engines only, in a context that
//! no blocked stream shares; and only the NIC's thread makes them.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use subtle::ConstantTimeEq;

use super::dial::Dial;
use super::door::{Door, LISTENER, Listener, STRANGERS};
use super::doze::Doze;
use super::inbox::Inbox;
use super::keys::{KeyTable, RegionMemory, TakenBack};
use super::pace::{Beside, STEP};
use super::rest::{Pause, Rest};
use super::slot::{By, SharedSlot, Slot};
use super::state::Outgoing;
use super::wire::Cut;
use super::wire::greeting::Greeting;
use super::wire::rdma::RdmaWire;
use super::wire::shm::{Ring, ShmWire};
use super::wire::tcp::TcpWire;
use crate::cuda::copies::Copies;
use crate::cuda::device::{CudaDevice, lock};
use crate::error::Result;

/// How often the peers are looked after.
const HOUSEKEEPING: Duration = Duration::from_millis(5);
/// Housekeeping that is so late means that this thread did not run: stopped, suspended, or starved.
const ABSENCE: Duration = Duration::from_millis(200);
/// How often a NIC without connections over sockets looks for new ones.
const LISTENING: Duration = Duration::from_micros(50);

/// After so many sleeps beside a thread that waits all that time they get longer, up to a limit, since each takes a core from somebody: in
/// so many steps.
const SHORT_SLEEPS: u32 = 8;
const SLEEPS: u32 = 3;

/// A thread that waits asks the sockets of so many peers, if they were heard lately, and for the others the system, so often.
const LIVELY: usize = 4;
const ASKING: Duration = Duration::from_micros(10);

/// So often the NIC's thread looks again for what others have, between two sleeps.
const LOOKS_AGAIN: u32 = 2;

/// Passes without work by a thread that waits between two offers of its core to others: they ask the system, so that
/// those whom it waits for would have to wait for long.
const OFFER_EVERY: u32 = 8;

/// What the owner of a NIC and its engine share.
pub(crate) struct Shared {
    pub keys: RwLock<KeyTable>,
    begin: Instant,
    /// Nanoseconds from `begin` to the last pass of a thread that waits; none yet: 0.
    helped: AtomicU64,
    /// Nanoseconds after it for which the NIC's thread leaves the work to that thread: about as long as the other is off its core
    /// when others want that.
    leaves: AtomicU64,
    /// Whether there are sockets of peers.
    with_sockets: AtomicBool,
    commands: Inbox<Command>,
    doze: Doze,
    thread: OnceLock<Thread>,
    pub stop: AtomicBool,
    pub ended: AtomicBool,
    /// Of the GPUs whose own memory is registered, and whether there is one.
    copies: Mutex<Vec<(CudaDevice, Arc<Copies>)>>,
    with_gpus: AtomicBool,
}

/// What the engine is told.
pub(crate) enum Command {
    Add(Arc<SharedSlot>),
    Connect { qpn: u32, plan: Plan },
    Close { qpn: u32 },
    Revoke { key: u32, token: Arc<TakenBack> },
    Mapped { qpn: u32, key: u32, answer: u64, memory: Option<RegionMemory> },
}

/// How a queue pair gets to its peer.
pub(crate) enum Plan {
    Shm {
        inbound: Ring,
        outbound: Ring,
        pid: u32,
    },
    Dial(Dial),
    Rdma(Box<RdmaWire>),
    /// Expect `expected`, answer `greeting`.
    Await {
        expected: Greeting,
        greeting: Greeting,
    },
}

impl Shared {
    pub fn new() -> Shared {
        Shared {
            keys: RwLock::default(),
            begin: Instant::now(),
            helped: AtomicU64::new(0),
            leaves: AtomicU64::new(STEP.as_nanos() as u64),
            with_sockets: AtomicBool::new(false),
            commands: Inbox::new(),
            doze: Doze::new(),
            thread: OnceLock::new(),
            stop: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            copies: Mutex::default(),
            with_gpus: AtomicBool::new(false),
        }
    }

    /// The copies of a GPU, made when its memory is registered for the first time.
    pub fn copies(&self, gpu: &CudaDevice) -> Result<Arc<Copies>> {
        let mut copies = lock(&self.copies);
        if let Some((_, there)) = copies.iter().find(|(known, _)| known.ordinal() == gpu.ordinal())
        {
            return Ok(there.clone());
        }
        let new = Arc::new(Copies::new(gpu)?);
        copies.push((gpu.clone(), new.clone()));
        self.with_gpus.store(true, Ordering::Release);
        Ok(new)
    }

    /// Whether a thread that waits makes the passes.
    pub fn is_helped(&self, now: Instant) -> bool {
        let helped = self.helped.load(Ordering::Relaxed);
        let until = helped + self.leaves.load(Ordering::Relaxed);
        helped > 0 && now < self.begin + Duration::from_nanos(until)
    }

    /// A thread that waits makes the passes.
    fn help_at(&self, now: Instant) {
        let helped = now.saturating_duration_since(self.begin).as_nanos() as u64;
        self.helped.store(helped.max(1), Ordering::Relaxed);
    }

    /// Whether passes may be anybody's: none of them copies a GPU's memory.
    pub fn is_of_the_cpu(&self) -> bool {
        !self.with_gpus.load(Ordering::Acquire)
    }

    /// The GPUs whose memory is registered.
    pub fn gpus(&self) -> Vec<(CudaDevice, Arc<Copies>)> {
        lock(&self.copies).clone()
    }

    pub fn command(&self, command: Command) {
        self.commands.put(command);
        self.wake();
    }

    /// Wakes the engine if it sleeps.
    pub fn wake(&self) {
        if self.doze.must_wake()
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

/// The engine's own things.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    slots: Vec<Arc<SharedSlot>>,
    sockets: Sockets,
    out: Outgoing,
    housekeeping: Instant,
    /// Passes of threads that wait since there was work.
    idle_helps: u32,
}

/// What a pass came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// There was work.
    Busy,
    /// There was none; somebody else had a queue pair.
    Taken,
    Idle,
    /// The NIC is no more.
    Over,
}

/// Sockets, known to the system's event queue.
pub(crate) struct Sockets {
    poll: Poll,
    events: Events,
    door: Option<Door>,
    used: bool,
    /// When the system was last asked.
    asked: Option<Instant>,
}

impl Sockets {
    pub fn new(listener: Option<&Listener>) -> std::io::Result<Sockets> {
        let poll = Poll::new()?;
        let door = listener.map(|listener| Door::new(listener, poll.registry())).transpose()?;
        let events = Events::with_capacity(256);
        Ok(Sockets { poll, events, used: door.is_some(), door, asked: None })
    }
}

impl Engine {
    pub fn new(shared: Arc<Shared>, sockets: Sockets) -> Engine {
        let now = Instant::now();
        Engine {
            shared,
            slots: Vec::new(),
            sockets,
            out: Outgoing::new(),
            housekeeping: now,
            idle_helps: 0,
        }
    }

    /// Looks at everything once.
    fn pass(&mut self, by: By, now: Instant) -> Pass {
        let mut busy = self.obey();
        if by == By::Engine || !self.asks_peers(now) {
            busy |= self.look_at_sockets(now);
        }
        let mut taken = false;
        {
            let keys = self.shared.keys.read().unwrap_or_else(PoisonError::into_inner);
            let mut with_sockets = false;
            for slot in &self.slots {
                let Some(mut slot) = slot.try_drive() else {
                    taken = true;
                    continue;
                };
                busy |= slot.drive(by, &keys, now, &mut self.out);
                with_sockets |= slot.has_socket();
            }
            if with_sockets || !taken {
                self.shared.with_sockets.store(with_sockets, Ordering::Relaxed);
            }
        }
        if now - self.housekeeping >= HOUSEKEEPING {
            self.keep_house(now);
        }
        if self.shared.stop.load(Ordering::Acquire) {
            self.slots.iter().for_each(|slot| slot.lock().close());
            if self.slots.is_empty() {
                return Pass::Over;
            }
        }
        match (busy, taken) {
            (true, _) => Pass::Busy,
            (false, true) => Pass::Taken,
            (false, false) => Pass::Idle,
        }
    }

    /// Has the sockets of peers that were heard lately asked themselves. False if the system is to be asked for the others.
    fn asks_peers(&mut self, now: Instant) -> bool {
        let (mut count, mut others) = (0, false);
        for mut slot in self.slots.iter().filter_map(|slot| slot.try_lock()) {
            if slot.is_lively(now) {
                count += 1;
                if count > LIVELY {
                    return false;
                }
                slot.ready(true, true);
            } else {
                others |= slot.has_socket();
            }
        }
        let often = if others { ASKING } else { LISTENING };
        count > 0 && self.sockets.asked.is_some_and(|at| now - at < often)
    }

    fn keep_house(&mut self, now: Instant) {
        let since = now - self.housekeeping;
        self.housekeeping = now;
        if since > ABSENCE {
            self.slots.iter().for_each(|slot| slot.lock().excuse(since));
        }
        let sockets = &mut self.sockets;
        self.slots.retain(|slot| {
            let Some(mut slot) = slot.try_lock() else { return true };
            slot.keep_house(now);
            if slot.must_dial(now) {
                sockets.dial(&mut slot);
            }
            !slot.is_over()
        });
        if let Some(door) = &mut self.sockets.door {
            door.keep_house(now);
        }
    }

    fn shared_slot(&self, qpn: u32) -> Option<&SharedSlot> {
        self.slots.iter().map(Arc::as_ref).find(|slot| slot.qpn == qpn)
    }

    fn slot(&self, qpn: u32) -> Option<MutexGuard<'_, Slot>> {
        self.shared_slot(qpn).map(SharedSlot::lock)
    }

    fn obey(&mut self) -> bool {
        let commands = self.shared.commands.take();
        let any = !commands.is_empty();
        for command in commands {
            match command {
                Command::Add(slot) => self.slots.push(slot),
                Command::Close { qpn } => {
                    if let Some(mut slot) = self.slot(qpn) {
                        slot.close();
                    }
                }
                Command::Revoke { key, token } => {
                    self.slots.iter().for_each(|slot| slot.lock().revoke(key, &token));
                }
                Command::Mapped { qpn, key, answer, memory } => {
                    if let Some(mut slot) = self.slot(qpn) {
                        slot.learn(key, answer, memory);
                    }
                }
                Command::Connect { qpn, plan } => self.connect(qpn, plan),
            }
        }
        any
    }

    fn connect(&mut self, qpn: u32, plan: Plan) {
        let Some(slot) = self.slots.iter().find(|slot| slot.qpn == qpn) else { return };
        let mut slot = slot.lock();
        match plan {
            Plan::Shm { inbound, outbound, pid } => {
                slot.attach(Box::new(ShmWire::new(inbound, outbound, pid)), true);
            }
            Plan::Rdma(wire) => slot.attach(wire, false),
            Plan::Dial(dial) => {
                slot.dialing = Some(dial);
                self.sockets.dial(&mut slot);
            }
            Plan::Await { expected, greeting } => {
                slot.awaited = Some((expected, greeting));
                if let Some(stream) =
                    self.sockets.door.as_mut().and_then(|door| door.take(&expected))
                {
                    drop(slot);
                    self.introduce(stream, expected);
                }
            }
        }
    }

    /// Takes what the system says about sockets.
    fn look_at_sockets(&mut self, now: Instant) -> bool {
        if !self.sockets.used {
            return false;
        }
        // Asking costs as much as several passes over rings: for connections that are not there yet, not every time.
        let recently = self.sockets.asked.is_some_and(|at| now - at < LISTENING);
        let visited = self.sockets.door.as_ref().is_some_and(Door::is_busy);
        let with_sockets = self.shared.with_sockets.load(Ordering::Relaxed);
        if recently && !visited && !with_sockets {
            return false;
        }
        self.sockets.asked = Some(now);
        let mut events = std::mem::replace(&mut self.sockets.events, Events::with_capacity(0));
        if let Err(error) = self.sockets.poll.poll(&mut events, Some(Duration::ZERO)) {
            tracing::debug!("polling sockets: {error}");
        }
        let busy = !events.is_empty();
        let mut greeted = Vec::new();
        for event in &events {
            match event.token() {
                LISTENER => self.sockets.door.iter_mut().for_each(Door::knock),
                Token(token) if token >= STRANGERS => {
                    let Sockets { poll, door, .. } = &mut self.sockets;
                    let met = door.as_mut().map(|door| door.meet(Token(token), poll.registry()));
                    greeted.extend(met.flatten());
                }
                Token(qpn) => {
                    // Tokens below `STRANGERS` are numbers of queue pairs.
                    if let Some(slot) = self.shared_slot(qpn as u32) {
                        let readable =
                            event.is_readable() || event.is_read_closed() || event.is_error();
                        let writable =
                            event.is_writable() || event.is_write_closed() || event.is_error();
                        slot.ready(readable, writable);
                    }
                }
            }
        }
        self.sockets.events = events;
        let Sockets { poll, door, .. } = &mut self.sockets;
        if let Some(door) = door {
            greeted.extend(door.accept(poll.registry(), now));
        }
        for (stream, greeting) in greeted {
            self.introduce(stream, greeting);
        }
        busy
    }

    /// Gives a connection to the queue pair that it is for, or keeps it until that waits for it.
    fn introduce(&mut self, mut stream: TcpStream, heard: Greeting) {
        let Some(slot) = self
            .slots
            .iter()
            .find(|slot| slot.qpn == heard.qpn && bool::from(slot.token.ct_eq(&heard.to)))
        else {
            tracing::warn!("a connection for queue pair {:#x}, which is not here", heard.qpn);
            return;
        };
        let mut slot = slot.lock();
        match slot.awaited {
            Some((expected, greeting)) if expected == heard => {
                let (token, both) =
                    (Token(slot.qpn as usize), Interest::READABLE | Interest::WRITABLE);
                match self.sockets.poll.registry().register(&mut stream, token, both) {
                    Ok(()) => {
                        slot.awaited = None;
                        slot.attach(Box::new(TcpWire::accept(stream, greeting)), false);
                    }
                    Err(error) => slot.lose(Cut(format!("registering a socket: {error}"))),
                }
            }
            Some(_) => {
                tracing::warn!("a connection for queue pair {:#x} from a stranger", heard.qpn)
            }
            None if slot.is_expected() => {
                if let Some(door) = &mut self.sockets.door {
                    door.keep(stream, heard, Instant::now());
                }
            }
            None => {
                tracing::warn!("a connection for queue pair {:#x}, which has one", heard.qpn);
            }
        }
    }
}

impl Sockets {
    /// Sends a queue pair on its way to its peer.
    fn dial(&mut self, slot: &mut Slot) {
        let Some(Dial { to, greeting, expected, .. }) = slot.dialing else { return };
        self.used = true;
        let dialed = TcpStream::connect(to).and_then(|stream| {
            let mut wire = TcpWire::dial(stream, greeting, expected);
            let (token, both) = (Token(slot.qpn as usize), Interest::READABLE | Interest::WRITABLE);
            self.poll.registry().register(wire.stream(), token, both)?;
            Ok(wire)
        });
        match dialed {
            Ok(wire) => slot.attach(Box::new(wire), false),
            Err(error) => slot.lose(Cut(format!("connecting to {to} failed: {error}"))),
        }
    }
}

/// The NIC's thread: makes passes until it is told to stop and every queue pair has said goodbye.
pub(crate) fn run(engine: &Mutex<Engine>, spin: Duration) {
    let shared = lock(engine).shared.clone();
    let _ = shared.thread.set(std::thread::current());
    // Sleeps that last as long as they are asked to; without it they take 50 µs more.
    if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
        tracing::debug!("timer slack: {error}");
    }
    // Also when this thread panics: nobody is to wait for it for ever.
    let _ended = SetOnDrop(&shared.ended);
    let (mut rest, mut beside) = (Rest::new(spin), Beside::new());
    let (mut sleeps, mut taken) = (0_u32, 0_u32);
    loop {
        let now = Instant::now();
        if shared.is_helped(now) && !shared.stop.load(Ordering::Acquire) {
            // Two would only take the core from each other. Nobody need wake it: what they leave the helper finds, or this
            // thread does so much later.
            shared.doze.cancel();
            sleeps = sleeps.saturating_add(1);
            let (many, first) = (sleeps / SHORT_SLEEPS + 1, beside.longest() / SLEEPS);
            shared.leaves.store(first.as_nanos() as u64, Ordering::Relaxed);
            beside.sleep(first * many.min(SLEEPS));
            continue;
        }
        sleeps = 0;
        let pass = try_lock(engine).map_or(Pass::Taken, |mut engine| engine.pass(By::Engine, now));
        taken = if pass == Pass::Taken { taken + 1 } else { 0 };
        let pause = match pass {
            Pass::Over => return,
            // A megabyte to a socket takes them 0.2 ms: to look again all that time would take a core from the peer.
            Pass::Taken if taken.is_multiple_of(LOOKS_AGAIN) => Pause::Sleep(STEP),
            // No long sleep before every queue pair was looked at: what was rung while a caller had one may still wait.
            Pass::Taken => Pause::Yield,
            Pass::Busy | Pass::Idle => rest.after(pass == Pass::Busy, now, &shared.doze),
        };
        match pause {
            Pause::None => {}
            Pause::Spin => std::hint::spin_loop(),
            Pause::Yield => std::thread::yield_now(),
            Pause::Sleep(longest) => std::thread::park_timeout(longest),
        }
    }
}

/// By a thread that waits, and may wait for what comes over a socket: a pass in the place of the NIC's thread, unless
/// somebody is at it.
pub(crate) fn help(shared: &Shared, engine: &Mutex<Engine>) {
    if !shared.with_sockets.load(Ordering::Relaxed) || !shared.is_of_the_cpu() {
        return;
    }
    // Also if the NIC's thread is at it now: it is not needed after this pass.
    let now = Instant::now();
    shared.help_at(now);
    let Some(mut engine) = try_lock(engine) else { return };
    let busy = engine.pass(By::Waiting, now) == Pass::Busy;
    if busy {
        // It may have been long.
        shared.help_at(Instant::now());
    }
    engine.idle_helps = if busy { 0 } else { engine.idle_helps.wrapping_add(1) };
    let yields = engine.idle_helps % OFFER_EVERY == OFFER_EVERY - 1;
    drop(engine);
    if yields {
        std::thread::yield_now();
    }
}

fn try_lock(engine: &Mutex<Engine>) -> Option<MutexGuard<'_, Engine>> {
    match engine.try_lock() {
        Ok(engine) => Some(engine),
        Err(TryLockError::Poisoned(engine)) => Some(engine.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
