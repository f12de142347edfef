//! The state between `shmem_init` and `shmem_finalize`: the world, the symmetric memory as every PE reaches it, and the questions that
//! programs ask about them.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use libmp::gdsync::Buffer;
use libmp::{Config, Deadline, Device, Region, Window, World};

use crate::deprecated::Sets;
use crate::device::{self, OnDevice};
use crate::failure::{OrFail, die, exit, fail, leave};
use crate::map::Maps;
use crate::opencl::OpenCl;
use crate::parts::Parts;
use crate::team::{Groups, Team};
use crate::{order, statics};

/// Bytes of the symmetric heap, if `SHMEM_SYMMETRIC_SIZE` does not say otherwise.
pub(crate) const HEAP: usize = 64 << 20;
/// Where else its size may be.
const SIZES: [&str; 2] = ["SHMEM_SYMMETRIC_SIZE", "SMA_SYMMETRIC_SIZE"];
/// What the heap is a multiple of.
const PAGE: usize = 4096;
/// Pages of its own, wherever it is mapped.
const LEAST_HEAP: usize = 1 << 20;
/// A wait ends with the world, and not before.
const NO_END: Duration = Duration::from_secs(31_536_000);
/// Symmetric memory: a heap, or the program's variables.
pub(crate) struct Segment {
    /// Where it begins here.
    pub base: usize,
    pub len: usize,
    /// Where that of each PE is mapped here for the CPU; null: behind a NIC, or a GPU's.
    pub peers: Box<[*mut u8]>,
    /// The same as the memory's device has it; 0: behind a NIC.
    pub views: Box<[usize]>,
    /// Reaches those.
    pub reach: Reach,
}

/// How other PEs' symmetric memory is reached where it is not mapped.
pub(crate) enum Reach {
    /// It has addresses.
    Window(Box<Window<u8>>),
    /// OpenCL's, which has none: those of the program are reserved, and nothing is there.
    OpenCl(OpenCl),
}

pub(crate) struct State {
    pub world: World,
    pub me: usize,
    pub n: usize,
    pub heap: Segment,
    pub data: Option<Segment>,
    /// If the program has asked for it.
    pub device: Option<OnDevice>,
    /// It is one, and a GPU.
    pub has_gpu: bool,
    /// The CPU does not reach all memory that calls name: a GPU's, or OpenCL's.
    pub away: AtomicBool,
    /// Who has what of the heap.
    pub parts: Mutex<Parts>,
    /// PEs behind a NIC, and whether anything has gone to them.
    pub far: Box<[(usize, AtomicBool)]>,
    /// `SHMEM_TEAM_WORLD` and `SHMEM_TEAM_SHARED`.
    pub all: Team,
    pub shared: Team,
    pub groups: Groups,
    /// The teams of active sets.
    pub sets: Sets,
    /// What `shmmap` has made symmetric.
    pub maps: Maps,
    ender: std::thread::JoinHandle<()>,
}

// SAFETY: the addresses are those of mappings that the windows hold, used by any thread.
unsafe impl Send for State {}
// SAFETY: as for Send.
unsafe impl Sync for State {}

static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());

/// Starts that no end has followed.
static STARTS: AtomicUsize = AtomicUsize::new(0);

/// The program's variables once they are shared, which they stay.
static SHARED: Mutex<Option<Option<Buffer<u8>>>> = Mutex::new(None);

/// The state, if there is one.
#[inline]
pub(crate) fn try_state() -> Option<&'static State> {
    // SAFETY: set once it is complete, and given back by the last `finalize` only, behind which no call is made before the next start.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

/// The state, which every call but the first needs.
#[inline]
pub(crate) fn state() -> &'static State {
    match try_state() {
        Some(state) => state,
        None => die("a function was called before shmem_init or behind shmem_finalize"),
    }
}

/// Ends the world if not all PEs have as many bytes of `what`, with the same words on whichever PE says it first.
pub(crate) fn expect_same(what: &str, lens: impl Iterator<Item = u64>) {
    let mut first = None;
    for (pe, len) in lens.enumerate() {
        let of_first = *first.get_or_insert(len);
        if len != of_first {
            die(format!(
                "{what} of PE {pe} has {len} bytes, that of PE 0 {of_first}: all PEs have the same"
            ));
        }
    }
}

