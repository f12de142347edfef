//! The particle program: by ranks with notified puts of the particles that there are, and on streams with messages of whole cells, because the
//! host does not know how full they are.

use anyhow::{Result, ensure};
use dranks::{Options, Ranks};
use libmp::{Region, Step};

use crate::halo::Halo;
use crate::kernels::Particles;
use crate::machine::{Machine, Plan, address, on_devices, same};
use crate::table::{Line, forms};

/// How many.
#[derive(Debug, Clone, clap::Args)]
pub struct Sizes {
    /// Cells of a rank.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1 << 16))]
    cells: u64,
    /// Particles of a cell at the beginning; there is room for four times as many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1 << 16))]
    particles: u64,
    /// How far particles push each other away, in widths of a cell.
    #[arg(long, default_value_t = 0.05, value_parser = mp_program::within(1e-6..=1.0_f64))]
    cutoff: f64,
}

/// Place and speed.
#[derive(Debug, Clone, Copy)]
struct Particle {
    x: f64,
    y: f64,
    speed_x: f64,
    speed_y: f64,
}

const STEP: f64 = 0.01;

/// At the beginning.
fn start(cell: u64, number: u64) -> Particle {
    let random = |which: u64| {
        let mut word = (cell * 1_000_003 + number * 17 + which).wrapping_add(1);
        for _ in 0..3 {
            word = (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        }
        (word >> 11) as f64 / (1_u64 << 53) as f64
    };
    Particle {
        x: cell as f64 + random(0),
        y: random(1),
        speed_x: 8.0 * random(2) - 4.0,
        speed_y: 8.0 * random(3) - 4.0,
    }
}

/// A device's part; where things are is said in `cuda/particles.cuh`.
struct Tank<'a> {
    machine: &'a Machine,
    sizes: &'a Sizes,
    memory: Region<u64>,
    args: Particles,
}

impl Tank<'_> {
    fn new<'a>(machine: &'a Machine, sizes: &'a Sizes) -> Result<Tank<'a>> {
        let (ranks, room) = (u64::from(machine.ranks), 4 * sizes.particles);
        let slots = ranks * sizes.cells + 2;
        let set = slots * (1 + 4 * room);
        let memory = machine.memory(1 + 2 * set + 2 * slots * (1 + 4 * room) + slots * 5 * room)?;
        let args = Particles {
            memory: address(&memory)?,
            cells: sizes.cells,
            room,
            ranks,
            devices: machine.world.size() as u64,
            device: machine.number() as u64,
            cutoff: sizes.cutoff,
            step: STEP,
            ..Particles::default()
        };
        Ok(Tank { machine, sizes, memory, args })
    }

    /// Cells of this device, with the two beyond its edges.
    fn slots(&self) -> u64 {
        self.args.ranks * self.args.cells + 2
    }

    fn counts(&self, set: u64) -> u64 {
        1 + set * self.slots() * (1 + 4 * self.args.room)
    }

    /// The first of a cell's `part`: 0 and 1 its places, 2 and 3 its speeds.
    fn values(&self, set: u64, part: u64, cell: u64) -> u64 {
        self.counts(set) + self.slots() + (part * self.slots() + cell) * self.args.room
    }

    fn leaving(&self, way: u64, cell: u64) -> u64 {
        self.counts(2) + (way * self.slots() + cell) * (1 + 4 * self.args.room)
    }

    fn begin(&self) -> Result<()> {
        let mut words = vec![0; self.memory.len()];
        for cell in 1..self.slots() - 1 {
            words[(self.counts(0) + cell) as usize] = self.sizes.particles;
            for number in 0..self.sizes.particles {
                let Particle { x, y, speed_x, speed_y } =
                    start(self.args.device * (self.slots() - 2) + cell - 1, number);
                for (part, value) in (0..).zip([x, y, speed_x, speed_y]) {
                    words[(self.values(0, part, cell) + number) as usize] = value.to_bits();
                }
            }
        }
        self.memory.write(&words)?;
        Ok(self.machine.world.barrier()?)
    }

    fn check(&self, form: &str, turns: u64, alone: &[Vec<Particle>]) -> Result<()> {
        let words = self.memory.to_vec()?;
        let first = (self.args.device * (self.slots() - 2)) as usize;
        for cell in 1..self.slots() - 1 {
            let alone = &alone[first + cell as usize - 1];
            let set = turns % 2;
            let count = words[(self.counts(set) + cell) as usize];
            let what = format!("{form}: cell {}", first as u64 + cell - 1);
            ensure!(
                count == alone.len() as u64,
                "{what} has {count} particles and not {}",
                alone.len()
            );
            let fields: [fn(&Particle) -> f64; 4] =
                [|p| p.x, |p| p.y, |p| p.speed_x, |p| p.speed_y];
            for (part, field) in (0..).zip(fields) {
                let from = self.values(set, part, cell) as usize;
                same(&what, &words[from..from + count as usize], alone.iter().map(field))?;
            }
        }
        Ok(())
    }

    /// Every cell had room for its particles.
    fn all_fit(&self) -> Result<()> {
        let lost = self.memory.slice(0..1)?.to_vec()?[0];
        ensure!(
            lost == 0,
            "{lost} particles found no room in their cell, which has {}",
            self.args.room
        );
        Ok(())
    }

    fn ranks(&self) -> Result<Ranks> {
        let ranks = self.machine.open(&self.memory, &Options::new(self.machine.ranks))?;
        let open = |first: u64, words: u64| {
            // From the cell before a rank's own to the one behind.
            let share = |rank: u64| {
                let from = first + rank * self.args.cells * words;
                8 * from..8 * (from + (self.args.cells + 2) * words)
            };
            ranks.window(&(0..self.args.ranks).map(share).collect::<Vec<_>>())
        };
        for set in [0, 1] {
            open(self.counts(set), 1)?;
            open(self.values(set, 0, 0), self.args.room)?;
            open(self.values(set, 1, 0), self.args.room)?;
        }
        for way in [0, 1] {
            open(self.leaving(way, 0), 1 + 4 * self.args.room)?;
        }
        Ok(ranks)
    }

    /// The edge cells of a set, with the devices before and behind.
    fn edges(&self, set: u64) -> Result<Halo> {
        let room = self.args.room;
        let cell = |cell: u64| {
            vec![
                (self.counts(set) + cell, 1),
                (self.values(set, 0, cell), room),
                (self.values(set, 1, cell), room),
            ]
        };
        let last = self.slots() - 2;
        Halo::new(
            self.machine,
            &self.memory,
            (set, false),
            Some((cell(1), cell(last + 1))),
            Some((cell(last), cell(0))),
        )
    }

    /// Who leaves the device.
    fn leavers(&self) -> Result<Halo> {
        let list = |way: u64, cell: u64| vec![(self.leaving(way, cell), 1 + 4 * self.args.room)];
        let last = self.slots() - 2;
        let (down, up) = ((list(0, 1), list(0, last + 1)), (list(1, last), list(1, 0)));
        Halo::new(self.machine, &self.memory, (2, false), Some(down), Some(up))
    }
}

