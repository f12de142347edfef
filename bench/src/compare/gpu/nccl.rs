//! NCCL as a peer: its library, loaded at run time, and the calls that a ping-pong, an exchange and collectives need.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use gdsync::{Buffer, Deadline};
use libloading::Library;
use mp_program::peer::{patience, site_packages};

use super::collective::{Captured, Kind, rounds};
use super::{ON_STREAMS, Player, Sample};
use crate::perf::Rank;
use crate::result::Role;

/// `ncclUniqueId` (nccl.h: 128 bytes, passed by value).
#[repr(C)]
#[derive(Clone, Copy)]
struct Id([c_char; 128]);

/// `ncclComm_t`, an opaque pointer.
type Communicator = *mut c_void;

/// `ncclUint8` of `ncclDataType_t`.
const BYTES: c_int = 1;

/// `ncclFloat64` of it, and `ncclSum` of `ncclRedOp_t`.
const DOUBLES: c_int = 8;
const SUM: c_int = 0;

type Transfer =
    unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Communicator, *mut c_void) -> c_int;

/// The calls, with the types of nccl.h.
struct Functions {
    version: unsafe extern "C" fn(*mut c_int) -> c_int,
    id: unsafe extern "C" fn(*mut Id) -> c_int,
    init: unsafe extern "C" fn(*mut Communicator, c_int, Id, c_int) -> c_int,
    send: Transfer,
    recv: Transfer,
    all_reduce: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        c_int,
        c_int,
        Communicator,
        *mut c_void,
    ) -> c_int,
    all_gather: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        c_int,
        Communicator,
        *mut c_void,
    ) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    abort: unsafe extern "C" fn(Communicator) -> c_int,
    said: unsafe extern "C" fn(c_int) -> *const c_char,
}

/// A communicator of all ranks.
pub struct Nccl {
    functions: Functions,
    communicator: Communicator,
    /// Why it is of no use any more.
    failed: RefCell<Option<String>>,
    version: String,
    _library: Library,
}

impl Nccl {
    /// Loads NCCL and connects the ranks. Collective; all ranks succeed or all give a reason why not.
    ///
    /// # Errors
    /// A rank has no NCCL, two are on one GPU, or NCCL fails.
    pub fn start(rank: &Rank) -> Result<Nccl> {
        let loaded = load();
        let id = match &loaded {
            Ok((_, functions)) if rank.leads() => Some(identify(functions)),
            _ => None,
        };
        // Each rank tells the others whether it can, which GPU it has, and rank 0 the identification.
        let mut mine = vec![u8::from(loaded.is_ok() && !matches!(id, Some(Err(_))))];
        if let Some(Ok(id)) = &id {
            mine.extend(id.0.map(|byte| byte as u8));
        }
        let all = rank.world.all_gather(&mine)?;
        let gpus = rank.world.all_gather(&rank.device.as_cuda().context("no GPU")?.uuid())?;
        let (library, functions) = loaded?;
        id.transpose()?;
        ensure!(all.iter().all(|said| said.first() == Some(&1)), "another rank cannot load it");
        let twice = gpus.iter().enumerate().any(|(at, gpu)| gpus[..at].contains(gpu));
        ensure!(!twice, "it takes no two ranks on one GPU");
        let bytes: [u8; 128] = all[0]
            .get(1..)
            .unwrap_or_default()
            .try_into()
            .context("no ncclUniqueId from rank 0")?;
        // The device's context becomes current on this thread, where NCCL looks for it.
        rank.device.alloc::<u8>(16)?;
        let mut communicator = null_mut();
        let (me, size) = (rank.world.rank() as c_int, rank.world.size() as c_int);
        // SAFETY: the types are those of nccl.h.
        let code = unsafe {
            (functions.init)(&mut communicator, size, Id(bytes.map(|byte| byte as c_char)), me)
        };
        check(&functions, "ncclCommInitRank", code)?;
        let mut number = 0;
        // SAFETY: as above.
        check(&functions, "ncclGetVersion", unsafe { (functions.version)(&mut number) })?;
        let version = format!("NCCL {}.{}.{}", number / 10000, number / 100 % 100, number % 100);
        let failed = RefCell::new(None);
        Ok(Nccl { functions, communicator, failed, version, _library: library })
    }

    /// As it calls itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Messages by `ncclSend` and `ncclRecv` on the rank's stream.
    pub fn player(&self) -> Box<dyn Player + '_> {
        Box::new(NcclPlayer { nccl: self, exchanges: false, buffers: None })
    }

    /// Ends the communicator, once. What it has on streams ends, too.
    fn abort(&self) {
        // SAFETY: made in `start`, and not used afterwards. Aborting does not wait for other ranks.
        unsafe { (self.functions.abort)(self.communicator) };
    }

    /// A send and a receive in one group.
    pub fn exchange(&self) -> Box<dyn Player + '_> {
        Box::new(NcclPlayer { nccl: self, exchanges: true, buffers: None })
    }

    /// A player has failed: nothing of it may stay on the stream, which others use.
    fn fails(&self, rank: &Rank, error: &anyhow::Error) {
        self.abort();
        *self.failed.borrow_mut() = Some(format!("{error:#}"));
        let _ = rank.stream.synchronize(Deadline::after(patience() / 4));
    }

    /// A collective of all ranks on a stream, or captured from it.
    pub fn collective(&self, kind: Kind, captured: bool) -> Box<dyn Player + '_> {
        let captured = Captured::new(captured);
        Box::new(NcclCollective { nccl: self, kind, captured, buffers: None })
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        if self.failed.get_mut().is_none() {
            self.abort();
        }
    }
}

