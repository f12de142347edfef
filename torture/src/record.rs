//! The file of a run of the suite.

use std::fmt;

use anyhow::{Context, Result};
use mp::info::Machine;
use serde::{Deserialize, Serialize};

use crate::fault::{Fault, Phase, Workload};

/// The version of the file format.
pub const FORMAT: u32 = 1;

/// What one job came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub fault: Fault,
    pub phase: Phase,
    pub workload: Workload,
    pub victim: usize,
    pub seed: u64,
    /// Ranks that were there to report the cause, and those that did.
    pub survivors: usize,
    pub reports: usize,
    /// Seconds from the fault to the last report.
    pub slowest: Option<f64>,
    /// Seconds from the fault to the end of the last process.
    pub over: Option<f64>,
    /// It ended in order with the right result.
    pub right: bool,
    pub wrong: bool,
    pub hung: bool,
    /// Processes left, and names or sockets.
    pub orphans: usize,
    pub leaks: usize,
    /// Seconds for which the supervisor, which looks every millisecond, did not come to look.
    pub stalled: f64,
    /// The next job, without a fault, ran.
    pub next_runs: bool,
    /// Everything that should have been otherwise.
    pub problems: Vec<String>,
}

/// What was run, when and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    pub command: String,
    /// When it began, UTC.
    pub date: String,
    pub build: String,
    pub processor: String,
    pub cores: usize,
    pub kernel: String,
}

impl Origin {
    /// This program, now, on this machine.
    pub fn here() -> Origin {
        let machine = Machine::collect();
        Origin {
            command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
            date: now(),
            build: build(),
            processor: machine.processor,
            cores: machine.cores,
            kernel: machine.kernel,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Origin { command, date, build, processor, cores, kernel } = self;
        write!(
            f,
            "on {date}: `mp-torture {command}`, {build}, {processor}, {cores} cores, Linux {kernel}"
        )
    }
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub format: u32,
    #[serde(flatten)]
    pub origin: Origin,
    pub ranks: usize,
    /// Seconds of silence that were borne, and that a start waited.
    pub silence: f64,
    pub init: f64,
    pub minutes: f64,
    pub runs: Vec<Run>,
    /// Runs that went wrong while the machine stood still for this process; they were done again.
    pub void: Vec<Run>,
}

impl Record {
    /// A record of this machine, without runs.
    pub fn begin(ranks: usize) -> Record {
        Record {
            format: FORMAT,
            origin: Origin::here(),
            ranks,
            silence: crate::job::SILENCE,
            init: crate::job::INIT,
            minutes: 0.0,
            runs: Vec::new(),
            void: Vec::new(),
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// If the text is none, or of another format.
    pub fn read(text: &str) -> Result<Record> {
        let record: Record =
            serde_json::from_str(text).context("this is no file of mp-torture faults")?;
        anyhow::ensure!(record.format == FORMAT, "format {}, expected {FORMAT}", record.format);
        Ok(record)
    }
}

/// What this program was built from.
pub fn build() -> String {
    mp::version_string().lines().next().unwrap_or_default().to_owned()
}

/// UTC, to the minute.
pub fn now() -> String {
    let now = jiff::Timestamp::now();
    jiff::fmt::strtime::format("%Y-%m-%d %H:%M UTC", now).unwrap_or_else(|_| now.to_string())
}
