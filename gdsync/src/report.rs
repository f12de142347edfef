//! How kernels tell a stream's host that a wait was given up: a slot in pinned memory, which they write and the stream's next
//! synchronisation reads.

use std::sync::Arc;
use std::time::Duration;

use mp_kernels::{WaitBounds, WaitReport, WaitStatus};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::allocation::Allocation;
use crate::memory::{Buffer, Space};

/// Bounds of a wait in a kernel; `abort` is what [`Watchdog::bound`](crate::Watchdog::bound) gives, or 0.
pub(crate) fn bounds(abort: u64, timeout: Duration) -> WaitBounds {
    let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    WaitBounds { abort, timeout_ns }
}

/// The slot of a stream: the first failure stays.
pub(crate) struct Report(Buffer<u64>);

impl Report {
    /// Zeroed, for kernels of `device`.
    pub fn new(device: &Device) -> Result<Report> {
        let words = size_of::<WaitReport>() / 8;
        Ok(Report(Buffer::new(device, Space::Pinned, words)?))
    }

    /// As kernels see it; 0, none, if they do not.
    pub fn address(&self) -> u64 {
        self.0.device_address().unwrap_or(0)
    }

    /// What a graph holds.
    pub fn memory(&self) -> &Arc<Allocation> {
        self.0.allocation()
    }

    /// The failure, if there was one, of a wait on `stream`.
    pub fn failure(&self, stream: &str) -> Option<Error> {
        let slot = self.0.host_address()?.cast::<WaitReport>();
        // SAFETY: pinned host memory of that size and alignment; kernels write it before they end, and the status
        // last. Any bit pattern is a valid report.
        let report = unsafe { slot.as_ptr().read_volatile() };
        (report.status != 0).then(|| Error::WaitFailed {
            what: stream.to_owned(),
            status: match report.status {
                status if status == WaitStatus::Aborted as u32 => "aborted",
                status if status == WaitStatus::BadArgument as u32 => "was refused",
                _ => "timed out",
            },
            expected: report.expected,
            seen: report.seen,
            waited: Duration::from_nanos(report.waited_ns),
        })
    }
}
