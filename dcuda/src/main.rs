//! `dcuda`: the programs of the dCUDA paper (Gysi, Bär, Hoefler, SC16) on device ranks. Each compares its results with a serial run before it
//! measures, and runs in a form that the host drives by streams and prepared messages, too.

mod halo;
mod kernels;
mod machine;
mod matrix;
mod overlap;
mod particles;
mod pingpong;
mod stencil;
mod table;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use machine::Plan;
use mp_program::outln;

#[derive(Parser)]
#[command(name = "dcuda", version, about = "The programs of the dCUDA paper on device ranks")]
struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Horizontal diffusion of COSMO: four stencils, three phases, each followed by an exchange.
    Stencil {
        #[command(flatten)]
        plan: Plan,
        #[command(flatten)]
        sizes: stencil::Sizes,
    },
    /// A computation and an exchange, each alone and both: how much is hidden.
    Overlap {
        #[command(flatten)]
        plan: Plan,
        #[command(flatten)]
        choices: overlap::Choices,
    },
    /// What ranks that wait cost those that compute: one of eight computes.
    Waiting {
        #[command(flatten)]
        plan: Plan,
        #[command(flatten)]
        choices: overlap::Choices,
    },
    /// Notified puts back and forth: one way times and rates.
    Pingpong {
        #[command(flatten)]
        plan: Plan,
        #[command(flatten)]
        messages: pingpong::Messages,
    },
    /// Particles in cells that push each other away at short range.
    Particles {
        #[command(flatten)]
        plan: Plan,
        #[command(flatten)]
        sizes: particles::Sizes,
    },
    /// A sparse matrix times a vector, and a barrier.
    Spmv {
        #[command(flatten)]
        plan: Plan,
        #[command(flatten)]
        sizes: matrix::Sizes,
    },
}

impl What {
    fn plan(&self) -> &Plan {
        match self {
            What::Stencil { plan, .. }
            | What::Overlap { plan, .. }
            | What::Waiting { plan, .. }
            | What::Pingpong { plan, .. }
            | What::Particles { plan, .. }
            | What::Spmv { plan, .. } => plan,
        }
    }
}

fn main() -> ExitCode {
    match run(&Options::parse().what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => mp_program::fail("dcuda", error.as_ref()),
    }
}

fn run(what: &What) -> Result<()> {
    let plan = what.plan();
    if let Some(path) = &plan.json {
        mp_program::can_be_written(path)?;
    }
    let lines = match what {
        What::Stencil { plan, sizes } => stencil::run(plan, sizes)?,
        What::Overlap { plan, choices } => overlap::run(plan, choices)?,
        What::Waiting { plan, choices } => overlap::waiting(plan, choices)?,
        What::Pingpong { plan, messages } => pingpong::run(plan, messages)?,
        What::Particles { plan, sizes } => particles::run(plan, sizes)?,
        What::Spmv { plan, sizes } => matrix::run(plan, sizes)?,
    };
    if let Some(path) = &plan.json {
        mp_program::write(path, serde_json::to_string_pretty(&lines)?)?;
    }
    outln!("{}", table::table(&lines));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn no_option_takes_a_value_that_nobody_means() {
        let (accepted, tried) = mp_program::absurd::accepted(&Options::command());
        assert!(accepted.is_empty(), "{accepted:?}");
        assert!(tried > 50);
    }
}
