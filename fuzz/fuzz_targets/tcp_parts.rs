//! `gdsync::fuzz::tcp_parts` says what the bytes are.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gdsync::fuzz::tcp_parts(data));
