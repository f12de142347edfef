//! What tests solve on a GPU, or with the same kernels on the host, and compare.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gdsync::CudaDevice;

use super::machine::Machine;
use super::{Cut, Gpu, Mode, Team};
use crate::backend::{Backend, Vector};
use crate::comm::Alone;
use crate::cpu::Cpu;
use crate::cycle::{Solved, solve};
use crate::error::Error;
use crate::options::Config;
use crate::run::Solver;

pub const LIMIT: Duration = Duration::from_secs(60);

/// Ranks that share a GPU do not wait for each other for long.
pub const SHORT: Duration = Duration::from_secs(15);

/// What solves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The first GPU.
    Gpu,
    /// The kernels as the host compiler makes them.
    Host,
}

impl Place {
    /// For tests whose ranks on one GPU are as many as its channels for streams are by default: waiting kernels would hold them all.
    pub fn with_channels(self) {
        let channels = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").unwrap_or_default();
        let enough = self != Self::Gpu || channels.parse().unwrap_or(8) > 8;
        assert!(enough, "to be run with CUDA_DEVICE_MAX_CONNECTIONS=32");
    }

    pub fn machine(self) -> Machine {
        match self {
            Self::Gpu => {
                // It stays open to the end of the process: to open one takes a second or two.
                static OPEN: OnceLock<CudaDevice> = OnceLock::new();
                Machine::gpu(OPEN.get_or_init(|| super::open().unwrap()).clone())
            }
            Self::Host => Machine::host(),
        }
    }

    /// For as long as a test solves on a GPU: tests of one process take turns there, for streams of many ranks share the queues of
    /// the GPU, and one that waits holds up the others of its queue.
    pub fn turn(self) -> Option<MutexGuard<'static, ()>> {
        static TURN: Mutex<()> = Mutex::new(());
        (self == Self::Gpu).then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a solve of 16³ takes milliseconds, and not most of a second.
    pub fn is_fast(self) -> bool {
        self == Self::Gpu
    }

    /// Waits last no longer.
    fn limit(self) -> Duration {
        match self {
            Self::Gpu => SHORT,
            Self::Host => 4 * LIMIT,
        }
    }

    /// One rank that has all of a problem.
    pub fn alone(self, config: &Config) -> Gpu {
        Gpu::on(shared(config), self.machine(), None, Cut::default(), 4 * LIMIT).unwrap()
    }

    /// Solves here and on the CPU and returns the largest difference of the solutions over the largest value.
    pub fn difference(self, config: &Config) -> f64 {
        let (mut cpu, mut gpu) = (cpu(config), self.alone(config));
        let (mut expected, mut found) = (Solved::empty(), Solved::empty());
        solve(&mut cpu, 0, config.cycle, &mut expected).unwrap();
        gpu.zero_solution(0).unwrap();
        gpu.solve(0, &mut found).unwrap();
        assert_eq!(found.fmax, expected.fmax);
        assert_eq!(found.cycles.len(), expected.cycles.len());
        let u = gpu.download(0, Vector::U).unwrap();
        let level = cpu.level(0);
        let g = level.geometry;
        let mut worst: f64 = 0.0;
        for index in 0..level.boxes.len() {
            for row in 0..g.n * g.n {
                let at = index * g.volume + g.row(row % g.n, row / g.n);
                let expected = &level.field(Vector::U)[at..at + g.n];
                for (found, expected) in u[at..at + g.n].iter().zip(expected) {
                    worst = worst.max((found - expected).abs());
                }
            }
        }
        worst / cpu.norm(0, Vector::U).unwrap()
    }

    /// The solution, residuals and norms that `ranks` ranks find together, each bit.
    pub fn together(self, config: &Config, ranks: usize, way: Way) -> Found {
        self.in_worlds(libmp::World::threads(ranks).unwrap(), config, way).unwrap()
    }

    /// What `work` finds on each of the ranks that `worlds` are, in any order. `on` is asked on the thread of each what it works on, before
    /// it is set up.
    pub fn each<T: Send>(
        self,
        worlds: Vec<libmp::World>,
        config: &Config,
        way: Way,
        on: impl Fn(Machine) -> Machine + Sync,
        work: impl Fn(&mut Gpu) -> T + Sync,
    ) -> Result<Vec<T>, Error> {
        let Way { mode, whole, along, graph, direct_halo, threshold } = way;
        let all = Mutex::new(Vec::new());
        crate::comm::libmp::run(worlds, self.limit(), |comm| {
            let machine = on(self.machine());
            let team = Team { comm, messages: comm, mode, direct_halo, graph };
            let cut = Cut { whole: [whole; 2], threshold, along, ..Cut::default() };
            let planes = super::set_up_all(config.clone(), comm, cut, 2)?;
            let mut gpu = Gpu::on(planes, machine, Some(&team), cut, self.limit())?;
            let found = work(&mut gpu);
            all.lock().unwrap().push(found);
            Ok(())
        })?;
        Ok(all.into_inner().unwrap())
    }

    /// The same of the ranks that `worlds` are.
    pub fn in_worlds(
        self,
        worlds: Vec<libmp::World>,
        config: &Config,
        way: Way,
    ) -> Result<Found, Error> {
        let mut all = self.each(worlds, config, way, |machine| machine, found)?;
        let mut first = all.pop().unwrap();
        for other in all {
            assert_eq!(other.numbers, first.numbers, "the ranks agree");
            for (sum, part) in first.u.iter_mut().zip(other.u) {
                *sum += part;
            }
        }
        Ok(first)
    }
}

/// How ranks solve.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub mode: Mode,
    pub whole: usize,
    pub along: &'static [[usize; 3]],
    pub graph: bool,
    pub direct_halo: bool,
    /// Levels of fewer cells are the CPU's.
    pub threshold: u64,
}

impl Way {
    pub fn new(mode: Mode, whole: usize, graph: bool) -> Self {
        Self { mode, whole, along: &[], graph, direct_halo: true, threshold: 0 }
    }
}

#[derive(Debug, PartialEq)]
pub struct Found {
    pub numbers: Vec<u64>,
    pub u: Vec<f64>,
}

/// Two solves from zero and what the report needs of them.
pub fn found(gpu: &mut Gpu) -> Found {
    let mut solved = Solved::empty();
    for _ in 0..2 {
        gpu.zero_solution(0).unwrap();
        gpu.solve(0, &mut solved).unwrap();
    }
    let mut numbers = vec![solved.fmax.to_bits()];
    numbers.extend(solved.cycles.iter().map(|cycle| cycle.residual.to_bits()));
    let u = gpu.download(0, Vector::U).unwrap();
    gpu.zero_solution(1).unwrap();
    gpu.solve(1, &mut solved).unwrap();
    numbers.push(gpu.largest(1).unwrap().to_bits());
    numbers.push(gpu.difference(0).unwrap().to_bits());
    Found { numbers, u }
}

pub fn cpu(config: &Config) -> Cpu {
    Cpu::new(config.clone(), &Alone, 2).unwrap()
}

pub fn shared(config: &Config) -> Rc<RefCell<Cpu>> {
    Rc::new(RefCell::new(cpu(config)))
}
