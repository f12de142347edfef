//! What this rank has with the others where kernels and streams communicate by themselves (`--comm kernel`, `--comm stream`): the
//! borders of its boxes, what it gathers of coarser levels, and the largest of the ranks' values. All of it is libmp's; here is
//! which cells go to whom. Epochs are in the GPU's memory, so graphs hold it, and a NIC makes no difference.

use gdsync::{Arg, Buffer, Device, Stream};
use libmp::exchange::{Cells, Exchange, Field, Neighbour, Phase};
use libmp::{Collective, Communicator, Deadline, ReduceOp, Region};

use super::borders::{self, Border, Exchanged};
use super::device::{Brick, Slab, Turns, TurnsAround};
use super::error::CudaError;
use super::layout::{BASE, GHOSTS, Grid};
use super::partition::Partition;
use super::solver::Gpu;
use crate::backend::Vector;
use crate::comm::CommError;

/// What ranks do together on streams and in kernels.
pub(super) struct Halo {
    communicator: Communicator,
    /// Blocks store, signal and wait themselves; else exchanges are launches of their own.
    in_kernels: bool,
    /// No other rank is on this rank's GPU: blocks may wait.
    apart: bool,
    /// Of the vectors that smoothers alternate between, with the neighbours: of cut levels that are divided alike, from the first
    /// of them on.
    borders: Vec<(usize, Exchange)>,
    /// Of the right-hand sides of levels that have fewer boxes than the one before, axis by axis.
    gathers: Vec<(usize, Exchange)>,
    largest: Collective,
}

/// How ranks communicate through it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub in_kernels: bool,
    pub apart: bool,
    /// Kernels of mapped ranks store straight into the ghosts.
    pub direct: bool,
    /// The domain wraps around: the first rank and the last are neighbours.
    pub around: bool,
    /// Values that are agreed on at a time.
    pub values: usize,
}

/// What a launch over a part of a level is told of it, and of its turns with the neighbours.
pub(super) enum Turn {
    Slab(Slab),
    Brick(Box<Brick>),
}

impl Turn {
    /// As the kernel's parameter.
    pub fn arg(&self) -> Arg<'_> {
        match self {
            Self::Slab(slab) => Arg::new(slab),
            Self::Brick(brick) => Arg::new(&**brick),
        }
    }
}

/// The field of an exchange, in the memory of a level that holds `grid`.
fn field(exchanged: &Exchanged, grid: &Grid, memory: &Buffer<f64>) -> Field {
    let numbering = if exchanged.planes { grid.in_planes() } else { grid.in_pairs() };
    let origin = (exchanged.vector.index() * grid.volume()) as isize + numbering.origin;
    let field = Field::new(&Region::from_buffer(memory.clone()), origin, numbering.strides);
    let cells = |region: &super::layout::Region| -> Cells {
        if exchanged.planes { grid.planes_at(&region[2]) } else { Grid::pairs_at(region) }
    };
    exchanged.borders.iter().fold(field, |field, Border { send, receive, .. }| {
        field.border(cells(send), cells(receive))
    })
}

/// Numbers of neighbours in an exchange: of slabs those below and above, of boxes those of all directions.
fn neighbours(exchanged: &Exchanged) -> Vec<Option<Neighbour>> {
    let along_k =
        |direction: &[i8; 3]| !exchanged.planes || direction[..2] == [0, 0] && direction[2] != 0;
    borders::directions()
        .filter(along_k)
        .map(|direction| {
            let border = exchanged.borders.iter().find(|border| border.direction == direction)?;
            Some(Neighbour::toward(border.peer, direction))
        })
        .collect()
}

impl Halo {
    /// Prepares all of it in `memory`, that of the levels. Waits last no longer than those of `communicator`. Collective.
    ///
    /// # Errors
    /// When libmp refuses; what ended the world.
    pub fn prepare(
        communicator: Communicator,
        device: &Device,
        partition: &Partition,
        memory: &[Buffer<f64>],
        form: Form,
    ) -> Result<Self, CudaError> {
        let Form { in_kernels, apart, direct, around, values } = form;
        let whole = partition.whole();
        let in_memory = |exchanged: &Exchanged, buffered: bool| {
            let l = exchanged.level;
            field(exchanged, &partition.grid(l), &memory[l]).buffered(buffered)
        };
        let (mut borders, mut gathers) = (Vec::new(), Vec::new());
        let mut first = 0;
        while first < whole {
            let last = partition.division().last_alike(first);
            let fields: Vec<Exchanged> = (first..=last)
                .flat_map(|l| {
                    [Vector::Temp, Vector::U].map(|v| borders::borders(partition, l, v, around))
                })
                .collect();
            let sides = neighbours(&fields[0]);
            let fields: Vec<Field> = fields.iter().map(|field| in_memory(field, !direct)).collect();
            let exchange = communicator.exchange(device, &sides, &fields);
            borders.push((first, exchange.map_err(CommError::from)?));
            first = last + 1;
        }
        for stage in (1..=whole).flat_map(|l| borders::gathers(partition, l)) {
            let others: Vec<_> =
                stage.borders.iter().map(|border| Some(Neighbour::new(border.peer))).collect();
            let exchange = communicator.exchange(device, &others, &[in_memory(&stage, false)]);
            gathers.push((stage.level, exchange.map_err(CommError::from)?));
        }
        let largest = communicator.prepare_collective(device, 8 * values);
        let largest = largest.map_err(CommError::from)?;
        Ok(Self { communicator, in_kernels, apart, borders, gathers, largest })
    }

