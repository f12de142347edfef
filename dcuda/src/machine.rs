//! A device of the world, as a program uses it: its memory, its stream, its kernels – on a GPU, or with OS threads as GPU threads – and the
//! clock. Devices are threads of this process. No program.

use std::ffi::CString;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytemuck::Pod;
use dranks::{Options, Ranks};
use libmp::gdsync::{Arg, CudaDevice, Dims, Module};
use libmp::{Config, Deadline, Device, Region, Stream, World};
use mp_program::Spread;

use crate::kernels::{NAMES, dcuda_on_host, image};

/// Where a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The CPU.
    Host,
    /// The GPU with this ordinal.
    Gpu(u32),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let ordinal = || text.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok());
        match text {
            "host" => Ok(Place::Host),
            _ => ordinal().map(Place::Gpu).ok_or_else(|| "expected host or cuda:NUMBER".into()),
        }
    }
}

/// All GPUs; two devices that are the CPU where there is none.
fn places() -> Result<Vec<Place>> {
    match (CudaDevice::count(), image()) {
        (Ok(count @ 1..), Some(_)) => Ok((0..count).map(Place::Gpu).collect()),
        (Ok(_) | Err(libmp::gdsync::Error::NoDriver), _) => Ok(vec![Place::Host; 2]),
        (Err(error), _) => Err(error).context("looking for GPUs"),
    }
}

/// What all programs are asked.
#[derive(Debug, Clone, clap::Args)]
pub struct Plan {
    /// Devices: host or cuda:NUMBER, one may come several times. Default: all GPUs, without one: host,host.
    #[arg(long, value_delimiter = ',')]
    pub devices: Vec<Place>,
    /// Ranks of a device. Default: as many as run at once on a GPU, 4 on the host.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub ranks: Option<u32>,
    /// Threads of a rank. Default: 128 on a GPU, 1 on the host.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=128))]
    pub threads: Option<u32>,
    /// Iterations of a measurement; with 0 nothing is measured, only checked.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub iterations: u64,
    /// Measurements.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub repeats: u32,
    /// Iterations that are compared with a serial run.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub check: u64,
    /// Write the figures to this file.
    #[arg(long)]
    pub json: Option<std::path::PathBuf>,
}

impl Plan {
    /// Milliseconds of an iteration: of runs of the plan's iterations, whose seconds `seconds` says, less what a run of none takes.
    pub fn spread(&self, mut seconds: impl FnMut(u64) -> Result<f64>) -> Result<Spread> {
        let mut measure = |turns: u64, count: u32| -> Result<Vec<f64>> {
            (0..count).map(|_| seconds(turns)).collect()
        };
        // The first warms up.
        measure(self.iterations.min(2), 1)?;
        let none = Spread::of(&measure(0, self.repeats.clamp(1, 5))?).context("no measurement")?;
        let of_one = |seconds: f64| (seconds - none.median) * 1e3 / self.iterations as f64;
        let samples: Vec<f64> =
            measure(self.iterations, self.repeats)?.into_iter().map(of_one).collect();
        Spread::of(&samples).context("no measurement")
    }
}

/// One device.
pub struct Machine {
    /// The devices, each a rank of it.
    pub world: World,
    /// This one.
    pub device: Device,
    /// Its stream.
    pub stream: Stream,
    /// Ranks of a device.
    pub ranks: u32,
    threads: u32,
    /// Devices that are on this one's GPU, or the CPU.
    together: usize,
    module: Option<Module>,
}

/// Iterations that a stream is given at once: it has room for about a thousand launches.
const AHEAD: u64 = 50;

/// How long anything may take.
fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(600))
}

