//! Room for requests. An entry stays where it is and is written field by field, so that a message costs neither an allocation nor copies of
//! what is large; its number says whose it is. Nothing here knows what a request does.

use std::ops::{Index, IndexMut};

use super::engine::Entry;

/// Names a request of a [`Tagged`](super::Tagged): what is left of one in a handle of C's. The request is over when somebody has been told so.
///
/// See [`Tagged::start_send`](super::Tagged::start_send) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

impl Ticket {
    /// Of no request.
    pub(super) const NOBODYS: Ticket = Ticket(0);

    /// A number for it: never 0, the upper half counts requests and the lower one says which of those under way it is, so that it is
    /// small.
    ///
    /// ```
    /// # use std::ptr::NonNull;
    /// # use libmp::tagged::{Options, Ticket};
    /// # use libmp::World;
    /// # fn main() -> libmp::Result<()> {
    /// # let world = World::init()?;
    /// # let messages = world.tagged(&Options::default())?;
    /// let mut to = [0u8; 8];
    /// // SAFETY: the request is dropped before the bytes.
    /// let ticket = unsafe { messages.start_recv((NonNull::from(&mut to).cast(), 8), world.rank(), 7)? };
    /// assert_eq!(Ticket::from_bits(ticket.to_bits()), ticket);
    /// drop(messages.request(ticket)?);
    /// # world.finish()
    /// # }
    /// ```
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The ticket of a [number](Self::to_bits). One that no request under way has is of a request that is over.
    #[inline]
    pub fn from_bits(bits: u64) -> Ticket {
        Ticket(bits)
    }

    /// Where the request is.
    #[inline]
    pub(super) fn key(self) -> usize {
        self.0 as u32 as usize
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Pool {
    entries: Vec<Entry>,
    free: Vec<usize>,
    /// How many requests there were.
    count: u32,
}

impl Pool {
    /// Room for a request, all of which but its ticket is to be written.
    #[inline]
    pub fn take(&mut self) -> (Ticket, &mut Entry) {
        let key = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            self.entries.len() - 1
        });
        // Never 0: nobody's.
        self.count = self.count.checked_add(1).unwrap_or(1);
        let ticket = Ticket(u64::from(self.count) << 32 | key as u64);
        let entry = &mut self.entries[key];
        entry.ticket = ticket;
        (ticket, entry)
    }

    /// The request is over, and its memory let go.
    #[inline]
    pub fn give_back(&mut self, key: usize) {
        let entry = &mut self.entries[key];
        entry.ticket = Ticket::NOBODYS;
        entry.memory.let_go();
        entry.abandoned = false;
        self.free.push(key);
    }

    /// One that is not over.
    #[inline]
    pub fn get(&self, ticket: Ticket) -> Option<&Entry> {
        let entry = self.entries.get(ticket.key())?;
        (entry.ticket == ticket && ticket != Ticket::NOBODYS).then_some(entry)
    }

    /// One that is not over, as another rank was told it.
    pub fn told(&mut self, word: u64) -> Option<&mut Entry> {
        let ticket = Ticket::from_bits(word);
        self.get(ticket)?;
        self.entries.get_mut(ticket.key())
    }

    /// All that are not over.
    pub fn drain(&mut self) -> impl Iterator<Item = Entry> {
        self.free.clear();
        self.entries.drain(..).filter(|entry| entry.ticket != Ticket::NOBODYS)
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
