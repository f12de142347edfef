//! The kernels as the host compiler makes them (`tests/host`), for tests on machines without a GPU: the solver, its launches and what it
//! computes are the same, and its streams are the host's.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use gdsync::{Arg, Buffer, Device, Dims, HostEntry, Kernel, Stream, TensorMap};
use libloading::Library;

use super::error::CudaError;
use super::machine::Machine;

impl Machine {
    /// The host.
    pub fn host() -> Self {
        Self {
            device: Device::Host,
            name: "the host".into(),
            // A launch is few blocks, of several planes each.
            multiprocessors: 1,
            memory: u64::MAX,
            shared_memory: 0,
            // As in `tests/host/tiles.hpp`.
            tile_memory: 232_448,
            // A fiber for each thread of all blocks: where a test wants them.
            together_memory: 0,
            compute: (0, 0),
        }
    }
}

/// Writes what is no number into memory that is new, if it is the host's, where it is zero: a GPU's holds whatever was there.
pub fn spoil(memory: &Buffer<f64>) {
    if memory.device().as_cuda().is_none() {
        // SAFETY: nobody else knows it yet.
        unsafe { memory.as_mut_slice() }.unwrap().fill(f64::NAN);
    }
}

/// Enqueues a kernel: its dimensions are one more argument of what the host compiler made, for gdsync's have one only.
///
/// # Safety
/// As for [`Stream::launch`].
pub unsafe fn launch(
    stream: &Stream,
    kernel: &Kernel,
    Dims { grid, block, .. }: Dims,
    args: &[Arg<'_>],
) -> Result<(), CudaError> {
    let dims = [grid.0, grid.1, grid.2, block.0, block.1, block.2];
    let all: Vec<Arg<'_>> = args.iter().copied().chain([Arg::new(&dims)]).collect();
    // SAFETY: the caller's promise.
    Ok(unsafe { stream.launch(kernel, Dims::one(), &all) }?)
}

/// A map of tiles as [`TensorMap::new`] makes it, of the host's memory: a `HostMap` of `tests/host/tiles.hpp`.
pub fn tensor_map(memory: &Buffer<f64>, dims: &[u64], strides: &[u64], tile: &[u32]) -> TensorMap {
    #[repr(C)]
    #[derive(Default)]
    struct HostMap {
        address: u64,
        rank: u64,
        dims: [u64; 4],
        strides: [u64; 3],
        tile: [u64; 4],
        unused: [u64; 3],
    }
    let rank = dims.len();
    let mut map = HostMap {
        address: memory.device_address().unwrap(),
        rank: rank as u64,
        ..HostMap::default()
    };
    map.dims[..rank].copy_from_slice(dims);
    map.strides[..rank - 1].copy_from_slice(strides);
    map.tile = std::array::from_fn(|m| tile.get(m).map_or(0, |&count| u64::from(count)));
    // SAFETY: both are as many words, of which any is valid; only the kernels of the host read it.
    unsafe { std::mem::transmute::<HostMap, TensorMap>(map) }
}

/// A kernel by its name.
pub fn kernel(name: &'static str) -> Kernel {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        // SAFETY: built from this repository's source; no initialisers but those of the C++ library.
        unsafe { Library::new(built()) }.expect("the kernels load")
    });
    let symbol = format!("{name}_on_host");
    // SAFETY: what `tests/host/kernels.cpp` exports has this type.
    let entry = *unsafe { library.get::<HostEntry>(symbol.as_bytes()) }.expect(name);
    // SAFETY: the entry takes its arguments as those of MP_HOST_KERNEL do, and the library stays loaded.
    unsafe { Kernel::host(name, entry) }
}

/// The library, compiled if it is older than a source: once for all processes of a test run.
fn built() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let [kernels, numerics, emulation] = ["../kernels/include", "cuda", "tests/host"];
    let newest = [kernels, numerics, emulation].map(|folder| newest(&here.join(folder)));
    let newest = newest.into_iter().max().unwrap();
    let out = Path::new(env!("OUT_DIR")).join("kernels-on-host.so");
    let guard = std::fs::File::create(out.with_extension("lock")).unwrap();
    guard.lock().unwrap();
    if out.metadata().is_ok_and(|known| changed(&known) > newest) {
        return out;
    }
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let next = out.with_extension("next");
    // Without fused multiply-add, as on the GPU.
    let status = Command::new(&compiler)
        .args(["-std=c++20", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-pthread"])
        .args(["-Wall", "-Werror", "-Wno-psabi", "-Wno-unknown-pragmas", "-Wno-sign-compare"])
        .args([kernels, numerics].map(|folder| format!("-I{folder}")))
        .arg("-o")
        .arg(&next)
        .arg(format!("{emulation}/kernels.cpp"))
        .current_dir(here)
        .status()
        .unwrap_or_else(|error| panic!("{compiler} does not start: {error}"));
    assert!(status.success(), "{compiler} cannot compile the kernels: {status}");
    // Processes that have the last one loaded keep it.
    std::fs::rename(next, &out).unwrap();
    out
}

/// When a file was last changed, in seconds and nanoseconds.
fn changed(file: &Metadata) -> (i64, i64) {
    (file.mtime(), file.mtime_nsec())
}

/// When a file of a folder was.
fn newest(folder: &Path) -> (i64, i64) {
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => newest(&entry.path()),
            false => changed(&entry.metadata().unwrap()),
        }
    };
    std::fs::read_dir(folder).unwrap().map(of).max().unwrap_or_default()
}
