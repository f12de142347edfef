//! Every environment variable that the crate reads, in one struct. Nothing else in the crate looks at the environment,
//! so what a world does is decided by its [`Config`] alone.
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `MP_BOOTSTRAP` | `auto` | how ranks find each other: `auto`, `mprun`, `env`, `pmix`, `mpi` or `alone` |
//! | `MP_TIMEOUT` | `300` | seconds after which a collective or `finish` gives up; ends the world |
//! | `MP_INIT_TIMEOUT` | `60` | seconds that a start waits for all ranks |
//! | `MP_HEARTBEAT` | `0.5` | seconds between signs of life of the control plane (rank 0's value holds) |
//! | `MP_HEARTBEAT_TIMEOUT` | `10` | seconds of silence after which a rank is lost (rank 0's value holds); raise it to stop a rank in a debugger |
//! | `MP_INTERFACE` | chosen | network interface (`eth0`) or local address on which rank 0, and every rank's software NIC, listens; default: the address the rendezvous names, loopback if all ranks share a host |
//! | `MP_NODE` | detected | identity of this host; ranks with equal identity are node-local to each other. Set it to treat one host as several |
//! | `MP_PATH` | `auto` | how bytes go to other ranks: `auto` (memory that the ranks of a host map from each other, the software NIC where they cannot, or `MP_GPU` names two GPUs without peer access, and between hosts), `nic` (the software NIC within a host, too), `nic-tcp` (over TCP everywhere) or `nic-verbs` (over RDMA devices everywhere). Between hosts the software NIC uses RDMA devices if both have one with an active port of one kind, and TCP if not. Equal on all ranks |
//! | `MP_CONTEXTS` | chosen | queue pairs by which the kernels of a device reach each rank behind the NIC, 1 to 64: blocks take them in turns and do not meet on one; each takes about 150 KiB of pinned memory on both sides. Default: 4 for a GPU that reaches at most 32 ranks so, otherwise 1 |
//! | `MP_NIC_DEVICE` | chosen | RDMA device (`mlx5_0`); default: the first with an active port |
//! | `MP_NIC_PORT` | chosen | its port, from 1; default: the first active one |
//! | `MP_NIC_GID_INDEX` | chosen | entry of the port's GID table; default: on Ethernet RoCE v2 with an IPv4 address before the others, otherwise the first |
//! | `MP_NIC_PKEY` | first | partition key, as in `0x8001`: its entry of the port's table may stand at another index on every host |
//! | `MP_NIC_SERVICE_LEVEL` | `0` | 0 to 15: the lane of an InfiniBand fabric, the priority on Ethernet |
//! | `MP_NIC_TRAFFIC_CLASS` | `0` | 0 to 255, in the global route header; on RoCE v2 four times the DSCP |
//! | `MP_NIC_ZERO_COPY` | `on` | what the RDMA device carries out itself, on registered memory of both sides: `off` (nothing: all goes in messages of the software NIC), `staged` (as `on`, by way of a pool, as memory goes that the device does not reach), `on` (writes and reads; atomics if the device says that its are atomic for the CPU, too) or `all` (atomics in any case: for programs in which only this device changes such words) |
//! | `MP_PMIX_LIBRARY` | searched | path of `libpmix.so.2` |
//! | `MP_TRACE` | off | file for a timeline of all ranks ([`trace`](crate::trace)); rank 0's value holds |
//! | `MP_TRACE_EVENTS` | `1000000` | events that each rank keeps for it (rank 0's value holds) |
//! | `MP_RANK`, `MP_SIZE` | set by mprun | rank and number of ranks |
//! | `MP_LOCAL_RANK`, `MP_LOCAL_SIZE` | set by mprun | rank and number of ranks on this host |
//! | `MP_RENDEZVOUS` | set by mprun | `host:port` where rank 0 listens; with `env`, takes the place of `MASTER_ADDR:MASTER_PORT` |
//! | `MP_RENDEZVOUS_FD` | set by mprun | rank 0 only: inherited listening socket |
//! | `MP_JOB` | set by mprun | name of the job; ranks of another job are turned away |
//! | `MP_TOKEN` | set by mprun | shared secret, 2 to 64 hexadecimal digits; connections without it are turned away |
//! | `MP_GPU` | set by mprun | the device that the launcher chose for this rank |
//! | `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` | set by torchrun | the same, for `env` |
//! | `TORCHELASTIC_USE_AGENT_STORE`, `TORCHELASTIC_RUN_ID` | set by torchrun | if the first is `True`, torchrun itself listens on `MASTER_PORT` and rank 0 takes the port above it; the second names the job |
//! | `PMIX_RANK`, `PMIX_NAMESPACE` | set by mpirun, srun | there is a PMIx server |
//! | `PMI_SIZE`, `OMPI_COMM_WORLD_SIZE`, `SLURM_STEP_NUM_TASKS` | set by launchers | only to refuse running several times alone by mistake |
//!
//! A variable that is set to the empty string counts as not set.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use gdsync::path::PathChoice;
use gdsync::verbs::{PortChoice, RdmaOptions, ZeroCopy};