/// All cells by one thread.
fn alone(sizes: &Sizes, cells: u64, turns: u64) -> Vec<Vec<Particle>> {
    let mut all: Vec<Vec<Particle>> = (0..cells)
        .map(|cell| (0..sizes.particles).map(|number| start(cell, number)).collect())
        .collect();
    let limit = sizes.cutoff * sizes.cutoff;
    for _ in 0..turns {
        // Who goes to the cell before, to the one behind, and who stays.
        let mut goes = vec![[const { Vec::new() }; 3]; all.len()];
        for (cell, here) in all.iter().enumerate() {
            let near = &all[cell.saturating_sub(1)..(cell + 2).min(all.len())];
            for particle in here {
                let (mut force_x, mut force_y) = (0.0, 0.0);
                for other in near.iter().flatten() {
                    let (along, across) = (particle.x - other.x, particle.y - other.y);
                    let square = along * along + across * across;
                    if square < limit && square != 0.0 {
                        let push = 1.0 / square - 1.0 / limit;
                        force_x += push * along;
                        force_y += push * across;
                    }
                }
                let mut moved = *particle;
                moved.speed_x = (moved.speed_x + STEP * force_x).clamp(-50.0, 50.0);
                moved.speed_y = (moved.speed_y + STEP * force_y).clamp(-50.0, 50.0);
                moved.x += STEP * moved.speed_x;
                moved.y += STEP * moved.speed_y;
                reflect(&mut moved.x, &mut moved.speed_x, cells as f64);
                reflect(&mut moved.y, &mut moved.speed_y, 1.0);
                let way = match moved.x {
                    x if x < cell as f64 => 0,
                    x if x >= (cell + 1) as f64 => 1,
                    _ => 2,
                };
                goes[cell][way].push(moved);
            }
        }
        for (cell, here) in all.iter_mut().enumerate() {
            here.clone_from(&goes[cell][2]);
            if cell > 0 {
                here.extend(&goes[cell - 1][1]);
            }
            if cell + 1 < goes.len() {
                here.extend(&goes[cell + 1][0]);
            }
        }
    }
    all
}

fn reflect(place: &mut f64, speed: &mut f64, end: f64) {
    if *place < 0.0 {
        (*place, *speed) = (-*place, -*speed);
    }
    if *place >= end {
        (*place, *speed) = (end - (*place - end) - 1e-9, -*speed);
    }
}

/// Checks and measures both forms.
///
/// # Errors
/// A result that is not that of the serial run; particles for which there is no room; what fails.
pub fn run(plan: &Plan, sizes: &Sizes) -> Result<Vec<Line>> {
    let serial = std::sync::OnceLock::new();
    on_devices(plan, |machine| {
        let tank = Tank::new(machine, sizes)?;
        let cells = tank.args.devices * (tank.slots() - 2);
        let serial = serial.get_or_init(|| alone(sizes, cells, plan.check));
        let ranks = tank.ranks()?;
        let by_ranks = |turns| {
            machine.run(&ranks, "dcuda_particles", Particles { turns, ..tank.args })?;
            tank.all_fit()
        };
        let (edges, leavers) = ([tank.edges(0)?, tank.edges(1)?], tank.leavers()?);
        let on_stream = |turns| {
            machine.on_stream(turns, |turn| {
                let stage = |stage| {
                    let args = Particles { turns: turn, stage, ..tank.args };
                    machine.launch("dcuda_particles_stage", args)
                };
                let exchange =
                    |steps: Vec<Step<'_>>| machine.world.enqueue(&machine.stream, &steps);
                exchange(edges[turn as usize % 2].steps())?;
                stage(0)?;
                exchange(leavers.steps())?;
                stage(1)
            })?;
            tank.all_fit()
        };
        let size = format!("{cells} cells, {} particles", cells * sizes.particles);
        forms(
            (machine, plan),
            ("particles", &size),
            || tank.begin(),
            |form| tank.check(form, plan.check, serial),
            &[("ranks", &by_ranks), ("stream", &on_stream)],
        )
    })
}
