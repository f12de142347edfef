//! The kernels of `kernels/tests/cuda/queue_pair.cu`, on a GPU or, compiled by the host's C++ compiler, as OS threads.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use gdsync::nic::DeviceQueuePair;
use gdsync::{Arg, Buffer, Deadline, Device, Dims, Kernel, Module, Space, Stream};
use libloading::Library;
use mp_kernels::WaitBounds;

use crate::common;
use crate::soft_common::Outcome;

/// `mp::RemoteAddress`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Remote {
    pub address: u64,
    pub rkey: u32,
    pub pad: u32,
}

/// `mp::PostFlavour`.
#[derive(Debug, Clone, Copy)]
pub enum Flavour {
    Thread = 0,
    Warp = 1,
    Block = 2,
}

/// `mp::PostStatus`.
pub const OK: u32 = 0;
pub const FAILED: u32 = 3;

/// No kernel of these tests waits longer.
const BOUNDS: WaitBounds = WaitBounds { abort: 0, timeout_ns: 15_000_000_000 };

type WriteWords = unsafe extern "C" fn(
    *const DeviceQueuePair,
    *const Remote,
    u64,
    u32,
    u32,
    *const WaitBounds,
    *mut u32,
    u32,
    u32,
);
type Ring = unsafe extern "C" fn(*const DeviceQueuePair, u64, u64, *const WaitBounds, *mut u32);
type RoundTrip = unsafe extern "C" fn(
    *const DeviceQueuePair,
    *mut u64,
    u32,
    *const Remote,
    *mut u64,
    u32,
    u32,
    u64,
    u32,
    *const WaitBounds,
    *mut u32,
    u32,
);

/// Where kernels run.
pub struct Kernels {
    pub device: Device,
    pub stream: Stream,
    module: Option<Module>,
}

