//! `mp-info`, the doctor: what this machine has, and which path bytes would take. See [`mp::info`].

use std::io::Write;

use anyhow::{Context, Result};
use clap::Parser;
use mp::info::{Report, text};

#[derive(Parser)]
#[command(name = "mp-info", version = mp::version_string(), about = "Shows GPUs, links, NICs, launchers, and the paths between them")]
struct Options {
    /// Write the report as JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let report = Report::collect();
    let text = if options.json {
        serde_json::to_string_pretty(&report).context("writing the report as JSON")? + "\n"
    } else {
        text::render(&report)
    };
    std::io::stdout().write_all(text.as_bytes()).context("writing the report")
}
