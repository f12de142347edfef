//! Stamps what the build is built from into environment variables of the compiler
//! (`src/build_info.rs` reads them): git revision, Rust compiler, target. Builds without git and
//! outside a checkout too; the revision is then `unknown`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    stamp("REVISION", revision(&root));
    stamp("RUSTC", rustc());
    stamp("TARGET", env::var("TARGET").ok());
}

fn stamp(name: &str, value: Option<String>) {
    println!("cargo::rustc-env=MP_BUILD_{name}={}", value.as_deref().unwrap_or("unknown"));
}

fn rustc() -> Option<String> {
    let line = output(Command::new(env::var_os("RUSTC")?).arg("--version"))?;
    Some(line.strip_prefix("rustc ").unwrap_or(&line).to_owned())
}

fn revision(root: &Path) -> Option<String> {
    // A package unpacked inside somebody else's checkout must not claim that checkout's revision.
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    rerun_when_the_revision_changes(root);
    let hash = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(root, &["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { hash } else { hash + "+dirty" })
}

/// A commit moves HEAD or the branch it names; an edit of any tracked file makes the tree dirty.
/// Cargo looks at the newest file below a folder that it is told about.
fn rerun_when_the_revision_changes(root: &Path) {
    let branch = git(root, &["symbolic-ref", "-q", "HEAD"]);
    let refs = ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref());
    let refs = refs.filter_map(|name| git(root, &["rev-parse", "--git-path", name]));
    let tracked = git(root, &["ls-tree", "--name-only", "HEAD"]).unwrap_or_default();
    for path in refs.chain(tracked.lines().map(str::to_owned)) {
        // A path that does not exist would make cargo run this program every time.
        if root.join(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

fn git(root: &Path, args: &[&str]) -> Option<String> {
    // Without optional locks: `git status` would otherwise rewrite the index while others use it.
    output(Command::new("git").arg("--no-optional-locks").args(args).current_dir(root))
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim_end().to_owned())
}
