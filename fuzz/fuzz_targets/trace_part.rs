//! `libmp::fuzz::trace_part` says what the bytes are.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| libmp::fuzz::trace_part(data));
