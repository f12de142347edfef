//! Programs that stand in for others in tests: shell scripts.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program `name` in a folder that does what `body` says.
///
/// A process of its own writes it. Had this one the file open for writing, so had, for a moment, whatever another test
/// starts just then, and a file that somebody writes cannot be executed (`ETXTBSY`).
///
/// # Panics
/// There is no shell, or the folder cannot be written.
pub fn stand_in(folder: &Path, name: &str, body: &str) -> PathBuf {
    let path = folder.join(name);
    let mut shell = Command::new("sh")
        .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let text = format!("#!/bin/sh\n{body}\n");
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
    path
}
