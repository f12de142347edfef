//! Tagged messages: send and receive between any two ranks of a communicator, matched when they meet, as in MPI. A receive names a
//! source and a tag, or takes [any](Source::Any); sends need not be expected. [`Communicator::tagged`] makes it.
//!
//! What is sent again and again between the same memories goes faster as prepared [`Send`](crate::Send) and
//! [`Recv`](crate::Recv), which are matched once and which streams and kernels start, too. Here the host sends and receives: any slice, regions of
//! host and GPU memory, OpenCL memory, and for those also [behind what is on a stream](Place::on).
//!
//! # Which message a receive gets
//! A message goes to the receive that was posted first of those that match it, and a receive gets the message that came first of
//! those that it matches ([`matching`](crate::matching) has the rules). Messages between two ranks do not overtake each other. Of messages from
//! different ranks that wait for the same receives every rank has its turn.
//!
//! # When a send is complete
//! When its memory is the caller's again. A message up to [`Options::eager_limit`] goes at once, whether it is expected or not, as long as
//! what lies unexpected of this rank at the receiver stays below [`Options::unexpected`]; a longer one, or one too many, is offered,
//! and its bytes move when a receive wants them. So two ranks that send to each other first and then receive wait for each other
//! if the messages are long, and find out at their deadlines; [`isend`](Tagged::isend) is for them.
//!
//! # How the bytes go
//! Each rank opens a window in which every other has rings that it alone writes: lines of 64 bytes (tag, length, up to 40 bytes of
//! message), longer messages up to the limit behind them, and pieces of those that were offered and are wanted. Room is credit, which the
//! reader writes back. An offered message in a region, or in lent memory that stays, is read straight out of the sender's memory where the
//! ranks share a host and the system allows it. The same holds on every path between ranks; only how a line is written differs.
//!
//! Memory that the CPU does not reach is offered whatever its length. When it is wanted, a stream of its device that nobody else uses copies it into a
//! few pinned chunks, at most two for a message at a time, from which it goes on as any other; a receive is the same the other way. Bytes that
//! are wanted go between two ranks in the order in which they became so. What a device says of a copy that failed, or of a kernel before it, is the
//! error of whichever call finds it.
//!
//! # Progress and failure
//! Whatever call of this rank waits moves its messages on; there is no hidden thread, but one [for the asking](Communicator::progress). Every wait has a deadline, and a lost rank ends the world
//! of all: the error names the message, and how much of it there was.

mod engine;
mod envelope;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod lane;
mod memory;
mod place;
mod pool;
mod request;
mod rings;
mod served;
mod staging;
mod straight;

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use gdsync::{CudaDevice, Deadline, Device};

use crate::communicator::Communicator;
use crate::data::plane::{Help, Plane};
use crate::data::wait::Backoff;
use crate::data::window::Window;
use crate::error::{Error, Result};
use crate::matching::{Label, Pattern};
use crate::ownership::{Guard, Lock};
use crate::transport::Call;
use engine::{Arrival, Engine, Outcome, Way, What};
#[cfg(any(test, fuzzing))]
pub use fuzz::lines as fuzz_lines;
use memory::Memory;
pub use place::Place;
pub use pool::Ticket;
pub use request::{Request, Scope, wait_all, wait_any};
use rings::Layout;
pub use served::Served;
pub use staging::Staged;
use staging::Words;

/// Looks of a wait at its own messages between two pauses: what comes meanwhile is seen at once.
const LOOKS: u32 = 4;
/// Pauses of a wait between two looks at everything else of the rank.
const ASIDE: u32 = 8;

/// Whose messages a receive takes.
///
/// ```
/// use libmp::tagged::Source;
///
/// assert_eq!(Source::from(3), Source::Rank(3)); // where a source is asked for, `3` will do
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// This rank of the communicator.
    Rank(usize),
    /// Any.
    Any,
}

impl From<usize> for Source {
    fn from(rank: usize) -> Source {
        Source::Rank(rank)
    }
}

/// Which messages a receive takes.
///
/// ```
/// use libmp::tagged::Tag;
///
/// assert_eq!(Tag::from(3), Tag::Is(3)); // where a tag is asked for, `3` will do
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// Those with this tag.
    Is(u64),
    /// Any.
    Any,
}

impl From<u64> for Tag {
    fn from(tag: u64) -> Tag {
        Tag::Is(tag)
    }
}

/// What a receive got. Of a send: this rank, its tag and its length.
///
/// See [`Tagged`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// The sender's rank in the communicator.
    pub source: usize,
    /// The message's tag.
    pub tag: u64,
    /// The message's length.
    pub bytes: usize,
}

