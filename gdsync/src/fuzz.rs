//! Where fuzzing enters: one function for each kind of bytes that come from elsewhere. They take anything, and panic only if
//! something is wrong. The targets in `fuzz/` call them with what libFuzzer makes up; the tests below with the corpus that
//! this found, on every machine.

use crate::nic::Address;
use crate::nic::soft::address::QueuePairAddress;
pub use crate::nic::soft::fuzz::{connection, queues, shared_ring, tcp_parts, tcp_stream};
use crate::peer::PeerHandle;
use crate::wqe::{Cqe, Entry, ReceiveEntry, ReceiveRing, SendRing};
use zerocopy::FromBytes;

/// Entries, completions and rings in the formats of mlx5: decoding takes any bytes, and what was decoded encodes to
/// something that decodes to the same.
pub fn formats(data: &[u8]) {
    let (octowords, rest) = data.as_chunks::<16>();
    if let Some(entry) = Entry::from_octowords(&octowords[..octowords.len().min(63)])
        && let Ok(request) = entry.decode()
    {
        let mut again = Entry::new();
        if again.encode(&request).is_ok() {
            assert_eq!(again.decode().as_ref(), Ok(&request));
        }
    }
    if let Ok((cqe, _)) = Cqe::read_from_prefix(data)
        && let Ok(completion) = cqe.decode()
    {
        let again = Cqe::encode(&completion, cqe.owner());
        assert_eq!(again.and_then(|cqe| cqe.decode()), Ok(completion));
    }
    let index = rest.first().map_or(0, |&byte| u16::from(byte) * 257);
    // A queue of 4 blocks, as the bytes fill it.
    let mut ring = [[0; 16]; 16];
    ring.iter_mut().zip(octowords).for_each(|(to, from)| *to = *from);
    if let Ok(sends) = SendRing::new(&ring[..]) {
        let mut entry = Entry::new();
        if sends.fetch(0x40, index, &mut entry).is_ok() {
            let _ = entry.decode();
        }
    }
    for stride in [1, 2, 4] {
        if let Ok(receives) = ReceiveRing::new(&ring[..], stride) {
            let mut entry = ReceiveEntry::new();
            if receives.fetch(index, &mut entry).is_ok() {
                assert!(entry.segments().len() <= stride);
            }
        }
    }
}

/// Addresses and handles as peers send them.
pub fn addresses(data: &[u8]) {
    if let Ok(address) = postcard::from_bytes::<QueuePairAddress>(data) {
        let bytes = postcard::to_stdvec(&address).unwrap_or_default();
        assert_eq!(postcard::from_bytes(&bytes), Ok(address));
    }
    if let Ok(address) = postcard::from_bytes::<Address>(data) {
        let bytes = postcard::to_stdvec(&address).unwrap_or_default();
        assert_eq!(postcard::from_bytes(&bytes), Ok(address));
    }
    if let Ok(handle) = postcard::from_bytes::<PeerHandle>(data) {
        let bytes = postcard::to_stdvec(&handle).unwrap_or_default();
        assert_eq!(postcard::from_bytes(&bytes), Ok(handle));
    }
}

#[cfg(test)]
mod tests {
    /// Gives every file of a target's corpus to its function.
    fn replay(target: &str, function: fn(&[u8])) {
        let folder = format!("../fuzz/corpus/{target}");
        let mut files = 0;
        for entry in std::fs::read_dir(&folder).expect("the corpus is part of the sources") {
            function(&std::fs::read(entry.unwrap().path()).unwrap());
            files += 1;
        }
        assert!(files >= 5, "{folder} has {files} files");
    }

    #[test]
    fn the_corpus_of_formats_is_taken() {
        replay("formats", super::formats);
    }

    #[test]
    fn the_corpus_of_addresses_is_taken() {
        replay("addresses", super::addresses);
    }

    #[test]
    fn the_corpus_of_queues_is_taken() {
        replay("queues", super::queues);
    }

    #[test]
    fn the_corpus_of_connections_is_taken() {
        replay("connection", super::connection);
    }

    #[test]
    fn the_corpus_of_the_shared_ring_is_taken() {
        replay("shared_ring", super::shared_ring);
    }

    #[test]
    fn the_corpus_of_the_tcp_stream_is_taken() {
        replay("tcp_stream", super::tcp_stream);
    }

    #[test]
    fn the_corpus_of_large_frames_in_parts_is_taken() {
        replay("tcp_parts", super::tcp_parts);
    }
}