use crate::bootstrap::tcp;
use crate::build_info::BuildInfo;
use crate::control::handshake::NODE_MAX;
use crate::error::{Error, Result};

/// The names of all environment variables that the crate reads; the table is in the documentation of this module.
pub const VARIABLES: &[&str] = &[
    "MP_BOOTSTRAP",
    "MP_TIMEOUT",
    "MP_INIT_TIMEOUT",
    "MP_HEARTBEAT",
    "MP_HEARTBEAT_TIMEOUT",
    "MP_INTERFACE",
    "MP_NODE",
    "MP_PATH",
    "MP_CONTEXTS",
    "MP_NIC_DEVICE",
    "MP_NIC_PORT",
    "MP_NIC_GID_INDEX",
    "MP_NIC_PKEY",
    "MP_NIC_SERVICE_LEVEL",
    "MP_NIC_TRAFFIC_CLASS",
    "MP_NIC_ZERO_COPY",
    "MP_PMIX_LIBRARY",
    "MP_TRACE",
    "MP_TRACE_EVENTS",
    "MP_RANK",
    "MP_SIZE",
    "MP_LOCAL_RANK",
    "MP_LOCAL_SIZE",
    "MP_RENDEZVOUS",
    "MP_RENDEZVOUS_FD",
    "MP_JOB",
    "MP_TOKEN",
    "MP_GPU",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RUN_ID",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
    "PMI_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "SLURM_STEP_NUM_TASKS",
];

/// How ranks find each other.
///
/// ```
/// assert_eq!("mprun".parse(), Ok(libmp::Bootstrap::Mprun));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bootstrap {
    /// The first of `mprun`, `env`, `pmix` (or `mpi`, if MPI is initialised) and `alone` for which there are signs.
    Auto,
    /// The variables of `mprun`: `MP_RANK`, `MP_SIZE`, `MP_RENDEZVOUS`, ….
    Mprun,
    /// The variables of `torchrun`: `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`, ….
    Env,
    /// A PMIx server: `mpirun` of Open MPI, `srun --mpi=pmix`.
    Pmix,
    /// `MPI_COMM_WORLD` (feature `mpi`).
    Mpi,
    /// One rank.
    Alone,
}

impl FromStr for Bootstrap {
    type Err = ();

    fn from_str(text: &str) -> Result<Bootstrap, ()> {
        Ok(match text {
            "auto" => Bootstrap::Auto,
            "mprun" => Bootstrap::Mprun,
            "env" => Bootstrap::Env,
            "pmix" => Bootstrap::Pmix,
            "mpi" => Bootstrap::Mpi,
            "alone" => Bootstrap::Alone,
            _ => return Err(()),
        })
    }
}

