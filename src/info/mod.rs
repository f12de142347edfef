//! What `mp-info` finds out about this machine: GPUs, the links between them, RDMA devices, launchers, and the path that
//! bytes would take between each pair of places. Facts are gathered here; [`text`] writes them for people, and [`doctor`] says
//! what is wrong with them.

pub mod doctor;
mod environment;
mod gpus;
mod machine;
pub mod paths;
pub mod probe;
pub mod text;
mod verbs;

use serde::Serialize;

pub use environment::{Environment, Program, Variable};
pub use gpus::{Check, Gpu, Gpus, Link};
pub use machine::Machine;
pub use verbs::{RdmaDevice, RdmaDevices, RdmaPort};

use crate::BUILD;
use doctor::{Diagnosis, Facts};

/// All that was found out.
#[derive(Debug, Serialize)]
pub struct Report {
    /// What this program was built from.
    pub build: Build,
    /// The machine.
    pub machine: Machine,
    /// The CUDA driver and its GPUs.
    pub gpus: Gpus,
    /// RDMA devices.
    pub rdma: RdmaDevices,
    /// Launchers and process managers.
    pub environment: Environment,
    /// The path between each pair of places, first the places of this machine, then to another one.
    pub paths: Vec<paths::Route>,
    /// What is wrong, and what mends it.
    pub diagnosis: Diagnosis,
}

/// What this program was built from.
#[derive(Debug, Serialize)]
pub struct Build {
    /// Package version.
    pub version: &'static str,
    /// Git revision.
    pub revision: &'static str,
    /// The nvcc that compiled the GPU code; null without GPU code.
    pub nvcc: Option<&'static str>,
    /// What the GPU code was compiled for.
    pub architectures: &'static [&'static str],
}

impl Report {
    /// Looks at this machine. What is missing is part of the report, not an error.
    pub fn collect() -> Report {
        let gpus = Gpus::collect();
        let rdma = RdmaDevices::collect(&gpus);
        let paths = paths::all(&gpus, &rdma);
        Report {
            build: Build {
                version: BUILD.version,
                revision: BUILD.revision,
                nvcc: mp_kernels::BUILD.nvcc,
                architectures: mp_kernels::BUILD.architectures,
            },
            machine: Machine::collect(),
            gpus,
            rdma,
            environment: Environment::collect(),
            paths,
            diagnosis: Diagnosis::of(&Facts::here()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_machine_can_be_reported_on_and_says_what_is_missing() {
        let report = Report::collect();
        let text = text::render(&report);
        if report.gpus.devices.is_empty() {
            assert!(text.contains(report.gpus.missing.as_deref().unwrap_or("?")), "{text}");
        }
        assert!(text.contains("shared memory"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["build"]["version"], BUILD.version);
        assert!(json["machine"]["cores"].as_u64().unwrap() > 0);
    }
}
