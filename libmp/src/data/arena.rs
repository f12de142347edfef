//! A rank's arena: the shared memory through which its neighbours reach it. First its mailboxes, one for each neighbour in
//! rank order, then its words, each on a cache line of its own.

use gdsync::{Buffer, Device, PeerHandle, PeerMemory, Space, Word64};

use super::mailbox::{self, Mailbox};
use super::word::WORDS;
use crate::error::{Error, Result};

const LINE: usize = 64;

/// An arena as its owner or a neighbour sees it, for one device.
#[derive(Clone)]
pub(crate) struct Arena {
    memory: Buffer<u8>,
    mailboxes: usize,
}

impl Arena {
    /// An arena for a rank with so many neighbours (itself included).
    pub fn create(neighbours: usize) -> Result<Arena> {
        let memory = Buffer::new(&Device::Host, Space::Pinned, size(neighbours))
            .map_err(failed("making this rank's arena"))?;
        Ok(Arena { memory, mailboxes: neighbours })
    }

    /// The arena of a neighbour, or the own one for a GPU.
    pub fn map(handle: &PeerHandle, neighbours: usize, device: &Device) -> Result<Arena> {
        let op = "mapping a neighbour's arena";
        let memory = PeerMemory::map(handle, device).map_err(failed(op))?.buffer;
        if memory.len() != size(neighbours) {
            let (left, right) = (size(neighbours), memory.len());
            let source = gdsync::Error::LengthMismatch { what: "an arena", left, right };
            return Err(Error::Memory { op: op.into(), source });
        }
        Ok(Arena { memory, mailboxes: neighbours })
    }

    pub fn export(&self) -> Result<PeerHandle> {
        self.memory.export().map_err(failed("exporting this rank's arena"))
    }

    /// The mailbox that neighbour number `writer` writes to.
    pub fn mailbox(&self, writer: usize) -> Result<Mailbox> {
        let at = mailbox_at(writer);
        let memory = self.memory.slice(at..at + mailbox::SIZE);
        Mailbox::new(&memory.map_err(failed("opening a mailbox"))?)
    }

    /// The memory, for a NIC.
    pub fn memory(&self) -> &Buffer<u8> {
        &self.memory
    }

    /// Word number `index`.
    pub fn word(&self, index: u32) -> Result<Word64> {
        let at = word_at(self.mailboxes, index);
        let line = self.memory.slice(at..at + 8).and_then(|line| line.cast::<u64>()?.word(0));
        line.map_err(failed("opening a word of an arena"))
    }
}

/// Where the mailbox that neighbour number `writer` writes to begins.
pub(crate) fn mailbox_at(writer: usize) -> usize {
    writer * mailbox::SIZE
}

/// Where word number `index` is, behind so many mailboxes.
pub(crate) fn word_at(mailboxes: usize, index: u32) -> usize {
    mailboxes * mailbox::SIZE + index as usize * LINE
}

fn size(neighbours: usize) -> usize {
    word_at(neighbours, WORDS)
}

fn failed(op: &'static str) -> impl FnOnce(gdsync::Error) -> Error {
    move |source| Error::Memory { op: op.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_mailboxes_of_a_mapped_arena_are_the_owners_and_do_not_overlap() {
        let own = Arena::create(2).unwrap();
        let other = Arena::map(&own.export().unwrap(), 2, &Device::Host).unwrap();
        for index in [0, 1, WORDS - 1] {
            other.word(index).unwrap().store(u64::MAX).unwrap();
        }
        for writer in 0..2 {
            let (there, here) = (other.mailbox(writer).unwrap(), own.mailbox(writer).unwrap());
            while there.put(&[255; mailbox::BLOB]).unwrap() {}
            assert_eq!(here.take().unwrap().unwrap(), [255; mailbox::BLOB]);
        }
        for (index, value) in [(0, u64::MAX), (1, u64::MAX), (2, 0), (WORDS - 1, u64::MAX)] {
            assert_eq!(own.word(index).unwrap().load(), Some(value));
        }
        assert!(own.word(WORDS).is_err());
        assert!(Arena::map(&own.export().unwrap(), 3, &Device::Host).is_err());
    }
}
