//! Rows: copies of what does not lie in one piece.

use crate::error::{Error, Result};

/// Rows of consecutive elements, for copies with strides: `count` rows of `len` elements, the next one so many elements behind the
/// beginning of the last, in the target and in the source. Rows that overlap in the target are copied in no order.
///
/// ```
/// use gdsync::{Buffer, Deadline, Device, Rows, Space};
///
/// # fn main() -> gdsync::Result<()> {
/// let column = Buffer::<u32>::new(&Device::Host, Space::Pinned, 3)?;
/// let matrix = Buffer::<u32>::new(&Device::Host, Space::Pinned, 12)?;
/// column.write(&[1, 2, 3])?;
/// let stream = Device::Host.stream()?;
/// stream.copy_rows(&matrix, &column, Rows { len: 1, count: 3, to: 4, from: 1 })?;
/// stream.synchronize(Deadline::after(std::time::Duration::from_secs(1)))?;
/// assert_eq!(matrix.to_vec()?, [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    /// Elements of a row.
    pub len: usize,
    /// Rows.
    pub count: usize,
    /// Elements from row to row in the target.
    pub to: usize,
    /// Elements from row to row in the source.
    pub from: usize,
}

impl Rows {
    /// One row.
    pub fn one(len: usize) -> Rows {
        Rows { len, count: 1, to: 0, from: 0 }
    }

    /// All elements together.
    pub fn elements(&self) -> usize {
        self.len.saturating_mul(self.count)
    }

    /// Elements from the beginning of the first row to the end of the last, in the target and in the source; the largest number if
    /// they are more than that, none if there is nothing in the rows.
    pub fn extents(&self) -> (usize, usize) {
        let extent = |step: usize| match self.elements() {
            0 => 0,
            _ => (self.count - 1).saturating_mul(step).saturating_add(self.len),
        };
        (extent(self.to), extent(self.from))
    }

    /// The same in bytes, for elements of so many.
    pub fn in_bytes(&self, size: usize) -> Rows {
        let Rows { len, count, to, from } = *self;
        let [len, to, from] = [len, to, from].map(|elements| elements.saturating_mul(size));
        Rows { len, count, to, from }
    }

    /// Where each row begins, in the target and in the source. What the extents fit into has no more.
    pub fn starts(self) -> impl Iterator<Item = (usize, usize)> {
        let count = if self.len == 0 { 0 } else { self.count };
        (0..count).map(move |row| (row * self.to, row * self.from))
    }

    /// Whether a driver's copy of a plane takes them, in bytes: rows that do not overlap, at distances of 31 bits.
    pub(crate) fn is_pitched(&self) -> bool {
        let most = i32::MAX as usize;
        [self.to, self.from].iter().all(|step| (self.len..=most).contains(step))
    }

    /// An error if memory of so many bytes has not all of them, which are bytes.
    pub(crate) fn check(&self, to: usize, from: usize) -> Result<()> {
        let (to_extent, from_extent) = self.extents();
        for (extent, len) in [(to_extent, to), (from_extent, from)] {
            if extent > len {
                return Err(Error::OutOfRange { what: "rows", offset: 0, len: extent, size: len });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_reach_from_the_first_row_to_the_end_of_the_last_and_do_not_wrap() {
        let rows = |len, count, to, from| Rows { len, count, to, from };
        assert_eq!(rows(3, 4, 10, 5).extents(), (33, 18));
        assert_eq!(rows(3, 1, usize::MAX, 5).extents(), (3, 3));
        assert_eq!(rows(0, 4, 10, 5).extents(), (0, 0));
        assert_eq!(rows(3, 0, 10, 5).extents(), (0, 0));
        assert_eq!(rows(1, usize::MAX, 2, 1).extents(), (usize::MAX, usize::MAX));
        assert_eq!(rows(3, 3, usize::MAX / 2 + 1, 0).extents(), (usize::MAX, 3));
        assert_eq!(rows(1, 3, 4, 2).in_bytes(8), rows(8, 3, 32, 16));
        assert_eq!(rows(1, 3, 4, 2).starts().collect::<Vec<_>>(), [(0, 0), (4, 2), (8, 4)]);
    }
}
