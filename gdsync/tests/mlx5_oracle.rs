//! The Rust encoders and decoders of the mlx5 formats against `<infiniband/mlx5dv.h>`, byte for byte, on random
//! requests. Needs the header and a C compiler, but no library and no device:
//! `cargo test -p gdsync --test mlx5_oracle -- --ignored`.

mod mlx5_common;

use gdsync::wqe::{
    AtomicSegment, Cqe, CtrlSegment, DataSegment, InlineHeader, RemoteSegment, Syndrome, WqeOpcode,
};
use mlx5_common::{Shim, compare_completions, compare_entries, compare_receives};
use std::mem::offset_of;
use std::sync::OnceLock;

/// The shim, built once for all tests.
fn shim() -> &'static Shim {
    static SHIM: OnceLock<Shim> = OnceLock::new();
    SHIM.get_or_init(build)
}

fn build() -> Shim {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut flags = vec!["-std=gnu11", "-Wno-implicit-fallthrough", "-Wno-unused-parameter"];
    if cfg!(target_arch = "x86_64") {
        // For the header's vector variants, whose shuffle is SSSE3.
        flags.push("-mssse3");
    }
    Shim::build(&compiler, "mlx5dv_shim.c", &flags, false)
}

#[test]
#[ignore = "needs infiniband/mlx5dv.h"]
fn entries_are_those_of_the_header() {
    compare_entries(shim(), 0x5eed_0001);
}

#[test]
#[ignore = "needs infiniband/mlx5dv.h"]
fn receives_are_those_of_the_header() {
    compare_receives(shim(), 0x5eed_0002);
}

#[test]
#[ignore = "needs infiniband/mlx5dv.h"]
fn completions_are_read_as_the_header_reads_them() {
    compare_completions(shim(), 0x5eed_0003);
}

#[test]
#[ignore = "needs infiniband/mlx5dv.h"]
fn segments_have_the_fields_of_the_headers_structs() {
    macro_rules! layout {
        ($($type:ident { $($field:ident),* })*) => {
            vec![$(size_of::<$type>() as u32, $(
                offset_of!($type, $field) as u32,
                size_of_val(&<$type as zerocopy::FromZeros>::new_zeroed().$field) as u32,
            )*)*]
        };
    }
    let mut ours = layout! {
        RemoteSegment { address, rkey, reserved }
        AtomicSegment { swap_or_add, compare }
        InlineHeader { byte_count }
        CtrlSegment {
            opmod_idx_opcode, qpn_ds, signature, dci_stream_channel_id, fm_ce_se, imm
        }
    };
    ours.extend([
        size_of::<DataSegment>() as u32,
        size_of::<Cqe>() as u32,
        size_of::<Cqe>() as u32,
    ]);
    assert_eq!(shim().words("shim_layout"), ours);
}

#[test]
#[ignore = "needs infiniband/mlx5dv.h"]
fn opcodes_and_syndromes_have_the_headers_numbers() {
    let shim = shim();
    // The header lacks the two that NVIDIA's device headers and the Linux kernel have.
    let ours: Vec<u32> = WqeOpcode::ALL
        .iter()
        .filter(|o| !matches!(o, WqeOpcode::Wait | WqeOpcode::Dump))
        .map(|o| *o as u32)
        .collect();
    assert_eq!(shim.words("shim_constants"), ours);
    for number in 0..=255 {
        let listed = shim.words("shim_syndromes").contains(&u32::from(number));
        let known = !matches!(Syndrome::from(number), Syndrome::Other(_));
        assert_eq!(listed, known, "syndrome {number:#04x}");
    }
}
