//! Pointers of C as Rust sees them, and the macro that the functions are declared with.

use std::ffi::{CStr, c_char, c_int};
use std::time::Duration;

use libmp::{Deadline, Device};

use crate::status::{Failure, Result};

/// Declares functions of the header. Each body is Rust that may use `?`, with its panics caught.
macro_rules! api {
    ($( $(#[doc = $doc:literal])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block )+) => {
        $(
            $(#[doc = $doc])*
            ///
            /// # Safety
            /// Every pointer is NULL or valid for what the header says of it.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
                $crate::status::guard(stringify!($name), || {
                    // SAFETY: the caller's promise, which is that of the helpers called in the body.
                    unsafe { $body }
                    Ok(())
                })
            }
        )+
    };
}
pub(crate) use api;

/// The same for functions that return a value, and what they return if they fail.
macro_rules! getters {
    ($( $(#[doc = $doc:literal])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $result:ty, $otherwise:expr, $body:block )+) => {
        $(
            $(#[doc = $doc])*
            ///
            /// # Safety
            /// Every pointer is NULL or valid for what the header says of it.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
                $crate::status::value(stringify!($name), $otherwise, || {
                    // SAFETY: the caller's promise, which is that of the helpers called in the body.
                    Ok(unsafe { $body })
                })
            }
        )+
    };
}
pub(crate) use getters;

fn null(name: &str) -> Failure {
    Failure::argument(name, "is NULL")
}

/// Something that C points to.
///
/// # Safety
/// The pointer is NULL, or valid and not written while the result is used.
pub(crate) unsafe fn borrow<'a, T>(pointer: *const T, name: &str) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(name))
}

/// Something that C points to and gives up.
///
/// # Safety
/// The pointer is NULL, or came from [`give`] and is not used again.
pub(crate) unsafe fn take<T>(pointer: *mut T, name: &str) -> Result<Box<T>> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { Box::from_raw(pointer) })
}

/// Stores a result where C wants it.
///
/// # Safety
/// The pointer is NULL or valid for a write.
pub(crate) unsafe fn put<T>(pointer: *mut T, value: T, name: &str) -> Result<()> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Refuses a place for a result that is NULL, before anything is done; and leaves NULL there in case it fails.
///
/// # Safety
/// The pointer is NULL or valid for a write.
pub(crate) unsafe fn place<T>(pointer: *mut *mut T, name: &str) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { put(pointer, std::ptr::null_mut(), name) }
}

/// Makes a handle of a value.
///
/// # Safety
/// As [`put`].
pub(crate) unsafe fn give<T>(pointer: *mut *mut T, value: T, name: &str) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe { put(pointer, Box::into_raw(Box::new(value)), name) }
}

/// An array of `count` elements; NULL is good for none.
///
/// # Safety
/// The pointer is NULL or valid for reading `count` elements while the result is used.
pub(crate) unsafe fn array<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(null(name));
    }
    check_array(pointer, count, name)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// The same, to be written.
///
/// # Safety
/// The pointer is NULL or valid for reading and writing `count` elements that nobody else uses meanwhile.
pub(crate) unsafe fn array_mut<'a, T>(
    pointer: *mut T,
    count: usize,
    name: &str,
) -> Result<&'a mut [T]> {
    if count == 0 {
        return Ok(&mut []);
    }
    if pointer.is_null() {
        return Err(null(name));
    }
    check_array(pointer, count, name)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) })
}

fn check_array<T>(pointer: *const T, count: usize, name: &str) -> Result<()> {
    if !pointer.is_aligned() {
        let what = format!("{pointer:p}, expected a multiple of {}", align_of::<T>());
        return Err(Failure::argument(name, what));
    }
    let bytes = count.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize);
    bytes.map(drop).ok_or_else(|| Failure::argument(name, format!("{count} elements")))
}

/// A string.
///
/// # Safety
/// The pointer is NULL or a terminated string.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Failure::argument(name, format!("{text:?} is not UTF-8")))
}

/// A time to wait.
pub(crate) fn deadline(seconds: f64) -> Result<Deadline> {
    Ok(Deadline::after(duration(seconds)?))
}

/// The same, from whenever it is used.
pub(crate) fn duration(seconds: f64) -> Result<Duration> {
    const YEAR: f64 = 31_536_000.0;
    if !(0.0..=YEAR).contains(&seconds) {
        let what = format!("{seconds}, expected seconds from 0 to {YEAR} (a year)");
        return Err(Failure::argument("timeout", what));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// A rank, or anything else that counts from 0.
pub(crate) fn number(value: c_int, name: &str) -> Result<usize> {
    usize::try_from(value).map_err(|_| Failure::argument(name, format!("{value} is negative")))
}

/// `MP_HOST`, or the number of a GPU.
pub(crate) fn device(device: c_int) -> Result<Device> {
    match device {
        -1 => Ok(Device::Host),
        0.. => Ok(Device::cuda(device as u32)?),
        _ => Err(Failure::argument(
            "device",
            format!("{device}, expected MP_HOST (-1) or the number of a GPU"),
        )),
    }
}
