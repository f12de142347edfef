//! Compiles `cuda/module.cu`, the kernels that measure, to one fatbin for the crate to embed, with the nvcc that mp-kernels
//! found and for its architectures. Without one the crate builds too, and the program says what is missing.

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
    for watched in ["build.rs", "cuda", "peers", "../kernels/tests/cuda"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    let names = ["NVCC", "INCLUDE", "GENCODE"].map(|name| format!("DEP_MP_KERNELS_{name}"));
    for name in &names {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rustc-check-cfg=cfg(bench_fatbin)");
    let variable = |name: &str| std::env::var(name).map_err(|error| format!("{name}: {error}"));
    let [Ok(nvcc), include, gencode] = names.map(|name| variable(&name)) else { return Ok(()) };
    let include = include?;
    println!("cargo::rerun-if-changed={include}");
    let mut command = Command::new(nvcc);
    command.args(["-std=c++17", "-fatbin", "--threads", "0", "-I", &include]);
    for code in gencode?.split(' ') {
        command.args(["-gencode", code]);
    }
    command
        .arg("cuda/module.cu")
        .arg("-o")
        .arg(Path::new(&variable("OUT_DIR")?).join("bench.fatbin"));
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} failed with {}\n{said}", output.status));
    }
    println!("cargo::rustc-cfg=bench_fatbin");
    Ok(())
}
