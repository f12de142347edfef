//! Fields whose borders are exchanged, and where boxes of their cells lie in memory.

use std::ops::Range;

use bytemuck::Pod;
use gdsync::Buffer;
use mp_kernels::ExchangeCopy;
use serde::{Deserialize, Serialize};

use crate::data::Region;

/// A box of cells: from where to where along each axis, the first axis being the one along which they are consecutive.
pub type Cells = [Range<i32>; 3];

/// A field of cells in a region, one of those whose borders an [`Exchange`](super::Exchange) brings to the neighbours.
///
/// ```
/// use libmp::exchange::Field;
/// use libmp::{Device, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// // Rows of ten cells, four of them, with a ghost at both ends of each row: cell (0, 0, 0) is element 1.
/// let plate = world.alloc::<f64>(&Device::Host, 40)?;
/// let field = Field::new(&plate, 1, [10, 40])
///     .border([0..1, 0..4, 0..1], [-1..0, 0..4, 0..1]) // for the first neighbour
///     .border([7..8, 0..4, 0..1], [8..9, 0..4, 0..1]); // for the second
/// # world.finish()
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Field {
    pub(super) memory: Buffer<u8>,
    /// Bytes of a cell.
    pub(super) cell: u64,
    /// Byte of cell (0, 0, 0), which may lie before the memory.
    pub(super) origin: i64,
    /// Bytes from row to row, and from plane to plane.
    pub(super) strides: [u64; 2],
    /// What is sent and what is received, for each neighbour.
    pub(super) borders: Vec<(Cells, Cells)>,
    pub(super) buffered: bool,
}

impl Field {
    /// Cells in a region: cell (0, 0, 0) is its element `origin`, negative if that would be before the beginning, and from row
    /// to row and from plane to plane there are so many elements.
    pub fn new<T: Pod>(region: &Region<T>, origin: isize, strides: [usize; 2]) -> Field {
        Field::of_bytes(&region.buffer().bytes(), size_of::<T>(), origin, strides)
    }

    /// The same of bytes; each `cell` of them are a cell.
    pub fn of_bytes(memory: &Buffer<u8>, cell: usize, origin: isize, strides: [usize; 2]) -> Field {
        Field {
            memory: memory.clone(),
            cell: cell as u64,
            origin: (origin as i64).wrapping_mul(cell as i64),
            strides: strides.map(|stride| (stride as u64).wrapping_mul(cell as u64)),
            borders: Vec::new(),
            buffered: false,
        }
    }

    /// For the next neighbour that there is: the cells of this rank that it has as ghosts, and the ghosts that are its cells. They have as many
    /// cells along each axis as the neighbour says.
    #[must_use]
    pub fn border(mut self, send: Cells, receive: Cells) -> Field {
        self.borders.push((send, receive));
        self
    }

    /// Whether neighbours whose memory is mapped store into a receive buffer, from which the ghosts are copied before they are
    /// read, and not straight into the ghosts.
    #[must_use]
    pub fn buffered(mut self, buffered: bool) -> Field {
        self.buffered = buffered;
        self
    }

    /// Where cells lie.
    ///
    /// # Errors
    /// Why they do not.
    pub(super) fn place(&self, cells: &Cells) -> Result<Placed, String> {
        let outside = || format!("cells {cells:?} are not all in the region");
        let extent = |axis: usize| i64::from(cells[axis].end) - i64::from(cells[axis].start);
        let extents = [0, 1, 2].map(extent);
        if extents.iter().any(|&extent| extent <= 0) {
            return Err(format!("cells {cells:?}: there are none"));
        }
        let steps = [self.cell, self.strides[0], self.strides[1]].map(i128::from);
        let at = |corner: [i32; 3]| -> i128 {
            let along = corner.iter().zip(steps);
            i128::from(self.origin) + along.map(|(&at, step)| i128::from(at) * step).sum::<i128>()
        };
        let first = at([0, 1, 2].map(|axis| cells[axis].start));
        let last = at([0, 1, 2].map(|axis| cells[axis].end - 1)) + i128::from(self.cell);
        if first < 0 || last > self.memory.len() as i128 {
            return Err(outside());
        }
        let [row, rows, planes] = extents.map(|extent| extent as u64);
        Ok(Placed { at: first as u64, row: row * self.cell, rows, planes, steps: self.strides })
    }
}

