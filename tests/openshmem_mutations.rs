//! Mistakes made in the library on purpose, one at a time, and the program of the tests that finds each: whether `openshmem.rs` would notice. The
//! library is built anew for each in a copy of the repository, which takes a quarter of an hour:
//! `cargo test --test openshmem_mutations -- --ignored --nocapture`.

use std::path::{Path, PathBuf};
use std::process::Command;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// What it is, the file of `shmem/src`, its lines as they are, and as they become; the program that finds it, how many PEs, and the path.
type Mutation =
    (&'static str, &'static str, &'static str, &'static str, (&'static str, usize, &'static str));

const MUTATIONS: [Mutation; 17] = [
    (
        "quiet and the barrier do not wait for what went through the NIC",
        "order.rs",
        "        if used.load(Ordering::Acquire) {\n            quiet_of(state, *pe);",
        "        if used.load(Ordering::Acquire) && *pe == usize::MAX {\n            quiet_of(state, *pe);",
        ("order.c", 3, "nic-tcp"),
    ),
    (
        "a put with a signal does not wait for its bytes before the signal",
        "signal.rs",
        "    unsafe { rma::put(ctx, dest, source, n, pe) };\n    atomic::fence(Ordering::Release);\n    if !state().far.is_empty() {\n        order::complete(state());\n    }\n    // SAFETY: as here.\n    unsafe { change(ctx, word.cast_const(), op, pe) };",
        "    atomic::fence(Ordering::Release);\n    let _ = order::complete;\n    unsafe { change(ctx, word.cast_const(), op, pe) };\n    unsafe { rma::put(ctx, dest, source, n, pe) };",
        ("order.c", 2, "auto"),
    ),
    (
        "p stores when the PE calls next, not now",
        "rma.rs",
        "        There::Mapped(to) => unsafe { to.cast::<T>().write_volatile(value) },",
        "        There::Mapped(to) => unsafe {\n            static LATE: std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>> = std::sync::Mutex::new(None);\n            let mut bytes = [0_u8; 16];\n            std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), bytes.as_mut_ptr(), size_of::<T>());\n            let (at, len) = (to as usize, size_of::<T>());\n            let store: Box<dyn FnOnce() + Send> = Box::new(move || std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, len));\n            let before = LATE.lock().unwrap().replace(store);\n            if let Some(before) = before { before() }\n        },",
        ("order.c", 2, "auto"),
    ),
    (
        "the stride of iput there is one element too long",
        "rma.rs",
        "        Rows { len: self.block, count: self.n, to: self.to, from: self.from }\n    }\n",
        "        Rows { len: self.block, count: self.n, to: self.to + self.block, from: self.from }\n    }\n",
        ("rma.c", 2, "nic"),
    ),
    (
        "the stride of iput over mapped memory is one element too long",
        "rma.rs",
        "(to.wrapping_add(i * self.to), from.wrapping_add(i * self.from));",
        "(to.wrapping_add(i * (self.to + self.block)), from.wrapping_add(i * self.from));",
        ("rma.c", 2, "auto"),
    ),
    (
        "a lock does not wait for its owner",
        "lock.rs",
        "    until(state, || numbers.read(numbers.served) == mine);",
        "    until(state, || numbers.read(numbers.served) != mine.wrapping_add(7));",
        ("signals.c", 3, "auto"),
    ),
    (
        "a put with _nbi is of half its bytes",
        "rma.rs",
        "put_bytes(ctx, dest as usize, source.cast(), bytes_of::<T>(n), pe, Return::Begun)",
        "put_bytes(ctx, dest as usize, source.cast(), bytes_of::<T>(n) / 2, pe, Return::Begun)",
        ("rma.c", 2, "auto"),
    ),
    (
        "a wait takes less for less or equal",
        "wait.rs",
        "            Compare::Le => seen <= value,",
        "            Compare::Le => seen < value,",
        ("waits.c", 2, "auto"),
    ),
    (
        "an atomic addition is a load and a store",
        "atomic.rs",
        "                    AtomicOp::Add(value) => word.fetch_add(value, ORDER),",
        "                    AtomicOp::Add(value) => {\n                        let held = word.load(ORDER);\n                        std::thread::yield_now();\n                        word.store(held.wrapping_add(value), ORDER);\n                        held\n                    }",
        ("atomics.c", 3, "auto"),
    ),
    (
        "a barrier does not wait",
        "order.rs",
        "    complete(state);\n    state.all.collective(&state.world).barrier().run().or_fail();",
        "    complete(state);",
        ("rma.c", 3, "auto"),
    ),
    (
        "a collective of many bytes does not wait for all at its end",
        "direct.rs",
        "        self.team.collective(&self.state.world).barrier().run().or_fail();",
        "        let _ = (self.team, self.state);",
        ("order.c", 3, "auto"),
    ),
    (
        "a part of a large reduction is nobody's",
        "direct.rs",
        "    (one * each).min(n)..((one + 1) * each).min(n)",
        "    (one * each).min(n)..((one + 1) * each - 1).min(n)",
        ("order.c", 3, "auto"),
    ),
    (
        "memory that is given is not aligned, and overlaps the next",
        "parts.rs",
        "let (bytes, align) = (bytes.max(1).checked_next_multiple_of(ALIGN)?, align.max(ALIGN));",
        "let (bytes, align) = (bytes.max(2) / 2, align.max(ALIGN));",
        ("memory.c", 2, "auto"),
    ),
    (
        "the variables of the program stay private",
        "statics.rs",
        "    let Some((start, len)) = pages() else { return Ok(None) };",
        "    let Some((start, len)) = pages().filter(|(_, len)| *len == 1) else { return Ok(None) };",
        ("memory.c", 2, "auto"),
    ),
    (
        "a broadcast is of the next PE",
        "direct.rs",
        "mapped(state, team.members[root], place)",
        "mapped(state, team.members[(root + 1) % team.members.len()], place)",
        ("collectives.c", 3, "auto"),
    ),
    (
        "the root of a broadcast does not wait until all have its values",
        "direct.rs",
        "    all.reduce_slice(ReduceOp::Max, root, &mut [0_u64]).or_fail();\n",
        "",
        ("collectives.c", 3, "auto"),
    ),
    (
        "shmmap forgets what it has mapped",
        "map.rs",
        "    state.maps.lock().push(segment);\n    barrier(state);\n",
        "    let _ = segment;\n",
        ("map.cu", 2, "auto"),
    ),
];

