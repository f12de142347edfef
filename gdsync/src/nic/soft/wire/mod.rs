//! Wires: how frames get to the peer. Shared memory within a host, TCP or RDMA between hosts; all lose and reorder nothing
//! until they are cut, and then say so.

pub(crate) mod frame;
pub(crate) mod greeting;
mod loan;
pub(crate) mod rdma;
pub(crate) mod shm;
pub(crate) mod tcp;

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::state::{CarriedOut, DeviceUse, Outgoing, Payload, Piece, Violation};
use crate::process::Process;
use frame::Frame;

/// The wire is cut, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Cut(pub String);

impl From<Violation> for Cut {
    fn from(violation: Violation) -> Cut {
        Cut(violation.to_string())
    }
}

impl From<frame::FrameError> for Cut {
    fn from(error: frame::FrameError) -> Cut {
        Violation::from(error).into()
    }
}

/// Takes what arrives.
pub(crate) trait Sink {
    /// A frame, or more of the payload of one that comes in parts ([`Frame::more`]).
    fn take(&mut self, frame: Frame, payload: Payload<'_>) -> Result<(), Violation>;

    /// Adds to `places` where the next `len` bytes go that will be taken as the payload of `frame`, if that is memory of the
    /// CPU and this peer may write it; nothing otherwise. What has been put there is taken ([`Payload::there`]) before
    /// anything else is asked or taken.
    fn places(&mut self, frame: Frame, len: usize, places: &mut Vec<Piece>) {
        let _ = (frame, len, places);
    }
}

/// A sink that is a function, and knows no places.
pub(crate) struct Each<F: FnMut(Frame, Payload<'_>) -> Result<(), Violation>>(pub F);

impl<F: FnMut(Frame, Payload<'_>) -> Result<(), Violation>> Sink for Each<F> {
    fn take(&mut self, frame: Frame, payload: Payload<'_>) -> Result<(), Violation> {
        (self.0)(frame, payload)
    }
}

/// The process of a peer on this machine.
pub(crate) struct PeerProcess {
    pid: u32,
    /// What tells its end. This process needs none; where the kernel has no such descriptors, silence tells instead.
    end: Option<OwnedFd>,
}

impl PeerProcess {
    pub fn new(pid: u32) -> PeerProcess {
        let other = i32::try_from(pid).ok().filter(|_| pid != std::process::id());
        let other = other.and_then(Pid::from_raw);
        PeerProcess { pid, end: other.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) }
    }

    /// Whether it still exists.
    pub fn check(&self) -> Result<(), Cut> {
        let Some(end) = &self.end else { return Ok(()) };
        match poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&Timespec::default())) {
            Ok(1..) => Err(Cut(format!("process {} has ended", self.pid))),
            _ => Ok(()),
        }
    }

    /// Whether it is known to run. On a machine with far too much to do a process may get no processor for long; its end is
    /// noticed without this.
    pub fn runs(&self) -> bool {
        let known = self.end.is_some() || self.pid == std::process::id();
        known && !Process::of(self.pid).is_ok_and(|process| process.stopped)
    }
}

/// A connection to one peer, driven by polling.
pub(crate) trait Wire: Send {
    /// Whether the peer is there. Carries on with what it takes to get there; a wire that costs something waits until it is
    /// `wanted`, here or by the peer.
    fn poll_up(&mut self, wanted: bool) -> Result<bool, Cut>;

    /// Most bytes of payload that a frame on this wire should have.
    fn max_payload(&self) -> usize;

    /// Whether a frame of that size would be taken now.
    fn has_room(&mut self) -> bool;

    /// How the device of this wire carries out requests itself, if it does.
    fn device(&self) -> Option<DeviceUse> {
        None
    }

    /// What became of the oldest request that the device was given, once it is known.
    fn carried_out(&mut self) -> Option<CarriedOut<'_>> {
        None
    }

    /// Sends a frame, or gives the device a request; only when there is room. May take the contents of `out`.
    fn send(&mut self, out: &mut Outgoing) -> Result<(), Cut>;

    /// Whether frames that were sent stay here, to go out together, until they are flushed.
    fn gathers(&self) -> bool {
        false
    }

    /// Pushes on what was sent. True if something moved.
    fn flush(&mut self) -> Result<bool, Cut>;

    /// Whether all that was sent is out of this process's hands.
    fn is_flushed(&self) -> bool;

    /// Hands over frames that have arrived, a bounded number of them, or much of a large one. True if there were some.
    fn receive(&mut self, sink: &mut dyn Sink) -> Result<bool, Cut>;

    /// Looks, now and then, whether the peer still exists.
    fn check_peer(&mut self) -> Result<(), Cut> {
        Ok(())
    }

    /// Whether a peer that has been silent for too long counts as lost: not if it is known to run.
    fn is_lost_by_silence(&self) -> bool {
        true
    }

    /// Whether the peer's NIC cut it before it said a word.
    fn was_turned_away(&self) -> bool {
        false
    }

    /// The other side that waits for `readable` and `writable` of a socket was told so.
    fn ready(&mut self, readable: bool, writable: bool) {
        let _ = (readable, writable);
    }
}
