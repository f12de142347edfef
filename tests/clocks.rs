//! The libraries measure time with monotonic clocks only, so that a clock that jumps ends no wait early and makes none last
//! for ever.

use std::path::Path;

/// Ways to ask for the time of day.
const WALL_CLOCKS: [&str; 5] =
    ["SystemTime", "UNIX_EPOCH", "CLOCK_REALTIME", "ClockId::Realtime", "gettimeofday"];

fn search(folder: &Path, found: &mut Vec<String>, files: &mut usize) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            search(&path, found, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            *files += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            for name in WALL_CLOCKS.iter().filter(|name| text.contains(**name)) {
                found.push(format!("{}: {name}", path.display()));
            }
        }
    }
}

#[test]
fn nothing_that_waits_looks_at_the_time_of_day() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut files) = (Vec::new(), 0);
    for folder in ["libmp/src", "gdsync/src", "hpgmg/src", "src/launch"] {
        search(&root.join(folder), &mut found, &mut files);
    }
    assert!(files > 100, "only {files} files");
    assert!(found.is_empty(), "{found:#?}");
}
