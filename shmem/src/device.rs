//! A PE's device, for programs that ask for it (`shmemg.h`): a second symmetric heap in the memory of its GPU, what kernels know of their PE,
//! and copies where an address of the program is on the GPU. Where there is no GPU, or the program's kernels were compiled for the host, the
//! device is the host: its heap is memory like any other.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libmp::gdsync::{Buffer, CudaDevice, Rows};
use libmp::{Collective, Device, Region, Stream, World};
use mp_kernels::{SHMEM_DEVICE_SHARED, SHMEM_DEVICE_WORLD, ShmemTeam, ShmemWorld};

use crate::context::Made;
use crate::failure::{OrFail, die};
use crate::opencl;
use crate::parts::Parts;
use crate::rma::region;
use crate::team::{Groups, Team};
use crate::wait::Waited;
use crate::world::{HEAP, Segment, State, heap_size, state, try_state};

/// Bytes of the heap on the device.
pub(crate) const SIZE: &str = "SHMEM_DEVICE_SYMMETRIC_SIZE";
/// If it does not say otherwise, on a GPU.
const ON_GPU: usize = 1 << 30;
/// How many contexts of kernels there may be at once.
pub(crate) const MAX_CONTEXTS: &str = "SHMEM_DEVICE_MAX_CTX";
/// If it does not say otherwise; and as many teams at least.
const CONTEXTS: usize = 256;

/// `SHMEM_DEVICE_HOST_INIT` and `SHMEM_DEVICE_KERNEL_INIT`.
const KERNEL_INIT: c_int = 1 << 9;
pub(crate) const SUPPORT: c_int = 1 << 8 | KERNEL_INIT;

/// `struct shmemg_module`: a part of the program with kernels.
#[repr(C)]
pub(crate) struct Module {
    on_host: c_int,
    bytes: usize,
    tell: Option<unsafe extern "C" fn(*const c_void) -> c_int>,
}

/// All that have told of themselves, before `main` or later.
static MODULES: Mutex<Vec<&Module>> = Mutex::new(Vec::new());

fn modules() -> MutexGuard<'static, Vec<&'static Module>> {
    MODULES.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) unsafe fn add_module(module: *mut Module) {
    // SAFETY: C's promise: it stays where it is.
    let Some(module) = (unsafe { module.as_ref() }) else { die("NULL is no module with kernels") };
    modules().push(module);
    // Of a library that was loaded behind the start.
    if let Some(device) = try_state().and_then(|state| state.device.as_ref())
        && device.provided & KERNEL_INIT != 0
    {
        device.tell(module);
    }
}

/// What kernels synchronise a team by, and the numbers of its PEs.
pub(crate) struct OfKernels {
    collective: Collective,
    _members: Option<Buffer<u64>>,
    row: ShmemTeam,
}

impl OfKernels {
    /// Waits for all PEs of the team.
    fn new(world: &World, device: &Device, members: &[usize]) -> OfKernels {
        let is_all = members.iter().copied().eq(0..world.size());
        // It only synchronises.
        let collective = match is_all {
            true => world.prepare_collective(device, size_of::<u64>()),
            false => {
                world.team(members).and_then(|it| it.prepare_collective(device, size_of::<u64>()))
            }
        };
        let collective = collective.or_fail();
        let numbers = (!is_all).then(|| {
            let numbers: Vec<u64> = members.iter().map(|&pe| pe as u64).collect();
            let memory = world.alloc::<u64>(device, numbers.len()).or_fail();
            memory.write(&numbers).or_fail();
            memory.buffer().clone()
        });
        let address = numbers.as_ref().and_then(|numbers| numbers.device_address());
        let row = ShmemTeam {
            members: address.unwrap_or_default(),
            pes: members.len() as u64,
            collective: collective.handle().state,
        };
        OfKernels { collective, _members: numbers, row }
    }
}

/// Teams or contexts that the program has made for kernels. The handle of one is the address of its row in the device's memory.
struct Slots<T> {
    rows: Buffer<u64>,
    first: usize,
    held: Box<[AtomicPtr<T>]>,
}

