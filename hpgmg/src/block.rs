//! A communication phase as data: lists of box-shaped copies between fields and message buffers.
//!
//! Every phase of a level (halo exchange, restriction, interpolation) is three lists – pack (field to
//! send buffer), local (field to field) and unpack (receive buffer to field) – plus one message per
//! neighbour. The lists are plain numbers, the same for every backend. Section 12 of the HPGMG-FV
//! description.

/// Where a block of cells lies in a vector or a buffer; all in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct View {
    /// Offset of the first cell.
    pub at: usize,
    /// Distance between rows.
    pub pitch: usize,
    /// Distance between planes.
    pub plane: usize,
}

impl View {
    /// Offset of row `(j, k)` of the block.
    #[inline(always)]
    pub fn row(&self, j: usize, k: usize) -> usize {
        self.at + j * self.pitch + k * self.plane
    }

    /// A dense block of `dims` at offset `at` of a buffer.
    pub fn dense(at: usize, dims: [usize; 3]) -> Self {
        Self { at, pitch: dims[0], plane: dims[0] * dims[1] }
    }
}

/// One block of a phase. `dims` are the cells of the *destination*, i fastest; the source has the same
/// dimensions for copies, twice as many for restriction, and what the stencil needs for interpolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Block {
    /// Cells of the destination.
    pub dims: [usize; 3],
    /// Source.
    pub from: View,
    /// Destination.
    pub to: View,
}

impl Block {
    /// Cells written.
    pub fn cells(&self) -> usize {
        self.dims[0] * self.dims[1] * self.dims[2]
    }
}

/// What passes between this rank and one neighbour in a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Rank of the neighbour.
    pub rank: usize,
    /// Elements sent to it; 0 is no message.
    pub send: usize,
    /// Elements received from it; 0 is no message.
    pub receive: usize,
    /// Field to send buffer, in buffer order.
    pub pack: Vec<Block>,
    /// Receive buffer to field, in buffer order.
    pub unpack: Vec<Block>,
}

/// The three lists of a phase; at most one message per neighbour and direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    /// Neighbours by increasing rank.
    pub neighbours: Vec<Neighbour>,
    /// Field to field.
    pub local: Vec<Block>,
}

impl Phase {
    /// The entry of `rank`, created when it is the first of its rank.
    pub fn neighbour(&mut self, rank: usize) -> &mut Neighbour {
        let at = match self.neighbours.binary_search_by_key(&rank, |n| n.rank) {
            Ok(at) => at,
            Err(at) => {
                let (pack, unpack) = (Vec::new(), Vec::new());
                self.neighbours.insert(at, Neighbour { rank, send: 0, receive: 0, pack, unpack });
                at
            }
        };
        &mut self.neighbours[at]
    }
}

/// Cuts blocks along j and k so that many threads can share them and a tile stays in cache; the
/// reference tiles 16 × 16. Not for interpolation blocks.
pub fn tile(blocks: &[Block], tile: usize, scale: usize) -> Vec<Block> {
    let mut tiles = Vec::new();
    for b in blocks {
        for k in (0..b.dims[2]).step_by(tile) {
            for j in (0..b.dims[1]).step_by(tile) {
                tiles.push(Block {
                    dims: [b.dims[0], tile.min(b.dims[1] - j), tile.min(b.dims[2] - k)],
                    from: View { at: b.from.row(j * scale, k * scale), ..b.from },
                    to: View { at: b.to.row(j, k), ..b.to },
                });
            }
        }
    }
    tiles
}
