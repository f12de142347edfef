//! The kernels: what they are called with, declared once for Rust and `cuda/layout.cuh`, their names, and their code for GPUs and for the
//! CPU. Not how they are launched (`machine.rs`).

use std::ffi::{c_char, c_void};

use mp_kernels::shared_structs;

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
        /// 1: a notification for each level, 0: one behind the last.
        pub each: u64,
    }
}

/// `cuda/layout.cuh`.
#[allow(dead_code, reason = "a test writes and compares it")]
const HEADER: mp_kernels::shared::Header = mp_kernels::shared::Header {
    source: "dcuda/src/kernels.rs",
    package: "mp-dcuda",
    includes: &[],
    namespace: "programs",
    constants: &[],
    enums: &[],
    structs: LAYOUTS,
};

/// Every kernel of `cuda/`.
pub const NAMES: &[&str] = &["dcuda_stencil", "dcuda_stencil_phase"];

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
    #[cfg(dcuda_fatbin)]
    {
        #[repr(C, align(64))]
        struct Aligned<T: ?Sized>(T);
        static IMAGE: &Aligned<[u8]> =
            &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/dcuda.fatbin")));
        Some(&IMAGE.0)
    }
    #[cfg(not(dcuda_fatbin))]
    None
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
