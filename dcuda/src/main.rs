//! `dcuda`: the programs of the dCUDA paper (Gysi, Bär, Hoefler, SC16) on device ranks. Each compares its results with a serial run before it
//! measures, and runs in a form that the host drives by streams and prepared messages, too.

mod kernels;
mod machine;
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
}

fn main() -> ExitCode {
    match run(&Options::parse().what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => mp_program::fail("dcuda", error.as_ref()),
    }
}

fn run(what: &What) -> Result<()> {
    let (plan, lines) = match what {
        What::Stencil { plan, sizes } => (plan, stencil::run(plan, sizes)?),
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
