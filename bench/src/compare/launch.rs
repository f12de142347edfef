//! The two ranks of a comparison: the ones a launcher gave, else two processes under `mpirun`, which this starts itself
//! where there is MPI, else two threads. What this starts it starts again without a library that took its ranks along.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use libmp::{Device, World};
use mp_program::peer::Program;

use super::absent::{Journal, agree, settle};
use super::{Mpi, Plan, Ucx, gpu};
use crate::perf::{Devices, Rank};
use crate::result::Results;

/// Set in the processes that this starts: what starts the ranks.
const STARTED: &str = "MP_PERF_STARTED";
/// The ranks are threads.
const THREADS: &str = "threads";
/// Why there is no MPI where that is not a failure.
const NO_MPI: &str = "no libmpi.so.40 or no mpirun here, or both ranks are on one GPU";

/// Measures and gives the results, in the process that has them: rank 0, or a single process. `None` elsewhere: in rank 1,
/// and in a process that has only started the ranks, whose rank 0 prints and writes.
///
/// # Errors
/// A world of another size than two; a player that fails and is not another library's; ranks that fail.
pub fn run(plan: &Plan) -> Result<Option<Results>> {
    // Between two GPUs of a host NVLink multicast takes no part; NCCL would set it up all the same.
    // SAFETY: called from `main` before any thread is started.
    unsafe { std::env::set_var("NCCL_NVLS_ENABLE", "0") };
    let launched =
        ["MP_RANK", "PMIX_RANK", "RANK"].iter().any(|name| std::env::var_os(name).is_some());
    if launched {
        return part(World::init()?, plan);
    }
    match std::env::var(STARTED) {
        Ok(how) if how == THREADS => threads(plan),
        Ok(how) => bail!("{how} started this program without giving it a rank"),
        // Without GPUs no other library is in the process.
        Err(_) if mpirun(plan).is_none() && gpus(&plan.devices).is_err() => threads(plan),
        Err(_) => start(plan).map(|()| None),
    }
}

/// What starts processes that have MPI.
fn mpirun(plan: &Plan) -> Option<PathBuf> {
    // Two processes on one GPU would take turns of milliseconds: threads there.
    let one_gpu = matches!(plan.devices, Devices::Gpus(first, second) if first == second);
    find("mpirun").filter(|_| Mpi::is_installed() && !one_gpu)
}

/// Both ranks, as threads.
fn threads(plan: &Plan) -> Result<Option<Results>> {
    let ranks = World::threads(2)?;
    std::thread::scope(|scope| {
        let ranks: Vec<_> =
            ranks.into_iter().map(|world| scope.spawn(move || part(world, plan))).collect();
        let mut results = None;
        for rank in ranks {
            let Ok(part) = rank.join() else { bail!("a rank panicked") };
            results = results.or(part?);
        }
        Ok(results)
    })
}

/// MPI, of both ranks or of none: then why.
fn mpi(world: &World, journal: &Journal) -> Result<Result<Mpi, String>> {
    if let Some(reason) = journal.why_lost("MPI") {
        return Ok(Err(reason));
    }
    if std::env::var_os("OMPI_COMM_WORLD_SIZE").is_none() || !Mpi::is_installed() {
        return Ok(Err(NO_MPI.into()));
    }
    let inside = journal.enter(world.rank(), "MPI")?;
    let mpi = Mpi::init();
    drop(inside);
    agree(world, mpi)
}

/// One rank.
fn part(world: World, plan: &Plan) -> Result<Option<Results>> {
    let (first, number) = (world.rank() == 0, world.rank());
    let journal = Journal::of_this_process();
    journal.ranks_are_here()?;
    let mpi = mpi(&world, &journal)?;
    let here = mpi.as_ref().map_err(String::as_str);
    let gpus = gpus(&plan.devices);
    let points = super::points(plan) + if gpus.is_ok() { gpu::points(plan) } else { 0 };
    let bar = if first { ProgressBar::new(points) } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} points, {elapsed}")?);
    let mut results = Results::begin(super::method(plan, here));
    let players = super::players(&world, here)?;
    (results.figures, results.absent) =
        super::rank(&world, plan, players, &journal, &|| bar.inc(1))?;
    let world = match gpus {
        Ok(gpus) => {
            let device = Device::cuda(gpus[world.rank().min(1)])?;
            let pair = format!("ranks on cuda:{} and cuda:{}", gpus[0], gpus[1]);
            let rank = Rank::new(world, device, pair)?;
            gpu::measure((&rank, plan), here, &journal, &bar, &mut results)?;
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
    if let Ok(mpi) = mpi {
        let _inside = journal.enter(number, "MPI")?;
        drop(mpi);
    }
    if !first {
        return Ok(None);
    }
    let lost = journal.lost();
    for lost in &lost {
        results.method.push(format!(
            "{}: what it has is of a run of its own, before it failed; all others were measured again without it.",
            lost.library
        ));
    }
    settle(&mut results.figures, &mut results.absent, lost);
    super::add_ucx(&mut results, plan, Ucx::find().as_ref());
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

/// Starts this program again as two ranks and waits for them; again without a library that took them along.
fn start(plan: &Plan) -> Result<()> {
    let this = std::env::current_exe().context("finding this program")?;
    let folder = tempfile::tempdir().context("making a folder")?;
    let journal = Journal::begin(folder.path());
    loop {
        let mpirun = mpirun(plan).filter(|_| journal.why_lost("MPI").is_none());
        let (name, mut command) = match &mpirun {
            Some(mpirun) => {
                let mut command = Command::new(mpirun);
                command.args(["-n", "2", "--oversubscribe", "--bind-to", "none"]);
                if rustix::process::geteuid().is_root() {
                    command.arg("--allow-run-as-root");
                }
                command.arg(&this).env(STARTED, mpirun);
                ("mpirun", command)
            }
            None => {
                let mut command = Command::new(&this);
                command.env(STARTED, THREADS);
                ("mp-perf", command)
            }
        };
        command.args(std::env::args_os().skip(1)).envs(journal.variable());
        let ranks = Program::start_aloud(name, &mut command);
        let Err(error) = ranks.and_then(Program::wait) else { return Ok(()) };
        let library = match journal.was_in() {
            Some(library) => library,
            // What starts MPI's processes could not.
            None if mpirun.is_some() && !journal.ranks_were_here() => "MPI".into(),
            None => return Err(error),
        };
        if journal.why_lost(&library).is_some() {
            return Err(error);
        }
        journal.lose(&library, &format!("{error:#}"))?;
        mp_program::errln!(
            "mp-perf: {library} is absent: {error:#}; the others are measured again"
        );
    }
}

/// A program in `PATH`.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}
