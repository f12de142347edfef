//! A world of device ranks, as one of its devices has it.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};
use gdsync::{Arg, Buffer, Deadline, Device, Dims, Kernel, Space, Stream};
use libmp::{Communicator, Region, Window};
use mp_kernels::{LogLine, MeetingWord, RANK_BITS, RANK_WINDOWS, RankPart, RankReport, RankState};

use crate::control::Control;
use crate::error::{Error, Failure, Result};
use crate::log::Line;

/// How many ranks a device has, and how much memory is kept for what they send each other: the same on all devices but for the first.
///
/// ```
/// use dranks::Options;
///
/// let options = Options { slots: 16, ..Options::new(1056) };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Ranks of this device: blocks of its launch, or threads of the CPU ([`Ranks::host_rank`]).
    pub ranks: u32,
    /// Notifications that may be on their way from one device to one rank, a power of two: 16 bytes each for each pair of these. Senders
    /// wait when there are more.
    pub slots: u32,
    /// Notifications that may have come to a rank without being waited for, a power of two: 8 bytes each. The largest number that a
    /// wait can ask for. When there are more, a rank that waits for others is told.
    pub spill: u32,
    /// Lines of the log, a power of two: 128 bytes each in host memory. Those that the host does not read in time are lost, and counted. 0:
    /// nothing is logged.
    pub lines: u32,
    /// As if so many notifications had gone every way before: for tests of what happens where 64 bits end.
    pub first: u64,
}

impl Options {
    /// So many ranks a device, rings of 64 notifications, 1024 kept a rank, 1024 lines.
    pub fn new(ranks: u32) -> Options {
        Options { ranks, slots: 64, spill: 1024, lines: 1024, first: 0 }
    }

    fn check(&self) -> Result<()> {
        let check = |option, value: u32, least: u32, most: u32, power: bool| {
            let fits = (least..=most).contains(&value);
            if fits && (!power || value == 0 || value.is_power_of_two()) {
                return Ok(());
            }
            let power = if power { "a power of two " } else { "" };
            let expected = format!("{power}from {least} to {most}");
            Err(Error::Option { option, value: value.into(), expected })
        };
        check("the number of ranks of a device", self.ranks, 1, (1 << RANK_BITS) - 1, false)?;
        check("slots", self.slots, 1, 1 << 20, true)?;
        check("spill", self.spill, 1, 1 << 24, true)?;
        check("lines", self.lines, 0, 1 << 24, true)
    }

    /// What is the same on all devices.
    fn words(&self) -> [u64; 4] {
        let Options { slots, spill, lines, first, .. } = *self;
        [slots.into(), spill.into(), lines.into(), first]
    }
}

/// A world of device ranks: those of this rank's device, and a way to those of all others of the communicator.
///
/// Ranks are numbered through, those of rank 0's device first. What they exchange is in the memory that each device opens the world
/// with. A kernel takes [`handle`](Self::handle) as its first argument. The state of the world is in memory: the next launch goes on with the
/// windows and notifications that the last one left. After a failure a new world is opened. Every device of the communicator
/// keeps this until no kernel of any of them uses it any more.
///
/// ```no_run
/// use std::time::Duration;
///
/// use dranks::{Options, Ranks};
/// use libmp::gdsync::Arg;
/// use libmp::{Deadline, Device, World};
///
/// # fn image() -> &'static [u8] { &[] }
/// # fn main() -> dranks::Result<()> {
/// let world = World::init()?;
/// let device = Device::cuda(0)?;
/// let memory = world.alloc::<f64>(&device, 1 << 20)?; // of all ranks of this device
/// let ranks = Ranks::open(&world, &memory, &Options::new(1056))?;
/// // extern "C" __global__ void stencil(mp::Ranks ranks, unsigned steps)
/// let gpu = device.as_cuda().expect("a GPU");
/// let module = gpu.load_module(image(), &["stencil"])?;
/// let (stream, steps) = (world.stream(&device)?, 100_u32);
/// // SAFETY: the kernel's parameters; it stays in the memory.
/// unsafe { ranks.launch(&stream, &module.kernel("stencil")?, 128, 0, &[Arg::new(&steps)])? };
/// ranks.synchronize(&stream, Deadline::after(Duration::from_secs(60)))?;
/// for line in ranks.lines()? {
///     println!("{line}");
/// }
/// world.barrier()?;
/// # Ok(())
/// # }
/// ```
pub struct Ranks {
    pub(crate) world: Communicator,
    options: Options,
    pub(crate) layout: Control,
    handle: mp_kernels::Ranks,
    /// The first rank of each device, and how many there are.
    firsts: Vec<u32>,
    control: Region<u64>,
    /// The control memory and the memory of all devices.
    pub(crate) controls: Window<u64>,
    pub(crate) memories: Window<u8>,
    /// Windows that the host has declared.
    windows: AtomicU32,
    /// Ranks that are threads of the CPU, by their number on the device.
    pub(crate) taken: Mutex<Vec<u32>>,
    /// Of host ranks, a word each, which streams copy from and to: made before kernels run, which making memory may wait for.
    pub(crate) desk: Option<Region<u64>>,
    log: Mutex<Log>,
    /// Kept while kernels use it.
    _table: Region<u32>,
}

