//! Compiles the examples' kernels, `kernels.cu`: for the CPU, and, with the nvcc that mp-kernels found, for GPUs; without one the examples
//! run on the CPU only. And prepares the guide's chapters for rustdoc, which compiles and runs their Rust code: what they include is an
//! example and is compiled as such.

use std::path::Path;
use std::process::{Command, ExitCode};

const GUIDE: &str = "../docs/guide";
/// Its first page.
const FIRST: &str = "../docs/README.md";

fn main() -> ExitCode {
    match kernels().and_then(|()| guide()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|error| format!("{name}: {error}"))
}

fn kernels() -> Result<(), String> {
    let sources = std::fs::read_dir(".").map_err(|error| format!("examples: {error}"))?;
    for source in sources.flatten().map(|entry| entry.path()) {
        if source.extension().is_some_and(|kind| kind == "cu" || kind == "cuh") {
            println!("cargo::rerun-if-changed={}", source.display());
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    let names = ["NVCC", "INCLUDE", "GENCODE"].map(|name| format!("DEP_MP_KERNELS_{name}"));
    for name in &names {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rustc-check-cfg=cfg(examples_fatbin)");
    let [nvcc, include, gencode] = names.map(|name| variable(&name));
    let include = include?;
    println!("cargo::rerun-if-changed={include}");
    // Without fused multiply-add, here and below, the results are those of the serial runs.
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .opt_level(2)
        .include(&include)
        .flag("-pthread")
        .flag("-ffp-contract=off")
        .flag("-xc++")
        .file("kernels.cu")
        .try_compile("examples_host")
        .map_err(|error| format!("kernels.cu: {error}"))?;
    let Ok(nvcc) = nvcc else { return Ok(()) };
    let mut command = Command::new(nvcc);
    command.args(["-std=c++17", "-fatbin", "-fmad=false", "--threads", "0", "-I", &include]);
    for code in gencode?.split(' ') {
        command.args(["-gencode", code]);
    }
    let fatbin = Path::new(&variable("OUT_DIR")?).join("examples.fatbin");
    command.arg("kernels.cu").arg("-o").arg(fatbin);
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} failed with {}\n{said}", output.status));
    }
    println!("cargo::rustc-cfg=examples_fatbin");
    Ok(())
}

/// `guide.rs`: a module for each chapter, whose documentation is the chapter.
fn guide() -> Result<(), String> {
    println!("cargo::rerun-if-changed={GUIDE}");
    println!("cargo::rerun-if-changed={FIRST}");
    let chapters = std::fs::read_dir(GUIDE).map_err(|error| format!("{GUIDE}: {error}"))?;
    let mut chapters: Vec<_> = chapters.flatten().map(|entry| entry.path()).collect();
    chapters.push(FIRST.into());
    chapters.sort();
    let (mut modules, out) = (String::new(), variable("OUT_DIR")?);
    for chapter in chapters {
        let Some(name) = chapter.file_name().and_then(|name| name.to_str()) else { continue };
        let Some(title) = name.strip_suffix(".md") else { continue };
        let failed = |error| format!("{}: {error}", chapter.display());
        let text = std::fs::read_to_string(&chapter).map_err(failed)?;
        let copy = Path::new(&out).join(name);
        std::fs::write(&copy, without_included(&text)).map_err(failed)?;
        let module = title.replace('-', "_").to_lowercase();
        modules += &format!("#[doc = include_str!({:?})]\nmod {module} {{}}\n", copy.display());
    }
    let all = Path::new(&out).join("guide.rs");
    std::fs::write(&all, modules).map_err(|error| format!("{}: {error}", all.display()))
}

/// Leaves blocks of code empty that include a file.
fn without_included(text: &str) -> String {
    let mut blocks: Vec<String> = text.split("```").map(str::to_owned).collect();
    for block in blocks.iter_mut().skip(1).step_by(2).filter(|block| block.contains("{{#")) {
        *block = "text\nincluded\n".to_owned();
    }
    blocks.join("```")
}
