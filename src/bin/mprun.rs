//! `mprun`, the launcher: `mprun -n 4 [OPTIONS] COMMAND [ARGUMENTS]`. See [`mp::launch`].

use clap::Parser;

fn main() -> ! {
    let options = mp::launch::Options::parse();
    let status = mp::launch::run(&options).unwrap_or_else(|error| {
        mp_program::errln!("mprun: {error}");
        error.exit_status()
    });
    // Not by returning: a thread may still wait for a terminal or a slow reader of our output.
    std::process::exit(status)
}
