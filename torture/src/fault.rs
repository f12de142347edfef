//! The faults, the phases, the workloads, and what must come of each. Data only.

use serde::{Deserialize, Serialize};

/// What is done to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A rank gets SIGKILL.
    Killed,
    /// A rank is stopped for longer than its silence is borne.
    Stopped,
    /// A rank is stopped for less, and goes on.
    Paused,
    /// A rank exits with 0 in the midst of it.
    Left,
    /// A rank panics.
    Panicked,
    /// A rank may not have enough memory to start.
    NoMemory,
    /// The connection of a rank to rank 0 is closed.
    Cut,
    /// The connection of a rank to rank 0 carries nothing any more, and stays open.
    HalfOpen,
    /// The connection of a rank to rank 0 is slow and gives bytes in pieces.
    Slow,
    /// A rank exits before it has looked for the others.
    Missing,
    /// Rank 0 cannot listen where the others look for it.
    PortTaken,
    /// Strangers connect to rank 0 and send nonsense, wrong secrets, or nothing.
    Strangers,
    /// The results are written to a device that is full.
    DiskFull,
    /// mprun gets SIGKILL.
    LauncherKilled,
}

/// When.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Start,
    Middle,
    Finish,
}

/// To what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// A message storm whose operations the host starts.
    StormHost,
    /// A message storm whose operations host streams start.
    StormStream,
    /// A message storm of threads of one process, of both forms.
    StormThreads,
    /// HPGMG-FV, messages started by the host.
    Hpgmg,
}

/// What must come of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The job ends in order with the right result.
    Right,
    /// Every survivor names the victim.
    Named,
    /// As `Named`; the victim itself, which lives, names rank 0.
    NamedBothWays,
    /// Either of `Right` and `Named`: it depends on how far the victim got.
    NamedOrRight,
    /// The job fails and says the name of the file.
    FileNamed,
    /// Nothing is said by anybody who is still there to hear it, but everything ends.
    Gone,
}

impl Fault {
    pub const ALL: [Fault; 14] = [
        Fault::Killed,
        Fault::Stopped,
        Fault::Paused,
        Fault::Left,
        Fault::Panicked,
        Fault::NoMemory,
        Fault::Cut,
        Fault::HalfOpen,
        Fault::Slow,
        Fault::Missing,
        Fault::PortTaken,
        Fault::Strangers,
        Fault::DiskFull,
        Fault::LauncherKilled,
    ];

    /// As it stands in the table.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Killed => "kill −9 of a rank",
            Fault::Stopped => "SIGSTOP, longer than the limit",
            Fault::Paused => "SIGSTOP, shorter than the limit",
            Fault::Left => "exit without finish",
            Fault::Panicked => "panic",
            Fault::NoMemory => "out of memory at setup",
            Fault::Cut => "connection cut",
            Fault::HalfOpen => "connection half-open",
            Fault::Slow => "connection slow and in pieces",
            Fault::Missing => "rank missing",
            Fault::PortTaken => "port taken",
            Fault::Strangers => "strangers at the door",
            Fault::DiskFull => "disk full",
            Fault::LauncherKilled => "kill −9 of mprun",
        }
    }

    pub fn expected(self) -> Expected {
        match self {
            Fault::Killed | Fault::Stopped | Fault::Left | Fault::Panicked => Expected::Named,
            Fault::Missing | Fault::PortTaken => Expected::Named,
            Fault::Cut | Fault::HalfOpen => Expected::NamedBothWays,
            Fault::Paused | Fault::Slow | Fault::Strangers => Expected::Right,
            Fault::NoMemory => Expected::NamedOrRight,
            Fault::DiskFull => Expected::FileNamed,
            Fault::LauncherKilled => Expected::Gone,
        }
    }

    /// The phases in which it can be: some faults are there from the beginning, some only at the end.
    pub fn phases(self) -> &'static [Phase] {
        match self {
            Fault::NoMemory | Fault::Missing | Fault::PortTaken => &[Phase::Start],
            Fault::Slow | Fault::Strangers => &[Phase::Start],
            Fault::DiskFull => &[Phase::Finish],
            Fault::LauncherKilled => &[Phase::Start, Phase::Middle],
            _ => &[Phase::Start, Phase::Middle, Phase::Finish],
        }
    }

    /// Whether it can be done to that workload: a program of others does not panic or leave on request, and threads have
    /// no process of their own, no connection and no launcher.
    pub fn applies(self, workload: Workload) -> bool {
        match workload {
            Workload::StormHost | Workload::StormStream => true,
            Workload::StormThreads => {
                matches!(self, Fault::Left | Fault::Panicked | Fault::DiskFull)
            }
            Workload::Hpgmg => !matches!(self, Fault::Left | Fault::Panicked),
        }
    }

    /// Whether the victim must be another than rank 0, with which it has the connection.
    pub fn spares_rank_0(self) -> bool {
        matches!(self, Fault::Cut | Fault::HalfOpen | Fault::Slow)
    }
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Start => "start",
            Phase::Middle => "middle",
            Phase::Finish => "finish",
        }
    }
}

impl Workload {
    pub const ALL: [Workload; 4] =
        [Workload::StormHost, Workload::StormStream, Workload::StormThreads, Workload::Hpgmg];

    pub fn name(self) -> &'static str {
        match self {
            Workload::StormHost => "storm, host",
            Workload::StormStream => "storm, streams",
            Workload::StormThreads => "storm, threads",
            Workload::Hpgmg => "HPGMG-FV, host",
        }
    }
}
