//! Ranges of NVTX, NVIDIA's interface for annotations, when a tool that wants them is there: `nsys` and its like name a library
//! in `NVTX_INJECTION64_PATH`, and whoever has annotations loads it and lends it a table of function pointers, into which the
//! tool writes its own. That is what the headers of NVTX 3 do inside every program that includes them, and nothing more is
//! needed: without the variable nothing is loaded, and no call goes anywhere.
//!
//! Numbers and layouts: `nvtxDetail/nvtxTypes.h` and `nvToolsExt.h` of NVTX 3 (<https://github.com/NVIDIA/NVTX>).

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use libloading::Library;

use crate::config;

/// What the library exports; it returns 0 if it wants no annotations.
const ENTRY: &[u8] = b"InitializeInjectionNvtx2\0";
/// `NVTX_VERSION`: version of the interface and of the event attributes.
const VERSION: u32 = 3;

/// `NvtxExportTableID`.
const CALLBACKS: u32 = 1;
const VERSION_INFO: u32 = 3;
/// Functions of each `NvtxCallbackModule`, the number 0 that is none included: none, core, CUDA, OpenCL, CUDA runtime, core 2,
/// synchronisation.
const FUNCTIONS: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const CORE2: usize = 5;
/// `NvtxCallbackIdCore2`.
const DOMAIN_RANGE_PUSH_EX: usize = 4;
const DOMAIN_RANGE_POP: usize = 5;
const DOMAIN_CREATE_A: usize = 12;
/// `NVTX_MESSAGE_TYPE_ASCII`.
const ASCII: i32 = 1;

type Function = *mut c_void;
type GetExportTable = extern "C" fn(u32) -> *const c_void;
type Initialize = unsafe extern "C" fn(GetExportTable) -> c_int;
type DomainCreate = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type DomainRangePush = unsafe extern "C" fn(*mut c_void, *const EventAttributes) -> c_int;
type DomainRangePop = unsafe extern "C" fn(*mut c_void) -> c_int;

/// `nvtxEventAttributes_t`.
#[repr(C)]
struct EventAttributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_char,
}

/// `NvtxExportTableCallbacks`.
#[repr(C)]
struct Callbacks {
    size: usize,
    table_of: extern "C" fn(c_uint, *mut *const *mut Function, *mut c_uint) -> c_int,
}

/// `NvtxExportTableVersionInfo`.
#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set_tool_version: extern "C" fn(u32),
}

static CALLBACK_TABLE: Callbacks = Callbacks { size: size_of::<Callbacks>(), table_of };
static VERSION_TABLE: VersionInfo =
    VersionInfo { size: size_of::<VersionInfo>(), version: VERSION, reserved: 0, set_tool_version };

/// Most functions of a module.
const MOST: usize = 16;
/// Where the tool writes its functions, module by module …
static SLOTS: [[AtomicPtr<c_void>; MOST]; FUNCTIONS.len()] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST] }; FUNCTIONS.len()];
/// … and the table of pointers to these that it gets, with a null at the end. Addresses, filled in before it asks.
static TABLES: [[AtomicUsize; MOST + 1]; FUNCTIONS.len()] =
    [const { [const { AtomicUsize::new(0) }; MOST + 1] }; FUNCTIONS.len()];

extern "C" fn get_export_table(id: u32) -> *const c_void {
    match id {
        CALLBACKS => (&raw const CALLBACK_TABLE).cast(),
        VERSION_INFO => (&raw const VERSION_TABLE).cast(),
        _ => std::ptr::null(),
    }
}

extern "C" fn table_of(
    module: c_uint,
    table: *mut *const *mut Function,
    size: *mut c_uint,
) -> c_int {
    let module = module as usize;
    let Some(&count) = FUNCTIONS.get(module).filter(|count| **count > 0) else { return 0 };
    for (entry, slot) in TABLES[module][1..count].iter().zip(&SLOTS[module][1..]) {
        entry.store(slot.as_ptr() as usize, Ordering::Release);
    }
    if !table.is_null() {
        // SAFETY: the tool gives a place for the address of the table, which lives as long as the process; an atomic word
        // has the layout of its value.
        unsafe { *table = (&raw const TABLES[module]).cast() };
    }
    if !size.is_null() {
        // SAFETY: the tool gives a place for the number of its entries.
        unsafe { *size = count as c_uint };
    }
    1
}

extern "C" fn set_tool_version(_version: u32) {}

/// A tool that wants ranges.
pub(super) struct Tool {
    push: DomainRangePush,
    pop: DomainRangePop,
    /// What the tool calls this library's annotations; may be null.
    domain: *mut c_void,
}

