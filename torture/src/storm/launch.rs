//! The storm's kernel and where it runs: on a GPU, or, on a machine without one, the same source compiled for the CPU, with
//! a few threads that play the ends. The layouts that it shares with `cuda/storm.cuh`.

use anyhow::{Context, Result, ensure};
use libmp::gdsync::{Arg, CudaDevice, Device, Dims, Kernel, Module, Stream};
use mp_kernels::{Message, shared_structs};

const NAME: &str = "torture_storm";
/// Threads of a block, as `storm.cu` has them.
pub const THREADS: u32 = 256;
/// Ends that a block plays if each has a warp.
pub const WARPS: usize = THREADS as usize / 32;
/// Ends of a rank on a CPU that have a thread each.
pub const THREADS_ON_CPU: usize = 6;
/// Threads of a rank on a CPU that play more ends than that, in turn.
pub const PLAYERS_ON_CPU: usize = 2;

shared_structs! {
    /// One end of a channel.
    pub struct End {
        /// Its handle; the length of a message is a multiple of 4.
        pub message: Message,
        /// What the words of its messages follow from.
        pub name: u64,
        /// Messages of a launch.
        pub count: u64,
        /// 1: this is the sender's end.
        pub sends: u32,
        /// The channel.
        pub number: u32,
    }

    /// What launches came to. In memory of the device, zero before.
    pub struct Tally {
        /// Messages sent.
        pub sent: u64,
        /// Messages received and compared.
        pub received: u64,
        /// Words of 32 bits compared.
        pub words: u64,
        /// Words that were not as the model says.
        pub mismatches: u64,
        /// Waits that gave up.
        pub failures: u64,
        /// Not 0 once somebody writes the first mismatch.
        pub claimed: u64,
        /// The first mismatch: its channel, …
        pub channel: u64,
        /// … its round, …
        pub round: u64,
        /// … which word, …
        pub index: u64,
        /// … what was found, …
        pub found: u64,
        /// … and what was expected.
        pub expected: u64,
    }
}

/// `cuda/layout.cuh`.
#[allow(dead_code, reason = "a test writes and compares it")]
const HEADER: mp_kernels::shared::Header = mp_kernels::shared::Header {
    source: "torture/src/storm/launch.rs",
    package: "mp-torture",
    includes: &["mp/layout.cuh"],
    namespace: "storm",
    constants: &[],
    enums: &[],
    structs: LAYOUTS,
};

/// Where kernels run.
pub enum Machine {
    Gpu {
        device: Device,
        kernel: Kernel,
        /// Blocks of all ranks that are resident at once.
        blocks: u32,
        /// Keeps the kernel loaded.
        _module: Module,
    },
    Cpu,
}

unsafe extern "C" {
    /// `cuda/host.cpp`.
    fn torture_storm_on_host(
        ends: *const End,
        count: u64,
        threads: u64,
        launch: u64,
        tally: *mut Tally,
    ) -> i32;
}

/// The GPU code; none if there was no nvcc when this crate was built.
fn image() -> Option<&'static [u8]> {
    mp_kernels::embedded!(torture_fatbin, "torture.fatbin")
}

impl Machine {
    /// The GPU of this rank if there is one and this build has GPU code, otherwise the CPU. A driver that is there and does
    /// not work is an error.
    pub fn open(rank: usize) -> Result<Machine> {
        match (CudaDevice::count(), image()) {
            (Ok(count @ 1..), Some(image)) => Machine::gpu(rank as u32 % count, image),
            (Ok(_) | Err(libmp::gdsync::Error::NoDriver), _) => Ok(Machine::Cpu),
            (Err(error), _) => Err(error).with_context(|| format!("rank {rank} looks for a GPU")),
        }
    }

    fn gpu(ordinal: u32, image: &'static [u8]) -> Result<Machine> {
        let device = Device::cuda(ordinal)?;
        let gpu = device.as_cuda().context("a GPU that is none")?;
        let module = gpu.load_module(image, &[NAME])?;
        let kernel = module.kernel(NAME)?;
        let blocks = gpu.co_resident_blocks(&kernel, THREADS, 0)?;
        Ok(Machine::Gpu { device, kernel, blocks, _module: module })
    }

    /// The device whose memory its messages are in.
    pub fn device(&self) -> &Device {
        match self {
            Machine::Gpu { device, .. } => device,
            Machine::Cpu => &Device::Host,
        }
    }

