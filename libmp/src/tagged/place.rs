//! What a message is sent from or received into, as its user says it: the memory, and what on a stream is before it.

use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;
use gdsync::{Buffer, Device, Event, Stream, opencl};

use super::lane::Copier;
use super::memory::{Memory, staying};
use super::shared::Shared;
use super::staging::{Away, Where};
use super::words::Point;
use crate::data::Region;
use crate::error::{Error, Result};

/// What a message is sent from or received into: memory of the host, a GPU or OpenCL, which says itself what it is, and what is to come before.
/// Made from a region or from OpenCL memory, of which parts are slices.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::tagged::{Options, Place};
/// use libmp::{Deadline, Device, World};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let world = World::init()?;
/// let device = Device::Host; // or Device::best()
/// let messages = world.tagged(&Options::default())?;
/// let (from, to) = (world.alloc::<u32>(&device, 1000)?, world.alloc::<u32>(&device, 1000)?);
/// let stream = world.stream(&device)?;
/// stream.fill(from.buffer(), 7)?; // or a kernel
/// // Nobody waits here: the message leaves when the stream has come so far, and what follows on the stream comes after the message.
/// let mut send = messages.isend(Place::from(&from).on(&stream), world.rank(), 7)?;
/// let mut recv = messages.irecv(Place::from(&to).on(&stream), world.rank(), 7)?;
/// let copy = world.alloc::<u32>(&device, 1000)?;
/// stream.copy(copy.buffer(), to.buffer())?; // or a kernel
/// libmp::tagged::wait_all([&mut send, &mut recv], Deadline::after(Duration::from_secs(10)))?;
/// world.synchronize(&stream, Deadline::after(Duration::from_secs(10)))?;
/// assert_eq!(copy.to_vec()?, [0x0707_0707; 1000]);
/// # drop((send, recv));
/// # world.finish()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Place<'a> {
    memory: Kind,
    order: Order<'a>,
}

#[derive(Clone)]
enum Kind {
    Memory(Where),
    Lent { address: NonNull<u8>, len: usize },
}

// SAFETY: what is lent is lent to whichever thread waits for the message: `isend_raw` and `irecv_raw` ask for it. The rest is Send.
unsafe impl Send for Kind {}

#[derive(Clone)]
enum Order<'a> {
    Now,
    Stream(&'a Stream),
    Enqueued(Arc<Stream>),
    Event(Event),
    OpenCl(Arc<opencl::Event>),
}

impl<T: Pod> From<&Region<T>> for Place<'_> {
    fn from(region: &Region<T>) -> Self {
        Place { memory: Kind::Memory(Where::Buffer(region.buffer().bytes())), order: Order::Now }
    }
}

impl From<&Buffer<u8>> for Place<'_> {
    fn from(buffer: &Buffer<u8>) -> Self {
        Place { memory: Kind::Memory(Where::Buffer(buffer.clone())), order: Order::Now }
    }
}

impl From<&opencl::Memory> for Place<'_> {
    fn from(memory: &opencl::Memory) -> Self {
        Place { memory: Kind::Memory(Where::OpenCl(memory.clone())), order: Order::Now }
    }
}

