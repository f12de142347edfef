//! Another rank, as the other end of messages.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;

use super::device::{DeviceHalf, DeviceRecv, DeviceSend};
use super::half::{Half, Side};
use super::message::{PreparedRecv, PreparedSend};
use super::notice::{Key, Lane};
use super::pieces::Pieces;
use super::plane::Plane;
use super::region::Region;
use crate::error::{Error, Result};

/// Of what devices start.
const IN_ONE: &str = "a device starts a message in one";

/// A rank, as the other end of messages: [`Communicator::peer`](crate::Communicator::peer). Also the rank itself may be
/// one, if it posts its receives before it waits for its sends.
#[derive(Clone)]
pub struct Peer {
    pub(crate) plane: Arc<Plane>,
    /// In the world.
    pub(crate) rank: usize,
    pub(crate) group: u64,
    pub(crate) timeout: Duration,
}

impl Peer {
    /// Its rank in the world.
    pub fn world_rank(&self) -> usize {
        self.rank
    }

    /// Its host.
    pub fn host(&self) -> &str {
        &self.plane.peer(self.rank).host
    }

    /// A message to it: the whole region. Messages of a communicator between two ranks are matched by tag, and within a
    /// tag in the order of preparing. There is no receiving from any source or with any tag.
    pub fn send<T: Pod>(&self, region: &Region<T>, tag: u64) -> SendBuilder {
        SendBuilder { peer: self.clone(), memory: region.buffer().bytes().into(), tag }
    }

    /// A message from it, into the region, which may be longer than the message.
    pub fn recv<T: Pod>(&self, region: &Region<T>, tag: u64) -> RecvBuilder {
        RecvBuilder { peer: self.clone(), memory: region.buffer().bytes().into(), tag }
    }

    /// A message to it that is gathered: elements `range` of each region, one after the other. Pieces may be empty, and so may
    /// the list. All regions belong to one device. The receiver's memory may be in one piece, or in other pieces.
    ///
    /// Only where the peer's memory is mapped here; through a NIC, and for [`prepare_device`](SendBuilder::prepare_device), a
    /// message has one piece.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] naming the piece; [`Error::Mismatch`] for regions of different devices; [`Error::TooLarge`] for
    /// more than 65,536 pieces.
    pub fn sendv<T: Pod>(
        &self,
        pieces: &[(&Region<T>, Range<usize>)],
        tag: u64,
    ) -> Result<SendBuilder> {
        let memory = self.pieces(pieces, || format!("a send tag {tag} to {self:?}"))?;
        Ok(SendBuilder { peer: self.clone(), memory, tag })
    }

    /// A message from it that is scattered, as [`sendv`](Self::sendv): it fills the pieces one after the other. They may be
    /// longer together than the message; what is beyond it is left alone.
    ///
    /// # Errors
    /// As [`sendv`](Self::sendv).
    pub fn recvv<T: Pod>(
        &self,
        pieces: &[(&Region<T>, Range<usize>)],
        tag: u64,
    ) -> Result<RecvBuilder> {
        let memory = self.pieces(pieces, || format!("a recv tag {tag} from {self:?}"))?;
        Ok(RecvBuilder { peer: self.clone(), memory, tag })
    }

    fn pieces<T: Pod>(
        &self,
        pieces: &[(&Region<T>, Range<usize>)],
        op: impl Fn() -> String,
    ) -> Result<Pieces> {
        let cut = |(number, (region, range)): (usize, &(&Region<T>, Range<usize>))| {
            let part = region.buffer().slice(range.clone()).map_err(|_| Error::OutOfRange {
                op: format!("piece {number} of {}", op()),
                at: range.start as u64,
                len: range.end.saturating_sub(range.start) as u64,
                size: region.len() as u64,
            })?;
            Ok(part.bytes())
        };
        let list = pieces.iter().enumerate().map(cut).collect::<Result<_>>()?;
        Pieces::new(list, op)
    }

    pub(crate) fn key(&self, tag: u64, lane: Lane) -> Key {
        Key { group: self.group, tag, lane }
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} on {}", self.rank, self.host())
    }
}

/// A send that is being described.
#[must_use = "nothing is sent before it is prepared and started"]
#[derive(Debug)]
pub struct SendBuilder {
    peer: Peer,
    memory: Pieces,
    tag: u64,
}

impl SendBuilder {
    /// Prepares it for streams and kernels that start it by themselves: see [`DeviceSend`]. The peer calls
    /// [`RecvBuilder::prepare_device`]: an end prepared in the other way is refused when it is first used, once the timeout
    /// has passed without one prepared in this way.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_device(self) -> Result<DeviceSend> {
        let SendBuilder { peer, memory, tag } = self;
        let op = || format!("a device send tag {tag} to {peer:?}");
        let memory = memory.in_one(op, IN_ONE)?.clone();
        let half = DeviceHalf::prepare(&peer, Side::Send, memory, peer.key(tag, Lane::Device))?;
        Ok(DeviceSend::new(peer.plane, half))
    }

    /// Prepares it. Does not wait for the peer.
    ///
    /// # Errors
    /// [`Error::NoPath`](crate::Error::NoPath) for a rank on another host, [`Error::TooMany`](crate::Error::TooMany), what
    /// ended the world.
    pub fn prepare(self) -> Result<PreparedSend> {
        let SendBuilder { peer, memory, tag } = self;
        let half = Half::prepare(&peer, Side::Send, memory, peer.key(tag, Lane::Message), "send")?;
        Ok(PreparedSend::new(peer.plane, half))
    }
}

/// A receive that is being described.
#[must_use = "nothing is received before it is prepared and started"]
#[derive(Debug)]
pub struct RecvBuilder {
    peer: Peer,
    memory: Pieces,
    tag: u64,
}

impl RecvBuilder {
    /// Prepares it for streams and kernels that start it by themselves: see [`DeviceRecv`].
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_device(self) -> Result<DeviceRecv> {
        let RecvBuilder { peer, memory, tag } = self;
        let op = || format!("a device recv tag {tag} from {peer:?}");
        let memory = memory.in_one(op, IN_ONE)?.clone();
        let half = DeviceHalf::prepare(&peer, Side::Recv, memory, peer.key(tag, Lane::Device))?;
        Ok(DeviceRecv::new(peer.plane, half))
    }

    /// Prepares it. Does not wait for the peer.
    ///
    /// # Errors
    /// As [`SendBuilder::prepare`]; [`Error::Memory`](crate::Error::Memory) for memory that no peer can map (plain host
    /// memory; use [`Communicator::alloc`](crate::Communicator::alloc)).
    pub fn prepare(self) -> Result<PreparedRecv> {
        let RecvBuilder { peer, memory, tag } = self;
        let half = Half::prepare(&peer, Side::Recv, memory, peer.key(tag, Lane::Message), "recv")?;
        Ok(PreparedRecv::new(peer.plane, half))
    }
}