/// The lines, and behind them the word that says how many have been read.
struct Log {
    words: Option<Buffer<u64>>,
}

/// Words of a line.
const LINE: usize = size_of::<LogLine>() / 8;

impl Ranks {
    /// Opens a world of ranks on the memory's device, as all members of the communicator do, each on its own memory; a collective call.
    /// The memories may differ in length, and the devices in their number of ranks.
    ///
    /// # Errors
    /// [`Error::Option`] for an option out of its range, [`Error::Mismatch`] on every rank for options that differ; [`Error::World`]: what
    /// libmp says.
    pub fn open<T: Pod>(
        world: &Communicator,
        memory: &Region<T>,
        options: &Options,
    ) -> Result<Ranks> {
        let (rank, devices) = (world.rank(), world.size());
        options.check()?;
        if memory.is_empty() {
            let expected = "at least one".into();
            return Err(Error::Option { option: "the memory's length", value: 0, expected });
        }
        let here = options.words();
        let blob = [&here[..], &[u64::from(options.ranks)]].concat();
        let mut firsts = vec![0_u32];
        for (rank, blob) in world.all_gather(bytemuck::cast_slice(&blob))?.iter().enumerate() {
            let theirs = words_of(blob);
            let said: Option<[u64; 4]> = theirs.get(..4).and_then(|words| words.try_into().ok());
            let ranks = theirs.get(4).and_then(|ranks| u32::try_from(*ranks).ok());
            let Some(ranks) = ranks.filter(|_| said == Some(here)) else {
                return Err(Error::Mismatch {
                    rank,
                    communicator: world.name().into(),
                    theirs: shown(said.unwrap_or_default()),
                    here: shown(here),
                });
            };
            let end = firsts[rank].checked_add(ranks).filter(|end| *end < 1 << RANK_BITS);
            firsts.push(end.ok_or_else(|| Error::Option {
                option: "the number of ranks of all devices",
                value: u64::from(firsts[rank]) + u64::from(ranks),
                expected: format!("less than {}", 1 << RANK_BITS),
            })?);
        }
        let counts: Vec<u32> = firsts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let layout = Control::new(&counts, rank, options);
        let (device, space) = (memory.buffer().device().clone(), memory.buffer().space());
        let words = (layout.bytes / 8) as usize;
        // Where the CPU reaches the memory it reaches this, too.
        let control = match device.as_cuda().is_some() && space == Space::Pinned {
            true => Region::from_buffer(device.alloc_pinned::<u64>(words)?),
            false => world.alloc::<u64>(&device, words)?,
        };
        control.write(&layout.begun(options.first))?;
        let controls = world.window(&control, 0)?;
        let memory = Region::from_buffer(memory.buffer().bytes());
        let memories = world.window(&memory, 0)?;
        // How many are behind a NIC.
        let far = || -> Result<u32> {
            let mut far = 0;
            for rank in 0..devices {
                match controls.memory_of(rank) {
                    Ok(there) => {
                        address("the control memory", there)?;
                        address("the memory", memories.memory_of(rank)?)?;
                    }
                    Err(libmp::Error::NoPath { .. }) => far += 1,
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(far)
        };
        // Everybody hears of a failure of anybody.
        let far = far();
        let said = far.as_ref().err().map_or_else(String::new, ToString::to_string);
        let all = world.all_gather(said.as_bytes())?;
        let far = far?;
        if let Some((rank, said)) = all.iter().enumerate().find(|(_, said)| !said.is_empty()) {
            return Err(Error::Mismatch {
                rank,
                communicator: world.name().into(),
                theirs: format!("memory that it cannot reach ({})", String::from_utf8_lossy(said)),
                here: shown(here),
            });
        }
        let table = world.alloc::<u32>(&device, firsts.len())?;
        table.write(&firsts)?;
        let desk = match control.buffer().host_address() {
            Some(_) => Some(device.alloc_pinned::<u64>(options.ranks as usize)?),
            None => None,
        };
        let (control_handle, memory_handle) = (controls.handle()?, memories.handle()?);
        let log = Log::new(&device, options.lines)?;
        let [lines, read] = log.addresses()?;
        let handle = mp_kernels::Ranks {
            control: address("the control memory", control.buffer())?,
            controls: control_handle.parts,
            memories: memory_handle.parts,
            firsts: address("the table of devices", table.buffer())?,
            memory: address("the memory", memory.buffer())?,
            bytes: memory.len() as u64,
            nic_report: control_handle.report,
            log: lines,
            log_read: read,
            abort: control_handle.abort,
            timeout_ns: control_handle.timeout_ns,
            far,
            ..layout.handle
        };
        Ok(Ranks {
            world: world.clone(),
            options: *options,
            layout,
            handle,
            firsts,
            control,
            controls,
            memories,
            windows: AtomicU32::new(0),
            taken: Mutex::new(Vec::new()),
            desk: desk.map(Region::from_buffer),
            log: Mutex::new(log),
            _table: table,
        })
    }

    /// The first argument of a kernel of ranks, `mp::Ranks`. Valid while this object lives, and those of the other devices.
    pub fn handle(&self) -> mp_kernels::Ranks {
        self.handle
    }

    /// Ranks of the world.
    pub fn size(&self) -> u32 {
        self.handle.size
    }

    /// The ranks of this device, by their numbers in the world.
    pub fn numbers(&self) -> Range<u32> {
        self.handle.first..self.handle.first + self.handle.per_device
    }

    /// The device of a rank, and the rank's number there; `None` if there is no such rank.
    pub(crate) fn place_of(&self, rank: u32) -> Option<(usize, u32)> {
        let device = self.firsts.partition_point(|first| *first <= rank).checked_sub(1)?;
        (rank < self.handle.size).then(|| (device, rank - self.firsts[device]))
    }

    pub(crate) fn device(&self) -> &Device {
        self.control.buffer().device()
    }

    /// The words of this device's control memory, if the CPU reaches them.
    pub(crate) fn words(&self) -> Option<&[std::sync::atomic::AtomicU64]> {
        self.control.buffer().atomics()
    }

    /// Opens a window before the first launch: `shares` has for each rank of this device the bytes of its memory that are its share, which
    /// may overlap and be empty. A collective call. Gives the window's number, the same on all devices; ranks may close it.
    ///
    /// # Errors
    /// [`Error::Option`] for a share outside of the memory, another number of shares than ranks, and more windows than there are
    /// numbers; as [`Communicator::all_gather`].
    pub fn window(&self, shares: &[Range<u64>]) -> Result<u32> {
        let wrong = |option, value, expected| Err(Error::Option { option, value, expected });
        if shares.len() != self.options.ranks as usize {
            let expected = format!("{}, one for each rank", self.options.ranks);
            return wrong("the number of shares", shares.len() as u64, expected);
        }
        let bytes = self.handle.bytes;
        if let Some(share) =
            shares.iter().find(|share| share.start > share.end || share.end > bytes)
        {
            let expected =
                format!("a range that ends behind its start {}, within {bytes}", share.start);
            return wrong("the end of a share", share.end, expected);
        }
        let window = self.windows.load(Ordering::Relaxed);
        if window == RANK_WINDOWS {
            let expected = format!("at most {RANK_WINDOWS}");
            return wrong("the number of windows", u64::from(window) + 1, expected);
        }
        let parts = shares.iter().flat_map(|share| [1 + share.start, share.end - share.start]);
        let parts: Vec<u64> = parts.collect();
        let all = self.world.all_gather(bytemuck::cast_slice(&parts))?;
        let row: Vec<u64> = all.iter().flat_map(|blob| words_of(blob)).collect();
        debug_assert_eq!(row.len(), self.size() as usize * size_of::<RankPart>() / 8);
        let at = self.layout.part(window, 0);
        self.control.slice(at..at + row.len())?.write(&row)?;
        self.windows.store(window + 1, Ordering::Relaxed);
        for rank in 0..self.options.ranks {
            let word = self.layout.state(rank) + std::mem::offset_of!(RankState, world_windows) / 8;
            self.control.slice(word..word + 1)?.write(&[u64::MAX >> (63 - window)])?;
        }
        self.world.barrier()?;
        Ok(window)
    }

    /// Starts this device's ranks: as many blocks of `threads` threads, with `shared` bytes of dynamic shared memory each, all at once.
    /// [`handle`](Self::handle) is the kernel's first argument, `args` are the others. One launch at a time.
    ///
    /// # Errors
    /// [`gdsync::Error::TooManyBlocks`] with both numbers if so many blocks of the kernel never run at once;
    /// [`gdsync::Error::Unsupported`] on a host stream; what the driver says.
    ///
    /// # Safety
    /// As [`Stream::launch`].
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        kernel: &Kernel,
        threads: u32,
        shared: u32,
        args: &[Arg<'_>],
    ) -> Result<()> {
        let args: Vec<Arg<'_>> =
            [Arg::new(&self.handle)].into_iter().chain(args.iter().copied()).collect();
        let dims = Dims { shared, ..Dims::linear(self.options.ranks, threads) };
        // SAFETY: the caller's promise; the handle is what every such kernel takes first.
        Ok(unsafe { stream.launch_together(kernel, dims, &args) }?)
    }

    /// Waits for the stream, and says what failed: the world, or the first call of this device's ranks that did.
    ///
    /// # Errors
    /// [`Error::World`] as [`Communicator::synchronize`]; [`Error::Failed`].
    pub fn synchronize(&self, stream: &Stream, deadline: Deadline) -> Result<()> {
        self.world.synchronize(stream, deadline)?;
        self.failure()?.map_or(Ok(()), |failure| Err(Error::Failed(failure)))
    }

    /// The first call of this device's ranks that failed so far.
    ///
    /// # Errors
    /// [`Error::World`]: what the driver says.
    pub fn failure(&self) -> Result<Option<Failure>> {
        let words = self.control.slice(self.layout.report())?.to_vec()?;
        let report: RankReport = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&words));
        Ok(Failure::of(&report))
    }