impl<T> Slots<T> {
    /// 64-bit words of a row.
    const WORDS: usize = size_of::<ShmemTeam>() / size_of::<u64>();

    fn new(rows: Buffer<u64>) -> Slots<T> {
        let first = rows.device_address().unwrap_or_default() as usize;
        let held = (0..rows.len() / Self::WORDS).map(|_| AtomicPtr::default()).collect();
        Slots { rows, first, held }
    }

    fn slot(&self, handle: usize) -> Option<usize> {
        let at = handle.wrapping_sub(self.first);
        let slot = at / size_of::<ShmemTeam>();
        (at.is_multiple_of(size_of::<ShmemTeam>()) && slot < self.held.len()).then_some(slot)
    }

    fn write(&self, slot: usize, row: ShmemTeam) {
        let at = slot * Self::WORDS;
        let there = self.rows.slice(at..at + Self::WORDS);
        let written = there.and_then(|there| there.write(&[row.members, row.pes, row.collective]));
        written.unwrap_or_else(|error| die(error));
    }

    /// Gives the handle; `None`: all are in use.
    fn add(&self, value: T, row: ShmemTeam) -> Option<usize> {
        let value = Box::into_raw(Box::new(value));
        let (set, null) = (Ordering::AcqRel, std::ptr::null_mut());
        let free = |held: &AtomicPtr<T>| {
            held.compare_exchange(null, value, set, Ordering::Relaxed).is_ok()
        };
        let Some(slot) = self.held.iter().position(free) else {
            // SAFETY: made above, and nobody else has it.
            drop(unsafe { Box::from_raw(value) });
            return None;
        };
        self.write(slot, row);
        Some(self.first + slot * size_of::<ShmemTeam>())
    }

    /// What a handle stands for.
    fn get(&self, handle: usize) -> Option<&T> {
        // SAFETY: made by `add`, and not given back, as C promises.
        unsafe { self.held[self.slot(handle)?].load(Ordering::Acquire).as_ref() }
    }

    fn remove(&self, handle: usize) -> Option<Box<T>> {
        let slot = self.slot(handle)?;
        let held = self.held[slot].load(Ordering::Acquire);
        if held.is_null() {
            return None;
        }
        self.write(slot, ShmemTeam { members: 0, pes: 0, collective: 0 });
        self.held[slot].store(std::ptr::null_mut(), Ordering::Release);
        // SAFETY: made by `add`; given back once, as C promises.
        Some(unsafe { Box::from_raw(held) })
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        for held in self.held.iter().map(|held| held.load(Ordering::Acquire)) {
            if !held.is_null() {
                // SAFETY: made by `add`, and nobody has it any more.
                drop(unsafe { Box::from_raw(held) });
            }
        }
    }
}

/// The device between the start and the end.
pub(crate) struct OnDevice {
    device: Device,
    /// Its heap.
    pub heap: Segment,
    /// Who has what of it.
    pub parts: Mutex<Parts>,
    /// What the program may use of [`SUPPORT`].
    pub provided: c_int,
    /// Copies and fills for the host.
    stream: Stream,
    /// `SHMEM_DEVICE_TEAM_WORLD` and `SHMEM_DEVICE_TEAM_SHARED`.
    pub all: Team,
    pub shared: Team,
    contexts: Slots<Made>,
    teams: Slots<Team>,
    world: ShmemWorld,
}

/// The host, if the program's kernels are its; the GPU that is current in this thread; one for each PE of this host, which then is current.
fn choose(world: &World) -> Device {
    let on_host = modules().iter().any(|module| module.on_host != 0);
    let count = CudaDevice::count().unwrap_or_default();
    if on_host || count == 0 {
        return Device::Host;
    }
    let assigned = world.assigned_gpu().and_then(|gpu| gpu.parse().ok());
    let turn = || assigned.unwrap_or(world.local_rank() as u32 % count);
    let opened =
        CudaDevice::current().and_then(|current| Device::cuda(current.unwrap_or_else(turn)));
    let bound = opened.and_then(|device| {
        device.as_cuda().map_or(Ok(()), CudaDevice::bind)?;
        Ok(device)
    });
    bound.unwrap_or_else(|error| die(format!("the GPU cannot be used: {error}")))
}

