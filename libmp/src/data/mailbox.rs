//! A mailbox: a bounded queue of small blobs in the reader's memory, one writer, one reader, any two processes. The writer
//! has the memory mapped, or writes it through a NIC (`transport::Outbox`). It only moves bytes; what they mean is the notices'
//! business.

use gdsync::{Buffer, Word64};

use super::positions::Positions;
use crate::error::{Error, Result};

/// Bytes of a slot: a length (u64) and the blob.
pub(crate) const SLOT: usize = 512;
/// Longest blob.
pub(crate) const BLOB: usize = SLOT - 8;
/// Slots of a mailbox.
pub(crate) const SLOTS: usize = 32;
/// The two counters have a cache line each, so that reader and writer do not disturb each other.
const LINE: usize = 64;
/// Where the count of blobs put in is.
pub(crate) const PUT: usize = 0;
/// Where the count of blobs taken is.
const TAKEN: usize = LINE;
/// Where the writer of this mailbox says how many blobs of its owner *it* has taken, if it cannot be looked at: over a NIC.
pub(crate) const ECHO: usize = 2 * LINE;
const HEAD: usize = 3 * LINE;
/// Size of a mailbox in bytes.
pub(crate) const SIZE: usize = HEAD + SLOTS * SLOT;

/// Where the slot of blob `number` is.
pub(crate) fn slot_at(number: u64) -> usize {
    HEAD + (number % SLOTS as u64) as usize * SLOT
}

/// One side of a mailbox.
pub(crate) struct Mailbox {
    /// How many blobs were ever put in; written by the writer.
    put: Word64,
    /// How many were ever taken; written by the reader.
    taken: Word64,
    /// How many blobs of this mailbox's owner its writer has taken, over a NIC.
    echo: Word64,
    memory: Buffer<u8>,
}

impl Mailbox {
    /// A view of the mailbox in `memory`, which is zero before its first use.
    pub fn new(memory: &Buffer<u8>) -> Result<Mailbox> {
        let failed = |source| Error::Memory { op: "opening a mailbox".into(), source };
        let words = memory.slice(0..HEAD).and_then(|head| head.cast::<u64>()).map_err(failed)?;
        let word = |at: usize| words.word(at / 8).map_err(failed);
        let memory = memory.slice(0..SIZE).map_err(failed)?;
        Ok(Mailbox { put: word(PUT)?, taken: word(TAKEN)?, echo: word(ECHO)?, memory })
    }

    /// How many blobs were ever taken out.
    pub fn taken(&self) -> u64 {
        self.taken.load().unwrap_or_default()
    }

    /// The word [`ECHO`].
    pub fn echo(&self) -> &Word64 {
        &self.echo
    }

    /// Puts a blob in; false if there is no room now.
    pub fn put(&self, blob: &[u8]) -> Result<bool> {
        let positions = self.positions()?;
        let Some(number) = positions.vacant(SLOTS as u64) else { return Ok(false) };
        let slot = self.slot(number)?;
        let failed = |source| Error::Memory { op: "writing to a mailbox".into(), source };
        slot.slice(0..8)
            .and_then(|head| head.write(&(blob.len() as u64).to_le_bytes()))
            .and_then(|()| slot.slice(8..8 + blob.len())?.write(blob))
            .map_err(failed)?;
        positions.publish(number);
        Ok(true)
    }

    /// Whether there is something to take.
    pub fn is_empty(&self) -> bool {
        self.put.load() == self.taken.load()
    }

    /// Takes the oldest blob out.
    pub fn take(&self) -> Result<Option<Vec<u8>>> {
        let positions = self.positions()?;
        let Some(number) = positions.ready() else { return Ok(None) };
        let failed = |source| Error::Memory { op: "reading a mailbox".into(), source };
        let bytes = self.slot(number)?.to_vec().map_err(failed)?;
        positions.release(number);
        let blob = bytes.split_first_chunk().and_then(|(length, rest)| {
            rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)
        });
        match blob {
            Some(blob) => Ok(Some(blob.to_vec())),
            None => Err(Error::Memory {
                op: "reading a mailbox".into(),
                source: gdsync::Error::OutOfRange {
                    what: "a blob longer than its slot",
                    offset: 8,
                    len: SLOT,
                    size: SLOT,
                },
            }),
        }
    }

    fn positions(&self) -> Result<Positions<'_>> {
        match (self.put.atomic(), self.taken.atomic()) {
            (Some(put), Some(taken)) => Ok(Positions { put, taken }),
            _ => Err(unreachable()),
        }
    }

    fn slot(&self, number: u64) -> Result<Buffer<u8>> {
        let at = slot_at(number);
        let failed = |source| Error::Memory { op: "opening a slot of a mailbox".into(), source };
        self.memory.slice(at..at + SLOT).map_err(failed)
    }
}

