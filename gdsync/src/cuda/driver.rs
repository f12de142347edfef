//! The CUDA driver as an error value: loading it, checking what it returns, and the few facts about it that
//! hold for the whole process. Nothing here keeps state beyond "the driver is initialised".

use std::ffi::CStr;
use std::sync::OnceLock;

use cudarc::driver::sys;

use crate::error::{Error, Result};

/// Entry points that are looked up when the driver is loaded, with the CUDA version that brought them.
/// `cudarc` panics on the first call of a symbol that is absent, so absence is found out here.
const NEEDED: &[(&str, &str)] = &[
    ("cuStreamBatchMemOp_v2", "11.7"),
    ("cuStreamWriteValue32_v2", "11.7"),
    ("cuStreamWriteValue64_v2", "11.7"),
    ("cuStreamWaitValue64_v2", "11.7"),
    ("cuFuncLoad", "12.4"),
    ("cuMemHostRegister_v2", "4.1"),
    ("cuIpcOpenMemHandle_v2", "11.0"),
    ("cuStreamBeginCapture_v2", "10.1"),
    ("cuGraphInstantiateWithFlags", "11.4"),
    ("cuDevicePrimaryCtxRelease_v2", "11.0"),
    ("cuEventElapsedTime_v2", "12.8"),
    ("cuStreamGetCaptureInfo_v3", "12.3"),
    ("cuUserObjectCreate", "11.3"),
];

/// The loaded and initialised driver.
///
/// ```
/// match gdsync::Driver::load() {
///     Ok(driver) => println!("driver for CUDA {}, {} GPUs", driver.version(), driver.device_count()),
///     Err(error) => println!("no GPU: {error}"),
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Driver {
    version: i32,
    devices: u32,
}

static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();

impl Driver {
    /// Loads libcuda and initialises it, once a process.
    ///
    /// # Errors
    /// [`Error::NoDriver`] without the library, [`Error::DriverTooOld`] when an entry point is missing, and what
    /// `cuInit` says otherwise (no device, version mismatch of kernel module and library, …).
    pub fn load() -> Result<Driver> {
        DRIVER.get_or_init(Driver::init).clone()
    }

    /// Whether that has been done, and went well.
    pub(super) fn is_loaded() -> bool {
        matches!(DRIVER.get(), Some(Ok(_)))
    }

    fn init() -> Result<Driver> {
        // SAFETY: only loads the library, which runs its initialisers; no other precondition.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoDriver);
        }
        for (symbol, needed) in NEEDED {
            if !has_symbol(symbol) {
                let found = version_without_init().map_or("unknown".into(), dotted);
                return Err(Error::DriverTooOld { found, needed, symbol });
            }
        }
        // SAFETY: the library is loaded and has the symbol (it is as old as CUDA itself).
        check("cuInit", unsafe { sys::cuInit(0) })?;
        let mut version = 0;
        // SAFETY: writes one int.
        check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&mut version) })?;
        let mut devices = 0;
        // SAFETY: writes one int.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&mut devices) })?;
        Ok(Driver { version, devices: devices.max(0) as u32 })
    }

    /// The CUDA version that the driver implements, for example "13.0".
    pub fn version(&self) -> String {
        dotted(self.version)
    }

    /// Number of GPUs visible to this process.
    pub fn device_count(&self) -> u32 {
        self.devices
    }
}

pub(super) fn has_symbol(name: &str) -> bool {
    // SAFETY: `is_culib_present` was true, so `culib` does not panic; the symbol is only looked up, not called.
    unsafe { sys::culib().get::<*const ()>(name).is_ok() }
}

fn version_without_init() -> Option<i32> {
    if !has_symbol("cuDriverGetVersion") {
        return None;
    }
    let mut version = 0;
    // SAFETY: the symbol is there; the call needs no initialisation and writes one int.
    let result = unsafe { sys::cuDriverGetVersion(&mut version) };
    (result == sys::CUresult::CUDA_SUCCESS).then_some(version)
}

fn dotted(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Turns a `CUresult` into an error that names the call.
pub(crate) fn check(call: &'static str, result: sys::CUresult) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut text = std::ptr::null();
    let message = if has_symbol("cuGetErrorString") {
        // SAFETY: the symbol is there; it stores a pointer to a static string, or null.
        unsafe {
            let _ = sys::cuGetErrorString(result, &mut text);
            if text.is_null() {
                "unknown error".into()
            } else {
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
        }
    } else {
        "unknown error".into()
    };
    Err(Error::Cuda { call, code: result as u32, message })
}

/// Calls a driver function of `cudarc::driver::sys` and checks its result, naming the function in the error.
/// Must stand inside an `unsafe` block whose SAFETY sentence covers the call.
macro_rules! cu {
    ($function:ident ( $($argument:expr),* $(,)? )) => {
        $crate::cuda::driver::check(stringify!($function), cudarc::driver::sys::$function($($argument),*))
    };
}
pub(crate) use cu;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_gets_an_error_value() {
        match Driver::load() {
            Ok(driver) => assert!(driver.version().contains('.')),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn versions_are_written_with_a_dot() {
        assert_eq!(dotted(13000), "13.0");
        assert_eq!(dotted(12040), "12.4");
    }
}
