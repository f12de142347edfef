//! What all clones of a rank's tagged messages share, and how calls enter it: with the lock of the [`Engine`], which never waits, and with what
//! is waited for in words. All waits of tagged messages are here.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gdsync::Deadline;

use super::engine::{Engine, Outcome, Way, What};
use super::memory::Memory;
use super::pool::Ticket;
use super::words::Words;
use super::{Source, Status, Tag};
use crate::data::plane::{Help, Plane};
use crate::data::wait::Backoff;
use crate::error::{Error, Result};
use crate::matching::Pattern;
use crate::ownership::{Guard, Lock};
use crate::trace::Span;
use crate::transport::Call;

/// Looks of a wait at its own messages between two pauses: what comes meanwhile is seen at once.
const LOOKS: u32 = 4;
/// Pauses of a wait between two looks at everything else of the rank.
const ASIDE: u32 = 8;
/// How often a receive looks for its message before it becomes a request: a microsecond or two, in which a message comes to another core and
/// its answer back.
const SOON: usize = 8;
/// Of receives that get their message like this one in so many looks at everything else of the rank.
const EACH: u64 = 64;

/// What is shared, as those hold it who use it.
#[derive(Clone)]
pub(super) enum Kept {
    Counted(Arc<Shared>),
    /// See [`Tagged::forever`](super::Tagged::forever).
    Forever(&'static Shared),
}

impl Deref for Kept {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        match self {
            Kept::Counted(shared) => shared,
            Kept::Forever(shared) => shared,
        }
    }
}

pub(crate) struct Shared {
    pub(super) plane: Arc<Plane>,
    /// Ranks of the world.
    pub(super) ranks: Vec<usize>,
    pub(super) rank: usize,
    pub(super) timeout: Duration,
    pub(super) name: String,
    /// See [`Options::staged`](super::Options::staged).
    pub(super) staged: bool,
    /// For streams that wait for receives.
    pub(super) words: Arc<Words>,
    pub(super) engine: Lock<Engine>,
}

/// What is said of an operation of which no byte has moved.
#[cold]
pub(super) fn none_of(bytes: usize, operation: String) -> String {
    format!("{operation}, 0 of {bytes} bytes")
}