/// A box in memory: rows of consecutive bytes, in planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Placed {
    /// The first byte, from the beginning of its memory.
    pub at: u64,
    pub row: u64,
    pub rows: u64,
    pub planes: u64,
    /// Bytes from row to row, and from plane to plane.
    pub steps: [u64; 2],
}

impl Placed {
    pub fn extents(&self) -> [u64; 3] {
        [self.row, self.rows, self.planes]
    }

    pub fn bytes(&self) -> u64 {
        self.row * self.rows * self.planes
    }

    /// The same box alone in memory, from byte `at` on.
    pub fn compact(&self, at: u64) -> Placed {
        Placed { at, steps: [self.row, self.row * self.rows], ..*self }
    }

    /// Whether nothing else lies between its bytes.
    pub fn is_compact(&self) -> bool {
        let [row, plane] = self.compact(0).steps;
        (self.rows == 1 || self.steps[0] == row) && (self.planes == 1 || self.steps[1] == plane)
    }

    /// What copies it to a box of the same extents, the beginnings of whose memories have these addresses.
    pub fn copy_to(&self, from: u64, target: &Placed, to: u64) -> ExchangeCopy {
        let one = self.is_compact() && target.is_compact();
        let [row, rows, planes] = if one { [self.bytes(), 1, 1] } else { self.extents() };
        ExchangeCopy {
            from: from.wrapping_add(self.at),
            to: to.wrapping_add(target.at),
            row,
            rows,
            planes,
            from_row: self.steps[0],
            from_plane: self.steps[1],
            to_row: target.steps[0],
            to_plane: target.steps[1],
        }
    }

    /// Address of cell (0, 0, 0) of cells of which the box begins with `first`, if its memory begins at `memory`.
    pub fn origin(&self, memory: u64, first: [i32; 3], cell: u64) -> u64 {
        let steps = [cell, self.steps[0], self.steps[1]];
        let before = first.iter().zip(steps).map(|(&at, step)| (at as u64).wrapping_mul(step));
        let before = before.fold(0u64, u64::wrapping_add);
        memory.wrapping_add(self.at).wrapping_sub(before)
    }
}

#[cfg(test)]
mod tests {
    use gdsync::{Device, Space};

    use super::*;

    /// 6 x 5 x 4 cells with ghosts, cell (0, 0, 0) behind one of each.
    fn field() -> Field {
        let memory = Buffer::<u32>::new(&Device::Host, Space::Host, 6 * 5 * 4).unwrap();
        Field::new(&Region::from_buffer(memory), 1 + 6 + 30, [6, 30])
    }

    #[test]
    fn a_box_lies_where_its_cells_are() {
        let placed = field().place(&[0..4, 2..3, -1..3]).unwrap();
        let expected =
            Placed { at: 4 * (1 + 3 * 6), row: 16, rows: 1, planes: 4, steps: [24, 120] };
        assert_eq!(placed, expected);
        assert_eq!(placed.origin(1000, [0, 2, -1], 4), 1000 + 4 * 37);
    }

    #[test]
    fn cells_outside_the_region_and_none_are_refused() {
        let field = field();
        for cells in [[-1..5, -1..4, -2..0], [0..1, 0..1, 0..4], [4..6, 3..4, 2..3]] {
            assert!(field.place(&cells).unwrap_err().contains("not all in"), "{cells:?}");
        }
        #[expect(clippy::reversed_empty_ranges, reason = "what is to be refused")]
        for cells in [[0..0, 0..1, 0..1], [0..1, 3..1, 0..1]] {
            assert!(field.place(&cells).unwrap_err().contains("none"), "{cells:?}");
        }
    }

    #[test]
    fn whole_planes_are_one_row() {
        let field = field();
        let planes = field.place(&[-1..5, -1..4, 0..2]).unwrap();
        assert!(planes.is_compact());
        assert_eq!(planes.copy_to(0, &planes.compact(0), 8).row, 4 * 60);
        let columns = field.place(&[0..1, 0..3, 0..2]).unwrap();
        assert!(!columns.is_compact() && columns.compact(64).is_compact());
        assert_eq!(columns.copy_to(0, &columns.compact(0), 8).rows, 3);
        assert!(field.place(&[2..4, 1..2, 1..2]).unwrap().is_compact());
    }
}
