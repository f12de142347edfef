//! Sends and receives under way.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use bytemuck::Pod;
use gdsync::Deadline;

use super::engine::{Engine, Outcome, What};
use super::memory::{Memory, lent};
use super::shared::{Kept, Shared};
use super::{Place, Source, Status, Tag, Ticket};
use crate::data::wait::Backoff;
use crate::error::{Error, Result};

/// A send or a receive that was started, or prepared. One that is dropped while it is under way is left to itself: a receive that has got nothing is
/// taken back, what another gets is lost, and a send goes on.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::tagged::Options;
/// use libmp::{Deadline, Device, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// # let messages = world.tagged(&Options::default())?;
/// let (edge, ghost) = (world.alloc::<f64>(&Device::Host, 100)?, world.alloc::<f64>(&Device::Host, 100)?);
/// let mut recv = messages.recv_init(&ghost, world.rank(), 7)?;
/// let mut send = messages.send_init(&edge, world.rank(), 7)?;
/// for _ in 0..3 {
///     recv.start()?;
///     send.start()?;
///     libmp::tagged::wait_all([&mut recv, &mut send], Deadline::after(Duration::from_secs(10)))?;
/// }
/// # world.finish()
/// # }
/// ```
pub struct Request<'a> {
    shared: Kept,
    what: What,
    state: State,
    /// Of a prepared one.
    place: Option<Box<Place<'a>>>,
    lent: PhantomData<&'a mut [u8]>,
}

impl What {
    fn receives(self) -> bool {
        matches!(self, What::Receive { .. })
    }
}

enum State {
    Active(Ticket),
    /// What became of it. One that was never started has got nothing.
    Over(Outcome),
    /// It was taken back.
    Cancelled,
}

