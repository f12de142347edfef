//! What tests of tagged messages of memory that the CPU does not reach, or is not to, have in common.

use libmp::tagged::Options;

/// Bytes of a chunk of host memory.
pub const CHUNK: usize = 256 << 10;

pub fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + seed * 7) as u8).collect()
}

pub fn staged() -> Options {
    Options { staged: true, ..Options::default() }
}
