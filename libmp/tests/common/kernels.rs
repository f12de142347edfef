//! The kernels of `tests/kernels` on a device: as OS threads, by the shim that the host compiler makes of them, or on a GPU from
//! the fatbin in the folder that `TEST_KERNELS` names (`tests/kernels/kernels.cu` says how it is made).
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libloading::Library;
use libmp::gdsync::{Arg, Buffer, Dims};
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

const NAMES: [&str; 13] = [
    "test_collectives",
    "test_contexts",
    "test_copy",
    "test_exchange",
    "test_kind",
    "test_messages",
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
            symbol::<Ring>("shim_ring");
        }
        Kernels { device: device.clone(), module }
    }

    /// Starts a kernel on a stream.
    pub fn launch(
        &self,
        stream: &Stream,
        name: &str,
        (blocks, threads): (u32, u32),
        args: Vec<Value>,
    ) {
        if let Some(module) = &self.module {
            let args: Vec<Arg<'_>> = args.iter().map(Value::arg).collect();
            let kernel = module.kernel(name).unwrap();
            // SAFETY: the callers give what the kernel takes, and keep it until the stream has been waited for.
            return unsafe { stream.launch(&kernel, Dims::linear(blocks, threads), &args) }
                .unwrap();
        }
        let name = name.to_owned();
        stream.call(move || on_the_host(&name, blocks, threads, &args)).unwrap();
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

type Ring =
    unsafe extern "C" fn(*const mp_kernels::Send, *const mp_kernels::Recv, u64, u64, u64, u32);
type Exchange = unsafe extern "C" fn(
    *const mp_kernels::Send,
    *const mp_kernels::Recv,
    u64,
    u64,
    u64,
    u64,
    u64,
    u32,
    u64,
    u32,
);
type Parts = unsafe extern "C" fn(*const mp_kernels::Send, *const mp_kernels::Recv, u64, u32, u32);
type Reduce = unsafe extern "C" fn(
    *const mp_kernels::Collective,
    *const mp_kernels::Collective,
    u64,
    u64,
    u64,
    u32,
);
type Kind = unsafe extern "C" fn(
    *const mp_kernels::Collective,
    u32,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u32,
    u32,
);
type Collectives = unsafe extern "C" fn(
    *const mp_kernels::Collective,
    *const mp_kernels::Collective,
    *const mp_kernels::Window,
    u64,
    u64,
    u64,
    u32,
    u64,
    u32,
);
type Contexts = unsafe extern "C" fn(
    *const mp_kernels::Collective,
    *const mp_kernels::Window,
    u64,
    u64,
    u64,
    u64,
    u64,
    u32,
    u32,
);
type Prepared = unsafe extern "C" fn(
    *const mp_kernels::Put,
    *const mp_kernels::SignalWait,
    *const mp_kernels::Put,
    *const mp_kernels::SignalWait,
    *const mp_kernels::Get,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u32,
);
type PutOne = unsafe extern "C" fn(*const mp_kernels::Window, u64, u64, u64, u64, u32);
type PutRate = unsafe extern "C" fn(*const mp_kernels::Window, u64, u64, u64, u64, u64, u32, u32);
type Refusals = unsafe extern "C" fn(*const mp_kernels::Window, u64, u32, u64, u32);
type Windows = unsafe extern "C" fn(*const mp_kernels::Window, u64, u64, u64, u32, u64, u32);

/// Runs a kernel of the shim.
fn on_the_host(name: &str, blocks: u32, threads: u32, args: &[Value]) {
    use Value::{Collective, Get, Half, Put, Recv, Send, SignalWait, Window, Word};
    // SAFETY: the shim's signatures; addresses are those of memory that the callers keep.
    unsafe {
        match (name, args) {
            ("ring", [Send(send), Recv(recv), Word(cells), Word(turns), Word(done)]) => {
                symbol::<Ring>("shim_ring")(send, recv, *cells, *turns, *done, threads);
            }
            (
                "test_exchange",
                [
                    Send(send),
                    Recv(recv),
                    Word(me),
                    Word(peer),
                    Word(words),
                    Word(rounds),
                    Word(first),
                    Half(flavour),
                    Word(to),
                ],
            ) => symbol::<Exchange>("shim_exchange")(
                send, recv, *me, *peer, *words, *rounds, *first, *flavour, *to, threads,
            ),
            ("test_parts", [Send(send), Recv(recv), Word(to)]) => {
                symbol::<Parts>("shim_parts")(send, recv, *to, blocks, threads);
            }
            (
                "test_contexts",
                [
                    Collective(barrier),
                    Window(window),
                    Word(mine),
                    Word(counter),
                    Word(words),
                    Word(rounds),
                    Word(to),
                ],
            ) => symbol::<Contexts>("shim_contexts")(
                barrier, window, *mine, *counter, *words, *rounds, *to, blocks, threads,
            ),
            (
                "test_prepared",
                [
                    Put(put),
                    SignalWait(arrived),
                    Put(take),
                    SignalWait(taken),
                    Get(get),
                    Word(out),
                    Word(share),
                    Word(back),
                    Word(me),
                    Word(words),
                    Word(rounds),
                    Word(to),
                ],
            ) => symbol::<Prepared>("shim_prepared")(
                put, arrived, take, taken, get, *out, *share, *back, *me, *words, *rounds, *to,
                threads,
            ),
            ("test_put", [Window(window), Word(rank), Word(from), Word(bytes), Word(to)]) => {
                symbol::<PutOne>("shim_put")(window, *rank, *from, *bytes, *to, threads);
            }
            (
                "test_put_rate",
                [Window(window), Word(rank), Word(bytes), Word(count), Word(stamps), Word(to)],
            ) => symbol::<PutRate>("shim_put_rate")(
                window, *rank, *bytes, *count, *stamps, *to, blocks, threads,
            ),
            ("test_refusals", [Window(window), Word(bytes), Half(which), Word(to)]) => {
                symbol::<Refusals>("shim_refusals")(window, *bytes, *which, *to, threads);
            }
            (
                "test_windows",
                [
                    Window(window),
                    Word(elsewhere),
                    Word(words),
                    Word(rounds),
                    Half(atomics),
                    Word(to),
                ],
            ) => symbol::<Windows>("shim_windows")(
                window, *elsewhere, *words, *rounds, *atomics, *to, threads,
            ),
            (
                "test_collectives",
                [
                    Collective(barrier),
                    Collective(reduce),
                    Window(window),
                    Word(scratch),
                    Word(count),
                    Word(rounds),
                    Half(flavour),
                    Word(to),
                ],
            ) => symbol::<Collectives>("shim_collectives")(
                barrier, reduce, window, *scratch, *count, *rounds, *flavour, *to, threads,
            ),
            (
                "test_reduce",
                [Collective(barrier), Collective(reduce), Word(values), Word(count), Word(to)],
            ) => symbol::<Reduce>("shim_reduce")(barrier, reduce, *values, *count, *to, threads),
            (
                "test_kind",
                [
                    Collective(all),
                    Half(kind),
                    Word(root),
                    Word(from),
                    Word(into),
                    Word(count),
                    Word(given),
                    Word(taken),
                    Word(to),
                ],
            ) => symbol::<Kind>("shim_kind")(
                all, *kind, *root, *from, *into, *count, *given, *taken, *to, blocks, threads,
            ),
            _ => panic!("no kernel {name} with these arguments"),
        }
    }
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

/// A function of the shim.
fn symbol<T: Copy>(name: &str) -> T {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        // SAFETY: built from this repository's source; no initialisers but those of the C++ library.
        unsafe { Library::new(shim()) }.expect("the kernels load")
    });
    // SAFETY: the callers name the type that the shim declares.
    *unsafe { library.get::<T>(name.as_bytes()) }.expect("the shim has the function")
}
