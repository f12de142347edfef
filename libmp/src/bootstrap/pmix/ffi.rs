//! The few functions of PMIx that a bootstrap needs, from `libpmix.so.2` at run time. Declared by hand after `pmix.h` and
//! `pmix_common.h` of OpenPMIx 4.2.2 (the layouts are part of the PMIx standard's ABI and the same in 3.x and 5.x); the
//! sizes and offsets asserted below were printed by a C program compiled with those headers on x86-64.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Mutex;
use std::sync::PoisonError;

use libloading::Library;

use crate::error::{Error, Result};

/// `pmix_status_t`.
pub(super) type Status = c_int;
pub(super) const SUCCESS: Status = 0;
/// `PMIX_RANK_WILDCARD`: a fact of the job, not of a rank.
pub(super) const RANK_WILDCARD: u32 = u32::MAX - 1;
/// `PMIX_GLOBAL`: for all ranks.
const GLOBAL: u8 = 3;
const TYPE_BOOL: u16 = 1;
const TYPE_STRING: u16 = 3;
const TYPE_UINT16: u16 = 13;
const TYPE_UINT32: u16 = 14;

/// `pmix_proc_t`: a name space and a rank in it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Proc {
    pub nspace: [c_char; 256],
    pub rank: u32,
}

/// The members of `pmix_value_t`'s union that are used, and its largest (`pmix_envar_t`: two pointers and a char).
#[repr(C)]
#[derive(Clone, Copy)]
union Data {
    flag: bool,
    uint16: u16,
    uint32: u32,
    string: *mut c_char,
    largest: [usize; 3],
}

/// `pmix_value_t`.
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
struct Info {
    key: [c_char; 512],
    flags: u32,
    value: Value,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Value>() == 32 && offset_of!(Value, data) == 8);
    assert!(size_of::<Proc>() == 260 && offset_of!(Proc, rank) == 256);
    assert!(
        size_of::<Info>() == 552
            && offset_of!(Info, flags) == 512
            && offset_of!(Info, value) == 520
    );
};

/// The library, loaded for good: it keeps threads of its own.
pub(super) struct Pmix {
    init: unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> Status,
    finalize: unsafe extern "C" fn(*const Info, usize) -> Status,
    put: unsafe extern "C" fn(u8, *const c_char, *mut Value) -> Status,
    commit: unsafe extern "C" fn() -> Status,
    fence: unsafe extern "C" fn(*const Proc, usize, *const Info, usize) -> Status,
    get: unsafe extern "C" fn(
        *const Proc,
        *const c_char,
        *const Info,
        usize,
        *mut *mut Value,
    ) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
}

static LOADED: Mutex<Option<&'static Pmix>> = Mutex::new(None);

/// Where Debian keeps it, out of the loader's path.
const PRIVATE: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2",
    "/usr/lib/aarch64-linux-gnu/pmix2/lib/libpmix.so.2",
];

/// The library: `chosen`, or the loader's, or Debian's.
pub(super) fn load(chosen: Option<&Path>) -> Result<&'static Pmix> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pmix) = *loaded {
        return Ok(pmix);
    }
    let candidates: Vec<PathBuf> = match chosen {
        Some(path) => vec![path.to_owned()],
        None => ["libpmix.so.2"].iter().chain(&PRIVATE).map(PathBuf::from).collect(),
    };
    let mut tried = Vec::new();
    for path in &candidates {
        // SAFETY: the initialisers of libpmix have no preconditions.
        match unsafe { Library::new(path) }.and_then(Pmix::resolve) {
            Ok(pmix) => return Ok(*loaded.insert(Box::leak(Box::new(pmix)))),
            Err(error) => {
                // The loader's own words are in the source.
                let why = std::error::Error::source(&error)
                    .map_or(error.to_string(), ToString::to_string);
                tried.push(format!("{}: {why}", path.display()));
            }
        }
    }
    Err(Error::Pmix {
        call: "loading libpmix.so.2".into(),
        message: format!("{}; set MP_PMIX_LIBRARY to its path", tried.join("; ")),
    })
}

impl Pmix {
    fn resolve(library: Library) -> Result<Pmix, libloading::Error> {
        // Never unloaded, so that the functions stay valid.
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: the types are those of the declarations in pmix.h.
        unsafe {
            Ok(Pmix {
                init: *library.get(c"PMIx_Init")?,
                finalize: *library.get(c"PMIx_Finalize")?,
                put: *library.get(c"PMIx_Put")?,
                commit: *library.get(c"PMIx_Commit")?,
                fence: *library.get(c"PMIx_Fence")?,
                get: *library.get(c"PMIx_Get")?,
                error_string: *library.get(c"PMIx_Error_string")?,
            })
        }
    }

