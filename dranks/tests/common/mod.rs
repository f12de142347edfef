//! Worlds of device ranks and the kernels of `tests/kernels`: as OS threads, by the shim that the host compiler makes of them, or on
//! GPUs from the fatbin in the folder that `TEST_KERNELS` names (`tests/kernels/kernels.cu` says how it is made).
#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use dranks::{Error, Options, Ranks, Result};
use libloading::Library;
use libmp::gdsync::{Arg, CudaDevice, Module};
use libmp::{Communicator, Config, Deadline, Device, Region, Stream, World};

/// A GPU, which stays open to the end of the process: to open one takes a second or two.
pub fn gpu(ordinal: u32) -> Device {
    static OPEN: Mutex<BTreeMap<u32, Device>> = Mutex::new(BTreeMap::new());
    OPEN.lock().unwrap().entry(ordinal).or_insert_with(|| Device::cuda(ordinal).unwrap()).clone()
}

pub const MINUTE: u64 = 60_000;

/// Runs `device` for each of so many devices, each a rank on a thread of its own.
pub fn devices<T: Send>(count: usize, timeout: u64, device: impl Fn(&World) -> T + Sync) -> Vec<T> {
    let mut config = Config::from_env().unwrap();
    config.timeout = Duration::from_millis(timeout);
    devices_of(count, &config, device)
}

