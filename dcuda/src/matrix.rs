//! The sparse matrix-vector product: by ranks with trees of notified puts, and on streams with trees of messages between devices.

use anyhow::Result;
use dranks::{Options, Ranks};
use libmp::{Collective, Recv, Region, Send, Step};

use crate::kernels::Matrix;
use crate::machine::{Machine, Plan, address, on_devices, same};
use crate::table::{Line, forms};

/// Sizes of the matrix.
#[derive(Debug, Clone, clap::Args)]
pub struct Sizes {
    /// Rows of a rank; a device's part is square.
    #[arg(long, default_value_t = 52, value_parser = clap::value_parser!(u64).range(1..=1 << 16))]
    rows: u64,
    /// Entries that are there, in percent.
    #[arg(long, default_value_t = 0.3, value_parser = mp_program::within(1e-4..=100.0_f64))]
    filled: f64,
}

/// Sums that a row is split into, as in `cuda/matrix.cuh`.
const LANES: usize = 32;

/// Devices in a row: as square as can be.
fn across(devices: u64) -> u64 {
    let divides = |across: &u64| devices.is_multiple_of(*across) && across * across >= devices;
    (1..=devices).find(divides).unwrap_or(devices)
}

/// A number from 0 to 1 that follows from three.
fn random(one: u64, two: u64, three: u64) -> f64 {
    let mut word = one.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (two << 32) ^ three;
    for _ in 0..2 {
        word = (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word ^= word >> 32;
    }
    (word >> 11) as f64 / (1_u64 << 53) as f64
}

/// Rows of a device's part: columns and values of the entries, evenly many a row, each somewhere in its share of the row.
struct Part {
    per_row: usize,
    columns: Vec<u32>,
    values: Vec<f64>,
}

impl Part {
    fn new(device: u64, rows: u64, filled: f64) -> Part {
        let per_row = ((rows as f64 * filled / 100.0).round() as u64).clamp(1, rows);
        let share = rows as f64 / per_row as f64;
        let entries = (0..rows).flat_map(|row| (0..per_row).map(move |entry| (row, entry)));
        let entry = |(row, entry): (u64, u64)| {
            let place = (entry as f64 + random(device + 1, row, entry)) * share;
            ((place as u64).min(rows - 1) as u32, random(device + 1, row, entry + rows) - 0.5)
        };
        let (columns, values) = entries.map(entry).unzip();
        Part { per_row: per_row as usize, columns, values }
    }

    /// Times a vector, in the order of the kernel.
    fn times(&self, input: &[f64]) -> Vec<f64> {
        let row = |(columns, values): (&[u32], &[f64])| {
            let lane = |lane: usize| -> f64 {
                let entries = columns.iter().zip(values).skip(lane).step_by(LANES);
                entries.fold(0.0, |sum, (&column, value)| sum + value * input[column as usize])
            };
            (0..LANES).fold(0.0, |sum, number| sum + lane(number))
        };
        self.columns.chunks(self.per_row).zip(self.values.chunks(self.per_row)).map(row).collect()
    }
}

/// Of a column of the matrix.
fn input(column: u64, rows: u64) -> Vec<f64> {
    (0..rows).map(|row| random(0, column, row)).collect()
}

/// The part of the result that the devices of a row, from `column` on in the tree, add up.
fn sum(parts: &[Vec<f64>], column: usize) -> Vec<f64> {
    let mut all = parts[column].clone();
    for child in [2 * column + 1, 2 * column + 2].into_iter().filter(|child| *child < parts.len()) {
        for (all, more) in all.iter_mut().zip(sum(parts, child)) {
            *all += more;
        }
    }
    all
}

/// A device's part and its vectors.
struct Product<'a> {
    machine: &'a Machine,
    memory: Region<u64>,
    args: Matrix,
    part: Part,
    /// Rows of the device.
    rows: u64,
}

