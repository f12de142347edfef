//! The GPU code of the measurements, one fatbin of `cuda/module.cu`: loaded by whoever measures, so that programs that use
//! libmp carry none of it. And what it shares with Rust.

use anyhow::{Context, Result};
use gdsync::{Device, Kernel, Module};
use mp_kernels::shared::Header;
use mp_kernels::{Recv, Send, shared_structs};

shared_structs! {
    /// One side of a ping-pong of two signals, see `mp_pingpong_bounded`.
    pub struct PingPong {
        /// Address of the signal this side polls.
        pub mine: u64,
        /// Address of the signal this side raises, which the other side polls.
        pub peer: u64,
        /// Value of both signals before the first round; round r raises them to `base + r`, r from 1.
        pub base: u64,
        /// Rounds played before the clock starts, so that the later of the two launches is not timed.
        pub untimed_rounds: u64,
        /// Rounds played while the clock runs.
        pub timed_rounds: u64,
        /// 1: this side raises first in each round; 0: it answers.
        pub serves: u32,
        /// Keeps the size a multiple of 8; ignored.
        pub reserved: u32,
    }

    /// What a ping-pong kernel measured. Left alone when a wait failed.
    pub struct PingPongTime {
        /// Nanoseconds of the timed rounds by the machine's clock.
        pub ns: u64,
        /// The same in cycles of the multiprocessor.
        pub cycles: u64,
    }

    /// The pairs of one side. Two pairs used in turn, so that posting a buffer again is off the way of a message.
    pub struct PerfPairs {
        /// What it sends by.
        pub sends: [Send; 2],
        /// What it receives by.
        pub recvs: [Recv; 2],
    }
}

/// `cuda/layout.cuh`.
pub const HEADER: Header = Header {
    source: "bench/src/kernels.rs",
    package: "mp-bench",
    includes: &["mp/layout.cuh"],
    namespace: "mp",
    constants: &[],
    enums: &[],
    structs: LAYOUTS,
};

/// Every entry point of the fatbin. Their arguments are documented in `cuda/` and `peers/`.
const NAMES: &[&str] = &[
    "exchange",
    "exchange_puts",
    "floor_copy",
    "floor_put",
    "mp_bare_pingpong",
    "mp_litmus_messages",
    "mp_litmus_puts",
    "mp_perf_all_reduce",
    "mp_perf_bandwidth",
    "mp_perf_barrier",
    "mp_perf_fetch_adds",
    "mp_perf_fused",
    "mp_perf_gets",
    "mp_perf_messages",
    "mp_perf_packets",
    "mp_perf_puts",
    "mp_perf_rate",
    "mp_perf_waiting",
    "mp_perf_words",
    "mp_perf_work",
    "mp_pingpong_bounded",
    "mp_pingpong_unbounded",
];

/// The fatbin, if there was an nvcc when this was built.
pub const FATBIN: Option<&[u8]> = mp_kernels::embedded!(bench_fatbin, "bench.fatbin");

/// The kernels on a device; none on the host.
#[derive(Debug)]
pub struct Kernels(Option<Module>);

impl Kernels {
    /// Loads them, if the device is a GPU.
    ///
    /// # Errors
    /// This build has no GPU code; what the driver says.
    pub fn load(device: &Device) -> Result<Kernels> {
        let load = |gpu: &gdsync::CudaDevice| {
            let image =
                FATBIN.context("this build of mp-perf has no GPU code; see tools/get-nvcc")?;
            Ok::<_, anyhow::Error>(gpu.load_module(image, NAMES)?)
        };
        Ok(Kernels(device.as_cuda().map(load).transpose()?))
    }

    /// One of them.
    ///
    /// # Errors
    /// The device is the host.
    pub fn get(&self, name: &str) -> Result<Kernel> {
        Ok(self.0.as_ref().context("no GPU")?.kernel(name)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLDER: &str = env!("CARGO_MANIFEST_DIR");

    #[test]
    fn the_committed_header_is_the_one_generated_from_the_declarations() {
        HEADER.check(&format!("{FOLDER}/cuda/layout.cuh")).unwrap();
    }

    #[test]
    fn the_list_of_kernels_is_what_the_sources_define() {
        let module = std::fs::read_to_string(format!("{FOLDER}/cuda/module.cu")).unwrap();
        let included = module.lines().filter_map(|line| line.strip_prefix("#include \""));
        let mut defined = Vec::new();
        for file in included {
            let path = format!("{FOLDER}/cuda/{}", file.trim_end_matches('"'));
            let text = std::fs::read_to_string(&path).unwrap();
            // A definition's arguments stand on its line or the next, after the bounds of its blocks.
            for start in ["MP_KERNEL void", "extern \"C\" __global__ void"] {
                for rest in text.split(start).skip(1) {
                    let mut words = rest
                        .split(['(', ' ', '\n', ')'])
                        .filter(|word| word.starts_with(|first: char| first.is_ascii_lowercase()));
                    defined.push(words.next().unwrap().to_owned());
                }
            }
        }
        defined.sort();
        assert_eq!(defined, NAMES, "NAMES must list, sorted, what cuda/module.cu includes");
    }
}
