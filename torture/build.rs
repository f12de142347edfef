//! Compiles the storm's kernels: `cuda/host.cpp` for the CPU, and, with the nvcc that mp-kernels found, `cuda/storm.cu` for
//! GPUs; without one `mp-torture storm --form kernel` runs on the CPU. And the libraries of `shim/`.

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

/// Shared libraries of `shim/`, which the program embeds. Under other names than theirs: cargo lets programs that it starts
/// look for libraries here.
fn shims() -> Result<(), String> {
    let out = PathBuf::from(std::env::var("OUT_DIR").map_err(|error| error.to_string())?);
    for name in ["clock", "driver", "libcuda"] {
        let mut build = cc::Build::new();
        build.opt_level(1).pic(true).cargo_metadata(false);
        let mut command = build.try_get_compiler().map_err(|error| error.to_string())?.to_command();
        command.args(["-shared", "-fPIC", "-pthread"]).arg(format!("shim/{name}.c"));
        command.arg("-ldl").arg("-o").arg(out.join(format!("shim-{name}")));
        let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
        if !output.status.success() {
            return Err(format!("{command:?}\n{}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    Ok(())
}

fn run() -> Result<(), String> {
    for watched in ["build.rs", "cuda", "shim"] {
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
    shims()?;
    let Ok(nvcc) = variable("DEP_MP_KERNELS_NVCC") else { return Ok(()) };
    let fatbin = PathBuf::from(variable("OUT_DIR")?).join("torture.fatbin");
    let mut command = Command::new(nvcc);
    command.args(["-std=c++17", "-fatbin", "-I", &include]);
    // Fewer compile faster, as in hpgmg.
    let wanted = variable("HPGMG_ARCHITECTURES").unwrap_or_default();
    let chosen = |code: &&&str| {
        wanted.is_empty()
            || wanted.split(',').any(|n| code.starts_with(&format!("arch=compute_{n},")))
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
