//! What a rank and its neighbours tell each other through their mailboxes: notices of operations that were prepared, which
//! pair the two sides, and of what is no longer used.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Plane, lock};
use crate::data::endpoint::Endpoint;
use crate::data::notice::{Key, Notice};
use crate::data::pairing::Pairing;
use crate::error::Result;
use crate::transport::nic::OpenedLinks;
use crate::transport::{EndNotice, Outbox, Side};

#[derive(Default)]
pub(crate) struct State {
    /// Its mailbox, once that may be written.
    outbox: Option<Box<dyn Outbox>>,
    pub links: OpenedLinks,
    /// Notices that wait for room there.
    backlog: VecDeque<Vec<u8>>,
    /// It is one of the plane's neighbours with a backlog.
    listed: bool,
    sends: Pairing<Arc<Endpoint>, EndNotice>,
    recvs: Pairing<Arc<Endpoint>, EndNotice>,
}

/// Tags that an error lists.
const TAGS: usize = 8;

impl Plane {
    /// An operation was prepared: tells the peer, and pairs what can be paired.
    pub fn announce(
        &self,
        end: Arc<Endpoint>,
        (side, key): (Side, Key),
        notice: Notice,
    ) -> Result<()> {
        let mut state = lock(&self.neighbours[end.neighbour].state);
        self.post(end.neighbour, &mut state, &notice)?;
        let pairing = match side {
            Side::Send => &mut state.sends,
            Side::Recv => &mut state.recvs,
        };
        if let Some((end, other)) = pairing.here(key, end) {
            end.pair(self, other);
        }
        Ok(())
    }

    /// Which tags the peer has prepared for the other side of a message that nobody here has met, in words.
    pub fn tags_told(&self, neighbour: usize, side: Side, key: Key) -> String {
        let Some(neighbour) = self.neighbours.get(neighbour) else { return "none".into() };
        let state = lock(&neighbour.state);
        let pairing = if side == Side::Send { &state.sends } else { &state.recvs };
        let all = pairing.told(key);
        let more = all.len().saturating_sub(TAGS);
        let mut tags: Vec<String> = all.iter().take(TAGS).map(u64::to_string).collect();
        match (tags.pop(), more) {
            (None, _) => "none that waits for one here".into(),
            (Some(only), 0) if tags.is_empty() => format!("tag {only}"),
            (Some(last), 0) => format!("tags {} and {last}", tags.join(", ")),
            (Some(last), more) => format!("tags {}, {last} and {more} more", tags.join(", ")),
        }
    }

    /// Takes in what a neighbour has told, if it is of interest.
    pub fn listen_if(&self, interesting: bool, neighbour: usize) {
        if interesting {
            self.listen(neighbour);
        }
    }

    /// Takes in what a neighbour has told.
    pub fn listen(&self, neighbour: usize) {
        let Some(inbox) = self.neighbours[neighbour].inbox() else { return };
        if inbox.is_empty() {
            return;
        }
        let mut state = lock(&self.neighbours[neighbour].state);
        let state = &mut *state;
        loop {
            let blob = match inbox.take() {
                Ok(Some(blob)) => blob,
                Ok(None) => return self.echo(neighbour, state),
                Err(error) => return drop(self.breach(neighbour, &error.to_string())),
            };
            match Notice::decode(&blob) {
                Some(Notice::Send { key, end }) => {
                    if let Some((end, other)) = state.recvs.there(key, end) {
                        end.pair(self, other);
                    }
                }
                Some(Notice::Recv { key, end }) => {
                    if let Some((end, other)) = state.sends.there(key, end) {
                        end.pair(self, other);
                    }
                }
                Some(Notice::Link { number, address }) => {
                    let address = self.answer_link(neighbour, &mut state.links, &address);
                    // At the end of the world nobody needs to know.
                    let _ = self.post(neighbour, state, &Notice::Linked { number, address });
                }
                Some(Notice::Linked { number, address }) => {
                    self.link_answered(neighbour, &state.links, number, address);
                }
                Some(Notice::CloseWindow { number }) => self.close_window(number),
                None => return drop(self.breach(neighbour, "a notice that is none")),
            }
        }
    }

    /// Tells a neighbour something.
    pub fn tell(&self, neighbour: usize, notice: &Notice) -> Result<()> {
        self.post(neighbour, &mut lock(&self.neighbours[neighbour].state), notice)
    }

    /// Puts a notice into a neighbour's mailbox, or in line for it.
    pub(crate) fn post(&self, neighbour: usize, state: &mut State, notice: &Notice) -> Result<()> {
        let blob = notice.encode()?;
        self.open_outbox(neighbour, state)?;
        state.backlog.push_back(blob);
        self.backlog.fetch_add(1, Ordering::Relaxed);
        let flushed = self.flush(state);
        self.list(neighbour, state);
        flushed
    }

    /// Lists a neighbour for which something waits.
    fn list(&self, neighbour: usize, state: &mut State) {
        if !state.backlog.is_empty() && !std::mem::replace(&mut state.listed, true) {
            lock(&self.backlogged).push(neighbour);
        }
    }

    /// Puts into mailboxes what waits for room there.
    pub(super) fn flush_all(&self) {
        let neighbours = std::mem::take(&mut *lock(&self.backlogged));
        for neighbour in neighbours {
            let state = &mut lock(&self.neighbours[neighbour].state);
            self.flush_or_breach(neighbour, state);
            state.listed = false;
            self.list(neighbour, state);
        }
    }

    /// Puts into a neighbour's mailbox what waits for room there.
    pub(super) fn flush_one(&self, neighbour: usize) {
        self.flush_or_breach(neighbour, &mut lock(&self.neighbours[neighbour].state));
    }

    fn flush_or_breach(&self, neighbour: usize, state: &mut State) {
        if state.backlog.is_empty() {
            return;
        }
        let opened = self.open_outbox(neighbour, state);
        if let Err(error) = opened.and_then(|()| self.flush(state)) {
            self.breach(neighbour, &error.to_string());
        }
    }

    fn open_outbox(&self, neighbour: usize, state: &mut State) -> Result<()> {
        if state.outbox.is_none() {
            state.outbox = self.outbox(neighbour)?;
        }
        Ok(())
    }

    fn flush(&self, state: &mut State) -> Result<()> {
        let State { outbox: Some(outbox), backlog, .. } = state else { return Ok(()) };
        while let Some(blob) = backlog.front() {
            if !outbox.put(self, blob)? {
                break;
            }
            backlog.pop_front();
            self.backlog.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Tells a neighbour on the NIC path how many of its notices were taken, if it does not know.
    pub(crate) fn echo(&self, neighbour: usize, state: &mut State) {
        let there = &self.neighbours[neighbour];
        let (Some(_), Some(inbox)) = (there.link(), there.inbox()) else { return };
        let taken = inbox.taken();
        if taken > 0
            && self.open_outbox(neighbour, state).is_ok()
            && let Some(outbox) = &mut state.outbox
        {
            outbox.echo(self, taken);
        }
    }
}