impl Segment {
    pub fn open(world: &World, region: &Region<u8>, what: &str) -> Segment {
        let window = world.window(region, 0).or_fail();
        let base = region.buffer().device_address().unwrap_or_default() as usize;
        let len = region.len();
        expect_same(what, (0..world.size()).map(|pe| window.len(pe).or_fail()));
        let ways = (0..world.size()).map(|pe| {
            let memory = match pe == world.rank() {
                true => Some(region.buffer()),
                false => window.memory_of(pe).ok(),
            };
            let by_cpu = memory.and_then(|memory| memory.host_address());
            let view = memory.and_then(|memory| memory.device_address()).unwrap_or_default();
            (by_cpu.map_or(std::ptr::null_mut(), |address| address.as_ptr()), view as usize)
        });
        let (peers, views): (Vec<_>, Vec<_>) = ways.unzip();
        let reach = Reach::Window(Box::new(window));
        Segment { base, len, peers: peers.into(), views: views.into(), reach }
    }

    /// What reaches memory that has addresses, for a call that needs these.
    pub fn window(&self) -> &Window<u8> {
        match &self.reach {
            Reach::Window(window) => window,
            Reach::OpenCl(_) => die(
                "OpenCL memory takes puts and gets only, expected memory of the host or a GPU: it has no addresses for atomic operations, signals and locks",
            ),
        }
    }

    /// If it is OpenCL's.
    pub fn opencl(&self) -> Option<&OpenCl> {
        match &self.reach {
            Reach::Window(_) => None,
            Reach::OpenCl(memory) => Some(memory),
        }
    }

    /// Where an address of this PE is in it.
    #[inline]
    pub fn offset(&self, address: usize) -> Option<usize> {
        let at = address.wrapping_sub(self.base);
        (at < self.len).then_some(at)
    }
}

impl State {
    /// `asked`: of what there is for devices.
    fn new(asked: c_int) -> State {
        let config = Config::from_env().map(|mut config| {
            if std::env::var_os("MP_TIMEOUT").is_none_or(|value| value.is_empty()) {
                config.timeout = NO_END;
            }
            config
        });
        let size = heap_size(&SIZES, HEAP);
        let mut shared = SHARED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let data = shared.get_or_insert_with(|| {
            // SAFETY: called by shmem_init, before which a program starts no thread that writes variables.
            let shared = unsafe { statics::share() };
            shared.unwrap_or_else(|error| {
                die(format!("the program's variables cannot be shared: {error}"))
            })
        });
        let world = config.and_then(|config| World::with_config(&config)).or_fail();
        let ender = {
            let watched = (*world).clone();
            let watch = move || {
                if let Some(error) = watched.wait_for_end() {
                    fail(&error);
                }
            };
            let thread = std::thread::Builder::new().name("shmem-end".into()).spawn(watch);
            thread.unwrap_or_else(|error| die(format!("no thread can be started: {error}")))
        };
        let region = world.alloc(&Device::Host, size).or_fail();
        let heap = Segment::open(&world, &region, "the symmetric heap");
        let data = data.clone().map(|memory| {
            Segment::open(
                &world,
                &Region::from_buffer(memory),
                "the memory of the program's variables",
            )
        });
        let (me, n) = (world.rank(), world.size());
        let groups = Groups::default();
        let device = OnDevice::open(&world, &groups, asked);
        let far = (0..n).filter(|&pe| {
            let is_far = |device: &OnDevice| device.heap.views[pe] == 0;
            heap.peers[pe].is_null() || device.as_ref().is_some_and(is_far)
        });
        let far = far.map(|pe| (pe, AtomicBool::new(false))).collect();
        let team = |members: Arc<[usize]>| {
            // This PE is among all, and among those whose memory it maps.
            Team::new(&groups, members, me, 0).unwrap_or_else(|| die("this PE is in no team"))
        };
        let all = team((0..n).collect());
        let shared = team((0..n).filter(|&pe| !heap.peers[pe].is_null()).collect());
        all.collective(&world);
        let parts = Mutex::new(Parts::new(size));
        let has_gpu = device.as_ref().is_some_and(OnDevice::is_gpu);
        State {
            me,
            n,
            heap,
            data,
            device,
            has_gpu,
            away: AtomicBool::new(has_gpu),
            parts,
            far,
            all,
            shared,
            groups,
            sets: Sets::default(),
            maps: Maps::default(),
            ender,
            world,
        }
    }

    /// Of a PE that a call names.
    #[inline]
    pub fn pe(&self, pe: c_int) -> usize {
        match usize::try_from(pe) {
            Ok(number) if number < self.n => number,
            _ => self.no_such_pe(pe),
        }
    }