    /// As it stands in the summary.
    pub fn name(&self) -> String {
        self.device().as_cuda().map_or("CPU".to_owned(), |gpu| gpu.name().to_owned())
    }

    /// GPUs that ranks of this host share.
    pub fn count(&self) -> usize {
        match self {
            Machine::Gpu { .. } => CudaDevice::count().map_or(1, |count| count.max(1) as usize),
            Machine::Cpu => 1,
        }
    }

    /// Plays the `count` ends at `ends`, the first `of_blocks` with a block each, for the `launch`-th
    /// time, and adds what came of it to the tally. On a GPU it is enqueued on the stream, on the CPU done on return.
    ///
    /// # Safety
    /// `ends` is valid: memory of the device with `count` ends whose handles live until the launch is over; `tally` is
    /// memory of the device with room for a tally that nobody else uses meanwhile. The launches of all ranks on a GPU fit on it.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        (ends, tally): (u64, u64),
        (count, of_blocks): (u64, u64),
        launch: u64,
    ) -> Result<()> {
        match self {
            Machine::Gpu { kernel, .. } => {
                let warps = (count - of_blocks).div_ceil(WARPS as u64);
                let dims = Dims::linear((of_blocks + warps) as u32, THREADS);
                let (count, of_blocks) = (Arg::new(&count), Arg::new(&of_blocks));
                let args = [Arg::new(&ends), count, of_blocks, Arg::new(&launch), Arg::new(&tally)];
                // SAFETY: the kernel's signature; the addresses are the caller's promise.
                unsafe { stream.launch(kernel, dims, &args)? };
                Ok(())
            }
            Machine::Cpu => {
                let (ends, tally) = (ends as *const End, tally as *mut Tally);
                let alone = count <= THREADS_ON_CPU as u64;
                let threads = if alone { count } else { PLAYERS_ON_CPU as u64 };
                // SAFETY: as for the kernel; these are addresses of this process.
                let status = unsafe { torture_storm_on_host(ends, count, threads, launch, tally) };
                ensure!(status == 0, "the machine has not {threads} threads to give");
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_header_is_the_one_generated_from_the_declarations() {
        HEADER.check(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/layout.cuh")).unwrap();
    }

    /// Ten messages of 100 words from one end to the other on the CPU, the ends with these names and so
    /// many threads.
    fn ten_messages(names: [u64; 2], threads: u64) -> Tally {
        let (mut source, mut target) = (vec![0u32; 100], vec![0u32; 100]);
        // Credit, arrival, and the states of both ends.
        let mut words = [0u64; 32];
        let mut tally = Tally::default();
        let base = words.as_mut_ptr() as u64;
        let common = Message { len: 400, timeout_ns: 10_000_000_000, ..Message::default() };
        let to = target.as_mut_ptr() as u64;
        let from = source.as_mut_ptr() as u64;
        let ends = [
            Message {
                memory: from,
                target: to,
                mine: base,
                theirs: base + 8,
                state: base + 64,
                ..common
            },
            Message { memory: to, mine: base + 8, theirs: base, state: base + 128, ..common },
        ];
        let end = |at: usize| End {
            message: ends[at],
            name: names[at],
            count: 10,
            sends: u32::from(at == 0),
            number: 3,
        };
        let memory = [end(0), end(1)];
        // SAFETY: two ends whose addresses are those of the buffers above, which outlive the call.
        let status = unsafe { torture_storm_on_host(memory.as_ptr(), 2, threads, 0, &mut tally) };
        assert_eq!(status, 0);
        tally
    }

    #[test]
    fn the_kernel_finds_nothing_wrong_with_what_was_sent_and_every_word_of_what_was_not() {
        // A thread for each end; one that plays both in turn.
        for threads in [2, 1] {
            let right = ten_messages([5, 5], threads);
            assert_eq!((right.sent, right.received, right.words), (10, 10, 1000));
            assert_eq!((right.mismatches, right.failures), (0, 0));
            let wrong = ten_messages([5, 1 << 40], threads);
            assert_eq!((wrong.received, wrong.mismatches), (10, 1000));
            assert_eq!((wrong.channel, wrong.round, wrong.index), (3, 0, 0));
            assert_ne!(wrong.found, wrong.expected);
        }
    }
}
