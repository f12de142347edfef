//! What prepared operations have in common, and waiting for one, all or any of them.

use std::sync::Arc;

use gdsync::Deadline;

use super::endpoint::Endpoint;
use super::endpoint::observed::coarse_now;
use super::endpoint::stream::{Action, Step};
use super::name::Progress;
use super::plane::Plane;
use super::wait::Backoff;
use crate::error::{Error, Result};
use crate::trace::Span;

/// A prepared operation, which can be started any number of times: [`Send`](super::Send), [`Recv`](super::Recv). One that was not
/// started counts as complete. What a kernel or a replayed graph has started on memory of a GPU is completed there, and so is
/// what a stream has sent: the host does not see it, but may wait for the stream.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::{Deadline, Device, Operation, World, wait_all};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// # let (edge, ghost) = (world.alloc::<f64>(&Device::Host, 9)?, world.alloc::<f64>(&Device::Host, 9)?);
/// # let right = world.peer((world.rank() + 1) % world.size())?;
/// # let left = world.peer((world.rank() + world.size() - 1) % world.size())?;
/// # let recv = left.recv(&ghost, 7).prepare()?;
/// # let send = right.send(&edge, 7).prepare()?;
/// recv.start()?;
/// send.start()?;
/// while !recv.test()? {
///     // Something else meanwhile.
/// }
/// wait_all(&[&send, &recv], Deadline::after(Duration::from_secs(10)))?;
/// # world.finish()
/// # }
/// ```
pub trait Operation: sealed::Sealed {
    /// Whether the last start is complete. Makes progress, does not block.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Memory`] if the two sides do not fit together; while it is not complete: what ended
    /// the world.
    fn test(&self) -> Result<bool> {
        let Inside { end, plane } = self.inside();
        plane.progress();
        if end.poll(plane)? {
            return Ok(true);
        }
        if plane.ended() {
            let Progress { what, age, .. } = end.progress(plane);
            plane.check_after(age, || what.to_string())?;
        }
        Ok(false)
    }

    /// Waits until the last start is complete.
    ///
    /// # Errors
    /// As [`test`](Self::test), and [`Error::Late`] at the deadline. A deadline that passes does not end the world; the
    /// operation stays started.
    fn wait(&self, deadline: Deadline) -> Result<()>
    where
        Self: Sized,
    {
        wait_all(&[self], deadline)
    }
}

pub(crate) mod sealed {
    /// What the crate needs of an operation.
    pub trait Sealed {
        #[doc(hidden)]
        fn inside(&self) -> super::Inside<'_>;
    }
}

/// An operation's inside.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Inside<'a> {
    pub(crate) end: &'a Arc<Endpoint>,
    pub(crate) plane: &'a Arc<Plane>,
}

impl<'a> Inside<'a> {
    /// It has to be waited for.
    fn begin_wait(self) -> Option<Span<'a>> {
        self.end.waits();
        self.end.span(self.plane, "wait for")
    }

    /// Helps what waits for help of this rank.
    fn help(self) {
        self.plane.progress();
    }

    /// Whether the operation is complete.
    fn poll(self) -> Result<bool> {
        self.end.poll(self.plane)
    }

    /// Lets the rank of this operation help, if it is another than that of `helped`; an error if the operation has failed.
    fn stand_by(self, helped: Inside<'_>) -> Result<()> {
        if !Arc::ptr_eq(self.plane, helped.plane) {
            self.plane.progress();
        }
        self.end.known(self.plane).map(drop)
    }

    fn pause(self, backoff: &mut Backoff) -> Result<()> {
        self.plane.pause(backoff, || self.end.progress(self.plane))
    }
}