/// What a world is made from: the environment, read once, and what a program may change of it.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::{Bootstrap, Config, World};
///
/// # fn main() -> libmp::Result<()> {
/// let mut config = Config::from_env()?;
/// config.timeout = Duration::from_secs(30);
/// config.bootstrap = Bootstrap::Alone;
/// let world = World::with_config(&config)?;
/// # world.finish()
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// `MP_BOOTSTRAP`.
    pub bootstrap: Bootstrap,
    /// `MP_TIMEOUT`.
    pub timeout: Duration,
    /// `MP_INIT_TIMEOUT`.
    pub init_timeout: Duration,
    /// `MP_HEARTBEAT`.
    pub heartbeat: Duration,
    /// `MP_HEARTBEAT_TIMEOUT`.
    pub heartbeat_timeout: Duration,
    /// `MP_INTERFACE`.
    pub interface: Option<String>,
    /// `MP_NODE`.
    pub node: Option<String>,
    /// `MP_PATH`.
    pub path: PathChoice,
    /// `MP_CONTEXTS`.
    pub contexts: Option<u32>,
    /// `MP_NIC_DEVICE`, `MP_NIC_PORT`, `MP_NIC_GID_INDEX`, `MP_NIC_PKEY`, `MP_NIC_SERVICE_LEVEL`, `MP_NIC_TRAFFIC_CLASS` and
    /// `MP_NIC_ZERO_COPY`.
    pub rdma: RdmaOptions,
    /// `MP_PMIX_LIBRARY`.
    pub pmix_library: Option<PathBuf>,
    /// `MP_TRACE`.
    pub trace: Option<PathBuf>,
    /// `MP_TRACE_EVENTS`.
    pub trace_events: usize,
    /// What all ranks must have been built from. A program may append its own revision.
    pub build: BuildInfo,
    /// The launchers' variables, as they are.
    pub(crate) variables: Variables,
}

/// Names the library of a tool for NVTX; not of this project, see `trace::nvtx`.
pub(crate) const NVTX_TOOL: &str = "NVTX_INJECTION64_PATH";

/// What [`NVTX_TOOL`] says. It is the process's, as the tool is, not a world's.
pub(crate) fn nvtx_tool() -> Option<std::ffi::OsString> {
    std::env::var_os(NVTX_TOOL).filter(|path| !path.is_empty())
}

impl Config {
    /// Reads the environment of the process.
    ///
    /// # Errors
    /// [`Error::Variable`] naming the variable, its value and what it may be.
    pub fn from_env() -> Result<Config> {
        Config::from_variables(VARIABLES.iter().filter_map(|&name| {
            // A value that is not UTF-8 is kept, so that the error can show it.
            std::env::var_os(name).map(|value| (name, value.to_string_lossy().into_owned()))
        }))
    }

