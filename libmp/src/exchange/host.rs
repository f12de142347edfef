//! A phase of an exchange on a host stream: what the kernel `mp_exchange` does, on the stream's thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gdsync::Word64;
use mp_kernels::{ExchangeCopy, StepKind, WaitStatus};

use crate::data::endpoint::{is_set, wait};
use crate::data::report::Report;
use crate::transport::{Handed, Line};

/// One neighbour.
pub(super) struct HostLink {
    /// Phases finished.
    pub epoch: Word64,
    pub mine: Word64,
    pub report: Arc<Report>,
}

/// The border of a field with one neighbour.
pub(super) struct HostRoute {
    pub send: ExchangeCopy,
    pub unpack: ExchangeCopy,
    /// Tells the neighbour, and brings what the copies have not.
    pub line: Arc<dyn Line>,
}

/// What a host stream works with.
pub(super) struct HostSide {
    pub links: Vec<HostLink>,
    /// For each field.
    pub fields: Vec<Vec<HostRoute>>,
    pub failed: Word64,
    pub abort: Word64,
    pub timeout: Duration,
}

type Ended = (WaitStatus, u64, Duration);

impl HostSide {
    /// Sends the borders of a field, if one is named, and then waits for those of a field, or for the phase alone.
    pub fn run(&self, sent: Option<usize>, awaited: Option<Option<usize>>) {
        if is_set(&self.failed) {
            return;
        }
        for (number, link) in self.links.iter().enumerate() {
            let Some(sent) = sent else { break };
            let epoch = link.epoch.load().unwrap_or_default();
            if !self.reached(link, epoch) {
                return;
            }
            let route = &self.fields[sent][number];
            // SAFETY: boxes inside memory that the exchange keeps; the neighbour does not look at its ghosts in this phase.
            unsafe { copy_box(&route.send) };
            let _ = link.epoch.store(epoch + 1);
            if let Err((status, seen, waited)) = self.tell(route, epoch + 1) {
                self.fail(link, epoch + 1, (status, seen, waited));
                return;
            }
        }
        let Some(read) = awaited else { return };
        for (number, link) in self.links.iter().enumerate() {
            if !self.reached(link, link.epoch.load().unwrap_or_default()) {
                return;
            }
            if let Some(field) = read {
                // SAFETY: as above; the neighbour writes the receive buffer in a later phase.
                unsafe { copy_box(&self.fields[field][number].unpack) };
            }
        }
    }

    fn reached(&self, link: &HostLink, epoch: u64) -> bool {
        match wait(&link.mine, &self.abort, self.timeout, |seen| seen >= epoch) {
            Ok(()) => true,
            Err(ended) => {
                self.fail(link, epoch, ended);
                false
            }
        }
    }

    fn fail(&self, link: &HostLink, expected: u64, (status, seen, waited): Ended) {
        // Host memory: the CPU reaches it.
        let _ = self.failed.store(1);
        link.report.write(status, expected, seen, waited);
    }

    /// Data before the signal, released.
    fn tell(&self, route: &HostRoute, epoch: u64) -> Result<(), Ended> {
        let since = Instant::now();
        if is_set(&self.abort) {
            // What the stream did before may have been cut short.
            return Err((WaitStatus::Aborted, 0, since.elapsed()));
        }
        loop {
            match route.line.tell(StepKind::Send, epoch) {
                Ok(Handed::Posted { .. } | Handed::Done) => return Ok(()),
                Ok(Handed::NoRoom) if is_set(&self.abort) => {
                    return Err((WaitStatus::Aborted, 0, since.elapsed()));
                }
                Ok(Handed::NoRoom) if since.elapsed() < self.timeout => std::thread::yield_now(),
                Ok(Handed::NoRoom) => return Err((WaitStatus::TimedOut, 0, since.elapsed())),
                Err(_) => return Err((WaitStatus::PathFailed, 0, since.elapsed())),
            }
        }
    }
}

/// # Safety
/// Both boxes are memory of this process, do not overlap, and nobody accesses them meanwhile.
unsafe fn copy_box(copy: &ExchangeCopy) {
    let ExchangeCopy { from, to, row, rows, planes, from_row, from_plane, to_row, to_plane } =
        *copy;
    if to == 0 {
        return;
    }
    for plane in 0..planes {
        for at in 0..rows {
            let from = from + plane * from_plane + at * from_row;
            let to = to + plane * to_plane + at * to_row;
            let (from, to) = (from as usize as *const u8, to as usize as *mut u8);
            // SAFETY: the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from, to, row as usize) };
        }
    }
}
