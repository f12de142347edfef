//! The protocol of messages on the CPU: `mp/message.cuh` in Rust. Calls of the host do what can be done at
//! once, step by step; host streams do the same on their thread and wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gdsync::Word64;
use gdsync::nic::Error;
use mp_kernels::{StepKind, WaitStatus};

use crate::data::pieces::Move;
use crate::data::plane::Abort;
use crate::data::report::Report;
use crate::transport::{EndState, Handed, Line, Slots};

/// Looks without a pause, and looks with a yield after each, before naps.
const SPINS: u32 = 64;
const YIELDS: u32 = 2000;
const NAP: Duration = Duration::from_micros(50);

/// One end for the CPU.
pub(crate) struct HostEnd {
    epoch: Word64,
    room: Word64,
    mine: Word64,
    line: Arc<dyn Line>,
    /// What the CPU moves: of a send before the other end is told, of a receive when the message has come.
    moves: Vec<Move>,
    /// Of small messages between CPUs: what they go through.
    slots: Option<Slots>,
    /// Messages that may be on their way beyond those that the other end has posted or taken.
    ahead: u64,
    /// What the signal was when it was last looked at for room: while that is enough, its cache line stays where it is.
    known: AtomicU64,
    /// What streams and the host know of each other.
    pub shared: Arc<Shared>,
}

/// What streams and the host know of each other's use of an end.
#[derive(Default)]
pub(crate) struct Shared {
    /// Steps that were enqueued on streams and have not run.
    pub queued: AtomicU32,
    /// The host has started it, and it is not out of the hands of this rank's calls.
    pub starting: AtomicBool,
}

/// What ends the waits of a stream, and where it says so.
#[derive(Clone)]
pub(crate) struct Bounds {
    pub abort: Abort,
    pub timeout: Duration,
    pub report: Arc<Report>,
}

/// How a wait ended without what it was for: why, what it saw, how long it took.
pub(crate) type Ended = (WaitStatus, u64, Duration);

impl HostEnd {
    /// What is moved, what it goes through and how many may be ahead: see the fields.
    pub fn new(
        here: &EndState,
        mine: Word64,
        line: Arc<dyn Line>,
        (moves, slots, ahead): (Vec<Move>, Option<Slots>, u64),
        shared: Arc<Shared>,
    ) -> gdsync::Result<HostEnd> {
        let (epoch, room) = (here.epoch()?, here.room()?);
        let known = AtomicU64::new(0);
        Ok(HostEnd { epoch, room, mine, line, moves, slots, ahead, known, shared })
    }

    /// How far the other end is, as far as this one sees: of a receive the messages that have come, up to the next one. Acquire.
    pub fn seen(&self) -> u64 {
        match &self.slots {
            Some(slots) if slots.receives => {
                let taken = load(&self.epoch);
                taken + u64::from(slots.has(taken + 1))
            }
            _ => load(&self.mine),
        }
    }

    pub fn signal(&self) -> &Word64 {
        &self.mine
    }

    /// A hint that the next start is soon.
    pub fn prefetch_start(&self) {
        match &self.slots {
            // Nobody is told that it is posted.
            Some(slots) if slots.receives => {}
            Some(slots) => {
                slots.prefetch(load(&self.epoch) + 1);
                if self.known.load(Ordering::Relaxed) < self.needed() {
                    self.mine.prefetch();
                }
            }
            None => {
                self.mine.prefetch();
                self.line.prefetch();
                self.moves.first().inspect(|first| first.to.prefetch_for_write(0));
            }
        }
    }

    /// A hint that a message will be looked for soon.
    pub fn prefetch_message(&self) {
        match &self.slots {
            Some(slots) => slots.prefetch(load(&self.epoch) + 1),
            None => self.mine.prefetch(),
        }
    }

    /// What this end's signal must have reached before the next message may be sent.
    pub fn needed(&self) -> u64 {
        (load(&self.epoch) + 1).saturating_sub(self.ahead)
    }

    /// Whether the next message may be sent. Acquire.
    pub fn has_room(&self) -> bool {
        let needed = self.needed();
        if self.known.load(Ordering::Acquire) >= needed {
            return true;
        }
        let seen = load(&self.mine);
        self.known.store(seen, Ordering::Release);
        seen >= needed
    }

    /// Sends the next message, for which there is room.
    pub fn send(&self) -> Result<Handed, Error> {
        let epoch = load(&self.epoch) + 1;
        if let Some(slots) = &self.slots {
            slots.send(epoch)?;
            self.epoch.store(epoch)?;
            return Ok(Handed::Done);
        }
        self.carry_moves()?;
        let told = self.line.tell(StepKind::Send, epoch)?;
        if told != Handed::NoRoom {
            self.epoch.store(epoch)?;
        }
        Ok(told)
    }

    /// The buffer is posted once more: so many times now. What kernels have taken from slots was not posted.
    pub fn post(words: (&Word64, &Word64)) -> u64 {
        let (epoch, room) = words;
        let posted = load(room).max(load(epoch)) + 1;
        // Host memory, which the CPU reaches.
        let _ = room.store(posted);
        posted
    }

    /// Tells the sender that the buffer was posted so many times, unless its messages wait for it in slots. Release: what was read from it
    /// has been read.
    pub fn tell_posted(&self, posted: u64) -> Result<Handed, Error> {
        match self.slots {
            Some(_) => Ok(Handed::Done),
            None => self.line.tell(StepKind::Post, posted),
        }
    }