/// Word `index` of what kernels write with this seed: the finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014), as in
/// `kernels/tests/cuda/pattern.cuh`.
pub fn pattern(seed: u64, index: u64) -> u64 {
    let mut z = seed
        .wrapping_mul(0xd134_2543_de82_ef95)
        .wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Memory for `mp_qp_round_trip`.
pub struct RoundTripArgs<'a> {
    pub from: (&'a Buffer<u64>, u32),
    pub to: Remote,
    pub into: (&'a Buffer<u64>, u32),
    pub rounds: u32,
    /// Of the block.
    pub threads: u32,
}

impl Kernels {
    pub fn on(device: &Device) -> Outcome<Kernels> {
        let names = ["mp_qp_ring", "mp_qp_round_trip", "mp_qp_write_words"];
        let module = device.as_cuda().map(|gpu| common::kernels(gpu, &names)).transpose()?;
        Ok(Kernels { device: device.clone(), stream: device.stream()?, module })
    }

    fn kernel(&self, name: &str) -> Outcome<Option<Kernel>> {
        Ok(self.module.as_ref().map(|module| module.kernel(name)).transpose()?)
    }

    /// Zeroed words for a kernel's results.
    pub fn results(&self, len: usize) -> Outcome<Buffer<u32>> {
        Ok(Buffer::new(&self.device, Space::Pinned, len)?)
    }

    /// Starts `mp_qp_write_words`; results are there when the stream has been synchronised.
    pub fn write_words(
        &self,
        qp: DeviceQueuePair,
        to: Remote,
        count: u32,
        flavour: Flavour,
        (blocks, threads): (u32, u32),
        results: &Buffer<u32>,
    ) -> Outcome {
        let (seed, flavour, address) = (5u64, flavour as u32, device_address(results)?);
        let Some(kernel) = self.kernel("mp_qp_write_words")? else {
            let run: WriteWords = symbol("shim_write_words");
            let results = results.clone();
            let call = move || {
                let results = address_of(&results) as *mut u32;
                // SAFETY: the shim's signature; the memory is held, and room for every thread's result.
                unsafe { run(&qp, &to, seed, count, flavour, &BOUNDS, results, blocks, threads) }
            };
            return Ok(self.stream.call(call)?);
        };
        let args = [
            Arg::new(&qp),
            Arg::new(&to),
            Arg::new(&seed),
            Arg::new(&count),
            Arg::new(&flavour),
            Arg::new(&BOUNDS),
            Arg::new(&address),
        ];
        // SAFETY: the kernel's parameters; the tests keep queue pair, target and results until it has run.
        unsafe { self.stream.launch(&kernel, Dims::linear(blocks, threads), &args)? };
        Ok(())
    }

    /// Starts `mp_qp_ring`.
    pub fn ring(
        &self,
        qp: DeviceQueuePair,
        blocks: std::ops::Range<u64>,
        result: &Buffer<u32>,
    ) -> Outcome {
        let (begin, end, address) = (blocks.start, blocks.end, device_address(result)?);
        let Some(kernel) = self.kernel("mp_qp_ring")? else {
            let run: Ring = symbol("shim_ring");
            let result = result.clone();
            let call = move || {
                // SAFETY: as above.
                unsafe { run(&qp, begin, end, &BOUNDS, address_of(&result) as *mut u32) }
            };
            return Ok(self.stream.call(call)?);
        };
        let args = [
            Arg::new(&qp),
            Arg::new(&begin),
            Arg::new(&end),
            Arg::new(&BOUNDS),
            Arg::new(&address),
        ];
        // SAFETY: as above.
        unsafe { self.stream.launch(&kernel, Dims::one(), &args)? };
        Ok(())
    }

    /// Starts `mp_qp_round_trip` with one block.
    pub fn round_trip(
        &self,
        qp: DeviceQueuePair,
        args: &RoundTripArgs<'_>,
        results: &Buffer<u32>,
    ) -> Outcome {
        let (from, into) = (device_address(args.from.0)?, device_address(args.into.0)?);
        let (from_key, into_key, to, rounds) = (args.from.1, args.into.1, args.to, args.rounds);
        let (words, seed, address) = (args.from.0.len() as u32, 7u64, device_address(results)?);
        let threads = args.threads;
        let Some(kernel) = self.kernel("mp_qp_round_trip")? else {
            let run: RoundTrip = symbol("shim_round_trip");
            let results = results.clone();
            let call = move || {
                let results = address_of(&results) as *mut u32;
                let (from, into) = (from as *mut u64, into as *mut u64);
                // SAFETY: as above; on the host device these addresses are the CPU's.
                unsafe {
                    run(
                        &qp, from, from_key, &to, into, into_key, words, seed, rounds, &BOUNDS,
                        results, threads,
                    )
                }
            };
            return Ok(self.stream.call(call)?);
        };
        let args = [
            Arg::new(&qp),
            Arg::new(&from),
            Arg::new(&from_key),
            Arg::new(&to),
            Arg::new(&into),
            Arg::new(&into_key),
            Arg::new(&words),
            Arg::new(&seed),
            Arg::new(&rounds),
            Arg::new(&BOUNDS),
            Arg::new(&address),
        ];
        // SAFETY: as above.
        unsafe { self.stream.launch(&kernel, Dims::linear(1, threads), &args)? };
        Ok(())
    }

    pub fn finish(&self) -> Outcome {
        Ok(self.stream.synchronize(Deadline::after(std::time::Duration::from_secs(40)))?)
    }
}

fn device_address<T: bytemuck::Pod>(buffer: &Buffer<T>) -> Outcome<u64> {
    Ok(buffer.device_address().ok_or("no address")?)
}

fn address_of(buffer: &Buffer<u32>) -> u64 {
    buffer.device_address().unwrap_or(0)
}

/// The kernels, compiled for the host once.
fn symbol<T: Copy>(name: &str) -> T {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = tempfile::tempdir().expect("a folder for the kernels");
        let out = folder.path().join("kernels.so");
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        let status = Command::new(&compiler)
            .args(["-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"])
            .args(["-pthread", "-I"])
            .arg(here.join("../kernels/include"))
            .arg("-o")
            .arg(&out)
            .arg(here.join("tests/soft_common/kernels_shim.cpp"))
            .status()
            .unwrap_or_else(|error| panic!("{compiler} does not start: {error}"));
        assert!(status.success(), "{compiler} cannot compile the kernels: {status}");
        // SAFETY: built from this repository's source; no initialisers but those of the C++ library.
        unsafe { Library::new(&out) }.expect("the kernels load")
    });
    // SAFETY: the callers name the type that the shim declares.
    *unsafe { library.get::<T>(name) }.expect("the shim has the function")
}
