//! Stamps the crate with a fingerprint of its own sources, so that ranks built from different sources refuse each
//! other at the handshake instead of misreading each other later. No git needed: a published crate has none.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| ".".into()));
    let mut files = Vec::new();
    list(&root.join("src"), &mut files)?;
    files.sort();
    let mut hash = Fnv1a::new();
    for file in files {
        hash.add(file.strip_prefix(&root).unwrap_or(&file).to_string_lossy().as_bytes());
        hash.add(&fs::read(&file)?);
    }
    println!("cargo::rustc-env=LIBMP_SOURCE_FINGERPRINT={:016x}", hash.0);
    Ok(())
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { list(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

/// FNV-1a, 64 bits (draft-eastlake-fnv): enough to tell builds apart, which is no defence against forgery.
struct Fnv1a(u64);

impl Fnv1a {
    fn new() -> Fnv1a {
        Fnv1a(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
