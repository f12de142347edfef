//! How the ranks of a world find each other: which launcher started this process, what it says about rank and size, and
//! where rank 0 listens. What they then say to each other is in `control`.

mod alone;
mod env;
#[cfg(feature = "mpi")]
mod mpi;
mod pmix;
pub(crate) mod tcp;
mod threads;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::config::{Bootstrap, Config, Variables};
use crate::control::frame::Token;
use crate::error::{Error, Result};

pub(crate) use env::{check as check_launchers, parse_token};
pub(crate) use threads::place as thread_place;

/// Largest world: a bound on what a peer can make us allocate, far above what a star of connections is good for.
pub const MAX_RANKS: usize = 4096;

/// Where this process stands in the world to come.
#[derive(Debug)]
pub(crate) struct Place {
    pub rank: u32,
    pub size: u32,
    /// Rank and number of ranks on this host, if the launcher says so.
    pub local: Option<(u32, u32)>,
    pub job: String,
    pub token: Token,
    /// The device that the launcher chose.
    pub gpu: Option<String>,
    pub meeting: Meeting,
    pub session: Session,
}

/// How the ranks meet.
#[derive(Debug)]
pub(crate) enum Meeting {
    /// This is rank 0.
    Listen(TcpListener),
    /// `host:port` of rank 0.
    Connect(String),
    /// All ranks are here.
    Here,
}

/// What has to be closed when the world finishes, and is left open when it fails, so that the launcher sees that.
#[derive(Debug)]
pub(crate) enum Session {
    None,
    Pmix(pmix::Session),
    #[cfg(feature = "mpi")]
    Mpi(mpi::Session),
}

impl Session {
    /// Closes it after an orderly finish.
    pub(crate) fn finish(self) {
        match self {
            Session::None => {}
            Session::Pmix(session) => session.finish(),
            #[cfg(feature = "mpi")]
            Session::Mpi(session) => session.finish(),
        }
    }
}

/// A bootstrap and the signs that speak for it.
#[derive(Debug, PartialEq, Eq)]
struct Choice {
    bootstrap: Bootstrap,
    name: &'static str,
    why: String,
}

/// Finds this process's place in the world.
pub(crate) fn find(config: &Config) -> Result<Place> {
    let mpi_runs = {
        #[cfg(feature = "mpi")]
        {
            mpi::running()
        }
        #[cfg(not(feature = "mpi"))]
        {
            false
        }
    };
    let Choice { bootstrap, name, why } = choose(config, mpi_runs)?;
    tracing::info!(bootstrap = name, why, "starting a world");
    let deadline = Instant::now() + config.init_timeout;
    match bootstrap {
        Bootstrap::Mprun => env::mprun(config),
        Bootstrap::Env => env::torchrun(config),
        Bootstrap::Pmix => pmix::place(config, deadline),
        #[cfg(feature = "mpi")]
        Bootstrap::Mpi => mpi::place(config),
        #[cfg(not(feature = "mpi"))]
        Bootstrap::Mpi => Err(Error::NotBuilt { what: "starting from MPI", feature: "mpi" }),
        Bootstrap::Auto | Bootstrap::Alone => Ok(alone::place(config)),
    }
}

fn choose(config: &Config, mpi_runs: bool) -> Result<Choice> {
    let choice = |bootstrap, name, why: &str| Ok(Choice { bootstrap, name, why: why.into() });
    let forced = "MP_BOOTSTRAP says so";
    match config.bootstrap {
        Bootstrap::Mprun => return choice(Bootstrap::Mprun, "mprun", forced),
        Bootstrap::Env => return choice(Bootstrap::Env, "env", forced),
        Bootstrap::Pmix => return choice(Bootstrap::Pmix, "pmix", forced),
        Bootstrap::Mpi => return choice(Bootstrap::Mpi, "mpi", forced),
        Bootstrap::Alone => return choice(Bootstrap::Alone, "alone", forced),
        Bootstrap::Auto => {}
    }
    let variables = &config.variables;
    if variables.get("MP_RANK").is_some() {
        return choice(Bootstrap::Mprun, "mprun", "MP_RANK is set");
    }
    variables.without("MP_SIZE", "MP_RANK")?;
    if mpi_runs {
        return choice(Bootstrap::Mpi, "mpi", "MPI is initialised");
    }
    let torchrun = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
    if torchrun.iter().all(|name| variables.get(name).is_some()) {
        return choice(
            Bootstrap::Env,
            "env",
            "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set",
        );
    }
    if variables.get("PMIX_RANK").is_some() && variables.get("PMIX_NAMESPACE").is_some() {
        return choice(Bootstrap::Pmix, "pmix", "PMIX_RANK and PMIX_NAMESPACE are set");
    }
    foreign(variables)?;
    choice(Bootstrap::Alone, "alone", "no sign of a launcher")
}

/// Refuses to be one of several processes that each believe to be alone.
fn foreign(variables: &Variables) -> Result<()> {
    let signs = [
        ("OMPI_COMM_WORLD_SIZE", "use an mpirun that offers PMIx, or mprun"),
        ("PMI_SIZE", "use mprun, or an MPI launcher that offers PMIx"),
        ("SLURM_STEP_NUM_TASKS", "use srun --mpi=pmix"),
    ];
    if let (Some(_), Some(2..)) = (variables.number("RANK")?, variables.number("WORLD_SIZE")?) {
        for name in ["MASTER_ADDR", "MASTER_PORT"] {
            variables.required(name, "RANK is set and WORLD_SIZE is more than 1")?;
        }
    }
    for (name, remedy) in signs {
        if let Some(size) = variables.number(name)?
            && size > 1
        {
            return Err(Error::Launcher {
                launcher: format!("{name}={size} says that this is one of {size} processes"),
                problem: "there is no PMIx server through which they could find each other".into(),
                remedy: remedy.into(),
            });
        }
    }
    Ok(())
}

