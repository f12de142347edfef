//! Heat on a square plate with a cold frame, which most of the stencils compute: where it starts, and what it is after so many steps,
//! computed by one rank alone with the same additions in the same order.

use std::ops::Range;

use libmp::{Communicator, Device, Recv, Region, Send};

use crate::Failure;

/// The rows or columns of one of `parts` ranks that share `side`.
pub fn part(side: usize, parts: usize, number: usize) -> Range<usize> {
    number * side / parts..(number + 1) * side / parts
}

/// A plate with a hot spot.
pub fn start(side: usize) -> Vec<f64> {
    let hot = |cell: usize| cell / side > side / 3 && cell % side < side / 2;
    (0..side * side).map(|cell| if hot(cell) { 1.0 + cell as f64 * 1e-6 } else { 0.0 }).collect()
}

/// The plate after so many steps.
pub fn alone(side: usize, steps: usize) -> Vec<f64> {
    let mut now = start(side);
    for _ in 0..steps {
        let at = |row: usize, column: usize| now[row * side + column];
        let next = |cell: usize| {
            let (row, column) = (cell / side, cell % side);
            let cold = |is_edge: bool, warm: &dyn Fn() -> f64| if is_edge { 0.0 } else { warm() };
            let left = cold(column == 0, &|| at(row, column - 1));
            let right = cold(column + 1 == side, &|| at(row, column + 1));
            let above = cold(row == 0, &|| at(row - 1, column));
            let below = cold(row + 1 == side, &|| at(row + 1, column));
            now[cell] + 0.2 * (left + right + above + below - 4.0 * now[cell])
        };
        now = (0..side * side).map(next).collect();
    }
    now
}

/// Whether rows of the plate are what one rank alone finds.
pub fn is_right(rows: &[f64], first: usize, side: usize, steps: usize) -> bool {
    alone(side, steps)[first * side..][..rows.len()] == *rows
}

/// A rank's strip of the plate on its device, twice, to be used in turn: with one row more above and below, the neighbours' or the cold frame.
pub struct Strip {
    /// Cells of a row.
    pub side: usize,
    /// Rows of this rank.
    pub rows: usize,
    /// The neighbours that there are.
    pub edges: Vec<Edge>,
    first: usize,
    plates: [Region<f64>; 2],
}

/// Where a strip meets another one.
#[derive(Debug, Clone, Copy)]
pub struct Edge {
    /// The rank that has the other one.
    pub neighbour: usize,
    /// The row that it needs.
    pub own: usize,
    /// The row that its row comes to.
    pub ghost: usize,
}

impl Strip {
    /// The strip of this rank, at the start.
    ///
    /// # Errors
    /// If there are more ranks than rows; what the device says.
    pub fn new(world: &Communicator, device: &Device, side: usize) -> Result<Strip, Failure> {
        let (rank, size) = (world.rank(), world.size());
        if side < size {
            return Err(format!("{side} rows for {size} ranks: each needs one").into());
        }
        let mine = part(side, size, rank);
        let (first, rows) = (mine.start, mine.len());
        let above = rank.checked_sub(1).map(|neighbour| Edge { neighbour, own: 1, ghost: 0 });
        let below = Some(Edge { neighbour: rank + 1, own: rows, ghost: rows + 1 });
        let edges = above.into_iter().chain(below).filter(|edge| edge.neighbour < size).collect();
        let cells = (rows + 2) * side;
        let plates = [world.alloc(device, cells)?, world.alloc(device, cells)?];
        let mut warm = vec![0.0; cells];
        plates[1].write(&warm)?;
        warm[side..(rows + 1) * side].copy_from_slice(&start(side)[first * side..mine.end * side]);
        plates[0].write(&warm)?;
        Ok(Strip { side, rows, edges, first, plates })
    }

    // ANCHOR: messages
    /// Messages of both plates in turn: each edge row, straight into the neighbour's row beyond the edge, and the neighbour's into this one's.
    ///
    /// # Errors
    /// What preparing them says.
    pub fn messages(&self, world: &Communicator) -> libmp::Result<[Vec<(Send, Recv)>; 2]> {
        let mut messages = [Vec::new(), Vec::new()];
        for (turn, messages) in messages.iter_mut().enumerate() {
            for edge in &self.edges {
                let peer = world.peer(edge.neighbour)?;
                let send = peer.send(&self.row(turn, edge.own)?, turn as u64).prepare()?;
                let recv = peer.recv(&self.row(turn, edge.ghost)?, turn as u64).prepare()?;
                messages.push((send, recv));
            }
        }
        Ok(messages)
    }
    // ANCHOR_END: messages

    /// A row of one of the two.
    ///
    /// # Errors
    /// If it has no such row.
    pub fn row(&self, turn: usize, row: usize) -> libmp::Result<Region<f64>> {
        self.plates[turn].slice(row * self.side..(row + 1) * self.side)
    }

    /// Where kernels find one of the two.
    pub fn address(&self, turn: usize) -> u64 {
        self.plates[turn].buffer().device_address().unwrap_or(0)
    }

    /// Whether it is right after so many steps, of which each has written the other of the two.
    ///
    /// # Errors
    /// What the device says.
    pub fn is_right(&self, steps: usize) -> libmp::Result<bool> {
        let rows =
            self.plates[steps % 2].slice(self.side..(self.rows + 1) * self.side)?.to_vec()?;
        Ok(is_right(&rows, self.first, self.side, steps))
    }
}
