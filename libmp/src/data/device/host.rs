//! The protocol of device messages on the CPU, for host streams: `mp/message.cuh` without packets, in Rust. Called when the
//! stream gets there, on its thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gdsync::{Buffer, Word64};
use mp_kernels::{StepKind, WaitStatus};

use super::report::Report;
use super::station::Station;

/// Looks without a pause, and looks with a yield after each, before naps.
const SPINS: u32 = 64;
const YIELDS: u32 = 2000;
const NAP: Duration = Duration::from_micros(50);

/// One end for the CPU.
pub(crate) struct HostEnd {
    epoch: Word64,
    room: Word64,
    mine: Word64,
    theirs: Word64,
    /// The message: what is sent, or where it goes.
    memory: Buffer<u8>,
    target: Target,
    abort: Word64,
    timeout: Duration,
    report: Arc<Report>,
}

/// Where a send puts the message.
pub(crate) enum Target {
    /// Nowhere: it has no bytes, or this is a receive.
    None,
    /// Into the posted buffer: what is waited for is that it was posted.
    Posted(Buffer<u8>),
    /// Into memory of the own side, from which a GPU fetches it: what is waited for is that it fetched the last one.
    Fetched(Buffer<u8>),
}

impl HostEnd {
    pub fn new(
        here: &Station,
        (mine, theirs): (Word64, Word64),
        memory: Buffer<u8>,
        target: Target,
        (abort, timeout): (Word64, Duration),
        report: Arc<Report>,
    ) -> gdsync::Result<HostEnd> {
        Ok(HostEnd {
            epoch: here.epoch()?,
            room: here.room()?,
            mine,
            theirs,
            memory,
            target,
            abort,
            timeout,
            report,
        })
    }

    /// Does one step; false if it had to give up, which the report then says.
    pub fn run(&self, kind: StepKind) -> bool {
        // The words are host memory, which the CPU reaches.
        match kind {
            StepKind::Post => {
                let posted = self.room.load().unwrap_or_default() + 1;
                let _ = self.room.store(posted);
                // Release: what was read from the buffer has been read.
                let _ = self.theirs.store(posted);
                true
            }
            StepKind::Send => {
                let epoch = self.epoch.load().unwrap_or_default() + 1;
                let (target, room) = match &self.target {
                    Target::None => (None, epoch),
                    Target::Posted(target) => (Some(target), epoch),
                    Target::Fetched(target) => (Some(target), epoch - 1),
                };
                if !self.wait(room) {
                    return false;
                }
                if let Some(target) = target {
                    // SAFETY: while a send is under way its region is not written: the contract of `Region`.
                    let source = unsafe { self.memory.as_slice() };
                    if source.and_then(|source| target.write(source)).is_err() {
                        return false;
                    }
                }
                let _ = self.epoch.store(epoch);
                // Release: who sees it sees the bytes.
                let _ = self.theirs.store(epoch);
                true
            }
            StepKind::Recv => {
                let epoch = self.epoch.load().unwrap_or_default() + 1;
                let arrived = self.wait(epoch);
                if arrived {
                    let _ = self.epoch.store(epoch);
                }
                arrived
            }
        }
    }

    fn wait(&self, expected: u64) -> bool {
        let result = wait(&self.mine, &self.abort, self.timeout, |seen| seen >= expected);
        if let Err((status, seen, waited)) = result {
            self.report.write(status, expected, seen, waited);
        }
        result.is_ok()
    }
}

/// Waits for a word (acquire), at most until the abort word is set or the time is over; then why, what it saw, and how long
/// it waited.
pub(crate) fn wait(
    word: &Word64,
    abort: &Word64,
    timeout: Duration,
    enough: impl Fn(u64) -> bool,
) -> Result<(), (WaitStatus, u64, Duration)> {
    let mut since = None;
    for look in 0u32.. {
        let ended = abort.atomic().is_some_and(|word| word.load(Ordering::Acquire) != 0);
        // After the look at the abort word: what came before it counts.
        let seen = word.load().unwrap_or_default();
        if enough(seen) {
            return Ok(());
        }
        let waited = since.get_or_insert_with(Instant::now).elapsed();
        if ended {
            return Err((WaitStatus::Aborted, seen, waited));
        }
        if waited >= timeout {
            return Err((WaitStatus::TimedOut, seen, waited));
        }
        if look < SPINS {
            std::hint::spin_loop();
        } else if look < YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }
    Ok(())
}
