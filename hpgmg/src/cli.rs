//! The command line of `hpgmg-fv`, and what it refuses before anything is allocated.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use gdsync::limits::{self, Room};
use mp_program::within;

use crate::decomposition;
use crate::error::ConfigError;
use crate::geometry::BoxGeometry;
use crate::options::{Bottom, Boundary, Config, Cycle, Equation, Operator, Smoother};
use crate::run::Effort;
use crate::setup;

/// Where the levels live.
///
/// See [`Launch`](crate::launch::Launch) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Device {
    /// A GPU if this build and this machine can use one and there is one rank, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// NVIDIA GPUs: the ranks of a host take them in turn.
    Cuda,
}

/// How ranks communicate.
///
/// See [`Launch`](crate::launch::Launch) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CommMode {
    /// On GPUs `kernel`. On CPUs under a launcher libmp, called by the CPU (MPI under mpirun and srun if this program was
    /// built with it); else threads of this process.
    Auto,
    /// MPI, called by the CPU; between GPUs from pinned memory of the CPU.
    Mpi,
    /// libmp, called by the CPU; between GPUs from pinned memory of the CPU.
    Host,
    /// libmp, messages and waits enqueued on a stream; between GPUs that reach each other's memory copies, signals and waits
    /// are launches.
    Stream,
    /// Kernels store into the other GPUs' memory, signal and wait by themselves; on CPUs tasks of a stream send and wait by
    /// libmp.
    Kernel,
}

/// HPGMG-FV, the finite-volume geometric multigrid benchmark.
///
/// Solves a variable-coefficient elliptic problem on the unit cube by full multigrid and reports degrees
/// of freedom solved per second at three grid sizes, the error, the observed order of accuracy, and
/// whether they are what they should be (exit code 0) or not (3).
#[derive(Clone, Debug, Parser)]
#[command(name = "hpgmg-fv", version)]
pub struct Cli {
    /// Base-2 logarithm of the cells per side of a box, 4 to 9.
    #[arg(value_name = "LOG2_BOX_DIM", value_parser = within(4..=9_u32))]
    pub log2_box_dim: u32,
    /// Boxes per rank to aim for; the domain gets the largest cube of boxes that this allows.
    #[arg(value_name = "BOXES_PER_RANK", value_parser = within(1..=usize::MAX))]
    pub boxes_per_rank: usize,
    /// Ranks to start in this process (1 by default; under a launcher it starts them).
    #[arg(long, value_parser = within(1..=65_536_usize))]
    pub ranks: Option<usize>,
    /// Threads per rank (by default the cores of this machine divided by its ranks).
    #[arg(long, value_parser = within(1..=4096_usize))]
    pub threads: Option<usize>,
    /// Where the levels live.
    #[arg(long, value_enum, default_value = "auto")]
    pub device: Device,
    /// How ranks communicate.
    #[arg(long, value_enum, default_value = "auto")]
    pub comm: CommMode,
    /// With several ranks: solve in these ways in turn (20 times each, or as --solves says), check that they find
    /// the same bits, and print times and gains over mpi, or else host.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODES", conflicts_with_all = ["comm", "json", "bandwidth", "seconds"])]
    pub compare: Vec<CommMode>,
    /// With several ranks on GPUs: capture a solve in a CUDA graph and replay it (one rank alone always does).
    #[arg(long)]
    pub graph: bool,
    /// With --comm kernel between GPUs: store straight into the neighbours' ghost cells; with `false` into receive buffers, which
    /// a launch of its own unpacks.
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub direct_halo: bool,
    /// With several ranks on GPUs: levels of at most so many cells a side are computed by every rank, without
    /// communication (by default 32, or 64 where that costs less; with --compare less if the finest level would not be
    /// distributed otherwise).
    #[arg(long, value_name = "CELLS")]
    pub whole: Option<usize>,
    /// With several ranks on GPUs: ranks along i, j and k, such as 2x2x2, and behind commas of the next coarser levels, such as
    /// 4x4x4,4x4x4,2x2x2; by default what a count of bytes, neighbours and launches says costs least (the report names it).
    #[arg(long, value_name = "IxJxK", value_delimiter = ',', value_parser = along)]
    pub along: Vec<[usize; 3]>,
    /// On GPUs: levels of fewer cells are computed by the CPU. 0, all on the GPU, is the fastest at every size (measured
    /// on an H200); 10000 is what the paper has.
    #[arg(long, value_name = "CELLS", default_value_t = 0)]
    pub gpu_threshold: u64,
    /// On GPUs: write the timeline of one solve, of each way with --compare, to a file that Perfetto and chrome://tracing
    /// show. That solve is launched piece by piece, not as a graph, and is not among those timed.
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,
    /// Discretisation.
    #[arg(long, value_enum, default_value = "fv4")]
    pub operator: Operator,
    /// Smoother.
    #[arg(long, value_enum, default_value = "gsrb")]
    pub smoother: Smoother,
    /// What one solve is.
    #[arg(long, value_enum, default_value = "f")]
    pub cycle: Cycle,
    /// Boundary condition.
    #[arg(long, value_enum, default_value = "dirichlet")]
    pub boundary: Boundary,
    /// Equation.
    #[arg(long, value_enum, default_value = "poisson")]
    pub equation: Equation,
    /// Solver of the coarsest level.
    #[arg(long, value_enum, default_value = "bicgstab")]
    pub bottom: Bottom,
    /// Time exactly this many solves of each size (by default as many as --seconds allows).
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = within(1..=1_000_000_000_usize))]
    pub solves: Option<usize>,
    /// Time solves of each size for about this many seconds (the reference's protocol is 60).
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = within(1e-6..=1e7_f64))]
    pub seconds: f64,
    /// Give up when a rank waits for another for longer than this, in seconds.
    #[arg(long, value_name = "S", default_value_t = 300.0, value_parser = within(1e-3..=1e7_f64))]
    pub timeout: f64,
    /// Measure this machine's memory bandwidth and give the solver's share of it.
    #[arg(long)]
    pub bandwidth: bool,
    /// Write everything to a file as JSON (by default no file is written).
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Cli {
    /// The configuration of the solver.
    ///
    /// ```
    /// use clap::Parser;
    /// use hpgmg::cli::Cli;
    ///
    /// let cli = Cli::parse_from(["hpgmg-fv", "5", "8", "--ranks", "4"]);
    /// assert_eq!(cli.config()?.box_dim, 32);
    /// # Ok::<(), hpgmg::error::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError::BoxDim`] when the box size is out of range.
    pub fn config(&self) -> Result<Config, ConfigError> {
        if !(4..=9).contains(&self.log2_box_dim) {
            return Err(ConfigError::BoxDim(self.log2_box_dim));
        }
        Ok(Config {
            operator: self.operator,
            smoother: self.smoother,
            cycle: self.cycle,
            boundary: self.boundary,
            equation: self.equation,
            bottom: self.bottom,
            box_dim: 1 << self.log2_box_dim,
            boxes_per_rank: self.boxes_per_rank,
        })
    }

    /// How many solves to time.
    pub fn effort(&self) -> Effort {
        self.solves.map_or(Effort::Seconds(self.seconds), Effort::Solves)
    }

    /// The deadline of a wait.
    pub fn limit(&self) -> Duration {
        Duration::from_secs_f64(self.timeout)
    }
}