impl<'a> Request<'a> {
    pub(super) fn send(
        shared: &Kept,
        place: Place<'a>,
        to: usize,
        tag: u64,
        starts: bool,
    ) -> Result<Request<'a>> {
        shared.check_rank(to)?;
        Request::new(shared, What::Send { to, tag }, place, starts)
    }

    pub(super) fn receive(
        shared: &Kept,
        place: Place<'a>,
        from: Source,
        tag: Tag,
        starts: bool,
    ) -> Result<Request<'a>> {
        shared.pattern(from, tag)?;
        Request::new(shared, What::Receive { from, tag }, place, starts)
    }

    /// A send of memory that the CPU reaches, started.
    pub(super) fn send_memory(
        shared: &Kept,
        memory: Memory,
        to: usize,
        tag: u64,
    ) -> Result<Request<'a>> {
        shared.check_rank(to)?;
        Request::started(shared, What::Send { to, tag }, memory)
    }

    /// A receive into memory that the CPU reaches, started.
    pub(super) fn receive_memory(
        shared: &Kept,
        memory: Memory,
        from: Source,
        tag: Tag,
    ) -> Result<Request<'a>> {
        Request::started(shared, What::Receive { from, tag }, memory)
    }

    fn started(shared: &Kept, what: What, memory: Memory) -> Result<Request<'a>> {
        let state = State::Over(Outcome::Done(Status::default()));
        let shared = shared.clone();
        let mut request = Request { shared, what, state, place: None, lent: PhantomData };
        request.begin(memory)?;
        Ok(request)
    }

    /// One that was started, and has a ticket.
    pub(super) fn of(shared: &Kept, what: What, ticket: Ticket) -> Request<'a> {
        let state = State::Active(ticket);
        Request { shared: shared.clone(), what, state, place: None, lent: PhantomData }
    }

    fn new(shared: &Kept, what: What, place: Place<'a>, starts: bool) -> Result<Request<'a>> {
        if starts {
            let memory = place.into_memory(shared, what.receives())?;
            return Request::started(shared, what, memory);
        }
        let (shared, place) = (shared.clone(), Some(Box::new(place)));
        let state = State::Over(Outcome::Done(Status::default()));
        Ok(Request { shared, what, state, place, lent: PhantomData })
    }

    fn begin(&mut self, memory: Memory) -> Result<()> {
        let shared = &self.shared;
        self.state = match self.what {
            What::Send { to, tag } => {
                let bytes = memory.len();
                match shared.send(to, tag, memory)? {
                    Some(ticket) => State::Active(ticket),
                    None => State::Over(Outcome::Done(Status { source: shared.rank, tag, bytes })),
                }
            }
            What::Receive { from, tag } => State::Active(shared.receive(from, tag, memory)?),
        };
        Ok(())
    }

    /// Starts a prepared request again.
    ///
    /// # Errors
    /// [`Error::Started`] if its last start has not been waited for; [`Error::Mismatch`] if it was not prepared; what ended the world.
    pub fn start(&mut self) -> Result<()> {
        if matches!(self.state, State::Active(_)) {
            return Err(Error::Started { op: self.describe(), epoch: 1 });
        }
        let Some(place) = &self.place else {
            let reason = "only what was prepared, by `send_init` or `recv_init`, is started";
            return Err(Error::Mismatch { op: self.describe(), reason: reason.into() });
        };
        let memory = place.memory(&self.shared, self.what.receives())?;
        self.begin(memory)
    }

    /// Whether it is complete, and then what it got. Makes progress, does not block.
    ///
    /// # Errors
    /// [`Error::Truncated`]; while it is not complete: what ended the world.
    pub fn test(&mut self) -> Result<Option<Status>> {
        if let State::Active(ticket) = self.state {
            let what = || self.describe();
            match self.shared.look(&what, |engine| engine.finished(ticket))? {
                Some(outcome) => self.state = State::Over(outcome),
                None => return Ok(None),
            }
        }
        self.status().map(Some)
    }

    /// Waits until it is complete, and says what it got.
    ///
    /// # Errors
    /// As [`test`](Self::test); [`Error::Waits`] at the deadline: it stays under way.
    pub fn wait(&mut self, deadline: Deadline) -> Result<Status> {
        if let State::Active(ticket) = self.state {
            let outcome = self.shared.wait(ticket, &|| self.describe(), deadline)?;
            self.state = State::Over(outcome);
        }
        self.status()
    }

    /// Takes back a receive that has got nothing, which is complete then, with nothing; whether it was one.
    pub fn cancel(&mut self) -> bool {
        let State::Active(ticket) = self.state else { return false };
        let is_cancelled = self.shared.lock().cancel(ticket);
        if is_cancelled {
            self.state = State::Cancelled;
        }
        is_cancelled
    }

    /// Whether it was taken back.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.state, State::Cancelled)
    }

    /// Its ticket, and no request any more; `None` for one that is not under way, which is dropped.
    ///
    /// See [`Tagged::request`](super::Tagged::request) for an example.
    pub fn into_ticket(mut self) -> Option<Ticket> {
        let State::Active(ticket) = self.state else { return None };
        // Nothing is left to itself then.
        self.state = State::Cancelled;
        Some(ticket)
    }

    /// Whether it was started and its end has not been seen.
    pub fn is_active(&self) -> bool {
        matches!(self.state, State::Active(_))
    }

    fn status(&self) -> Result<Status> {
        match self.state {
            State::Over(outcome) => self.shared.status(outcome, &|| self.describe()),
            State::Active(_) | State::Cancelled => Ok(Status::default()),
        }
    }

    /// Looks whether it is complete, without progress. True if nothing is left to wait for.
    fn is_over(&mut self) -> bool {
        let shared = self.shared.clone();
        self.is_over_in(&mut shared.lock())
    }

    fn is_over_in(&mut self, engine: &mut Engine) -> bool {
        if let State::Active(ticket) = self.state
            && let Some(outcome) = engine.finished(ticket)
        {
            self.state = State::Over(outcome);
        }
        !self.is_active()
    }

    fn describe(&self) -> String {
        self.shared.describe(self.what)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if let State::Active(ticket) = self.state {
            self.shared.abandon(ticket);
        }
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

/// How many of the first are over, of those that are of one communicator: with one look at its messages.
fn see(requests: &mut [&mut Request<'_>]) -> usize {
    let Some(first) = requests.first() else { return 0 };
    let kept = first.shared.clone();
    let shared: &Shared = &kept;
    let mut engine = shared.lock();
    let of_it = requests.iter_mut().take_while(|request| std::ptr::eq(&*request.shared, shared));
    of_it.map_while(|request| request.is_over_in(&mut engine).then_some(())).count()
}

/// Waits until all of them are complete; what they got, in their order.
///
/// # Errors
/// As [`Request::wait`], of the first that fails.
pub fn wait_all<'r, 'a: 'r>(
    requests: impl IntoIterator<Item = &'r mut Request<'a>>,
    deadline: Deadline,
) -> Result<Vec<Status>> {
    let mut requests: Vec<&'r mut Request<'a>> = requests.into_iter().collect();
    let mut over = 0;
    while let Some(request) = requests.get_mut(over) {
        request.wait(deadline)?;
        over += 1;
        // What has come with it is seen in passing.
        over += see(&mut requests[over..]);
    }
    requests.iter().map(|request| request.status()).collect()
}

/// Waits until one of those that were started is complete: which, and what it got. `None` if all of them have been seen complete before.
///
/// # Errors
/// As [`Request::wait`].
pub fn wait_any<'r, 'a: 'r>(
    requests: impl IntoIterator<Item = &'r mut Request<'a>>,
    deadline: Deadline,
) -> Result<Option<(usize, Status)>> {
    let mut left: Vec<(usize, &mut Request<'a>)> = requests.into_iter().enumerate().collect();
    left.retain(|(_, request)| request.is_active());
    let mut backoff = Backoff::new(deadline);
    loop {
        for (number, request) in &mut left {
            if request.is_over() {
                return request.status().map(|status| Some((*number, status)));
            }
        }
        let Some((number, first)) = left.first_mut() else { return Ok(None) };
        if let Some(status) = first.test()? {
            return Ok(Some((*number, status)));
        }
        backoff.moves(first.shared.lock().moved());
        if !backoff.pause() {
            // Says what is missing.
            return first.wait(deadline).map(|status| Some((*number, status)));
        }
    }
}

/// In which slices can be sent from and received into without waiting: [`Tagged::scope`](super::Tagged::scope).
///
/// See [`Tagged::scope`](super::Tagged::scope) for an example.
pub struct Scope<'scope, 'env: 'scope> {
    started: Started,
    /// Invariant, as that of scoped threads.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// What was started in a scope. Its end leaves what is under way to itself, also if a request was forgotten.
struct Started {
    shared: Kept,
    tickets: Mutex<Vec<Ticket>>,
}

impl Drop for Started {
    fn drop(&mut self) {
        let tickets = self.tickets.get_mut().unwrap_or_else(PoisonError::into_inner);
        for ticket in tickets.drain(..) {
            self.shared.abandon(ticket);
        }
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    pub(super) fn new(shared: &Kept) -> Scope<'scope, 'env> {
        let started = Started { shared: shared.clone(), tickets: Mutex::default() };
        Scope { started, scope: PhantomData, env: PhantomData }
    }

    /// Starts to send the elements.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`]; what ended the world.
    pub fn isend<T: Pod>(
        &'scope self,
        data: &'scope [T],
        to: usize,
        tag: u64,
    ) -> Result<Request<'scope>> {
        let bytes = bytemuck::cast_slice::<T, u8>(data);
        let memory = lent(bytes.as_ptr().cast_mut(), bytes.len());
        let request = Request::send_memory(&self.started.shared, memory, to, tag);
        request.map(|request| self.keep(request))
    }

    /// Starts to receive into the elements.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    pub fn irecv<T: Pod>(
        &'scope self,
        data: &'scope mut [T],
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Request<'scope>> {
        let bytes = bytemuck::cast_slice_mut::<T, u8>(data);
        let memory = lent(bytes.as_mut_ptr(), bytes.len());
        let request =
            Request::receive_memory(&self.started.shared, memory, from.into(), tag.into());
        request.map(|request| self.keep(request))
    }

    fn keep(&self, request: Request<'scope>) -> Request<'scope> {
        if let State::Active(ticket) = request.state {
            let Started { shared, tickets } = &self.started;
            let mut tickets = tickets.lock().unwrap_or_else(PoisonError::into_inner);
            if tickets.len() == tickets.capacity() {
                // Before there are more, those that are over go.
                let engine = shared.lock();
                tickets.retain(|ticket| engine.is_under_way(*ticket));
            }
            tickets.push(ticket);
        }
        request
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scope of tagged messages")
    }
}
