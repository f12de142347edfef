//! `libmp::fuzz::tagged_lines` says what the bytes are.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| libmp::fuzz::tagged_lines(data));