/// Runs `body` for each device of the plan, and says what the first gave.
///
/// # Errors
/// The first error of a device that is not about another one.
pub fn on_devices<T: Send>(plan: &Plan, body: impl Fn(&Machine) -> Result<T> + Sync) -> Result<T> {
    let places = if plan.devices.is_empty() { places()? } else { plan.devices.clone() };
    let worlds = World::threads_with_config(places.len(), &Config::from_env()?)?;
    let (body, places) = (&body, &places);
    let results: Vec<Result<T>> = std::thread::scope(|scope| {
        let devices: Vec<_> = worlds
            .into_iter()
            .map(|world| {
                scope.spawn(move || {
                    let machine = Machine::new(world, plan, places)?;
                    let value = body(&machine)?;
                    // Nobody leaves while others use its memory.
                    machine.world.barrier()?;
                    Ok(value)
                })
            })
            .collect();
        let ended = devices.into_iter().map(|device| device.join());
        ended.map(|result| result.unwrap_or_else(|_| bail!("a device panicked"))).collect()
    });
    let about_another = |error: &anyhow::Error| {
        let of_world = |error| matches!(error, &libmp::Error::PeerLost { .. });
        match error.downcast_ref::<dranks::Error>() {
            Some(dranks::Error::World(error)) => of_world(error),
            _ => error.downcast_ref().is_some_and(of_world),
        }
    };
    let (mut first, mut failure) = (None, None);
    for result in results {
        match result {
            Ok(value) => first = first.or(Some(value)),
            Err(error) if failure.as_ref().is_none_or(about_another) => failure = Some(error),
            Err(_) => {}
        }
    }
    match failure {
        None => first.context("no device"),
        Some(error) => Err(error),
    }
}

impl Machine {
    fn new(world: World, plan: &Plan, places: &[Place]) -> Result<Machine> {
        let place = places[world.rank()];
        let device = match place {
            Place::Host => Device::Host,
            Place::Gpu(ordinal) => Device::cuda(ordinal)?,
        };
        let load = |gpu: &CudaDevice| {
            let image = image().context("this build has no GPU code; see tools/get-nvcc")?;
            Ok::<_, anyhow::Error>(gpu.load_module(image, NAMES)?)
        };
        let module = device.as_cuda().map(load).transpose()?;
        let together = places.iter().filter(|other| **other == place).count();
        let threads = plan.threads.unwrap_or(if module.is_some() { 128 } else { 1 });
        let fit = match (&module, device.as_cuda()) {
            (Some(module), Some(gpu)) => {
                // Of the programs whose ranks are many; devices on one GPU share it.
                let mut fit = u32::MAX;
                for name in NAMES {
                    fit = fit.min(gpu.co_resident_blocks(&module.kernel(name)?, threads, 0)?);
                }
                fit / together as u32
            }
            _ => 4,
        };
        // The same on all devices.
        let ranks = plan.ranks.unwrap_or(world.min(fit)?);
        let stream = world.stream(&device)?;
        Ok(Machine { world, device, stream, ranks, threads, together, module })
    }

    /// Which device this is.
    pub fn number(&self) -> usize {
        self.world.rank()
    }

    /// What was measured, for the table.
    pub fn what(&self) -> String {
        let name = self.device.as_cuda().map_or("the CPU", CudaDevice::name);
        let (devices, ranks, threads) = (self.world.size(), self.ranks, self.threads);
        let together = match self.together {
            1 => "",
            _ => ", which devices share",
        };
        format!("{devices} × {ranks} ranks of {threads} threads, {name}{together}")
    }

    /// So many words of the device, zero.
    pub fn memory(&self, words: u64) -> Result<Region<u64>> {
        let words = usize::try_from(words).context("so much memory")?;
        Ok(self.world.alloc(&self.device, words)?)
    }

    /// A world of device ranks on memory.
    pub fn open(&self, memory: &Region<u64>, options: &Options) -> Result<Ranks> {
        Ok(Ranks::open(&self.world, memory, options)?)
    }

    /// Enqueues a kernel of blocks, one for each rank.
    pub fn launch<T: Pod + Send + Sync>(&self, name: &'static str, args: T) -> Result<()> {
        self.enqueue(name, None, args)
    }

    /// The same of a kernel that takes what ranks know of their world; they do not join it.
    pub fn launch_knowing<T: Pod + Send + Sync>(
        &self,
        ranks: &Ranks,
        name: &'static str,
        args: T,
    ) -> Result<()> {
        self.enqueue(name, Some(ranks.handle()), args)
    }

    fn enqueue<T: Pod + Send + Sync>(
        &self,
        name: &'static str,
        ranks: Option<mp_kernels::Ranks>,
        args: T,
    ) -> Result<()> {
        let Some(module) = &self.module else {
            return self.on_host(name, ranks, self.ranks, args);
        };
        let dims = Dims::linear(self.ranks, self.threads);
        let all: Vec<Arg<'_>> = ranks.iter().map(Arg::new).chain([Arg::new(&args)]).collect();
        // SAFETY: each kernel's arguments are the structs that its program gives it, and stay in the memory that they name.
        unsafe { self.stream.launch(&module.kernel(name)?, dims, &all)? };
        Ok(())
    }