/// Sizes, the same on every rank.
///
/// ```
/// use libmp::World;
/// use libmp::tagged::Options;
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let messages = world.tagged(&Options { unexpected: 16 << 20, ..Options::default() })?;
/// # drop(messages);
/// # world.finish()
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The longest message, in bytes, that is sent before it is wanted. At most 64 KiB.
    pub eager_limit: usize,
    /// How much may lie unexpected at a rank of each other one: bytes, and 64 for each message. Beyond it senders wait.
    pub unexpected: usize,
    /// Bytes of the ring through which longer messages go, of each pair of ranks; `None`: by the number of ranks, 512 KiB for a few, and 8 MiB where one
    /// of them has opened a GPU before: room for four of its copies. A power of two from 4 KiB to 64 MiB.
    pub ring: Option<usize>,
    /// The most bytes that are copied at once between a device and host memory, from 4 KiB to 16 MiB; `None`: by what copies of several sizes take on
    /// this device, when it is first used ([`Staged::chunk`] says what came of it). Through a ring a copy has at most a quarter of it. Each rank says it
    /// for itself.
    pub chunk: Option<usize>,
    /// Whether also regions that the CPU reaches go the way of those that it does not, as on a machine where nothing is mapped: to measure
    /// that way, and to test it. Each rank says it for itself.
    pub staged: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { eager_limit: 8192, unexpected: 1 << 20, ring: None, chunk: None, staged: false }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        let mismatch = |reason: String| Error::Mismatch { op: "tagged messages".into(), reason };
        if self.eager_limit > 64 << 10 {
            let reason = format!("an eager limit of {} bytes, at most 65536", self.eager_limit);
            return Err(mismatch(reason));
        }
        if let Some(chunk) = self.chunk.filter(|chunk| !(4096..=16 << 20).contains(chunk)) {
            return Err(mismatch(format!("a chunk of {chunk} bytes: from 4096 to 16 MiB")));
        }
        match self.ring {
            Some(ring) if !ring.is_power_of_two() || !(4096..=64 << 20).contains(&ring) => {
                Err(mismatch(format!("a ring of {ring} bytes: a power of two from 4096 to 64 MiB")))
            }
            _ => Ok(()),
        }
    }
}

/// The tagged messages of a communicator: [`Communicator::tagged`]. Clones are the same; `Send` and `Sync`. The last of a rank, its requests included,
/// is dropped when its sends are complete: what has not gone then goes no more.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::tagged::{Options, Source, Tag};
/// use libmp::{Deadline, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let messages = world.tagged(&Options::default())?; // a collective call
/// let soon = Deadline::after(Duration::from_secs(10));
/// let right = (world.rank() + 1) % world.size();
/// messages.send(&[1.5, 2.5], right, 7, soon)?;
/// let mut got = [0.0; 4];
/// let status = messages.recv(&mut got, Source::Any, Tag::Any, soon)?;
/// assert_eq!((status.tag, status.bytes, &got[..2]), (7, 16, &[1.5, 2.5][..]));
/// # world.finish()
/// # }
/// ```
#[derive(Clone)]
pub struct Tagged {
    shared: Kept,
}

/// What is shared, as those hold it who use it.
#[derive(Clone)]
enum Kept {
    Counted(Arc<Shared>),
    /// See [`Tagged::forever`].
    Forever(&'static Shared),
}

impl Deref for Kept {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        match self {
            Kept::Counted(shared) => shared,
            Kept::Forever(shared) => shared,
        }
    }
}

pub(crate) struct Shared {
    plane: Arc<Plane>,
    /// Ranks of the world.
    ranks: Vec<usize>,
    rank: usize,
    timeout: Duration,
    name: String,
    /// See [`Options::staged`].
    staged: bool,
    /// For streams that wait for receives.
    words: Arc<Words>,
    engine: Lock<Engine>,
}

/// A message that a matched probe has taken out: nobody else gets it. One that is dropped is lost.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::tagged::{Options, Source, Tag};
/// use libmp::{Deadline, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// # let messages = world.tagged(&Options::default())?;
/// # let soon = Deadline::after(Duration::from_secs(10));
/// messages.send(&[1u8, 2, 3], world.rank(), 7, soon)?;
/// let message = messages.mprobe(Source::Any, Tag::Any, soon)?;
/// let mut bytes = vec![0u8; message.status().bytes];
/// message.recv(&mut bytes, soon)?;
/// assert_eq!(bytes, [1, 2, 3]);
/// # world.finish()
/// # }
/// ```
pub struct Taken {
    shared: Kept,
    status: Status,
    message: Option<(Label, Arrival)>,
}

