//! A rank as its own process sees it: what the control thread has learnt, for the callers that wait for it, and the abort
//! word, which is set before anybody is woken.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cause::Cause;
use super::message::{Message, Outcome, Payload, PeerInfo};
use crate::trace::{Answer, TraceFile};

/// The abort word on a page of its own, so that the page can be registered for devices to read.
#[repr(C, align(4096))]
struct AbortPage {
    word: AtomicU64,
    rest: [u8; 4088],
}

const _: () = assert!(size_of::<AbortPage>() == 4096 && align_of::<AbortPage>() == 4096);

/// What a rank knows of its world.
pub(crate) struct Local {
    pub(crate) rank: u32,
    abort: Box<AbortPage>,
    /// The world is over in good order, or dropped. Set while the state is locked; looked at by every call.
    finished: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// Called with who has written a letter, and the letter.
pub(super) type OnLetter = Arc<dyn Fn(u32, &[u8]) + Send + Sync>;

/// Letters that are kept for a rank that does not read them yet: one of each of so many ranks.
const LETTERS: usize = 4096;

/// Called with the cause.
pub(super) type OnFailure = Box<dyn FnOnce(&str) + Send>;

#[derive(Default)]
struct State {
    peers: Option<Arc<[PeerInfo]>>,
    trace: Option<TraceFile>,
    /// Rank 0's last answer to what time it is.
    answer: Option<Answer>,
    missing: Vec<u32>,
    replies: HashMap<u64, (u64, Outcome, Payload)>,
    cause: Option<Cause>,
    /// To be called with letters; those that came before.
    on_letter: Option<OnLetter>,
    letters: Vec<(u32, Payload)>,
    /// To be called when the world fails.
    on_failure: Vec<OnFailure>,
    /// The failure has been passed on as far as this rank can.
    passed_on: bool,
}

/// How a wait ended.
pub(crate) enum Waited<T> {
    Ready(T),
    Ended(Cause),
    Finished,
    Expired,
}

impl Local {
    pub(crate) fn new(rank: u32) -> Local {
        Local {
            rank,
            abort: Box::new(AbortPage { word: AtomicU64::new(0), rest: [0; 4088] }),
            finished: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn abort_word(&self) -> &AtomicU64 {
        debug_assert_eq!(self.abort.rest[0], 0);
        &self.abort.word
    }

    /// Takes in what rank 0 says. An error is rank 0's breach of the protocol.
    pub(super) fn deliver(&self, message: Message, payload: Payload) -> Result<(), &'static str> {
        match message {
            Message::Ended { cause } => {
                self.fail(cause);
                return Ok(());
            }
            Message::Alive => return Ok(()),
            _ => {}
        }
        let mut state = self.lock();
        match message {
            Message::Welcome { peers, trace, .. } => {
                state.peers = Some(peers);
                state.trace = trace;
            }
            Message::Waiting { missing } => state.missing = missing,
            Message::Reply { group, turn, outcome } => {
                state.replies.insert(group, (turn, outcome, payload));
            }
            Message::Letter { rank } => {
                match state.on_letter.clone() {
                    Some(read) => {
                        drop(state);
                        read(rank, &payload);
                    }
                    None if state.letters.len() < LETTERS => state.letters.push((rank, payload)),
                    None => return Err("more letters than there are ranks"),
                }
                return Ok(());
            }
            _ => return Err("a message that only goes to rank 0"),
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// The world is over for this rank, unless it is already. The first cause stays.
    pub(crate) fn fail(&self, cause: Cause) {
        let mut state = self.lock();
        if state.cause.is_some() || self.finished() {
            return;
        }
        // Release: whoever sees the word sees everything that happened before the failure was noticed.
        self.abort.word.store(cause.word(), Ordering::Release);
        let (calls, text) = (std::mem::take(&mut state.on_failure), cause.to_string());
        state.cause = Some(cause);
        drop(state);
        self.changed.notify_all();
        calls.into_iter().for_each(|call| call(&text));
    }

    /// Calls `read` with the letters of other ranks, also those that have come, in this thread or the control thread.
    pub(super) fn on_letter(&self, read: OnLetter) {
        let mut state = self.lock();
        let came = std::mem::take(&mut state.letters);
        state.on_letter = Some(read.clone());
        drop(state);
        for (rank, letter) in came {
            read(rank, &letter);
        }
    }

    /// Calls `call` when the world fails, or now if it has.
    pub(super) fn on_failure(&self, call: OnFailure) {
        let mut state = self.lock();
        match &state.cause {
            None => state.on_failure.push(call),
            Some(cause) => {
                let text = cause.to_string();
                drop(state);
                call(&text);
            }
        }
    }

    /// This rank's world is over in good order, or dropped: nobody waits any more. False if it was already.
    pub(crate) fn finish(&self) -> bool {
        let state = self.lock();
        let first = !self.finished.swap(true, Ordering::AcqRel);
        drop(state);
        self.changed.notify_all();
        first
    }

    pub(crate) fn finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    pub(crate) fn cause(&self) -> Option<Cause> {
        self.lock().cause.clone()
    }

    pub(super) fn set_passed_on(&self) {
        self.lock().passed_on = true;
        self.changed.notify_all();
    }

    /// Waits until a failure has been passed on, or `limit` has gone by.
    pub(crate) fn wait_passed_on(&self, limit: Duration) {
        self.wait(Instant::now() + limit, true, |state| state.passed_on.then_some(()));
    }

    /// Waits until the world has failed, or is over otherwise, or `limit` has gone by.
    pub(crate) fn wait_for_end(&self, limit: Duration) -> Waited<Infallible> {
        self.wait(Instant::now() + limit, false, |_| None)
    }

    /// Waits for the world to be complete: its ranks.
    pub(crate) fn wait_peers(&self, deadline: Instant) -> Waited<Arc<[PeerInfo]>> {
        self.wait(deadline, false, |state| state.peers.clone())
    }

    /// The ranks that were missing when rank 0 last said so.
    pub(crate) fn missing(&self) -> Vec<u32> {
        self.lock().missing.clone()
    }

    /// The timeline that the ranks keep, as rank 0 said with its welcome.
    pub(crate) fn trace(&self) -> Option<TraceFile> {
        self.lock().trace.clone()
    }

    /// Rank 0 has said what time it is.
    pub(super) fn answer(&self, answer: Answer) {
        self.lock().answer = Some(answer);
        self.changed.notify_all();
    }

    /// Waits for an answer.
    pub(super) fn wait_answer(&self, deadline: Instant) -> Waited<Answer> {
        self.wait(deadline, false, |state| state.answer.take())
    }

    /// Waits for the reply to the collective that is open in a group.
    pub(crate) fn wait_reply(
        &self,
        group: u64,
        deadline: Instant,
    ) -> Waited<(u64, Outcome, Payload)> {
        self.wait(deadline, false, |state| state.replies.remove(&group))
    }

    fn wait<T>(
        &self,
        deadline: Instant,
        even_if_ended: bool,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Waited<T> {
        let mut state = self.lock();
        loop {
            // A result that arrived before the failure is a result.
            if let Some(value) = ready(&mut state) {
                return Waited::Ready(value);
            }
            if let (Some(cause), false) = (&state.cause, even_if_ended) {
                return Waited::Ended(cause.clone());
            }
            if self.finished() {
                return Waited::Finished;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Waited::Expired;
            }
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the world of ranks whose control thread goes, however it goes.
pub(super) struct Ending(pub(super) Vec<Arc<Local>>);

impl Drop for Ending {
    fn drop(&mut self) {
        for local in &self.0 {
            let what = "the control thread of this rank has ended";
            local.fail(Cause::Protocol { what: what.into() });
            local.set_passed_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_abort_word_is_set_before_a_waiter_wakes_and_keeps_the_first_cause() {
        let local = Arc::new(Local::new(3));
        let waiter = std::thread::spawn({
            let local = local.clone();
            move || {
                let waited = local.wait_reply(0, Instant::now() + Duration::from_secs(60));
                (matches!(waited, Waited::Ended(_)), local.abort_word().load(Ordering::Acquire))
            }
        });
        let cause = |rank| Cause::Aborted { rank, host: "n".into(), reason: "r".into() };
        local.fail(cause(5));
        local.fail(cause(6));
        assert_eq!(waiter.join().unwrap(), (true, 1 << 63 | 2 << 32 | 5));
        assert_eq!(local.cause(), Some(cause(5)));
    }

    #[test]
    fn a_result_that_came_before_the_failure_is_a_result() {
        let local = Local::new(0);
        let reply = Message::Reply { group: 4, turn: 0, outcome: Outcome::Done };
        local.deliver(reply, Arc::from([1])).unwrap();
        local.fail(Cause::Protocol { what: "x".into() });
        let soon = Instant::now() + Duration::from_secs(60);
        assert!(matches!(local.wait_reply(4, soon), Waited::Ready((0, Outcome::Done, _))));
        assert!(matches!(local.wait_reply(4, soon), Waited::Ended(_)));
    }
}
