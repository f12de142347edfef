//! Ranges of NVTX for a tool that names itself in `NVTX_INJECTION64_PATH`: here one of our own, compiled by the test, which writes
//! down every range that begins and ends.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::{on_threads, say};
use libmp::{Deadline, Device, Operation, Step, World};

/// A tool for NVTX 3, written after its public headers: it asks for the table of the module "core 2" and fills in the domain's
/// creation and the beginning and the end of a range.
const TOOL: &str = r#"
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*function)(void);
struct callbacks { size_t size; int (*table_of)(int, function ***, unsigned *); };
struct version_info { size_t size; uint32_t version; uint32_t reserved; void (*set)(uint32_t); };
struct attributes {
    uint16_t version, size; uint32_t category; int32_t color_type; uint32_t color;
    int32_t payload_type, reserved; uint64_t payload; int32_t message_type; const char *message;
};
static FILE *file;
static char domain_name[32];

static void *create(const char *name) {
    snprintf(domain_name, sizeof domain_name, "%s", name);
    return domain_name;
}
static int push(void *domain, const struct attributes *range) {
    if (range->version != 3 || range->size != 48 || range->message_type != 1) abort();
    fprintf(file, "%lu push %s %s\n", (unsigned long)pthread_self(), (char *)domain, range->message);
    return 0;
}
static int pop(void *domain) {
    fprintf(file, "%lu pop %s\n", (unsigned long)pthread_self(), (char *)domain);
    return 0;
}
int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    const struct callbacks *callbacks = export_table(1);
    const struct version_info *version = export_table(3);
    function **table;
    unsigned size = 0;
    if (callbacks == NULL || callbacks->size < 16 || version == NULL || version->version != 3) return 0;
    version->set(3);
    if (!callbacks->table_of(5, &table, &size) || size < 16) return 0;
    file = fopen(getenv("TEST_NVTX_LOG"), "w");
    *table[12] = (function)create;
    *table[4] = (function)push;
    *table[5] = (function)pop;
    return file != NULL;
}
"#;

fn tool(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("tool.c"), folder.join("tool.so"));
    std::fs::write(&source, TOOL).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-pthread", "-Wall", "-Werror", "-o"]);
    let built = command.arg(&library).arg(&source).status().unwrap();
    assert!(built.success(), "{built}");
    library
}

/// The messages of two ranks, by the host and on streams.
fn communicate(world: &World) {
    let soon = || Deadline::after(Duration::from_secs(20));
    let peer = world.peer(1 - world.rank()).unwrap();
    let [edge, ghost] = [5, 5].map(|len| world.alloc::<u64>(&Device::Host, len).unwrap());
    let send = peer.send(&edge, 7).prepare().unwrap();
    let recv = peer.recv(&ghost, 7).prepare().unwrap();
    for _ in 0..3 {
        recv.start().unwrap();
        // So that the other has to wait.
        std::thread::sleep(Duration::from_millis(30 * world.rank() as u64));
        send.start().unwrap();
        recv.wait(soon()).unwrap();
        send.wait(soon()).unwrap();
    }
    let send = peer.send(&edge, 8).prepare().unwrap();
    let recv = peer.recv(&ghost, 8).prepare().unwrap();
    let stream = world.stream(&Device::Host).unwrap();
    world.enqueue(&stream, &[Step::start(&recv), Step::start(&send), Step::wait(&recv)]).unwrap();
    world.synchronize(&stream, soon()).unwrap();
    let _span = world.trace().span("test", "a span of the program");
    world.barrier().unwrap();
}

/// What the processes of the tests run: two ranks as threads.
#[test]
#[ignore = "is a process of the other tests"]
fn a_rank() {
    on_threads(World::threads(2).unwrap(), |world| {
        communicate(&world);
        world.finish().unwrap();
    });
    say("through");
}

/// Runs the ranks in a process with this tool; its exit code, and what the tool has written.
fn run(tool: Option<&Path>, log: &Path) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["a_rank", "--exact", "--ignored", "--nocapture"]);
    for name in libmp::config::VARIABLES {
        command.env_remove(name);
    }
    command.env_remove("NVTX_INJECTION64_PATH").env("TEST_NVTX_LOG", log);
    if let Some(tool) = tool {
        command.env("NVTX_INJECTION64_PATH", tool);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (
        output.status.success() && text.contains("through"),
        std::fs::read_to_string(log).unwrap_or_default(),
    )
}

#[test]
fn operations_and_waits_are_ranges_for_a_tool_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let (well, log) = run(Some(&tool(folder.path())), &folder.path().join("log"));
    assert!(well, "{log}");
    let count = |what: &str| log.lines().filter(|line| line.contains(what)).count();
    assert_eq!(count(" pop libmp"), count(" push libmp "));
    // Two ranks, three rounds.
    assert_eq!(count("push libmp start send tag 7 to rank"), 6);
    // Who finds the message there does not wait.
    assert!(count("push libmp wait for recv tag 7 from rank 1") >= 1, "{log}");
    assert_eq!(count("push libmp prepare send tag 7"), 2);
    assert_eq!(count("push libmp enqueue recv tag 8"), 2, "{log}");
    assert_eq!(count("push libmp synchronize"), 2);
    assert_eq!(count("push libmp a span of the program"), 2);
    // On each thread they lie within each other.
    let mut open = std::collections::BTreeMap::<&str, usize>::new();
    for line in log.lines() {
        let (thread, rest) = line.split_once(' ').unwrap();
        let depth = open.entry(thread).or_default();
        match rest.starts_with("push") {
            true => *depth += 1,
            false => *depth = depth.checked_sub(1).expect("ends what has begun"),
        }
    }
    assert!(open.len() >= 2 && open.values().all(|depth| *depth == 0), "{open:?}");
}

#[test]
fn without_a_tool_nothing_is_loaded_and_one_that_cannot_be_loaded_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    assert_eq!(run(None, &log), (true, String::new()));
    assert_eq!(run(Some(Path::new("/nowhere/tool.so")), &log), (true, String::new()));
    // A library that is no tool.
    assert_eq!(run(Some(Path::new("libc.so.6")), &log), (true, String::new()));
}
