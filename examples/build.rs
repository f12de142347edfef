//! Compiles the examples' kernels, `kernels.cu`: for the CPU, and, with the nvcc that mp-kernels found, for GPUs; without one the examples
//! run on the CPU only. And prepares the guide's chapters for rustdoc, which compiles and runs their Rust code: what they include is an
//! example and is compiled as such.

#[path = "../kernels/build/module.rs"]
mod module;

use std::path::Path;
use std::process::ExitCode;

use module::variable;

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

fn kernels() -> Result<(), String> {
    let sources = std::fs::read_dir(".").map_err(|error| format!("examples: {error}"))?;
    for source in sources.flatten().map(|entry| entry.path()) {
        if source.extension().is_some_and(|kind| kind == "cu" || kind == "cuh") {
            println!("cargo::rerun-if-changed={}", source.display());
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    // Without fused multiply-add, here and below, the results are those of the serial runs.
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .opt_level(2)
        .include(module::include()?)
        .flag("-pthread")
        .flag("-ffp-contract=off")
        .flag("-xc++")
        .file("kernels.cu")
        .try_compile("examples_host")
        .map_err(|error| format!("kernels.cu: {error}"))?;
    module::fatbin("examples", "kernels.cu", &["-fmad=false"]).map(|_| ())
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