impl Tagged {
    pub(crate) fn new(
        communicator: &Communicator,
        plane: &Arc<Plane>,
        options: &Options,
    ) -> Result<Tagged> {
        let op = || format!("tagged messages of {}", communicator.name());
        let mismatch = |reason: String| Error::Mismatch { op: op(), reason };
        // Everybody hears of what anybody cannot do.
        let checked = options.check().map_err(|error| error.to_string());
        let mine = (checked, options.eager_limit, options.unexpected, options.ring);
        let mut gpus = CudaDevice::is_any_open();
        let blob =
            postcard::to_stdvec(&(&mine, gpus)).map_err(|error| mismatch(error.to_string()))?;
        for (rank, blob) in communicator.gather_blobs(&blob)?.blobs().into_iter().enumerate() {
            type Told = (std::result::Result<(), String>, usize, usize, Option<usize>);
            let (told, has_gpu): (Told, bool) = postcard::from_bytes(blob)
                .map_err(|error| mismatch(format!("rank {rank}: {error}")))?;
            gpus |= has_gpu;
            told.0.clone().map_err(|reason| mismatch(format!("rank {rank}: {reason}")))?;
            if told != mine {
                return Err(mismatch(format!("{mine:?} here, {told:?} of rank {rank}")));
            }
        }
        let (rank, size) = (communicator.rank(), communicator.size());
        let ranks = (0..size).map(|rank| communicator.world_rank(rank));
        let ranks = ranks.collect::<Result<Vec<_>>>()?;
        let layout = Layout::new(options, size, gpus);
        let share = communicator.alloc::<u8>(&Device::Host, size * layout.stretch())?;
        let window = Window::open(communicator, plane, &share, 0)?;
        let share = share.buffer().clone();
        let plane_and_chunk = (&**plane, options.chunk);
        let engine = Engine::new(window, &share, layout, (rank, &ranks), plane_and_chunk)?;
        let shared = Arc::new(Shared {
            plane: plane.clone(),
            ranks,
            rank,
            timeout: communicator.timeout(),
            name: communicator.name().to_owned(),
            staged: options.staged,
            words: Arc::default(),
            engine: Lock::new(engine),
        });
        let help: Arc<dyn Help> = shared.clone();
        plane.helpers.add(Arc::downgrade(&help));
        // Nobody gives his rings back before all have found them.
        communicator.barrier()?;
        Ok(Tagged { shared: Kept::Counted(shared) })
    }

    /// The same, kept until the process ends, with the memory that they have: for who holds them that long, such as a library behind an interface
    /// of C. Nobody counts any more who uses them, which each message would pay for.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use libmp::{Deadline, World};
    /// # use libmp::tagged::Options;
    /// # fn main() -> libmp::Result<()> {
    /// # let world = World::init()?;
    /// let messages = world.tagged(&Options::default())?.forever();
    /// messages.send(&[1u8], world.rank(), 7, Deadline::after(Duration::from_secs(10)))?;
    /// # world.finish()
    /// # }
    /// ```
    pub fn forever(self) -> Tagged {
        let shared = match self.shared {
            Kept::Counted(shared) => Box::leak(Box::new(shared)),
            Kept::Forever(shared) => shared,
        };
        Tagged { shared: Kept::Forever(shared) }
    }

    /// This rank's number in the communicator.
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// How many ranks the communicator has.
    pub fn size(&self) -> usize {
        self.shared.ranks.len()
    }

    /// Sends the elements to a rank of the communicator, and waits until they are the caller's again.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`]; [`Error::Waits`] at the deadline, behind which the message goes on from a copy; what ended the world.
    pub fn send<T: Pod>(&self, data: &[T], to: usize, tag: u64, deadline: Deadline) -> Result<()> {
        let memory =
            lent(bytemuck::cast_slice::<T, u8>(data).as_ptr().cast_mut(), size_of_val(data));
        match self.shared.send(to, tag, memory)? {
            None => Ok(()),
            Some(ticket) => {
                let what = || self.shared.of_send(to, tag);
                self.shared.wait_or_abandon(ticket, &what, deadline).map(drop)
            }
        }
    }

