//! Receive buffers for border planes (`--direct-halo false`): the kernels of the neighbours pack into them, and a launch before
//! whatever reads ghosts copies them there. Each vector that kernels write has buffers of its own; since those alternate from
//! phase to phase, so do the buffers, and one is never written while it is unpacked, for the reason that ghosts are not written
//! while they are read (`cuda/slab.cuh`).

use gdsync::{Buffer, Device};
use libmp::{Communicator, Region, Window};

use super::error::CudaError;
use super::layout::{GHOSTS, Grid};
use super::partition::Partition;
use super::peers::address;
use crate::comm::CommError;

/// Vectors that kernels write for neighbours: scratch and the solution, numbers 0 and 1 of a level.
const VECTORS: usize = 2;

/// The receive buffers of all ranks, laid out alike: level by level, of each vector that from below and that from above.
pub(super) struct Inboxes {
    /// By rank.
    bases: Vec<u64>,
    /// By level: elements before it, and of one buffer.
    levels: Vec<[usize; 2]>,
    memory: Region<f64>,
    _window: Window<f64>,
}

impl Inboxes {
    /// For the levels that are cut; `dims` are those of the levels.
    ///
    /// # Errors
    /// If there is no memory or the GPUs do not reach each other; what ended the world.
    pub fn open(
        communicator: &Communicator,
        device: &Device,
        partition: &Partition,
        dims: &[usize],
    ) -> Result<Self, CudaError> {
        let (mut levels, mut elements) = (Vec::new(), 0);
        for &n in &dims[..partition.whole()] {
            let planes = GHOSTS * Grid::new(n).plane();
            levels.push([elements, planes]);
            elements += 2 * VECTORS * planes;
        }
        let memory: Region<f64> = communicator.alloc(device, elements).map_err(CommError::from)?;
        let window = communicator.window(&memory, 0).map_err(CommError::from)?;
        let of = |rank| address(&window, rank);
        let bases = (0..communicator.size()).map(of).collect::<Result<_, _>>()?;
        Ok(Self { bases, levels, memory, _window: window })
    }

    /// Address of the buffer of a rank for what comes from its neighbour on `side`.
    pub fn at(&self, rank: usize, l: usize, vector: usize, side: usize) -> u64 {
        let [first, planes] = self.levels[l];
        self.bases[rank] + 8 * (first + (2 * vector + side) * planes) as u64
    }

    /// This rank's buffers of a vector.
    ///
    /// # Errors
    /// None for a level that is cut.
    pub fn own(&self, l: usize, vector: usize) -> Result<Buffer<f64>, CudaError> {
        let [first, planes] = self.levels[l];
        let first = first + 2 * vector * planes;
        Ok(self.memory.buffer().slice(first..first + 2 * planes)?)
    }
}
