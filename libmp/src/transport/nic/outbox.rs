//! The writer's side of a mailbox that is reached through a link.

use std::sync::Arc;

use gdsync::Word64;
use gdsync::nic::Result;

use super::Place;
use super::link::{Link, Post};
use crate::data::mailbox::{ECHO, PUT, SLOT, SLOTS, slot_at};

/// A mailbox in a peer's memory.
pub(crate) struct Outbox {
    link: Arc<Link>,
    /// Where it begins.
    mailbox: Place,
    put: u64,
    /// How many of the blobs the peer has taken; the peer writes it.
    taken: Word64,
    /// How many of the peer's blobs it was told to be taken.
    echoed: u64,
}

impl Outbox {
    pub fn new(link: Arc<Link>, mailbox: Place, taken: Word64) -> Outbox {
        Outbox { link, mailbox, put: 0, taken, echoed: 0 }
    }

    /// Puts a blob, which fits a slot, in; false if there is no room now.
    pub fn put(&mut self, blob: &[u8]) -> Result<bool> {
        let taken = self.taken.load().unwrap_or_default();
        if self.put.wrapping_sub(taken) >= SLOTS as u64 {
            return Ok(false);
        }
        let mut slot = [0; SLOT];
        slot[..8].copy_from_slice(&(blob.len() as u64).to_le_bytes());
        slot[8..8 + blob.len()].copy_from_slice(blob);
        let count = (self.put + 1).to_le_bytes();
        // In the order of the queue: whoever sees the count sees the blob.
        let posted = self.link.post(&[
            Post::Inline {
                bytes: &slot[..8 + blob.len()],
                to: self.mailbox.after(slot_at(self.put)),
            },
            Post::Inline { bytes: &count, to: self.mailbox.after(PUT) },
        ])?;
        self.put += u64::from(posted.is_some());
        Ok(posted.is_some())
    }

    /// Tells the peer how many of its blobs were taken here; false if that cannot be told now.
    pub fn echo(&mut self, taken: u64) -> Result<bool> {
        if taken == self.echoed {
            return Ok(true);
        }
        let count = taken.to_le_bytes();
        let echo = [Post::Inline { bytes: &count, to: self.mailbox.after(ECHO) }];
        let posted = self.link.post(&echo)?.is_some();
        if posted {
            self.echoed = taken;
        }
        Ok(posted)
    }
}