    /// Takes the next message; false if it is not there. Acquire: it is visible.
    pub fn take(&self) -> Result<bool, Error> {
        let epoch = load(&self.epoch) + 1;
        if let Some(slots) = &self.slots {
            if !slots.take(epoch)? {
                return Ok(false);
            }
            self.epoch.store(epoch)?;
            if Slots::is_told(epoch) {
                self.line.tell(StepKind::Post, epoch)?;
            }
            return Ok(true);
        }
        if self.seen() < epoch {
            return Ok(false);
        }
        self.carry_moves()?;
        self.epoch.store(epoch)?;
        Ok(true)
    }

    /// Whether the entry at this position is complete.
    pub fn is_complete(&self, position: u64) -> Result<bool, Error> {
        self.line.is_complete(position)
    }

    fn carry_moves(&self) -> gdsync::Result<()> {
        for Move { from, to } in &self.moves {
            to.copy_from(from)?;
        }
        Ok(())
    }

    /// Does one step on a stream's thread; false if it had to give up, which the report then says.
    pub fn run(&self, kind: Step, bounds: &Bounds) -> bool {
        let done = match kind {
            Step::Post => {
                let posted = HostEnd::post((&self.epoch, &self.room));
                self.finish(bounds, posted, || self.tell_posted(posted))
            }
            Step::Send => self.send_in_order(bounds),
            // Nothing is posted that would have to be waited for.
            Step::Take if load(&self.room) <= load(&self.epoch) => return true,
            Step::Take => {
                let epoch = load(&self.epoch) + 1;
                let arrived = wait_until(&bounds.abort.word, bounds.timeout, || {
                    let seen = self.seen();
                    (seen, seen >= epoch)
                });
                let taken = |_| self.take().map_err(|_| lost()).map(drop);
                arrived.and_then(taken).map_err(|ended| (epoch, ended))
            }
            Step::Settle => {
                let epoch = load(&self.epoch);
                let settled = || !self.shared.starting.load(Ordering::Acquire);
                let result =
                    wait_until(&bounds.abort.word, bounds.timeout, || (self.seen(), settled()));
                result.map_err(|ended| (epoch + 1, ended))
            }
        };
        if let Err((expected, (status, seen, waited))) = done {
            bounds.report.write(status, expected, seen, waited);
        }
        done.is_ok()
    }

    fn send_in_order(&self, bounds: &Bounds) -> Result<(), (u64, Ended)> {
        let epoch = load(&self.epoch) + 1;
        if is_set(&bounds.abort.word) {
            // What the stream did before this may have been cut short, and the peer may still take it for a message.
            return Err((epoch, (WaitStatus::Aborted, self.seen(), Duration::ZERO)));
        }
        let needed = self.needed();
        wait(&self.mine, &bounds.abort.word, bounds.timeout, |seen| seen >= needed)
            .map_err(|ended| (needed, ended))?;
        self.finish(bounds, epoch, || self.send())
    }

    /// Tells the other end, and waits until what was told from may be written again.
    fn finish(
        &self,
        bounds: &Bounds,
        epoch: u64,
        mut tell: impl FnMut() -> Result<Handed, Error>,
    ) -> Result<(), (u64, Ended)> {
        let mut told = Handed::NoRoom;
        let done = || -> Result<bool, Error> {
            if told == Handed::NoRoom {
                told = tell()?;
            }
            match told {
                Handed::NoRoom => Ok(false),
                Handed::Done | Handed::Posted { copied: true, .. } => Ok(true),
                Handed::Posted { position, .. } => self.is_complete(position),
            }
        };
        let mut failed = false;
        let mut done = done;
        let result = wait_until(&bounds.abort.word, bounds.timeout, || {
            let ready = done().unwrap_or_else(|_| {
                failed = true;
                true
            });
            (0, ready)
        });
        let result = if failed { Err(lost()) } else { result };
        result.map_err(|ended| (epoch, ended))
    }
}

/// What a host stream does with an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Posts the buffer.
    Post,
    /// Sends.
    Send,
    /// Waits for a message.
    Take,
    /// Waits until what the host has started is sent.
    Settle,
}

/// Neither memory nor queue can be had any more: the world knows why, or will.
fn lost() -> Ended {
    (WaitStatus::PathFailed, 0, Duration::ZERO)
}

fn load(word: &Word64) -> u64 {
    // The words are host memory, which the CPU reaches.
    word.load().unwrap_or_default()
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
) -> Result<(), Ended> {
    wait_until(abort, timeout, || {
        let seen = load(word);
        (seen, enough(seen))
    })
}

/// Waits until a look, which says what it saw, finds what it is for; at most until the abort word is set or the time is over.
fn wait_until(
    abort: &Word64,
    timeout: Duration,
    mut look: impl FnMut() -> (u64, bool),
) -> Result<(), Ended> {
    let mut since = None;
    let mut looks = 0u32;
    loop {
        let ended = is_set(abort);
        // After the look at the abort word: what came before it counts.
        let (seen, enough) = look();
        if enough {
            return Ok(());
        }
        let waited = since.get_or_insert_with(Instant::now).elapsed();
        if ended {
            return Err((WaitStatus::Aborted, seen, waited));
        }
        if waited >= timeout {
            return Err((WaitStatus::TimedOut, seen, waited));
        }
        looks = looks.saturating_add(1);
        if looks <= SPINS {
            std::hint::spin_loop();
        } else if looks <= YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }
}
