//! Compiles the programs' kernels: `cuda/host.cpp` for the CPU, and, with the nvcc that mp-kernels found, `cuda/module.cu` for GPUs;
//! without one the programs run on the CPU only.

use std::path::Path;
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
    for watched in ["build.rs", "cuda"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    let names = ["NVCC", "INCLUDE", "GENCODE"].map(|name| format!("DEP_MP_KERNELS_{name}"));
    for name in &names {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rustc-check-cfg=cfg(dcuda_fatbin)");
    let variable = |name: &str| std::env::var(name).map_err(|error| format!("{name}: {error}"));
    let [nvcc, include, gencode] = names.map(|name| variable(&name));
    let include = include?;
    println!("cargo::rerun-if-changed={include}");
    // Without fused multiply-add, here and below, the results are those of the serial runs.
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .opt_level(2)
        .include(&include)
        .file("cuda/host.cpp")
        .flag("-pthread")
        .flag("-ffp-contract=off")
        .try_compile("dcuda_host")
        .map_err(|error| format!("cuda/host.cpp: {error}"))?;
    let Ok(nvcc) = nvcc else { return Ok(()) };
    let mut command = Command::new(nvcc);
    command.args(["-std=c++17", "-fatbin", "-fmad=false", "--threads", "0", "-I", &include]);
    for code in gencode?.split(' ') {
        command.args(["-gencode", code]);
    }
    let fatbin = Path::new(&variable("OUT_DIR")?).join("dcuda.fatbin");
    command.arg("cuda/module.cu").arg("-o").arg(fatbin);
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} failed with {}\n{said}", output.status));
    }
    println!("cargo::rustc-cfg=dcuda_fatbin");
    Ok(())
}
