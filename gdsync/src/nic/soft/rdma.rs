//! An RDMA port that a software NIC sends through: the device, the memory of messages that arrive and that leave, which all
//! connections share, what peers knock with, and what connections leave behind.
//!
//! Memory is bounded, however many peers there are: [`RECEIVES`] buffers that arriving messages take in turn, and as many that
//! leaving ones do, of [`MESSAGE`] bytes: 8 MiB each at most. They are registered as connections are made, [`WINDOW`] each for
//! a connection. Where there are more connections than that, a peer that finds none posted tries again, as reliable
//! connections do ("receiver not ready").
//!
//! A connection that was never used has no queue pair of the device. One that is used has queues of [`REQUESTS`] and
//! [`WINDOW`] entries, about 30 KiB, and [`CHUNKS`] times [`CHUNK`] bytes more once memory goes through it that the device does
//! not reach.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::state::{CHUNK, CHUNKS, DeviceUse, INLINE, PIECES};
use super::wire::frame::{Frame, VERSION};
use super::wire::greeting::Greeting;
use crate::cuda::device::lock;
use crate::device::Device;
use crate::memory::{Buffer, Space};
use crate::verbs::{
    Access, CompletionQueue, Context, Datagrams, Endpoint, MemoryRegion, Port, ProtectionDomain,
    QueuePair, QueuePairOptions, RdmaOptions, ReadyToSend, RegionSlice, Reset, Result,
    SharedReceiveQueue, ZeroCopy,
};

/// Bytes of the largest message.
pub(crate) const MESSAGE: usize = 16 * 1024;
/// Messages that a side may send before it hears that earlier ones were taken.
pub(crate) const WINDOW: usize = 16;
/// Messages that may arrive at once, from all peers; and that may leave at once, to all.
const RECEIVES: usize = 512;
/// Requests of a connection that the device carries out at once.
pub(crate) const REQUESTS: usize = 32;
/// How long what a peer says of itself is kept: it says it again sooner.
const FORGET: Duration = Duration::from_secs(2);
/// How often datagrams are asked for.
const LISTEN: Duration = Duration::from_micros(20);
/// Words of peers that they are there which are kept until somebody waits for them. Of more the oldest is forgotten: a peer
/// that is not heard says it again.
const KNOCKS: usize = 1024;
/// How long the queue pair of a connection that is over stays, for receives that it still has in its hands.
const MOURNING: Duration = Duration::from_millis(100);

/// The port of a running NIC.
pub(crate) struct RdmaPort {
    port: Port,
    context: Arc<Context>,
    domain: Arc<ProtectionDomain>,
    receives: Arc<SharedReceiveQueue>,
    zero_copy: ZeroCopy,
    /// By these two ends of a connection tell each other that they are there.
    datagrams: Datagrams,
    knocks: Mutex<VecDeque<(Instant, Knock)>>,
    /// Whether there are some, and when datagrams were last asked for: nanoseconds after `begin`.
    any_knocks: AtomicBool,
    begin: Instant,
    listened: AtomicU64,
    /// Of the receives, in blocks of [`WINDOW`] that are made as they are needed.
    inbound: Vec<OnceLock<Block>>,
    shares: Mutex<Shares>,
}

/// What a peer has said of its end of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Knock {
    greeting: Greeting,
    /// Its queue pair and the sequence number that it begins with.
    pub number: u32,
    pub first: u32,
    /// It is connected to this side's.
    pub ready: bool,
}

#[derive(Default)]
struct Shares {
    /// Blocks of receives that are made.
    inbound: usize,
    /// Blocks of buffers for leaving messages that are made, and the buffers that are free.
    outbound: usize,
    free: Vec<Message>,
    /// What connections have left behind, the oldest first.
    graves: Vec<Grave>,
}

/// Memory of [`WINDOW`] messages.
struct Block {
    region: Arc<MemoryRegion>,
    memory: Buffer<u8>,
}

impl Block {
    fn new(domain: &Arc<ProtectionDomain>) -> Result<Block> {
        Block::of(domain, WINDOW * MESSAGE)
    }

    fn of(domain: &Arc<ProtectionDomain>, bytes: usize) -> Result<Block> {
        let memory = Buffer::new(&Device::Host, Space::Host, bytes)?;
        let region = domain.register(&memory, Access::LOCAL)?;
        Ok(Block { region, memory })
    }

    fn message(&self, number: usize) -> Option<Message> {
        self.part(number * MESSAGE)
    }

    fn part(&self, at: usize) -> Option<Message> {
        let region = self.region.clone();
        let pointer = self.memory.host_address()?.as_ptr().wrapping_add(at);
        Some(Message { region, pointer, at })
    }
}