impl Shared {
    #[inline]
    pub(super) fn lock(&self) -> Guard<'_, Engine> {
        self.engine.lock()
    }

    /// Does something with the engine.
    #[inline]
    pub(super) fn with<R>(
        &self,
        what: &dyn Fn() -> String,
        does: impl FnOnce(&mut Engine, &Way<'_>) -> Result<R>,
    ) -> Result<R> {
        self.plane.check_after(Duration::ZERO, what)?;
        let call = Call { plane: &self.plane, timeout: self.timeout, op: what };
        does(&mut self.lock(), &Way { plane: &self.plane, call: &call })
    }

    #[inline]
    pub(super) fn send(&self, to: usize, tag: u64, memory: Memory) -> Result<Option<Ticket>> {
        self.check_rank(to)?;
        let bytes = memory.len();
        let what = || none_of(bytes, self.of_send(to, tag));
        self.with(&what, |engine, way| engine.send(way, to, tag, memory))
    }

    #[inline]
    pub(super) fn receive(&self, from: Source, tag: Tag, memory: Memory) -> Result<Ticket> {
        let (pattern, bytes) = (self.pattern(from, tag)?, memory.len());
        let what = || none_of(bytes, self.of_receive(from, tag));
        self.with(&what, |engine, way| engine.receive(way, pattern, |it| *it = memory))
    }

    /// Receives what comes within a moment, as [`Engine::receive_next`].
    #[inline]
    pub(super) fn receive_soon(
        &self,
        from: Source,
        tag: Tag,
        memory: &Memory,
    ) -> Result<Option<Outcome>> {
        let (pattern, bytes) = (self.pattern(from, tag)?, memory.len());
        let what = || none_of(bytes, self.of_receive(from, tag));
        for _ in 0..SOON {
            let (got, moved) = self.with(&what, |engine, way| {
                Ok((engine.receive_next(way, &pattern, memory)?, engine.moved()))
            })?;
            if got.is_some() {
                if moved.is_multiple_of(EACH) {
                    self.help();
                    self.plane.progress();
                }
                return Ok(got);
            }
        }
        Ok(None)
    }

    /// This thread waits for it until what is returned is dropped, in the timeline and the log.
    fn waits(&self, what: &dyn Fn() -> String, ticket: Option<Ticket>) -> Option<Span<'_>> {
        let engine = self.lock();
        engine.is_shown().then(|| {
            let request = ticket.and_then(|ticket| engine.what(ticket));
            let what = request.map_or_else(what, |request| request.to_string());
            tracing::trace!(operation = %what, "waiting");
            self.plane.trace.span("host", format!("wait for {what}"))
        })
    }

    /// Looks for something, once.
    pub(super) fn look<R>(
        &self,
        what: &dyn Fn() -> String,
        mut look: impl FnMut(&mut Engine) -> Option<R>,
    ) -> Result<Option<R>> {
        let mut engine = self.lock();
        // What is there already costs no look at the others.
        if let Some(found) = look(&mut engine) {
            return Ok(Some(found));
        }
        // What has come before the end counts.
        let ended = self.plane.ended();
        let call = Call { plane: &self.plane, timeout: self.timeout, op: what };
        let went = engine.progress(&Way { plane: &self.plane, call: &call });
        if let Some(found) = look(&mut engine) {
            return Ok(Some(found));
        }
        drop(engine);
        went?;
        self.plane.progress();
        if ended { self.plane.check_after(Duration::ZERO, what).map(|()| None) } else { Ok(None) }
    }

    /// Waits until there is what is looked for. Of a request the error says how far it is.
    pub(super) fn wait_until<R>(
        &self,
        what: &dyn Fn() -> String,
        ticket: Option<Ticket>,
        deadline: Deadline,
        mut look: impl FnMut(&mut Engine) -> Option<R>,
    ) -> Result<R> {
        if let Some(found) = look(&mut self.lock()) {
            return Ok(found);
        }
        let _span = self.waits(what, ticket);
        let mut backoff = Backoff::new(deadline);
        let (mut rounds, mut since) = (0u32, None);
        let call = Call { plane: &self.plane, timeout: self.timeout, op: what };
        let way = Way { plane: &self.plane, call: &call };
        loop {
            let mut engine = self.lock();
            let awaited = ticket.and_then(|ticket| engine.awaited(ticket));
            for turn in 0..LOOKS {
                let went = match awaited {
                    Some(from) if turn > 0 => engine.progress_of(&way, from),
                    _ => engine.progress(&way),
                };
                // What has come before an end counts.
                if let Some(found) = look(&mut engine) {
                    return Ok(found);
                }
                went?;
            }
            backoff.moves(engine.moved());
            drop(engine);
            rounds = rounds.wrapping_add(1);
            if rounds.is_multiple_of(ASIDE) {
                self.plane.progress();
            }
            // The clock is not read for what comes at once.
            let age =
                |since: &mut Option<Instant>| since.get_or_insert_with(Instant::now).elapsed();
            if backoff.world_ended() {
                let story = self.story(what, ticket).0;
                self.plane.check_after(age(&mut since), || story)?;
            }
            if self.plane.ended() {
                backoff.end_world();
            } else if !backoff.pause() {
                let (op, why) = self.story(what, ticket);
                return Err(Error::Waits { op, age: deadline.elapsed(), why: why.into() });
            }
            if rounds.is_multiple_of(ASIDE) {
                age(&mut since);
            }
        }
    }

    /// What is waited for, with how far it is, and why it is not further.
    pub(super) fn story(
        &self,
        what: &dyn Fn() -> String,
        ticket: Option<Ticket>,
    ) -> (String, String) {
        let mut engine = self.lock();
        match ticket {
            None => (what(), engine.unexpected()),
            Some(ticket) => {
                let (done, all, why) = engine.story(ticket);
                (format!("{}, {done} of {all} bytes", what()), why)
            }
        }
    }

    pub(super) fn wait(
        &self,
        ticket: Ticket,
        what: &dyn Fn() -> String,
        deadline: Deadline,
    ) -> Result<Outcome> {
        self.wait_until(what, Some(ticket), deadline, |engine| engine.finished(ticket))
    }

    pub(super) fn wait_or_abandon(
        &self,
        ticket: Ticket,
        what: &dyn Fn() -> String,
        deadline: Deadline,
    ) -> Result<Outcome> {
        self.wait(ticket, what, deadline).inspect_err(|_| self.abandon(ticket))
    }

    /// See [`Engine::abandon`]. Without memory for a copy the bytes of a send are nobody's: then the memory must not be given back, and this
    /// process ends.
    pub(super) fn abandon(&self, ticket: Ticket) {
        if let Err(error) = self.lock().abandon(ticket) {
            tracing::error!(%error, "no memory for a copy of a message that nobody waits for");
            std::process::abort();
        }
    }

    pub(super) fn status(&self, outcome: Outcome, what: &dyn Fn() -> String) -> Result<Status> {
        match outcome {
            Outcome::Done(status) => Ok(status),
            Outcome::Truncated(Status { source, tag, bytes }, room) => Err(Error::Truncated {
                op: format!("{}, which matched tag {tag} from rank {source}", what()),
                sent: bytes as u64,
                posted: room as u64,
            }),
        }
    }

    #[inline]
    pub(super) fn check_rank(&self, rank: usize) -> Result<()> {
        if rank < self.ranks.len() {
            return Ok(());
        }
        self.no_such_rank(rank)
    }

    #[cold]
    pub(super) fn no_such_rank(&self, rank: usize) -> Result<()> {
        Err(Error::NoSuchRank { rank, communicator: self.name.clone(), size: self.ranks.len() })
    }

    #[inline]
    pub(super) fn pattern(&self, from: Source, tag: Tag) -> Result<Pattern> {
        let source = match from {
            Source::Rank(rank) => {
                self.check_rank(rank)?;
                Some(rank as u32)
            }
            Source::Any => None,
        };
        let tag = match tag {
            Tag::Is(tag) => Some(tag),
            Tag::Any => None,
        };
        Ok(Pattern { context: Some(0), source, tag })
    }

    pub(super) fn rank_in_words(&self, rank: usize) -> String {
        let host = self.ranks.get(rank).map(|&world| &self.plane.peer(world).host[..]);
        format!("rank {rank} on {}", host.unwrap_or("no host"))
    }

    pub(super) fn describe(&self, what: What) -> String {
        match what {
            What::Send { to, tag } => self.of_send(to, tag),
            What::Receive { from, tag } => self.of_receive(from, tag),
        }
    }

    pub(super) fn of_got(&self, Status { source, tag, .. }: Status) -> String {
        self.of_receive(Source::Rank(source), Tag::Is(tag))
    }

    #[cold]
    pub(super) fn no_such_request(&self) -> Error {
        let op = format!("a request of tagged messages of {}", self.name);
        Error::Mismatch { op, reason: "it is over, or is not theirs".into() }
    }

    pub(super) fn of_send(&self, to: usize, tag: u64) -> String {
        format!("send of tag {tag} to {}", self.rank_in_words(to))
    }

    pub(super) fn of_receive(&self, from: Source, tag: Tag) -> String {
        self.of("receive of", from, tag)
    }

    pub(super) fn of_probe(&self, from: Source, tag: Tag) -> String {
        self.of("probe for", from, tag)
    }

    pub(super) fn of(&self, verb: &str, from: Source, tag: Tag) -> String {
        let tag = match tag {
            Tag::Is(tag) => format!("tag {tag}"),
            Tag::Any => "any tag".into(),
        };
        let from = match from {
            Source::Rank(rank) => self.rank_in_words(rank),
            Source::Any => "any rank".into(),
        };
        format!("{verb} {tag} from {from}")
    }
}

impl Help for Shared {
    /// Unless another thread is at it, or this one is on its way through.
    fn help(&self) -> bool {
        let Some(mut engine) = self.engine.try_lock() else { return false };
        let what = || format!("tagged messages of {}", self.name);
        let call = Call { plane: &self.plane, timeout: self.timeout, op: &what };
        let before = engine.moved();
        // What fails ends the world, which whoever waits sees.
        let _ = engine.progress(&Way { plane: &self.plane, call: &call });
        engine.moved() != before
    }
}
