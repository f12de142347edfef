//! The stencil program: by ranks with notified puts of lines, and on streams with a kernel for each phase and messages of a halo. Beside
//! them, if wished, one kernel of NVSHMEM with puts and signals.

use anyhow::{Context, Result, bail, ensure};
use dranks::{Options, Ranks};
use libmp::Region;
use mp_program::nvshmem;

use crate::halo::{Halo, Pieces};
use crate::kernels::{HaloForm, Stencil};
use crate::machine::{Machine, Plan, address, on_devices, same};
use crate::table::{Line, Unit, forms};

/// Sizes of the stencil.
#[derive(Debug, Clone, clap::Args)]
pub struct Sizes {
    /// Points of a line.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    columns: u64,
    /// Lines of a rank.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    lines: u64,
    /// Levels.
    #[arg(long, default_value_t = 26, value_parser = clap::value_parser!(u64).range(1..=64))]
    levels: u64,
    /// Beside NVSHMEM, by the program that tools/build-nvshmem-peer makes beside this one: the same in one kernel, with signals that nobody
    /// has to match. Takes two different GPUs.
    #[arg(long)]
    nvshmem: bool,
}

/// Fields, the two that are read and written in turn first and last.
const FIELDS: u64 = 5;
/// Which lines a phase gives away: to the device before, to the one behind.
const GIVEN: [(bool, bool); 3] = [(true, false), (false, true), (true, true)];

/// The field that a phase gives lines of.
fn given(phase: usize, turn: u64) -> u64 {
    [1, 3, if turn.is_multiple_of(2) { 4 } else { 0 }][phase]
}

/// At the beginning.
fn start(level: u64, line: u64, column: u64) -> f64 {
    let hash = (level * 7919 + line).wrapping_mul(1_000_003).wrapping_add(column);
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / 65_536.0
}

/// A device's part.
struct Domain<'a> {
    machine: &'a Machine,
    sizes: &'a Sizes,
    memory: Region<u64>,
    args: Stencil,
}

