//! Compiles the kernels of `mp-perf compare` on GPUs, `peers/floor.cu` (the bare machine) and `peers/exchange.cu` (ours), with
//! the nvcc that mp-kernels found. Without one the crate builds too, and the program says that those players are absent.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

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
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=peers");
    println!("cargo::rerun-if-env-changed=DEP_MP_KERNELS_NVCC");
    println!("cargo::rustc-check-cfg=cfg(bench_fatbin)");
    let Some(nvcc) = std::env::var_os("DEP_MP_KERNELS_NVCC") else { return Ok(()) };
    let include =
        std::env::var_os("DEP_MP_KERNELS_INCLUDE").ok_or("mp-kernels names no include folder")?;
    println!("cargo::rerun-if-changed={}", include.display());
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR for build scripts")?;
    for name in ["floor", "exchange"] {
        let fatbin = PathBuf::from(&out).join(format!("{name}.fatbin"));
        let mut command = Command::new(&nvcc);
        // Machine code of the oldest and the most common architecture of mp-kernels, and PTX for all others.
        command.args([
            "-std=c++17",
            "-fatbin",
            "-gencode",
            "arch=compute_80,code=[sm_80,compute_80]",
        ]);
        command.args(["-gencode", "arch=compute_90,code=sm_90", "-I"]).arg(&include);
        command.arg(format!("peers/{name}.cu")).arg("-o").arg(fatbin);
        let output =
            command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{command:?} failed with {}\n{said}", output.status));
        }
    }
    println!("cargo::rustc-cfg=bench_fatbin");
    Ok(())
}
