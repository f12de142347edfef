//! Messages of bytes that are named by their address, and requests that are tickets: what interfaces of C are made of.

use std::ptr::NonNull;

use gdsync::Deadline;

use super::engine::{Engine, Outcome, What};
use super::memory::staying;
use super::pool::Ticket;
use super::shared::none_of;
use super::{Place, Request, Source, Status, Tag, Tagged};
use crate::error::Result;

impl Tagged {
    /// A send, or with `starts` false one that is only [prepared](Self::send_init), of bytes anywhere in host memory. Where ranks share a
    /// host, they may read the bytes by their address.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    ///
    /// # Safety
    /// The bytes stay valid, and are not written, until a wait has said that the send is complete, or the world is over, also if the
    /// request is dropped before.
    pub unsafe fn isend_raw(
        &self,
        bytes: (NonNull<u8>, usize),
        to: usize,
        tag: u64,
        starts: bool,
    ) -> Result<Request<'static>> {
        match starts {
            true => Request::send_memory(&self.shared, staying(bytes), to, tag),
            false => Request::send(&self.shared, Place::lent(bytes), to, tag, false),
        }
    }

    /// A receive, or with `starts` false one that is only [prepared](Self::recv_init), into bytes anywhere in host memory.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    ///
    /// # Safety
    /// The bytes stay valid, and nobody else uses them, until a wait has said that the receive is complete, or the request is
    /// dropped.
    pub unsafe fn irecv_raw(
        &self,
        bytes: (NonNull<u8>, usize),
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        starts: bool,
    ) -> Result<Request<'static>> {
        let (from, tag) = (from.into(), tag.into());
        match starts {
            true => Request::receive_memory(&self.shared, staying(bytes), from, tag),
            false => Request::receive(&self.shared, Place::lent(bytes), from, tag, false),
        }
    }

    /// Starts to send bytes anywhere in host memory: for requests that are handles of C's. `None` if they have gone, and are the caller's again.
    /// Where ranks share a host, they may read the bytes by their address.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use std::time::Duration;
    ///
    /// use libmp::tagged::Options;
    /// use libmp::{Deadline, World};
    ///
    /// # fn main() -> libmp::Result<()> {
    /// # let world = World::init()?;
    /// # let messages = world.tagged(&Options::default())?;
    /// let (mut from, mut to) = ([1u8; 8], [0u8; 8]);
    /// let bytes = |array: &mut [u8; 8]| (NonNull::from(array).cast::<u8>(), 8);
    /// // SAFETY: both arrays outlive `finish`.
    /// let (recv, send) = unsafe {
    ///     let recv = messages.start_recv(bytes(&mut to), world.rank(), 7)?;
    ///     (recv, messages.start_send(bytes(&mut from), world.rank(), 7)?)
    /// };
    /// let soon = Deadline::after(Duration::from_secs(10));
    /// messages.finish(send.into_iter().chain([recv]), soon, |status| assert_eq!(status.bytes, 8))?;
    /// assert_eq!(from, to);
    /// # world.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    ///
    /// # Safety
    /// As [`isend_raw`](Self::isend_raw).
    #[inline]
    pub unsafe fn start_send(
        &self,
        bytes: (NonNull<u8>, usize),
        to: usize,
        tag: u64,
    ) -> Result<Option<Ticket>> {
        self.shared.check_rank(to)?;
        let what = || none_of(bytes.1, self.shared.of_send(to, tag));
        self.shared.with(&what, |engine, way| engine.send(way, to, tag, staying(bytes)))
    }

    /// Starts to receive into bytes anywhere in host memory: for requests that are handles of C's.
    ///
    /// # Errors
    /// As [`isend`](Self::isend).
    ///
    /// # Safety
    /// The bytes stay valid, and nobody else uses them, until somebody has been told that the receive is complete, or a
    /// [`request`](Self::request) of it is dropped.
    #[inline]
    pub unsafe fn start_recv(
        &self,
        bytes: (NonNull<u8>, usize),
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Ticket> {
        let (from, tag) = (from.into(), tag.into());
        let pattern = self.shared.pattern(from, tag)?;
        let what = || none_of(bytes.1, self.shared.of_receive(from, tag));
        self.shared.with(&what, |engine, way| engine.receive(way, pattern, |it| it.lend(bytes)))
    }

    /// Receives into bytes anywhere in host memory what comes from one rank within a microsecond or two, if no other receive and no other message of
    /// these tagged messages waits. Nothing otherwise: what is then not there yet [a receive that is started](Self::start_recv) gets.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), but for the deadline.
    ///
    /// # Safety
    /// The bytes are valid, and nobody else uses them, during the call.
    #[inline]
    pub unsafe fn recv_soon(
        &self,
        bytes: (NonNull<u8>, usize),
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Status>> {
        let (from, tag) = (from.into(), tag.into());
        let got = self.shared.receive_soon(from, tag, &staying(bytes))?;
        let what = || self.shared.of_receive(from, tag);
        got.map(|outcome| self.shared.status(outcome, &what)).transpose()
    }

    /// Waits for what has tickets of these tagged messages, and says in their order what each has got. The tickets up to the one that fails, and that one if it
    /// was truncated, are over. `each` only takes note: in a call of the same messages it would wait for itself.
    ///
    /// # Errors
    /// As [`Request::wait`], of the first that fails; [`Error::Mismatch`](crate::Error::Mismatch) for a ticket of what is over.
    pub fn finish(
        &self,
        tickets: impl IntoIterator<Item = Ticket>,
        deadline: Deadline,
        mut each: impl FnMut(Status),
    ) -> Result<()> {
        let mut engine = self.shared.lock();
        for ticket in tickets {
            let outcome = match engine.finished(ticket) {
                Some(outcome) => outcome,
                None => {
                    let what = engine.what(ticket).ok_or_else(|| self.shared.no_such_request())?;
                    drop(engine);
                    let what = || self.shared.describe(what);
                    let outcome = self.shared.wait(ticket, &what, deadline)?;
                    engine = self.shared.lock();
                    outcome
                }
            };
            match outcome {
                Outcome::Done(status) => each(status),
                Outcome::Truncated(status, _) => {
                    drop(engine);
                    return self.shared.status(outcome, &|| self.shared.of_got(status)).map(drop);
                }
            }
        }
        Ok(())
    }

    /// Whether what has a ticket is complete, and then what it got; it is over then. Makes progress, does not block.
    ///
    /// # Errors
    /// As [`Request::test`]; [`Error::Mismatch`](crate::Error::Mismatch) for a ticket of what is over.
    pub fn finished(&self, ticket: Ticket) -> Result<Option<Status>> {
        let what = self.what(ticket)?;
        let what = || self.shared.describe(what);
        let outcome = self.shared.look(&what, |engine| engine.finished(ticket))?;
        outcome.map(|outcome| self.shared.status(outcome, &what)).transpose()
    }

    /// Whether what has a ticket is complete; it is not over by that. Makes progress, does not block.
    ///
    /// # Errors
    /// As [`finished`](Self::finished), but for [`Error::Truncated`](crate::Error::Truncated).
    pub fn is_complete(&self, ticket: Ticket) -> Result<bool> {
        let what = self.what(ticket)?;
        let is_complete = |engine: &mut Engine| engine.is_complete(ticket).then_some(());
        let found = self.shared.look(&|| self.shared.describe(what), is_complete)?;
        Ok(found.is_some())
    }

    fn what(&self, ticket: Ticket) -> Result<What> {
        let what = self.shared.lock().what(ticket);
        what.ok_or_else(|| self.shared.no_such_request())
    }

    /// What has a ticket, as a request: until it is its [ticket](Request::into_ticket) again, that is not used any more.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// # use libmp::tagged::Options;
    /// # use libmp::World;
    /// # fn main() -> libmp::Result<()> {
    /// # let world = World::init()?;
    /// # let messages = world.tagged(&Options::default())?;
    /// let mut to = [0u8; 8];
    /// // SAFETY: the request is dropped before the bytes.
    /// let ticket = unsafe { messages.start_recv((NonNull::from(&mut to).cast(), 8), world.rank(), 7)? };
    /// let mut request = messages.request(ticket)?;
    /// assert!(request.test()?.is_none());
    /// assert_eq!(request.into_ticket(), Some(ticket));
    /// assert!(messages.request(ticket)?.cancel());
    /// # world.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`](crate::Error::Mismatch) for a ticket of what is over.
    pub fn request(&self, ticket: Ticket) -> Result<Request<'static>> {
        Ok(Request::of(&self.shared, self.what(ticket)?, ticket))
    }
}
