//! What two ranks tell each other about their operations before the first message flies: the content of mailboxes.

use serde::{Deserialize, Serialize};

use super::mailbox::BLOB;
use crate::error::Error;
use crate::transport::EndNotice;
use crate::transport::nic::LinkAddress;

/// What a message is matched by: the communicator, the tag, and who uses the tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Key {
    pub group: u64,
    pub tag: u64,
    pub lane: Lane,
}

/// Whose tags these are: no collective gets in the way of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Lane {
    Message,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Notice {
    /// A send was prepared.
    Send { key: Key, end: EndNotice },
    /// A receive was prepared.
    Recv { key: Key, end: EndNotice },
    /// A stream, or kernels, of the sender of the notice need a queue pair.
    Link { number: u32, address: LinkAddress },
    /// It has one, or why not.
    Linked { number: u32, address: Result<LinkAddress, String> },
    /// The sender of the notice has dropped its side of the reader's window of that number.
    CloseWindow { number: u64 },
}

impl Notice {
    pub fn encode(&self) -> crate::Result<Vec<u8>> {
        let failed =
            |reason: String| Error::Mismatch { op: "preparing an operation".into(), reason };
        let blob = postcard::to_stdvec(self).map_err(|error| failed(error.to_string()))?;
        if blob.len() > BLOB {
            return Err(failed(format!(
                "its notice is {} bytes, more than the {BLOB} of a mailbox's slot",
                blob.len()
            )));
        }
        Ok(blob)
    }

    pub fn decode(blob: &[u8]) -> Option<Notice> {
        let (notice, rest) = postcard::take_from_bytes(blob).ok()?;
        rest.is_empty().then_some(notice)
    }
}

#[cfg(test)]
mod tests {
    use super::super::region::Pieces;
    use super::*;
    use crate::transport::nic::{Nic, Nics};
    use crate::transport::{MappedOpening, Opening};
    use gdsync::nic::WireKind;
    use gdsync::{Buffer, Device, Space};
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn a_notice_comes_back_as_it_was_and_fits_a_slot() {
        let memory = Buffer::<u8>::new(&Device::Host, Space::Pinned, 100).unwrap();
        let listen = Some(std::net::Ipv4Addr::LOCALHOST.into());
        let nic = Nics::default().of(0, (listen, None)).unwrap();
        let nic = Nic::new(nic, Duration::from_secs(1), None);
        let link =
            nic.host_link(&Pieces::default(), WireKind::SharedMemory).unwrap().link.address();
        let key = Key { group: u64::MAX, tag: u64::MAX, lane: Lane::Message };
        let mapped = Opening::Mapped(MappedOpening {
            state: memory.export().unwrap(),
            outer: memory.export().ok(),
            memory: memory.export().ok(),
            pieces: memory.export().ok(),
        });
        let end = EndNotice { len: u64::MAX, gpu: true, number: u32::MAX, opening: mapped };
        for notice in [
            Notice::Send { key, end: end.clone() },
            Notice::Recv { key, end },
            Notice::Link { number: u32::MAX, address: link.clone() },
            Notice::Linked { number: u32::MAX, address: Ok(link) },
            Notice::CloseWindow { number: u64::MAX },
        ] {
            let blob = notice.encode().unwrap();
            assert_eq!(Notice::decode(&blob), Some(notice));
            assert_eq!(Notice::decode(&blob[..blob.len() - 1]), None);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _ = Notice::decode(&bytes);
        }
    }
}