impl Product<'_> {
    fn new<'a>(machine: &'a Machine, sizes: &Sizes) -> Result<Product<'a>> {
        let (ranks, devices) = (u64::from(machine.ranks), machine.world.size() as u64);
        let (rows, device) = (ranks * sizes.rows, machine.number() as u64);
        let part = Part::new(device, rows, sizes.filled);
        let entries = part.columns.len() as u64;
        // Behind each other: input, result, two that others add, sums, starts, columns, values.
        let lengths =
            [rows, rows, 2 * rows, LANES as u64 * rows, rows + 1, entries.div_ceil(2), entries];
        let memory = machine.memory(lengths.iter().sum())?;
        let mut next = address(&memory)?;
        let [input, result, others, sums, starts, columns, values] = lengths.map(|words| {
            let at = next;
            next += 8 * words;
            at
        });
        let across = across(devices);
        let args = Matrix {
            input,
            result,
            others,
            sums,
            starts,
            columns,
            values,
            rows: sizes.rows,
            ranks,
            across,
            down: devices / across,
            device,
            turns: 0,
            stage: 0,
        };
        Ok(Product { machine, memory, args, part, rows })
    }

    /// The matrix, and the input on the devices of the first row only.
    fn begin(&self) -> Result<()> {
        let Matrix { across, device, .. } = self.args;
        let nothing = f64::NAN.to_bits();
        let mut words = vec![nothing; self.rows as usize];
        if device < across {
            words = input(device, self.rows).into_iter().map(f64::to_bits).collect();
        }
        words.resize((4 + LANES) * self.rows as usize, nothing);
        words.extend((0..=self.rows).map(|row| row * self.part.per_row as u64));
        let pair =
            |pair: &[u32]| u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32;
        words.extend(self.part.columns.chunks(2).map(pair));
        words.extend(self.part.values.iter().map(|value| value.to_bits()));
        self.memory.write(&words)?;
        Ok(self.machine.world.barrier()?)
    }

    /// The devices of the first column have the result.
    fn check(&self, form: &str, sizes: &Sizes) -> Result<()> {
        let Matrix { across, device, .. } = self.args;
        if device % across != 0 {
            return Ok(());
        }
        let product = |column: u64| {
            let part = Part::new(device + column, self.rows, sizes.filled);
            part.times(&input(column, self.rows))
        };
        let parts: Vec<Vec<f64>> = (0..across).map(product).collect();
        let got = self.memory.slice(self.rows as usize..2 * self.rows as usize)?.to_vec()?;
        same(form, &got, sum(&parts, 0).into_iter())
    }

    fn ranks(&self) -> Result<Ranks> {
        let ranks = self.machine.open(&self.memory, &Options::new(self.machine.ranks))?;
        let all = |share: &dyn Fn(u64) -> std::ops::Range<u64>| {
            ranks.window(&(0..self.args.ranks).map(share).collect::<Vec<_>>())
        };
        all(&|_| 0..8 * self.rows)?;
        for other in [2, 3] {
            all(&|rank| {
                let first = other * self.rows + rank * self.args.rows;
                8 * first..8 * (first + self.args.rows)
            })?;
        }
        Ok(ranks)
    }
}

/// The form on streams: messages along the trees of devices.
struct Trees {
    /// The input, from above and on down.
    from_above: Option<Recv>,
    below: Vec<Send>,
    /// Sums, from further along and on toward the first column.
    from_along: Vec<Recv>,
    back: Option<Send>,
    barrier: Collective,
}

impl Trees {
    fn new(product: &Product<'_>) -> Result<Trees> {
        let Matrix { across, down, device, .. } = product.args;
        let (row, column) = (device / across, device % across);
        let world = &product.machine.world;
        let rows = product.rows as usize;
        let vector = |number: usize| product.memory.slice(number * rows..(number + 1) * rows);
        let peer = |row: u64, column: u64| world.peer((row * across + column) as usize);
        let (parent, children) =
            (|node: u64| (node - 1) / 2, |node: u64| [2 * node + 1, 2 * node + 2]);
        let from_above = match row {
            0 => None,
            row => Some(peer(parent(row), column)?.recv(&vector(0)?, 0).prepare()?),
        };
        let mut below = Vec::new();
        for child in children(row).into_iter().filter(|child| *child < down) {
            below.push(peer(child, column)?.send(&vector(0)?, 0).prepare()?);
        }
        let mut from_along = Vec::new();
        for (place, child) in (2..).zip(children(column)).filter(|(_, child)| *child < across) {
            from_along.push(peer(row, child)?.recv(&vector(place)?, 1).prepare()?);
        }
        let back = match column {
            0 => None,
            column => Some(peer(row, parent(column))?.send(&vector(1)?, 1).prepare()?),
        };
        let barrier = world.prepare_collective(&product.machine.device, 0)?;
        Ok(Trees { from_above, below, from_along, back, barrier })
    }

    fn turn(&self, product: &Product<'_>) -> Result<()> {
        let Machine { world, stream, .. } = product.machine;
        let stage = |stage: u64| {
            product.machine.launch("dcuda_matrix_stage", Matrix { stage, ..product.args })
        };
        let mut steps: Vec<Step<'_>> = Vec::new();
        if let Some(recv) = &self.from_above {
            steps.extend([Step::start(recv), Step::wait(recv)]);
        }
        steps.extend(self.from_along.iter().map(Step::start));
        steps.extend(self.below.iter().map(Step::start));
        world.enqueue(stream, &steps)?;
        stage(0)?;
        if !self.from_along.is_empty() {
            let waits: Vec<_> = self.from_along.iter().map(Step::wait).collect();
            world.enqueue(stream, &waits)?;
            stage(waits.len() as u64)?;
        }
        if let Some(send) = &self.back {
            send.start_on(stream)?;
        }
        Ok(self.barrier.barrier().start_on(stream)?)
    }
}

/// Checks and measures both forms.
///
/// # Errors
/// A result that is not that of the serial run; what fails.
pub fn run(plan: &Plan, sizes: &Sizes) -> Result<Vec<Line>> {
    on_devices(plan, |machine| {
        let product = Product::new(machine, sizes)?;
        let ranks = product.ranks()?;
        let by_ranks =
            |turns| machine.run(&ranks, "dcuda_matrix", Matrix { turns, ..product.args });
        let trees = Trees::new(&product)?;
        let on_stream = |turns| machine.on_stream(turns, |_| trees.turn(&product));
        let size =
            format!("{} rows, {} entries a device", product.rows, product.part.columns.len());
        forms(
            (machine, plan),
            ("spmv", &size),
            || product.begin(),
            |form| product.check(form, sizes),
            &[("ranks", &by_ranks), ("stream", &on_stream)],
        )
    })
}
