//! Another rank, as the other end of messages.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;

use super::endpoint::Endpoint;
use super::message::{Recv, Send};
use super::notice::{Key, Lane};
use super::pieces::Pieces;
use super::plane::Plane;
use super::region::Region;
use crate::error::{Error, Result};
use crate::transport::Side;

/// A rank, as the other end of messages: [`Communicator::peer`](crate::Communicator::peer). Also the rank itself may be
/// one, if it posts its receives before it waits for its sends.
///
/// ```
/// use libmp::{Device, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let (edge, ghost) = (world.alloc::<f64>(&Device::Host, 9)?, world.alloc::<f64>(&Device::Host, 9)?);
/// let right = world.peer((world.rank() + 1) % world.size())?;
/// let left = world.peer((world.rank() + world.size() - 1) % world.size())?;
/// println!("rank {} on {} is to the right", right.world_rank(), right.host());
/// let send = right.send(&edge, 7).prepare()?;
/// let recv = left.recv(&ghost, 7).prepare()?;
/// # world.finish()
/// # }
/// ```
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
    pub fn send<T: Pod>(&self, region: &Region<T>, tag: u64) -> Message<Send> {
        Message::new(self, region.buffer().bytes().into(), tag)
    }

    /// A message from it, into the region, which may be longer than the message.
    pub fn recv<T: Pod>(&self, region: &Region<T>, tag: u64) -> Message<Recv> {
        Message::new(self, region.buffer().bytes().into(), tag)
    }

    /// A message to it that is gathered: elements `range` of each region, one after the other. Pieces may be empty, and so may
    /// the list, which is the host's then. All regions belong to one device. The receiver's memory may be in one piece, or in
    /// other pieces.
    ///
    /// Where the peer's memory is mapped here, the host moves each byte once. Otherwise the message goes by way of memory in
    /// one piece, which whoever starts it fills: a stream of a GPU by one launch, however many pieces there are. A kernel does not
    /// start it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] naming the piece; [`Error::Mismatch`] for regions of different devices; [`Error::TooLarge`] for
    /// more than 65,536 pieces.
    pub fn sendv<T: Pod>(
        &self,
        pieces: &[(&Region<T>, Range<usize>)],
        tag: u64,
    ) -> Result<Message<Send>> {
        let memory = self.pieces(pieces, || format!("a send tag {tag} to {self:?}"))?;
        Ok(Message::new(self, memory, tag))
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
    ) -> Result<Message<Recv>> {
        let memory = self.pieces(pieces, || format!("a recv tag {tag} from {self:?}"))?;
        Ok(Message::new(self, memory, tag))
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

/// A message that is being described: a [`Send`] or a [`Recv`].
///
/// ```
/// use libmp::{Device, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// # let (edge, ghost) = (world.alloc::<f64>(&Device::Host, 9)?, world.alloc::<f64>(&Device::Host, 9)?);
/// # let right = world.peer((world.rank() + 1) % world.size())?;
/// # let left = world.peer((world.rank() + world.size() - 1) % world.size())?;
/// let recv = left.recv(&ghost, 7).prepare()?;
/// let message = right.send(&edge, 7); // nothing is sent, nobody told
/// let send = message.prepare()?; // the peer is told, and it can be started
/// # world.finish()
/// # }
/// ```
#[must_use = "nothing is sent or received before it is prepared and started"]
#[derive(Debug)]
pub struct Message<Operation> {
    peer: Peer,
    memory: Pieces,
    tag: u64,
    operation: PhantomData<fn() -> Operation>,
}

impl<Operation> Message<Operation> {
    fn new(peer: &Peer, memory: Pieces, tag: u64) -> Self {
        Message { peer: peer.clone(), memory, tag, operation: PhantomData }
    }

    fn end(self, side: Side, verb: &'static str) -> Result<(Arc<Plane>, Arc<Endpoint>)> {
        let Message { peer, memory, tag, .. } = self;
        let (to, key) = ((peer.rank, peer.timeout), peer.key(tag, Lane::Message));
        let end = Endpoint::prepare(&peer.plane, to, side, memory, key, verb)?;
        Ok((peer.plane, end))
    }
}

impl Message<Send> {
    /// Prepares it: from then on the host, streams and kernels can start it. Does not wait for the peer.
    ///
    /// # Errors
    /// [`Error::NoPath`](crate::Error::NoPath) for a rank that cannot be reached, [`Error::Memory`](crate::Error::Memory) if
    /// there is no memory left or the driver says so, what ended the world.
    pub fn prepare(self) -> Result<Send> {
        let (plane, end) = self.end(Side::Send, "send")?;
        Ok(Send::new(plane, end))
    }
}

impl Message<Recv> {
    /// Prepares it: from then on the host, streams and kernels can start it. Does not wait for the peer. Into memory that the
    /// peer cannot map – plain memory of the process, where the peer is another – messages come by way of memory that it can,
    /// and kernels do not receive them.
    ///
    /// # Errors
    /// As of a send.
    pub fn prepare(self) -> Result<Recv> {
        let (plane, end) = self.end(Side::Recv, "recv")?;
        Ok(Recv::new(plane, end))
    }
}
