//! What reaches memory that a rank has opened to others: put, get, signals, atomic operations and flush, by the host and on
//! streams, and the view of it that kernels work with. A [`Connection`] leads to the memory of one rank. There are two kinds:
//! [`mapped`], by loads and stores, and [`nic`], by requests of queue pairs; [`Opened::connect`] chooses, and nobody else asks
//! which one it is.

mod channel;
mod end;
pub(crate) mod line;
mod mapped;
pub(crate) mod nic;
mod outbox;
mod packet;
mod state;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gdsync::wqe::RemoteAddress;
use gdsync::{Buffer, Deadline, Device, PeerHandle, PeerMemory, Rows, Space, Stream, Word64};
use mp_kernels::{AtomicKind, WindowPart};
use serde::{Deserialize, Serialize};

use crate::collective::Element;
use crate::data::plane::Plane;
use crate::error::{Error, Result};
pub(crate) use channel::Channel;
#[cfg(test)]
pub(crate) use end::Opening;
pub(crate) use end::{
    End, EndNotice, Handed, Here, IN_ONE, Line, Met, NewEnd, OneSided, OneSidedKind, Side, open,
};
#[cfg(test)]
pub(crate) use mapped::EndOpening as MappedOpening;
use mapped::Mapped;
pub(crate) use mapped::Slots;
use nic::{AtomicsByNic, KernelLinks};
pub(crate) use outbox::Outbox;
pub(crate) use state::EndState;

/// Bytes between two signals: each has a cache line of its own.
pub(crate) const STRIDE: usize = mp_kernels::SIGNAL_STRIDE as usize;

/// A call that goes through a connection.
pub(crate) struct Call<'a> {
    pub plane: &'a Plane,
    pub timeout: Duration,
    /// What it is called in errors.
    pub op: &'a dyn Fn() -> String,
}

impl Call<'_> {
    pub fn failed(&self, source: gdsync::Error) -> Error {
        Error::Memory { op: (self.op)(), source }
    }
}

/// What is done to a signal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signal {
    pub number: usize,
    pub action: SignalAction,
}

/// How a signal is raised: one rank sets it, or any number of them add to it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SignalAction {
    Set(u64),
    Add(u64),
}

/// What is put, or got into: rows of a buffer, in bytes. It has them, and so has the rank.
pub(crate) struct Local {
    pub memory: Buffer<u8>,
    pub rows: Rows,
}

/// When a put or a get of the host returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Return {
    /// It is on its way: until a flush, what is put must not be written, and what is got is not there.
    Started,
    /// It has happened.
    Happened,
}

/// How kernels and host streams here get to opened memory by themselves.
pub(crate) enum Reach<'a> {
    /// Addresses for this rank's device.
    Near { memory: u64, signals: u64 },
    /// By requests to the first of these queues, from the own memory, which has this local key.
    Far { link: &'a Arc<KernelLinks>, memory: RemoteAddress, signals: RemoteAddress, own_key: u32 },
}

/// An operation on a word of 32 or 64 bits, as one step for everybody. Of 32 bits the numbers are the lower halves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Atomic {
    pub kind: AtomicKind,
    pub element: Element,
    pub value: u64,
    /// Of a compare and swap.
    pub expected: u64,
}

impl Atomic {
    /// Whether its word has 32 bits.
    pub fn is_half(&self) -> bool {
        self.element.is_half()
    }

    /// What a word holds behind it, that held this before.
    pub fn next(&self, held: u64) -> u64 {
        match self.kind {
            AtomicKind::Fetch => held,
            AtomicKind::Swap => self.value,
            AtomicKind::CompareSwap => match held == self.expected {
                true => self.value,
                false => held,
            },
            kind => self.element.change(kind, held, self.value),
        }
    }
}

/// The way to the opened memory of a rank. Offsets are bytes; whoever calls has checked them, and the signals' numbers.
///
/// Calls of the host return when all has happened there, unless they say otherwise. What a stream is given happens when it gets there; behind a put or a get
/// the memory here may be used again, a signal is only on its way.
pub(crate) trait Connection: Send + Sync {
    /// Writes from byte `at` on, and then the signal.
    fn put(
        &self,
        call: &Call<'_>,
        at: usize,
        source: &Local,
        signal: Option<Signal>,
        when: Return,
    ) -> Result<()>;

