//! Compiles the storm's kernels: `cuda/host.cpp` for the CPU, and, with the nvcc that mp-kernels found, `cuda/storm.cu` for
//! GPUs; without one `mp-torture storm --form kernel` runs on the CPU. And the libraries of `shim/`.

#[path = "../kernels/build/module.rs"]
mod module;

use std::path::PathBuf;
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
    let include = module::include()?;
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
    module::fatbin("torture", "cuda/storm.cu", &[]).map(|_| ())
}
