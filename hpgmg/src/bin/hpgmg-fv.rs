//! The HPGMG-FV benchmark on the command line: one solver per rank, one report.

use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Parser;
use gdsync::CudaDevice;
use hpgmg::bandwidth;
use hpgmg::cli::{self, Cli, CommMode, Device};
use hpgmg::comm::{self, Comm, CommError};
use hpgmg::compare::{Comparison, Contender, Contestant, compare};
use hpgmg::cpu::Cpu;
use hpgmg::cuda::{self, Cut, Gpu, Mode, Team};
use hpgmg::enqueued::{Enqueued, Form};
use hpgmg::error::{ConfigError, Error};
use hpgmg::known;
use hpgmg::launch::{self, Launch};
use hpgmg::options::Config;
use hpgmg::report::{Facts, Report};
use hpgmg::run::{self, Effort, Outcome};
use indicatif::{ProgressBar, ProgressStyle};
#[cfg(feature = "mpi")]
use mp_program::sentence;

/// Exit code of a run whose results are not what they should be.
const WRONG: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match start(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(WRONG),
        Err(error) => mp_program::fail("hpgmg-fv", error.as_ref()),
    }
}

/// Runs this process's ranks; true if their results are what they should be.
fn start(cli: &Cli) -> anyhow::Result<bool> {
    // Also where no world is started: a size that is no number would make every process believe to be alone.
    libmp::Config::from_env()?.check()?;
    let launcher = launch::launcher(|name| std::env::var(name).ok());
    let config = cli.config()?;
    let (effort, limit) = (cli.effort(), cli.limit());
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    match launch::decide(cli, launcher.as_ref())? {
        Launch::Threads { ranks } => {
            check_files(cli)?;
            let threads = cli.threads.unwrap_or((cores / ranks).max(1));
            let available = cli::available_memory(ranks, ranks, threads);
            check_memory(cli, &config, ranks, ranks, available)?;
            let report = launch::on_threads(ranks, limit, |comm| {
                one_rank(cli, &config, effort, comm, threads)
            })?;
            finish(cli, report)
        }
        Launch::Libmp => {
            let world = libmp::World::init()?;
            let (rank, local) = (world.rank(), world.local_size());
            if rank == 0 {
                check_files(cli)?;
            }
            let threads = cli.threads.unwrap_or((cores / local).max(1));
            let available = cli::available_memory(local, 1, threads);
            // Nobody takes any before all have looked.
            world.barrier()?;
            check_memory(cli, &config, world.size(), local, available)?;
            let report = comm::libmp::run(vec![world], limit, |comm| {
                one_rank(cli, &config, effort, comm, threads)
            })
            .with_context(|| format!("rank {rank}"))?;
            finish(cli, report)
        }
        #[cfg(feature = "mpi")]
        Launch::Mpi { local_size } => {
            let comm = hpgmg::comm::mpi::MpiComm::init(limit)
                .ok_or_else(|| anyhow!("MPI has been initialised before"))?;
            let local = local_size.unwrap_or(comm.size()).clamp(1, comm.size());
            let threads = cli.threads.unwrap_or((cores / local).max(1));
            let run = || -> anyhow::Result<Option<Answer>> {
                if comm.rank() == 0 {
                    check_files(cli)?;
                }
                let available = cli::available_memory(local, 1, threads);
                let all: Vec<usize> = (0..comm.size()).collect();
                if let Some(mut all) = comm.group(&all)? {
                    // Nobody takes any before all have looked.
                    all.max(&mut [0.0])?;
                }
                check_memory(cli, &config, comm.size(), local, available)?;
                Ok(one_rank(cli, &config, effort, &comm, threads)?)
            };
            // An error ends the whole job: the others would wait for this rank.
            match run() {
                Ok(report) => finish(cli, report),
                Err(error) => {
                    mp_program::errln!(
                        "hpgmg-fv: rank {}: {}",
                        comm.rank(),
                        sentence(error.as_ref())
                    );
                    comm.abort();
                }
            }
        }
        #[cfg(not(feature = "mpi"))]
        Launch::Mpi { .. } => Err(anyhow!("built without the cargo feature `mpi`")),
    }
}