/// Registered memory for one message.
pub(crate) struct Message {
    region: Arc<MemoryRegion>,
    pub pointer: *mut u8,
    at: usize,
}

// SAFETY: the memory is held by the region, and whoever has the message alone uses it.
unsafe impl Send for Message {}

impl Message {
    /// The first `len` bytes, as a request names them.
    pub fn slice(&self, len: usize) -> Result<RegionSlice> {
        self.region.slice(self.at..self.at + len)
    }
}

/// A connection that is over.
struct Grave {
    since: Instant,
    pair: QueuePair<ReadyToSend>,
    completions: Arc<CompletionQueue>,
    sent: Vec<Message>,
}

impl RdmaPort {
    pub fn open(options: &RdmaOptions) -> Result<Arc<RdmaPort>> {
        let port = options.find()?;
        let context = port.context().clone();
        let domain = context.protection_domain()?;
        let most =
            u32::try_from(RECEIVES).unwrap_or(u32::MAX).min(context.limits().shared_receives);
        let receives = domain.shared_receive_queue(most)?;
        let datagrams = domain.datagrams(&port)?;
        let inbound = (0..most as usize / WINDOW).map(|_| OnceLock::new()).collect();
        let shares = Mutex::default();
        Ok(Arc::new(RdmaPort {
            port,
            context,
            domain,
            receives,
            zero_copy: options.zero_copy,
            datagrams,
            knocks: Mutex::default(),
            any_knocks: AtomicBool::new(false),
            begin: Instant::now(),
            listened: AtomicU64::new(0),
            inbound,
            shares,
        }))
    }

    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Where datagrams for it are sent to.
    pub fn endpoint(&self) -> Endpoint {
        self.datagrams.endpoint()
    }

    pub fn datagrams(&self) -> &Datagrams {
        &self.datagrams
    }

    /// The device.
    pub fn name(&self) -> &str {
        self.context.name()
    }

    /// How the device carries out requests itself, if it does.
    pub fn device_use(&self) -> Option<DeviceUse> {
        let staged = match self.zero_copy {
            ZeroCopy::Off => return None,
            zero_copy => zero_copy == ZeroCopy::Staged,
        };
        let limits = self.context.limits();
        let all = self.zero_copy == ZeroCopy::All;
        Some(DeviceUse { staged, atomics: limits.atomics_for_all || all && limits.atomics })
    }

    /// Registers memory with the device, if that carries out requests and takes it.
    pub fn register(
        &self,
        memory: &Buffer<u8>,
        access: crate::nic::Access,
    ) -> Option<Arc<MemoryRegion>> {
        self.device_use().filter(|_| memory.size() > 0)?;
        let registered = self.domain.register_any(memory, access.for_verbs());
        registered.map_err(|error| tracing::info!("goes by messages: {error}")).ok()
    }

