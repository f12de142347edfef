//! Where memory lives.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where memory lives.
///
/// ```
/// use gdsync::{Buffer, Device, Space};
///
/// let buffer = Buffer::<f32>::new(&Device::Host, Space::Pinned, 8)?;
/// assert_eq!(buffer.space(), Space::Pinned);
/// # Ok::<(), gdsync::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Space {
    /// Ordinary memory of the process. A GPU cannot reach it; other processes cannot map it.
    Host,
    /// Host memory that the device reaches directly and other processes of the machine can map.
    Pinned,
    /// The device's own memory. On the host device it is the same as [`Space::Pinned`].
    Device,
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Space::Host => "host",
            Space::Pinned => "pinned",
            Space::Device => "device",
        })
    }
}