/// Whether rank 0 will be able to write what is asked for.
fn check_files(cli: &Cli) -> anyhow::Result<()> {
    Ok(cli
        .json
        .iter()
        .chain(&cli.timeline)
        .try_for_each(|path| mp_program::can_be_written(path))?)
}

/// Refuses what `local` of the ranks cannot hold in `available` bytes of this machine.
fn check_memory(
    cli: &Cli,
    config: &Config,
    ranks: usize,
    local: usize,
    available: u64,
) -> anyhow::Result<()> {
    if cli.device == Device::Cuda && ranks > 1 {
        let cut = cut(cli, config, ranks, local)?;
        return Ok(cuda::check_memory(config, ranks, cut, available / local as u64)?);
    }
    // Ways that are compared have a solver each.
    let solvers = cli.compare.len().max(1) as u64;
    Ok(cli::check_memory(config, ranks, local, available / solvers)?)
}

/// One rank's run; the report on rank 0.
fn one_rank(
    cli: &Cli,
    config: &Config,
    effort: Effort,
    comm: &dyn Comm,
    threads: usize,
) -> Result<Option<Answer>, Error> {
    let bar = if comm.rank() == 0 { progress_bar() } else { ProgressBar::hidden() };
    bar.set_message("setting up");
    bar.tick();
    let gpu = gpu_of(cli, comm)?;
    if let Some(device) = gpu {
        return on_gpu(cli, config, effort, comm, device, threads, &bar);
    }
    on_cpu(cli, config, effort, comm, threads, &bar)
}

/// One rank's run on the CPU.
fn on_cpu(
    cli: &Cli,
    config: &Config,
    effort: Effort,
    comm: &dyn Comm,
    threads: usize,
    bar: &ProgressBar,
) -> Result<Option<Answer>, Error> {
    let limit = cli.limit();
    if !cli.compare.is_empty() {
        let mpi = Messages::open(cli, comm)?;
        let mut solvers = Vec::new();
        for &way in &cli.compare {
            let solver: Box<dyn Contender> = match form(way) {
                Some(form) => Box::new(Enqueued::new(config.clone(), comm, threads, form, limit)?),
                None => {
                    let comm = if way == CommMode::Mpi { mpi.of(comm) } else { comm };
                    Box::new(Cpu::new(config.clone(), comm, threads)?)
                }
            };
            solvers.push(solver);
        }
        let mut contestants: Vec<Contestant<'_>> = cli
            .compare
            .iter()
            .zip(&mut solvers)
            .map(|(&way, solver)| Contestant { name: known::name(way), solver: solver.as_mut() })
            .collect();
        let comparison = compare(&mut contestants, cli.solves.unwrap_or(20))?;
        bar.finish_and_clear();
        return Ok((comm.rank() == 0).then_some(Answer::Comparison(comparison)));
    }
    let report = |name, cpu: &Cpu, outcome: &Outcome| {
        bar.finish_and_clear();
        if comm.rank() != 0 {
            return None;
        }
        let verdict = known::judge(config, outcome);
        let triad = if cli.bandwidth { bandwidth::triad(threads * comm.size()) } else { None };
        let facts = Facts {
            ranks: comm.size(),
            comm: name,
            triad,
            gpu: None,
            first_on_cpu: 0,
            distribution: None,
        };
        Some(Answer::Report(Box::new(Report::new(cpu, outcome, &verdict, &facts))))
    };
    if let Some(form) = form(cli.comm) {
        let mut solver = Enqueued::new(config.clone(), comm, threads, form, limit)?;
        let outcome = run::run(&mut solver, effort, shown_by(bar))?;
        let name = if form == Form::Stream { "libmp, stream" } else { "libmp, kernel" };
        return Ok(solver.with(|cpu| report(name, cpu, &outcome))?);
    }
    let mut cpu = Cpu::new(config.clone(), comm, threads)?;
    let outcome = run::run(&mut cpu, effort, shown_by(bar))?;
    Ok(report(comm.name(), &cpu, &outcome))
}

/// The ways between CPUs whose calling thread only enqueues.
fn form(way: CommMode) -> Option<Form> {
    match way {
        CommMode::Stream => Some(Form::Stream),
        CommMode::Kernel => Some(Form::Kernel),
        CommMode::Auto | CommMode::Host | CommMode::Mpi => None,
    }
}

