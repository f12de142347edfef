//! Breaks sources on purpose: each entry of [`BREAKS`] becomes a module with a copy of the sources of one model in which one
//! piece of text is another, and a test that the model notices. If the text is not there exactly as often as it says, nothing
//! is built: a source that changed needs its entry changed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// A model: its file, and the sources that it uses.
struct Model {
    file: &'static str,
    sources: &'static [&'static str],
}

const MAILBOX: Model = Model { file: "mailbox", sources: &["libmp/src/data/positions.rs"] };
const MESSAGE: Model = Model { file: "message", sources: &["gdsync/src/memory/access.rs"] };
const LOCKSTEP: Model = Model { file: "lockstep", sources: &["gdsync/src/memory/access.rs"] };
const PACKETS: Model = Model {
    file: "packets",
    sources: &["gdsync/src/memory/access.rs", "libmp/src/transport/packet.rs"],
};
const RINGS: Model = Model { file: "rings", sources: &["libmp/src/transport/line.rs"] };
const LOCK: Model = Model { file: "lock", sources: &["libmp/src/ownership.rs"] };
const SLEEP: Model = Model {
    file: "sleep",
    sources: &[
        "gdsync/src/nic/soft/doze.rs",
        "gdsync/src/nic/soft/inbox.rs",
        "gdsync/src/nic/soft/pace.rs",
        "gdsync/src/nic/soft/rest.rs",
    ],
};
const WATCHDOG: Model = Model {
    file: "watchdog",
    sources: &[
        "gdsync/src/memory/access.rs",
        "gdsync/src/watchdog/outstanding.rs",
        "gdsync/src/watchdog/vigil.rs",
    ],
};

/// One broken source.
struct Break {
    /// Name of the module and of the test.
    name: &'static str,
    model: Model,
    /// The function that has to panic.
    call: &'static str,
    /// Name of the source, what is replaced, how often it occurs, and by what.
    source: &'static str,
    text: &'static str,
    times: usize,
    with: &'static str,
}