    #[cold]
    fn no_such_pe(&self, pe: c_int) -> ! {
        die(format!("there is no PE {pe}: the PEs are 0 to {}", self.n - 1))
    }

    /// The symmetric memory that an address of this PE is in, and where. `None`: it is private.
    #[inline]
    pub fn find(&self, address: usize) -> Option<(&Segment, usize)> {
        self.find_on_host(address).or_else(|| self.find_elsewhere(address))
    }

    /// The same of the heap of the host, and the program's variables.
    #[inline]
    pub fn find_on_host(&self, address: usize) -> Option<(&Segment, usize)> {
        if let Some(at) = self.heap.offset(address) {
            return Some((&self.heap, at));
        }
        if let Some(data) = &self.data
            && let Some(at) = data.offset(address)
        {
            return Some((data, at));
        }
        None
    }

    #[cold]
    fn find_elsewhere(&self, address: usize) -> Option<(&Segment, usize)> {
        let on_device = || {
            let heap = &self.device.as_ref()?.heap;
            Some((heap, heap.offset(address)?))
        };
        on_device().or_else(|| self.maps.find(address))
    }

    /// The symmetric memory that `bytes` bytes of this PE are in.
    #[inline]
    pub fn place(&self, address: usize, bytes: usize) -> (&Segment, usize) {
        match self.find(address) {
            Some((segment, at)) if bytes <= segment.len - at => (segment, at),
            found => self.not_symmetric(address, bytes, found.is_some()),
        }
    }

    #[cold]
    fn not_symmetric(&self, address: usize, bytes: usize, begins: bool) -> ! {
        let what =
            if begins { "go past the end of symmetric memory" } else { "are not symmetric memory" };
        die(format!(
            "the {bytes} bytes at {address:#x} {what}: expected memory from shmem_malloc, or a variable of the program \
             that is global or static"
        ))
    }

    /// The deadline of a wait: none but the world's end.
    pub fn deadline(&self) -> Deadline {
        Deadline::after(NO_END)
    }
}

/// What the first of these variables says that there is, as `SHMEM_SYMMETRIC_SIZE`: a number, which may have a fraction, and a suffix.
pub(crate) fn heap_size(names: &[&str], otherwise: usize) -> usize {
    let named = names.iter().find_map(|name| Some((name, std::env::var_os(name)?)));
    let Some((name, value)) = named else { return otherwise };
    let value = value.to_string_lossy();
    let bytes = size(&value).unwrap_or_else(|| {
        die(format!("{name} is {value:?}, expected a number of bytes, with k, m, g or t behind it for KiB to TiB"))
    });
    bytes.max(LEAST_HEAP).next_multiple_of(PAGE)
}

fn size(text: &str) -> Option<usize> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let factor = match text[digits..].chars().next() {
        None => 1.0,
        Some(suffix) => {
            let power = "kmgt".find(suffix.to_ascii_lowercase())?;
            f64::from(2_u32.pow(10)).powi(power as i32 + 1)
        }
    };
    let bytes = text[..digits].parse::<f64>().ok()? * factor;
    (bytes < 2_f64.powi(62)).then_some(bytes.ceil() as usize)
}

pub(crate) unsafe fn init() {
    // SAFETY: as here.
    unsafe { init_for(0) }
}