fn max_contexts() -> usize {
    let Some(value) = std::env::var_os(MAX_CONTEXTS) else { return CONTEXTS };
    let value = value.to_string_lossy();
    value.parse::<u32>().map_or_else(
        |_| die(format!("{MAX_CONTEXTS} is {value:?}, expected a number of contexts")),
        |number| number as usize,
    )
}

impl OnDevice {
    /// Opens what the program has asked for; `None`: nothing. All PEs ask for the same.
    pub fn open(world: &World, groups: &Groups, asked: c_int) -> Option<OnDevice> {
        if asked == 0 {
            return None;
        }
        let device = choose(world);
        let is_gpu = device.as_cuda().is_some();
        let bytes = heap_size(&[SIZE], if is_gpu { ON_GPU } else { HEAP });
        let region = world.alloc::<u8>(&device, bytes).or_fail();
        let heap = Segment::open(world, &region, "the symmetric heap on the device");
        let parts = Mutex::new(Parts::new(bytes));
        let stream = world.stream(&device).or_fail();

        let me = world.rank();
        let team = |members: Vec<usize>| {
            let of_kernels = OfKernels::new(world, &device, &members);
            let team = Team::new(groups, members.into(), me, 0);
            let mut team = team.unwrap_or_else(|| die("this PE is in no team"));
            team.of_kernels = Some(of_kernels);
            team
        };
        let all = team((0..world.size()).collect());
        let shared = team((0..world.size()).filter(|&pe| heap.views[pe] != 0).collect());

        let max = max_contexts();
        let row = size_of::<ShmemTeam>() / size_of::<u64>();
        let rows = world.alloc::<u64>(&device, (max + CONTEXTS.max(max)) * row).or_fail();
        let rows = rows.buffer().clone();
        let part = |range| rows.slice(range).unwrap_or_else(|error| die(error));
        let (contexts, teams) = (part(0..max * row), part(max * row..rows.len()));
        let made = rows.device_address().unwrap_or_default();
        let of = |team: &Team| team.of_kernels.as_ref().map(|it| (it.row, it.collective.handle()));
        let (Some((of_all, meeting)), Some((of_shared, _))) = (of(&all), of(&shared)) else {
            die("the device has no teams")
        };
        let view = ShmemWorld {
            heap: heap.window().handle().or_fail(),
            base: heap.base as u64,
            all: of_all,
            shared: of_shared,
            made,
            made_end: made + rows.size() as u64,
            meeting,
        };
        let fits = modules().iter().all(|module| (module.on_host != 0) != is_gpu);
        let provided = if fits { asked } else { asked & !KERNEL_INIT };
        let (contexts, teams) = (Slots::new(contexts), Slots::new(teams));
        let it = OnDevice {
            device,
            heap,
            parts,
            provided,
            stream,
            all,
            shared,
            contexts,
            teams,
            world: view,
        };
        if provided & KERNEL_INIT != 0 {
            modules().iter().for_each(|module| it.tell(module));
        }
        Some(it)
    }

    /// Tells a module's kernels which PE they are of.
    fn tell(&self, module: &Module) {
        let expected = size_of::<ShmemWorld>();
        let Module { on_host, bytes, tell: Some(tell) } = *module else {
            die("a module with kernels cannot be told of its PE: it has no function for that")
        };
        if bytes != expected {
            die(format!(
                "a module was compiled with the shmemg.h of another version: its kernels know {bytes} bytes of their PE, expected {expected}"
            ));
        }
        if (on_host != 0) == self.is_gpu() {
            let (it, device) =
                if on_host != 0 { ("the host", "a GPU") } else { ("a GPU", "the host") };
            die(format!("a module has kernels for {it}, and the PE's device is {device}"));
        }
        // SAFETY: it reads so many bytes.
        match unsafe { tell((&raw const self.world).cast()) } {
            0 => {}
            error => {
                die(format!("a module with kernels cannot be told of its PE: CUDA error {error}"))
            }
        }
    }

