//! `mp/wqe.cuh` and `mp/cqe.cuh`, built by the host's C++ compiler, against the Rust encoders and decoders, byte for
//! byte, on random requests.

mod mlx5_common;

use gdsync::wqe::{
    ArmRequest, CollapsedProgress, CqDoorbellRecord, Doorbell, DoorbellRecord, owned_by_software,
};
use mlx5_common::{COMPARED, Shim, compare_completions, compare_entries, compare_receives};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::OnceLock;

/// The shim, built once for all tests.
fn shim() -> &'static Shim {
    static SHIM: OnceLock<Shim> = OnceLock::new();
    SHIM.get_or_init(|| {
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        let include = format!("-I{}/../kernels/include", env!("CARGO_MANIFEST_DIR"));
        Shim::build(&compiler, "cuda_header_shim.cpp", &["-std=c++20", &include], true)
    })
}

#[test]
fn entries_of_the_cuda_header_are_those_of_rust() {
    compare_entries(shim(), 0x5eed_0011);
}

#[test]
fn receives_of_the_cuda_header_are_those_of_rust() {
    compare_receives(shim(), 0x5eed_0012);
}

#[test]
fn the_cuda_header_reads_completions_as_rust_does() {
    compare_completions(shim(), 0x5eed_0013);
}

#[test]
fn the_cuda_header_tells_a_new_completion_as_rust_does() {
    type IsCompletion = unsafe extern "C" fn(u8, u64, u64) -> u8;
    let shim = shim();
    let theirs: IsCompletion = shim.get("shim_is_completion");
    for op_own in 0..=255 {
        for consumer in 0..64 {
            for slots in [1, 2, 4, 8] {
                // SAFETY: a function of three numbers.
                let theirs = unsafe { theirs(op_own, consumer, slots) } != 0;
                assert_eq!(theirs, owned_by_software(op_own, consumer, slots));
            }
        }
    }
}

#[test]
fn the_cuda_header_rebuilds_progress_as_rust_does() {
    type Progress = unsafe extern "C" fn(u64, u16) -> u64;
    let shim = shim();
    let theirs: Progress = shim.get("shim_progress");
    let mut rng = SmallRng::seed_from_u64(0x5eed_0014);
    for _ in 0..COMPARED {
        let (known, counter) = (rng.random_range(0..1 << 50), rng.random());
        // SAFETY: a function of two numbers.
        let theirs = unsafe { theirs(known, counter) };
        assert_eq!(theirs, CollapsedProgress::at(known).after(counter).blocks());
    }
}

#[test]
fn doorbells_of_the_cuda_header_are_those_of_rust() {
    type Word16 = unsafe extern "C" fn(u16) -> u32;
    type Word64 = unsafe extern "C" fn(u64) -> u32;
    type Value = unsafe extern "C" fn(u32, u16) -> u64;
    type ArmWord = unsafe extern "C" fn(u64, u32, u8) -> u32;
    type ArmValue = unsafe extern "C" fn(u32, u32) -> u64;
    let shim = shim();
    let record: Word16 = shim.get("shim_record_word");
    let value: Value = shim.get("shim_doorbell");
    let cq_record: Word64 = shim.get("shim_cq_record_word");
    let arm_word: ArmWord = shim.get("shim_cq_arm_word");
    let arm_value: ArmValue = shim.get("shim_cq_arm_value");
    let mut rng = SmallRng::seed_from_u64(0x5eed_0015);
    for _ in 0..COMPARED / 10 {
        let (qpn, index) = (rng.random_range(0..1 << 24), rng.random());
        let (consumer, sequence, solicited_only) = (rng.random(), rng.random(), rng.random());
        let arm = ArmRequest { cqn: qpn, consumer, sequence, solicited_only };
        // SAFETY: functions of numbers.
        unsafe {
            assert_eq!(record(index).to_ne_bytes(), DoorbellRecord::word(index));
            assert_eq!(value(qpn, index).to_ne_bytes(), Doorbell { qpn, index }.to_bytes());
            assert_eq!(cq_record(consumer).to_ne_bytes(), CqDoorbellRecord::word(consumer));
            let word = arm_word(consumer, sequence, u8::from(solicited_only));
            assert_eq!(word.to_ne_bytes(), arm.record_word());
            assert_eq!(arm_value(qpn, word).to_ne_bytes(), arm.register());
        }
    }
}
