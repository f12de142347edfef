//! What a rank and its neighbours tell each other through their mailboxes: notices of operations that were prepared, which
//! pair the two sides, and of what is no longer used.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gdsync::Device;

use super::device::{DeviceHalf, DeviceNotice};
use super::half::{Half, OtherNotice, Side};
use super::mailbox::Mailbox;
use super::nic::{OpenedLinks, Outbox};
use super::notice::{Key, Lane, Notice};
use super::pairing::Pairing;
use super::plane::{Neighbour, Plane};
use crate::error::Result;

/// How its mailbox is written.
enum Way {
    Mapped(Mailbox),
    Nic(Outbox),
}

#[derive(Default)]
pub(super) struct State {
    outbox: Option<Way>,
    pub links: OpenedLinks,
    backlog: VecDeque<Vec<u8>>,
    sends: Pairing<Arc<Half>, OtherNotice>,
    recvs: Pairing<Arc<Half>, OtherNotice>,
    device_sends: Pairing<Arc<DeviceHalf>, DeviceNotice>,
    device_recvs: Pairing<Arc<DeviceHalf>, DeviceNotice>,
}

impl Plane {
    /// An operation was prepared: tells the peer, and pairs what can be paired.
    pub fn announce(&self, half: &Arc<Half>, notice: Notice) -> Result<()> {
        let mut state = lock(&self.neighbours[half.neighbour].state);
        self.post(half.neighbour, &mut state, &notice)?;
        let pairing = match half.side {
            Side::Send => &mut state.sends,
            Side::Recv => &mut state.recvs,
        };
        let pair = pairing.here(half.key, half.clone());
        self.pair(half.neighbour, &mut state, pair);
        Ok(())
    }

    /// The same for an end of a device operation.
    pub fn announce_device(&self, half: &Arc<DeviceHalf>, notice: Notice) -> Result<()> {
        let mut state = lock(&self.neighbours[half.neighbour].state);
        self.post(half.neighbour, &mut state, &notice)?;
        let pairing = match half.side {
            Side::Send => &mut state.device_sends,
            Side::Recv => &mut state.device_recvs,
        };
        if let Some((half, other)) = pairing.here(half.key, half.clone()) {
            half.pair(self, other);
        }
        Ok(())
    }

