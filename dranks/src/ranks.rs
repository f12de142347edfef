//! A world of device ranks, as one of its devices has it.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use bytemuck::{Pod, Zeroable};
use gdsync::{Arg, Buffer, Deadline, Device, Dims, Kernel, Stream};
use libmp::{Communicator, Region, Window};
use mp_kernels::{LogLine, RANK_BITS, RANK_WINDOWS, RankPart, RankReport, RankState};

use crate::control::Control;
use crate::error::{Error, Failure, Result};
use crate::log::Line;

/// How many ranks a device has, and how much memory is kept for what they send each other; the same on all devices.
///
/// ```
/// use dranks::Options;
///
/// let options = Options { slots: 16, ..Options::new(1056) };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Ranks of each device: blocks of the launch.
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

    fn check(&self, devices: usize) -> Result<()> {
        let check = |option, value: u32, least: u32, most: u32, power: bool| {
            let fits = (least..=most).contains(&value);
            if fits && (!power || value == 0 || value.is_power_of_two()) {
                return Ok(());
            }
            let power = if power { "a power of two " } else { "" };
            let expected = format!("{power}from {least} to {most}");
            Err(Error::Option { option, value: value.into(), expected })
        };
        let most = ((1_u64 << RANK_BITS) - 1) / devices.max(1) as u64;
        check("the number of ranks of a device", self.ranks, 1, most as u32, false)?;
        check("slots", self.slots, 1, 1 << 20, true)?;
        check("spill", self.spill, 1, 1 << 24, true)?;
        check("lines", self.lines, 0, 1 << 24, true)
    }

    fn words(&self) -> [u64; 5] {
        let Options { ranks, slots, spill, lines, first } = *self;
        [ranks.into(), slots.into(), spill.into(), lines.into(), first]
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
    world: Communicator,
    options: Options,
    layout: Control,
    handle: mp_kernels::Ranks,
    control: Region<u64>,
    /// Where each device sees this one's memory.
    views: Vec<u64>,
    /// Windows that the host has declared.
    windows: AtomicU32,
    log: Mutex<Log>,
    /// Kept while kernels use them.
    _opened: (Window<u64>, Window<u8>, Region<u64>),
}

/// The lines, and behind them the word that says how many have been read.
struct Log {
    words: Option<Buffer<u64>>,
}

/// Words of a line.
const LINE: usize = size_of::<LogLine>() / 8;