fn unreachable() -> Error {
    Error::Memory {
        op: "opening a mailbox".into(),
        source: gdsync::Error::NotReachable {
            what: "a mailbox",
            memory: "an arena".into(),
            place: "the CPU".into(),
            hint: "arenas are host memory",
        },
    }
}

/// A neighbour that writes anything into the mailbox that it shares with us, and what is in it then as notices.
#[cfg(any(test, fuzzing))]
pub fn fuzz(data: &[u8]) {
    use super::notice::Notice;

    thread_local! {
        static MEMORY: Buffer<u8> =
            Buffer::new(&gdsync::Device::Host, gdsync::Space::Pinned, SIZE).expect("memory");
    }
    MEMORY.with(|memory| {
        let mut bytes = vec![0; SIZE];
        // The counters' low bytes, then the slots: the rest of the head is never read.
        let (head, slots) = data.split_at(data.len().min(4));
        for (at, byte) in head.iter().enumerate() {
            bytes[at % 2 + at / 2 * LINE] = *byte;
        }
        let count = slots.len().min(SLOTS * SLOT);
        bytes[HEAD..HEAD + count].copy_from_slice(&slots[..count]);
        memory.write(&bytes).expect("host memory is writable");
        let mailbox = Mailbox::new(memory).expect("a mailbox");
        for _ in 0..2 * SLOTS {
            match mailbox.take() {
                Ok(Some(blob)) => {
                    if let Some(notice) = Notice::decode(&blob) {
                        let again = notice.encode().map(|blob| Notice::decode(&blob));
                        assert!(again.is_err() || again.ok() == Some(Some(notice)));
                    }
                }
                Ok(None) => break,
                Err(_) => {}
            }
        }
        let _ = mailbox.put(slots.get(..BLOB).unwrap_or(slots)).expect("host memory");
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use gdsync::{Device, Space};

    fn mailbox() -> Buffer<u8> {
        Buffer::new(&Device::Host, Space::Pinned, SIZE).unwrap()
    }

    #[test]
    fn blobs_come_out_in_order_and_a_full_mailbox_says_so() {
        let memory = mailbox();
        let (writer, reader) = (Mailbox::new(&memory).unwrap(), Mailbox::new(&memory).unwrap());
        for round in 0..5u8 {
            assert!(reader.is_empty());
            let mut count = 0u8;
            while writer.put(&vec![round; count as usize * 15]).unwrap() {
                count += 1;
            }
            assert_eq!(count as usize, SLOTS);
            for number in 0..count {
                let blob = reader.take().unwrap().unwrap();
                assert_eq!(blob, vec![round; number as usize * 15]);
            }
            assert_eq!(reader.take().unwrap(), None);
        }
    }

    #[test]
    fn a_reader_in_another_thread_sees_whole_blobs_only() {
        let memory = mailbox();
        let (writer, reader) = (Mailbox::new(&memory).unwrap(), Mailbox::new(&memory).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..20_000u64 {
                    let blob = [number.to_le_bytes(); 40].concat();
                    while !writer.put(&blob).unwrap() {
                        std::thread::yield_now();
                    }
                }
            });
            for number in 0..20_000u64 {
                let blob = loop {
                    match reader.take().unwrap() {
                        Some(blob) => break blob,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(blob, [number.to_le_bytes(); 40].concat());
            }
        });
    }

    #[test]
    fn a_damaged_length_is_an_error() {
        let memory = mailbox();
        let mailbox = Mailbox::new(&memory).unwrap();
        assert!(mailbox.put(b"x").unwrap());
        memory.slice(HEAD..HEAD + 8).unwrap().write(&[255; 8]).unwrap();
        assert!(mailbox.take().is_err());
    }
}
