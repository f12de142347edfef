//! `libmp::fuzz::control_stream` says what the bytes are.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| libmp::fuzz::control_stream(data));
