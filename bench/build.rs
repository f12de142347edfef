//! Compiles `cuda/module.cu`, the kernels that measure, to one fatbin for the crate to embed, with the nvcc that mp-kernels
//! found and for its architectures. Without one the crate builds too, and the program says what is missing.

#[path = "../kernels/build/module.rs"]
mod module;

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

fn run() -> Result<(), String> {
    for watched in ["build.rs", "cuda", "peers", "../kernels/tests/cuda"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    module::fatbin("bench", "cuda/module.cu", &[]).map(|_| ())
}
