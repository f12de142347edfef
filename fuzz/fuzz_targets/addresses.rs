//! `gdsync::fuzz::addresses` says what the bytes are.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gdsync::fuzz::addresses(data));
