//! Which ranks this process is: the only one, several threads, or one of a launcher's processes.

use std::time::Duration;

use crate::cli::{Cli, CommMode, Device};
use crate::comm::libmp::LibmpComm;
use crate::comm::{self, CommError};
use crate::error::Error;

/// What a launcher says about this process.
///
/// See [`Launch`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Its name, as users know it.
    pub name: &'static str,
    /// The variable that gave it away, and its value.
    pub variable: (&'static str, String),
    /// Processes it started.
    pub size: usize,
    /// Processes it started on this machine, where it says.
    pub local_size: Option<usize>,
}

impl Launcher {
    /// Whether MPI programs are started by it.
    fn starts_mpi(&self) -> bool {
        matches!(self.name, "mpirun" | "srun")
    }
}

/// The launcher that started this process, from its environment; `get` reads a variable.
pub fn launcher(get: impl Fn(&str) -> Option<String>) -> Option<Launcher> {
    const KNOWN: [(&str, &str, &str); 5] = [
        ("mprun", "MP_SIZE", "MP_LOCAL_SIZE"),
        ("torchrun", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
        ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("mpirun", "PMI_SIZE", "MPI_LOCALNRANKS"),
        ("srun", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS_PER_NODE"),
    ];
    KNOWN.iter().find_map(|&(name, size, local)| {
        let value = get(size)?;
        let count = value.parse().ok()?;
        // An allocation's own shell is a step of one task.
        if name == "srun" && count == 1 {
            return None;
        }
        let local_size = get(local).and_then(|v| v.parse().ok());
        Some(Launcher { name, variable: (size, value), size: count, local_size })
    })
}

/// The ranks of a run.
///
/// ```
/// use clap::Parser;
/// use hpgmg::cli::Cli;
/// use hpgmg::launch::{Launch, decide, launcher};
///
/// let cli = Cli::parse_from(["hpgmg-fv", "5", "8", "--ranks", "4"]);
/// let started_by = launcher(|_variable| None); // nobody
/// assert_eq!(decide(&cli, started_by.as_ref()), Ok(Launch::Threads { ranks: 4 }));
///
/// let refused = Cli::parse_from(["hpgmg-fv", "5", "8", "--graph", "--device", "cpu"]);
/// println!("{}", decide(&refused, None).unwrap_err()); // which options go together
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launch {
    /// Threads of this process.
    Threads {
        /// How many.
        ranks: usize,
    },
    /// This process is one of the ranks that a launcher started, and libmp finds the others.
    Libmp,
    /// This process is one of an MPI job.
    Mpi {
        /// Processes of the job on this machine, where the launcher says.
        local_size: Option<usize>,
    },
}

/// A combination of options that this program cannot serve; the text says what and why.
///
/// See [`Launch`] for an example.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

const WITHOUT_MPI: &str = "--comm mpi: this hpgmg-fv was built without the cargo feature `mpi`";

/// Decides what this process is. `launcher` is [`launcher`]'s answer.
///
/// # Errors
/// [`Refused`] for what this build cannot do.
pub fn decide(cli: &Cli, launcher: Option<&Launcher>) -> Result<Launch, Refused> {
    let refuse = |text: String| Err(Refused(text));
    let size = cli.ranks.unwrap_or(launcher.map_or(1, |l| l.size));
    let on_gpus = cli.device == Device::Cuda;
    let of_gpus = cli.graph || cli.whole.is_some() || !cli.along.is_empty() || !cli.direct_halo;
    if !on_gpus && of_gpus {
        return refuse(
            "--graph, --whole, --along and --direct-halo are for ranks on GPUs: with --device cuda"
                .into(),
        );
    }
    if cli.gpu_threshold > 0 && cli.device != Device::Cuda {
        return refuse(
            "--gpu-threshold divides levels between GPU and CPU: with --device cuda".into(),
        );
    }
    if cli.timeline.is_some() && !on_gpus {
        return refuse("--timeline: of solves on GPUs, with --device cuda; on CPUs MP_TRACE=FILE shows what libmp does".into());
    }
    if cli.gpu_threshold > 0 && cli.graph {
        return refuse(
            "--graph with --gpu-threshold: the CPU takes part in a solve, which no graph can hold"
                .into(),
        );
    }
    if !cli.compare.is_empty() && (size == 1 || cli.compare.contains(&CommMode::Auto)) {
        return refuse("--compare: needs several ranks and names of ways to communicate (mpi, host, stream, kernel)".into());
    }
    if cli.graph && matches!(cli.comm, CommMode::Host | CommMode::Mpi) {
        return refuse("--graph: with --comm host and mpi the CPU takes part in a solve, which no graph can hold".into());
    }
    if let (Some(ranks), Some(launcher)) = (cli.ranks, launcher)
        && ranks != launcher.size
    {
        let Launcher { name, size, .. } = launcher;
        return refuse(format!("--ranks {ranks} under {name}, which has started {size} processes"));
    }
    let ranks = cli.ranks.unwrap_or(1);
    let with_libmp = matches!(cli.comm, CommMode::Stream | CommMode::Kernel);
    if !cli.compare.is_empty() || with_libmp || on_gpus && size != 1 {
        let mpi = cli.comm == CommMode::Mpi || cli.compare.contains(&CommMode::Mpi);
        if mpi && !cfg!(feature = "mpi") {
            return refuse(WITHOUT_MPI.into());
        }
        if mpi && !launcher.is_some_and(Launcher::starts_mpi) {
            return refuse(
                "--comm mpi and --compare mpi: MPI ranks are started by mpirun or srun".into(),
            );
        }
        return Ok(launcher.map_or(Launch::Threads { ranks }, |_| Launch::Libmp));
    }
    match (cli.comm, launcher) {
        (CommMode::Auto | CommMode::Host, None) => return Ok(Launch::Threads { ranks }),
        (CommMode::Host, Some(_)) => return Ok(Launch::Libmp),
        // MPI leads to other hosts too, where there is an MPI.
        (CommMode::Auto, Some(launcher)) if !(cfg!(feature = "mpi") && launcher.starts_mpi()) => {
            return Ok(Launch::Libmp);
        }
        _ => {}
    }
    if !cfg!(feature = "mpi") {
        return refuse(WITHOUT_MPI.into());
    }
    if let Some(Launcher { name, variable: (variable, value), .. }) =
        launcher.filter(|launcher| !launcher.starts_mpi())
    {
        return refuse(format!(
            "--comm mpi under {name} ({variable}={value}): MPI ranks are started by mpirun or srun"
        ));
    }
    if launcher.is_none() && cli.ranks.unwrap_or(1) != 1 {
        return refuse("--comm mpi with --ranks: MPI ranks are started by mpirun or srun".into());
    }
    Ok(Launch::Mpi { local_size: launcher.and_then(|l| l.local_size) })
}

/// Runs `body` on `ranks` threads, each a rank of a world of libmp, and returns what rank 0 returns. A rank
/// that fails releases the others; its own error is the one that comes back. No wait lasts longer than `limit`.
///
/// # Errors
/// The first error of a rank, a cause before its consequences; libmp's, where it has no room for such a world.
pub fn on_threads<T: Send>(
    ranks: usize,
    limit: Duration,
    body: impl Fn(&LibmpComm) -> Result<T, Error> + Sync,
) -> Result<T, Error> {
    comm::libmp::run(libmp::World::threads(ranks).map_err(CommError::from)?, limit, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn cli(args: &[&str]) -> Cli {
        Cli::try_parse_from([&["hpgmg-fv", "5", "8"], args].concat()).unwrap()
    }

    fn under(variable: &'static str, value: &'static str) -> Option<Launcher> {
        launcher(|name| (name == variable).then(|| value.into()))
    }

    #[test]
    fn without_a_launcher_ranks_are_threads() {
        assert_eq!(decide(&cli(&[]), None), Ok(Launch::Threads { ranks: 1 }));
        assert_eq!(decide(&cli(&["--ranks", "4"]), None), Ok(Launch::Threads { ranks: 4 }));
        let gpus = cli(&["--ranks", "2", "--device", "cuda"]);
        assert_eq!(decide(&gpus, None), Ok(Launch::Threads { ranks: 2 }));
        for comm in ["host", "stream", "kernel"] {
            let cli = cli(&["--ranks", "4", "--comm", comm]);
            assert_eq!(decide(&cli, None), Ok(Launch::Threads { ranks: 4 }));
        }
        let compare = cli(&["--ranks", "2", "--compare", "host,stream,kernel"]);
        assert_eq!(decide(&compare, None), Ok(Launch::Threads { ranks: 2 }));
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        for (args, word) in [
            (&["--device", "cuda", "--ranks", "2", "--comm", "mpi"][..], "mpi"),
            (&["--device", "cuda", "--ranks", "2", "--comm", "host", "--graph"], "no graph"),
            (&["--device", "cuda", "--compare", "host,kernel"], "several ranks"),
            (&["--device", "cuda", "--ranks", "2", "--compare", "auto,kernel"], "names of ways"),
            (&["--ranks", "2", "--compare", "mpi,kernel"], "mpi"),
            (&["--direct-halo=false"], "--device cuda"),
            (&["--graph"], "--device cuda"),
            (&["--along", "2x2x2"], "--device cuda"),
            (&["--gpu-threshold", "10000"], "--device cuda"),
            (&["--timeline", "t.json"], "--device cuda"),
            (&["--device", "cuda", "--graph", "--gpu-threshold", "1"], "no graph"),
        ] {
            let error = decide(&cli(args), None).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn launchers_are_recognised_and_contradictions_refused() {
        for (variable, name) in [("MP_SIZE", "mprun"), ("WORLD_SIZE", "torchrun")] {
            let launcher = under(variable, "4");
            assert_eq!(launcher.as_ref().map(|l| l.name), Some(name));
            assert_eq!(decide(&cli(&[]), launcher.as_ref()), Ok(Launch::Libmp));
            assert_eq!(decide(&cli(&["--comm", "host"]), launcher.as_ref()), Ok(Launch::Libmp));
            assert!(decide(&cli(&["--comm", "mpi"]), launcher.as_ref()).is_err());
        }
        let mpirun = under("OMPI_COMM_WORLD_SIZE", "2");
        let error = decide(&cli(&["--ranks", "4"]), mpirun.as_ref()).unwrap_err().to_string();
        assert!(error.contains("started 2 processes"), "{error}");
        assert_eq!(under("SLURM_STEP_NUM_TASKS", "1"), None);
        assert_eq!(under("SLURM_STEP_NUM_TASKS", "3").map(|l| l.size), Some(3));
    }

    #[cfg(not(feature = "mpi"))]
    #[test]
    fn a_build_without_mpi_takes_mpiruns_ranks_through_libmp_and_refuses_mpi_itself() {
        let mpirun = under("OMPI_COMM_WORLD_SIZE", "2");
        assert_eq!(decide(&cli(&[]), mpirun.as_ref()), Ok(Launch::Libmp));
        let error = decide(&cli(&["--comm", "mpi"]), mpirun.as_ref()).unwrap_err().to_string();
        assert!(error.contains("feature `mpi`"), "{error}");
    }

    #[cfg(feature = "mpi")]
    #[test]
    fn a_build_with_mpi_takes_mpiruns_ranks_through_mpi_unless_told_otherwise() {
        let mpirun = under("OMPI_COMM_WORLD_SIZE", "2");
        assert_eq!(decide(&cli(&[]), mpirun.as_ref()), Ok(Launch::Mpi { local_size: None }));
        assert_eq!(decide(&cli(&["--comm", "host"]), mpirun.as_ref()), Ok(Launch::Libmp));
    }

    #[test]
    fn the_error_that_comes_back_is_the_cause_not_a_consequence() {
        use crate::comm::{Comm, Message};
        let result = on_threads(3, Duration::from_secs(20), |comm| {
            if comm.rank() == 2 {
                return Err(Error::Threads(std::io::Error::other("rank 2 broke")));
            }
            let message = Message { peer: 2, send: 0, receive: 1 };
            let mut exchange = comm.prepare(1, &[message])?;
            exchange.receive(0)?;
            Ok(())
        });
        assert!(matches!(result, Err(Error::Threads(_))), "{result:?}");
    }
}