fn load() -> Result<(Library, Functions)> {
    let mut names = vec![PathBuf::from("libnccl.so.2")];
    names.extend(
        site_packages().into_iter().map(|folder| folder.join("nvidia/nccl/lib/libnccl.so.2")),
    );
    // SAFETY: NCCL's initialisers start nothing.
    let library = names.iter().find_map(|name| unsafe { Library::new(name) }.ok());
    let library =
        library.context("no libnccl.so.2 in LD_LIBRARY_PATH or Python's site-packages")?;
    // SAFETY: the types are those of nccl.h.
    let functions = unsafe {
        Functions {
            version: symbol(&library, c"ncclGetVersion")?,
            id: symbol(&library, c"ncclGetUniqueId")?,
            init: symbol(&library, c"ncclCommInitRank")?,
            send: symbol(&library, c"ncclSend")?,
            recv: symbol(&library, c"ncclRecv")?,
            all_reduce: symbol(&library, c"ncclAllReduce")?,
            all_gather: symbol(&library, c"ncclAllGather")?,
            group_start: symbol(&library, c"ncclGroupStart")?,
            group_end: symbol(&library, c"ncclGroupEnd")?,
            abort: symbol(&library, c"ncclCommAbort")?,
            said: symbol(&library, c"ncclGetErrorString")?,
        }
    };
    Ok((library, functions))
}

/// # Safety
/// `T` is the symbol's type.
unsafe fn symbol<T: Copy>(library: &Library, name: &CStr) -> Result<T> {
    // SAFETY: the caller's promise.
    let symbol = unsafe { library.get::<T>(name.to_bytes_with_nul()) };
    Ok(*symbol.with_context(|| format!("libnccl.so.2 lacks {name:?}"))?)
}

fn identify(functions: &Functions) -> Result<Id> {
    let mut id = Id([0; 128]);
    // SAFETY: the types are those of nccl.h.
    check(functions, "ncclGetUniqueId", unsafe { (functions.id)(&mut id) })?;
    Ok(id)
}

fn check(functions: &Functions, what: &str, code: c_int) -> Result<()> {
    if code != 0 {
        // SAFETY: it returns a constant string for any code.
        let said = unsafe { CStr::from_ptr((functions.said)(code)) };
        bail!("{what}: {}", said.to_string_lossy());
    }
    Ok(())
}

struct NcclPlayer<'a> {
    nccl: &'a Nccl,
    exchanges: bool,
    buffers: Option<[Buffer<u8>; 2]>,
}

impl NcclPlayer<'_> {
    fn enqueue(&self, rank: &Rank, sends: bool) -> Result<()> {
        let [out, here] = self.buffers.as_ref().context("not prepared")?;
        let buffer = if sends { out } else { here };
        let at = buffer.device_address().context("no address")? as *mut c_void;
        let stream = rank.stream.as_raw_cuda().context("no CUDA stream")?.cast();
        let other = 1 - rank.world.rank() as c_int;
        let (what, call) = match sends {
            true => ("ncclSend", self.nccl.functions.send),
            false => ("ncclRecv", self.nccl.functions.recv),
        };
        // SAFETY: the buffer has that many bytes and lives until the stream is idle.
        let code = unsafe { call(at, buffer.size(), BYTES, other, self.nccl.communicator, stream) };
        check(&self.nccl.functions, what, code)
    }
}

impl Player for NcclPlayer<'_> {
    fn name(&self) -> String {
        if self.exchanges { "NCCL, grouped".into() } else { "NCCL send and receive".into() }
    }

    fn role(&self) -> Role {
        Role::Peer
    }

    fn library(&self) -> Option<&'static str> {
        Some("NCCL")
    }

    fn prepare(&mut self, rank: &Rank, size: u64) -> Result<bool> {
        if let Some(reason) = &*self.nccl.failed.borrow() {
            bail!("{reason}");
        }
        self.buffers = Some([rank.device.alloc(size as usize)?, rank.device.alloc(size as usize)?]);
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        self.play(rank).inspect_err(|error| self.nccl.fails(rank, error))
    }
}