const BREAKS: &[Break] = &[
    Break {
        name: "an_item_that_is_published_without_release",
        model: MAILBOX,
        call: "model",
        source: "positions",
        text: "self.put.store(number.wrapping_add(1), Ordering::Release)",
        times: 1,
        with: "self.put.store(number.wrapping_add(1), Ordering::Relaxed)",
    },
    Break {
        name: "a_slot_that_is_written_without_seeing_it_read",
        model: MAILBOX,
        call: "model",
        source: "positions",
        text: "self.taken.load(Ordering::Acquire)",
        times: 1,
        with: "self.taken.load(Ordering::Relaxed)",
    },
    Break {
        name: "a_signal_without_release",
        model: MESSAGE,
        call: "model",
        source: "access",
        text: "self.store(value, Ordering::Release)",
        times: 1,
        with: "self.store(value, Ordering::Relaxed)",
    },
    Break {
        name: "a_signal_seen_without_acquire",
        model: MESSAGE,
        call: "model",
        source: "access",
        text: "self.load(Ordering::Acquire)",
        times: 1,
        with: "self.load(Ordering::Relaxed)",
    },
    Break {
        name: "an_arrival_in_lockstep_without_release",
        model: LOCKSTEP,
        call: "model",
        source: "access",
        text: "self.store(value, Ordering::Release)",
        times: 1,
        with: "self.store(value, Ordering::Relaxed)",
    },
    Break {
        name: "an_arrival_in_lockstep_seen_without_acquire",
        model: LOCKSTEP,
        call: "model",
        source: "access",
        text: "self.load(Ordering::Acquire)",
        times: 1,
        with: "self.load(Ordering::Relaxed)",
    },
    Break {
        name: "a_packet_whose_number_is_published_without_release",
        model: PACKETS,
        call: "model",
        source: "packet",
        text: "last.store(high | u64::from(number as u32), Ordering::Release)",
        times: 1,
        with: "last.store(high | u64::from(number as u32), Ordering::Relaxed)",
    },
    Break {
        name: "a_packet_whose_number_is_seen_without_acquire",
        model: PACKETS,
        call: "model",
        source: "packet",
        text: "last.load(Ordering::Acquire)",
        times: 1,
        with: "last.load(Ordering::Relaxed)",
    },
    Break {
        name: "packets_of_which_only_the_first_is_looked_at",
        model: PACKETS,
        call: "model",
        source: "packet",
        text: "            return false;",
        times: 1,
        with: "            return slot[1].load(Ordering::Acquire) as u32 == number as u32;",
    },
    Break {
        name: "a_line_whose_number_is_published_without_release",
        model: RINGS,
        call: "model",
        source: "line",
        text: "first.store(*value, Ordering::Release)",
        times: 1,
        with: "first.store(*value, Ordering::Relaxed)",
    },
    Break {
        name: "a_line_whose_number_is_seen_without_acquire",
        model: RINGS,
        call: "model",
        source: "line",
        text: ".load(Ordering::Acquire) != number",
        times: 1,
        with: ".load(Ordering::Relaxed) != number",
    },
    Break {
        name: "a_first_line_that_is_published_without_release",
        model: RINGS,
        call: "in_lines",
        source: "line",
        text: "first.store(*value, Ordering::Release)",
        times: 1,
        with: "first.store(*value, Ordering::Relaxed)",
    },
    Break {
        name: "a_first_line_that_is_seen_without_acquire",
        model: RINGS,
        call: "in_lines",
        source: "line",
        text: ".load(Ordering::Acquire) != number",
        times: 1,
        with: ".load(Ordering::Relaxed) != number",
    },
    Break {
        name: "credits_that_are_given_without_release",
        model: RINGS,
        call: "model",
        source: "line",
        text: "word.store(*value, Ordering::Release)",
        times: 1,
        with: "word.store(*value, Ordering::Relaxed)",
    },
    Break {
        name: "credits_that_are_seen_without_acquire",
        model: RINGS,
        call: "model",
        source: "line",
        text: "line[at].load(Ordering::Acquire)",
        times: 1,
        with: "line[at].load(Ordering::Relaxed)",
    },
    Break {
        name: "an_owner_that_does_not_look_again",
        model: LOCK,
        call: "model",
        source: "ownership",
        text: "if self.owner.load(Ordering::Relaxed) == this {",
        times: 1,
        with: "if true {",
    },
    Break {
        name: "an_owner_that_enters_without_its_half_of_the_barrier",
        model: LOCK,
        call: "model",
        source: "ownership",
        text: "half_fence(Ordering::SeqCst);",
        times: 1,
        with: "",
    },
    Break {
        name: "a_lock_that_is_taken_away_without_a_barrier",
        model: LOCK,
        call: "model",
        source: "ownership",
        text: "barrier::pass();\n            while",
        times: 1,
        with: "while",
    },
    Break {
        name: "a_lock_that_is_taken_away_without_waiting_for_its_owner",
        model: LOCK,
        call: "model",
        source: "ownership",
        text: "while self.inside.load(Ordering::Acquire) {",
        times: 1,
        with: "while false {",
    },
    Break {
        name: "a_doze_without_full_fences",
        model: SLEEP,
        call: "model",
        source: "doze",
        text: "fence(Ordering::SeqCst)",
        times: 2,
        with: "fence(Ordering::AcqRel)",
    },
    Break {
        name: "a_sleep_without_another_pass",
        model: SLEEP,
        call: "model",
        source: "rest",
        text: "doze.announce();\n        Pause::None",
        times: 1,
        with: "doze.announce();\n        Pause::Sleep(STEP)",
    },
    Break {
        name: "a_command_that_is_marked_as_heard_after_it_was_taken",
        model: SLEEP,
        call: "model",
        source: "inbox",
        text: "self.any.swap(false, Ordering::AcqRel);\n        std::mem::take(&mut *self.things.lock().unwrap_or_else(PoisonError::into_inner))",
        times: 1,
        with: "let all = std::mem::take(&mut *self.things.lock().unwrap_or_else(PoisonError::into_inner));\n        self.any.swap(false, Ordering::AcqRel);\n        all",
    },
    Break {
        name: "an_abort_that_does_not_wait_for_the_lock",
        model: WATCHDOG,
        call: "abort",
        source: "vigil",
        text: "let watched = self.lock();\n        announce();",
        times: 1,
        with: "let watched = String::new();\n        announce();",
    },
    Break {
        name: "an_abort_that_is_seen_without_acquire",
        model: WATCHDOG,
        call: "abort",
        source: "vigil",
        text: "self.aborted.load(Ordering::Acquire)",
        times: 1,
        with: "self.aborted.load(Ordering::Relaxed)",
    },
    Break {
        name: "a_stop_during_a_round_that_is_not_looked_for",
        model: WATCHDOG,
        call: "abort",
        source: "vigil",
        text: "if self.stop.load(Ordering::Acquire) {\n                    return;\n                }",
        times: 1,
        with: "",
    },
    Break {
        name: "a_wait_that_looks_for_the_abort_before_it_has_the_lock",
        model: WATCHDOG,
        call: "abort",
        source: "outstanding",
        text: "let mut waits = self.lock();\n        // After",
        times: 1,
        with: "let aborted = is_aborted();\n        let is_aborted = || aborted;\n        let mut waits = self.lock();\n        // After",
    },
    Break {
        name: "a_release_that_looks_and_then_writes",
        model: WATCHDOG,
        call: "late_signal",
        source: "access",
        text: "let _ = self.fetch_update(Ordering::AcqRel, Ordering::Acquire, higher);",
        times: 1,
        with: "if let Some(value) = higher(self.load(Ordering::Acquire)) { self.store(value, Ordering::Release); }",
    },
];