    /// Receives a message into the elements, and says which. A shorter one leaves the rest as it is.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`]; [`Error::Truncated`] for a longer message, which is lost, and of which some bytes may be there;
    /// [`Error::Waits`] at the deadline: the receive is taken back, or, if its message is coming, that is lost. What ended the world.
    pub fn recv<T: Pod>(
        &self,
        data: &mut [T],
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        deadline: Deadline,
    ) -> Result<Status> {
        let len = size_of_val(data);
        let memory = lent(bytemuck::cast_slice_mut::<T, u8>(data).as_mut_ptr(), len);
        let (from, tag) = (from.into(), tag.into());
        let ticket = self.shared.receive(from, tag, memory)?;
        let what = || self.shared.of_receive(from, tag);
        let outcome = self.shared.wait_or_abandon(ticket, &what, deadline)?;
        self.shared.status(outcome, &what)
    }

    /// Starts to send a region, or memory of a device. While it is under way the memory is not to be written.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`]; [`Error::Memory`] for memory that neither the CPU nor a device of this process reaches; [`Error::Mismatch`] on a
    /// stream that is being captured; what ended the world.
    pub fn isend<'a>(
        &self,
        from: impl Into<Place<'a>>,
        to: usize,
        tag: u64,
    ) -> Result<Request<'a>> {
        Request::send(&self.shared, from.into(), to, tag, true)
    }

    /// Starts to receive into a region, or memory of a device, which is not to be used while it is under way.
    ///
    /// # Errors
    /// As [`isend`](Self::isend); [`Error::Mismatch`] for OpenCL memory that may only be read.
    pub fn irecv<'a>(
        &self,
        into: impl Into<Place<'a>>,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Request<'a>> {
        Request::receive(&self.shared, into.into(), from.into(), tag.into(), true)
    }

    /// A send that is [started](Request::start) again and again.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    pub fn send_init<'a>(
        &self,
        from: impl Into<Place<'a>>,
        to: usize,
        tag: u64,
    ) -> Result<Request<'a>> {
        Request::send(&self.shared, from.into(), to, tag, false)
    }

    /// A receive that is [started](Request::start) again and again.
    ///
    /// # Errors
    /// As [`irecv`](Self::irecv).
    pub fn recv_init<'a>(
        &self,
        into: impl Into<Place<'a>>,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Request<'a>> {
        Request::receive(&self.shared, into.into(), from.into(), tag.into(), false)
    }

    /// What has been done so far for memory that the CPU does not reach.
    pub fn staged(&self) -> Staged {
        self.shared.lock().staged()
    }

    /// Runs `body` with a scope in which slices can be sent from and received into without waiting. When it returns, what was started in
    /// the scope and is still under way is left to itself: a receive that has got nothing is taken back, what another gets is lost, and a send
    /// goes on from a copy.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use libmp::tagged::{Options, wait_all};
    /// use libmp::{Deadline, World};
    ///
    /// # fn main() -> libmp::Result<()> {
    /// # let world = World::init()?;
    /// # let messages = world.tagged(&Options::default())?;
    /// let (right, left) = ((world.rank() + 1) % world.size(), (world.rank() + world.size() - 1) % world.size());
    /// let (edge, mut ghost) = (vec![1.0; 100], vec![0.0; 100]);
    /// messages.scope(|scope| {
    ///     let mut both = [scope.irecv(&mut ghost, left, 7)?, scope.isend(&edge, right, 7)?];
    ///     wait_all(&mut both, Deadline::after(Duration::from_secs(10)))
    /// })?;
    /// assert_eq!(ghost, edge);
    /// # world.finish()
    /// # }
    /// ```
    pub fn scope<'env, R>(
        &self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    ) -> R {
        let scope = Scope::new(&self.shared);
        body(&scope)
        // The scope's end leaves what is under way to itself, also when `body` panics.
    }

    /// A send, or with `starts` false one that is only [prepared](Self::send_init), of bytes anywhere in host memory. Where ranks share a
    /// host, they may read the bytes by their address.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    ///
    /// # Safety
    /// The bytes stay valid, and are not written, until a wait has said that the send is complete, or the world is over, also if the
    /// request is dropped before.
    pub unsafe fn isend_raw(
        &self,
        bytes: (NonNull<u8>, usize),
        to: usize,
        tag: u64,
        starts: bool,
    ) -> Result<Request<'static>> {
        match starts {
            true => Request::send_memory(&self.shared, staying(bytes), to, tag),
            false => Request::send(&self.shared, Place::lent(bytes), to, tag, false),
        }
    }

    /// A receive, or with `starts` false one that is only [prepared](Self::recv_init), into bytes anywhere in host memory.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    ///
    /// # Safety
    /// The bytes stay valid, and nobody else uses them, until a wait has said that the receive is complete, or the request is
    /// dropped.
    pub unsafe fn irecv_raw(
        &self,
        bytes: (NonNull<u8>, usize),
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        starts: bool,
    ) -> Result<Request<'static>> {
        let (from, tag) = (from.into(), tag.into());
        match starts {
            true => Request::receive_memory(&self.shared, staying(bytes), from, tag),
            false => Request::receive(&self.shared, Place::lent(bytes), from, tag, false),
        }
    }

    /// Starts to send bytes anywhere in host memory: for requests that are handles of C's. `None` if they have gone, and are the caller's again.
    /// Where ranks share a host, they may read the bytes by their address.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use std::time::Duration;
    ///
    /// use libmp::tagged::Options;
    /// use libmp::{Deadline, World};
    ///
    /// # fn main() -> libmp::Result<()> {
    /// # let world = World::init()?;
    /// # let messages = world.tagged(&Options::default())?;
    /// let (mut from, mut to) = ([1u8; 8], [0u8; 8]);
    /// let bytes = |array: &mut [u8; 8]| (NonNull::from(array).cast::<u8>(), 8);
    /// // SAFETY: both arrays outlive `finish`.
    /// let (recv, send) = unsafe {
    ///     let recv = messages.start_recv(bytes(&mut to), world.rank(), 7)?;
    ///     (recv, messages.start_send(bytes(&mut from), world.rank(), 7)?)
    /// };
    /// let soon = Deadline::after(Duration::from_secs(10));
    /// messages.finish(send.into_iter().chain([recv]), soon, |status| assert_eq!(status.bytes, 8))?;
    /// assert_eq!(from, to);
    /// # world.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    ///
    /// # Safety
    /// As [`isend_raw`](Self::isend_raw).
    #[inline]
    pub unsafe fn start_send(
        &self,
        bytes: (NonNull<u8>, usize),
        to: usize,
        tag: u64,
    ) -> Result<Option<Ticket>> {
        self.shared.check_rank(to)?;
        let what = || format!("{}, 0 of {} bytes", self.shared.of_send(to, tag), bytes.1);
        self.shared.with(&what, |engine, way| engine.send(way, to, tag, staying(bytes)))
    }

    /// Starts to receive into bytes anywhere in host memory: for requests that are handles of C's.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    ///
    /// # Safety
    /// The bytes stay valid, and nobody else uses them, until somebody has been told that the receive is complete, or a
    /// [`request`](Self::request) of it is dropped.
    #[inline]
    pub unsafe fn start_recv(
        &self,
        bytes: (NonNull<u8>, usize),
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Ticket> {
        let (from, tag) = (from.into(), tag.into());
        let pattern = self.shared.pattern(from, tag)?;
        let what = || format!("{}, 0 of {} bytes", self.shared.of_receive(from, tag), bytes.1);
        self.shared.with(&what, |engine, way| engine.receive(way, pattern, |it| it.lend(bytes)))
    }

    /// Waits for what has tickets of these tagged messages, and says in their order what each has got. The tickets up to the one that fails, and that one if it
    /// was truncated, are over. `each` only takes note: in a call of the same messages it would wait for itself.
    ///
    /// # Errors
    /// As [`Request::wait`], of the first that fails; [`Error::Mismatch`] for a ticket of what is over.
    pub fn finish(
        &self,
        tickets: impl IntoIterator<Item = Ticket>,
        deadline: Deadline,
        mut each: impl FnMut(Status),
    ) -> Result<()> {
        let mut engine = self.shared.lock();
        for ticket in tickets {
            if !engine.is_complete(ticket) {
                let what = engine.what(ticket);
                drop(engine);
                self.complete(ticket, what, deadline)?;
                engine = self.shared.lock();
            }
            match engine.finished(ticket) {
                Some(Outcome::Done(status)) => each(status),
                None => return Err(self.shared.no_such_request()),
                Some(outcome @ Outcome::Truncated(status, _)) => {
                    drop(engine);
                    return self.shared.status(outcome, &|| self.shared.of_got(status)).map(drop);
                }
            }
        }
        Ok(())
    }

    /// Waits until what has a ticket is complete.
    fn complete(&self, ticket: Ticket, what: Option<What>, deadline: Deadline) -> Result<()> {
        let what = what.ok_or_else(|| self.shared.no_such_request())?;
        let is_complete = |engine: &mut Engine| engine.is_complete(ticket).then_some(());
        let what = || self.shared.describe(what);
        self.shared.wait_until(&what, Some(ticket), deadline, is_complete)
    }

    /// Whether what has a ticket is complete, and then what it got; it is over then. Makes progress, does not block.
    ///
    /// # Errors
    /// As [`Request::test`]; [`Error::Mismatch`] for a ticket of what is over.
    pub fn finished(&self, ticket: Ticket) -> Result<Option<Status>> {
        let what = self.shared.lock().what(ticket);
        let what = what.ok_or_else(|| self.shared.no_such_request())?;
        let what = || self.shared.describe(what);
        let is_complete = |engine: &mut Engine| engine.is_complete(ticket).then_some(());
        if self.shared.look(&what, is_complete)?.is_none() {
            return Ok(None);
        }
        match self.shared.lock().finished(ticket) {
            Some(Outcome::Done(status)) => Ok(Some(status)),
            Some(outcome) => self.shared.status(outcome, &what).map(Some),
            None => Err(self.shared.no_such_request()),
        }
    }

    /// What has a ticket, as a request: the ticket is not used any more.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for a ticket of what is over.
    pub fn request(&self, ticket: Ticket) -> Result<Request<'static>> {
        let what = self.shared.lock().what(ticket);
        let what = what.ok_or_else(|| self.shared.no_such_request())?;
        Ok(Request::of(&self.shared, what, ticket))
    }

    /// Whether a message has come that such a receive would get, and which.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`]; what ended the world.
    pub fn iprobe(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Status>> {
        let (from, tag) = (from.into(), tag.into());
        let pattern = self.shared.pattern(from, tag)?;
        self.shared.look(&|| self.shared.of_probe(from, tag), |engine| engine.probe(&pattern))
    }

    /// Waits for a message that such a receive would get, and says which. It stays where it is.
    ///
    /// # Errors
    /// As [`iprobe`](Self::iprobe); [`Error::Waits`] at the deadline.
    pub fn probe(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        deadline: Deadline,
    ) -> Result<Status> {
        let (from, tag) = (from.into(), tag.into());
        let pattern = self.shared.pattern(from, tag)?;
        let what = || self.shared.of_probe(from, tag);
        self.shared.wait_until(&what, None, deadline, |engine| engine.probe(&pattern))
    }

    /// As [`iprobe`](Self::iprobe), and takes the message out.
    ///
    /// # Errors
    /// As [`iprobe`](Self::iprobe).
    pub fn improbe(&self, from: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Taken>> {
        let (from, tag) = (from.into(), tag.into());
        let pattern = self.shared.pattern(from, tag)?;
        let what = || self.shared.of_probe(from, tag);
        let taken = self.shared.look(&what, |engine| engine.take_out(&pattern))?;
        Ok(taken.map(|message| Taken::new(&self.shared, message)))
    }

    /// As [`probe`](Self::probe), and takes the message out.
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub fn mprobe(
        &self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        deadline: Deadline,
    ) -> Result<Taken> {
        let (from, tag) = (from.into(), tag.into());
        let pattern = self.shared.pattern(from, tag)?;
        let what = || self.shared.of_probe(from, tag);
        let taken =
            self.shared.wait_until(&what, None, deadline, |engine| engine.take_out(&pattern))?;
        Ok(Taken::new(&self.shared, taken))
    }
}

impl fmt::Debug for Tagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tagged messages of {}", self.shared.name)
    }
}

