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
    /// The timeline is written to a device that is full.
    TraceFull,
    /// The wall clock of a rank jumps by hours, forwards and back, all the time.
    ClockJumps,
    /// The CUDA driver of a rank fails: on a GPU every call from a moment on, without one its initialisation.
    DriverError,
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
    /// At any moment from the first sign of life of the victim to after the end: `mp-torture kills`.
    Random,
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
    /// A message storm in kernels; processes, without a GPU.
    StormKernels,
    /// The same on a GPU, of threads of one process.
    StormGpu,
    /// A message storm of both forms through the software NIC over shared memory.
    StormNic,
    /// The same through the software NIC over TCP.
    StormTcp,
    /// HPGMG-FV, messages started by the host.
    Hpgmg,
    /// The same through the software NIC over TCP.
    HpgmgTcp,
    /// HPGMG-FV, messages started by host streams.
    HpgmgStream,
    /// The same through the software NIC over shared memory.
    HpgmgStreamNic,
    /// HPGMG-FV, messages in kernels, without a GPU.
    HpgmgKernels,
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
    /// The job ends in order with the right result, and says that the timeline is lost and the name of its file.
    TimelineLost,
    /// Nothing is said by anybody who is still there to hear it, but everything ends.
    Gone,
}

impl Fault {
    pub const ALL: [Fault; 17] = [
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
        Fault::TraceFull,
        Fault::ClockJumps,
        Fault::DriverError,
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
            Fault::DiskFull => "disk full, results",
            Fault::TraceFull => "disk full, timeline",
            Fault::ClockJumps => "wall clock jumps by hours",
            Fault::DriverError => "driver error",
            Fault::LauncherKilled => "kill −9 of mprun",
        }
    }

    /// The class that the summary counts it in.
    pub fn class(self) -> &'static str {
        match self {
            Fault::Killed | Fault::Stopped | Fault::Paused | Fault::Left | Fault::Panicked => {
                "a rank killed, stopped, left, panicked"
            }
            Fault::Cut | Fault::HalfOpen | Fault::Slow => "a connection cut, half-open, slow",
            Fault::Missing | Fault::PortTaken | Fault::Strangers => {
                "a start with a rank missing, the port taken, strangers"
            }
            Fault::NoMemory | Fault::DiskFull | Fault::TraceFull => "memory or a disk full",
            Fault::ClockJumps | Fault::DriverError => "a clock that jumps, a driver that fails",
            Fault::LauncherKilled => "mprun killed",
        }
    }

    pub fn expected(self) -> Expected {
        match self {
            Fault::Killed | Fault::Stopped | Fault::Left | Fault::Panicked => Expected::Named,
            Fault::DriverError => Expected::Named,
            Fault::Missing | Fault::PortTaken => Expected::Named,
            Fault::Cut | Fault::HalfOpen => Expected::NamedBothWays,
            Fault::Paused | Fault::Slow | Fault::Strangers => Expected::Right,
            Fault::ClockJumps => Expected::Right,
            Fault::TraceFull => Expected::TimelineLost,
            Fault::NoMemory => Expected::NamedOrRight,
            Fault::DiskFull => Expected::FileNamed,
            Fault::LauncherKilled => Expected::Gone,
        }
    }

    /// The phases in which it can be: some faults are there from the beginning, some only at the end.
    pub fn phases(self) -> &'static [Phase] {
        match self {
            Fault::NoMemory | Fault::Missing | Fault::PortTaken => &[Phase::Start],
            Fault::Slow | Fault::Strangers | Fault::ClockJumps => &[Phase::Start],
            Fault::DiskFull | Fault::TraceFull => &[Phase::Finish],
            Fault::LauncherKilled => &[Phase::Start, Phase::Middle],
            _ => &[Phase::Start, Phase::Middle, Phase::Finish],
        }
    }

    /// Whether it is done to that workload in that phase. It cannot always be: a program of others does not panic or leave on
    /// request, threads have no process of their own, no connection and no launcher, and only a driver that works fails
    /// later than at the start. Through a NIC the faults are those that its queues and connections notice.
    pub fn applies(self, phase: Phase, workload: Workload) -> bool {
        use Fault::{
            Cut, DiskFull, DriverError, HalfOpen, Killed, Left, Panicked, Paused, Stopped,
            TraceFull,
        };
        match workload {
            Workload::StormHost | Workload::StormStream => self != DriverError,
            Workload::StormThreads => matches!(self, Left | Panicked | DiskFull | TraceFull),
            Workload::StormKernels => {
                matches!(self, Killed | Stopped | Left | Panicked)
                    || (self, phase) == (DriverError, Phase::Start)
            }
            Workload::StormGpu => matches!(self, Left | Panicked | DriverError),
            Workload::StormNic | Workload::StormTcp => {
                matches!(self, Killed | Stopped | Paused | Left | Cut)
                    || (self, workload) == (HalfOpen, Workload::StormTcp)
            }
            Workload::Hpgmg => !matches!(self, Left | Panicked | DriverError),
            Workload::HpgmgTcp => matches!(self, Killed | Stopped | Paused),
            Workload::HpgmgStream | Workload::HpgmgStreamNic | Workload::HpgmgKernels => {
                (self, phase) == (Killed, Phase::Random)
            }
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
            Phase::Random => "any moment",
        }
    }
}

