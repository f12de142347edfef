//! Messages between devices whose memories map each other, as GPUs with peer access: the sender lends its memory, and a stream of the receiver's device
//! copies out of that. No byte is in a ring, a chunk, or a CPU.
//!
//! The sender says where the memory is ([`Lent`]). If something has to be reached before it may be read, whoever wants it asks to be told
//! ([`LATER`]), and is ([`Envelope::Ready`]). What the receiver cannot map it wants through the ring, as it wants what was offered.

use std::collections::VecDeque;

use gdsync::{Buffer, Device, PeerHandle, PeerMemory, PeerPath};
use serde::{Deserialize, Serialize};

use super::{Engine, Entry, Peer, Pull, State, Way};
use crate::error::Result;
use crate::tagged::envelope::{Envelope, IN_LINES, INSIDE, LATER};
use crate::tagged::memory::Memory;
use crate::tagged::pool::Ticket;
use crate::tagged::staging::{Away, Where};

/// Mappings of other processes' memory that are kept for the next messages from there: to open one takes longer than to copy a megabyte. Few, for
/// what a process gives back meanwhile is the driver's again only when they are closed.
const KEPT: usize = 16;

/// Where a message is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tagged) struct Lent {
    /// Number of the send.
    send: u64,
    /// It may be read.
    is_ready: bool,
    pub handle: PeerHandle,
}

impl Lent {
    /// For the memory of a send, if other devices may be able to map it; `here`: those of this process alone need to.
    fn new(away: &mut Away, send: u64, here: bool) -> Option<Lent> {
        let Where::Buffer(memory) = &away.memory else { return None };
        let handle = memory.export().ok().filter(|handle| here || handle.travels())?;
        let is_ready = away.is_free().ok()?;
        Some(Lent { send, is_ready, handle })
    }

    /// As it goes in a few lines; `None` if it takes more.
    fn encode(&self) -> Option<Vec<u8>> {
        let mut bytes = postcard::to_stdvec(self).ok()?;
        if bytes.len() <= INSIDE {
            bytes.resize(INSIDE + 1, 0);
        }
        (bytes.len() <= IN_LINES).then_some(bytes)
    }

    /// `None` for what no rank writes.
    pub fn decode(bytes: &[u8]) -> Option<Lent> {
        let (lent, _) = postcard::take_from_bytes::<Lent>(bytes).ok()?;
        usize::try_from(lent.handle.len()).is_ok().then_some(lent)
    }
}

/// A receive of a message that is lent.
struct Borrowed {
    /// Of the request.
    key: usize,
    from: usize,
    send: u64,
    is_ready: bool,
    theirs: Buffer<u8>,
}

/// What a rank lends to others, and reads of what they lend.
pub(super) struct Direct {
    /// Whether memory of devices is lent to receivers that may map it, and what is lent is read.
    lends: bool,
    /// Sends whose receivers want to hear when their memory may be read.
    pub asked: Vec<(Ticket, usize)>,
    /// Receives of what is lent.
    borrowed: Vec<Borrowed>,
    /// What was mapped for them last.
    mapped: VecDeque<Buffer<u8>>,
}

impl Direct {
    pub fn new(lends: bool) -> Direct {
        Direct { lends, asked: Vec::new(), borrowed: Vec::new(), mapped: VecDeque::new() }
    }

    /// Whether there is nothing to go on with.
    pub fn is_idle(&self) -> bool {
        self.asked.is_empty() && self.borrowed.is_empty()
    }

    /// Where the memory of a send is, for its receiver, if it is lent.
    pub fn place_of(&self, entry: &mut Entry, to: &Peer) -> Option<Vec<u8>> {
        let Memory::Away(away) = &mut entry.memory else { return None };
        if !self.lends || away.len() == 0 || !to.rings.is_mapped() {
            return None;
        }
        let here = matches!(to.pull, Pull::SameProcess);
        Lent::new(away, entry.ticket.to_bits(), here)?.encode()
    }

    /// The memory of a message for the device of a receive, if that maps it.
    fn map(&mut self, lent: &Lent, away: &Away) -> Option<Buffer<u8>> {
        let Where::Buffer(memory) = &away.memory else { return None };
        let device: &Device = memory.device();
        match PeerMemory::map(&lent.handle, device) {
            Ok(PeerMemory { buffer, path }) => {
                if path != PeerPath::SameProcess {
                    self.mapped.truncate(KEPT - 1);
                    self.mapped.push_front(buffer.clone());
                }
                Some(buffer)
            }
            Err(error) => {
                tracing::debug!(%device, %error, "a message goes through a ring");
                None
            }
        }
    }
}

