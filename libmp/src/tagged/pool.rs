//! Room for requests. An entry stays where it is and is written field by field, so that a message costs neither an allocation nor copies of
//! what is large; its number says whose it is. Nothing here knows what a request does.

use std::ops::{Index, IndexMut};

use super::engine::Entry;

/// Names a request of a [`Tagged`](super::Tagged): what is left of one in a handle of C's. The request is over when somebody has been told so.
///
/// See [`Tagged::start_send`](super::Tagged::start_send) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub(super) key: usize,
    pub(super) number: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Pool {
    entries: Vec<Entry>,
    free: Vec<usize>,
    /// Of the last request.
    number: u64,
}

impl Pool {
    /// Room for a request, all but whose number is to be written.
    #[inline]
    pub fn take(&mut self) -> (Ticket, &mut Entry) {
        let key = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            self.entries.len() - 1
        });
        self.number += 1;
        let entry = &mut self.entries[key];
        entry.number = self.number;
        (Ticket { key, number: self.number }, entry)
    }

    /// The request is over, and its memory let go.
    #[inline]
    pub fn give_back(&mut self, key: usize) {
        let entry = &mut self.entries[key];
        entry.number = 0;
        entry.memory.let_go();
        entry.abandoned = false;
        self.free.push(key);
    }

    /// One that is not over.
    #[inline]
    pub fn get(&self, ticket: Ticket) -> Option<&Entry> {
        self.entries.get(ticket.key).filter(|entry| entry.number == ticket.number)
    }

    /// One that is not over, by the half of its number that other ranks are told.
    pub fn told(&mut self, key: usize, number: u64) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(key)?;
        (entry.number != 0 && entry.number & 0xffff_ffff == number).then_some(entry)
    }

    /// All that are not over.
    pub fn drain(&mut self) -> impl Iterator<Item = Entry> {
        self.free.clear();
        self.entries.drain(..).filter(|entry| entry.number != 0)
    }
}

impl Index<usize> for Pool {
    type Output = Entry;

    #[inline]
    fn index(&self, key: usize) -> &Entry {
        &self.entries[key]
    }
}

impl IndexMut<usize> for Pool {
    #[inline]
    fn index_mut(&mut self, key: usize) -> &mut Entry {
        &mut self.entries[key]
    }
}
