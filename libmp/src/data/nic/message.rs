//! A message's way through the NIC.

use std::sync::Arc;

use gdsync::nic::{Access, MemoryRegion, Result};
use gdsync::wqe::RemoteAddress;
use gdsync::{Buffer, Word64};

use super::Place;
use super::link::{Link, Post};
use crate::data::half::Side;
use crate::data::notice::WordName;
use crate::data::operation::Name;
use crate::data::plane::Plane;

/// What a side has registered before the other is known.
pub(crate) struct Ends {
    /// The message's memory, if it has bytes.
    memory: Option<MemoryRegion>,
    /// Of a send.
    pub mirror: Option<Mirror>,
}

/// The word in which a sender sees how many of its messages have arrived. As every word it only grows, also from use to
/// use: a stream may look at it after it was given to another send.
pub(crate) struct Mirror {
    pub word: Word64,
    pub name: WordName,
}

impl Ends {
    /// Registers the memory and, for a send, takes a word for the mirror.
    pub fn new(plane: &Plane, side: Side, memory: &Buffer<u8>, name: &Name) -> crate::Result<Ends> {
        let op = || name.to_string();
        let access = match side {
            Side::Send => Access::LOCAL_READ,
            Side::Recv => Access::REMOTE_WRITE,
        };
        let region = plane.register(memory, access, op)?;
        let mirror = match side {
            Side::Recv => None,
            Side::Send => {
                let (word, name) = plane.take_word(memory.device(), op)?;
                Some(Mirror { word, name })
            }
        };
        Ok(Ends { memory: region, mirror })
    }

    /// What the peer writes to.
    pub fn target(&self) -> Option<Place> {
        self.memory.as_ref().map(Place::of)
    }
}

/// The way to the other side.
pub(crate) struct MessageWay {
    pub link: Arc<Link>,
    /// The peer's word.
    word: RemoteAddress,
    word_base: u64,
    /// Of a send: where to.
    target: Option<RemoteAddress>,
    len: u64,
}

impl MessageWay {
    pub fn new(
        link: Arc<Link>,
        word: RemoteAddress,
        word_base: u64,
        target: Option<Place>,
        len: u64,
    ) -> MessageWay {
        let target = target.map(|place| place.after(0));
        MessageWay { link, word, word_base, target, len }
    }

    /// Calls `go` with the requests of start number `epoch`.
    pub fn with_posts<R>(
        &self,
        plane: &Plane,
        ends: &Ends,
        epoch: u64,
        go: impl FnOnce(&[Post<'_>]) -> R,
    ) -> R {
        let value = self.word_base.wrapping_add(epoch).to_le_bytes();
        let signal = Post::Inline { bytes: &value, to: self.word };
        let Some(name) = ends.mirror.as_ref().map(|mirror| mirror.name) else {
            return go(&[signal]);
        };
        // A mirror is in this rank's arena, which is registered.
        let Some((into, at)) = plane.arena_word(name.index) else { return go(&[signal]) };
        // The rest of the line of the peer's word is this send's until it is complete.
        let through = Place::at(self.word).after(8);
        let echo = Post::Echo { value: name.base.wrapping_add(epoch), through, into, at };
        match (&ends.memory, self.target) {
            (Some(from), Some(to)) => go(&[Post::Write { from, len: self.len, to }, signal, echo]),
            _ => go(&[signal, echo]),
        }
    }

    /// Does a start from the host; false if there is no room now.
    pub fn hand(&self, plane: &Plane, ends: &Ends, epoch: u64) -> Result<bool> {
        self.with_posts(plane, ends, epoch, |posts| Ok(self.link.post(posts)?.is_some()))
    }
}
