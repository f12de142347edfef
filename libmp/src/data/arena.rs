//! A rank's arena: the shared memory through which its neighbours tell it things. Its mailboxes, one for each neighbour in rank
//! order.

use gdsync::{Buffer, Device, PeerHandle, PeerMemory, Space};

use super::mailbox::{self, Mailbox};
use crate::error::{Error, Result};

/// An arena as its owner or a neighbour sees it.
pub(crate) struct Arena {
    memory: Buffer<u8>,
}

impl Arena {
    /// An arena for a rank with so many neighbours (itself included).
    pub fn create(neighbours: usize) -> Result<Arena> {
        let memory = Buffer::new(&Device::Host, Space::Pinned, size(neighbours))
            .map_err(failed("making this rank's arena"))?;
        Ok(Arena { memory })
    }

    /// The arena of a neighbour.
    pub fn map(handle: &PeerHandle, neighbours: usize) -> Result<Arena> {
        let op = "mapping a neighbour's arena";
        let memory = PeerMemory::map(handle, &Device::Host).map_err(failed(op))?.buffer;
        if memory.len() != size(neighbours) {
            let (left, right) = (size(neighbours), memory.len());
            let source = gdsync::Error::LengthMismatch { what: "an arena", left, right };
            return Err(Error::Memory { op: op.into(), source });
        }
        Ok(Arena { memory })
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
}

/// Where the mailbox that neighbour number `writer` writes to begins.
fn mailbox_at(writer: usize) -> usize {
    writer * mailbox::SIZE
}

fn size(neighbours: usize) -> usize {
    mailbox_at(neighbours)
}

fn failed(op: &'static str) -> impl FnOnce(gdsync::Error) -> Error {
    move |source| Error::Memory { op: op.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mailboxes_of_a_mapped_arena_are_the_owners_and_do_not_overlap() {
        let own = Arena::create(2).unwrap();
        let other = Arena::map(&own.export().unwrap(), 2).unwrap();
        for writer in 0..2 {
            let (there, here) = (other.mailbox(writer).unwrap(), own.mailbox(writer).unwrap());
            while there.put(&[255; mailbox::BLOB]).unwrap() {}
            assert_eq!(here.take().unwrap().unwrap(), [255; mailbox::BLOB]);
        }
        assert!(Arena::map(&own.export().unwrap(), 3).is_err());
    }
}
