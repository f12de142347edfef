//! Makes an entry point for every function of the standard ABI that the sources do not have: it says its name and ends the program.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=functions.txt");
    println!("cargo::rerun-if-changed=src");
    let mut real = BTreeSet::new();
    for entry in std::fs::read_dir("src")? {
        let text = std::fs::read_to_string(entry?.path())?;
        for line in text.lines() {
            let name = line.split_once("fn MPI_").and_then(|(_, it)| it.split('(').next());
            real.extend(name.map(|name| format!("MPI_{name}")));
        }
    }
    let mut traps = String::new();
    for name in std::fs::read_to_string("functions.txt")?.lines() {
        if !real.contains(name) {
            // Writing to a string does not fail.
            let _ = writeln!(traps, "trap!({name});");
        }
    }
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    std::fs::write(Path::new(&out).join("traps.rs"), traps)
}
