//! One page documents every environment variable, and only one place in the library reads them.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use libmp::{Config, World};

const BEGIN: &str = "<!-- libmp -->\n";
const END: &str = "<!-- end -->";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page() -> PathBuf {
    root().join("docs/environment.md")
}

/// The Rust sources of a folder.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            files.push((path, text));
        }
    }
    files
}

/// String literals that look like the name of a variable of ours.
fn names(text: &str) -> BTreeSet<&str> {
    let quoted = ["\"MP_", "\"HPGMG_"].into_iter().flat_map(|start| {
        let literals = text.match_indices(start).map(|(at, _)| &text[at + 1..]);
        literals.filter_map(|rest| rest.split_once('"')).map(|(literal, _)| literal)
    });
    let all = |word: &&str| word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    quoted.filter(all).filter(|word| !word.ends_with('_')).collect()
}

#[test]
fn the_page_has_the_table_of_the_configuration() {
    let config = std::fs::read_to_string(root().join("libmp/src/config.rs")).unwrap();
    let rows = config.lines().filter_map(|line| line.strip_prefix("//! |"));
    let table: String = rows.map(|row| format!("|{row}\n")).collect();
    let table = table.replace("[`trace`](crate::trace)", "`libmp::trace`");
    let text = std::fs::read_to_string(page()).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the page marks its table");
    let (there, after) = rest.split_once(END).expect("the page marks its table");
    if std::env::var_os("MP_REGENERATE").is_some_and(|value| value == "1") {
        std::fs::write(page(), format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert!(
        there == table,
        "docs/environment.md differs from libmp/src/config.rs: MP_REGENERATE=1 cargo test -p libmp --test environment"
    );
}

#[test]
fn every_variable_that_the_libraries_name_is_on_the_page() {
    let page = std::fs::read_to_string(page()).unwrap();
    for folder in ["libmp/src", "gdsync/src", "gdsync-sys/src", "kernels", "src"] {
        for (path, text) in sources(&root().join(folder)) {
            for name in names(&text) {
                // Stamps of the build, which `env!` reads while it compiles.
                if name.starts_with("MP_BUILD") || name == "MP_TARGET" {
                    continue;
                }
                let known = page.contains(&format!("`{name}`"));
                assert!(known, "{} names {name}, docs/environment.md does not", path.display());
            }
        }
    }
    for name in libmp::config::VARIABLES {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

/// What a variable may not hold.
enum Absurd {
    /// Values that make no sense; a start refuses them and names the variable.
    Refused(&'static [&'static str]),
    /// Every value may make sense, because of this.
    Anything(&'static str),
}

use Absurd::{Anything, Refused};

const NUMBERS: Absurd = Refused(&["x", "-1", "1.5", "4294967296", "1e3", "0x1", "nan", "1 2"]);
const SECONDS: Absurd = Refused(&["x", "-1", "0", "nan", "inf", "1e300", "1s", "0x1", "1,5"]);
const WORDS: Absurd = Refused(&["x", "-1", "AUTO", "auto,nic", "1"]);
const BUILD: Absurd = Anything("read when the GPU code is built");
const PROGRAM: Absurd = Anything("a program or a test looks for it, or sets it itself");

/// Every variable of the page.
const TABLE: &[(&str, Absurd)] = &[
    ("MP_BOOTSTRAP", WORDS),
    ("MP_TIMEOUT", SECONDS),
    ("MP_INIT_TIMEOUT", SECONDS),
    ("MP_HEARTBEAT", SECONDS),
    ("MP_HEARTBEAT_TIMEOUT", SECONDS),
    ("MP_INTERFACE", Refused(&["nope", "-1", "203.0.113.7", "2001:db8::7", "lo lo"])),
    ("MP_NODE", Anything("hosts may be called anything, in so many bytes: a unit test")),
    ("MP_PATH", WORDS),
    ("MP_NIC_DEVICE", Refused(&["no_such_device", "-1", "mlx5_0 "])),
    ("MP_NIC_PORT", Refused(&["x", "-1", "0", "256", "1.5", "0x+1"])),
    ("MP_NIC_GID_INDEX", Refused(&["x", "-1", "256", "1.5", "0x"])),
    ("MP_NIC_PKEY", Refused(&["x", "-1", "0", "0x10000", "65536", "8001h"])),
    ("MP_NIC_SERVICE_LEVEL", Refused(&["x", "-1", "16", "1.5"])),
    ("MP_NIC_TRAFFIC_CLASS", Refused(&["x", "-1", "256", "CS1"])),
    ("MP_NIC_ZERO_COPY", Refused(&["x", "1", "true", "ON"])),
    ("MP_CONTEXTS", Refused(&["x", "-1", "0", "65", "1.5", "1e1"])),
    ("MP_PMIX_LIBRARY", Refused(&["/nonexistent/libpmix.so.2", "x", "/", "-1"])),
    ("MP_TRACE", Anything("what cannot be written is said at the start, and the job runs")),
    ("MP_TRACE_EVENTS", Refused(&["x", "-1", "1.5", "1e3", "99999999999999999999", "1000000001"])),
    ("MP_RANK", NUMBERS),
    ("MP_SIZE", NUMBERS),
    ("MP_LOCAL_RANK", NUMBERS),
    ("MP_LOCAL_SIZE", NUMBERS),
    ("MP_RENDEZVOUS", Refused(&["x", ":1", "a:0", "a:65536", "a:b", "::1:5", "a b:5", "[:5"])),
    ("MP_RENDEZVOUS_FD", Refused(&["x", "-1", "1.5", "2147483648"])),
    ("MP_JOB", Anything("jobs may be called anything, in so many bytes: a unit test")),
    ("MP_TOKEN", Refused(&["x", "0", "0x", "zz", "123", "00 00", "-1"])),
    ("MP_GPU", NUMBERS),
    ("RANK", NUMBERS),
    ("WORLD_SIZE", NUMBERS),
    ("LOCAL_RANK", NUMBERS),
    ("LOCAL_WORLD_SIZE", NUMBERS),
    ("MASTER_ADDR", Refused(&[" ", "a b", "a/b", "[]", "a,b", "http://a"])),
    ("MASTER_PORT", Refused(&["x", "-1", "0", "65536", "1.5"])),
    ("TORCHELASTIC_USE_AGENT_STORE", Refused(&["x", "1", "-1", "true,"])),
    ("TORCHELASTIC_RUN_ID", Anything("as MP_JOB")),
    ("PMIX_RANK", NUMBERS),
    ("PMIX_NAMESPACE", Anything("a launcher calls its job anything")),
    ("PMI_SIZE", NUMBERS),
    ("OMPI_COMM_WORLD_SIZE", NUMBERS),
    ("SLURM_STEP_NUM_TASKS", NUMBERS),
    ("NVCC", BUILD),
    ("CUDA_HOME", BUILD),
    ("CUDA_PATH", BUILD),
    ("MP_CUDA_WHEELS", BUILD),
    ("MP_CUDA_ARCHITECTURES", BUILD),
    ("MP_REGENERATE", PROGRAM),
    ("PATH", PROGRAM),
    ("LD_LIBRARY_PATH", PROGRAM),
    ("NVSHMEM_HOME", PROGRAM),
    ("MP_PERF_STARTED", PROGRAM),
    ("MP_TORTURE_FOLDER", PROGRAM),
    ("MP_TEST_PATHS", PROGRAM),
    ("MP_TEST_GPU", PROGRAM),
    ("CC", PROGRAM),
    ("CXX", PROGRAM),
];

#[test]
fn every_documented_variable_is_in_the_table_of_absurd_values() {
    let page = std::fs::read_to_string(page()).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let first = rows.filter_map(|row| row.split('|').nth(1));
    let documented: BTreeSet<&str> =
        first.flat_map(|names| names.split('`').skip(1).step_by(2)).collect();
    let tried: BTreeSet<&str> = TABLE.iter().map(|(name, _)| *name).collect();
    assert_eq!(documented, tried);
    for (name, absurd) in TABLE {
        if let Anything(why) = absurd {
            assert!(!why.is_empty(), "{name}");
        }
    }
}

#[test]
fn an_absurd_value_of_any_variable_is_refused_at_the_start_used_or_not() {
    let here = format!("127.0.0.1:{}", common::free_port());
    // Ways to start one rank, of which each uses other variables.
    let starts: [&[(&str, &str)]; 4] = [
        &[],
        &[("MP_BOOTSTRAP", "alone")],
        &[("MP_RANK", "0"), ("MP_SIZE", "1"), ("MP_RENDEZVOUS", &here)],
        &[("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "1")],
    ];
    for (name, absurd) in TABLE {
        let Refused(values) = absurd else { continue };
        for (value, start) in values.iter().flat_map(|value| starts.map(|start| (value, start))) {
            let variables: Vec<_> = start.iter().copied().chain([(*name, *value)]).collect();
            let world =
                Config::from_variables(variables).and_then(|config| World::with_config(&config));
            let text = match world {
                Err(error) => error.to_string(),
                Ok(_) => panic!("{name}={value:?} was taken, with {start:?}"),
            };
            let named = *name == "MP_INTERFACE" && text.contains(*value) || text.contains(name);
            assert!(named && !text.contains('\n'), "{name}={value:?}, with {start:?}: {text}");
        }
    }
}

#[test]
fn a_size_without_a_rank_or_the_rest_is_not_taken_for_a_start_alone() {
    for variables in [
        &[("MP_SIZE", "2")][..],
        &[("RANK", "0"), ("MP_SIZE", "2")],
        &[("RANK", "0"), ("WORLD_SIZE", "2")],
        &[("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "localhost")],
        &[("MP_RANK", "0")],
    ] {
        let config = Config::from_variables(variables.iter().copied()).unwrap();
        let error = World::with_config(&config).expect_err("a world of one");
        assert!(error.to_string().contains("is not set, but"), "{variables:?}: {error}");
    }
}

#[test]
fn only_the_configuration_reads_the_environment() {
    for folder in ["libmp/src", "libmp/c/src", "gdsync/src", "gdsync-sys/src"] {
        for (path, text) in sources(&root().join(folder)) {
            let reads = ["env::var", "env::vars", "getenv"].iter().any(|call| text.contains(call));
            // Tests may be told how much they are to do.
            let allowed = path.ends_with("libmp/src/config.rs") || path.ends_with("tests.rs");
            assert!(!reads || allowed, "{} reads the environment by itself", path.display());
        }
    }
}

#[test]
fn names_are_found_in_quotes_and_nowhere_else() {
    let found = names(r#"let a = "MP_RANK"; // MP_SIZE, "not MP_ONE"; b("MP_"); c("HPGMG_X")"#);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["HPGMG_X", "MP_RANK"]);
}
