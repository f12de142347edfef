//! Compiles one CUDA source to a fatbin, with the nvcc that mp-kernels found and for its architectures: for the build scripts of crates
//! that have kernels of their own, and depend on mp-kernels. Not how nvcc is found (`nvcc.rs`).

use std::path::Path;
use std::process::Command;

/// A variable of the environment.
pub fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|error| format!("{name}: {error}"))
}

/// The folder of the device headers.
pub fn include() -> Result<String, String> {
    let include = variable("DEP_MP_KERNELS_INCLUDE")?;
    println!("cargo::rerun-if-changed={include}");
    Ok(include)
}

/// Writes `NAME.fatbin` into the folder that cargo gives build scripts and sets the cfg `NAME_fatbin`; gives what the compiler said.
/// Does nothing without an nvcc.
pub fn fatbin(name: &str, source: &str, flags: &[&str]) -> Result<Option<String>, String> {
    let names = ["NVCC", "INCLUDE", "GENCODE"].map(|name| format!("DEP_MP_KERNELS_{name}"));
    for name in &names {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rustc-check-cfg=cfg({name}_fatbin)");
    let [Ok(nvcc), _, gencode] = names.map(|name| variable(&name)) else { return Ok(None) };
    let mut command = Command::new(nvcc);
    command.args(["-std=c++17", "-fatbin", "--threads", "0", "-I", &include()?]).args(flags);
    for code in gencode?.split(' ') {
        command.args(["-gencode", code]);
    }
    let out = Path::new(&variable("OUT_DIR")?).join(format!("{name}.fatbin"));
    command.arg(source).arg("-o").arg(out);
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(format!("{command:?} failed with {}\n{said}", output.status));
    }
    println!("cargo::rustc-cfg={name}_fatbin");
    Ok(Some(said))
}
