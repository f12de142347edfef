//! Messages between devices whose memories map each other, as GPUs with peer access: the sender lends its memory, and a stream of the receiver's device
//! copies out of that. No byte is in a ring, a chunk, or a CPU.
//!
//! The sender says where the memory is ([`Lent`]). If something has to be reached before it may be read, whoever wants it asks to be told
//! ([`LATER`](super::envelope::LATER)), and is ([`Envelope::Ready`](super::envelope::Envelope::Ready)). What the receiver cannot map it wants
//! through the ring, as it wants what was offered.

use std::collections::VecDeque;

use gdsync::{Buffer, Device, PeerHandle, PeerMemory, PeerPath};
use serde::{Deserialize, Serialize};

use super::envelope::{IN_LINES, INSIDE};
use super::staging::{Away, Where};

/// Mappings of other processes' memory that are kept for the next messages from there: to open one takes longer than to copy a megabyte. Few, for
/// what a process gives back meanwhile is the driver's again only when they are closed.
const KEPT: usize = 16;

/// Where a message is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lent {
    /// Number of the send.
    pub send: u64,
    /// It may be read.
    pub is_ready: bool,
    pub handle: PeerHandle,
}

impl Lent {
    /// For the memory of a send, if other devices may be able to map it; `here`: those of this process alone need to.
    pub fn new(away: &mut Away, send: u64, here: bool) -> Option<Lent> {
        let Where::Buffer(memory) = &away.memory else { return None };
        let handle = memory.export().ok().filter(|handle| here || handle.travels())?;
        let is_ready = away.is_free().ok()?;
        Some(Lent { send, is_ready, handle })
    }

    /// As it goes in a few lines; `None` if it takes more.
    pub fn encode(&self) -> Option<Vec<u8>> {
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
pub(super) struct Borrowed {
    /// Of the request.
    pub key: usize,
    pub from: usize,
    pub send: u64,
    pub is_ready: bool,
    pub theirs: Buffer<u8>,
}

/// What was mapped last.
#[derive(Default)]
pub(super) struct Mapped(VecDeque<Buffer<u8>>);

impl Mapped {
    /// The memory of a message for the device of a receive, if that maps it.
    pub fn of(&mut self, lent: &Lent, away: &Away) -> Option<Buffer<u8>> {
        let Where::Buffer(memory) = &away.memory else { return None };
        let device: &Device = memory.device();
        match PeerMemory::map(&lent.handle, device) {
            Ok(PeerMemory { buffer, path }) => {
                if path != PeerPath::SameProcess {
                    self.0.truncate(KEPT - 1);
                    self.0.push_front(buffer.clone());
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

#[cfg(test)]
mod tests {
    use gdsync::Space;

    use super::*;

    #[test]
    fn a_place_fits_a_few_lines_and_comes_out_of_them() {
        let memory = Buffer::<u8>::new(&Device::Host, Space::Pinned, 1 << 20).unwrap();
        let part = memory.slice(4097..4097 + 70_000).unwrap();
        let mut away = Away::new(Where::Buffer(part), None, None);
        let lent = Lent::new(&mut away, u64::MAX - 7, false).unwrap();
        assert!(lent.is_ready);
        let bytes = lent.encode().unwrap();
        assert_eq!(Lent::decode(&bytes), Some(lent.clone()));
        assert_eq!(Lent::decode(&bytes[..20]), None);
        let mapped = Mapped::default().of(&lent, &away).unwrap();
        mapped.write(&[7; 70_000]).unwrap();
        assert_eq!(memory.to_vec().unwrap()[4096..4099], [0, 7, 7]);
        let plain = Buffer::<u8>::new(&Device::Host, Space::Host, 100).unwrap();
        assert_eq!(Lent::new(&mut Away::new(Where::Buffer(plain), None, None), 1, true), None);
    }
}