impl<'a> Step<'a> {
    /// Starting the operation: as its `start_on`.
    pub fn start(operation: &'a (impl Operation + ?Sized)) -> Step<'a> {
        Step::of(operation, Action::Start)
    }

    /// Waiting for the operation: as its `wait_on`.
    pub fn wait(operation: &'a (impl Operation + ?Sized)) -> Step<'a> {
        Step::of(operation, Action::Wait)
    }

    pub(crate) fn of(operation: &'a (impl Operation + ?Sized), action: Action) -> Step<'a> {
        let inside = operation.inside();
        Step { plane: inside.plane, end: inside.end, action }
    }
}

/// Looks at one operation before the others are looked at for failures.
const OTHERS: u32 = 16;

/// Of several operations in order, how many are looked at while this one is worked on: what other ranks have written for them is on its way
/// from their caches meanwhile.
const AHEAD: usize = 8;

/// Starts all operations, in order, and returns: sooner than with a call for each.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::{Deadline, Device, World, start_all, wait_all};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// # let (edge, ghost) = (world.alloc::<f64>(&Device::Host, 9)?, world.alloc::<f64>(&Device::Host, 9)?);
/// # let right = world.peer((world.rank() + 1) % world.size())?;
/// # let left = world.peer((world.rank() + world.size() - 1) % world.size())?;
/// # let recv = left.recv(&ghost, 7).prepare()?;
/// # let send = right.send(&edge, 7).prepare()?;
/// start_all(&[&recv, &send])?;
/// wait_all(&[&recv, &send], Deadline::after(Duration::from_secs(10)))?;
/// # world.finish()
/// # }
/// ```
///
/// # Errors
/// As the operation's `start`, of the first that fails; those before it are started, those behind it are not.
pub fn start_all(operations: &[&dyn Operation]) -> Result<()> {
    let soon = |operation: &&dyn Operation| operation.inside().end.prefetch(true);
    operations.iter().take(AHEAD).for_each(soon);
    let now = coarse_now();
    for (number, operation) in operations.iter().enumerate() {
        operations.get(number + AHEAD).inspect(|it| soon(it));
        let Inside { end, plane } = operation.inside();
        end.start_at(plane, now)?;
    }
    Ok(())
}

/// Waits until the last starts of all operations are complete.
///
/// # Errors
/// As [`Operation::wait`], of the first operation that is not complete.
pub fn wait_all(operations: &[&dyn Operation], deadline: Deadline) -> Result<()> {
    let mut backoff = Backoff::new(deadline);
    let (mut next, mut looks) = (0, 0u32);
    let mut waiting = None;
    loop {
        while let Some(operation) = operations.get(next)
            && operation.inside().poll()?
        {
            // Where this one is complete, those behind it are likely to be.
            operations.get(next + AHEAD).inspect(|it| it.inside().end.prefetch(false));
            next += 1;
            waiting = None;
        }
        let Some(operation) = operations.get(next) else {
            // A rank whose waits are all over at once moves on what else it has started.
            operations.first().filter(|_| looks == 0).inspect(|first| first.inside().help());
            return Ok(());
        };
        operation.inside().help();
        // Not at every look, or each of n messages costs n looks.
        looks += 1;
        if looks.is_multiple_of(OTHERS) {
            for other in &operations[next + 1..] {
                other.inside().stand_by(operation.inside())?;
            }
        }
        if waiting.is_none() {
            waiting = Some(operation.inside().begin_wait());
        }
        operation.inside().pause(&mut backoff)?;
    }
}

/// Waits until the last start of one of the operations is complete, and says which. Which one it is if there are several
/// is not specified. Without operations there is nothing to wait for.
///
/// # Errors
/// As [`Operation::wait`]; [`Error::NoOperations`].
pub fn wait_any(operations: &[&dyn Operation], deadline: Deadline) -> Result<usize> {
    let Some(first) = operations.first() else { return Err(Error::NoOperations) };
    let mut backoff = Backoff::new(deadline);
    let mut waiting = None;
    loop {
        first.inside().plane.progress();
        for (number, operation) in operations.iter().enumerate() {
            let inside = operation.inside();
            if !Arc::ptr_eq(inside.plane, first.inside().plane) {
                inside.plane.progress();
            }
            if inside.end.poll(inside.plane)? {
                return Ok(number);
            }
        }
        if waiting.is_none() {
            waiting = Some(first.inside().begin_wait());
        }
        first.inside().pause(&mut backoff)?;
    }
}
