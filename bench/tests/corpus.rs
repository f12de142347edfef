//! What fuzzing has found for the reader of result files (`fuzz/fuzz_targets/results.rs`), read again: nothing panics, and
//! what is read comes back when it is written.

use std::path::Path;

use mp_bench::result::Results;

#[test]
fn the_corpus_of_results_is_taken() {
    let folder = format!("{}/../fuzz/corpus/results", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).expect("the corpus is part of the sources") {
        let path = entry.expect("a file").path();
        let bytes = std::fs::read(&path).expect("a file that can be read");
        count += 1;
        let Ok(text) = std::str::from_utf8(&bytes) else { continue };
        if let Ok(results) = Results::parse(text, Path::new("input")) {
            let again = serde_json::to_string(&results).expect("what was read can be written");
            let back = Results::parse(&again, Path::new("again")).ok();
            assert_eq!(back, Some(results), "{}", path.display());
        }
    }
    assert!(count > 0, "{folder} is empty");
}