    /// Reads the given variables and nothing else, as if they were the environment: several ranks in one process, tests.
    ///
    /// # Errors
    /// As [`Config::from_env`].
    pub fn from_variables<N: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Config> {
        let mut variables: BTreeMap<String, String> =
            variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        variables.retain(|_, value| !value.is_empty());
        let variables = Variables(variables);
        let config = Config {
            bootstrap: variables
                .parse("MP_BOOTSTRAP", "auto, mprun, env, pmix, mpi or alone")?
                .unwrap_or(Bootstrap::Auto),
            timeout: variables.seconds("MP_TIMEOUT", 300.0)?,
            init_timeout: variables.seconds("MP_INIT_TIMEOUT", 60.0)?,
            heartbeat: variables.seconds("MP_HEARTBEAT", 0.5)?,
            heartbeat_timeout: variables.seconds("MP_HEARTBEAT_TIMEOUT", 10.0)?,
            interface: variables.get("MP_INTERFACE").map(str::to_owned),
            node: variables.get("MP_NODE").map(str::to_owned),
            path: variables.parse("MP_PATH", EXPECTED_PATH)?.unwrap_or_default(),
            contexts: variables.parse("MP_CONTEXTS", EXPECTED_CONTEXTS)?,
            rdma: variables.rdma()?,
            pmix_library: variables.get("MP_PMIX_LIBRARY").map(PathBuf::from),
            trace: variables.get("MP_TRACE").map(PathBuf::from),
            trace_events: variables
                .parse("MP_TRACE_EVENTS", "a number of events")?
                .unwrap_or(crate::trace::EVENTS),
            build: BuildInfo::current(),
            variables,
        };
        // Also what this start does not use: a value that makes no sense is a mistake wherever it stands.
        crate::bootstrap::check_launchers(&config.variables)?;
        if config.trace_events > MAX_EVENTS {
            return Err(Error::Variable {
                name: "MP_TRACE_EVENTS".into(),
                value: config.trace_events.to_string(),
                expected: format!("at most {MAX_EVENTS}"),
            });
        }
        check_contexts(config.contexts)?;
        if let Some(node) = config.node.as_ref().filter(|node| node.len() > NODE_MAX) {
            return Err(Error::Variable {
                name: "MP_NODE".into(),
                value: node.clone(),
                expected: format!("at most {NODE_MAX} bytes"),
            });
        }
        if config.heartbeat_timeout < 2 * config.heartbeat {
            return Err(Error::Variable {
                name: "MP_HEARTBEAT_TIMEOUT".into(),
                value: config.heartbeat_timeout.as_secs_f64().to_string(),
                expected: format!("at least twice MP_HEARTBEAT={}", config.heartbeat.as_secs_f64()),
            });
        }
        Ok(config)
    }

    /// Looks whether what this names is there on this machine, also where nothing makes use of it in the end: who names it
    /// means it. Every start of a world does; programs that may start none call it themselves.
    ///
    /// # Errors
    /// [`Error::Interface`] and [`Error::Variable`].
    pub fn check(&self) -> Result<()> {
        check_contexts(self.contexts)?;
        if self.interface.is_some() {
            tcp::local_address(self.interface.as_deref(), false)?;
        }
        if let Some(name) = &self.rdma.device {
            gdsync::verbs::device(Some(name)).map_err(|error| Error::Variable {
                name: "MP_NIC_DEVICE".into(),
                value: name.clone(),
                expected: format!("the name of an RDMA device ({error})"),
            })?;
        }
        match &self.pmix_library {
            Some(path) if !path.is_file() => Err(Error::Variable {
                name: "MP_PMIX_LIBRARY".into(),
                value: path.to_string_lossy().into_owned(),
                expected: "the path of a library".into(),
            }),
            _ => Ok(()),
        }
    }
}

fn check_contexts(contexts: Option<u32>) -> Result<()> {
    match contexts {
        Some(count) if !(1..=MAX_CONTEXTS).contains(&count) => Err(Error::Variable {
            name: "MP_CONTEXTS".into(),
            value: count.to_string(),
            expected: EXPECTED_CONTEXTS.into(),
        }),
        _ => Ok(()),
    }
}

/// A snapshot of the variables in the table above, with parsers that name what they refuse.
#[derive(Debug, Clone, Default)]
pub(crate) struct Variables(BTreeMap<String, String>);

impl Variables {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(crate) fn required(&self, name: &str, because: &str) -> Result<&str> {
        self.get(name)
            .ok_or_else(|| Error::MissingVariable { name: name.into(), because: because.into() })
    }

    pub(crate) fn parse<T: FromStr>(&self, name: &str, expected: &str) -> Result<Option<T>> {
        self.get(name)
            .map(|value| {
                value.trim().parse().map_err(|_| Error::Variable {
                    name: name.into(),
                    value: value.into(),
                    expected: expected.into(),
                })
            })
            .transpose()
    }