/// `asked`: of what there is for devices. Only the first start is heard.
unsafe fn init_for(asked: c_int) {
    // SAFETY: registers a function of this library.
    unsafe extern "C" {
        fn on_exit(call: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    STARTS.fetch_add(1, Ordering::AcqRel);
    if try_state().is_some() {
        return;
    }
    STATE.store(Box::into_raw(Box::new(State::new(asked))), Ordering::Release);
    introduce(state());
    static REGISTERED: Once = Once::new();
    // SAFETY: the function stays where it is.
    REGISTERED.call_once(|| unsafe {
        on_exit(at_exit, std::ptr::null_mut());
    });
}

/// Says on PE 0 what `SHMEM_VERSION` and `SHMEM_INFO` ask for.
fn introduce(state: &State) {
    let asked = |name| state.me == 0 && std::env::var_os(name).is_some();
    if asked("SHMEM_VERSION") || asked("SHMEM_INFO") {
        println!("OpenSHMEM 1.6 of libmp {}", env!("CARGO_PKG_VERSION"));
    }
    if asked("SHMEM_INFO") {
        println!(
            "SHMEM_SYMMETRIC_SIZE         bytes of the symmetric heap of each PE, as 1048576, 512k, 64m or 1.5g; here {}\n\
             {} bytes of that on its device, if the program asks for one; here {}\n\
             {}         contexts of kernels that there may be at once\n\
             SHMEM_VERSION                prints the version\n\
             SHMEM_INFO                   prints this\n\
             MP_PATH and others           as for every program of libmp",
            state.heap.len,
            device::SIZE,
            state.device.as_ref().map_or(0, |device| device.heap.len),
            device::MAX_CONTEXTS
        );
    }
}

/// A program that exits well without `shmem_finalize` means it; one that exits with a failure ends the others with its status.
extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    match try_state() {
        Some(_) if status == 0 => finalize_all(),
        Some(state) => leave(&state.world, status),
        None => {}
    }
}

/// `SHMEM_THREAD_MULTIPLE`: any thread may call anything.
const MULTIPLE: c_int = 3;

pub(crate) unsafe fn init_thread(requested: c_int, provided: *mut c_int) -> c_int {
    // SAFETY: as here; the caller's pointer.
    unsafe {
        init_for(requested & device::SUPPORT);
        query_thread(provided);
    }
    0
}

pub(crate) unsafe fn query_thread(provided: *mut c_int) {
    let device = try_state().and_then(|state| state.device.as_ref());
    // SAFETY: the caller's pointer.
    unsafe { *provided = MULTIPLE | device.map_or(0, |device| device.provided) };
}

pub(crate) unsafe fn finalize() {
    // Behind the last there is nothing left to do.
    let Some(state) = try_state() else { return };
    match STARTS.fetch_sub(1, Ordering::AcqRel) {
        1 => finalize_all(),
        _ => order::barrier(state),
    }
}

pub(crate) unsafe fn query_initialized(initialized: *mut c_int) {
    // SAFETY: the caller's pointer.
    unsafe { *initialized = try_state().is_some().into() };
}

fn finalize_all() {
    order::barrier(state());
    let state = STATE.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: made by `init`, and nobody else has it: no other call is made behind this one.
    let state = *unsafe { Box::from_raw(state) };
    let State { world, heap, data, device, all, shared, groups, sets, maps, ender, .. } = state;
    drop((heap, data, maps, device, all, shared, groups, sets));
    world.finish().or_fail();
    // It has nothing to say.
    let _ = ender.join();
}

pub(crate) unsafe fn global_exit(status: c_int) {
    if let Some(state) = try_state() {
        state.world.exit(status);
    }
    exit(status)
}

pub(crate) unsafe fn my_pe() -> c_int {
    state().me as c_int
}

pub(crate) unsafe fn n_pes() -> c_int {
    state().n as c_int
}

pub(crate) unsafe fn pe_accessible(pe: c_int) -> c_int {
    usize::try_from(pe).is_ok_and(|pe| pe < state().n).into()
}

pub(crate) unsafe fn addr_accessible(address: *const c_void, pe: c_int) -> c_int {
    let state = state();
    let there = usize::try_from(pe).is_ok_and(|pe| pe < state.n);
    (there && state.find(address as usize).is_some()).into()
}

pub(crate) unsafe fn ptr(address: *const c_void, pe: c_int) -> *mut c_void {
    let state = state();
    let pe = state.pe(pe);
    match state.find(address as usize) {
        Some((segment, at)) if segment.views[pe] != 0 => (segment.views[pe] + at) as *mut c_void,
        _ => std::ptr::null_mut(),
    }
}

pub(crate) unsafe fn info_get_version(major: *mut c_int, minor: *mut c_int) {
    // SAFETY: the caller's pointers.
    unsafe {
        *major = 1;
        *minor = 6;
    }
}

/// Nothing here is profiled.
pub(crate) unsafe fn pcontrol(_: c_int) {}

pub(crate) unsafe fn info_get_name(name: *mut c_char) {
    let text = c"libmp";
    // SAFETY: the caller has room for SHMEM_MAX_NAME_LEN characters.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), name, text.count_bytes() + 1) };
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn the_size_of_the_heap_is_a_number_with_a_suffix() {
        for (text, bytes) in [
            ("20m", Some(20 << 20)),
            ("3.1M", Some(3_250_586)),
            (".5m", Some(1 << 19)),
            ("20kk", Some(20 << 10)),
            ("1048576", Some(1 << 20)),
            ("2G", Some(2 << 30)),
            ("1t", Some(1 << 40)),
            ("much", None),
            ("5x", None),
            ("-1", None),
            ("", None),
            ("99999999999t", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
    }
}