    /// The lines that ranks of this device have printed since the last call, in order; also while they run.
    ///
    /// # Errors
    /// [`Error::NoAddress`] if the CPU does not reach the log.
    pub fn lines(&self) -> Result<Vec<Line>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).read()
    }

    /// How many lines were lost, because they were not read in time.
    ///
    /// # Errors
    /// [`Error::World`]: what the driver says.
    pub fn lost_lines(&self) -> Result<u64> {
        let word = self.layout.meeting(MeetingWord::LogLost);
        Ok(self.control.slice(word..word + 1)?.to_vec()?[0])
    }
}

fn shown([slots, spill, lines, first]: [u64; 4]) -> String {
    format!("{slots} slots, {spill} kept, {lines} lines, from {first} on")
}

fn words_of(blob: &[u8]) -> Vec<u64> {
    blob.chunks_exact(8).map(bytemuck::pod_read_unaligned).collect()
}

fn address<T: Pod>(memory: &'static str, buffer: &Buffer<T>) -> Result<u64> {
    let device = || buffer.device().to_string();
    buffer.device_address().ok_or_else(|| Error::NoAddress { memory, device: device() })
}

impl Log {
    fn new(device: &Device, lines: u32) -> Result<Log> {
        let words = match lines {
            0 => None,
            lines => Some(device.alloc_pinned::<u64>(lines as usize * LINE + 1)?),
        };
        Ok(Log { words })
    }