impl Ranks {
    /// Opens a world of ranks on the memory's device, as all members of the communicator do, each on its own memory; a collective call.
    /// The memories may differ in length.
    ///
    /// # Errors
    /// [`Error::Option`] for an option out of its range, [`Error::Mismatch`] on every rank for options that differ; [`Error::World`]: what
    /// libmp says, `NoPath` for a device that is reached through a NIC only.
    pub fn open<T: Pod>(
        world: &Communicator,
        memory: &Region<T>,
        options: &Options,
    ) -> Result<Ranks> {
        let (rank, devices) = (world.rank(), world.size());
        options.check(devices)?;
        if memory.is_empty() {
            let expected = "at least one".into();
            return Err(Error::Option { option: "the memory's length", value: 0, expected });
        }
        let here = options.words();
        for (rank, blob) in world.all_gather(bytemuck::bytes_of(&here))?.iter().enumerate() {
            let theirs: Option<[u64; 5]> = bytemuck::try_pod_read_unaligned(blob).ok();
            if theirs != Some(here) {
                return Err(Error::Mismatch {
                    rank,
                    communicator: world.name().into(),
                    theirs: shown(theirs.unwrap_or_default()),
                    here: shown(here),
                });
            }
        }
        let device = memory.buffer().device().clone();
        let layout = Control::new(devices as u32, options);
        let control = world.alloc::<u64>(&device, (layout.bytes / 8) as usize)?;
        control.write(&layout.begun(options.first))?;
        let control_window = world.window(&control, 0)?;
        let memory = Region::from_buffer(memory.buffer().bytes());
        let memory_window = world.window(&memory, 0)?;
        let reach = || -> Result<(Vec<u64>, Vec<u64>)> {
            let of = |rank: usize| -> Result<(u64, u64)> {
                let control = address("the control memory", control_window.memory_of(rank)?)?;
                Ok((control, address("the memory", memory_window.memory_of(rank)?)?))
            };
            Ok((0..devices).map(of).collect::<Result<Vec<_>>>()?.into_iter().unzip())
        };
        // Everybody hears of a failure of anybody.
        let reached = reach();
        let seen = reached.as_ref().map_or(&[][..], |(_, memories)| memories);
        let all = world.all_gather(bytemuck::cast_slice(seen))?;
        let (controls, memories) = reached?;
        let view = |(member, blob): (usize, &Vec<u8>)| {
            let places: Vec<u64> = words_of(blob);
            places.get(rank).copied().ok_or_else(|| Error::Mismatch {
                rank: member,
                communicator: world.name().into(),
                theirs: "memory that it cannot reach".into(),
                here: shown(here),
            })
        };
        let views = all.iter().enumerate().map(view).collect::<Result<Vec<u64>>>()?;
        let tables = world.alloc::<u64>(&device, 2 * devices)?;
        tables.write(&[&controls[..], &views[..]].concat())?;
        let table = address("the table of devices", tables.buffer())?;
        let bounds = control_window.handle()?;
        let log = Log::new(&device, options.lines)?;
        let [lines, read] = log.addresses()?;
        let handle = mp_kernels::Ranks {
            control: controls[rank],
            controls: table,
            views: table + 8 * devices as u64,
            memory: memories[rank],
            bytes: memory.len() as u64,
            log: lines,
            log_read: read,
            abort: bounds.abort,
            timeout_ns: bounds.timeout_ns,
            device: rank as u32,
            ..layout.handle
        };
        Ok(Ranks {
            world: world.clone(),
            options: *options,
            layout,
            handle,
            control,
            views,
            windows: AtomicU32::new(0),
            log: Mutex::new(log),
            _opened: (control_window, memory_window, tables),
        })
    }

    /// The first argument of a kernel of ranks, `mp::Ranks`. Valid while this object lives, and those of the other devices.
    pub fn handle(&self) -> mp_kernels::Ranks {
        self.handle
    }

    /// Ranks of the world.
    pub fn size(&self) -> u32 {
        self.handle.devices * self.handle.per_device
    }

    /// The ranks of this device, by their numbers in the world.
    pub fn numbers(&self) -> Range<u32> {
        let first = self.handle.device * self.handle.per_device;
        first..first + self.handle.per_device
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
        // As each device sees them.
        let parts = self.views.iter().flat_map(|view| {
            shares.iter().flat_map(move |share| [view + share.start, share.end - share.start])
        });
        let parts: Vec<u64> = parts.collect();
        let all = self.world.all_gather(bytemuck::cast_slice(&parts))?;
        let device = self.handle.device as usize;
        let mine = all.iter().flat_map(|blob| {
            let words: Vec<u64> = words_of(blob);
            let row = 2 * shares.len();
            words.into_iter().skip(device * row).take(row)
        });
        let row = mine.collect::<Vec<u64>>();
        let at = self.layout.handle.parts / 8 + u64::from(window) * row.len() as u64;
        debug_assert_eq!(row.len(), self.size() as usize * size_of::<RankPart>() / 8);
        self.control.slice(at as usize..at as usize + row.len())?.write(&row)?;
        self.windows.store(window + 1, Ordering::Relaxed);
        let states = (self.layout.handle.states / 8) as usize;
        let (words, taken) =
            (size_of::<RankState>() / 8, std::mem::offset_of!(RankState, world_windows) / 8);
        for rank in 0..shares.len() {
            let word = states + rank * words + taken;
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
        let word = self.layout.lost();
        Ok(self.control.slice(word..word + 1)?.to_vec()?[0])
    }
}

fn shown([ranks, slots, spill, lines, first]: [u64; 5]) -> String {
    format!("{ranks} ranks, {slots} slots, {spill} kept, {lines} lines, from {first} on")
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
