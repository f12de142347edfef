//! What a rank was built from. Ranks of different builds refuse each other at the handshake: layouts and protocols are
//! shared between them, and a message misread is worse than a job that does not start.

/// The revision of the control plane's wire format. Raised with every incompatible change.
pub const PROTOCOL: u32 = 4;

/// What a rank was built from; equal on all ranks of a world.
///
/// ```
/// println!("libmp {}", libmp::BuildInfo::current().revision);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildInfo {
    /// The wire format of the control plane: [`PROTOCOL`].
    pub protocol: u32,
    /// Version and fingerprint of the sources of this crate; a program may append its own revision. At most 256 bytes.
    pub revision: String,
}

impl BuildInfo {
    /// What this crate was built from.
    pub fn current() -> BuildInfo {
        BuildInfo {
            protocol: PROTOCOL,
            revision: concat!(env!("CARGO_PKG_VERSION"), "+", env!("LIBMP_SOURCE_FINGERPRINT"))
                .into(),
        }
    }
}