impl Taken {
    fn new(shared: &Kept, message: (Label, Arrival)) -> Taken {
        let (label, arrival) = &message;
        let (source, bytes) = (label.source as usize, arrival.len() as usize);
        let status = Status { source, tag: label.tag, bytes };
        Taken { shared: shared.clone(), status, message: Some(message) }
    }

    /// Where it comes from, its tag and its length.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Receives it, as [`Tagged::recv`].
    ///
    /// # Errors
    /// As [`Tagged::recv`].
    pub fn recv<T: Pod>(mut self, data: &mut [T], deadline: Deadline) -> Result<Status> {
        let len = size_of_val(data);
        let memory = lent(bytemuck::cast_slice_mut::<T, u8>(data).as_mut_ptr(), len);
        let Some(message) = self.message.take() else { return Ok(self.status) };
        let (from, tag) = (Source::Rank(self.status.source), Tag::Is(self.status.tag));
        let what = || self.shared.of_receive(from, tag);
        let ticket =
            self.shared.with(&what, |engine, way| engine.receive_taken(way, message, memory))?;
        let outcome = self.shared.wait_or_abandon(ticket, &what, deadline)?;
        self.shared.status(outcome, &what)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            // In a world that is over nobody waits for it.
            let what = || "dropping a message".to_owned();
            let _ = self.shared.with(&what, |engine, way| engine.discard(way, message));
        }
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a message, {:?}", self.status)
    }
}