    /// The exchange of the borders of the cut level `l`, and the number of a vector in it.
    fn of(&self, (l, vector): (usize, Vector)) -> (&Exchange, usize) {
        let at = self.borders.iter().rposition(|(first, _)| *first <= l).unwrap_or(0);
        let (first, exchange) = &self.borders[at];
        (exchange, 2 * (l - first) + usize::from(vector == Vector::U))
    }

    /// Ahead of a launch that reads ghosts of one vector and writes another that has some: what it is to do with the
    /// neighbours. `l` and `share` as of [`turn`].
    pub fn enter(
        &self,
        gpu: &Gpu,
        read: Option<(usize, Vector)>,
        written: Option<(usize, Vector)>,
        l: usize,
        share: usize,
    ) -> Result<Turn, CudaError> {
        let mut turn = turn(&gpu.partition, l, share);
        if !self.in_kernels {
            return Ok(turn);
        }
        let (exchange, _) = self.of((l, Vector::U));
        let mut read_here = None;
        if let Some(read) = read {
            let (its, number) = self.of(read);
            if std::ptr::eq(its, exchange) {
                read_here = Some(number);
            } else {
                // Other neighbours have its ghosts. They overwrite them in the phase after the next one at the earliest, or in another
                // solve, on which all ranks agree before.
                gpu.traced(read.0, "wait", || {
                    Ok(its.wait_on(&gpu.stream, Some(number)).map_err(CommError::from)?)
                })?;
            }
        }
        let field = written.map(|written| self.of(written).1);
        if !self.apart {
            gpu.traced(l, "wait", || {
                Ok(exchange.wait_on(&gpu.stream, read_here).map_err(CommError::from)?)
            })?;
        }
        let phase = Phase { read: read_here, written: field, waits: self.apart };
        match &mut turn {
            Turn::Slab(slab) => {
                let mut halo: Turns = exchange.handle(phase).map_err(CommError::from)?;
                if written.is_some() {
                    // Kernels count elements from before the ghosts in front of plane 0.
                    let before = 8 * (BASE + GHOSTS * gpu.levels[l].grid.plane()) as u64;
                    for link in halo.links.iter_mut().filter(|link| link.twin != 0) {
                        link.twin = link.twin.wrapping_sub(before);
                    }
                }
                slab.halo = halo;
            }
            Turn::Brick(brick) => {
                let halo: TurnsAround = exchange.handle(phase).map_err(CommError::from)?;
                brick.halo = halo;
            }
        }
        Ok(turn)
    }

    /// Behind such a launch.
    pub fn leave(&self, gpu: &Gpu, l: usize, written: Option<Vector>) -> Result<(), CudaError> {
        let Some(vector) = written.filter(|_| !self.in_kernels) else { return Ok(()) };
        gpu.traced(l, "exchange", || {
            let (exchange, number) = self.of((l, vector));
            Ok(exchange.run_on(&gpu.stream, number).map_err(CommError::from)?)
        })
    }

    /// Gives this rank what the others have written of its box of the right-hand side of level `l`.
    pub fn gather(&self, gpu: &Gpu, l: usize) -> Result<(), CudaError> {
        self.gathers.iter().filter(|(level, _)| *level == l).try_for_each(|(_, stage)| {
            gpu.traced(l, "gather", || Ok(stage.run_on(&gpu.stream, 0).map_err(CommError::from)?))
        })
    }

    /// A vector of a cut level was set to zero, ghosts included: so is what may still come into them.
    pub fn zero(&self, stream: &Stream, l: usize, vector: Vector) -> Result<(), CudaError> {
        let (exchange, number) = self.of((l, vector));
        Ok(exchange.clear_on(stream, number).map_err(CommError::from)?)
    }

    /// Replaces values by the largest of all ranks: bit patterns of numbers that are not negative.
    pub fn agree(&self, stream: &Stream, values: &Buffer<u64>) -> Result<(), CudaError> {
        let values = Region::from_buffer(values.clone());
        let largest = self.largest.all_reduce(ReduceOp::Max, &values, &values);
        Ok(largest.start_on(stream).map_err(CommError::from)?)
    }

    /// Waits for the stream and for what its kernels have reported.
    ///
    /// # Errors
    /// A wait that failed, and for whom; what ended the world; the deadline.
    pub fn synchronize(&self, stream: &Stream, deadline: Deadline) -> Result<(), CudaError> {
        Ok(self.communicator.synchronize(stream, deadline).map_err(CommError::from)?)
    }
}

/// What a launch over this rank's part of level `l` is told that communicates with nobody, or over its share of the coarser level
/// `share` to interpolate from it.
pub(super) fn turn(partition: &Partition, l: usize, share: usize) -> Turn {
    let cells = if share == l { partition.part(l) } else { partition.share(share) };
    let [first, end] = [0, 1].map(|what| {
        [0, 1, 2]
            .map(|axis| if what == 0 { cells[axis].start as i32 } else { cells[axis].end as i32 })
    });
    // TurnsAround them others are here, too, or all of the level.
    let held = partition.division().along(share).map(|ranks| match ranks {
        1 => partition.dim(share) as i32,
        _ => GHOSTS as i32,
    });
    match partition.in_slabs(l) {
        true => Turn::Slab(Slab {
            halo: Turns::default(),
            first: first[2],
            end: end[2],
            held: held[2],
            depth: partition.depth(l) as i32,
        }),
        false => Turn::Brick(Box::new(Brick {
            halo: TurnsAround::default(),
            first,
            end,
            held,
            reserved: 0,
        })),
    }
}