    /// Whether it is not the host.
    #[inline]
    pub fn is_gpu(&self) -> bool {
        self.device.as_cuda().is_some()
    }

    /// Memory of the GPU that the program has allocated by itself.
    ///
    /// # Errors
    /// It is no memory of this GPU.
    ///
    /// # Safety
    /// It stays allocated while the buffer is there.
    pub unsafe fn memory_at(
        &self,
        address: usize,
        bytes: usize,
    ) -> libmp::gdsync::Result<Buffer<u8>> {
        // SAFETY: the caller's promise; what is no memory of the device is refused.
        unsafe { Buffer::from_cuda_memory(&self.device, address as u64, bytes, ()) }
    }

    /// Ends the process if a call of a kernel was refused or has failed.
    pub fn check(&self, state: &State) {
        state.world.synchronize(&self.stream, state.deadline()).or_fail();
    }

    /// Makes a team one for kernels, and gives its handle; `None`: there are too many. Waits for all its PEs.
    pub fn add_team(&self, state: &State, mut team: Team) -> Option<usize> {
        let of_kernels = OfKernels::new(&state.world, &self.device, &team.members);
        let row = of_kernels.row;
        team.of_kernels = Some(of_kernels);
        self.teams.add(team, row)
    }

    /// A team of this device, by its handle.
    pub fn team(&self, handle: usize) -> Option<&Team> {
        match handle as u64 {
            SHMEM_DEVICE_WORLD => Some(&self.all),
            SHMEM_DEVICE_SHARED => Some(&self.shared),
            _ => self.teams.get(handle),
        }
    }

    pub fn remove_team(&self, handle: usize) -> Option<Box<Team>> {
        self.teams.remove(handle)
    }

    /// Makes a context for kernels of a team that is, and gives its handle.
    pub fn add_context(&self, team: &Team, made: Made) -> Option<usize> {
        let row = team.of_kernels.as_ref()?.row;
        self.contexts.add(made, ShmemTeam { collective: 0, ..row })
    }

    pub fn context(&self, handle: usize) -> Option<&Made> {
        self.contexts.get(handle)
    }

    pub fn remove_context(&self, handle: usize) -> Option<Box<Made>> {
        self.contexts.remove(handle)
    }

    /// Sets bytes of this PE's heap to zero.
    pub fn clear(&self, state: &State, at: usize, bytes: usize) {
        let memory = self.heap.window().memory_of(state.me).or_fail().slice(at..at + bytes);
        let filled = memory.and_then(|memory| self.stream.fill(&memory, 0));
        filled.unwrap_or_else(|error| die(error));
        self.check(state);
    }
}

/// Memory of a GPU at an address of the program, the heap's or other; `None`: the CPU reaches it.
///
/// # Safety
/// As [`region`].
#[inline]
pub(crate) unsafe fn memory(address: usize, bytes: usize) -> Option<Buffer<u8>> {
    let state = try_state().filter(|state| state.has_gpu)?;
    // SAFETY: the caller's promise.
    unsafe { memory_of(state, state.device.as_ref()?, address, bytes) }
}

/// # Safety
/// As [`region`].
#[cold]
unsafe fn memory_of(
    state: &State,
    device: &OnDevice,
    address: usize,
    bytes: usize,
) -> Option<Buffer<u8>> {
    if let Some((segment, at)) = state.find(address) {
        let all = segment.window().memory_of(state.me).or_fail();
        let part = || all.slice(at..at + bytes).unwrap_or_else(|error| die(error));
        return all.host_address().is_none().then(part);
    }
    // SAFETY: the caller's promise.
    unsafe { device.memory_at(address, bytes) }.ok()
}

/// Whether the CPU does not reach memory at an address of the program: it is a GPU's, or OpenCL's.
///
/// # Safety
/// As [`region`].
unsafe fn is_away(address: usize, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    opencl::at(state(), address).is_some() || unsafe { memory(address, bytes) }.is_some()
}

