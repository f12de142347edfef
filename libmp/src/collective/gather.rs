//! Several blobs as one: the result of an all-gather. Each is its length (u32 LE) and its bytes, in rank order.

use std::sync::Arc;

use crate::control::message::Payload;

pub(crate) fn encode<'a>(blobs: impl Iterator<Item = &'a Payload>) -> Payload {
    let mut bytes = Vec::new();
    for blob in blobs {
        // A blob is at most 1 MiB: the decoder of the frame that brought it has seen to that.
        bytes.extend_from_slice(&(blob.len() as u32).to_le_bytes());
        bytes.extend_from_slice(blob);
    }
    Arc::from(bytes)
}

/// The blobs; `None` if the bytes are not exactly `count` of them.
pub(crate) fn decode(mut bytes: &[u8], count: usize) -> Option<Vec<Vec<u8>>> {
    let mut blobs = Vec::new();
    for _ in 0..count {
        let (length, rest) = bytes.split_first_chunk()?;
        let (blob, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        blobs.push(blob.to_vec());
        bytes = rest;
    }
    bytes.is_empty().then_some(blobs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gathered_blobs_come_apart_as_they_were(blobs: Vec<Vec<u8>>) {
            let payloads: Vec<Payload> = blobs.iter().map(|blob| Arc::from(&blob[..])).collect();
            let bytes = encode(payloads.iter());
            prop_assert_eq!(decode(&bytes, blobs.len()), Some(blobs.clone()));
            prop_assert_eq!(decode(&bytes, blobs.len() + 1), None);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, count in 0..10usize) {
            let _ = decode(&bytes, count);
        }
    }
}
