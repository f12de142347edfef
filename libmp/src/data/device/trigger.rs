//! The host as the trigger of a device operation: what a stream or a kernel starts and completes can be started and completed by
//! a call, too, on the same counters. The operation then runs on a stream of its own, because the CPU does not reach the
//! counters and the memory of a GPU.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gdsync::{Deadline, Stream};
use mp_kernels::StepKind;

use super::half::DeviceHalf;
use super::steps::{Step, enqueue};
use crate::data::half::Side;
use crate::data::plane::Plane;
use crate::error::{Error, Result};

/// Starts by the host of one end.
#[derive(Default)]
pub(crate) struct Trigger {
    stream: OnceLock<Stream>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Starts so far, and when the one under way began.
    starts: u64,
    since: Option<Instant>,
    /// Whether the stream has been told to take the message.
    taking: bool,
}

/// A device operation that the host starts and completes: [`DeviceSend::by_host`](super::DeviceSend::by_host),
/// [`DeviceRecv::by_host`](super::DeviceRecv::by_host). It costs a launch and a look at a stream, so microseconds on a GPU;
/// each operation started like this has a stream, on the host a thread. It is made by the first `by_host`: like all
/// preparing, not while a kernel of another rank of this process waits on the same GPU.
///
/// # Order
/// A start comes after everything that this thread has waited for, and before everything that it starts when
/// [`wait`](Self::wait) has returned. Starts by host, streams and kernels mix; they must not overlap: wait, or
/// synchronise the stream, before the next trigger.
#[derive(Clone, Copy)]
pub struct ByHost<'a> {
    plane: &'a Arc<Plane>,
    half: &'a Arc<DeviceHalf>,
    stream: &'a Stream,
}

impl<'a> ByHost<'a> {
    pub(crate) fn new(plane: &'a Arc<Plane>, half: &'a Arc<DeviceHalf>) -> Result<ByHost<'a>> {
        let stream = &half.trigger.stream;
        if stream.get().is_none() {
            // Two threads may come at once: one stream stays.
            let _ = stream.set(plane.stream(half.memory.device())?);
        }
        let made = stream.get().ok_or(Error::NoOperations)?;
        Ok(ByHost { plane, half, stream: made })
    }

    /// Sends, or posts the buffer of a receive, and returns. The first time the call waits until the peer has prepared.
    ///
    /// # Errors
    /// [`Error::Started`] if the last start has not been seen complete; as
    /// [`DeviceSend::start_on`](super::DeviceSend::start_on).
    pub fn start(&self) -> Result<()> {
        let mut state = self.lock();
        if state.since.is_some() {
            return Err(Error::Started { op: self.half.name.to_string(), epoch: state.starts });
        }
        let kind = match self.half.side {
            Side::Send => StepKind::Send,
            Side::Recv => StepKind::Post,
        };
        self.enqueue(kind)?;
        state.starts += 1;
        state.since = Some(Instant::now());
        Ok(())
    }

    /// Whether the last start is complete: the message has left its region, or is there. An operation that was not started
    /// counts as complete.
    ///
    /// # Errors
    /// What ended the world; what the driver says.
    pub fn test(&self) -> Result<bool> {
        match self.wait(Deadline::after(Duration::ZERO)) {
            Err(Error::Late { .. }) => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Waits until the last start is complete.
    ///
    /// # Errors
    /// [`Error::Late`] at the deadline, and the operation stays started; what ended the world; what the driver says.
    pub fn wait(&self, deadline: Deadline) -> Result<()> {
        let mut state = self.lock();
        let Some(since) = state.since else { return Ok(()) };
        if self.half.side == Side::Recv && !state.taking {
            self.enqueue(StepKind::Recv)?;
            state.taking = true;
        }
        match self.plane.synchronize(self.stream, deadline) {
            Err(Error::Memory { source: gdsync::Error::Timeout { .. }, .. }) => Err(Error::Late {
                op: self.half.name.to_string(),
                rank: self.half.name.rank,
                host: self.half.name.host.clone(),
                tag: self.half.name.tag,
                expected: state.starts,
                seen: state.starts - 1,
                age: since.elapsed(),
            }),
            result => {
                (state.since, state.taking) = (None, false);
                result
            }
        }
    }

    fn enqueue(&self, kind: StepKind) -> Result<()> {
        enqueue(self.plane, self.stream, &[Step { half: self.half, kind }])
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.half.trigger.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ByHost<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, by the host", self.half.name)
    }
}
