//! Messages that streams, graphs and kernels start and complete by themselves: the public side of [`DeviceHalf`].

use std::fmt;
use std::sync::Arc;

use mp_kernels::StepKind;

use super::fused::Steps;
use super::fused::sealed::Operation;
use super::half::DeviceHalf;
use super::steps::Step;
use super::trigger::ByHost;
use crate::data::plane::Plane;
use crate::error::Result;

/// A send that streams and kernels start: [`SendBuilder::prepare_device`](crate::SendBuilder::prepare_device). Its peer is
/// a [`DeviceRecv`]. How often it was started is counted in the device's memory, so a captured graph that starts it can
/// be replayed, and stream, kernel and [host](Self::by_host) starts mix; they must not overlap.
///
/// # Order
/// The message is what the region holds when the stream, or the group of threads, gets there. Behind the start – on the
/// stream, or in the group after a barrier – the region may be written again. The receiver sees the message; it sees what
/// was written elsewhere before only for messages over 8 KiB, which are released at system scope. Two sends are received
/// in the order of their own receives; they are in no other order.
///
/// A start waits on the device until there is room: up to four messages of at most 8 KiB between GPUs are on their way
/// unasked, and one from a host to a GPU, which fetches it; others wait for the posted buffer. It waits at most for the communicator's timeout; what came of it says
/// [`Communicator::synchronize`](crate::Communicator::synchronize).
///
/// # Dropping
/// Drop it when nothing that starts it runs or will run: streams, kernels that have its handle, graphs.
pub struct DeviceSend {
    plane: Arc<Plane>,
    half: Arc<DeviceHalf>,
}

impl DeviceSend {
    pub(crate) fn new(plane: Arc<Plane>, half: Arc<DeviceHalf>) -> DeviceSend {
        DeviceSend { plane, half }
    }

    /// Sending it, as a step for [`Communicator::enqueue`](crate::Communicator::enqueue).
    pub fn start(&self) -> Step<'_> {
        Step { half: &self.half, kind: StepKind::Send }
    }

    /// Sends when the stream gets there. The first time the call waits until the peer has prepared its receive.
    ///
    /// # Errors
    /// [`Error::Truncated`](crate::Error::Truncated) if the peer's buffer is too short;
    /// [`Error::Mismatch`](crate::Error::Mismatch) for a stream of another device;
    /// [`Error::Late`](crate::Error::Late) if the peer does not prepare within the timeout;
    /// [`Error::Memory`](crate::Error::Memory); what ended the world.
    pub fn start_on(&self, stream: impl Steps) -> Result<()> {
        stream.add(Operation { plane: &self.plane, step: self.start() })
    }

    /// The same operation, started and completed by the host.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) if its stream cannot be made.
    pub fn by_host(&self) -> Result<ByHost<'_>> {
        ByHost::new(&self.plane, &self.half)
    }

    /// What `mp::send` of `mp/message.cuh` takes. Valid while this object lives. Waits until the peer has prepared its
    /// receive and, the first time through a NIC, until a call of the peer has connected its side for kernels.
    ///
    /// # Errors
    /// As [`start_on`](Self::start_on).
    pub fn handle(&self) -> Result<mp_kernels::Send> {
        Ok(mp_kernels::Send { message: self.half.meet_by_kernels(&self.plane)?.message })
    }
}

/// A receive that streams and kernels start: [`RecvBuilder::prepare_device`](crate::RecvBuilder::prepare_device), the peer
/// of a [`DeviceSend`].
///
/// # Order
/// From `start` on the region is the peer's to write, until `wait` is through; after it the message is visible to what
/// follows on the stream, or to the group of threads. One start, one wait.
///
/// # Dropping
/// As [`DeviceSend`]; and the peer, too, must have nothing left that would send.
pub struct DeviceRecv {
    plane: Arc<Plane>,
    half: Arc<DeviceHalf>,
}

impl DeviceRecv {
    pub(crate) fn new(plane: Arc<Plane>, half: Arc<DeviceHalf>) -> DeviceRecv {
        DeviceRecv { plane, half }
    }

    /// Posting the region, as a step for [`Communicator::enqueue`](crate::Communicator::enqueue).
    pub fn start(&self) -> Step<'_> {
        Step { half: &self.half, kind: StepKind::Post }
    }

    /// Waiting for the message, as a step.
    pub fn wait(&self) -> Step<'_> {
        Step { half: &self.half, kind: StepKind::Recv }
    }

    /// Posts the region when the stream gets there: what the stream did before may have read it.
    ///
    /// # Errors
    /// As [`DeviceSend::start_on`].
    pub fn start_on(&self, stream: impl Steps) -> Result<()> {
        stream.add(Operation { plane: &self.plane, step: self.start() })
    }

    /// Makes the stream wait for the message. If the world ends meanwhile or the timeout passes, the stream goes on, what
    /// it then reads means nothing, and [`Communicator::synchronize`](crate::Communicator::synchronize) says why.
    ///
    /// # Errors
    /// As [`DeviceSend::start_on`].
    pub fn wait_on(&self, stream: impl Steps) -> Result<()> {
        stream.add(Operation { plane: &self.plane, step: self.wait() })
    }

    /// The same operation, started and completed by the host.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) if its stream cannot be made.
    pub fn by_host(&self) -> Result<ByHost<'_>> {
        ByHost::new(&self.plane, &self.half)
    }

    /// What `mp::post` and `mp::recv` of `mp/message.cuh` take. Valid while this object lives. Waits as
    /// [`DeviceSend::handle`] does.
    ///
    /// # Errors
    /// As [`DeviceSend::start_on`].
    pub fn handle(&self) -> Result<mp_kernels::Recv> {
        Ok(mp_kernels::Recv { message: self.half.meet_by_kernels(&self.plane)?.message })
    }
}

impl Drop for DeviceSend {
    fn drop(&mut self) {
        self.half.retire(&self.plane);
    }
}

impl Drop for DeviceRecv {
    fn drop(&mut self) {
        self.half.retire(&self.plane);
    }
}

impl fmt::Debug for DeviceSend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.half.name)
    }
}

impl fmt::Debug for DeviceRecv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.half.name)
    }
}
