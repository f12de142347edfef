//! One page documents every environment variable, and only one place in the library reads them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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

#[test]
fn only_the_configuration_reads_the_environment() {
    for folder in ["libmp/src", "libmp/c/src", "gdsync/src", "gdsync-sys/src"] {
        for (path, text) in sources(&root().join(folder)) {
            let reads = ["env::var", "env::vars", "getenv"].iter().any(|call| text.contains(call));
            assert!(
                !reads || path.ends_with("libmp/src/config.rs"),
                "{} reads the environment by itself",
                path.display()
            );
        }
    }
}

#[test]
fn names_are_found_in_quotes_and_nowhere_else() {
    let found = names(r#"let a = "MP_RANK"; // MP_SIZE, "not MP_ONE"; b("MP_"); c("HPGMG_X")"#);
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["HPGMG_X", "MP_RANK"]);
}
