//! The writer's side of a mailbox that is reached through a link.

use std::sync::Arc;

use gdsync::Word64;

use super::Place;
use super::link::{Link, Post};
use crate::data::mailbox::{ECHO, PUT, SLOT, SLOTS, slot_at};
use crate::data::plane::Plane;
use crate::error::Result;
use crate::transport::Outbox;

/// A mailbox in a peer's memory.
pub(crate) struct FarOutbox {
    /// The peer's number among this rank's neighbours, and the way there.
    neighbour: usize,
    link: Arc<Link>,
    /// Where it begins.
    mailbox: Place,
    put: u64,
    /// How many of the blobs the peer has taken; the peer writes it.
    taken: Word64,
    /// How many of the peer's blobs it was told to be taken.
    echoed: u64,
}

impl FarOutbox {
    pub fn new(neighbour: usize, link: Arc<Link>, mailbox: Place, taken: Word64) -> FarOutbox {
        FarOutbox { neighbour, link, mailbox, put: 0, taken, echoed: 0 }
    }

    /// Posts to the mailbox; false if there is no room now, or the path has failed.
    fn post(&self, plane: &Plane, posts: &[Post<'_>]) -> bool {
        match self.link.post(posts) {
            Ok(posted) => posted.is_some(),
            Err(error) => {
                plane.path_failed(self.neighbour, &error);
                false
            }
        }
    }
}

impl Outbox for FarOutbox {
    fn put(&mut self, plane: &Plane, blob: &[u8]) -> Result<bool> {
        let taken = self.taken.load().unwrap_or_default();
        if self.put.wrapping_sub(taken) >= SLOTS as u64 {
            return Ok(false);
        }
        let mut slot = [0; SLOT];
        slot[..8].copy_from_slice(&(blob.len() as u64).to_le_bytes());
        slot[8..8 + blob.len()].copy_from_slice(blob);
        let (bytes, count) = (&slot[..8 + blob.len()], (self.put + 1).to_le_bytes());
        // In the order of the queue: whoever sees the count sees the blob.
        let posts = [
            Post::Inline { bytes, to: self.mailbox.after(slot_at(self.put)) },
            Post::Inline { bytes: &count, to: self.mailbox.after(PUT) },
        ];
        let posted = self.post(plane, &posts);
        self.put += u64::from(posted);
        Ok(posted)
    }

    fn echo(&mut self, plane: &Plane, taken: u64) {
        let (bytes, to) = (&taken.to_le_bytes(), self.mailbox.after(ECHO));
        if taken != self.echoed && self.post(plane, &[Post::Inline { bytes, to }]) {
            self.echoed = taken;
        }
    }
}
