//! Files of `mp-perf`, as `mp-perf report` reads them. The reader's files, not its crate: that would bring fonts and drawing,
//! which an instrumented build compiles for a quarter of an hour.
#![no_main]
// The report uses what the reader alone does not.
#![allow(dead_code)]

#[path = "../../bench/src/result.rs"]
mod result;
#[path = "../../bench/src/spread.rs"]
mod spread;

use std::path::Path;

use result::Results;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(results) = Results::parse(text, Path::new("input")) {
        let again = serde_json::to_string(&results).expect("what was read can be written");
        assert_eq!(Results::parse(&again, Path::new("again")).ok(), Some(results));
    }
});