    /// A rank or a number of ranks.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u32>> {
        self.parse(name, "a number from 0 to 4294967295")
    }

    /// An error if `name` is set and `other` is not, without which it says nothing.
    pub(crate) fn without(&self, name: &str, other: &str) -> Result<()> {
        match self.get(name) {
            Some(_) => self.required(other, &format!("{name} is")).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Which RDMA device and port, and what its packets carry.
    fn rdma(&self) -> Result<RdmaOptions> {
        let number = |name: &str, least: u16, most: u16, expected: &str| match self
            .parse::<Number>(name, expected)?
        {
            Some(Number(value)) if !(least..=most).contains(&value) => Err(Error::Variable {
                name: name.into(),
                value: self.get(name).unwrap_or_default().into(),
                expected: expected.into(),
            }),
            value => Ok(value.map(|Number(value)| value)),
        };
        let byte = |value: u16| value.to_be_bytes()[1];
        let port = number("MP_NIC_PORT", 1, 255, "a port from 1 to 255")?;
        let gid_index = number("MP_NIC_GID_INDEX", 0, 255, "an index from 0 to 255")?;
        let pkey = number("MP_NIC_PKEY", 1, 0xffff, "a partition key from 0x1 to 0xffff")?;
        let service_level = number("MP_NIC_SERVICE_LEVEL", 0, 15, "a service level from 0 to 15")?;
        let traffic_class =
            number("MP_NIC_TRAFFIC_CLASS", 0, 255, "a traffic class from 0 to 255")?;
        let port = PortChoice {
            port: port.map(byte),
            gid_index: gid_index.map(u32::from),
            pkey,
            service_level: service_level.map_or(0, byte),
            traffic_class: traffic_class.map_or(0, byte),
        };
        let zero_copy = match self.get("MP_NIC_ZERO_COPY") {
            None | Some("on") => ZeroCopy::On,
            Some("off") => ZeroCopy::Off,
            Some("staged") => ZeroCopy::Staged,
            Some("all") => ZeroCopy::All,
            Some(value) => {
                return Err(Error::Variable {
                    name: "MP_NIC_ZERO_COPY".into(),
                    value: value.into(),
                    expected: "off, staged, on or all".into(),
                });
            }
        };
        Ok(RdmaOptions { device: self.get("MP_NIC_DEVICE").map(str::to_owned), port, zero_copy })
    }

    fn seconds(&self, name: &str, default: f64) -> Result<Duration> {
        let seconds: f64 = self.parse(name, EXPECTED_SECONDS)?.unwrap_or(default);
        if !(MIN_SECONDS..=MAX_SECONDS).contains(&seconds) {
            return Err(Error::Variable {
                name: name.into(),
                value: self.get(name).unwrap_or_default().into(),
                expected: EXPECTED_SECONDS.into(),
            });
        }
        Ok(Duration::from_secs_f64(seconds))
    }
}

const EXPECTED_PATH: &str = "auto, nic, nic-tcp or nic-verbs";
/// A number of at most 16 bits, decimal or, after `0x`, hexadecimal.
struct Number(u16);

impl FromStr for Number {
    type Err = ();

    fn from_str(text: &str) -> Result<Number, ()> {
        let value = match text.strip_prefix("0x") {
            Some(digits) if !digits.starts_with('+') => u16::from_str_radix(digits, 16),
            _ => text.parse(),
        };
        value.map(Number).map_err(|_| ())
    }
}

/// What a rank keeps of a timeline fits into memory.
const MAX_EVENTS: usize = 1_000_000_000;
const MAX_CONTEXTS: u32 = 64;
const EXPECTED_CONTEXTS: &str = "a number of queue pairs from 1 to 64";
const MIN_SECONDS: f64 = 0.001;
const MAX_SECONDS: f64 = 31_536_000.0;
const EXPECTED_SECONDS: &str = "a number of seconds between 0.001 and 31536000 (a year)";

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<Config> {
        Config::from_variables(variables.iter().copied())
    }

    #[test]
    fn nothing_set_gives_the_defaults_of_the_table() {
        let config = from(&[]).unwrap();
        assert_eq!(config.bootstrap, Bootstrap::Auto);
        assert_eq!(config.timeout, Duration::from_secs(300));
        assert_eq!(config.heartbeat, Duration::from_millis(500));
        for row in [
            "| `MP_TIMEOUT` | `300` |",
            "| `MP_INIT_TIMEOUT` | `60` |",
            "| `MP_HEARTBEAT` | `0.5` |",
        ] {
            assert!(include_str!("config.rs").contains(row), "the table lacks {row}");
        }
    }

    #[test]
    fn every_variable_is_in_the_table_of_the_documentation() {
        let table: Vec<&str> =
            include_str!("config.rs").lines().filter(|line| line.starts_with("//! |")).collect();
        for name in VARIABLES {
            let name = format!("`{name}`");
            assert!(table.iter().any(|row| row.contains(&name)), "{name} is not in the table");
        }
    }

    #[test]
    fn a_value_that_cannot_be_used_is_named_with_what_was_expected() {
        for (name, value, expected) in [
            ("MP_TIMEOUT", "soon", "a number of seconds"),
            ("MP_TIMEOUT", "0", "a number of seconds"),
            ("MP_TIMEOUT", "inf", "a number of seconds"),
            ("MP_TIMEOUT", "nan", "a number of seconds"),
            ("MP_BOOTSTRAP", "magic", "auto, mprun"),
            ("MP_PATH", "direct", "auto, nic, nic-tcp or nic-verbs"),
            ("MP_CONTEXTS", "0", "from 1 to 64"),
            ("MP_CONTEXTS", "65", "from 1 to 64"),
            ("MP_NIC_PORT", "0", "from 1 to 255"),
            ("MP_NIC_GID_INDEX", "256", "from 0 to 255"),
            ("MP_NIC_PKEY", "0x10000", "from 0x1 to 0xffff"),
            ("MP_NIC_PKEY", "0x+1", "from 0x1 to 0xffff"),
            ("MP_NIC_SERVICE_LEVEL", "16", "from 0 to 15"),
            ("MP_NIC_TRAFFIC_CLASS", "-1", "from 0 to 255"),
            ("MP_NIC_ZERO_COPY", "yes", "off, staged, on or all"),
            ("MP_HEARTBEAT_TIMEOUT", "0.6", "at least twice MP_HEARTBEAT=0.5"),
        ] {
            let text = from(&[(name, value)]).unwrap_err().to_string();
            assert!(
                text.contains(name) && text.contains(value) && text.contains(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn the_port_of_an_rdma_device_and_what_its_packets_carry_can_be_chosen() {
        let config = from(&[
            ("MP_NIC_DEVICE", "mlx5_2"),
            ("MP_NIC_PORT", "2"),
            ("MP_NIC_GID_INDEX", "3"),
            ("MP_NIC_PKEY", "0x8001"),
            ("MP_NIC_SERVICE_LEVEL", "4"),
            ("MP_NIC_TRAFFIC_CLASS", "104"),
            ("MP_NIC_ZERO_COPY", "staged"),
        ])
        .unwrap();
        let port = PortChoice {
            port: Some(2),
            gid_index: Some(3),
            pkey: Some(0x8001),
            service_level: 4,
            traffic_class: 104,
        };
        let (device, zero_copy) = (Some("mlx5_2".into()), ZeroCopy::Staged);
        assert_eq!(config.rdma, RdmaOptions { device, port, zero_copy });
        assert_eq!(from(&[]).unwrap().rdma, RdmaOptions::default());
    }

    #[test]
    fn an_empty_variable_counts_as_not_set() {
        assert_eq!(from(&[("MP_TIMEOUT", "")]).unwrap().timeout, Duration::from_secs(300));
    }
}