    /// Runs a kernel of ranks to its end.
    pub fn run<T: Pod + Send + Sync>(
        &self,
        ranks: &Ranks,
        name: &'static str,
        args: T,
    ) -> Result<()> {
        match &self.module {
            Some(module) => {
                let kernel = module.kernel(name)?;
                // SAFETY: as in `launch`.
                unsafe {
                    ranks.launch(&self.stream, &kernel, self.threads, 0, &[Arg::new(&args)])?;
                }
            }
            None => {
                let blocks = ranks.numbers().len() as u32;
                self.on_host(name, Some(ranks.handle()), blocks, args)?;
            }
        }
        Ok(ranks.synchronize(&self.stream, soon())?)
    }

    fn on_host<T: Pod + Send + Sync>(
        &self,
        name: &'static str,
        ranks: Option<mp_kernels::Ranks>,
        blocks: u32,
        args: T,
    ) -> Result<()> {
        let (named, threads) = (CString::new(name)?, self.threads);
        let call = move || {
            let ranks = ranks.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let args = std::ptr::from_ref(&args).cast();
            // SAFETY: as in `launch`.
            let status = unsafe { dcuda_on_host(named.as_ptr(), ranks, args, blocks, threads) };
            // The stream catches it, and says it when it is waited for.
            assert_eq!(status, 0, "{name}: the machine has not {blocks} x {threads} threads");
        };
        Ok(self.stream.call(call)?)
    }

    /// Waits for what is on the stream.
    pub fn synchronize(&self) -> Result<()> {
        Ok(self.world.synchronize(&self.stream, soon())?)
    }

    /// Iterations on the stream, to their end. It is given no more than it has room for.
    pub fn on_stream(&self, turns: u64, turn: impl Fn(u64) -> Result<()>) -> Result<()> {
        for number in 0..turns {
            turn(number)?;
            if number % AHEAD == AHEAD - 1 {
                self.synchronize()?;
            }
        }
        self.synchronize()
    }

    /// Seconds of `work` where it takes longest.
    pub fn seconds(&self, work: impl FnOnce() -> Result<()>) -> Result<f64> {
        self.world.barrier()?;
        let since = Instant::now();
        work()?;
        Ok(self.world.max(since.elapsed().as_secs_f64())?)
    }

    /// Milliseconds of an iteration of a form, see [`Plan::spread`].
    pub fn time(&self, plan: &Plan, run: impl Fn(u64) -> Result<()>) -> Result<Spread> {
        plan.spread(|turns| self.seconds(|| run(turns)))
    }

    /// The ordinals of all devices that are GPUs. Collective.
    pub fn gpus(&self) -> Result<Vec<Option<u32>>> {
        let mine = self.device.as_cuda().map_or([0; 5], |gpu| {
            let [a, b, c, d] = gpu.ordinal().to_le_bytes();
            [1, a, b, c, d]
        });
        let all = self.world.all_gather(&mine)?;
        let ordinal = |said: &Vec<u8>| match *said.as_slice() {
            [1, a, b, c, d] => Some(u32::from_le_bytes([a, b, c, d])),
            _ => None,
        };
        Ok(all.iter().map(ordinal).collect())
    }
}

/// The address of memory, as kernels see it.
pub fn address(memory: &Region<u64>) -> Result<u64> {
    memory.buffer().device_address().context("memory that kernels do not reach")
}

/// Compares doubles, bit by bit, with those of a serial run.
///
/// # Errors
/// How many differ, and the first of them.
pub fn same(what: &str, got: &[u64], alone: impl Iterator<Item = f64>) -> Result<()> {
    let mut differing = 0;
    let mut first = None;
    let mut compared = 0;
    for (place, (&got, alone)) in got.iter().zip(alone).enumerate() {
        compared += 1;
        if got != alone.to_bits() {
            differing += 1;
            first = first.or(Some((place, f64::from_bits(got), alone)));
        }
    }
    ensure!(compared == got.len(), "{what}: {} values, {compared} of the serial run", got.len());
    match first {
        None => Ok(()),
        Some((place, got, alone)) => bail!(
            "{what}: {differing} of {compared} values are not those of the serial run; number {place} is {got:e} and not {alone:e}"
        ),
    }
}
