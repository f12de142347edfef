//! The device side of the project: the public headers `mp/*.cuh` (in `include/`) and the GPU code compiled
//! from them, embedded as one fatbin.
//!
//! ```
//! match mp_kernels::fatbin() {
//!     Ok(image) => println!("{} bytes for {:?}", image.len(), mp_kernels::BUILD.architectures),
//!     Err(not_built) => println!("{not_built}"),
//! }
//! ```
//!
//! Here are only bytes, names and layouts. Loading them on a GPU and launching kernels is `gdsync`'s, which loads every
//! entry of [`KERNELS`] when it opens a device: a lazy load behind a blocked stream would deadlock.
//!
//! Crates that compile kernels of their own against the headers depend on this one and read, in their build scripts,
//! `DEP_MP_KERNELS_INCLUDE` (the include folder), `DEP_MP_KERNELS_NVCC` (the compiler; unset without one) and
//! `DEP_MP_KERNELS_GENCODE` (values of its option `-gencode` for the architectures here, with spaces between).

// By its name, as crates that use its macros know it.
extern crate self as mp_kernels;

mod layout;
pub mod shared;

pub use layout::*;

/// How the GPU code of this build was compiled.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// Release of the nvcc that compiled it, as in `13.0.88`. `None`: built without GPU code.
    pub nvcc: Option<&'static str>,
    /// What the fatbin holds, in nvcc's names: machine code `sm_90`, PTX `compute_80`.
    pub architectures: &'static [&'static str],
}

/// How this build was compiled.
pub const BUILD: Build = include!(concat!(env!("OUT_DIR"), "/build_info.rs"));

/// Every entry point of the fatbin. Their arguments and what they order are documented in `src/cuda/`.
pub const KERNELS: &[&str] = &[
    "mp_atomic",
    "mp_barrier",
    "mp_collective",
    "mp_collective_lanes",
    "mp_collective_nic",
    "mp_collective_rings",
    "mp_exchange",
    "mp_pieces",
    "mp_ring",
    "mp_signal_add",
    "mp_signal_store",
    "mp_signal_wait",
    "mp_steps",
    "mp_steps_few",
    "mp_window_signal_add",
];

/// Threads of a block that suit messages of `bytes` bytes as packets: one for each packet, or if these are more than 512 for each
/// [`PACKETS_A_THREAD`]; more take longer to start and to meet. A multiple of 32, 512 at most, with which a kernel of messages has registers
/// for all it does.
///
/// ```
/// assert_eq!([0, 384, 385, 6144, 8192].map(mp_kernels::packet_threads), [32, 32, 64, 512, 352]);
/// ```
pub fn packet_threads(bytes: u64) -> u32 {
    const MOST: u64 = 512;
    let packets = bytes.div_ceil(PACKET_BYTES.into());
    let each = if packets > MOST { PACKETS_A_THREAD } else { 1 };
    (packets.div_ceil(each.into()).clamp(1, MOST) as u32).next_multiple_of(32)
}

/// The program holds no GPU code, because no nvcc was found when it was built.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "built without GPU code: no nvcc was found when mp-kernels was compiled; run tools/get-nvcc (or set NVCC or \
     CUDA_HOME), then cargo build"
)]
pub struct NotBuilt;

/// What the caller's build script has compiled (`build/module.rs`): `Some` of a file of its `OUT_DIR`, aligned to 64 bytes as the driver
/// wants a fatbin, or `None` if there was no nvcc, so that the script did not set `$built`.
#[doc(hidden)]
#[macro_export]
macro_rules! embedded {
    ($built:ident, $file:literal) => {{
        #[cfg($built)]
        {
            #[repr(C, align(64))]
            struct Aligned<T: ?Sized>(T);
            static IMAGE: &Aligned<[u8]> =
                &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $file)));
            Some(&IMAGE.0)
        }
        #[cfg(not($built))]
        {
            None::<&'static [u8]>
        }
    }};
}

/// The fatbin with every kernel of [`KERNELS`], for `cuModuleLoadFatBinary` or `cuLibraryLoadData`. Aligned to 64 bytes.
///
/// # Errors
/// [`NotBuilt`] if there was no nvcc when this crate was built.
pub const fn fatbin() -> Result<&'static [u8], NotBuilt> {
    match embedded!(mp_fatbin, "mp.fatbin") {
        Some(image) => Ok(image),
        None => Err(NotBuilt),
    }
}

#[cfg(test)]
#[path = "../build/nvcc.rs"]
#[allow(dead_code, reason = "the build script uses the rest")]
mod nvcc;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_kernels_is_what_the_sources_define() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cuda");
        let module = std::fs::read_to_string(format!("{folder}/module.cu")).unwrap();
        let mut defined = Vec::new();
        for file in std::fs::read_dir(folder).unwrap() {
            let file = file.unwrap();
            let text = std::fs::read_to_string(file.path()).unwrap();
            let names = text.split("MP_KERNEL void ").skip(1);
            for kernel in names.clone() {
                let body = kernel.split_once("{\n").unwrap().1;
                // Streams launch it before the one in front of it has ended.
                assert!(body.starts_with("    mp::begin_in_turn();\n"), "{kernel}");
            }
            let before = defined.len();
            // The size of its blocks may stand before the name.
            let names = names.map(|rest| match rest.strip_prefix("MP_BLOCK_OF(") {
                Some(rest) => rest.split_once(") ").unwrap().1,
                None => rest,
            });
            defined.extend(names.map(|rest| rest.split_once('(').unwrap().0.to_owned()));
            let name = file.file_name().into_string().unwrap();
            assert!(
                defined.len() == before || module.contains(&format!("#include \"{name}\"")),
                "{name} has kernels but module.cu does not include it"
            );
        }
        defined.sort();
        assert_eq!(defined, KERNELS, "KERNELS must list, sorted, what src/cuda defines");
    }

    #[test]
    fn a_build_with_nvcc_has_a_fatbin_and_one_without_says_how_to_get_it() {
        match fatbin() {
            Ok(image) => {
                // fatbinary.h: magic number 0xba55ed50.
                assert_eq!(image[..4], 0xba55_ed50_u32.to_le_bytes());
                assert_eq!(image.as_ptr() as usize % 64, 0);
                assert!(BUILD.nvcc.is_some());
                assert!(BUILD.architectures.contains(&"sm_80"), "{BUILD:?}");
                assert!(BUILD.architectures.iter().any(|name| name.starts_with("compute_")));
            }
            Err(not_built) => {
                assert_eq!(BUILD, Build { nvcc: None, architectures: &[] });
                let text = not_built.to_string();
                assert!(text.contains("built without GPU code"), "{text}");
                assert!(text.contains("tools/get-nvcc") && text.contains("cargo build"), "{text}");
            }
        }
    }
}
