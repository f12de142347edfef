//! The protocol of device messages on the CPU, for host streams: `mp/message.cuh` without packets, in Rust. Called when the
//! stream gets there, on its thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gdsync::{Buffer, Word64};
use mp_kernels::{StepKind, WaitStatus};

use super::far::FarWay;
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
    theirs: Theirs,
    /// The message: what is sent, or where it goes.
    memory: Buffer<u8>,
    target: Target,
    abort: Word64,
    timeout: Duration,
    report: Arc<Report>,
}

/// How the other end is told.
pub(crate) enum Theirs {
    /// By storing to its signal.
    Mapped(Word64),
    /// By requests, which bring a send's message as well.
    Far(FarWay),
}

/// Where a send puts the message.
pub(crate) enum Target {
    /// Nowhere: it has no bytes, or this is a receive, or the other end is far.
    None,
    /// Into the posted buffer: what is waited for is that it was posted.
    Posted(Buffer<u8>),
    /// Into memory of the own side, from which a GPU fetches it: what is waited for is that it fetched the last one.
    Fetched(Buffer<u8>),
}

impl HostEnd {
    pub fn new(
        here: &Station,
        mine: Word64,
        theirs: Theirs,
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
                self.tell(kind, posted)
            }
            StepKind::Send => {
                let epoch = self.epoch.load().unwrap_or_default() + 1;
                if is_set(&self.abort) {
                    // What the stream did before this may have been cut short, and the peer may still take it for a message.
                    let seen = self.mine.load().unwrap_or_default();
                    self.report.write(WaitStatus::Aborted, epoch, seen, Duration::ZERO);
                    return false;
                }
                let (target, room) = match (&self.target, &self.theirs) {
                    (_, Theirs::Far(way)) => (None, way.needed(epoch)),
                    (Target::None, _) => (None, epoch),
                    (Target::Posted(target), _) => (Some(target), epoch),
                    (Target::Fetched(target), _) => (Some(target), epoch - 1),
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
                self.tell(kind, epoch)
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

    /// Tells the other end.
    fn tell(&self, kind: StepKind, epoch: u64) -> bool {
        let way = match &self.theirs {
            Theirs::Mapped(word) => {
                let _ = word.store(epoch);
                return true;
            }
            Theirs::Far(way) => way,
        };
        let told = way.carry_out(kind, epoch, &self.memory, (&self.abort, self.timeout));
        if let Err((status, seen, waited)) = told {
            self.report.write(status, epoch, seen, waited);
        }
        told.is_ok()
    }

    fn wait(&self, expected: u64) -> bool {
        let result = wait(&self.mine, &self.abort, self.timeout, |seen| seen >= expected);
        if let Err((status, seen, waited)) = result {
            self.report.write(status, expected, seen, waited);
        }
        result.is_ok()
    }
}

/// Whether an abort word says that the world has ended. Acquire.
pub(crate) fn is_set(abort: &Word64) -> bool {
    abort.load().is_some_and(|word| word != 0)
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
        let ended = is_set(abort);
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
