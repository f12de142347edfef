//! The identity of the host a rank runs on: which ranks can share memory and map each other's devices.

use rustix::system::uname;

/// The host's name, for people.
pub(crate) fn host_name() -> String {
    let name = uname().nodename().to_string_lossy().into_owned();
    // Linux limits it to 64 bytes; the handshake to 255.
    if name.is_empty() { "unknown".into() } else { name }
}

/// An identity that is equal exactly for processes of one running kernel that share a PID namespace: CUDA IPC and
/// POSIX shared memory need both. Host names alone are not unique (containers, cloned machines).
pub(crate) fn identity() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid")
        .map(|target| target.to_string_lossy().into_owned())
        .unwrap_or_default();
    format!("{}/{}/{}", host_name(), boot.trim(), namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_the_same_twice_and_fits_into_the_handshake() {
        assert_eq!(identity(), identity());
        assert!(identity().len() <= 512 && identity().contains("pid:"));
    }
}