    /// Of the lines and of the word.
    fn addresses(&self) -> Result<[u64; 2]> {
        let Some(words) = &self.words else { return Ok([0; 2]) };
        let lines = address("the log", words)?;
        Ok([lines, lines + 8 * (words.len() as u64 - 1)])
    }

    fn read(&self) -> Result<Vec<Line>> {
        let Some(buffer) = &self.words else { return Ok(Vec::new()) };
        let device = || buffer.device().to_string();
        let Some((read, lines)) = buffer.atomics().and_then(|words| words.split_last()) else {
            return Err(Error::NoAddress { memory: "the log", device: device() });
        };
        let lines: Vec<_> = lines.chunks_exact(LINE).collect();
        let mut found = Vec::new();
        let mut number = read.load(Ordering::Relaxed);
        loop {
            let words = lines[number as usize % lines.len()];
            if words[0].load(Ordering::Acquire) != number + 1 {
                break;
            }
            let words: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
            let mut line = LogLine::zeroed();
            bytemuck::bytes_of_mut(&mut line).copy_from_slice(bytemuck::cast_slice(&words));
            found.push(Line::of(&line));
            number += 1;
            // The rank that writes there next must not do so before it has been read.
            read.store(number, Ordering::Release);
        }
        Ok(found)
    }
}

impl std::fmt::Debug for Ranks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "device ranks {:?} of {}", self.numbers(), self.size())
    }
}