/// Copies memory that is mapped here, or this PE's on a GPU or of OpenCL.
///
/// # Safety
/// `bytes` bytes of both, which may be the same.
#[inline]
pub(crate) unsafe fn copy(state: &State, to: *mut u8, from: *const u8, bytes: usize) {
    match state.away.load(Ordering::Relaxed) {
        // SAFETY: the caller's promise.
        true => unsafe { copy_any(state, to, from, bytes) },
        // SAFETY: the caller's promise.
        false => unsafe { std::ptr::copy(from, to, bytes) },
    }
}

/// # Safety
/// As [`copy`].
#[cold]
unsafe fn copy_any(state: &State, to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let rows = Rows::one(bytes);
        if !opencl::copy(state, to, from, rows) && !copy_by(state, (to, bytes), (from, bytes), rows)
        {
            std::ptr::copy(from, to, bytes);
        }
    }
}

/// Copies rows if either side is on a GPU, or OpenCL's: true then.
///
/// # Safety
/// So many bytes of both.
#[inline]
pub(crate) unsafe fn copy_rows(
    state: &State,
    to: (*mut u8, usize),
    from: (*const u8, usize),
    rows: Rows,
) -> bool {
    // SAFETY: the caller's promise.
    let by_others =
        || unsafe { opencl::copy(state, to.0, from.0, rows) || copy_by(state, to, from, rows) };
    state.away.load(Ordering::Relaxed) && by_others()
}

/// # Safety
/// As [`copy_rows`].
#[cold]
unsafe fn copy_by(
    state: &State,
    to: (*mut u8, usize),
    from: (*const u8, usize),
    rows: Rows,
) -> bool {
    // SAFETY: the caller's promise.
    let (to, from): (Region<u8>, Region<u8>) =
        unsafe { (region(to.0, to.1), region(from.0, from.1)) };
    let Some(device) = &state.device else { return false };
    if [&to, &from].iter().all(|side| side.buffer().host_address().is_some()) {
        return false;
    }
    let copied = device.stream.copy_rows(to.buffer(), from.buffer(), rows);
    copied.unwrap_or_else(|error| die(error));
    device.check(state);
    true
}

/// One look at a word, which the CPU may not reach.
///
/// # Safety
/// The word is there, and aligned.
#[cold]
pub(crate) unsafe fn read<T: Waited>(state: &State, word: *const T) -> T {
    // SAFETY: the caller's promise.
    if !unsafe { is_away(word as usize, size_of::<T>()) } {
        // SAFETY: the caller's promise.
        return unsafe { T::load(word) };
    }
    let mut value = std::mem::MaybeUninit::<T>::uninit();
    // SAFETY: a word, which then is there.
    unsafe {
        copy(state, value.as_mut_ptr().cast(), word.cast(), size_of::<T>());
        value.assume_init()
    }
}

/// Has a call work on memory that the CPU reaches: what a program has on its GPU, or of OpenCL's, is copied there, and back.
///
/// # Safety
/// `dest` and `source` have so many elements.
pub(crate) unsafe fn by_cpu<T, R>(
    (dest, taken): (*mut T, usize),
    (source, given): (*const T, usize),
    run: impl FnOnce(*mut T, *const T) -> R,
) -> R {
    let [to, from] = [(dest.cast_const(), taken), (source, given)].map(|(address, n)| {
        let away = n > 0 && try_state().is_some_and(|state| state.away.load(Ordering::Relaxed));
        // SAFETY: the caller's promise.
        let away = away && unsafe { is_away(address as usize, n * size_of::<T>()) };
        away.then(|| {
            let mut here: Vec<T> = Vec::with_capacity(n);
            // SAFETY: room for as many elements.
            unsafe { copy(state(), here.as_mut_ptr().cast(), address.cast(), n * size_of::<T>()) };
            here
        })
    });
    let mut to = to;
    let target = to.as_mut().map_or(dest, Vec::as_mut_ptr);
    let result = run(target, from.as_ref().map_or(source, Vec::as_ptr));
    if to.is_some() {
        // SAFETY: the caller's promise.
        unsafe { copy(state(), dest.cast(), target.cast_const().cast(), taken * size_of::<T>()) };
    }
    result
}