    /// Reads from byte `at` on.
    fn get(&self, call: &Call<'_>, at: usize, target: &Local, when: Return) -> Result<()>;

    /// Raises a signal: whoever sees it sees what was put before.
    fn signal(&self, call: &Call<'_>, signal: Signal) -> Result<()>;

    /// Changes the word at byte `at`, a multiple of its size; gives what it held. `None`: the CPU does not reach it.
    fn atomic(&self, call: &Call<'_>, at: usize, atomic: Atomic) -> Result<Option<u64>>;

    /// Waits until the memory here of puts and gets that the host has started is used no more.
    fn flush(&self, call: &Call<'_>) -> Result<()>;

    /// Waits until everything that was posted for the rank has happened there, by the host, and whatever stream or kernel.
    fn quiet(&self, call: &Call<'_>) -> Result<()>;

    fn put_on(&self, call: &Call<'_>, stream: &Stream, at: usize, source: &Local) -> Result<()>;

    fn get_on(&self, call: &Call<'_>, stream: &Stream, at: usize, target: &Local) -> Result<()>;

    fn signal_on(&self, call: &Call<'_>, stream: &Stream, signal: Signal) -> Result<()>;

    /// The memory, and the word of a signal, where they are mapped here.
    fn memory(&self) -> Option<&Buffer<u8>>;
    fn word(&self, signal: usize) -> Option<Buffer<u64>>;

    /// What kernels of this rank's device take, and the memory that they use through it.
    fn view(&self) -> WindowPart;
    /// The same in parts.
    fn reach(&self) -> Reach<'_> {
        let WindowPart { memory, signals, .. } = self.view();
        Reach::Near { memory, signals }
    }
    /// Before kernels do atomic operations there. Whether the view is another one now.
    fn make_atomics_ready(&self, _: &Call<'_>) -> Result<bool> {
        Ok(false)
    }
    /// Whether a NIC changes its signals though they are mapped: then a GPU may set them, but not add to them, since its atomic operations
    /// are not one with the NIC's. Kernels have the NIC add, or are refused.
    fn has_atomics_by_nic(&self) -> bool {
        false
    }
    fn held(&self) -> Vec<Buffer<u8>>;

    /// How the CPU tells the rank, by a signal, that kernels of this rank have reached a phase: behind what it has stored there, and
    /// behind a put of what it has not. In order with what those kernels post.
    fn line(
        &self,
        call: &Call<'_>,
        put: Option<(Buffer<u8>, RemoteAddress)>,
        signal: usize,
    ) -> Result<Arc<dyn Line>>;

    /// How the CPU of this rank alone writes `len` bytes of the memory from byte `at` on, again and again, in order.
    fn channel(&self, call: &Call<'_>, at: usize, len: usize) -> Result<Box<dyn Channel>>;

    /// The way of a prepared operation, whose counters are `state`.
    fn one_sided(&self, call: &Call<'_>, what: &OneSided, state: &EndState) -> Result<Met>;
}

/// Memory and signals of this rank that it opens to others.
pub(crate) struct Opened {
    plane: Arc<Plane>,
    memory: Buffer<u8>,
    signals: Signals,
    /// Where others reach it through the NIC.
    share: Option<Arc<nic::OwnShare>>,
    /// The links of this rank's kernels to those.
    links: Vec<Option<Arc<KernelLinks>>>,
    told: Told,
    /// On a GPU.
    hand: Option<Arc<Hand>>,
}

/// Does for the host what the CPU does not reach: memory of a GPU.
struct Hand {
    device: Device,
    /// A word that the CPU reaches.
    word: Mutex<Buffer<u64>>,
}

impl Hand {
    /// For the device of the window's memory, if it takes one. Made with the window: making memory may wait for kernels.
    fn new(plane: &Plane, device: &Device, op: &dyn Fn() -> String) -> Result<Option<Arc<Hand>>> {
        if device.as_cuda().is_none() {
            return Ok(None);
        }
        let word = plane.pieces.cut(device, Space::Pinned, size_of::<u64>());
        let word = word.and_then(|word| word.cast());
        let word = word.map_err(|source| Error::Memory { op: op(), source })?;
        Ok(Some(Arc::new(Hand { device: device.clone(), word: Mutex::new(word) })))
    }

    /// Does something, and waits for it.
    fn does(&self, call: &Call<'_>, what: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
        let stream = call.plane.lend(&self.device)?;
        what(&stream)?;
        call.plane.synchronize(&stream, Deadline::after(call.timeout))?;
        call.plane.give_back(stream);
        Ok(())
    }

    /// Reads a word.
    fn read(&self, call: &Call<'_>, from: &Buffer<u64>) -> Result<u64> {
        let word = self.word.lock().unwrap_or_else(PoisonError::into_inner);
        self.does(call, |stream| stream.copy(&word, from).map_err(|source| call.failed(source)))?;
        word.word(0).map(|word| word.load().unwrap_or_default()).map_err(|it| call.failed(it))
    }
}

/// What the others are told of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Told {
    pub bytes: u64,
    pub signals: u64,
    memory: Option<PeerHandle>,
    signal_memory: Option<PeerHandle>,
    nic: Option<nic::Share>,
}

/// Words as a device reaches them.
struct Signals {
    memory: Buffer<u64>,
    words: Vec<Word64>,
}

impl Signals {
    fn new(memory: &Buffer<u8>) -> gdsync::Result<Signals> {
        let memory = memory.cast::<u64>()?;
        let each = STRIDE / size_of::<u64>();
        let words = (0..memory.len() / each).map(|number| memory.word(number * each));
        Ok(Signals { words: words.collect::<gdsync::Result<_>>()?, memory })
    }

    fn word(&self, number: usize) -> Option<Buffer<u64>> {
        let at = number.checked_mul(STRIDE / size_of::<u64>())?;
        self.memory.slice(at..at.checked_add(1)?).ok()
    }

    fn device_address(&self) -> u64 {
        self.memory.device_address().filter(|_| !self.memory.is_empty()).unwrap_or_default()
    }
}

impl Opened {
    /// Opens `memory`, and so many signals beside it, to `ranks` of the world, this one among them. Signals lie in the memory of
    /// the same device; in pinned memory where a NIC raises them, which stores there with less ado.
    pub fn new(
        plane: &Arc<Plane>,
        ranks: &[usize],
        memory: Buffer<u8>,
        signals: usize,
        op: &dyn Fn() -> String,
    ) -> Result<Opened> {
        let failed = |source| Error::Memory { op: op(), source };
        // Among threads of one process nobody is.
        let behind = if plane.together { &[] } else { ranks };
        let far = behind.iter().map(|&rank| nic::leads_to(plane, rank));
        let far = far.collect::<Result<Vec<_>>>()?;
        let count = far.iter().filter(|far| far.is_some()).count();
        let device = memory.device().clone();
        let bytes = signals.checked_mul(STRIDE).ok_or_else(|| Error::OutOfRange {
            op: op(),
            at: 0,
            len: signals as u64,
            size: (usize::MAX / STRIDE) as u64,
        })?;
        let signal_memory = match count {
            0 => plane.pieces.cut_for(&device, bytes),
            _ => plane.pieces.cut(&device, Space::Pinned, bytes),
        };
        let signal_memory = signal_memory.map_err(failed)?;
        let share = (count > 0)
            .then(|| {
                nic::OwnShare::new(plane, &memory, &signal_memory, 1 + count, op).map(Arc::new)
            })
            .transpose()?;
        // Whoever answers one has seen that its own was asked for.
        let links = far
            .into_iter()
            .map(|far| far.map(|neighbour| plane.kernel_links(neighbour, &device, op)).transpose());
        let links = links.collect::<Result<Vec<_>>>()?;
        // Nobody maps what all others reach through the NIC.
        let mapped = count + 1 < ranks.len();
        let export = |memory: &Buffer<u8>| {
            (mapped && !memory.is_empty()).then(|| memory.export()).transpose().map_err(failed)
        };
        let told = Told {
            bytes: memory.len() as u64,
            signals: signals as u64,
            memory: export(&memory)?,
            signal_memory: export(&signal_memory)?,
            nic: share.as_ref().map(|share| share.told.clone()),
        };
        let signals = Signals::new(&signal_memory).map_err(failed)?;
        let hand = Hand::new(plane, &device, op)?;
        let plane = plane.clone();
        Ok(Opened { plane, memory, signals, share, links, told, hand })
    }

    pub fn told(&self) -> &Told {
        &self.told
    }

    pub fn memory(&self) -> &Buffer<u8> {
        &self.memory
    }

    /// The way to what rank number `place` of those that were named has opened, `rank` of the world.
    pub fn connect(
        &self,
        call: &Call<'_>,
        place: usize,
        rank: usize,
        told: &Told,
    ) -> Result<Arc<dyn Connection>> {
        if let (Some(Some(link)), Some(own)) = (self.links.get(place), &self.share) {
            let far = nic::Far::new(
                &self.plane,
                call,
                rank,
                self.memory.device(),
                link.clone(),
                own,
                told,
            )?;
            return Ok(Arc::new(far));
        }
        let device = self.memory.device();
        if rank == self.plane.rank() {
            let signals = self.signals.memory.bytes();
            let atomics = self.share.as_ref().map(|own| AtomicsByNic::own(device, own));
            let own = Mapped::new(self.hand.clone(), self.memory.clone(), &signals, atomics);
            return Ok(Arc::new(own.map_err(|source| call.failed(source))?));
        }
        let one = |handle: &Option<PeerHandle>| {
            handle.as_ref().is_none_or(|handle| handle.has_native_atomics(device))
        };
        let memory = !one(&told.memory);
        let atomics = (told.nic.is_some() && (memory || !one(&told.signal_memory)))
            .then(|| AtomicsByNic::refused(call, device, memory))
            .transpose()?;
        let map = |handle: &Option<PeerHandle>| match handle {
            Some(handle) => PeerMemory::map(handle, device).map(|peer| peer.buffer),
            None => self.memory.slice(0..0),
        };
        let mapped = map(&told.memory).and_then(|memory| {
            let signals = map(&told.signal_memory)?;
            Mapped::new(self.hand.clone(), memory, &signals, atomics)
        });
        let failed = |source| call.failed(source);
        let unmapped = |source| self.plane.unmapped(rank, call.op, source, failed);
        Ok(Arc::new(mapped.map_err(unmapped)?))
    }

    /// Has a stream of the GPU do what leaves a result in a word that the CPU reaches, which it is given, 0 at first.
    pub fn by_hand(
        &self,
        call: &Call<'_>,
        what: impl FnOnce(&Stream, &Buffer<u64>) -> Result<()>,
    ) -> Result<u64> {
        let Some(hand) = &self.hand else {
            return Err(call.failed(gdsync::Error::NotReachable {
                what: "an operation of the host",
                memory: format!("{:?}", self.memory),
                place: "the CPU".into(),
                hint: "put the window into host memory",
            }));
        };
        let word = hand.word.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = word.word(0).map_err(|source| call.failed(source))?;
        cell.store(0).map_err(|source| call.failed(source))?;
        hand.does(call, |stream| what(stream, &word))?;
        Ok(cell.load().unwrap_or_default())
    }

    /// Of an own signal, which exists.
    pub fn word(&self, number: usize) -> Option<&Word64> {
        self.signals.words.get(number)
    }

    /// What an own signal holds. Acquire.
    pub fn read_signal(&self, call: &Call<'_>, word: &Word64, number: usize) -> Result<u64> {
        if let Some(value) = word.load() {
            return Ok(value);
        }
        match (&self.hand, self.signals.word(number)) {
            (Some(hand), Some(from)) => hand.read(call, &from),
            _ => Err(call.failed(gdsync::Error::NotReachable {
                what: "reading a signal",
                memory: format!("{word:?}"),
                place: "the CPU".into(),
                hint: "put the window into host memory",
            })),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(share) = &self.share {
            self.plane.close_window(share.told.number());
        }
    }
}
