//! How a call of a kernel that failed or was refused becomes an error of the host: each operation has a report, a slot in pinned
//! memory that the kernel writes and the rank's next synchronisation reads.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use gdsync::Buffer;
use mp_kernels::{WaitReport, WaitStatus};

use super::name::Name;
use crate::error::Error;

const PATH_FAILED: u32 = WaitStatus::PathFailed as u32;

/// The report of one operation.
pub(crate) struct Report {
    pub name: Arc<Name>,
    slot: Buffer<u64>,
    /// What could not be enqueued when nobody was there to be told.
    refused: OnceLock<Error>,
}

impl Report {
    /// 64-bit words of a slot.
    pub const WORDS: usize = size_of::<WaitReport>() / 8;

    /// `slot` is zeroed pinned memory.
    pub fn new(name: Arc<Name>, slot: Buffer<u64>) -> Report {
        Report { name, slot, refused: OnceLock::new() }
    }

    /// Address for the device.
    pub fn address(&self) -> gdsync::Result<u64> {
        self.slot.word(0)?.device_address()
    }

    /// The slot's memory, for graphs to hold.
    pub fn memory(&self) -> &Buffer<u64> {
        &self.slot
    }

    /// What a host stream found: the first failure stays.
    pub fn write(&self, status: WaitStatus, expected: u64, seen: u64, waited: Duration) {
        let Ok(words) =
            (0..Self::WORDS).map(|at| self.slot.word(at)).collect::<Result<Vec<_>, _>>()
        else {
            return;
        };
        let claimed = words[0].atomic().is_some_and(|word| {
            word.compare_exchange(0, 1 << 32, Ordering::AcqRel, Ordering::Acquire).is_ok()
        });
        if claimed {
            let waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
            for (word, value) in words[1..].iter().zip([expected, seen, waited]) {
                // Pinned memory: the CPU reaches it.
                let _ = word.store(value);
            }
            let _ = words[0].store(1 << 32 | u64::from(status as u32));
        }
    }

    /// The failure, if there was one.
    fn failure(&self) -> Option<WaitReport> {
        let address = self.slot.host_address()?.cast::<WaitReport>();
        // SAFETY: pinned memory of that size and alignment, which kernels and host streams write with atomics, the status
        // last; any bits are a report.
        let report = unsafe { address.as_ptr().read_volatile() };
        fence(Ordering::Acquire);
        if report.status == 0 {
            return None;
        }
        // SAFETY: as above; now that the status is there, the rest is.
        Some(unsafe { address.as_ptr().read_volatile() })
    }

    /// It was not enqueued, and this is why.
    pub fn refuse(&self, error: Error) {
        // The first failure stays.
        let _ = self.refused.set(error);
    }

    /// The failure, usually as the error of an operation that took too long.
    pub fn late(&self) -> Option<Error> {
        if let Some(error) = self.refused.get() {
            return Some(error.clone());
        }
        let report = self.failure()?;
        self.refusal(&report).or_else(|| Some(self.too_late(&report)))
    }

    /// Of a call that was refused.
    fn refusal(&self, report: &WaitReport) -> Option<Error> {
        let &WaitReport { expected: at, waited_ns: len, seen: size, .. } = report;
        let Name { verb, direction, rank, host, .. } = &*self.name;
        let outside = |what: &str| {
            let op = format!(
                "a kernel's call for {what} of the {verb} {direction} rank {rank} on {host}"
            );
            Some(Error::OutOfRange { op, at, len, size })
        };
        match WaitStatus::from_code(report.status)? {
            WaitStatus::NoSuchRank => Some(Error::NoSuchRank {
                rank: usize::try_from(at).unwrap_or(usize::MAX),
                communicator: format!("the {verb} that a kernel called"),
                size: usize::try_from(size).unwrap_or(usize::MAX),
            }),
            WaitStatus::NoSuchSignal => outside("a signal"),
            WaitStatus::OutOfRange if *verb == "window" => outside("bytes"),
            WaitStatus::OutOfRange => outside("elements"),
            WaitStatus::NotAtomic => Some(Error::Mismatch {
                op: format!("an atomic operation of a kernel at byte {at} of a rank's share of the {verb}"),
                reason: "words are at multiples of their size; a GPU's own memory has no atomics through a NIC, nor has memory of the host from a GPU that maps it where others change it through a NIC".into(),
            }),
            WaitStatus::BadArgument => Some(Error::Mismatch {
                op: format!("a kernel's call with the argument {at}"),
                reason: format!("it is none of the {size} that there are"),
            }),
            WaitStatus::NoSuchTeam => Some(Error::Mismatch {
                op: "a kernel's call for a team or a context".into(),
                reason: format!("{at:#x} is the handle of none that is for kernels"),
            }),
            _ => None,
        }
    }

    fn too_late(&self, report: &WaitReport) -> Error {
        Error::Late {
            op: self.name.to_string(),
            rank: self.name.rank,
            host: self.name.host.clone(),
            tag: self.name.tag,
            expected: report.expected,
            seen: report.seen,
            age: Duration::from_nanos(report.waited_ns),
            why: self.name.why_late().into(),
        }
    }
}

/// The reports of a rank's operations.
#[derive(Default)]
pub(crate) struct Watch {
    reports: Mutex<Vec<Weak<Report>>>,
}

impl Watch {
    pub fn add(&self, report: &Arc<Report>) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if reports.len() == reports.capacity() {
            reports.retain(|report| report.strong_count() > 0);
        }
        reports.push(Arc::downgrade(report));
    }

    /// The first failure of any operation that is still there.
    /// And whether it was the path to the peer that failed.
    pub fn failure(&self) -> Option<(Error, bool)> {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.iter().filter_map(Weak::upgrade).find_map(|report| {
            let of_path = || report.failure().is_some_and(|it| it.status == PATH_FAILED);
            report.late().map(|error| (error, of_path()))
        })
    }
}
