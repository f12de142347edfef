//! The two ranks of a comparison: the ones a launcher gave, else two processes under `mpirun`, which this starts itself
//! where there is MPI, else two threads.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use libmp::{Device, World};

use super::{Mpi, Plan, Ucx, gpu};
use crate::perf::{Devices, Rank};
use crate::result::Results;

/// Set in the processes that this starts.
const STARTED: &str = "MP_PERF_STARTED";

/// Measures and gives the results, in the process that has them: rank 0, or a single process. `None` elsewhere: in rank 1,
/// and in a process that has only started the ranks, whose rank 0 prints and writes.
///
/// # Errors
/// A world of another size than two; a player that fails; ranks that fail.
pub fn run(plan: &Plan) -> Result<Option<Results>> {
    // Between two GPUs of a host NVLink multicast takes no part; NCCL would set it up all the same.
    // SAFETY: called from `main` before any thread is started.
    unsafe { std::env::set_var("NCCL_NVLS_ENABLE", "0") };
    let launched =
        ["MP_RANK", "PMIX_RANK", "RANK"].iter().any(|name| std::env::var_os(name).is_some());
    if launched {
        let world = World::init()?;
        let under_mpirun = std::env::var_os("OMPI_COMM_WORLD_SIZE").is_some();
        let mpi = if under_mpirun && Mpi::is_installed() { Some(Mpi::init()?) } else { None };
        return part(world, plan, mpi);
    }
    // Two processes on one GPU would take turns of milliseconds: threads there.
    let one_gpu = matches!(plan.devices, Devices::Gpus(first, second) if first == second);
    if let Some(mpirun) = find("mpirun").filter(|_| Mpi::is_installed() && !one_gpu) {
        return start(&mpirun).map(|()| None);
    }
    let ranks = World::threads(2)?;
    std::thread::scope(|scope| {
        let ranks: Vec<_> =
            ranks.into_iter().map(|world| scope.spawn(move || part(world, plan, None))).collect();
        let mut results = None;
        for rank in ranks {
            let Ok(part) = rank.join() else { bail!("a rank panicked") };
            results = results.or(part?);
        }
        Ok(results)
    })
}

/// One rank.
fn part(world: World, plan: &Plan, mpi: Option<Mpi>) -> Result<Option<Results>> {
    let first = world.rank() == 0;
    let gpus = gpus(&plan.devices);
    let points = super::points(plan) + if gpus.is_ok() { gpu::points(plan) } else { 0 };
    let bar = if first { ProgressBar::new(points) } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} points, {elapsed}")?);
    let mut results = Results::begin(super::method(plan, mpi.as_ref()));
    results.figures = super::rank(&world, plan, mpi.as_ref(), &|| bar.inc(1))?;
    let world = match gpus {
        Ok(gpus) => {
            let device = Device::cuda(gpus[world.rank().min(1)])?;
            let pair = format!("ranks on cuda:{} and cuda:{}", gpus[0], gpus[1]);
            let rank = Rank::new(world, device, pair)?;
            let (figures, method) = gpu::measure(&rank, plan, mpi.as_ref(), &bar)?;
            results.figures.extend(figures);
            results.method.extend(method);
            rank.world.barrier()?;
            rank.world
        }
        Err(reason) => {
            results.method.push(format!("GPUs: not measured ({reason})."));
            world
        }
    };
    bar.finish_and_clear();
    world.finish()?;
    // Finalising waits for the other rank, actively: what follows has the machine for itself.
    drop(mpi);
    if !first {
        return Ok(None);
    }
    super::add_ucx(&mut results, plan, Ucx::find().as_ref())?;
    Ok(Some(results))
}

/// The two ranks' GPUs, or why there are none.
fn gpus(devices: &Devices) -> Result<[u32; 2], &'static str> {
    match devices {
        Devices::Host => Err("--host"),
        Devices::Gpus(first, second) => Ok([*first, *second]),
        Devices::Automatic => match gdsync::CudaDevice::count() {
            Ok(2..) => Ok([0, 1]),
            Ok(1) => Err("there is one; --pair 0:0 plays on it alone"),
            Ok(_) | Err(_) => Err("there is none"),
        },
    }
}

/// Starts this program again as two ranks and waits for them.
fn start(mpirun: &PathBuf) -> Result<()> {
    if std::env::var_os(STARTED).is_some() {
        bail!("{} started this program without giving it a rank", mpirun.display());
    }
    let this = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(mpirun);
    command.args(["-n", "2", "--oversubscribe", "--bind-to", "none"]);
    if rustix::process::geteuid().is_root() {
        command.arg("--allow-run-as-root");
    }
    command.arg(this).args(std::env::args_os().skip(1)).env(STARTED, "1");
    let status = command.status().with_context(|| format!("starting {}", mpirun.display()))?;
    if !status.success() {
        bail!("{} ended with {status}", mpirun.display());
    }
    Ok(())
}

/// A program in `PATH`.
fn find(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}