impl Domain<'_> {
    fn new<'a>(machine: &'a Machine, sizes: &'a Sizes) -> Result<Domain<'a>> {
        let ranks = u64::from(machine.ranks);
        let size = sizes.levels * (ranks * sizes.lines + 2) * sizes.columns;
        let memory = machine.memory(FIELDS * size)?;
        let args = Stencil {
            fields: address(&memory)?,
            columns: sizes.columns,
            lines: sizes.lines,
            levels: sizes.levels,
            ranks,
            devices: machine.world.size() as u64,
            device: machine.number() as u64,
            turns: 0,
            phase: 0,
            halo: 0,
        };
        Ok(Domain { machine, sizes, memory, args })
    }

    /// Lines of this device.
    fn lines(&self) -> u64 {
        self.args.ranks * self.sizes.lines
    }

    /// Words of a level.
    fn plane(&self) -> u64 {
        (self.lines() + 2) * self.sizes.columns
    }

    /// Where a line is, from the halo on.
    fn line(&self, field: u64, level: u64, line: u64) -> usize {
        ((field * self.sizes.levels + level) * self.plane() + line * self.sizes.columns) as usize
    }

    /// As at the beginning, with the halos; everything else is no number.
    fn begin(&self) -> Result<()> {
        let first = self.args.device * self.lines();
        let mut words = vec![f64::NAN.to_bits(); self.memory.len()];
        let height = self.args.devices * self.lines();
        for level in 0..self.sizes.levels {
            for line in 0..self.lines() + 2 {
                let Some(global) = (first + line).checked_sub(1).filter(|line| *line < height)
                else {
                    continue;
                };
                for column in 0..self.sizes.columns {
                    let value = start(level, global, column);
                    words[self.line(0, level, line) + column as usize] = value.to_bits();
                }
            }
        }
        self.memory.write(&words)?;
        Ok(self.machine.world.barrier()?)
    }

    /// What there is after so many iterations is what the serial run has.
    fn check(&self, form: &str, turns: u64, alone: &[f64]) -> Result<()> {
        let words = self.memory.to_vec()?;
        let (columns, lines) = (self.sizes.columns as usize, self.lines() as usize);
        let field = if turns.is_multiple_of(2) { 0 } else { 4 };
        for level in 0..self.sizes.levels {
            let here = self.line(field, level, 1);
            let height = self.args.devices as usize * lines;
            let there = (level as usize * height + self.machine.number() * lines) * columns;
            let (got, alone) =
                (&words[here..here + lines * columns], &alone[there..there + lines * columns]);
            same(&format!("{form}, level {level}"), got, alone.iter().copied())?;
        }
        Ok(())
    }

    /// The number that stands for a device's result of so many iterations, as bench/peers/nvshmem_stencil.cuh works it out: of the bits of its
    /// lines, each in its place.
    fn sum(&self, device: usize, alone: &[f64]) -> u64 {
        let (columns, lines) = (self.sizes.columns as usize, self.lines() as usize);
        let height = self.args.devices as usize * lines;
        let mut sum = 0_u64;
        for (level, points) in alone.chunks(height * columns).enumerate() {
            let own = &points[device * lines * columns..(device + 1) * lines * columns];
            for (place, point) in own.iter().enumerate() {
                let at = (level * lines * columns + place) as u64;
                sum = sum.wrapping_add(point.to_bits().wrapping_mul(2 * at + 1));
            }
        }
        sum
    }

    /// The form of NVSHMEM, which the first device has run; nothing on the others.
    fn beside_nvshmem(
        &self,
        gpus: [u32; 2],
        (plan, size): (&Plan, &str),
        alone: &[f64],
    ) -> Result<Option<Line>> {
        if self.machine.number() != 0 {
            return Ok(None);
        }
        let mut processes = nvshmem::Processes::start(&gpus).context("NVSHMEM is absent")?;
        let form = format!("{}, puts and signals", processes.version());
        let (columns, lines, levels) = (self.sizes.columns, self.sizes.lines, self.sizes.levels);
        let mut run = |turns: u64| -> Result<(f64, [u64; 2])> {
            let line = format!("stencil {columns} {turns} {} {lines} {levels}", self.args.ranks);
            let answers = processes.ask(&line)?;
            let mut seconds = 0.0_f64;
            let mut sums = [0; 2];
            for (answer, sum) in answers.iter().zip(&mut sums) {
                let numbers = answer.split_once(' ').and_then(|(seconds, sum)| {
                    Some((seconds.parse::<f64>().ok()?, sum.trim().parse().ok()?))
                });
                let (its, its_sum) =
                    numbers.with_context(|| format!("nvshmem-peer answered {answer:?}"))?;
                (seconds, *sum) = (seconds.max(its), its_sum);
            }
            Ok((seconds, sums))
        };
        let (_, sums) = run(plan.check)?;
        for (device, sum) in sums.into_iter().enumerate() {
            ensure!(
                sum == self.sum(device, alone),
                "{form}: what PE {device} has after {} iterations is not what the serial run has",
                plan.check
            );
        }
        let line = match plan.iterations {
            0 => Line::checked("stencil", &form, self.machine),
            _ => {
                let spread = plan.spread(|turns| Ok(run(turns)?.0))?;
                Line::new("stencil", &form, size.into(), self.machine, Unit::Milliseconds, spread)
            }
        };
        processes.finish()?;
        Ok(Some(line))
    }

    /// Lines of a field that the devices before and behind have as halo.
    fn halo(&self, field: u64, (down, up): (bool, bool)) -> Result<Halo> {
        let line = |line: u64| -> Pieces {
            let at = |level| (self.line(field, level, line) as u64, self.sizes.columns);
            (0..self.sizes.levels).map(at).collect()
        };
        let last = self.lines();
        let (down, up) =
            (down.then(|| (line(1), line(last + 1))), up.then(|| (line(last), line(0))));
        Halo::new(self.machine, &self.memory, (field, false), down, up)
    }

    /// The windows of the ranks, and what runs them.
    fn ranks(&self) -> Result<Ranks> {
        let (plane, columns) = (self.plane(), self.sizes.columns);
        let ranks = self.machine.open(&self.memory, &Options::new(self.machine.ranks))?;
        for field in [0, 1, 3, 4] {
            let share = |rank: u64| {
                let first = field * self.sizes.levels * plane + rank * self.sizes.lines * columns;
                let words = (self.sizes.levels - 1) * plane + (self.sizes.lines + 2) * columns;
                8 * first..8 * (first + words)
            };
            ranks.window(&(0..self.args.ranks).map(share).collect::<Vec<_>>())?;
        }
        Ok(ranks)
    }
}