/// One rank's run on its GPU.
fn on_gpu(
    cli: &Cli,
    config: &Config,
    effort: Effort,
    comm: &dyn Comm,
    device: CudaDevice,
    threads: usize,
    bar: &ProgressBar,
) -> Result<Option<Answer>, Error> {
    let ranks = comm.size();
    if ranks > 1 && comm.rank() == 0 {
        let most = cuda::sharing(comm, &device)?;
        if most > 1 {
            bar.suspend(|| {
                mp_program::errln!(
                    "hpgmg-fv: {ranks} ranks, up to {most} on one GPU: times say little"
                )
            });
        }
    } else if ranks > 1 {
        cuda::sharing(comm, &device)?;
    }
    let cut = cut(cli, config, ranks, cuda::on_a_host(comm)?)?;
    let cpu = cuda::set_up(config, comm, cut, threads)?;
    let mpi = Messages::open(cli, comm)?;
    let limit = cli.limit();
    if !cli.compare.is_empty() {
        let mut gpus = Vec::new();
        for &way in &cli.compare {
            let team = team(cli, way, comm, &mpi);
            let gpu = Gpu::new(cpu.clone(), device.clone(), Some(&team), cut, limit)?;
            gpus.push((known::name(way), gpu));
        }
        let mut contestants: Vec<Contestant<'_>> = gpus
            .iter_mut()
            .map(|(name, gpu)| Contestant { name: name.clone(), solver: gpu })
            .collect();
        let comparison = compare(&mut contestants, cli.solves.unwrap_or(20))?;
        bar.finish_and_clear();
        write_timeline(cli, comm, gpus.iter_mut().map(|(name, gpu)| (&name[..], gpu)))?;
        return Ok((comm.rank() == 0).then_some(Answer::Comparison(comparison)));
    }
    let alone = ranks == 1;
    let team = team(cli, cli.comm, comm, &mpi);
    let mut gpu = Gpu::new(cpu, device, (!alone).then_some(&team), cut, limit)?;
    let outcome = run::run(&mut gpu, effort, shown_by(bar))?;
    bar.finish_and_clear();
    write_timeline(cli, comm, [("solve", &mut gpu)])?;
    let triad = if cli.bandwidth { Some(gpu.copy_bandwidth()?) } else { None };
    if comm.rank() != 0 {
        return Ok(None);
    }
    let on = (gpu.name().to_owned(), gpu.bytes_per_solve());
    let name = match (alone, cli.comm) {
        (true, _) => comm.name(),
        (_, CommMode::Mpi) => "mpi, from pinned memory",
        (_, CommMode::Host) => "libmp, from pinned memory",
        (_, CommMode::Stream) => "libmp, stream",
        (_, CommMode::Auto | CommMode::Kernel) => "libmp, kernel",
    };
    let facts = Facts {
        ranks,
        comm: name,
        triad,
        gpu: Some(on),
        first_on_cpu: gpu.first_on_cpu(),
        distribution: gpu.distribution(),
    };
    let verdict = known::judge(config, &outcome);
    Ok(Some(Answer::Report(Box::new(Report::new(&gpu.cpu(), &outcome, &verdict, &facts)))))
}

/// Solves once more with each and writes when what happened, if that is asked for.
fn write_timeline<'a>(
    cli: &Cli,
    comm: &dyn Comm,
    solvers: impl IntoIterator<Item = (&'a str, &'a mut Gpu)>,
) -> Result<(), Error> {
    let Some(path) = &cli.timeline else { return Ok(()) };
    let trace = cuda::timeline(comm);
    for (label, gpu) in solvers {
        gpu.solve_traced(&trace, label)?;
    }
    let parts = cuda::gather(comm, &trace)?;
    if comm.rank() == 0 {
        libmp::trace::write(path, &parts).map_err(CommError::from)?;
    }
    Ok(())
}

/// Which levels the ranks on GPUs share, `host` of them on a host.
fn cut<'a>(
    cli: &'a Cli,
    config: &Config,
    ranks: usize,
    host: usize,
) -> Result<Cut<'a>, ConfigError> {
    let most = match cli.compare.is_empty() {
        true => usize::MAX,
        // What is compared is communication: the finest level at least is cut.
        false => cuda::finest(config, ranks)? / 2,
    };
    let whole = cli.whole.map_or(cuda::WHOLE.map(|cells| cells.min(most)), |cells| [cells; 2]);
    Ok(Cut { whole, threshold: cli.gpu_threshold, along: &cli.along, host })
}

