//! `mp-info`, the doctor: what this machine has, and which path bytes would take. See [`mp::info`].

use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use mp::info::probe::{self, Probe};
use mp::info::{Report, text};

#[derive(Parser)]
#[command(name = "mp-info", version = mp::version_string(), about = "Shows GPUs, links, NICs, launchers, and the paths between them")]
struct Options {
    /// Write the report as JSON.
    #[arg(long)]
    json: bool,

    /// Run the self-test of every NIC provider instead, step by step. Fails if a step does, or without RDMA hardware.
    #[arg(long)]
    probe_nic: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => mp_program::fail("mp-info", error.as_ref()),
    }
}

fn run(options: &Options) -> Result<()> {
    let (text, verdict) = if options.probe_nic {
        let found = Probe::run();
        let text = if options.json { json(&found)? } else { probe::render(&found) };
        (text, found.verdict().map_err(|sentence| anyhow!(sentence)))
    } else {
        let report = Report::collect();
        (if options.json { json(&report)? } else { text::render(&report) }, Ok(()))
    };
    mp_program::print(&text);
    verdict
}

fn json(report: &impl serde::Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(report).context("writing the report as JSON")? + "\n")
}
