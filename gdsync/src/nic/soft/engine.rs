//! The engine: the thread in the place of the hardware. It polls the doorbells, rings and sockets of all queue pairs
//! of one NIC, spins while there is work, and sleeps in short steps while there is none.
//!
//! It calls nothing that may wait for a GPU's work, and takes no lock that others hold over a driver call. Copies of
//! registered GPU memory are its only CUDA calls ([`copies`](crate::cuda::copies)): copy engines only, in a context that
//! no blocked stream shares.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use subtle::ConstantTimeEq;

use super::doze::Doze;
use super::inbox::Inbox;
use super::keys::{KeyTable, RegionMemory};
use super::rest::{Pause, Rest};
use super::slot::Slot;
use super::state::Outgoing;
use super::wire::Cut;
use super::wire::shm::{Ring, ShmWire};
use super::wire::tcp::{Greeting, Stranger, TcpWire};
use crate::cuda::copies::Copies;
use crate::cuda::device::{CudaDevice, lock};
use crate::error::Result;

/// How often the peers are looked after.
const HOUSEKEEPING: Duration = Duration::from_millis(5);
/// Housekeeping that is so late means that this thread did not run: stopped, suspended, or starved.
const ABSENCE: Duration = Duration::from_millis(200);
/// How often a NIC without connections over sockets looks for new ones.
const LISTENING: Duration = Duration::from_micros(50);
/// Connections that have not said hello, and how long they may take.
const MAX_STRANGERS: usize = 64;
const STRANGER_PATIENCE: Duration = Duration::from_secs(5);

const LISTENER: Token = Token(0);
/// Sockets of queue pairs have their numbers as tokens; those of strangers count from here.
const STRANGERS: usize = 1 << 32;

/// What the owner of a NIC and its engine share.
pub(crate) struct Shared {
    pub keys: RwLock<KeyTable>,
    commands: Inbox<Command>,
    doze: Doze,
    thread: OnceLock<Thread>,
    pub stop: AtomicBool,
    pub ended: AtomicBool,
    /// Of the GPUs whose own memory is registered.
    copies: Mutex<Vec<(CudaDevice, Arc<Copies>)>>,
}

/// What the engine is told.
pub(crate) enum Command {
    Add(Box<Slot>),
    Connect { qpn: u32, plan: Plan },
    Close { qpn: u32 },
    Revoke { key: u32, token: Arc<()> },
    Mapped { qpn: u32, key: u32, answer: u64, memory: Option<RegionMemory> },
}

/// How a queue pair gets to its peer.
pub(crate) enum Plan {
    Shm {
        inbound: Ring,
        outbound: Ring,
        pid: u32,
    },
    /// Say `greeting`, expect `expected`.
    Dial {
        to: SocketAddr,
        greeting: Greeting,
        expected: Greeting,
    },
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
            commands: Inbox::new(),
            doze: Doze::new(),
            thread: OnceLock::new(),
            stop: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            copies: Mutex::default(),
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
        Ok(new)
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
    slots: Vec<Slot>,
    sockets: Sockets,
    out: Outgoing,
    housekeeping: Instant,
    rest: Rest,
}

/// Sockets, known to the system's event queue.
pub(crate) struct Sockets {
    poll: Poll,
    events: Events,
    listener: Option<TcpListener>,
    strangers: HashMap<Token, (Stranger, Instant)>,
    /// Greeted before their queue pair was connected here.
    early: Vec<(TcpStream, Greeting, Instant)>,
    next_stranger: usize,
    used: bool,
    /// Connections may wait to be accepted: the system says so once.
    backlog: bool,
    /// When the system was last asked.
    asked: Option<Instant>,
}

impl Sockets {
    pub fn new(mut listener: Option<TcpListener>) -> std::io::Result<Sockets> {
        let poll = Poll::new()?;
        if let Some(listener) = &mut listener {
            poll.registry().register(listener, LISTENER, Interest::READABLE)?;
        }
        Ok(Sockets {
            poll,
            events: Events::with_capacity(256),
            used: listener.is_some(),
            listener,
            strangers: HashMap::new(),
            early: Vec::new(),
            next_stranger: STRANGERS,
            backlog: false,
            asked: None,
        })
    }
}

impl Engine {
    pub fn new(shared: Arc<Shared>, sockets: Sockets, spin: Duration) -> Engine {
        let now = Instant::now();
        Engine {
            shared,
            slots: Vec::new(),
            sockets,
            out: Outgoing::new(),
            housekeeping: now,
            rest: Rest::new(spin),
        }
    }

