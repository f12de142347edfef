//! The RDMA devices of the machine.

use super::context::Context;
use super::error::{Error, Result, last_errno};
use super::library::verbs;
use gdsync_sys::verbs::ibv_device;
use rustix::io::Errno;
use std::ffi::CStr;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// The array that libibverbs hands out; the devices in it live as long as it does.
struct List {
    array: NonNull<*mut ibv_device>,
}

// SAFETY: the array is only read, and freed by whoever is last.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        if let Ok(verbs) = verbs() {
            // SAFETY: the array came from ibv_get_device_list and is freed once.
            unsafe { verbs.ibv_free_device_list(self.array.as_ptr()) };
        }
    }
}

/// An RDMA device, not yet opened.
///
/// ```no_run
/// use gdsync::verbs;
///
/// for device in verbs::devices()? {
///     let context = device.open()?;
///     println!("{}: {:?}", context.name(), context.limits());
///     for port in context.ports()? {
///         println!("  port {}: {}, packets of {} bytes", port.number, port.link_layer, port.mtu.bytes());
///         for entry in context.gids(&port)? {
///             println!("    GID {} of {}", entry.gid, entry.kind);
///         }
///     }
/// }
/// # Ok::<(), verbs::Error>(())
/// ```
#[derive(Clone)]
pub struct Device {
    device: NonNull<ibv_device>,
    _list: Arc<List>,
}

// SAFETY: an ibv_device is read only, and libibverbs' calls on it may come from any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// All RDMA devices, in the order of libibverbs. Empty where the kernel knows none.
///
/// # Errors
/// If libibverbs is not installed or the devices cannot be listed.
pub fn devices() -> Result<Vec<Device>> {
    let mut count = 0;
    // SAFETY: `count` is writable.
    let array = unsafe { verbs()?.ibv_get_device_list(&mut count) };
    let Some(array) = NonNull::new(array) else {
        // The kernel of a machine without RDMA does not know the interface at all.
        return match last_errno() {
            Errno::NOSYS => Ok(Vec::new()),
            source => Err(Error::DeviceList { source }),
        };
    };
    let list = Arc::new(List { array });
    // SAFETY: the array has `count` entries and lives as long as `list`.
    let entries = unsafe { std::slice::from_raw_parts(array.as_ptr(), count.max(0) as usize) };
    let devices = entries.iter().filter_map(|device| NonNull::new(*device));
    Ok(devices.map(|device| Device { device, _list: list.clone() }).collect())
}

/// The device called `name`, or the first one.
///
/// # Errors
/// If there is no such device; the error lists those that there are.
pub fn device(name: Option<&str>) -> Result<Device> {
    let all = devices()?;
    let found = all.iter().map(Device::name).collect();
    let matches = |device: &Device| name.is_none_or(|name| device.name() == name);
    all.into_iter()
        .find(matches)
        .ok_or_else(|| Error::NoDevice { wanted: name.unwrap_or("at all").to_owned(), found })
}

impl Device {
    /// Name, such as `mlx5_0`.
    #[must_use]
    pub fn name(&self) -> String {
        let Ok(verbs) = verbs() else { return String::new() };
        // SAFETY: the device is alive; the name is a string inside it.
        let name = unsafe { verbs.ibv_get_device_name(self.device.as_ptr()) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: libibverbs terminates it.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// The device's own 64-bit number.
    #[must_use]
    pub fn guid(&self) -> u64 {
        // SAFETY: the device is alive. The number comes in network order.
        verbs().map_or(0, |v| u64::from_be(unsafe { v.ibv_get_device_guid(self.device.as_ptr()) }))
    }

    /// Opens it.
    ///
    /// # Errors
    /// What the kernel says, for example that the process may not.
    pub fn open(&self) -> Result<Arc<Context>> {
        Context::open(self)
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_device {
        self.device.as_ptr()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}, guid {:016x})", self.name(), self.guid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_an_error_that_says_what_is_missing() {
        // On a machine without libibverbs, without devices, and with other ones.
        let error = device(Some("no_such_nic")).unwrap_err();
        match &error {
            Error::Library(source) => assert!(source.to_string().contains("libibverbs.so.1")),
            Error::NoDevice { wanted, .. } => assert_eq!(wanted, "no_such_nic"),
            Error::DeviceList { .. } => {}
            other => panic!("unexpected: {other}"),
        }
    }
}