    /// Whether the peer of an end of a device operation has told of an end for the host instead, which waits for its own peer.
    pub fn told_of_host_end(&self, half: &DeviceHalf) -> bool {
        let state = lock(&self.neighbours[half.neighbour].state);
        let key = Key { lane: Lane::Message, ..half.key };
        match half.side {
            Side::Send => state.sends.told(key),
            Side::Recv => state.recvs.told(key),
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
        if self.neighbours[neighbour].inbox.is_empty() {
            return;
        }
        let mut state = lock(&self.neighbours[neighbour].state);
        let state = &mut *state;
        loop {
            let blob = match self.neighbours[neighbour].inbox.take() {
                Ok(Some(blob)) => blob,
                Ok(None) => return self.echo(neighbour, state),
                Err(error) => return drop(self.breach(neighbour, &error.to_string())),
            };
            let pair = match Notice::decode(&blob) {
                Some(Notice::Send { key, word, len }) => {
                    state.recvs.there(key, OtherNotice { word, len, memory: None })
                }
                Some(Notice::Recv { key, word, len, memory }) => {
                    state.sends.there(key, OtherNotice { word, len, memory })
                }
                Some(Notice::DeviceSend { key, end }) => {
                    if let Some((half, other)) = state.device_recvs.there(key, end) {
                        half.pair(self, other);
                    }
                    None
                }
                Some(Notice::DeviceRecv { key, end }) => {
                    if let Some((half, other)) = state.device_sends.there(key, end) {
                        half.pair(self, other);
                    }
                    None
                }
                Some(Notice::Close { word }) => {
                    lock(&self.words).close(word);
                    None
                }
                Some(Notice::Link { number, address }) => {
                    let address = self.answer_link(neighbour, &mut state.links, &address);
                    // At the end of the world nobody needs to know.
                    let _ = self.post(neighbour, state, &Notice::Linked { number, address });
                    None
                }
                Some(Notice::Linked { number, address }) => {
                    self.link_answered(neighbour, &state.links, number, address);
                    None
                }
                Some(Notice::CloseWindow { number }) => {
                    self.close_window(number);
                    None
                }
                None => return drop(self.breach(neighbour, "a notice that is none")),
            };
            self.pair(neighbour, state, pair);
        }
    }

    fn pair(&self, neighbour: usize, state: &mut State, pair: Option<(Arc<Half>, OtherNotice)>) {
        let Some((half, other)) = pair else { return };
        half.pair(self, other);
        self.close(neighbour, state, &half);
    }

    /// The user has dropped an operation with nothing under way.
    pub fn retire(&self, half: &Half) {
        let mut state = lock(&self.neighbours[half.neighbour].state);
        half.mark_dropped();
        self.close(half.neighbour, &mut state, half);
    }

    /// Gives the words of a dropped operation back, and tells the peer, unless its other side is not known yet.
    fn close(&self, neighbour: usize, state: &mut State, half: &Half) {
        let Some((own, theirs)) = half.done_words() else { return };
        let mut words = lock(&self.words);
        words.drop_here(own);
        if let Some(mirror) = half.mirror() {
            words.drop_here(mirror);
            words.close(mirror);
        }
        drop(words);
        // At the end of the world nobody needs to know.
        let _ = self.post(neighbour, state, &Notice::Close { word: theirs });
    }

    /// Tells a neighbour something.
    pub fn tell(&self, neighbour: usize, notice: &Notice) -> Result<()> {
        self.post(neighbour, &mut lock(&self.neighbours[neighbour].state), notice)
    }

    /// Puts a notice into a neighbour's mailbox, or in line for it.
    pub(super) fn post(&self, neighbour: usize, state: &mut State, notice: &Notice) -> Result<()> {
        let blob = notice.encode()?;
        self.open_outbox(neighbour, state)?;
        state.backlog.push_back(blob);
        self.backlog.fetch_add(1, Ordering::Relaxed);
        self.flush(neighbour, state)
    }

    /// Puts into mailboxes what waits for room there.
    pub(super) fn flush_all(&self) {
        for (number, neighbour) in self.neighbours.iter().enumerate() {
            if let Err(error) = self.flush(number, &mut lock(&neighbour.state)) {
                self.breach(number, &error.to_string());
            }
        }
    }

    fn open_outbox(&self, neighbour: usize, state: &mut State) -> Result<()> {
        if state.outbox.is_some() {
            return Ok(());
        }
        let place = self.neighbour(self.rank)?;
        let Neighbour { rank, link, remote, inbox, .. } = &self.neighbours[neighbour];
        state.outbox = Some(match link {
            None => Way::Mapped(self.peer_arena(neighbour, &Device::Host)?.mailbox(place)?),
            Some(link) => {
                let remote = remote.get().ok_or_else(|| self.not_introduced(*rank))?;
                Way::Nic(Outbox::new(link.clone(), remote.mailbox(place), inbox.echo().clone()))
            }
        });
        Ok(())
    }

    fn flush(&self, neighbour: usize, state: &mut State) -> Result<()> {
        let State { outbox: Some(outbox), backlog, .. } = state else { return Ok(()) };
        while let Some(blob) = backlog.front() {
            let put = match outbox {
                Way::Mapped(mailbox) => mailbox.put(blob)?,
                Way::Nic(outbox) => self.or_failed(neighbour, outbox.put(blob)),
            };
            if !put {
                break;
            }
            backlog.pop_front();
            self.backlog.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Tells a neighbour on the NIC path how many of its notices were taken, if it does not know.
    pub(super) fn echo(&self, neighbour: usize, state: &mut State) {
        let Neighbour { inbox, link: Some(_), .. } = &self.neighbours[neighbour] else { return };
        let taken = inbox.taken();
        if taken > 0
            && self.open_outbox(neighbour, state).is_ok()
            && let Some(Way::Nic(outbox)) = &mut state.outbox
        {
            self.or_failed(neighbour, outbox.echo(taken));
        }
    }

    /// What a post to the NIC gave; false and a note if the path has failed.
    fn or_failed(&self, neighbour: usize, posted: gdsync::nic::Result<bool>) -> bool {
        posted.unwrap_or_else(|error| {
            self.path_failed(neighbour, &error);
            false
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
