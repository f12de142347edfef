//! Compiles `cuda/module.cu` to one fatbin for the crate to embed, with the nvcc that mp-kernels found. Without one the
//! crate builds too, and `--device cuda` says what is missing.

use std::path::Path;
use std::process::{Command, ExitCode, Output};

/// Machine code for these GPU architectures, as in mp-kernels, as far as the compiler knows them; PTX of the last, for
/// newer ones.
const ARCHITECTURES: [&str; 3] = ["80", "90", "100"];

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
    println!("cargo::rerun-if-changed=cuda");
    println!("cargo::rerun-if-env-changed=DEP_MP_KERNELS_NVCC");
    println!("cargo::rerun-if-env-changed=DEP_MP_KERNELS_INCLUDE");
    println!("cargo::rerun-if-env-changed=HPGMG_ARCHITECTURES");
    println!("cargo::rustc-check-cfg=cfg(hpgmg_fatbin)");
    let Some(nvcc) = std::env::var_os("DEP_MP_KERNELS_NVCC") else { return Ok(()) };
    let include = std::env::var_os("DEP_MP_KERNELS_INCLUDE").map(std::path::PathBuf::from);
    let include = include.ok_or("mp-kernels names no include folder")?;
    println!("cargo::rerun-if-changed={}", include.display());
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR for build scripts")?;
    compile(Path::new(&nvcc), &include, Path::new(&out))?;
    println!("cargo::rustc-cfg=hpgmg_fatbin");
    Ok(())
}

/// Writes `hpgmg.fatbin`, and `ptxas.txt`: registers and stack of every kernel, for a test.
fn compile(nvcc: &Path, include: &Path, out: &Path) -> Result<(), String> {
    let known = answer(Command::new(nvcc).arg("--list-gpu-code"))?.stdout;
    let known = String::from_utf8_lossy(&known);
    // Fewer of them compile faster: `HPGMG_ARCHITECTURES=90`, or `80,90`.
    let wanted = std::env::var("HPGMG_ARCHITECTURES").unwrap_or_else(|_| ARCHITECTURES.join(","));
    let known: Vec<&str> = wanted
        .split(',')
        .filter(|number| known.lines().any(|line| line.trim() == format!("sm_{number}")))
        .collect();
    let Some(last) = known.last() else {
        return Err(format!(
            "{} compiles for none of the architectures {wanted}: CUDA 11.0 or newer is needed",
            nvcc.display()
        ));
    };
    let mut command = Command::new(nvcc);
    // Without fused multiply-add the results are those of the CPU.
    command.args(["-std=c++17", "-fatbin", "-fmad=false", "--threads", "0", "-Xptxas", "-v"]);
    for number in &known {
        let ptx = if number == last { format!(",compute_{number}") } else { String::new() };
        command.args(["-gencode", &format!("arch=compute_{number},code=[sm_{number}{ptx}]")]);
    }
    command
        .arg("-I")
        .arg(include)
        .args(["-I", "cuda", "cuda/module.cu"])
        .arg("-o")
        .arg(out.join("hpgmg.fatbin"));
    let said = answer(&mut command)?.stderr;
    let report = out.join("ptxas.txt");
    std::fs::write(&report, said).map_err(|error| format!("cannot write {report:?}: {error}"))
}

fn answer(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, said) = (said(&output.stdout), said(&output.stderr));
    Err(format!("{command:?} failed with {}\n{printed}{said}", output.status))
}
