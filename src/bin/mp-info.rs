//! `mp-info`, the doctor: what this machine has, which path bytes would take, what is wrong and what mends it. See [`mp::info`].

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use mp::info::doctor::{Diagnosis, Facts};
use mp::info::probe::{self, Probe};
use mp::info::{Report, text};

/// Shows GPUs, links, NICs, launchers and the paths between them; says what is wrong, and the command or setting that mends it.
///
/// A finding is a defect (something that is there cannot work), a warning (it works, but slower, or less of it, than it could) or
/// unknown (it cannot be read here).
///
/// Exit status: 0 without a defect, 1 with one, or if the report cannot be written, 2 for wrong usage.
#[derive(Parser)]
#[command(name = "mp-info", version = mp::version_string())]
struct Options {
    /// Write the report as JSON; the findings are in `diagnosis`.
    #[arg(long)]
    json: bool,

    /// Run the self-test of every NIC provider instead, step by step: what is expected of each, and what was seen. Fails if a
    /// step does, or without RDMA hardware; with =soft only of the software NIC, whose steps are those of hardware. MP_NIC_DEVICE,
    /// MP_NIC_PORT and the other MP_NIC_ variables choose the device and the port
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    probe_nic: Option<Which>,

    /// Examine the machine whose /proc, /sys, /dev and libraries stand below this folder, such as a copy of them or
    /// /proc/PID/root of a container, and write the findings only. Reads files, opens no device and asks no driver. Default:
    /// this machine.
    #[arg(long, value_name = "FOLDER", conflicts_with = "probe_nic", value_parser = folder)]
    root: Option<PathBuf>,
}

/// Which providers are tested.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Which {
    /// Every one.
    All,
    /// The software NIC.
    Soft,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(status) => status,
        Err(error) => mp_program::fail("mp-info", error.as_ref()),
    }
}

fn run(options: &Options) -> Result<ExitCode> {
    if let Some(which) = options.probe_nic {
        let found = match which {
            Which::All => {
                let config = libmp::Config::from_env()?;
                Probe::run(config.rdma.device.as_deref(), &config.rdma.port)
            }
            Which::Soft => Probe::of_software(),
        };
        mp_program::print(&if options.json { json(&found)? } else { probe::render(&found) });
        found.verdict().map_err(|sentence| anyhow!(sentence))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (text, defective) = match &options.root {
        Some(root) => {
            let found = Diagnosis::of(&Facts::below(root));
            let text = if options.json {
                json(&serde_json::json!({ "diagnosis": &found }))?
            } else {
                found.render()
            };
            (text, found.defective())
        }
        None => {
            let report = Report::collect();
            let text = if options.json { json(&report)? } else { text::render(&report) };
            (text, report.diagnosis.defective())
        }
    };
    mp_program::print(&text);
    Ok(ExitCode::from(u8::from(defective)))
}

fn folder(text: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(text);
    if path.is_dir() { Ok(path) } else { Err("expected a folder that exists") }
}

fn json(report: &impl serde::Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(report).context("writing the report as JSON")? + "\n")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn no_option_takes_what_nobody_means() {
        let (accepted, tried) = mp_program::absurd::accepted(&Options::command());
        assert!(accepted.is_empty() && tried > 10, "{tried} tried, accepted: {accepted:#?}");
    }
}
