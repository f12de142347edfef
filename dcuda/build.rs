//! Compiles the programs' kernels: `cuda/host.cpp` for the CPU, and, with the nvcc that mp-kernels found, `cuda/module.cu` for GPUs;
//! without one the programs run on the CPU only.

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
    for watched in ["build.rs", "cuda"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    // Without fused multiply-add, here and below, the results are those of the serial runs.
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .opt_level(2)
        .include(module::include()?)
        .file("cuda/host.cpp")
        .flag("-pthread")
        .flag("-ffp-contract=off")
        .try_compile("dcuda_host")
        .map_err(|error| format!("cuda/host.cpp: {error}"))?;
    module::fatbin("dcuda", "cuda/module.cu", &["-fmad=false"]).map(|_| ())
}