impl Engine {
    /// A receive gets what is lent.
    pub(super) fn borrow(&mut self, way: &Way<'_>, key: usize, lent: &Lent) -> Result<()> {
        // A length that fits a `usize` has been looked for.
        let (send, is_ready, len) = (lent.send, lent.is_ready, lent.handle.len() as usize);
        let entry = &mut self.requests[key];
        let (from, fits) = (entry.label.source as usize, len <= entry.memory.len());
        let theirs = match &entry.memory {
            Memory::Away(away) if fits && self.direct.lends => self.direct.map(lent, away),
            _ => None,
        };
        let Some(theirs) = theirs else { return self.want(way, key, (send, len), fits) };
        entry.state = State::Streaming { at: 0, until: len };
        self.direct.borrowed.push(Borrowed { key, from, send, is_ready, theirs });
        if !is_ready {
            self.reply(way, from, send, LATER)?;
        }
        self.read_borrowed(way)
    }

    /// A sender says that the memory which it lends may be read.
    pub(super) fn ready(&mut self, way: &Way<'_>, from: usize, send: u64) -> Result<()> {
        let mut all = self.direct.borrowed.iter_mut();
        // Of one that nobody waits for any more there is none.
        if let Some(borrowed) = all.find(|it| (it.from, it.send) == (from, send)) {
            borrowed.is_ready = true;
        }
        self.read_borrowed(way)
    }

    /// Goes on with receives of what is lent.
    pub(super) fn read_borrowed(&mut self, way: &Way<'_>) -> Result<()> {
        let failed = |source| way.call.failed(source);
        let mut at = 0;
        while let Some(Borrowed { key, is_ready, theirs, .. }) = self.direct.borrowed.get(at) {
            let entry = &mut self.requests[*key];
            let Memory::Away(away) = &mut entry.memory else {
                self.direct.borrowed.swap_remove(at); // Whatever is here is away.
                continue;
            };
            // Of one that nobody waits for nothing is begun.
            if away.begun == 0 && !away.dropped {
                if !*is_ready || !away.is_free().map_err(failed)? {
                    at += 1;
                    continue;
                }
                self.staging.copy_direct(away, theirs).map_err(failed)?;
            }
            self.staging.settle(away).map_err(failed)?;
            if !away.is_idle() {
                at += 1;
                continue;
            }
            let (label, len, room) = (entry.label, theirs.len(), away.len());
            let Borrowed { key, from, send, .. } = self.direct.borrowed.swap_remove(at);
            self.received(key, label, len, room);
            self.moved += 1;
            self.reply(way, from, send, 0)?;
        }
        Ok(())
    }

    /// Tells receivers that the memory which is lent to them may be read.
    pub(super) fn tell_ready(&mut self, way: &Way<'_>) -> Result<()> {
        let mut at = 0;
        while let Some(&(ticket, to)) = self.direct.asked.get(at) {
            let is_ready = match self.requests.told(ticket.to_bits()) {
                Some(Entry { memory: Memory::Away(away), state: State::Lent, .. }) => {
                    away.is_free().map_err(|source| way.call.failed(source))?
                }
                // It is through without.
                _ => {
                    self.direct.asked.swap_remove(at);
                    continue;
                }
            };
            let rings = &mut self.peers[to].rings;
            if is_ready && rings.fits(way, 1)? {
                rings.line(way, &Envelope::Ready { send: ticket.to_bits() })?;
                self.direct.asked.swap_remove(at);
                self.moved += 1;
            } else {
                at += 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gdsync::Space;

    use super::*;

    #[test]
    fn a_place_fits_a_few_lines_and_comes_out_of_them() {
        let memory = Buffer::<u8>::new(&Device::Host, Space::Pinned, 1 << 20).unwrap();
        let part = memory.slice(4097..4097 + 70_000).unwrap();
        let mut away = Away::new(Where::Buffer(part));
        let lent = Lent::new(&mut away, u64::MAX - 7, false).unwrap();
        assert!(lent.is_ready);
        let bytes = lent.encode().unwrap();
        assert_eq!(Lent::decode(&bytes), Some(lent.clone()));
        assert_eq!(Lent::decode(&bytes[..20]), None);
        let mapped = Direct::new(true).map(&lent, &away).unwrap();
        mapped.write(&[7; 70_000]).unwrap();
        assert_eq!(memory.to_vec().unwrap()[4096..4099], [0, 7, 7]);
        let plain = Buffer::<u8>::new(&Device::Host, Space::Host, 100).unwrap();
        assert_eq!(Lent::new(&mut Away::new(Where::Buffer(plain)), 1, true), None);
    }
}
