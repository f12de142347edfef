//! The memory of one side of a message: one piece, or several in order. The two sides may be split differently; the sender
//! moves what is in common of a piece there and a piece here, one move for each such overlap, and signals once.

use bytemuck::cast_slice;
use gdsync::{Arg, Buffer, Device, Dims, PeerHandle, PeerMemory, Space, Stream};
use mp_kernels::MessagePiece;

use super::region::Pieces as Supply;
use crate::error::{Error, Result};

/// Most pieces of one side.
const MOST: usize = 1 << 16;

/// One side's memory.
#[derive(Debug, Clone)]
pub(crate) struct Pieces {
    /// At least one; several have bytes, all of them.
    list: Vec<Buffer<u8>>,
    len: usize,
}

impl From<Buffer<u8>> for Pieces {
    fn from(whole: Buffer<u8>) -> Pieces {
        Pieces { len: whole.len(), list: vec![whole] }
    }
}

impl Pieces {
    /// Several pieces, of one device.
    pub fn new(list: Vec<Buffer<u8>>, op: impl Fn() -> String) -> Result<Pieces> {
        if list.len() > MOST {
            return Err(Error::TooLarge {
                what: format!("the list of pieces of {}", op()),
                size: list.len(),
                limit: MOST,
            });
        }
        let first = list.first().and_then(|piece| piece.device().ordinal());
        let stranger = list.iter().find(|piece| piece.device().ordinal() != first);
        if let (Some(stranger), Some(first)) = (stranger, list.first()) {
            let (one, other) = (first.device(), stranger.device());
            return Err(Error::Mismatch {
                op: op(),
                reason: format!("pieces on {one} and on {other}: a message has one device"),
            });
        }
        let mut filled: Vec<_> = list.iter().filter(|piece| !piece.is_empty()).cloned().collect();
        if filled.is_empty() {
            let none = || Buffer::new(&Device::Host, Space::Host, 0);
            let empty = list.into_iter().next().map_or_else(none, Ok);
            filled.push(empty.map_err(|source| Error::Memory { op: op(), source })?);
        }
        Ok(Pieces { len: filled.iter().map(Buffer::len).sum(), list: filled })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn device(&self) -> &Device {
        self.list[0].device()
    }

    /// The only piece.
    pub fn whole(&self) -> Option<&Buffer<u8>> {
        match &self.list[..] {
            [whole] => Some(whole),
            _ => None,
        }
    }

    /// All pieces.
    pub fn iter(&self) -> impl Iterator<Item = &Buffer<u8>> {
        self.list.iter()
    }

    /// The handles of all pieces, in memory that the peer maps, and that is to be kept for it.
    pub fn directory(&self, supply: &Supply) -> gdsync::Result<Buffer<u8>> {
        let handles = self.list.iter().map(Buffer::export).collect::<gdsync::Result<Vec<_>>>()?;
        // Numbers and short byte strings: nothing that postcard cannot encode.
        let bytes = postcard::to_stdvec(&handles).unwrap_or_default();
        let directory = supply.cut(&Device::Host, Space::Pinned, bytes.len())?;
        directory.write(&bytes)?;
        Ok(directory)
    }

    /// The peer's pieces, from its directory; `None` if that is none.
    pub fn map(directory: &PeerHandle, device: &Device) -> gdsync::Result<Option<Pieces>> {
        let directory = PeerMemory::map(directory, &Device::Host)?.buffer.to_vec()?;
        let Ok(handles) = postcard::from_bytes::<Vec<PeerHandle>>(&directory) else {
            return Ok(None);
        };
        let map = |handle| PeerMemory::map(handle, device).map(|peer| peer.buffer);
        let list = handles.iter().map(map).collect::<gdsync::Result<Vec<_>>>()?;
        let len = list.iter().map(Buffer::len).sum();
        Ok((!list.is_empty()).then_some(Pieces { list, len }))
    }

    /// What is to be moved to bring these bytes to the beginning of `target`, which is not shorter.
    pub fn moves_to(&self, target: &Pieces) -> gdsync::Result<Vec<Move>> {
        let lengths = |pieces: &Pieces| pieces.list.iter().map(Buffer::len).collect::<Vec<_>>();
        let moves = overlaps(&lengths(self), &lengths(target)).into_iter();
        moves
            .map(|Overlap { from, from_at, to, to_at, len }| {
                Ok(Move {
                    from: self.list[from].slice(from_at..from_at + len)?,
                    to: target.list[to].slice(to_at..to_at + len)?,
                })
            })
            .collect()
    }
}

/// Bytes that go from one piece into another.
#[derive(Debug)]
pub(crate) struct Move {
    pub from: Buffer<u8>,
    pub to: Buffer<u8>,
}

/// Moves of one side of a message, in the order of its bytes.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    list: Vec<Move>,
    /// Of many, what a kernel of the GPU is told: a launch for all of them instead of a copy for each.
    table: Option<Buffer<MessagePiece>>,
}

/// Copies that are enqueued one by one, at most.
const FEW: usize = 2;
/// Bytes that a warp copies at most, and threads of a block.
const OF_A_WARP: u64 = 16 << 10;
const THREADS: u32 = 256;