/// The files of the repository, in a folder of their own. Those that are as they were stay untouched, so that cargo builds nothing anew for them.
fn copy(tree: &Path) {
    let files =
        Command::new("git").arg("-C").arg(here("")).args(["ls-files", "-z"]).output().unwrap();
    for name in String::from_utf8(files.stdout).unwrap().split_terminator('\0') {
        let (from, to) = (here(name), tree.join(name));
        let Ok(bytes) = std::fs::read(&from) else { continue };
        if std::fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    }
}

/// Builds and installs the library of the copy; false if it does not compile.
fn build(folder: &Path) -> bool {
    let (tree, target) = (folder.join("tree"), folder.join("target"));
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(&tree).args([
        "rustc",
        "-q",
        "-p",
        "mp-shmem",
        "--lib",
        "--crate-type",
        "staticlib",
    ]);
    if !cargo.env("CARGO_TARGET_DIR", &target).status().unwrap().success() {
        return false;
    }
    let built = folder.join("built");
    std::fs::create_dir_all(&built).unwrap();
    std::fs::copy(target.join("debug/libmp_shmem.a"), built.join("libmp_shmem.a")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_mprun"), built.join("mprun")).unwrap();
    let mut install = Command::new(tree.join("tools/install-shmem"));
    let output = install.arg("--built").arg(&built).arg(folder.join("prefix")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    true
}

/// Whether a program of the tests is satisfied with the library, and what it has said.
fn is_satisfied(folder: &Path, (name, pes, path): (&str, usize, &str)) -> (bool, String) {
    let bin = folder.join("prefix/bin");
    let program = folder.join(name.replace('.', "-"));
    let mut compiler =
        Command::new(bin.join(if name.ends_with(".c") { "oshcc" } else { "oshc++" }));
    compiler.args(["-O1", "-pthread"]);
    if name.ends_with(".cu") {
        compiler.args(["-std=c++20", "-DSHMEMG_HOST_KERNELS", "-x", "c++"]);
    }
    compiler.arg(here("shmem/tests/programs").join(name)).arg("-o").arg(&program);
    assert!(compiler.status().unwrap().success(), "{compiler:?}");
    let mut oshrun = Command::new(bin.join("oshrun"));
    oshrun.args(["-np", &pes.to_string(), "--timeout", "60"]).arg(&program).env("MP_PATH", path);
    let output = oshrun.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), err.lines().next().unwrap_or_default().to_owned())
}

fn mutated(text: &str, (what, file, lines, become_, _): &Mutation) -> String {
    assert_eq!(
        text.matches(lines).count(),
        1,
        "{what}: {file} has these lines elsewhere, or no more"
    );
    text.replacen(lines, become_, 1)
}

#[test]
fn every_mutation_is_of_lines_that_are_there() {
    for mutation in &MUTATIONS {
        let text = std::fs::read_to_string(here("shmem/src").join(mutation.1)).unwrap();
        assert_ne!(mutated(&text, mutation), text);
    }
}

#[test]
#[ignore = "needs a quarter of an hour: builds the library once for each mutation"]
fn every_mutation_is_found_by_a_program_of_the_tests() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mutations");
    let tree = folder.join("tree");
    copy(&tree);
    assert!(build(&folder));
    for (what, .., run) in &MUTATIONS {
        let (satisfied, said) = is_satisfied(&folder, *run);
        assert!(
            satisfied,
            "without any mutation {run:?} fails, which is to find that {what}: {said}"
        );
    }
    let mut missed = Vec::new();
    for mutation in &MUTATIONS {
        let (what, file, .., run) = mutation;
        let path = tree.join("shmem/src").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, mutated(&text, mutation)).unwrap();
        let compiles = build(&folder);
        std::fs::write(&path, &text).unwrap();
        assert!(compiles, "{what}: it does not compile");
        let (satisfied, said) = is_satisfied(&folder, *run);
        println!("{what}: {} {run:?}: {said}", if satisfied { "MISSED by" } else { "found by" });
        missed.extend(satisfied.then_some(*what));
    }
    assert!(missed.is_empty(), "missed: {missed:?}");
}