/// Refuses a problem that does not fit into the memory of this machine, on which `local_ranks` of
/// `ranks` ranks run. `available` is in bytes.
///
/// # Errors
/// [`ConfigError`] for a problem that is too large or has no decomposition.
pub fn check_memory(
    config: &Config,
    ranks: usize,
    local_ranks: usize,
    available: u64,
) -> Result<(), ConfigError> {
    let target = config.boxes_per_rank.saturating_mul(ranks);
    let none = ConfigError::NoDecomposition { boxes_per_rank: config.boxes_per_rank, ranks };
    let m = decomposition::boxes_per_side(config.box_dim, target).ok_or(none)?;
    let refuse = |needed: u128| {
        let needed_mib = (needed >> 20).min(u64::MAX as u128) as u64;
        let dim = m.saturating_mul(config.box_dim);
        Err(ConfigError::Memory { dim, needed_mib, available_mib: available >> 20 })
    };
    let local = |boxes: u128| (boxes * local_ranks as u128).div_ceil(ranks as u128);
    // The finest level alone first: the lists of a hierarchy that is far too large would not fit either.
    let volume = BoxGeometry::new(config.box_dim, config.operator.radius()).volume as u128;
    let vectors = setup::vectors_of(config, false).len() as u128;
    let finest = local((m as u128).pow(3)) * volume * vectors * 8;
    if finest > available as u128 {
        return refuse(finest);
    }
    let shapes = decomposition::hierarchy(config, ranks)?;
    let needed = setup::memory(config, &shapes, |s| local(s.boxes() as u128) as usize);
    if needed > available {
        return refuse(needed as u128);
    }
    Ok(())
}