/// Memory that is lent until its request is complete or abandoned.
fn lent(address: *mut u8, len: usize) -> Memory {
    let address = NonNull::new(address).unwrap_or(NonNull::dangling());
    Memory::Lent { address, len, stays: false }
}

/// Memory that is lent as [`Tagged::isend_raw`] has it.
#[inline]
fn staying((address, len): (NonNull<u8>, usize)) -> Memory {
    Memory::Lent { address, len, stays: true }
}

impl Shared {
    #[inline]
    fn lock(&self) -> Guard<'_, Engine> {
        self.engine.lock()
    }

    /// Does something with the engine.
    #[inline]
    fn with<R>(
        &self,
        what: &dyn Fn() -> String,
        does: impl FnOnce(&mut Engine, &Way<'_>) -> Result<R>,
    ) -> Result<R> {
        self.plane.check_after(Duration::ZERO, what)?;
        let call = Call { plane: &self.plane, timeout: self.timeout, op: what };
        does(&mut self.lock(), &Way { plane: &self.plane, call: &call })
    }

    #[inline]
    fn send(&self, to: usize, tag: u64, memory: Memory) -> Result<Option<Ticket>> {
        self.check_rank(to)?;
        let bytes = memory.len();
        let what = || format!("{}, 0 of {bytes} bytes", self.of_send(to, tag));
        self.with(&what, |engine, way| engine.send(way, to, tag, memory))
    }

    #[inline]
    fn receive(&self, from: Source, tag: Tag, memory: Memory) -> Result<Ticket> {
        let (pattern, bytes) = (self.pattern(from, tag)?, memory.len());
        let what = || format!("{}, 0 of {bytes} bytes", self.of_receive(from, tag));
        self.with(&what, |engine, way| engine.receive(way, pattern, |it| *it = memory))
    }

    /// Looks for something, once.
    fn look<R>(
        &self,
        what: &dyn Fn() -> String,
        mut look: impl FnMut(&mut Engine) -> Option<R>,
    ) -> Result<Option<R>> {
        let mut engine = self.lock();
        // What is there already costs no look at the others.
        if let Some(found) = look(&mut engine) {
            return Ok(Some(found));
        }
        // What has come before the end counts.
        let ended = self.plane.ended();
        let call = Call { plane: &self.plane, timeout: self.timeout, op: what };
        let went = engine.progress(&Way { plane: &self.plane, call: &call });
        if let Some(found) = look(&mut engine) {
            return Ok(Some(found));
        }
        drop(engine);
        went?;
        self.plane.progress();
        if ended { self.plane.check_after(Duration::ZERO, what).map(|()| None) } else { Ok(None) }
    }

    /// Waits until there is what is looked for. Of a request the error says how far it is.
    fn wait_until<R>(
        &self,
        what: &dyn Fn() -> String,
        ticket: Option<Ticket>,
        deadline: Deadline,
        mut look: impl FnMut(&mut Engine) -> Option<R>,
    ) -> Result<R> {
        if let Some(found) = look(&mut self.lock()) {
            return Ok(found);
        }
        let mut backoff = Backoff::new(deadline);
        let (mut rounds, mut since) = (0u32, None);
        let call = Call { plane: &self.plane, timeout: self.timeout, op: what };
        let way = Way { plane: &self.plane, call: &call };
        loop {
            let mut engine = self.lock();
            for _ in 0..LOOKS {
                let went = engine.progress(&way);
                // What has come before an end counts.
                if let Some(found) = look(&mut engine) {
                    return Ok(found);
                }
                went?;
            }
            backoff.moves(engine.moved());
            drop(engine);
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(ASIDE) {
                self.plane.progress();
            }
            // The clock is not read for what comes at once.
            let age =
                |since: &mut Option<Instant>| since.get_or_insert_with(Instant::now).elapsed();
            if backoff.world_ended() {
                let story = self.story(what, ticket).0;
                self.plane.check_after(age(&mut since), || story)?;
            }
            if self.plane.ended() {
                backoff.end_world();
            } else if !backoff.pause() {
                let (op, why) = self.story(what, ticket);
                return Err(Error::Waits { op, age: deadline.elapsed(), why: why.into() });
            }
            if rounds.is_multiple_of(ASIDE) {
                age(&mut since);
            }
        }
    }

    /// What is waited for, with how far it is, and why it is not further.
    fn story(&self, what: &dyn Fn() -> String, ticket: Option<Ticket>) -> (String, String) {
        let mut engine = self.lock();
        match ticket {
            None => (what(), engine.unexpected()),
            Some(ticket) => {
                let (done, all, why) = engine.story(ticket);
                (format!("{}, {done} of {all} bytes", what()), why)
            }
        }
    }

    fn wait(
        &self,
        ticket: Ticket,
        what: &dyn Fn() -> String,
        deadline: Deadline,
    ) -> Result<Outcome> {
        self.wait_until(what, Some(ticket), deadline, |engine| engine.finished(ticket))
    }

    fn wait_or_abandon(
        &self,
        ticket: Ticket,
        what: &dyn Fn() -> String,
        deadline: Deadline,
    ) -> Result<Outcome> {
        self.wait(ticket, what, deadline).inspect_err(|_| self.abandon(ticket))
    }

    /// See [`Engine::abandon`]. Without memory for a copy the bytes of a send are nobody's: then the memory must not be given back, and this
    /// process ends.
    fn abandon(&self, ticket: Ticket) {
        if let Err(error) = self.lock().abandon(ticket) {
            tracing::error!(%error, "no memory for a copy of a message that nobody waits for");
            std::process::abort();
        }
    }

    fn status(&self, outcome: Outcome, what: &dyn Fn() -> String) -> Result<Status> {
        match outcome {
            Outcome::Done(status) => Ok(status),
            Outcome::Truncated(Status { source, tag, bytes }, room) => Err(Error::Truncated {
                op: format!("{}, which matched tag {tag} from rank {source}", what()),
                sent: bytes as u64,
                posted: room as u64,
            }),
        }
    }

    #[inline]
    fn check_rank(&self, rank: usize) -> Result<()> {
        if rank < self.ranks.len() {
            return Ok(());
        }
        self.no_such_rank(rank)
    }

    #[cold]
    fn no_such_rank(&self, rank: usize) -> Result<()> {
        Err(Error::NoSuchRank { rank, communicator: self.name.clone(), size: self.ranks.len() })
    }

    #[inline]
    fn pattern(&self, from: Source, tag: Tag) -> Result<Pattern> {
        let source = match from {
            Source::Rank(rank) => {
                self.check_rank(rank)?;
                Some(rank as u32)
            }
            Source::Any => None,
        };
        let tag = match tag {
            Tag::Is(tag) => Some(tag),
            Tag::Any => None,
        };
        Ok(Pattern { context: Some(0), source, tag })
    }

    fn rank_in_words(&self, rank: usize) -> String {
        let host = self.ranks.get(rank).map(|&world| &self.plane.peer(world).host[..]);
        format!("rank {rank} on {}", host.unwrap_or("no host"))
    }

    fn describe(&self, what: What) -> String {
        match what {
            What::Send { to, tag } => self.of_send(to, tag),
            What::Receive { from, tag } => self.of_receive(from, tag),
        }
    }

    fn of_got(&self, Status { source, tag, .. }: Status) -> String {
        self.of_receive(Source::Rank(source), Tag::Is(tag))
    }

    #[cold]
    fn no_such_request(&self) -> Error {
        let op = format!("a request of tagged messages of {}", self.name);
        Error::Mismatch { op, reason: "it is over, or is not theirs".into() }
    }

    fn of_send(&self, to: usize, tag: u64) -> String {
        format!("send of tag {tag} to {}", self.rank_in_words(to))
    }

    fn of_receive(&self, from: Source, tag: Tag) -> String {
        self.of("receive of", from, tag)
    }

    fn of_probe(&self, from: Source, tag: Tag) -> String {
        self.of("probe for", from, tag)
    }

    fn of(&self, verb: &str, from: Source, tag: Tag) -> String {
        let tag = match tag {
            Tag::Is(tag) => format!("tag {tag}"),
            Tag::Any => "any tag".into(),
        };
        let from = match from {
            Source::Rank(rank) => self.rank_in_words(rank),
            Source::Any => "any rank".into(),
        };
        format!("{verb} {tag} from {from}")
    }
}

impl Help for Shared {
    /// Unless another thread is at it, or this one is on its way through.
    fn help(&self) -> bool {
        let Some(mut engine) = self.engine.try_lock() else { return false };
        let what = || format!("tagged messages of {}", self.name);
        let call = Call { plane: &self.plane, timeout: self.timeout, op: &what };
        let before = engine.moved();
        // What fails ends the world, which whoever waits sees.
        let _ = engine.progress(&Way { plane: &self.plane, call: &call });
        engine.moved() != before
    }
}

#[cfg(test)]
mod tests;