/// The ranks on their GPUs, communicating in one way.
fn team<'a>(cli: &Cli, way: CommMode, comm: &'a dyn Comm, mpi: &'a Messages) -> Team<'a> {
    let mode = match way {
        CommMode::Auto | CommMode::Kernel => Mode::Kernel,
        CommMode::Stream => Mode::Stream,
        CommMode::Host | CommMode::Mpi => Mode::Staged,
    };
    let messages = if way == CommMode::Mpi { mpi.of(comm) } else { comm };
    Team { comm, messages, mode, direct_halo: cli.direct_halo, graph: cli.graph }
}

/// MPI beside libmp, where it is asked for: the ranks are the same.
struct Messages {
    #[cfg(feature = "mpi")]
    mpi: Option<hpgmg::comm::mpi::MpiComm>,
}

#[cfg(feature = "mpi")]
impl Messages {
    fn open(cli: &Cli, comm: &dyn Comm) -> Result<Self, Error> {
        let wanted = cli.comm == CommMode::Mpi || cli.compare.contains(&CommMode::Mpi);
        if !wanted || comm.size() == 1 {
            return Ok(Self { mpi: None });
        }
        let failed = |code| CommError::Library { call: "MPI_Init", rank: comm.rank(), code };
        let mpi = hpgmg::comm::mpi::MpiComm::init(cli.limit()).ok_or(failed(0))?;
        if (mpi.rank(), mpi.size()) != (comm.rank(), comm.size()) {
            return Err(CommError::OtherRanks {
                rank: [comm.rank(), mpi.rank()],
                size: [comm.size(), mpi.size()],
            }
            .into());
        }
        Ok(Self { mpi: Some(mpi) })
    }

    fn of<'a>(&'a self, comm: &'a dyn Comm) -> &'a dyn Comm {
        self.mpi.as_ref().map_or(comm, |mpi| mpi)
    }
}

#[cfg(not(feature = "mpi"))]
impl Messages {
    /// Without MPI nobody gets as far as to need it.
    fn open(_: &Cli, _: &dyn Comm) -> Result<Self, Error> {
        Ok(Self {})
    }

    fn of<'a>(&'a self, comm: &'a dyn Comm) -> &'a dyn Comm {
        comm
    }
}

/// What rank 0 has to say.
enum Answer {
    Report(Box<Report>),
    Comparison(Comparison),
}

/// What [`run::run`] tells of its progress.
fn shown_by(bar: &ProgressBar) -> impl FnMut(usize, usize, usize) {
    move |dim, done, of| {
        if done == 0 {
            bar.set_message(format!("{dim}³"));
            bar.set_length(of as u64);
        }
        bar.set_position(done as u64);
    }
}

/// The GPU to solve on, if it is to be one. With `--device auto` whatever speaks against it means the CPU.
fn gpu_of(cli: &Cli, comm: &dyn Comm) -> Result<Option<CudaDevice>, Error> {
    let open = || cuda::open_for(comm);
    match cli.device {
        Device::Cpu => Ok(None),
        Device::Cuda => Ok(Some(open()?)),
        Device::Auto => Ok(if comm.size() == 1 { open().ok() } else { None }),
    }
}

fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{msg:>12} {wide_bar} {pos}/{len} solves {eta}")
    {
        bar.set_style(style);
    }
    bar
}

/// Prints and writes the report, where this process has one.
fn finish(cli: &Cli, answer: Option<Answer>) -> anyhow::Result<bool> {
    let report = match answer {
        None => return Ok(true),
        Some(Answer::Comparison(comparison)) => {
            mp_program::print(&comparison.text());
            return Ok(comparison.passes());
        }
        Some(Answer::Report(report)) => report,
    };
    if let Some(path) = &cli.json {
        mp_program::write(path, serde_json::to_string_pretty(&report)? + "\n")?;
    }
    mp_program::print(&report.text());
    Ok(report.passes())
}