impl<'a> Place<'a> {
    /// Host memory that stays.
    pub(super) fn lent((address, len): (NonNull<u8>, usize)) -> Place<'a> {
        Place { memory: Kind::Lent { address, len }, order: Order::Now }
    }

    /// A message that is started reads or writes the memory after what the stream has been given until then. What the stream is given after a
    /// *receive* was started waits until that is over, whatever became of it; behind a send nothing waits. The stream is not one whose operations are being
    /// captured: which message a receive gets is only known when it has come. Instead of another [`after`](Self::after).
    ///
    /// A stream of a GPU that waits holds one of the hardware channels through which all streams of the process go (`CUDA_DEVICE_MAX_CONNECTIONS`, 8 by
    /// default): when as many receives wait as there are channels nothing gets through, these messages neither.
    ///
    /// The stream waits at most the world's timeout, and goes on then; its synchronisation says so.
    pub fn on(self, stream: &'a Stream) -> Place<'a> {
        Place { order: Order::Stream(stream), ..self }
    }

    /// As [`on`](Self::on), but the stream waits for nothing: it is given the copy of a *receive* when the message has come. A short message is complete
    /// as soon as the stream has been given it, up to the [limit](super::Options::eager_limit) always, a long one perhaps only when it is there. Either way what
    /// the stream is given afterwards comes behind the message, be it a kernel that reads it or the next receive into the same memory, and nobody looks at events in between.
    /// A send is as `on` has it. Instead of another.
    ///
    /// Whichever call moves messages on gives the stream its copy, that of a thread [for progress](crate::Communicator::progress) too. While the stream is captured it
    /// waits with that, and with such a thread no capture is begun while a receive is under way. A stream of another device than the memory's, and any for memory of
    /// OpenCL, are refused when the receive is started.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// use libmp::tagged::{Options, Place};
    /// use libmp::{Deadline, Device, World};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let world = World::init()?;
    /// let device = Device::Host; // or Device::best()
    /// let soon = || Deadline::after(Duration::from_secs(10));
    /// let messages = world.tagged(&Options::default())?;
    /// let (memory, sum) = (world.alloc::<u32>(&device, 8)?, world.alloc::<u32>(&device, 24)?);
    /// let stream = Arc::new(world.stream(&device)?);
    /// let mut recv = messages.recv_init(Place::from(&memory).enqueued_on(&stream), world.rank(), 7)?;
    /// for round in 0..3 {
    ///     recv.start()?;
    ///     messages.send(&[round; 8], world.rank(), 7, soon())?;
    ///     recv.wait(soon())?;
    ///     // Behind the message, and before the next one.
    ///     stream.copy(sum.slice(8 * round as usize..8 * round as usize + 8)?.buffer(), memory.buffer())?;
    /// }
    /// world.synchronize(&stream, soon())?;
    /// assert_eq!(sum.to_vec()?[7..17], [0, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
    /// # drop(recv);
    /// # world.finish()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn enqueued_on(self, stream: &Arc<Stream>) -> Place<'a> {
        Place { order: Order::Enqueued(stream.clone()), ..self }
    }

    /// A message that is started reads or writes the memory when the last record of the event so far is reached. Instead of another.
    pub fn after(self, event: &Event) -> Place<'a> {
        Place { order: Order::Event(event.clone()), ..self }
    }

    /// The same, of a point in a queue of OpenCL's.
    pub fn after_opencl(self, event: &Arc<opencl::Event>) -> Place<'a> {
        Place { order: Order::OpenCl(event.clone()), ..self }
    }

    /// The memory of a message that is started now, and only once.
    #[inline]
    pub(super) fn into_memory(self, shared: &Shared, receives: bool) -> Result<Memory> {
        match self {
            Place { memory: Kind::Memory(Where::Buffer(buffer)), order: Order::Now }
                if goes_as_it_is(&buffer, shared) =>
            {
                Ok(Memory::Own(buffer))
            }
            place => place.memory(shared, receives),
        }
    }

    /// The memory of a message that is started now.
    pub(super) fn memory(&self, shared: &Shared, receives: bool) -> Result<Memory> {
        let failed = |source| Error::Memory { op: "a tagged message".into(), source };
        let place = match &self.memory {
            Kind::Lent { address, len } => return Ok(staying((*address, *len))),
            Kind::Memory(place) => place,
        };
        if let Where::OpenCl(memory) = place
            && receives
            && !memory.is_writable()
        {
            return Err(Error::Mismatch {
                op: "receiving a tagged message".into(),
                reason: "the OpenCL memory was made with CL_MEM_READ_ONLY".into(),
            });
        }
        if let Where::Buffer(buffer) = place {
            if matches!(self.order, Order::Now) && goes_as_it_is(buffer, shared) {
                return Ok(Memory::Own(buffer.clone()));
            }
            if !is_reached(buffer) && matches!(buffer.device(), Device::Host) {
                return Err(failed(gdsync::Error::NotReachable {
                    what: "a tagged message",
                    memory: format!("{buffer:?}"),
                    place: "the CPU".into(),
                    hint: "use memory of a device that this process opened",
                }));
            }
        }
        let mut away = Away::new(place.clone());
        let behind = |stream: &Stream| {
            not_captured(stream)?;
            Ok::<_, Error>(Some(Point::Mark(shared.words.mark(stream).map_err(failed)?)))
        };
        match &self.order {
            Order::Now => {}
            Order::Event(event) => away.after = Some(Point::Event(event.clone())),
            Order::OpenCl(event) => away.after = Some(Point::OpenCl(event.clone())),
            Order::Enqueued(stream) if receives => {
                not_captured(stream)?;
                let copies =
                    |buffer: &Buffer<u8>| buffer.device().ordinal() == stream.device().ordinal();
                if !matches!(place, Where::Buffer(buffer) if copies(buffer)) {
                    let name = stream.name();
                    return Err(mismatch(format!("{name} does not copy to {place:?}")));
                }
                away.copier = Some(Copier { stream: stream.clone(), words: shared.words.clone() });
            }
            Order::Enqueued(stream) => away.after = behind(stream)?,
            Order::Stream(stream) => {
                away.after = behind(stream)?;
                if receives {
                    let (held, word, value) = shared.words.take(stream.device()).map_err(failed)?;
                    stream.wait_signal(&word, value, shared.timeout).map_err(failed)?;
                    away.release = Some(held);
                }
            }
        }
        Ok(Memory::Away(Box::new(away)))
    }
}

fn mismatch(reason: String) -> Error {
    Error::Mismatch { op: "a tagged message".into(), reason }
}

fn not_captured(stream: &Stream) -> Result<()> {
    if !stream.is_capturing() {
        return Ok(());
    }
    let name = stream.name();
    Err(mismatch(format!(
        "{name} is being captured into a graph, and who gets a tagged message is only known when it comes: prepare a `Send` or a `Recv`"
    )))
}

/// Whether the CPU may use it.
#[inline]
fn is_reached(buffer: &Buffer<u8>) -> bool {
    buffer.host_address().is_some() || buffer.is_empty()
}

#[inline]
fn goes_as_it_is(buffer: &Buffer<u8>, shared: &Shared) -> bool {
    is_reached(buffer) && !shared.staged
}

impl std::fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.memory {
            Kind::Memory(place) => place.fmt(f),
            Kind::Lent { len, .. } => write!(f, "{len} bytes of host memory"),
        }
    }
}
