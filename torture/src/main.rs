//! `mp-torture`: breaks running jobs on purpose and looks whether what libmp promises holds: no hang, no wrong result, the
//! cause named by every survivor, nothing left behind, and the next run works. `tools/torture` starts it.

mod cable;
mod fault;
mod job;
mod kills;
mod leaks;
mod mark;
mod proxy;
mod rank;
mod record;
mod shim;
mod soak;
mod storm;
mod suite;
mod sweep;
mod table;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "mp-torture",
    version,
    about = "Breaks running jobs on purpose and looks what becomes of them"
)]
struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Every fault in every phase of every workload, again and again until the time is over, each at least once.
    Faults(suite::Options),
    /// Kills of ranks at random moments, of all workloads and paths without a GPU.
    Kills(kills::Options),
    /// A message storm against a model. Alone with --threads, or as a rank under mprun.
    Storm(storm::Options),
    /// A storm and solves between two hosts whose cable loses, delays, reorders and duplicates packets and is cut for a
    /// second now and then. Needs root, iproute2 and /dev/net/tun.
    Soak(soak::Options),
    /// HPGMG-FV in every way that its ranks and messages are started, over every path, on one rank to sixteen: each job must
    /// find the bits of one rank.
    Sweep(sweep::Options),
    /// Makes the document from files of `faults`, `kills`, `storm` and `soak`.
    Table {
        /// Files that `--json` of these commands wrote, and logs of tools/fuzz, tools/tsan,
        /// tools/miri, tools/models and of `cargo test -p hpgmg --lib mutation -- --nocapture`.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Write it here.
        #[arg(short)]
        output: PathBuf,
    },
    /// What a rank does before it becomes the program (used by `faults`).
    #[command(hide = true)]
    Rank(rank::Options),
}

fn main() -> ExitCode {
    let result = match Options::parse().what {
        What::Faults(options) => suite::run(&options),
        What::Kills(options) => kills::run(&options),
        What::Storm(options) => storm::run(&options),
        What::Soak(options) => soak::run(&options),
        What::Sweep(options) => sweep::run(&options),
        What::Table { files, output } => table::write(&files, &output).map(|()| 0),
        What::Rank(options) => rank::become_program(&options),
    };
    match result {
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(1)),
        Err(error) => {
            let _ = mp_program::fail("mp-torture", error.as_ref());
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn no_option_takes_what_nobody_means() {
        let (accepted, tried) = mp_program::absurd::accepted(&Options::command());
        assert!(accepted.is_empty() && tried > 50, "{tried} tried, accepted: {accepted:#?}");
    }

    #[test]
    fn a_victim_that_is_none_of_the_ranks_is_refused() {
        let line = ["mp-torture", "storm", "--threads=2", "--victim=7", "--fault=leave"];
        let What::Storm(options) = Options::parse_from(line).what else {
            panic!("another command")
        };
        let error = storm::run(&options).unwrap_err().to_string();
        assert!(error.contains("--victim 7") && error.contains("2 ranks"), "{error}");
    }
}