    fn check(&self, status: Status, call: impl FnOnce() -> String) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: takes any status; returns a string constant of the library.
        let text = unsafe { (self.error_string)(status) };
        let text = if text.is_null() {
            "unknown".into()
        } else {
            // SAFETY: not null, NUL-terminated, lives as long as the library, which is never unloaded.
            unsafe { CStr::from_ptr(text) }.to_string_lossy()
        };
        Err(Error::Pmix { call: call(), message: format!("{text} (status {status})") })
    }

    /// Connects to the server, or counts one more user of the connection. Returns who we are.
    pub(super) fn init(&self) -> Result<Proc> {
        let mut me = Proc { nspace: [0; 256], rank: 0 };
        // SAFETY: `me` is a valid place for the result; no info is given.
        let status = unsafe { (self.init)(&mut me, ptr::null_mut(), 0) };
        self.check(status, || "PMIx_Init".into())?;
        Ok(me)
    }

    /// Counts one user less; the last one disconnects.
    pub(super) fn finalize(&self) -> Result<()> {
        // SAFETY: no info is given.
        let status = unsafe { (self.finalize)(ptr::null(), 0) };
        self.check(status, || "PMIx_Finalize".into())
    }

    /// Publishes a string to all ranks; visible to them after a fence.
    pub(super) fn put(&self, key: &CStr, text: &CStr) -> Result<()> {
        let mut data = Data { largest: [0; 3] };
        data.string = text.as_ptr().cast_mut();
        let mut value = Value { kind: TYPE_STRING, data };
        // SAFETY: the key is shorter than 512 bytes (ours are); the value holds a NUL-terminated string, which PMIx copies
        // and does not change.
        let status = unsafe { (self.put)(GLOBAL, key.as_ptr(), &mut value) };
        self.check(status, || format!("PMIx_Put of {}", key.to_string_lossy()))?;
        // SAFETY: no arguments.
        let status = unsafe { (self.commit)() };
        self.check(status, || "PMIx_Commit".into())
    }

    /// Waits for all ranks of the job, exchanging what they published. Blocks for as long as it takes.
    pub(super) fn fence(&self) -> Result<()> {
        let mut key = [0; 512];
        for (to, &from) in key.iter_mut().zip(c"pmix.collect".to_bytes()) {
            *to = from as c_char;
        }
        let mut data = Data { largest: [0; 3] };
        data.flag = true;
        let info = Info { key, flags: 0, value: Value { kind: TYPE_BOOL, data } };
        // SAFETY: no processes means all; one info, which is only read.
        let status = unsafe { (self.fence)(ptr::null(), 0, &info, 1) };
        self.check(status, || "PMIx_Fence".into())
    }

    /// A string that a rank has published.
    pub(super) fn get_string(&self, of: &Proc, key: &CStr) -> Result<String> {
        let value = self.get(of, key)?;
        // SAFETY: `get` returned it: valid until it is freed below.
        let (kind, data) = unsafe { ((*value).kind, (*value).data) };
        let text = if kind == TYPE_STRING {
            // SAFETY: the type says that the union holds a string.
            let string = unsafe { data.string };
            let text = if string.is_null() {
                None
            } else {
                // SAFETY: NUL-terminated and ours until freed.
                Some(unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned())
            };
            // SAFETY: allocated by PMIx with malloc and given to us (PMIX_VALUE_RELEASE does the same); free takes NULL.
            unsafe { libc::free(string.cast::<c_void>()) };
            text
        } else {
            None
        };
        // SAFETY: as above.
        unsafe { libc::free(value.cast::<c_void>()) };
        text.ok_or_else(|| wrong_type(key, kind, "a string"))
    }

    /// A fact that the server knows, of type `uint16` or `uint32`.
    pub(super) fn get_number(&self, of: &Proc, key: &CStr) -> Result<u32> {
        let value = self.get(of, key)?;
        // SAFETY: `get` returned it: valid until it is freed below.
        let (kind, data) = unsafe { ((*value).kind, (*value).data) };
        let number = match kind {
            // SAFETY: the type says which member of the union is set.
            TYPE_UINT16 => Some(u32::from(unsafe { data.uint16 })),
            // SAFETY: as above.
            TYPE_UINT32 => Some(unsafe { data.uint32 }),
            _ => None,
        };
        // SAFETY: allocated by PMIx with malloc and given to us; a number owns nothing more.
        unsafe { libc::free(value.cast::<c_void>()) };
        number.ok_or_else(|| wrong_type(key, kind, "a 16- or 32-bit number"))
    }

    fn get(&self, of: &Proc, key: &CStr) -> Result<*mut Value> {
        let mut value = ptr::null_mut();
        // SAFETY: `of` and the key are valid for the call, no info is given, and `value` is a place for the result.
        let status = unsafe { (self.get)(of, key.as_ptr(), ptr::null(), 0, &mut value) };
        let what = || format!("PMIx_Get of {} of rank {}", key.to_string_lossy(), of.rank);
        self.check(status, what)?;
        if value.is_null() {
            return Err(Error::Pmix { call: what(), message: "success without a value".into() });
        }
        Ok(value)
    }
}

fn wrong_type(key: &CStr, kind: u16, expected: &str) -> Error {
    Error::Pmix {
        call: format!("PMIx_Get of {}", key.to_string_lossy()),
        message: format!("a value of PMIx type {kind}, expected {expected}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named_with_the_variable_that_finds_it() {
        let Err(error) = load(Some(Path::new("/nonexistent/libpmix.so.2"))) else { panic!() };
        let text = error.to_string();
        assert!(
            text.contains("/nonexistent/libpmix.so.2") && text.contains("MP_PMIX_LIBRARY"),
            "{text}"
        );
    }
}
