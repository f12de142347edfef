//! `mp-perf`: measures what communication costs here, with the floor beside it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use mp_bench::result::Results;
use mp_bench::{report, signal};

#[derive(Parser)]
#[command(name = "mp-perf", version, about = "Measures what communication costs on this machine")]
struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// A signal between two kernels, beside the same in bare PTX.
    Signal {
        /// The two GPUs, FIRST:SECOND; may be the same. Default: 0:0, and 0:1 if there are two.
        #[arg(long, value_parser = pair)]
        pair: Vec<(u32, u32)>,
        /// Rounds timed in each repeat.
        #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
        rounds: u64,
        /// Repeats of each player.
        #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        repeats: u32,
        /// Write the figures to this file.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// One page from the results of runs (files written by --json).
    Report {
        /// The results.
        #[arg(required = true)]
        results: Vec<PathBuf>,
        /// Write the page, one HTML file, here.
        #[arg(short, long, default_value = "report.html")]
        output: PathBuf,
        /// Write each figure into this folder as SVG and PNG, too.
        #[arg(long)]
        images: Option<PathBuf>,
        /// Write the tables into this file as Markdown, too.
        #[arg(long)]
        markdown: Option<PathBuf>,
    },
}

fn pair(text: &str) -> Result<(u32, u32), String> {
    let parsed = text.split_once(':').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    parsed.ok_or_else(|| format!("{text:?} is not of the form FIRST:SECOND, for example 0:1"))
}

fn main() -> Result<()> {
    match Options::parse().what {
        What::Signal { pair, rounds, repeats, json } => {
            let mut pairs = pair;
            if pairs.is_empty() {
                pairs.push((0, 0));
                if gdsync::CudaDevice::count()? > 1 {
                    pairs.push((0, 1));
                }
            }
            let mut all = Vec::new();
            for (first, second) in pairs {
                all.push(signal::measure(first, second, rounds, repeats as usize)?);
            }
            print_signals(&all);
            if let Some(path) = json {
                let text = serde_json::to_string_pretty(&all)?;
                std::fs::write(&path, text)
                    .with_context(|| format!("writing {}", path.display()))?;
            }
            Ok(())
        }
        What::Report { results, output, images, markdown } => {
            let runs =
                results.iter().map(|path| Results::read(path)).collect::<Result<Vec<_>>>()?;
            write(&output, &report::page(&runs)?)?;
            if let Some(folder) = images {
                for name in report::images(&runs, &folder)? {
                    println!("wrote {}.svg and .png", folder.join(name).display());
                }
            }
            if let Some(path) = markdown {
                let files: Vec<_> = results.iter().map(|path| path.display().to_string()).collect();
                let command =
                    format!("mp-perf report {} --markdown {}", files.join(" "), path.display());
                write(&path, &report::markdown(&runs, &command))?;
            }
            Ok(())
        }
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}

fn print_signals(all: &[signal::Figures]) {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(["pair", "link", "player", "one way, µs (median)", "min", "max", "over bare"]);
    for figures in all {
        for player in &figures.players {
            let spread = player.one_way_us;
            let number =
                |value: f64| Cell::new(format!("{value:.3}")).set_alignment(CellAlignment::Right);
            table.add_row([
                Cell::new(&figures.pair),
                Cell::new(&figures.link),
                Cell::new(player.name),
                number(spread.median),
                number(spread.min),
                number(spread.max),
                number(player.over_bare),
            ]);
        }
    }
    println!("{table}");
    if let Some(figures) = all.first() {
        let repeats = figures.players.first().map_or(0, |player| player.one_way_us.count);
        println!(
            "one thread a side; {} rounds a repeat, {repeats} repeats, players interleaved; GPU clock of the serving side",
            figures.rounds
        );
    }
}
