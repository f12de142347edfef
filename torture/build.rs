//! Compiles the storm's kernels: `cuda/host.cpp` for the CPU, and, with the nvcc that mp-kernels found, `cuda/storm.cu` for
//! GPUs. Without one `mp-torture storm --form kernel` runs on the CPU.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// PTX for the oldest, which the driver compiles for others; machine code for those that the suite is run on.
const CODE: [&str; 3] = [
    "arch=compute_80,code=[sm_80,compute_80]",
    "arch=compute_90,code=sm_90",
    "arch=compute_100,code=[sm_100,compute_100]",
];

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
    for variable in ["DEP_MP_KERNELS_NVCC", "DEP_MP_KERNELS_INCLUDE", "HPGMG_ARCHITECTURES"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rustc-check-cfg=cfg(torture_fatbin)");
    let variable = |name: &str| std::env::var(name).map_err(|error| format!("{name}: {error}"));
    let include = variable("DEP_MP_KERNELS_INCLUDE")?;
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .opt_level(2)
        .include(&include)
        .file("cuda/host.cpp")
        .flag("-pthread")
        .try_compile("torture_host")
        .map_err(|error| format!("cuda/host.cpp: {error}"))?;
    let Ok(nvcc) = variable("DEP_MP_KERNELS_NVCC") else { return Ok(()) };
    let fatbin = PathBuf::from(variable("OUT_DIR")?).join("torture.fatbin");
    let mut command = Command::new(nvcc);
    command.args(["-std=c++17", "-fatbin", "-I", &include]);
    // Fewer compile faster, as in hpgmg.
    let wanted = variable("HPGMG_ARCHITECTURES").unwrap_or_default();
    let chosen = |code: &&&str| {
        wanted.is_empty() || wanted.split(',').any(|n| code.starts_with(&format!("arch=compute_{n},")))
    };
    for code in CODE.iter().filter(chosen) {
        command.args(["-gencode", code]);
    }
    command.arg("cuda/storm.cu").arg("-o").arg(&fatbin);
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    println!("cargo::rustc-cfg=torture_fatbin");
    Ok(())
}