/// The whole domain by one thread.
fn alone(sizes: &Sizes, height: u64, turns: u64) -> Vec<f64> {
    let (columns, height) = (sizes.columns as usize, height as usize);
    let mut all = Vec::new();
    for level in 0..sizes.levels {
        let points = (0..height * columns)
            .map(|at| start(level, (at / columns) as u64, (at % columns) as u64));
        let mut u: Vec<f64> = points.collect();
        let (mut lap, mut fi, mut fj) =
            (vec![0.0; u.len()], vec![0.0; u.len()], vec![0.0; u.len()]);
        for _ in 0..turns {
            for j in 1..height.saturating_sub(1) {
                for at in j * columns + 1..((j + 1) * columns).saturating_sub(1) {
                    lap[at] =
                        u[at + 1] + u[at - 1] + u[at + columns] + u[at - columns] - 4.0 * u[at];
                }
            }
            for at in 0..u.len() {
                fi[at] = if (at + 1) % columns != 0 { lap[at + 1] - lap[at] } else { 0.0 };
                fj[at] = if at + columns < u.len() { lap[at + columns] - lap[at] } else { 0.0 };
            }
            // In place: each point needs itself only.
            for j in 2..height.saturating_sub(2) {
                for at in j * columns + 2..((j + 1) * columns).saturating_sub(2) {
                    u[at] -= 0.025 * (fi[at] - fi[at - 1] + fj[at] - fj[at - columns]);
                }
            }
        }
        all.extend(u);
    }
    all
}

/// Those of the devices, which NVSHMEM takes.
fn two_gpus(machine: &Machine) -> Result<[u32; 2]> {
    match *machine.gpus()? {
        [Some(first), Some(second)] if first != second => Ok([first, second]),
        _ => bail!("NVSHMEM takes two devices that are two GPUs, such as --devices cuda:0,cuda:1"),
    }
}

/// Checks and measures all forms.
///
/// # Errors
/// A result that is not that of the serial run; what fails.
pub fn run(plan: &Plan, sizes: &Sizes) -> Result<Vec<Line>> {
    let serial = std::sync::OnceLock::new();
    on_devices(plan, |machine| {
        let gpus = sizes.nvshmem.then(|| two_gpus(machine)).transpose()?;
        let domain = Domain::new(machine, sizes)?;
        let height = domain.args.devices * domain.lines();
        let serial = serial.get_or_init(|| alone(sizes, height, plan.check));
        let ranks = domain.ranks()?;
        let by_ranks = |halo: HaloForm| {
            let (args, ranks) = (Stencil { halo: halo as u64, ..domain.args }, &ranks);
            move |turns| machine.run(ranks, "dcuda_stencil", Stencil { turns, ..args })
        };
        let phases = [0, 1, 2].map(|phase| domain.halo(given(phase, 0), GIVEN[phase]));
        let [lap, flux, even] = phases;
        let even = [lap?, flux?, even?];
        // The last phase of every other iteration gives lines of the other field.
        let odd = domain.halo(given(2, 1), GIVEN[2])?;
        let on_stream = |turns| {
            machine.on_stream(turns, |turn| {
                for (phase, halos) in even.iter().enumerate() {
                    let args = Stencil { turns: turn, phase: phase as u64, ..domain.args };
                    machine.launch("dcuda_stencil_phase", args)?;
                    let halos = if phase == 2 && turn % 2 == 1 { &odd } else { halos };
                    machine.world.enqueue(&machine.stream, &halos.steps())?;
                }
                Ok(())
            })
        };
        let one = by_ranks(HaloForm::LastLevel);
        let all = by_ranks(HaloForm::EachLevel);
        let rows = by_ranks(HaloForm::AllLevels);
        let size = format!("{} × {height} × {}", sizes.columns, sizes.levels);
        let mut lines = forms(
            (machine, plan),
            ("stencil", &size),
            || domain.begin(),
            |form| domain.check(form, plan.check, serial),
            &[
                ("ranks, one notification a halo", &one),
                ("ranks, one notification a level", &all),
                ("ranks, one put of rows a halo", &rows),
                ("stream", &on_stream),
            ],
        )?;
        if let Some(gpus) = gpus {
            lines.extend(domain.beside_nvshmem(gpus, (plan, &size), serial)?);
        }
        Ok(lines)
    })
}
