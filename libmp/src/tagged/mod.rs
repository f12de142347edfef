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
//! message, of which the lines behind have more), longer messages up to the limit behind them, and pieces of those that were offered and are wanted. Room is credit, which the
//! reader writes back. An offered message in a region, or in lent memory that stays, is read straight out of the sender's memory where the
//! ranks share a host and the system allows it. The same holds on every path between ranks; only how a line is written differs. A receive from one rank
//! that is waited for takes the next line from there itself, for a moment, as long as nothing else waits that might be meant; only then it becomes a request.
//!
//! Memory that the CPU does not reach is offered whatever its length. Where the receiver's device maps it, as GPUs with peer access and processes of one
//! host do, a stream of the receiver's device copies it when it is wanted, and may be read, straight into the receiver's memory. The last few mappings
//! of other processes' memory are kept for later messages. Otherwise, when it is wanted, a stream of its device that nobody else uses copies it into a
//! few pinned chunks, at most two for a message at a time, from which it goes on as any other; a receive is the same the other way, and its copy may be a
//! [stream's of the program](Place::enqueued_on). Bytes that
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
mod label;
mod lane;
mod layout;
mod memory;
mod options;
mod place;
mod pool;
mod request;
mod rings;
mod served;
mod shared;
mod staging;
mod straight;
mod taken;
mod tickets;
mod words;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytemuck::Pod;
use gdsync::{CudaDevice, Deadline, Device};

use crate::communicator::Communicator;
use crate::data::plane::{Help, Plane};
use crate::data::window::Window;
use crate::error::{Error, Result};
use crate::ownership::Lock;
use engine::Engine;
#[cfg(any(test, fuzzing))]
pub use fuzz::lines as fuzz_lines;
pub use label::{Source, Status, Tag};
use layout::Layout;
use memory::lent;
pub use options::Options;
pub use place::Place;
pub use pool::Ticket;
pub use request::{Request, Scope, wait_all, wait_any};
pub use served::Served;
use shared::{Kept, Shared};
pub use staging::Staged;
pub use taken::Taken;

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
        let (rank, size) = (communicator.rank(), communicator.size());
        // Unique with the rank that makes it, whose number all take.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = u64::from(MADE.fetch_add(1, Ordering::Relaxed));
        let mut id = (communicator.world_rank(rank)? as u64) << 32 | made;
        let blob = postcard::to_stdvec(&(&mine, gpus, id));
        let blob = blob.map_err(|error| mismatch(error.to_string()))?;
        for (rank, blob) in communicator.gather_blobs(&blob)?.blobs().into_iter().enumerate() {
            type Told = (std::result::Result<(), String>, usize, usize, Option<usize>);
            let (told, has_gpu, theirs): (Told, bool, u64) = postcard::from_bytes(blob)
                .map_err(|error| mismatch(format!("rank {rank}: {error}")))?;
            gpus |= has_gpu;
            if rank == 0 {
                id = theirs;
            }
            told.0.clone().map_err(|reason| mismatch(format!("rank {rank}: {reason}")))?;
            if told != mine {
                return Err(mismatch(format!("{mine:?} here, {told:?} of rank {rank}")));
            }
        }
        let ranks = (0..size).map(|rank| communicator.world_rank(rank));
        let ranks = ranks.collect::<Result<Vec<_>>>()?;
        let layout = Layout::new(options, size, gpus);
        let share = communicator.alloc::<u8>(&Device::Host, size * layout.stretch())?;
        let window = Window::open(communicator, plane, &share, 0)?;
        let share = share.buffer().clone();
        let words = Arc::default();
        let ends = (rank, &ranks[..], id);
        let engine = Engine::new(window, &share, layout, ends, (plane, &words), options)?;
        let shared = Arc::new(Shared {
            plane: plane.clone(),
            ranks,
            rank,
            timeout: communicator.timeout(),
            name: communicator.name().to_owned(),
            staged: options.staged,
            words,
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
        let what = || self.shared.of_receive(from, tag);
        let outcome = match self.shared.receive_soon(from, tag, &memory)? {
            Some(outcome) => outcome,
            None => {
                let ticket = self.shared.receive(from, tag, memory)?;
                self.shared.wait_or_abandon(ticket, &what, deadline)?
            }
        };
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

#[cfg(test)]
mod tests;
