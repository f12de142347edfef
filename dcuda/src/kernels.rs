//! The kernels: what they are called with, declared once for Rust and `cuda/layout.cuh`, their names, and their code for GPUs and for the
//! CPU. Not how they are launched (`machine.rs`).

use std::ffi::{c_char, c_void};

use mp_kernels::{shared_constants, shared_enum, shared_structs};

shared_constants! {
    /// Doubles of a packet of `Overlap`.
    pub const PACKET: u64 = 128 as packet;
    /// Bytes ahead of the ranks' memory in that of `Pairs`: messages begin with a cache line, or links carry more packets than they need.
    pub const PAIRS_AHEAD: u64 = 128 as pairs_ahead;
    /// Square roots that a thread computes at once, of each of a packet's doubles.
    pub const ROOTS_AT_ONCE: u64 = 4 as roots_at_once;
}

shared_enum! {
    /// How a halo of the stencil is given.
    pub enum HaloForm {
        /// By a put of each level, the last with a notification.
        LastLevel = 0 as last_level,
        /// By a put with a notification of each level.
        EachLevel = 1 as each_level,
        /// By one put of all levels.
        AllLevels = 2 as all_levels,
    }
}

shared_structs! {
    /// The stencil, as a device has it.
    pub struct Stencil {
        /// Address of the five fields of doubles, each `levels` × (`ranks` × `lines` + 2) × `columns`.
        pub fields: u64,
        /// Points of a line.
        pub columns: u64,
        /// Lines of a rank.
        pub lines: u64,
        /// Levels.
        pub levels: u64,
        /// Ranks of a device.
        pub ranks: u64,
        /// Devices.
        pub devices: u64,
        /// Which of them this is.
        pub device: u64,
        /// Iterations; of one phase: which iteration.
        pub turns: u64,
        /// Which phase, of one.
        pub phase: u64,
        /// A `HaloForm`.
        pub halo: u64,
    }

    /// Messages back and forth.
    pub struct Pairs {
        /// Address of a word for the nanoseconds and one for the words that were wrong; `PAIRS_AHEAD` bytes from there for each rank what it
        /// sends, and what comes to it.
        pub memory: u64,
        /// Bytes of the room of one message.
        pub room: u64,
        /// Bytes of a message.
        pub bytes: u64,
        /// Messages each way.
        pub turns: u64,
        /// 1: between a device and another one, 0: on each device.
        pub across: u64,
        /// 1: each word is compared.
        pub check: u64,
        /// Notifications of another tag that lie in each rank's queue meanwhile.
        pub pending: u64,
    }

    /// Exchange and computation, together or each alone.
    pub struct Overlap {
        /// Address of the ranks' memory, `words` each: see overlap.cuh.
        pub memory: u64,
        /// Words of a rank.
        pub words: u64,
        /// Iterations; of one stage: which iteration.
        pub turns: u64,
        /// Which stage, of one: the computation and what is given to neighbours of the same device, or the sum of what came.
        pub stage: u64,
        /// Units of computation in each: a step of Newton's method for 512 roots, or 1 KiB copied.
        pub units: u64,
        /// 1: square roots, 0: copies.
        pub roots: u64,
        /// 1: packets are exchanged.
        pub exchanges: u64,
        /// 1: the neighbours are the same rank of other devices, 0: the ranks before and behind.
        pub across: u64,
        /// Doubles that are copied before it begins anew, a multiple of 128.
        pub copied: u64,
        /// Address of words for nanoseconds, one for each rank: the first rank writes those from the barrier before the first iteration to the one
        /// behind the last into the first. Behind them are counts (dcuda_waiting).
        pub time: u64,
    }

    /// Particles in cells, as a device has them.
    pub struct Particles {
        /// Address of its memory: see particles.cuh.
        pub memory: u64,
        /// Cells of a rank.
        pub cells: u64,
        /// Particles that a cell has room for.
        pub room: u64,
        /// Ranks of a device.
        pub ranks: u64,
        /// Devices.
        pub devices: u64,
        /// Which of them this is.
        pub device: u64,
        /// Iterations; of one stage: which iteration.
        pub turns: u64,
        /// Which stage, of one.
        pub stage: u64,
        /// How far particles push each other away; at most the width of a cell, which is 1.
        pub cutoff: f64,
        /// Length of an iteration.
        pub step: f64,
    }

    /// A sparse matrix, as a device has its part.
    pub struct Matrix {
        /// Address of the input vector: doubles, as many as rows.
        pub input: u64,
        /// Address of the result.
        pub result: u64,
        /// Address of two vectors that others add to the result.
        pub others: u64,
        /// Address of 32 doubles a row.
        pub sums: u64,
        /// Address of the first entry of each row, and the end of the last, words of 64 bits.
        pub starts: u64,
        /// Address of the entries' columns, words of 32 bits.
        pub columns: u64,
        /// Address of the entries' values.
        pub values: u64,
        /// Rows of a rank.
        pub rows: u64,
        /// Ranks of a device.
        pub ranks: u64,
        /// Devices in a row of the matrix.
        pub across: u64,
        /// Devices in a column of it.
        pub down: u64,
        /// Which device this is, row by row.
        pub device: u64,
        /// Iterations.
        pub turns: u64,
        /// Which stage, of one.
        pub stage: u64,
    }
}

/// `cuda/layout.cuh`.
#[allow(dead_code, reason = "a test writes and compares it")]
const HEADER: mp_kernels::shared::Header = mp_kernels::shared::Header {
    source: "dcuda/src/kernels.rs",
    package: "mp-dcuda",
    includes: &[],
    namespace: "programs",
    constants: CONSTANTS,
    enums: &[HaloForm::ENUMERATION],
    structs: LAYOUTS,
};

/// Every kernel of `cuda/`.
pub const NAMES: &[&str] = &[
    "dcuda_matrix",
    "dcuda_matrix_stage",
    "dcuda_overlap",
    "dcuda_overlap_stage",
    "dcuda_particles",
    "dcuda_particles_stage",
    "dcuda_pingpong",
    "dcuda_stencil",
    "dcuda_stencil_phase",
    "dcuda_waiting",
];

unsafe extern "C" {
    /// `cuda/host.cpp`.
    pub fn dcuda_on_host(
        name: *const c_char,
        ranks: *const mp_kernels::Ranks,
        args: *const c_void,
        blocks: u32,
        threads: u32,
    ) -> i32;
}

/// The GPU code; none if there was no nvcc when this crate was built.
pub fn image() -> Option<&'static [u8]> {
    mp_kernels::embedded!(dcuda_fatbin, "dcuda.fatbin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_header_is_the_one_generated_from_the_declarations() {
        HEADER.check(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/layout.cuh")).unwrap();
    }

    #[test]
    fn every_kernel_is_one_of_the_host_too() {
        let host = include_str!("../cuda/host.cpp");
        for name in NAMES {
            assert!(host.contains(&format!("{{\"{name}\", run<")), "{name}");
        }
        assert_eq!(host.matches("{\"dcuda_").count(), NAMES.len());
    }
}