    /// Runs until it is told to stop and every queue pair has said goodbye.
    pub fn run(mut self) {
        let _ = self.shared.thread.set(std::thread::current());
        // Sleeps that last as long as they are asked to; without it they take 50 µs more.
        if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
            tracing::debug!("timer slack: {error}");
        }
        let shared = self.shared.clone();
        // Also when this thread panics: nobody is to wait for it for ever.
        let _ended = SetOnDrop(&shared.ended);
        loop {
            let now = Instant::now();
            let mut busy = self.obey();
            busy |= self.look_at_sockets(now);
            {
                let keys = shared.keys.read().unwrap_or_else(PoisonError::into_inner);
                for slot in &mut self.slots {
                    busy |= slot.drive(&keys, now, &mut self.out);
                }
            }
            if now - self.housekeeping >= HOUSEKEEPING {
                let since = now - self.housekeeping;
                self.housekeeping = now;
                if since > ABSENCE {
                    self.slots.iter_mut().for_each(|slot| slot.excuse(since));
                }
                self.slots.iter_mut().for_each(|slot| slot.keep_house(now));
                self.slots.retain(|slot| !slot.is_over());
                self.sockets.strangers.retain(|_, (_, since)| now - *since < STRANGER_PATIENCE);
                self.sockets.early.retain(|(_, _, since)| now - *since < STRANGER_PATIENCE);
            }
            if self.shared.stop.load(Ordering::Acquire) {
                self.slots.iter_mut().for_each(Slot::close);
                if self.slots.is_empty() {
                    return;
                }
            }
            match self.rest.after(busy, now, &shared.doze) {
                Pause::None => {}
                Pause::Spin => std::hint::spin_loop(),
                Pause::Yield => std::thread::yield_now(),
                Pause::Sleep(longest) => std::thread::park_timeout(longest),
            }
        }
    }

    fn slot(&mut self, qpn: u32) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.qpn == qpn)
    }

    fn obey(&mut self) -> bool {
        let commands = self.shared.commands.take();
        let any = !commands.is_empty();
        for command in commands {
            match command {
                Command::Add(slot) => self.slots.push(*slot),
                Command::Close { qpn } => {
                    if let Some(slot) = self.slot(qpn) {
                        slot.close();
                    }
                }
                Command::Revoke { key, token } => {
                    self.slots.iter_mut().for_each(|slot| slot.revoke(key, &token));
                }
                Command::Mapped { qpn, key, answer, memory } => {
                    if let Some(slot) = self.slot(qpn) {
                        slot.learn(key, answer, memory);
                    }
                }
                Command::Connect { qpn, plan } => self.connect(qpn, plan),
            }
        }
        any
    }

    fn connect(&mut self, qpn: u32, plan: Plan) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.qpn == qpn) else { return };
        match plan {
            Plan::Shm { inbound, outbound, pid } => {
                slot.attach(Box::new(ShmWire::new(inbound, outbound, pid)), true);
            }
            Plan::Dial { to, greeting, expected } => {
                self.sockets.used = true;
                let dialed = TcpStream::connect(to).and_then(|stream| {
                    let mut wire = TcpWire::dial(stream, greeting, expected);
                    let (token, both) =
                        (Token(qpn as usize), Interest::READABLE | Interest::WRITABLE);
                    self.sockets.poll.registry().register(wire.stream(), token, both)?;
                    Ok(wire)
                });
                match dialed {
                    Ok(wire) => slot.attach(Box::new(wire), false),
                    Err(error) => slot.lose(Cut(format!("connecting to {to} failed: {error}"))),
                }
            }
            Plan::Await { expected, greeting } => {
                slot.awaited = Some((expected, greeting));
                let early = &mut self.sockets.early;
                if let Some(at) = early.iter().position(|(_, heard, _)| *heard == expected) {
                    let (stream, heard, since) = early.swap_remove(at);
                    self.introduce(stream, heard, since);
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
        if recently && self.sockets.strangers.is_empty() && !self.slots.iter().any(Slot::has_socket)
        {
            return false;
        }
        self.sockets.asked = Some(now);
        let mut events = std::mem::replace(&mut self.sockets.events, Events::with_capacity(0));
        if let Err(error) = self.sockets.poll.poll(&mut events, Some(Duration::ZERO)) {
            tracing::debug!("polling sockets: {error}");
        }
        let busy = !events.is_empty();
        for event in &events {
            match event.token() {
                LISTENER => self.sockets.backlog = true,
                Token(token) if token >= STRANGERS => self.meet(Token(token), now),
                Token(qpn) => {
                    // Tokens below `STRANGERS` are numbers of queue pairs.
                    if let Some(slot) = self.slot(qpn as u32) {
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
        if self.sockets.backlog {
            self.accept(now);
        }
        busy
    }

    fn accept(&mut self, now: Instant) {
        let sockets = &mut self.sockets;
        let Some(listener) = &sockets.listener else { return };
        // Those beyond the limit stay in the system's queue until others have said hello or lost their chance.
        while sockets.strangers.len() < MAX_STRANGERS {
            let (mut stream, from) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    sockets.backlog = false;
                    if error.kind() != std::io::ErrorKind::WouldBlock {
                        tracing::warn!("accepting a connection: {error}");
                    }
                    return;
                }
            };
            let token = Token(sockets.next_stranger);
            sockets.next_stranger += 1;
            match sockets.poll.registry().register(&mut stream, token, Interest::READABLE) {
                Ok(()) => {
                    sockets.strangers.insert(token, (Stranger::new(stream), now));
                }
                Err(error) => tracing::warn!("a connection from {from}: {error}"),
            }
        }
    }

    /// Something arrived from a stranger.
    fn meet(&mut self, token: Token, now: Instant) {
        let Some((stranger, _)) = self.sockets.strangers.get_mut(&token) else { return };
        match stranger.poll() {
            Ok(None) => {}
            Ok(Some(greeting)) => {
                if let Some((mut stranger, _)) = self.sockets.strangers.remove(&token) {
                    let _ = self.sockets.poll.registry().deregister(stranger.stream());
                    self.introduce(stranger.into_stream(), greeting, now);
                }
            }
            Err(cut) => {
                tracing::warn!("a connection is refused: {cut}");
                self.sockets.strangers.remove(&token);
            }
        }
    }

    /// Gives a connection to the queue pair that it is for, or keeps it until that waits for it.
    fn introduce(&mut self, mut stream: TcpStream, heard: Greeting, since: Instant) {
        let Some(slot) = self
            .slots
            .iter_mut()
            .find(|slot| slot.qpn == heard.qpn && bool::from(slot.token.ct_eq(&heard.to)))
        else {
            tracing::warn!("a connection for queue pair {:#x}, which is not here", heard.qpn);
            return;
        };
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
            None if self.sockets.early.len() < MAX_STRANGERS => {
                self.sockets.early.push((stream, heard, since));
            }
            None => tracing::warn!("too many connections wait for their queue pairs"),
        }
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
