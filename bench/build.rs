//! Compiles `peers/floor.cu`, the bare machine's side of `mp-perf compare` on GPUs, with the nvcc that mp-kernels found.
//! Without one the crate builds too, and the program says that those floors are absent.

use std::ffi::OsStr;
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
    println!("cargo::rerun-if-changed=peers/floor.cu");
    println!("cargo::rerun-if-env-changed=DEP_MP_KERNELS_NVCC");
    println!("cargo::rustc-check-cfg=cfg(floor_fatbin)");
    let Some(nvcc) = std::env::var_os("DEP_MP_KERNELS_NVCC") else { return Ok(()) };
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR for build scripts")?;
    let fatbin = PathBuf::from(out).join("floor.fatbin");
    let mut command = Command::new(nvcc);
    // Machine code of the oldest architecture of mp-kernels, and its PTX for all others.
    command.args(["-std=c++17", "-fatbin", "-gencode", "arch=compute_80,code=[sm_80,compute_80]"]);
    command.args([OsStr::new("peers/floor.cu"), OsStr::new("-o"), fatbin.as_os_str()]);
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} failed with {}\n{said}", output.status));
    }
    println!("cargo::rustc-cfg=floor_fatbin");
    Ok(())
}