    /// The last that the peer with this greeting has said of itself, once.
    pub fn knocked(&self, peer: &Greeting) -> Result<Option<Knock>> {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.begin).as_nanos() as u64;
        let listened = self.listened.load(Ordering::Relaxed);
        let listens = passed.saturating_sub(listened) >= LISTEN.as_nanos() as u64;
        if !listens && !self.any_knocks.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut knocks = lock(&self.knocks);
        if listens {
            self.listened.store(passed, Ordering::Relaxed);
            self.datagrams.receive(|bytes| {
                let frame = bytes.first_chunk().and_then(|bytes| Frame::decode(*bytes).ok());
                let Some((Frame::Knock { version, qpn, to, from, number, first, ready }, _)) =
                    frame
                else {
                    return;
                };
                if version == VERSION {
                    if knocks.len() == KNOCKS {
                        knocks.pop_front();
                    }
                    let greeting = Greeting { qpn, to, from };
                    knocks.push_back((now, Knock { greeting, number, first, ready }));
                }
            })?;
        }
        let mut last = None;
        knocks.retain(|(since, knock)| {
            let is_theirs = knock.greeting == *peer;
            if is_theirs {
                last = Some(*knock);
            }
            !is_theirs && now.saturating_duration_since(*since) < FORGET
        });
        self.any_knocks.store(!knocks.is_empty(), Ordering::Relaxed);
        Ok(last)
    }

    /// A queue pair, with the completion queue of its own: what a peer does to it breaks nobody else's.
    pub fn queue_pair(&self) -> Result<(QueuePair<Reset>, Arc<CompletionQueue>)> {
        self.make_room()?;
        // A device may free the place of a request a moment after it has said that the request is complete.
        let sends = 2 * (WINDOW + REQUESTS) as u32;
        let both = sends + 2 * WINDOW as u32;
        let completions = self.context.completion_queue(both)?;
        let (segments, inline) = (PIECES as u32, INLINE as u32);
        let options = QueuePairOptions { send_depth: sends, receive_depth: 0, segments, inline };
        let pair =
            self.domain.queue_pair_sharing(&self.receives, &completions, &completions, &options)?;
        Ok((pair, completions))
    }

    /// Buffers for one more connection, as long as there may be more.
    fn make_room(&self) -> Result<()> {
        let shares = &mut *lock(&self.shares);
        if let Some(place) = self.inbound.get(shares.inbound) {
            let block = Block::new(&self.domain)?;
            let first = shares.inbound * WINDOW;
            let block = place.get_or_init(|| block);
            shares.inbound += 1;
            for number in 0..WINDOW {
                if let Some(message) = block.message(number) {
                    self.receives.post((first + number) as u64, &[message.slice(MESSAGE)?])?;
                }
            }
        }
        if shares.outbound < RECEIVES / WINDOW {
            let block = Block::new(&self.domain)?;
            shares.outbound += 1;
            shares.free.extend((0..WINDOW).filter_map(|number| block.message(number)));
        }
        Ok(())
    }

    /// Memory of a connection for chunks of what the device does not reach.
    pub fn chunks(&self) -> Result<Vec<Message>> {
        let block = Block::of(&self.domain, CHUNKS * CHUNK)?;
        Ok((0..CHUNKS).filter_map(|number| block.part(number * CHUNK)).collect())
    }

    /// Memory for a message that leaves, if there is some.
    pub fn take(&self) -> Option<Message> {
        lock(&self.shares).free.pop()
    }

    pub fn give_back(&self, message: Message) {
        lock(&self.shares).free.push(message);
    }

    /// Where the message is that has arrived in this receive.
    pub fn arrived(&self, receive: u64) -> Option<Message> {
        let receive = usize::try_from(receive).ok()?;
        self.inbound.get(receive / WINDOW)?.get()?.message(receive % WINDOW)
    }

    /// It is read: the next may come.
    pub fn post_again(&self, receive: u64) -> Result<()> {
        match self.arrived(receive) {
            Some(message) => self.receives.post(receive, &[message.slice(MESSAGE)?]),
            None => Ok(()),
        }
    }

    /// A connection is over. What its queue pair still has in its hands is waited for, a moment.
    pub fn bury(
        &self,
        pair: QueuePair<ReadyToSend>,
        completions: Arc<CompletionQueue>,
        sent: Vec<Message>,
    ) {
        if let Err(error) = pair.abort() {
            tracing::debug!("a queue pair of a connection that is over: {error}");
        }
        let since = Instant::now();
        lock(&self.shares).graves.push(Grave { since, pair, completions, sent });
    }

    /// Lets go of what connections have left behind.
    pub fn keep_house(&self, now: Instant) {
        let mut shares = lock(&self.shares);
        if shares.graves.is_empty() {
            return;
        }
        let over = |grave: &Grave| now.saturating_duration_since(grave.since) > MOURNING;
        let count = shares.graves.iter().take_while(|grave| over(grave)).count();
        let graves: Vec<Grave> = shares.graves.drain(..count).collect();
        drop(shares);
        let mut ends = Vec::new();
        for Grave { pair, completions, sent, .. } in graves {
            while matches!(completions.poll(&mut ends), Ok(1..)) {}
            for end in ends.drain(..).filter(|end| end.is_receive()) {
                if let Err(error) = self.post_again(end.id) {
                    tracing::warn!("a receive of the software NIC is lost: {error}");
                }
            }
            drop(pair);
            lock(&self.shares).free.extend(sent);
        }
    }

    /// What is wrong with this side's port, if something is: for whoever lost a peer.
    pub fn trouble(&self) -> Option<String> {
        let (device, number) = (self.context.name(), self.port.number);
        match self.context.ports() {
            Err(error) => Some(error.to_string()),
            Ok(ports) => {
                let port = ports.into_iter().find(|port| port.number == number)?;
                if !port.active {
                    return Some(format!("port {number} of {device} is not active"));
                }
                let gid = self.port.gid?;
                let table = self.context.gids(&port).ok()?;
                let is_there = table.iter().any(|at| at.index == gid.index && at.gid == gid.gid);
                let gone = || format!("GID {} of port {number} of {device} is gone", gid.gid);
                (!is_there).then(gone)
            }
        }
    }
}