pub fn devices_of<T: Send>(
    count: usize,
    config: &Config,
    device: impl Fn(&World) -> T + Sync,
) -> Vec<T> {
    let worlds = World::threads_with_config(count, config).unwrap();
    std::thread::scope(|scope| {
        let device = &device;
        let threads: Vec<_> = worlds
            .into_iter()
            .map(|world| {
                scope.spawn(move || {
                    let value = device(&world);
                    world.barrier().unwrap();
                    value
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a device panicked")).collect()
    })
}

/// What a path is called in the environment.
pub fn by_path(path: &str) -> Config {
    let mut config = Config::from_variables([("MP_PATH", path)]).unwrap();
    config.timeout = Duration::from_millis(MINUTE);
    config
}

/// Where the devices of a world are: the host for all of them.
pub fn host(_: usize) -> Device {
    Device::Host
}

/// The first GPU for all of them.
pub fn first(_: usize) -> Device {
    gpu(0)
}

/// A GPU for each.
pub fn of_its_own(rank: usize) -> Device {
    gpu(rank as u32)
}

/// A number from the environment.
pub fn number_from(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |it| it.parse().unwrap())
}

/// `Check` of kernels.cu.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Check {
    pub memory: u64,
    pub words: u64,
    pub rounds: u64,
    pub results: u64,
    pub flavour: u64,
}

pub const NAMES: [&str; 37] = [
    "ranks_numbers",
    "ranks_windows",
    "ranks_refusals",
    "ranks_window_numbers",
    "ranks_transfers",
    "ranks_rows",
    "ranks_in_place",
    "ranks_puts",
    "ranks_chains",
    "ranks_barriers",
    "ranks_matching",
    "ranks_many",
    "ranks_steps",
    "ranks_kept",
    "ranks_flood",
    "ranks_crowd",
    "ranks_late",
    "ranks_deadline",
    "ranks_absent",
    "ranks_aborted",
    "ranks_log",
    "ranks_notify_all",
    "ranks_script",
    "ranks_declared",
    "dcuda_figure_2",
    "ranks_ping_pong",
    "ranks_with_hosts",
    "ranks_collectives",
    "ranks_fompi",
    "ranks_beside",
    "ranks_no_credit",
    "ranks_half",
    "ranks_pairs",
    "dense_crowd",
    "dense_pairs",
    "dense_barriers",
    "dense_late",
];

/// The kernels on a GPU.
fn kernels_on(gpu: &CudaDevice) -> Module {
    // Kept, because a module's image has to be.
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    let image = IMAGE.get_or_init(|| {
        let folder = std::env::var("TEST_KERNELS").expect("TEST_KERNELS names no folder");
        std::fs::read(Path::new(&folder).join("dranks.fatbin")).unwrap()
    });
    gpu.load_module(image, &NAMES).unwrap()
}

/// How many ranks of a kernel a GPU runs at once.
pub fn fit(device: &Device, name: &str, threads: u32) -> u32 {
    let gpu = device.as_cuda().expect("a GPU");
    gpu.co_resident_blocks(&kernels_on(gpu).kernel(name).unwrap(), threads, 0).unwrap()
}

/// A device's ranks, with memory as the kernels want it: `words` a rank, and as many for all.
pub struct Player {
    pub ranks: Ranks,
    pub memory: Region<u64>,
    pub stream: Stream,
    pub threads: u32,
    /// How long a kernel may take.
    pub limit: Duration,
    words: usize,
    results: Region<u64>,
    module: Option<Module>,
}

impl Player {
    pub fn new(
        world: &Communicator,
        device: &Device,
        options: &Options,
        threads: u32,
        words: usize,
    ) -> Result<Player> {
        let module = device.as_cuda().map(kernels_on);
        if module.is_none() {
            // Compiled now, not while others wait.
            symbol();
        }
        let memory = world.alloc(device, (options.ranks as usize + 1) * words + 1)?;
        let results = world.alloc(device, options.ranks as usize)?;
        let ranks = Ranks::open(world, &memory, options)?;
        let stream = world.stream(device)?;
        let limit = Duration::from_secs(60);
        Ok(Player { ranks, memory, stream, threads, limit, words, results, module })
    }

    /// Runs a kernel to its end: what failed, and the ranks whose check did, with its line in kernels.cu.
    pub fn play(
        &self,
        name: &'static str,
        rounds: u64,
        flavour: u64,
    ) -> (Result<()>, Vec<(usize, u64)>) {
        self.play_with(name, self.words as u64, rounds, flavour)
    }

    pub fn play_with(
        &self,
        name: &'static str,
        words: u64,
        rounds: u64,
        flavour: u64,
    ) -> (Result<()>, Vec<(usize, u64)>) {
        let address = |region: &Region<u64>| region.buffer().device_address().unwrap();
        let check = Check {
            memory: address(&self.memory),
            words,
            rounds,
            results: address(&self.results),
            flavour,
        };
        let started = match &self.module {
            Some(module) => {
                let kernel = module.kernel(name).unwrap();
                // SAFETY: the kernel takes the handle and a `Check`; all it names lives until the stream has been waited for.
                unsafe {
                    self.ranks.launch(&self.stream, &kernel, self.threads, 0, &[Arg::new(&check)])
                }
            }
            None => {
                let (handle, threads) = (self.ranks.handle(), self.threads);
                let run = move || {
                    let name = CString::new(name).unwrap();
                    // SAFETY: the shim's signature; the addresses are those of memory that is kept until the stream has been waited for.
                    assert!(unsafe { symbol()(name.as_ptr(), &handle, &check, threads) });
                };
                self.stream.call(run).map_err(Error::from)
            }
        };
        let deadline = Deadline::after(self.limit);
        let ended = started.and_then(|()| self.ranks.synchronize(&self.stream, deadline));
        (ended, self.wrong())
    }

    /// The ranks whose check failed so far, with its line in kernels.cu.
    pub fn wrong(&self) -> Vec<(usize, u64)> {
        let lines = self.results.to_vec().unwrap().into_iter().enumerate();
        lines.filter(|(_, line)| *line != 0).collect()
    }

    /// A kernel that finds nothing wrong, and in which nothing fails.
    pub fn pass(&self, name: &'static str, rounds: u64) {
        self.pass_with(name, rounds, 0);
    }

    pub fn pass_with(&self, name: &'static str, rounds: u64, flavour: u64) {
        let (ended, wrong) = self.play(name, rounds, flavour);
        assert!(wrong.is_empty(), "{name}: ranks and lines of kernels.cu {wrong:?}, {ended:?}");
        ended.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

type Shim =
    unsafe extern "C" fn(*const c_char, *const mp_kernels::Ranks, *const Check, u32) -> bool;

/// The shim, compiled once for this process and the ones it starts with `TEST_SHIM`.
pub fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        if let Some(built) = std::env::var_os("TEST_SHIM") {
            return built.into();
        }
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let out = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("dranks-{}.so", std::process::id()));
        let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
        let status = Command::new(&compiler)
            .args(["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"])
            .args(["-pthread", "-I"])
            .arg(here.join("../kernels/include"))
            .arg("-o")
            .arg(&out)
            .arg(here.join("tests/kernels/shim.cpp"))
            .status()
            .unwrap_or_else(|error| panic!("{compiler} does not start: {error}"));
        assert!(status.success(), "{compiler} cannot compile the kernels: {status}");
        out
    })
}

fn symbol() -> Shim {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        // SAFETY: built from this repository's source; no initialisers but those of the C++ library.
        unsafe { Library::new(shim()) }.expect("the kernels load")
    });
    // SAFETY: the type that the shim declares.
    *unsafe { library.get::<Shim>(b"shim_ranks") }.expect("the shim has the function")
}
