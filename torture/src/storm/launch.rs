//! The storm's kernel and where it runs: on a GPU, or, on a machine without one, the same source compiled for the CPU, with
//! a few threads that play the ends. The layouts that it shares with `cuda/storm.cuh`.

use anyhow::{Context, Result, ensure};
use libmp::gdsync::{Arg, CudaDevice, Device, Dims, Kernel, Module, Stream};
use mp_kernels::Message;

const NAME: &str = "torture_storm";
/// Threads of a block, as `storm.cu` has them.
pub const THREADS: u32 = 256;
/// Ends that a block plays if each has a warp.
pub const WARPS: usize = THREADS as usize / 32;
/// Ends of a rank on a CPU that have a thread each.
pub const THREADS_ON_CPU: usize = 6;
/// Threads of a rank on a CPU that play more ends than that, in turn.
pub const PLAYERS_ON_CPU: usize = 2;

/// One end of a channel: `storm::End`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct End {
    pub message: Message,
    pub name: u64,
    pub count: u64,
    pub sends: u32,
    pub number: u32,
}

/// Words of 64 bits of an [`End`].
pub const END_WORDS: usize = Message::WORDS + 3;
const _: () = assert!(size_of::<End>() == 8 * END_WORDS);

impl End {
    /// As it lies in memory.
    pub fn words(&self) -> [u64; END_WORDS] {
        let last = u64::from(self.sends) | u64::from(self.number) << 32;
        let mut words = [0; END_WORDS];
        words[..Message::WORDS].copy_from_slice(&self.message.words());
        words[Message::WORDS..].copy_from_slice(&[self.name, self.count, last]);
        words
    }
}

/// What launches came to: `storm::Tally`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub sent: u64,
    pub received: u64,
    pub words: u64,
    pub mismatches: u64,
    pub failures: u64,
    /// Channel, round, index, found and expected of the first mismatch.
    pub first: [u64; 5],
}

/// Words of it, with the one that says whether there was a mismatch.
pub const TALLY_WORDS: usize = 11;

impl Tally {
    /// From memory.
    pub fn of(words: &[u64]) -> Result<Tally> {
        let words: [u64; TALLY_WORDS] = words.try_into().context("a tally has eleven words")?;
        let [sent, received, compared, mismatches, failures, _, first @ ..] = words;
        Ok(Tally { sent, received, words: compared, mismatches, failures, first })
    }
}

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
        ends: *const u64,
        count: u64,
        threads: u64,
        launch: u64,
        tally: *mut u64,
    ) -> i32;
}

/// The GPU code; none if there was no nvcc when this crate was built.
fn image() -> Option<&'static [u8]> {
    #[cfg(torture_fatbin)]
    {
        #[repr(C, align(64))]
        struct Aligned<T: ?Sized>(T);
        static IMAGE: &Aligned<[u8]> =
            &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/torture.fatbin")));
        Some(&IMAGE.0)
    }
    #[cfg(not(torture_fatbin))]
    None
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

    /// Plays `count` ends that lie as [`End::words`] at `ends`, the first `of_blocks` with a block each, for the `launch`-th
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
                let (ends, tally) = (ends as *const u64, tally as *mut u64);
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
    fn an_end_lies_in_memory_as_it_is_declared() {
        let message = Message { memory: 1, len: 2, ..Message::default() };
        let words = End { message, name: 11, count: 12, sends: 1, number: 7 }.words();
        assert_eq!(words[..2], [1, 2]);
        assert_eq!(words[END_WORDS - 3..], [11, 12, 7 << 32 | 1]);
    }

    /// Ten messages of 100 words from one end to the other on the CPU, the ends with these names and so
    /// many threads.
    fn ten_messages(names: [u64; 2], threads: u64) -> Tally {
        let (mut source, mut target) = (vec![0u32; 100], vec![0u32; 100]);
        // Credit, arrival, and the states of both ends.
        let mut words = [0u64; 32];
        let mut tally = [0u64; TALLY_WORDS];
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
        let memory: Vec<u64> = [end(0).words(), end(1).words()].concat();
        let tally_at = tally.as_mut_ptr();
        // SAFETY: two ends whose addresses are those of the buffers above, which outlive the call.
        let status = unsafe { torture_storm_on_host(memory.as_ptr(), 2, threads, 0, tally_at) };
        assert_eq!(status, 0);
        Tally::of(&tally).unwrap()
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
            let [channel, round, index, found, expected] = wrong.first;
            assert_eq!((channel, round, index), (3, 0, 0));
            assert_ne!(found, expected);
        }
    }

    #[test]
    fn a_tally_is_read_in_the_order_of_its_fields() {
        let words: Vec<u64> = (0..TALLY_WORDS as u64).collect();
        let tally = Tally::of(&words).unwrap();
        assert_eq!((tally.sent, tally.failures, tally.first), (0, 4, [6, 7, 8, 9, 10]));
        assert!(Tally::of(&words[1..]).is_err());
    }
}
