//! Streams on which adjacent operations become one launch without being listed: operations are kept back until
//! something else is asked of the stream.
//!
//! # Why not every stream
//! A launch that is kept back would be overtaken by whatever else is enqueued: a kernel of the user behind a `wait_on` must
//! not run before the wait. A [`Stream`] is shared, its `&self` methods enqueue from anywhere, and its raw handle goes to
//! other libraries, so nobody could say when to stop keeping back. [`FusedStream`] owns its stream, takes operations by `&mut`,
//! and lends the stream out only after it has enqueued everything: while the loan lives, the borrow checker lets no
//! operation be kept back. That makes the order on the stream the order of the calls.

use std::fmt;
use std::sync::Arc;

use gdsync::Stream;

use super::endpoint::Endpoint;
use super::endpoint::stream::{Action, LAUNCH, Step, enqueue};
use super::plane::Plane;
use crate::error::Result;

/// A stream that fuses adjacent operations: up to 16 operations between two other uses of the stream are one launch (on a
/// host stream one call).
///
/// Operations are enqueued by the 17th, by [`stream`](Self::stream) – which every other use of the stream needs –, by
/// [`flush`](Self::flush), and when it is dropped. Until then the peer sees nothing of them: flush before waiting for a
/// peer by other means. What they order is what they would order one by one, captured or not.
///
/// A raw handle of the stream ([`Stream::as_raw_cuda`]) that is kept beyond the loan escapes this: flush before each use.
///
/// ```
/// # use std::time::Duration;
/// # use libmp::{Deadline, Device, FusedStream, World};
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// # let (a, b) = (world.alloc::<f64>(&Device::Host, 9)?, world.alloc::<f64>(&Device::Host, 9)?);
/// # let peer = world.peer(0)?;
/// # let send = peer.send(&a, 7).prepare()?;
/// # let recv = peer.recv(&b, 7).prepare()?;
/// let mut stream = FusedStream::from(world.stream(&Device::Host)?);
/// for _ in 0..10 {
///     recv.start_on(&mut stream)?;
///     send.start_on(&mut stream)?;
///     recv.wait_on(&mut stream)?; // so far nothing was enqueued
///     stream.stream()?.copy(a.buffer(), b.buffer()).unwrap(); // one launch, then this
/// }
/// world.synchronize(stream.stream()?, Deadline::after(Duration::from_secs(10)))?;
/// # world.finish()
/// # }
/// ```
pub struct FusedStream {
    stream: Stream,
    kept: Vec<(Arc<Endpoint>, Action)>,
    /// Of those that are kept.
    plane: Option<Arc<Plane>>,
}

/// Where operations are enqueued: a [`Stream`], each at once, or a [`FusedStream`].
///
/// ```
/// use libmp::{Recv, Result, Steps};
///
/// /// Enqueued at once on a `&Stream`, with its neighbours on a `&mut FusedStream`.
/// fn post(ghosts: &Recv, stream: impl Steps) -> Result<()> {
///     ghosts.start_on(stream)
/// }
/// ```
pub trait Steps: sealed::Sealed {}
impl Steps for &Stream {}
impl Steps for &mut FusedStream {}

pub(crate) mod sealed {
    use super::{Result, Step};

    /// What the crate does with a place for operations.
    pub trait Sealed {
        #[doc(hidden)]
        fn add(self, step: Step<'_>) -> Result<()>;
    }
}

impl sealed::Sealed for &Stream {
    fn add(self, step: Step<'_>) -> Result<()> {
        enqueue(step.plane, self, &[step])
    }
}

impl sealed::Sealed for &mut FusedStream {
    fn add(self, step: Step<'_>) -> Result<()> {
        let Step { plane, end, action } = step;
        // What can be refused is refused now.
        end.check(&self.stream)?;
        end.meet(plane)?;
        let other_rank = self.plane.as_ref().is_some_and(|kept| !Arc::ptr_eq(kept, plane));
        if other_rank || self.kept.len() == LAUNCH {
            self.flush()?;
        }
        self.plane.get_or_insert_with(|| plane.clone());
        self.kept.push((end.clone(), action));
        Ok(())
    }
}

impl FusedStream {
    /// The stream, for everything else: what was kept back is enqueued first.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn stream(&mut self) -> Result<&Stream> {
        self.flush()?;
        Ok(&self.stream)
    }

    /// Enqueues what was kept back.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory): what the driver says; what ended the world. Nothing is kept back then.
    pub fn flush(&mut self) -> Result<()> {
        let Some(plane) = self.plane.take() else { return Ok(()) };
        let kept = self.kept.iter();
        let steps: Vec<Step<'_>> =
            kept.map(|(end, action)| Step { plane: &plane, end, action: *action }).collect();
        let result = enqueue(&plane, &self.stream, &steps);
        self.kept.clear();
        result
    }
}

impl From<Stream> for FusedStream {
    fn from(stream: Stream) -> FusedStream {
        FusedStream { stream, kept: Vec::with_capacity(LAUNCH), plane: None }
    }
}

impl Drop for FusedStream {
    fn drop(&mut self) {
        let (first, plane) = (self.kept.first().map(|(end, _)| end.clone()), self.plane.clone());
        if let (Some(first), Some(plane), Err(error)) = (first, plane, self.flush())
            && let Ok(bounds) = first.bounds(&plane)
        {
            // The next synchronisation of the rank says so.
            bounds.report.refuse(error);
        }
    }
}

impl fmt::Debug for FusedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} operations kept back", self.stream.name(), self.kept.len())
    }
}
