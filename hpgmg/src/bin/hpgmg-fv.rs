//! The HPGMG-FV benchmark on the command line: one solver per rank, one report.

use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Parser;
use hpgmg::bandwidth;
use hpgmg::cli::{self, Cli, Device};
use hpgmg::comm::{self, Comm};
use hpgmg::cpu::Cpu;
use hpgmg::cuda::{self, Gpu};
use hpgmg::error::Error;
use hpgmg::known;
use hpgmg::launch::{self, Launch};
use hpgmg::options::Config;
use hpgmg::report::{Facts, Report};
use hpgmg::run::{self, Effort};
use indicatif::{ProgressBar, ProgressStyle};

/// Exit code of a run whose results are not what they should be.
const WRONG: u8 = 3;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match start(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(WRONG),
        Err(error) => {
            eprintln!("hpgmg-fv: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs this process's ranks; true if their results are what they should be.
fn start(cli: &Cli) -> anyhow::Result<bool> {
    let launcher = launch::launcher(|name| std::env::var(name).ok());
    let config = cli.config()?;
    let effort = cli.effort()?;
    let limit = cli.limit()?;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    match launch::decide(cli, launcher.as_ref())? {
        Launch::Threads { ranks } => {
            check_memory(&config, ranks, ranks)?;
            let threads = cli.threads.unwrap_or((cores / ranks).max(1));
            let report = launch::on_threads(ranks, limit, |comm| {
                one_rank(cli, &config, effort, comm, threads)
            })?;
            finish(cli, report)
        }
        Launch::LibmpThreads { ranks } => {
            check_memory(&config, ranks, ranks)?;
            let threads = cli.threads.unwrap_or((cores / ranks).max(1));
            let worlds = libmp::World::threads(ranks)?;
            let report = comm::libmp::run(worlds, limit, |comm| {
                one_rank(cli, &config, effort, comm, threads)
            })?;
            finish(cli, report)
        }
        Launch::Libmp => {
            let world = libmp::World::init()?;
            let (rank, local) = (world.rank(), world.local_size());
            check_memory(&config, world.size(), local)?;
            let threads = cli.threads.unwrap_or((cores / local).max(1));
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
            check_memory(&config, comm.size(), local)?;
            let threads = cli.threads.unwrap_or((cores / local).max(1));
            // An error ends the whole job: the others would wait for this rank.
            match one_rank(cli, &config, effort, &comm, threads) {
                Ok(report) => finish(cli, report),
                Err(error) => {
                    eprintln!("hpgmg-fv: rank {}: {error}", comm.rank());
                    comm.abort();
                }
            }
        }
        #[cfg(not(feature = "mpi"))]
        Launch::Mpi { .. } => Err(anyhow!("built without the cargo feature `mpi`")),
    }
}

fn check_memory(config: &Config, ranks: usize, local: usize) -> anyhow::Result<()> {
    let available = cli::available_memory().unwrap_or(u64::MAX);
    Ok(cli::check_memory(config, ranks, local, available)?)
}

/// One rank's run; the report on rank 0.
fn one_rank(
    cli: &Cli,
    config: &Config,
    effort: Effort,
    comm: &dyn Comm,
    threads: usize,
) -> Result<Option<Report>, Error> {
    let bar = if comm.rank() == 0 { progress_bar() } else { ProgressBar::hidden() };
    bar.set_message("setting up");
    bar.tick();
    let gpu = gpu_of(cli, config, comm.size())?;
    let mut cpu = Cpu::new(config.clone(), comm, threads)?;
    let mut progress = |dim, done, of| {
        if done == 0 {
            bar.set_message(format!("{dim}³"));
            bar.set_length(of as u64);
        }
        bar.set_position(done as u64);
    };
    let mut facts = Facts { ranks: comm.size(), comm: comm.name(), triad: None, gpu: None };
    if let Some(device) = gpu {
        let mut gpu = Gpu::new(cpu, device, cli.limit()?)?;
        let outcome = run::run(&mut gpu, effort, progress)?;
        bar.finish_and_clear();
        facts.gpu = Some((gpu.name().to_owned(), gpu.bytes_per_solve()));
        facts.triad = if cli.bandwidth { Some(gpu.copy_bandwidth()?) } else { None };
        let verdict = known::judge(config, &outcome);
        return Ok(Some(Report::new(gpu.cpu(), &outcome, &verdict, &facts)));
    }
    let outcome = run::run(&mut cpu, effort, &mut progress)?;
    bar.finish_and_clear();
    if comm.rank() != 0 {
        return Ok(None);
    }
    let verdict = known::judge(config, &outcome);
    facts.triad = if cli.bandwidth { bandwidth::triad(threads * comm.size()) } else { None };
    Ok(Some(Report::new(&cpu, &outcome, &verdict, &facts)))
}

/// The GPU to solve on, if it is to be one. With `--device auto` whatever speaks against it means the CPU.
fn gpu_of(cli: &Cli, config: &Config, ranks: usize) -> Result<Option<gdsync::CudaDevice>, Error> {
    let open = || cuda::check(config).and_then(|()| cuda::open());
    match cli.device {
        Device::Cpu => Ok(None),
        Device::Cuda => Ok(Some(open()?)),
        Device::Auto => Ok(if ranks == 1 { open().ok() } else { None }),
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
fn finish(cli: &Cli, report: Option<Report>) -> anyhow::Result<bool> {
    let Some(report) = report else { return Ok(true) };
    print!("{}", report.text());
    if let Some(path) = &cli.json {
        let json = serde_json::to_string_pretty(&report)?;
        std::fs::write(path, json + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(report.passes())
}
