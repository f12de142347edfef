//! Compiles `cuda/module.cu` to one fatbin for the crate to embed, with the nvcc that mp-kernels found. Without one the
//! crate builds too, and `--device cuda` says what is missing.

#[path = "../kernels/build/module.rs"]
mod module;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the fatbin, and `ptxas.txt`: registers and stack of every kernel, for a test.
fn run() -> Result<(), String> {
    for watched in ["build.rs", "cuda"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    // Without fused multiply-add the results are those of the CPU.
    let flags = ["-fmad=false", "-Xptxas", "-v", "-I", "cuda"];
    let Some(said) = module::fatbin("hpgmg", "cuda/module.cu", &flags)? else { return Ok(()) };
    let report = Path::new(&module::variable("OUT_DIR")?).join("ptxas.txt");
    std::fs::write(&report, said).map_err(|error| format!("cannot write {report:?}: {error}"))
}