/// What `local` ranks of this host may take for their levels, in bytes; `here` of them are threads of this process, with
/// `threads` threads each. Messages and lists take a tenth of the levels.
pub fn available_memory(local: usize, here: usize, threads: usize) -> u64 {
    // A stack, and the heap that the allocator reserves for a thread; what a program takes besides.
    const THREAD: u64 = 2 << 20;
    const HEAP: u64 = 72 << 20;
    let besides = (here * threads) as u64 * THREAD + (here as u64 + 1) * HEAP;
    let own = |room: Room| {
        let process = u128::from(room.bytes.saturating_sub(besides));
        (process * local as u128 / here as u128).min(u128::from(u64::MAX)) as u64
    };
    let host = limits::host_room().map_or(u64::MAX, |room| room.bytes);
    limits::process_room().map_or(u64::MAX, own).min(host) / 11 * 10
}

/// Ranks along three axes.
fn along(text: &str) -> Result<[usize; 3], String> {
    let numbers: Option<Vec<usize>> =
        text.split('x').map(|number| number.parse().ok().filter(|&ranks| ranks > 0)).collect();
    numbers
        .and_then(|numbers| numbers.try_into().ok())
        .ok_or_else(|| "expected ranks along i, j and k, such as 2x2x2".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["hpgmg-fv"], args].concat())
    }

    #[test]
    fn the_defaults_are_the_benchmark() {
        let cli = parse(&["5", "8"]).unwrap();
        let expected = Config { boxes_per_rank: 8, ..Config::default() };
        assert_eq!(cli.config(), Ok(expected));
    }

    #[test]
    fn a_box_size_out_of_range_is_refused_with_its_range() {
        for log2 in ["3", "10", "4000000"] {
            let error = parse(&[log2, "8"]).unwrap_err().to_string();
            assert!(error.contains(log2) && error.contains("from 4 to 9"), "{error}");
        }
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let error = parse(&["5", "8", "--smoother", "sor"]).unwrap_err().to_string();
        assert!(error.contains("sor") && error.contains("l1-jacobi"), "{error}");
        let error = parse(&["5", "8", "--operator", "fv6"]).unwrap_err().to_string();
        assert!(error.contains("fv6") && error.contains("27pt"), "{error}");
    }

    #[test]
    fn a_problem_larger_than_memory_is_refused_before_it_is_laid_out() {
        let config = Config { box_dim: 512, boxes_per_rank: usize::MAX, ..Config::default() };
        let error = check_memory(&config, 7, 7, 16 << 30).unwrap_err().to_string();
        assert!(error.contains("16384 MiB are available"), "{error}");
        let one = Config { box_dim: 128, ..Config::default() };
        assert_eq!(check_memory(&one, 1, 1, 1 << 30), Ok(()));
        assert!(check_memory(&one, 1, 1, 100 << 20).is_err());
    }

    #[test]
    fn zero_boxes_have_no_decomposition_and_periodic_boxes_must_wrap() {
        let config = Config { boxes_per_rank: 0, ..Config::default() };
        let error = check_memory(&config, 4, 4, 1 << 40).unwrap_err();
        assert_eq!(error, ConfigError::NoDecomposition { boxes_per_rank: 0, ranks: 4 });
        let config =
            Config { boundary: Boundary::Periodic, boxes_per_rank: 27, ..Config::default() };
        let error = check_memory(&config, 1, 1, 1 << 40).unwrap_err().to_string();
        assert!(error.contains("27 boxes and 96 cells"), "{error}");
    }

    #[test]
    fn solves_are_counted_or_timed() {
        let effort = |args: &[&str]| parse(&[&["5", "8"], args].concat()).map(|cli| cli.effort());
        assert_eq!(effort(&["--solves", "3"]).unwrap(), Effort::Solves(3));
        assert_eq!(effort(&["--seconds", "0.5"]).unwrap(), Effort::Seconds(0.5));
        for absurd in ["--solves=0", "--seconds=0", "--threads=99999999999", "--ranks=0"] {
            assert!(effort(&[absurd]).is_err(), "{absurd}");
        }
    }

    #[test]
    fn no_option_takes_what_nobody_means() {
        use clap::CommandFactory;
        let (accepted, tried) = mp_program::absurd::accepted(&Cli::command());
        assert!(accepted.is_empty() && tried > 100, "{tried} tried, accepted: {accepted:#?}");
    }
}
