//! A message's way through the NIC.

use std::sync::Arc;

use gdsync::mlx5::RemoteAddress;
use gdsync::nic::Result;
use gdsync::nic::soft::{Access, Region};
use gdsync::{Buffer, Word64};

use super::Place;
use super::link::{Link, Post};
use crate::data::half::Side;
use crate::data::operation::Name;
use crate::data::plane::Plane;

/// What a side has registered before the other is known.
pub(crate) struct Ends {
    side: Side,
    /// The message's memory, if it has bytes.
    memory: Option<Region>,
    /// Of a send.
    pub mirror: Option<Mirror>,
}

/// The word in which a sender sees the arrivals that it has written.
pub(crate) struct Mirror {
    pub word: Word64,
    pub index: u32,
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
                Some(Mirror { word, index: name.index })
            }
        };
        Ok(Ends { side, memory: region, mirror })
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
    word_index: u32,
    /// Of a send: where to.
    target: Option<RemoteAddress>,
    len: u64,
}

impl MessageWay {
    pub fn new(
        link: Arc<Link>,
        word: RemoteAddress,
        mirror: Option<&Mirror>,
        target: Option<Place>,
        len: u64,
    ) -> MessageWay {
        let target = target.map(|place| place.after(0));
        let word_index = mirror.map_or(0, |mirror| mirror.index);
        MessageWay { link, word, word_index, target, len }
    }

    /// Calls `go` with the requests of a start whose word gets `value`.
    pub fn with_posts<R>(
        &self,
        plane: &Plane,
        ends: &Ends,
        value: u64,
        go: impl FnOnce(&[Post<'_>]) -> R,
    ) -> R {
        let value = value.to_le_bytes();
        let signal = Post::Inline { bytes: &value, to: self.word };
        let (Side::Send, Some((arena, at))) = (ends.side, plane.arena_word(self.word_index)) else {
            return go(&[signal]);
        };
        let mirror = Post::Read { from: self.word, into: arena, at, len: 8 };
        match (&ends.memory, self.target) {
            (Some(from), Some(to)) => {
                go(&[Post::Write { from, len: self.len, to }, signal, mirror])
            }
            _ => go(&[signal, mirror]),
        }
    }

    /// Does a start from the host; false if there is no room now.
    pub fn hand(&self, plane: &Plane, ends: &Ends, value: u64) -> Result<bool> {
        self.with_posts(plane, ends, value, |posts| Ok(self.link.post(posts)?.is_some()))
    }
}
