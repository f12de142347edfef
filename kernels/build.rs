//! Compiles `src/cuda/module.cu` to one fatbin with whatever nvcc the machine has, for the crate to embed. Without an
//! nvcc the crate builds too and says at run time what is missing. Finding nvcc is `build/nvcc.rs`.

#[path = "build/nvcc.rs"]
mod nvcc;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nvcc::Nvcc;

/// Machine code for these (each also runs on later minor revisions of its generation) …
const ARCHITECTURES: [u32; 3] = [80, 90, 100];
/// … and PTX of the first and the last, which the driver compiles for the rest: the last for GPUs newer than all
/// of them, the first for generations in between that the last is too new for.
const PTX: [u32; 2] = [80, 100];
/// Fewer of them, which compile faster: `90`, or `80,90`. For the kernels of all crates.
const CHOICE: &str = "MP_CUDA_ARCHITECTURES";

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
    let crate_folder = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    let include = crate_folder.join("include");
    let sources = crate_folder.join("src/cuda");
    for watched in ["build.rs", "build", "include", "src/cuda"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    for name in nvcc::VARIABLES {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rerun-if-env-changed={CHOICE}");
    // nvcc may be found there, and finds the host compiler there.
    println!("cargo::rerun-if-env-changed=PATH");
    println!("cargo::rustc-check-cfg=cfg(mp_fatbin)");
    println!("cargo::rustc-env=MP_TARGET={}", variable("TARGET")?);
    println!("cargo::metadata=include={}", include.display());

    // Where tools/get-nvcc installs, which touches this file when it does: cargo cannot watch a folder that is not there.
    let wheels = crate_folder.join("../.cuda");
    // While the shared header is being rewritten, device code may not match it: not compiled then, and after that it is.
    println!("cargo::rerun-if-env-changed=MP_REGENERATE");
    let found = match std::env::var_os("MP_REGENERATE") {
        Some(_) => None,
        None => nvcc::find(|name| std::env::var_os(name), &wheels, warn)?,
    };
    let (version, architectures) = match found {
        None => (None, Vec::new()),
        Some(nvcc) => {
            println!("cargo::rerun-if-changed={}", nvcc.path.display());
            println!("cargo::metadata=nvcc={}", nvcc.path.display());
            let built = compile(&nvcc, &include, &sources, &out.join("mp.fatbin"))?;
            println!("cargo::rustc-cfg=mp_fatbin");
            (Some(nvcc.version), built)
        }
    };
    let build = format!("crate::Build {{ nvcc: {version:?}, architectures: &{architectures:?} }}");
    std::fs::write(out.join("build_info.rs"), build)
        .map_err(|error| format!("cannot write build_info.rs: {error}"))
}

/// The architectures to compile for, in rising order.
fn wanted() -> Result<Vec<u32>, String> {
    let Ok(choice) = std::env::var(CHOICE) else { return Ok(ARCHITECTURES.to_vec()) };
    let chosen = |number: &u32| choice.split(',').any(|one| one.trim() == number.to_string());
    let wanted: Vec<u32> = ARCHITECTURES.iter().copied().filter(chosen).collect();
    match wanted.len() == choice.split(',').count() {
        true => Ok(wanted),
        false => {
            Err(format!("{CHOICE} is {choice:?}; expected some of {ARCHITECTURES:?}, as in 80,90"))
        }
    }
}

/// Writes the fatbin and returns the architectures in it, in nvcc's names.
fn compile(
    nvcc: &Nvcc,
    include: &Path,
    sources: &Path,
    fatbin: &Path,
) -> Result<Vec<String>, String> {
    let wanted = wanted()?;
    let known = nvcc.architectures.as_slice();
    let machine_code: Vec<u32> =
        wanted.iter().copied().filter(|number| known.contains(number)).collect();
    let Some(last) = machine_code.last() else {
        return Err(format!(
            "{} {} compiles for none of sm_{wanted:?}: CUDA 11.0 or newer is needed",
            nvcc.path.display(),
            nvcc.version
        ));
    };
    if machine_code.len() < wanted.len() {
        println!(
            "cargo::warning=nvcc {} knows only sm_{machine_code:?} of sm_{wanted:?}; newer GPUs will \
             compile the PTX at start (CUDA 12.8 or newer knows all)",
            nvcc.version
        );
    }
    let mut command = Command::new(&nvcc.path);
    command.args(["-std=c++17", "-fatbin", "--threads", "0"]);
    let (mut built, mut gencode) = (Vec::new(), Vec::new());
    for number in &machine_code {
        let ptx = PTX.contains(number) || number == last;
        let mut code = format!("sm_{number}");
        built.push(code.clone());
        if ptx {
            let _ = write!(code, ",compute_{number}"); // writing to a String cannot fail
            built.push(format!("compute_{number}"));
        }
        gencode.push(format!("arch=compute_{number},code=[{code}]"));
    }
    command.args(gencode.iter().flat_map(|code| ["-gencode", code]));
    println!("cargo::metadata=gencode={}", gencode.join(" "));
    command.arg("-I").arg(include).arg(sources.join("module.cu")).arg("-o").arg(fatbin);

    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let printed = String::from_utf8_lossy(&output.stdout);
        return Err(format!(
            "nvcc failed with {}\n{command:?}\n{printed}{said}\n\
             Without GPU code the crate also builds: then no nvcc may be found (see kernels/build/nvcc.rs).",
            output.status
        ));
    }
    for line in said.lines().filter(|line| !line.trim().is_empty()) {
        println!("cargo::warning=nvcc: {line}");
    }
    Ok(built)
}

fn warn(text: String) {
    println!("cargo::warning={text}");
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|error| format!("cargo sets {name} for build scripts: {error}"))
}