impl Workload {
    pub const ALL: [Workload; 12] = [
        Workload::StormHost,
        Workload::StormStream,
        Workload::StormThreads,
        Workload::StormKernels,
        Workload::StormGpu,
        Workload::StormNic,
        Workload::StormTcp,
        Workload::Hpgmg,
        Workload::HpgmgTcp,
        Workload::HpgmgStream,
        Workload::HpgmgStreamNic,
        Workload::HpgmgKernels,
    ];

    /// As it stands in the table.
    pub fn name(self) -> &'static str {
        match self {
            Workload::StormHost => "storm, host",
            Workload::StormStream => "storm, streams",
            Workload::StormThreads => "storm, threads",
            Workload::StormKernels => "storm, kernels on the CPU",
            Workload::StormGpu => "storm, kernels on a GPU",
            Workload::StormNic => "storm, NIC over shared memory",
            Workload::StormTcp => "storm, NIC over TCP",
            Workload::Hpgmg => "HPGMG-FV, host",
            Workload::HpgmgTcp => "HPGMG-FV, NIC over TCP",
            Workload::HpgmgStream => "HPGMG-FV, streams",
            Workload::HpgmgStreamNic => "HPGMG-FV, streams, NIC over shared memory",
            Workload::HpgmgKernels => "HPGMG-FV, kernels on the CPU",
        }
    }

    /// Whether its ranks are threads of one process, without a launcher.
    pub fn is_threads(self) -> bool {
        matches!(self, Workload::StormThreads | Workload::StormGpu)
    }

    /// Whether it is HPGMG-FV.
    pub fn is_hpgmg(self) -> bool {
        self.comm().is_some()
    }

    /// What HPGMG-FV's messages are started by: its `--comm`.
    pub fn comm(self) -> Option<&'static str> {
        match self {
            Workload::Hpgmg | Workload::HpgmgTcp => Some("host"),
            Workload::HpgmgStream | Workload::HpgmgStreamNic => Some("stream"),
            Workload::HpgmgKernels => Some("kernel"),
            _ => None,
        }
    }

    /// What `MP_PATH` is set to.
    pub fn path(self) -> Option<&'static str> {
        match self {
            Workload::StormNic | Workload::HpgmgStreamNic => Some("nic"),
            Workload::StormTcp | Workload::HpgmgTcp => Some("nic-tcp"),
            _ => None,
        }
    }

    /// Whether it can run on a machine with, or without, a GPU: processes that share one take turns of milliseconds.
    pub fn runs(self, gpu: bool) -> bool {
        match self {
            Workload::StormKernels | Workload::HpgmgKernels => !gpu,
            Workload::StormGpu => gpu,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_done_to_something_in_each_of_its_phases_with_a_gpu_or_without() {
        for fault in Fault::ALL {
            for &phase in fault.phases() {
                let there = |gpu: bool| {
                    Workload::ALL.into_iter().any(|w| w.runs(gpu) && fault.applies(phase, w))
                };
                assert!(there(true), "{} / {}", fault.name(), phase.name());
                // A driver that cannot be initialised fails at the start and no later.
                let only_at_start = fault == Fault::DriverError && phase != Phase::Start;
                assert_eq!(there(false), !only_at_start, "{} / {}", fault.name(), phase.name());
            }
        }
    }
}