impl Moves {
    /// For streams of `device`.
    pub fn new(list: Vec<Move>, device: &Device) -> gdsync::Result<Moves> {
        if list.len() <= FEW || device.as_cuda().is_none() {
            return Ok(Moves { list, table: None });
        }
        let mut pieces = Vec::new();
        for Move { from, to } in &list {
            let (Some(first), Some(there)) = (from.device_address(), to.device_address()) else {
                return Ok(Moves { list, table: None });
            };
            let len = from.len() as u64;
            let parts = (0..len).step_by(OF_A_WARP as usize);
            pieces.extend(parts.map(|at| MessagePiece {
                from: first + at,
                to: there + at,
                bytes: (len - at).min(OF_A_WARP),
            }));
        }
        // The GPU reads it where it is: each entry once a message.
        let table = device.alloc_pinned::<MessagePiece>(pieces.len())?;
        table.write(cast_slice(&pieces))?;
        Ok(Moves { list, table: Some(table) })
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Enqueues them.
    pub fn enqueue(&self, stream: &Stream) -> gdsync::Result<()> {
        let (Some(table), Some(cuda)) = (&self.table, stream.device().as_cuda()) else {
            return self.list.iter().try_for_each(|Move { from, to }| stream.copy(to, from));
        };
        if stream.is_capturing() {
            self.list.iter().for_each(|Move { from, to }| {
                stream.hold(from);
                stream.hold(to);
            });
            stream.hold(table);
        }
        let (address, count) = (table.device_address().unwrap_or_default(), table.len() as u64);
        let blocks = count
            .div_ceil(u64::from(THREADS / 32))
            .min(4 * u64::from(cuda.capabilities().multiprocessors));
        let (kernel, args) = (cuda.kernel("mp_pieces")?, [Arg::new(&address), Arg::new(&count)]);
        // SAFETY: the kernel's parameters; the table and what it says lives as long as the end of the message, or a graph holds it.
        unsafe { stream.launch(&kernel, Dims::linear(blocks as u32, THREADS), &args) }
    }
}

/// Where pieces of a source and of a target overlap: numbers of the pieces, and offsets in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Overlap {
    from: usize,
    from_at: usize,
    to: usize,
    to_at: usize,
    len: usize,
}

/// Walks through both lists of lengths, up to the end of the shorter.
fn overlaps(sources: &[usize], targets: &[usize]) -> Vec<Overlap> {
    let (mut from, mut from_at, mut to, mut to_at) = (0, 0, 0, 0);
    let mut all = Vec::new();
    while let (Some(source), Some(target)) = (sources.get(from), targets.get(to)) {
        let len = (source - from_at).min(target - to_at);
        if len > 0 {
            all.push(Overlap { from, from_at, to, to_at, len });
        }
        (from_at, to_at) = (from_at + len, to_at + len);
        if from_at == *source {
            (from, from_at) = (from + 1, 0);
        }
        if to_at == *target {
            (to, to_at) = (to + 1, 0);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_that_are_split_differently_overlap_in_order() {
        let overlap = |from, from_at, to, to_at, len| Overlap { from, from_at, to, to_at, len };
        assert_eq!(
            overlaps(&[3, 5], &[4, 9]),
            [overlap(0, 0, 0, 0, 3), overlap(1, 0, 0, 3, 1), overlap(1, 1, 1, 0, 4)]
        );
        assert_eq!(overlaps(&[], &[4]), []);
        assert_eq!(overlaps(&[0, 2, 0], &[0, 0, 2]), [overlap(1, 0, 2, 0, 2)]);
    }

    proptest! {
        #[test]
        fn every_byte_of_the_source_is_moved_once_and_in_order(
            sources in prop::collection::vec(0usize..9, 0..9),
            targets in prop::collection::vec(0usize..9, 0..9),
        ) {
            let number = |lengths: &[usize]| -> Vec<(usize, usize)> {
                lengths.iter().enumerate().flat_map(|(piece, len)| (0..*len).map(move |at| (piece, at))).collect()
            };
            let expected: Vec<_> = number(&sources).into_iter().zip(number(&targets)).collect();
            let moved: Vec<_> = overlaps(&sources, &targets)
                .into_iter()
                .flat_map(|Overlap { from, from_at, to, to_at, len }| {
                    (0..len).map(move |at| ((from, from_at + at), (to, to_at + at)))
                })
                .collect();
            prop_assert_eq!(moved, expected);
        }
    }

    #[test]
    fn a_directory_leads_to_the_same_pieces() {
        let supply = Supply::default();
        let memory = supply.cut(&Device::Host, Space::Pinned, 100).unwrap();
        let list = [0..10, 40..40, 50..53].map(|range| memory.slice(range).unwrap());
        let pieces = Pieces::new(list.into(), || "a test".into()).unwrap();
        assert_eq!((pieces.len(), pieces.list.len()), (13, 2));
        let directory = pieces.directory(&supply).unwrap();
        let mapped = Pieces::map(&directory.export().unwrap(), &Device::Host).unwrap().unwrap();
        assert_eq!(mapped.list.iter().map(Buffer::len).collect::<Vec<_>>(), [10, 3]);
        mapped.list[1].write(&[1, 2, 3]).unwrap();
        assert_eq!(memory.to_vec().unwrap()[50..53], [1, 2, 3]);
        let nothing = Pieces::new(Vec::new(), || "a test".into()).unwrap();
        assert!(nothing.is_empty() && nothing.whole().is_some());
    }
}
