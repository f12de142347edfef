//! The ranks of a comparison, one for each GPU or two on the host: the ones a launcher gave, else processes under `mpirun`, which
//! this starts itself where there is MPI, else threads. What this starts it starts again without a library that took its ranks along.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use libmp::{Device, World};
use mp_program::peer::Program;

use super::absent::{Journal, agree, settle};
use super::{Mpi, Plan, Ucx, gpu};
use crate::perf::{Devices, Gpus, Rank};
use crate::result::Results;

/// Set in the processes that this starts: what starts the ranks.
const STARTED: &str = "MP_PERF_STARTED";
/// The ranks are threads.
const THREADS: &str = "threads";
/// Why there is no MPI where that is not a failure.
const NO_MPI: &str = "no libmpi.so.40 or no mpirun here, or the ranks share a GPU";

/// Measures and gives the results, in the process that has them: rank 0, or a single process. `None` elsewhere: in other ranks,
/// and in a process that has only started the ranks, whose rank 0 prints and writes.
///
/// # Errors
/// A world of another size than there are GPUs, or than two on the host; a player that fails and is not another library's; ranks that fail.
pub fn run(plan: &Plan) -> Result<Option<Results>> {
    // Between GPUs of a host NVLink multicast takes no part; NCCL would set it up all the same.
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
    // Processes on one GPU would take turns of milliseconds: threads there.
    let shared = matches!(&plan.devices, Devices::Gpus(gpus) if gpus.is_shared());
    find("mpirun").filter(|_| Mpi::is_installed() && !shared)
}

/// All ranks, as threads.
fn threads(plan: &Plan) -> Result<Option<Results>> {
    let ranks = World::threads(ranks(&gpus(&plan.devices)))?;
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

/// MPI, of all ranks or of none: then why.
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
    let (first, number, size) = (world.rank() == 0, world.rank(), world.size());
    let gpus = gpus(&plan.devices);
    let expected = match &gpus {
        Ok(gpus) => format!("{}, ranks on {gpus} (--gpus)", gpus.ranks()),
        Err(_) => ranks(&gpus).to_string(),
    };
    ensure!(size == ranks(&gpus), "the world's size is {size}: expected {expected}");
    let journal = Journal::of_this_process();
    journal.ranks_are_here()?;
    let mpi = mpi(&world, &journal)?;
    let here = mpi.as_ref().map_err(String::as_str);
    let on_gpus = gpus.as_ref().map_or(0, |gpus| gpu::points(plan, gpus));
    let points = super::points(plan, size) + on_gpus;
    let bar = if first { ProgressBar::new(points) } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} points, {elapsed}")?);
    let mut results = Results::begin(super::method(plan, size, here));
    let players = super::players(&world, here)?;
    (results.figures, results.absent) =
        super::rank(&world, plan, players, &journal, &|| bar.inc(1))?;
    let world = match gpus {
        Ok(gpus) => {
            let device = Device::cuda(gpus.of(number)?)?;
            let rank = Rank::new(world, device, format!("ranks on {gpus}"))?;
            gpu::measure((&rank, plan, &gpus), here, &journal, &bar, &mut results)?;
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
    // Finalising waits for the other ranks, actively: what follows has the machine for itself.
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
    if size == 2 {
        super::add_ucx(&mut results, plan, Ucx::find().as_ref());
    }
    Ok(Some(results))
}

/// The ranks' GPUs, or why there are none.
fn gpus(devices: &Devices) -> Result<Gpus, &'static str> {
    match devices {
        Devices::Host => Err("--host"),
        Devices::Gpus(gpus) => Ok(gpus.clone()),
        Devices::Automatic => match gdsync::CudaDevice::count() {
            Ok(2..) => Ok(Gpus::two(0, 1)),
            Ok(1) => Err("there is one; --gpus 0,0 plays on it alone"),
            Ok(_) | Err(_) => Err("there is none"),
        },
    }
}

/// How many ranks play: two where there are no GPUs.
fn ranks(gpus: &Result<Gpus, &str>) -> usize {
    gpus.as_ref().map_or(2, Gpus::ranks)
}

/// Starts this program again as the ranks and waits for them; again without a library that took them along.
fn start(plan: &Plan) -> Result<()> {
    let this = std::env::current_exe().context("finding this program")?;
    let folder = tempfile::tempdir().context("making a folder")?;
    let journal = Journal::begin(folder.path());
    let ranks = ranks(&gpus(&plan.devices)).to_string();
    loop {
        let mpirun = mpirun(plan).filter(|_| journal.why_lost("MPI").is_none());
        let (name, mut command) = match &mpirun {
            Some(mpirun) => {
                let mut command = Command::new(mpirun);
                command.args(["-n", &ranks, "--oversubscribe", "--bind-to", "none"]);
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
