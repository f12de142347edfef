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
pub(crate) fn decode(bytes: &[u8], count: usize) -> Option<Vec<Vec<u8>>> {
    Some(parts(bytes, count)?.into_iter().map(<[u8]>::to_vec).collect())
}

/// The blobs where they are.
pub(crate) fn parts(bytes: &[u8], count: usize) -> Option<Vec<&[u8]>> {
    let mut blobs = Vec::new();
    walk(bytes, count, |blob| blobs.push(blob)).then_some(blobs)
}

/// Whether the bytes are exactly `count` blobs.
pub(crate) fn are_parts(bytes: &[u8], count: usize) -> bool {
    walk(bytes, count, |_| ())
}

fn walk<'a>(mut bytes: &'a [u8], count: usize, mut each: impl FnMut(&'a [u8])) -> bool {
    for _ in 0..count {
        let Some((length, rest)) = bytes.split_first_chunk() else { return false };
        let length = u32::from_le_bytes(*length) as usize;
        let Some((blob, rest)) = rest.split_at_checked(length) else { return false };
        each(blob);
        bytes = rest;
    }
    bytes.is_empty()
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
            prop_assert!(are_parts(&bytes, blobs.len()) && !are_parts(&bytes, blobs.len() + 1));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, count in 0..10usize) {
            let _ = decode(&bytes, count);
        }
    }
}