impl NcclPlayer<'_> {
    fn play(&self, rank: &Rank) -> Result<Sample> {
        let since = Instant::now();
        let functions = &self.nccl.functions;
        for _ in 0..ON_STREAMS {
            if self.exchanges {
                // SAFETY: the types are those of nccl.h; every start has its end.
                check(functions, "ncclGroupStart", unsafe { (functions.group_start)() })?;
            }
            self.enqueue(rank, rank.leads())?;
            self.enqueue(rank, !rank.leads())?;
            if self.exchanges {
                // SAFETY: as above.
                check(functions, "ncclGroupEnd", unsafe { (functions.group_end)() })?;
            }
        }
        let enqueued = since.elapsed().as_secs_f64();
        // Well before the process is ended because it does not return.
        let deadline = Deadline::after(patience() / 2);
        rank.world.synchronize(&rank.stream, deadline)?;
        let elapsed = since.elapsed().as_secs_f64();
        // An exchange is a round, a message half of one.
        let rounds = ON_STREAMS as f64;
        let share = if self.exchanges { 1.0 } else { 0.5 };
        Ok(Sample { value: elapsed * share * 1e6 / rounds, cpu: Some(enqueued * 1e6 / rounds) })
    }
}

struct NcclCollective<'a> {
    nccl: &'a Nccl,
    kind: Kind,
    captured: Captured,
    /// Of all values of the result, also what a gather takes only a share of.
    buffers: Option<[Buffer<f64>; 2]>,
}

impl Nccl {
    /// A collective of `len` values of the result.
    fn enqueue(
        &self,
        rank: &Rank,
        kind: Kind,
        from: *mut f64,
        to: *mut f64,
        len: usize,
    ) -> Result<()> {
        let Nccl { functions, communicator, .. } = self;
        let stream = rank.stream.as_raw_cuda().context("no CUDA stream")?.cast();
        let ranks = rank.world.size();
        let share = len / ranks;
        match kind {
            Kind::Reduce => {
                let (from, to) = (from.cast(), to.cast());
                // SAFETY: the types of nccl.h; both buffers have that many values and live until the stream is idle.
                let code = unsafe {
                    (functions.all_reduce)(from, to, len, DOUBLES, SUM, *communicator, stream)
                };
                check(functions, "ncclAllReduce", code)
            }
            Kind::Gather => {
                let (from, to) = (from.cast(), to.cast());
                // SAFETY: as above; the second has room for what each rank gives of its first.
                let code = unsafe {
                    (functions.all_gather)(from, to, share, DOUBLES, *communicator, stream)
                };
                check(functions, "ncclAllGather", code)
            }
            Kind::Exchange => {
                // SAFETY: the types are those of nccl.h; every start has its end.
                check(functions, "ncclGroupStart", unsafe { (functions.group_start)() })?;
                for peer in 0..ranks {
                    let at = peer * share;
                    let peer = peer as c_int;
                    let (from, to) = (from.wrapping_add(at).cast(), to.wrapping_add(at).cast());
                    // SAFETY: as above, a share for each rank.
                    let codes = unsafe {
                        [
                            (functions.send)(from, share, DOUBLES, peer, *communicator, stream),
                            (functions.recv)(to, share, DOUBLES, peer, *communicator, stream),
                        ]
                    };
                    check(functions, "ncclSend", codes[0])?;
                    check(functions, "ncclRecv", codes[1])?;
                }
                // SAFETY: as above.
                check(functions, "ncclGroupEnd", unsafe { (functions.group_end)() })
            }
        }
    }
}

impl Player for NcclCollective<'_> {
    fn name(&self) -> String {
        let grouped = if self.kind == Kind::Exchange { "grouped, " } else { "" };
        format!("NCCL, {grouped}{}", self.captured.name())
    }

    fn role(&self) -> Role {
        Role::Peer
    }

    fn library(&self) -> Option<&'static str> {
        Some("NCCL")
    }

    fn prepare(&mut self, rank: &Rank, bytes: u64) -> Result<bool> {
        if let Some(reason) = &*self.nccl.failed.borrow() {
            bail!("{reason}");
        }
        let len = self.kind.words(bytes, rank.world.size());
        self.captured.clear();
        self.buffers = Some([rank.device.alloc(len)?, rank.device.alloc(len)?]);
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let [from, to] = self.buffers.as_ref().context("not prepared")?;
        let address = |buffer: &Buffer<f64>| {
            let address = buffer.device_address().context("no address")?;
            Ok::<_, anyhow::Error>(address as *mut f64)
        };
        let (at, into) = (address(from)?, address(to)?);
        let (nccl, kind, len, rounds) = (self.nccl, self.kind, to.len(), rounds(to.size() as u64));
        let play = |_| nccl.enqueue(rank, kind, at, into, len);
        let played = self.captured.sample(rank, rounds, play);
        played.inspect_err(|error| nccl.fails(rank, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_nccl_says_where_it_was_looked_for() {
        if let Err(error) = load() {
            let error = format!("{error:#}");
            assert!(
                error.contains("LD_LIBRARY_PATH") && error.contains("site-packages"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_identification_has_the_size_of_nccl_h() {
        assert_eq!(size_of::<Id>(), 128);
    }
}