fn main() {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let root = here.parent().expect("models/ is in the repository");
    println!("cargo::rerun-if-changed=build.rs");
    let mut modules = String::new();
    for broken in BREAKS {
        let folder = out.join(broken.name);
        fs::create_dir_all(&folder).expect("a folder for the broken source");
        writeln!(modules, "pub mod {} {{", broken.name).expect("a string takes it");
        for source in broken.model.sources {
            let path = root.join(source);
            println!("cargo::rerun-if-changed={}", path.display());
            let stem = path.file_stem().and_then(|stem| stem.to_str()).expect("a source's name");
            if stem == broken.source {
                let copy = folder.join(format!("{stem}.rs"));
                let text = fs::read_to_string(&path).expect("the source");
                assert_eq!(
                    text.matches(broken.text).count(),
                    broken.times,
                    "{}: how often {source} says {:?}",
                    broken.name,
                    broken.text
                );
                fs::write(&copy, text.replace(broken.text, broken.with)).expect("a copy");
                module(&mut modules, stem, &copy);
            } else {
                module(&mut modules, stem, &path);
            }
        }
        module(
            &mut modules,
            broken.model.file,
            &here.join(format!("src/{}.rs", broken.model.file)),
        );
        // A program of its own: some of what loom finds ends the program.
        writeln!(
            modules,
            "#[test]\n#[ignore = \"has to fail; is_noticed runs it\"]\nfn fails() {{ {}::{}(); }}\n\
             #[test]\nfn is_noticed() {{ super::super::fails({:?}); }}\n}}",
            broken.model.file,
            broken.call,
            format!("broken::{}::fails", broken.name)
        )
        .expect("a string takes it");
    }
    fs::write(out.join("broken.rs"), modules).expect("the modules");
}

fn module(to: &mut String, name: &str, path: &Path) {
    writeln!(to, "#[path = {path:?}]\npub mod {name};").expect("a string takes it");
}
