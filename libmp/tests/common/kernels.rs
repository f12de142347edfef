//! The kernels of `tests/kernels` on a device: as OS threads, by the shim that the host compiler makes of them, or on a GPU from
//! the fatbin in the folder that `TEST_KERNELS` names (`tests/kernels/kernels.cu` says how it is made).
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libloading::Library;
use libmp::gdsync::{Arg, Buffer, Dims, HostEntry, Kernel};
use libmp::{Device, Stream};

/// An argument of a kernel: a handle by its address and size, or a word.
pub enum Value {
    Send(mp_kernels::Send),
    Recv(mp_kernels::Recv),
    Message(mp_kernels::Message),
    Window(mp_kernels::Window),
    Put(mp_kernels::Put),
    Get(mp_kernels::Get),
    SignalWait(mp_kernels::SignalWait),
    Collective(mp_kernels::Collective),
    Signals(mp_kernels::BlockSignals),
    Bounds(mp_kernels::WaitBounds),
    Word(u64),
    Half(u32),
}

impl Value {
    fn arg(&self) -> Arg<'_> {
        match self {
            Value::Send(handle) => Arg::new(handle),
            Value::Recv(handle) => Arg::new(handle),
            Value::Message(handle) => Arg::new(handle),
            Value::Window(handle) => Arg::new(handle),
            Value::Put(handle) => Arg::new(handle),
            Value::Get(handle) => Arg::new(handle),
            Value::SignalWait(handle) => Arg::new(handle),
            Value::Collective(handle) => Arg::new(handle),
            Value::Signals(handle) => Arg::new(handle),
            Value::Bounds(bounds) => Arg::new(bounds),
            Value::Word(word) => Arg::new(word),
            Value::Half(half) => Arg::new(half),
        }
    }
}

/// The test kernels of a device.
pub struct Kernels {
    pub device: Device,
    module: Option<libmp::gdsync::Module>,
}

const NAMES: [&str; 17] = [
    "mp_arrivals",
    "mp_copies",
    "mp_meetings",
    "mp_signals",
    "test_collectives",
    "test_contexts",
    "test_exchange",
    "test_kind",
    "test_messages",
    "test_on_chip",
    "test_parts",
    "test_prepared",
    "test_put",
    "test_put_rate",
    "test_reduce",
    "test_refusals",
    "test_windows",
];

impl Kernels {
    pub fn of(device: &Device) -> Kernels {
        let module = device.as_cuda().map(|gpu| {
            let folder = std::env::var("TEST_KERNELS").expect("TEST_KERNELS names no folder");
            let image = std::fs::read(Path::new(&folder).join("libmp.fatbin")).unwrap().leak();
            gpu.load_module(image, &NAMES).unwrap()
        });
        if module.is_none() {
            // Compiled now, not while a peer waits.
            entry("test_exchange");
        }
        Kernels { device: device.clone(), module }
    }

    /// Starts a kernel on a stream.
    pub fn launch(&self, stream: &Stream, name: &'static str, dims: (u32, u32), args: Vec<Value>) {
        self.start(name, dims, args, |kernel, dims, args| {
            // SAFETY: the callers give what the kernel takes, and keep it until the stream has been waited for.
            unsafe { stream.launch(kernel, dims, args) }
        });
    }

    /// Starts a kernel whose blocks meet.
    pub fn launch_together(
        &self,
        stream: &Stream,
        name: &'static str,
        dims: (u32, u32),
        args: Vec<Value>,
    ) {
        self.start(name, dims, args, |kernel, dims, args| {
            // SAFETY: as above.
            unsafe { stream.launch_together(kernel, dims, args) }
        });
    }

    fn start(
        &self,
        name: &'static str,
        (blocks, threads): (u32, u32),
        args: Vec<Value>,
        launch: impl FnOnce(&Kernel, Dims, &[Arg<'_>]) -> libmp::gdsync::Result<()>,
    ) {
        let args: Vec<Arg<'_>> = args.iter().map(Value::arg).collect();
        launch(&self.kernel(name), Dims::linear(blocks, threads), &args).unwrap();
    }

    fn kernel(&self, name: &'static str) -> Kernel {
        match &self.module {
            Some(module) => module.kernel(name).unwrap(),
            // SAFETY: MP_HOST_KERNEL made it, and the shim stays loaded.
            None => unsafe { Kernel::host(name, entry(name)) },
        }
    }

    /// Three words for a kernel's results.
    pub fn results(&self) -> Buffer<u64> {
        self.device.alloc_pinned(3).unwrap()
    }
}

/// Where kernels find it.
pub fn address<T: bytemuck::Pod>(buffer: &Buffer<T>) -> u64 {
    buffer.device_address().unwrap_or(0)
}

/// The shim, compiled once for this process and the ones it starts with `TEST_SHIM`.
pub fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| {
        if let Some(built) = std::env::var_os("TEST_SHIM") {
            return built.into();
        }
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let out =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shim-{}.so", std::process::id()));
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

/// A kernel of the shim.
fn entry(name: &str) -> HostEntry {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        // SAFETY: built from this repository's source; no initialisers but those of the C++ library.
        unsafe { Library::new(shim()) }.expect("the kernels load")
    });
    // SAFETY: what MP_HOST_KERNEL exports has this type.
    *unsafe { library.get(format!("{name}_on_host").as_bytes()) }.expect("the shim has the kernel")
}