// SAFETY: the domain is a handle that the tool's functions take, on any thread.
unsafe impl Send for Tool {}
// SAFETY: as for Send.
unsafe impl Sync for Tool {}

impl Tool {
    /// The tool of this process, loaded by the first call.
    pub fn get() -> Option<&'static Tool> {
        static TOOL: OnceLock<Option<Tool>> = OnceLock::new();
        TOOL.get_or_init(|| {
            let path = config::nvtx_tool()?;
            match Tool::load(&path) {
                Ok(tool) => tool,
                Err(error) => {
                    let path = path.to_string_lossy().into_owned();
                    tracing::warn!("no NVTX ranges: {}={path}: {error}", config::NVTX_TOOL);
                    None
                }
            }
        })
        .as_ref()
    }

    fn load(path: &std::ffi::OsStr) -> Result<Option<Tool>, libloading::Error> {
        // SAFETY: the user names a tool to be loaded into the process, whose initialisers may run.
        let library = unsafe { Library::new(path)? };
        // SAFETY: the symbol has this type in every tool for NVTX 3.
        let wants = unsafe { library.get::<Initialize>(ENTRY)?(get_export_table) };
        if wants == 0 {
            return Ok(None);
        }
        // Its functions are called as long as the process lives.
        std::mem::forget(library);
        let function = |id: usize| {
            let function = SLOTS[CORE2][id].load(Ordering::Acquire);
            (!function.is_null()).then_some(function)
        };
        let (Some(push), Some(pop)) = (function(DOMAIN_RANGE_PUSH_EX), function(DOMAIN_RANGE_POP))
        else {
            return Ok(None);
        };
        let domain = function(DOMAIN_CREATE_A).map_or(std::ptr::null_mut(), |create| {
            // SAFETY: the tool has put a function of this type there.
            let create = unsafe { std::mem::transmute::<Function, DomainCreate>(create) };
            // SAFETY: a zero-terminated name.
            unsafe { create(c"libmp".as_ptr()) }
        });
        // SAFETY: the tool has put functions of these types there.
        let (push, pop) = unsafe {
            (
                std::mem::transmute::<Function, DomainRangePush>(push),
                std::mem::transmute::<Function, DomainRangePop>(pop),
            )
        };
        Ok(Some(Tool { push, pop, domain }))
    }

    /// A range on the calling thread, until it is dropped.
    pub fn range(&'static self, name: &str) -> Range {
        // A zero in a name ends it.
        let name = CString::new(name.split('\0').next().unwrap_or_default()).unwrap_or_default();
        let attributes = EventAttributes {
            version: VERSION as u16,
            size: size_of::<EventAttributes>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type: ASCII,
            message: name.as_ptr(),
        };
        // SAFETY: the tool's function; attributes and name are there during the call, and it copies what it keeps.
        unsafe { (self.push)(self.domain, &raw const attributes) };
        Range { tool: self, thread: PhantomData }
    }
}

/// A range that is open on this thread. Ranges of a thread end in the reverse order of their beginning.
pub(super) struct Range {
    tool: &'static Tool,
    /// It ends on the thread where it began.
    thread: PhantomData<*const ()>,
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: the tool's function, on the thread that pushed.
        unsafe { (self.tool.pop)(self.tool.domain) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_attributes_are_laid_out_as_nvtx_has_them() {
        assert_eq!(size_of::<EventAttributes>(), 48);
        assert_eq!(std::mem::offset_of!(EventAttributes, payload), 24);
        assert_eq!(std::mem::offset_of!(EventAttributes, message), 40);
    }

    #[test]
    fn a_tool_gets_a_slot_for_each_function_and_none_beyond() {
        for (module, count) in FUNCTIONS.into_iter().enumerate() {
            let (mut table, mut size) = (std::ptr::null(), 0);
            let there = table_of(module as u32, &mut table, &mut size);
            assert_eq!(there, c_int::from(count > 0));
            if count == 0 {
                continue;
            }
            assert_eq!(size as usize, count);
            // SAFETY: the table has that many entries and a null behind them.
            let entries = unsafe { std::slice::from_raw_parts(table, count + 1) };
            assert!(entries[0].is_null() && entries[count].is_null());
            assert!(entries[1..count].iter().all(|entry| !entry.is_null()));
        }
        assert_eq!(table_of(7, std::ptr::null_mut(), std::ptr::null_mut()), 0);
        assert!(get_export_table(2).is_null());
    }
}