/// A token that nobody can guess, for bootstraps that have a private way to tell it.
fn random_token() -> Result<Token> {
    let mut token = [0; 32];
    let mut filled = 0;
    while filled < token.len() {
        let count =
            rustix::rand::getrandom(&mut token[filled..], rustix::rand::GetRandomFlags::empty())
                .map_err(|error| Error::io("no random numbers for a token")(error.into()))?;
        filled += count;
    }
    Ok(Token(token))
}

fn check_size(rank: u32, size: u32, name: &str) -> Result<()> {
    if size == 0 || size as usize > MAX_RANKS {
        return Err(Error::Variable {
            name: name.into(),
            value: size.to_string(),
            expected: format!("a number of ranks from 1 to {MAX_RANKS}"),
        });
    }
    if rank >= size {
        return Err(Error::Variable {
            name: name.into(),
            value: size.to_string(),
            expected: format!("more than the rank, which is {rank}"),
        });
    }
    Ok(())
}

/// Runs a call that may block for ever (another library's, that takes no deadline) on a thread of its own. The thread is
/// given up if it does not return in time.
fn bounded<T: Send + 'static>(
    what: &str,
    limit: Duration,
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("mp-bootstrap".into())
        // The receiver may have given up.
        .spawn(move || drop(sender.send(call())))
        .map_err(Error::io("no thread for the bootstrap"))?;
    let silent = |_| Error::Pmix {
        call: what.into(),
        message: format!("no answer within {limit:.1?}; have all ranks called World::init?"),
    };
    let result = receiver.recv_timeout(limit).map_err(silent)?;
    // It has sent its result: it is about to end.
    let _ = thread.join();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(variables: &[(&str, &str)], mpi_runs: bool) -> Result<&'static str> {
        let config = Config::from_variables(variables.iter().copied())?;
        choose(&config, mpi_runs).map(|choice| choice.name)
    }

    const TORCHRUN: [(&str, &str); 4] =
        [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "1")];
    const PMIX: [(&str, &str); 3] =
        [("PMIX_RANK", "0"), ("PMIX_NAMESPACE", "j"), ("OMPI_COMM_WORLD_SIZE", "2")];

    #[test]
    fn the_signs_of_a_launcher_choose_the_bootstrap() {
        assert_eq!(chosen(&[], false).unwrap(), "alone");
        assert_eq!(chosen(&PMIX, false).unwrap(), "pmix");
        assert_eq!(chosen(&TORCHRUN, false).unwrap(), "env");
        assert_eq!(chosen(&[], true).unwrap(), "mpi");
        // torchrun inside an srun or mpirun step is the nearer one; mprun is nearer than any.
        assert_eq!(chosen(&[&PMIX[..], &TORCHRUN[..]].concat(), false).unwrap(), "env");
        let all = [&PMIX[..], &TORCHRUN[..], &[("MP_RANK", "0")]].concat();
        assert_eq!(chosen(&all, true).unwrap(), "mprun");
        // Single variables with such common names are no sign.
        assert_eq!(chosen(&TORCHRUN[..1], false).unwrap(), "alone");
        assert_eq!(chosen(&TORCHRUN[1..2], false).unwrap(), "alone");
    }

    #[test]
    fn one_variable_overrides_the_signs() {
        for name in ["mprun", "env", "pmix", "mpi", "alone"] {
            let variables = [&PMIX[..], &[("MP_BOOTSTRAP", name)]].concat();
            assert_eq!(chosen(&variables, false).unwrap(), name);
        }
    }

    #[test]
    fn one_of_several_processes_does_not_run_alone_by_mistake() {
        for name in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"] {
            let text = chosen(&[(name, "4")], false).unwrap_err().to_string();
            assert!(text.contains(name) && text.contains("MP_BOOTSTRAP=alone"), "{text}");
            assert_eq!(chosen(&[(name, "1")], false).unwrap(), "alone");
            assert_eq!(chosen(&[(name, "4"), ("MP_BOOTSTRAP", "alone")], false).unwrap(), "alone");
        }
    }

    #[test]
    fn one_of_several_processes_that_lacks_the_rest_does_not_run_alone_by_mistake() {
        let text = chosen(&TORCHRUN[..2], false).unwrap_err().to_string();
        assert!(text.contains("MASTER_ADDR is not set"), "{text}");
        let text = chosen(&TORCHRUN[..3], false).unwrap_err().to_string();
        assert!(text.contains("MASTER_PORT is not set"), "{text}");
        let text = chosen(&[("RANK", "0"), ("MP_SIZE", "2")], false).unwrap_err().to_string();
        assert!(text.contains("MP_RANK is not set"), "{text}");
        let alone = [("RANK", "0"), ("WORLD_SIZE", "1")];
        assert_eq!(chosen(&alone, false).unwrap(), "alone");
    }

    #[test]
    fn a_call_that_does_not_return_is_given_up() {
        let error = bounded("PMIx_Fence", Duration::from_millis(20), || {
            std::thread::sleep(Duration::from_secs(2));
            Ok(())
        });
        assert!(error.unwrap_err().to_string().starts_with("PMIx_Fence failed: no answer within"));
    }
}
