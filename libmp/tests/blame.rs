//! Who is named when a rank is killed while another does not run: that one hears of the loss long after the others have left
//! because of it, and must not take their leaving for the cause. Of its process the control thread is held longest, which is
//! the worst that a busy machine can do to it: its calls see nothing but broken paths.

mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::{Rank, SOON, ring_without_end, say, start_mprun};
use libmp::{Device, Result, World};

const RANKS: usize = 4;
/// Does not run while the victim dies and the rest leaves.
const STARVED: usize = 2;
const VICTIM: usize = 3;
const START: Duration = Duration::from_secs(60);
/// So long its calls run without its control thread: ten times what a path may have failed before it is reported.
const ALONE: Duration = Duration::from_secs(2);

/// A rank process: what it does is chosen by the test that starts it.
#[test]
#[ignore = "is a rank of the other tests"]
fn a_rank() {
    let world = World::init().unwrap();
    let error = match std::env::var("TEST_PROGRAM").unwrap().as_str() {
        "ring" => ring_without_end(&world, 100, Duration::from_secs(60)),
        "late" => late(&world),
        other => panic!("no program {other}"),
    };
    say(error.unwrap_err());
    drop(world);
    std::process::exit(3);
}

/// The starved rank has nothing to do with the others until these are gone: then it maps the memory of one.
fn late(world: &World) -> Result<()> {
    world.barrier()?;
    say("ready");
    if world.rank() == STARVED {
        let go = PathBuf::from(std::env::var("TEST_GO").unwrap());
        while !go.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let region = world.alloc::<u64>(&Device::Host, 100)?;
        world.peer(0)?.send(&region, 1).prepare()?.start()?;
    }
    loop {
        world.barrier()?;
    }
}

/// A thread of a rank that does not run while this lives.
struct Held(libc::pid_t);

impl Held {
    fn control_thread(rank: &Rank) -> Held {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", rank.pid())).unwrap();
        let named = |task: &PathBuf| std::fs::read_to_string(task.join("comm")).unwrap_or_default();
        let task =
            tasks.map(|task| task.unwrap().path()).find(|task| named(task).trim() == "mp-control");
        let task = task.expect("a rank has a control thread");
        let thread: libc::pid_t = task.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let mut status = 0;
        // SAFETY: no memory is read or written; the thread is one of a child of this process.
        unsafe {
            let failed = std::io::Error::last_os_error;
            assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, thread, 0, 0), 0, "{}", failed());
            assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, thread, 0, 0), 0, "{}", failed());
            assert_eq!(libc::waitpid(thread, &raw mut status, libc::__WALL), thread);
        }
        Held(thread)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: as above. It fails if the thread is gone, and then there is nothing to let go.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}

fn names_the_victim(text: &str) -> bool {
    text.starts_with(&format!("rank {VICTIM} on ")) && text.contains("is lost")
}

fn the_killed_rank_is_named(program: &str, path: &str) {
    println!("{program}, MP_PATH={path}");
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let variables = [("MP_PATH", path), ("TEST_GO", go.to_str().unwrap())];
    let mut ranks = start_mprun(program, RANKS, &variables);
    for rank in &ranks {
        assert_eq!(rank.next(START).as_deref(), Some("ready"));
    }
    let held = Held::control_thread(&ranks[STARVED]);
    ranks[STARVED].signal(libc::SIGSTOP);
    ranks[VICTIM].signal(libc::SIGKILL);
    for other in [0, 1] {
        let text = ranks[other].next(SOON).unwrap_or_default();
        assert!(names_the_victim(&text), "rank {other} says: {text}");
        assert_eq!(ranks[other].end(SOON), Some(3));
    }
    ranks[STARVED].signal(libc::SIGCONT);
    std::fs::write(&go, "").unwrap();
    std::thread::sleep(ALONE);
    assert!(ranks[STARVED].is_silent(), "it names somebody before it can know whom");
    drop(held);
    let text = ranks[STARVED].next(SOON).unwrap_or_default();
    assert!(names_the_victim(&text), "the starved rank says: {text}");
    assert_eq!(ranks[STARVED].end(SOON), Some(3));
}

#[test]
fn a_starved_rank_does_not_blame_those_who_left_because_of_the_victim() {
    for path in common::paths() {
        the_killed_rank_is_named("ring", path);
    }
}

#[test]
fn nor_does_one_that_maps_the_memory_of_a_rank_that_has_left() {
    the_killed_rank_is_named("late", "auto");
}
