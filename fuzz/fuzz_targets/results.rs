//! Files of `mp-perf`, as `mp-perf report` reads them.
#![no_main]

use std::path::Path;

use mp_bench::result::Results;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(results) = Results::parse(text, Path::new("input")) {
        let again = serde_json::to_string(&results).expect("what was read can be written");
        assert_eq!(Results::parse(&again, Path::new("again")).ok(), Some(results));
    }
});
