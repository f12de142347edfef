//! The way between a device's memory and rings that can be pinned: a stream of the sender's device copies straight into the bulk ring of a rank that is
//! mapped here, and a stream of the receiver's device out of it, whoever has written it. Between ranks of a host no CPU touches the bytes. Room in a ring is reserved when a copy into it begins, and published when that has
//! ended; it is claimed when a copy out of it begins, and given back when that has ended. Both are in order, message by message.

use gdsync::Buffer;

use super::engine::Way;
use super::rings::Rings;
use super::staging::{Away, IN_FLIGHT, Staging, Where};
use crate::error::Result;

/// Rings of this rank and of others that devices reach, or cannot.
#[derive(Default)]
pub(super) struct Pinned {
    known: Vec<(Key, Option<Buffer<u8>>)>,
}

/// A device, and the ring's address in this process.
type Key = (Option<u32>, usize);

impl Pinned {
    /// The ring as it is reached by the device of a memory; `None` where that cannot be.
    pub fn of(
        &mut self,
        memory: &Where,
        ring: impl FnOnce() -> Option<Buffer<u8>>,
    ) -> Option<Buffer<u8>> {
        let Where::Buffer(memory) = memory else { return None };
        let (device, ring) = (memory.device(), ring()?);
        let address = ring.host_address()?;
        let key = (device.ordinal(), address.as_ptr() as usize);
        if let Some((_, known)) = self.known.iter().find(|(known, _)| *known == key) {
            return known.clone();
        }
        let len = ring.len();
        // SAFETY: the ring's bytes, which its buffer keeps.
        let pinned = unsafe { Buffer::from_host_memory(device, address, len, ring) };
        let pinned = pinned.inspect_err(|error| {
            tracing::info!(%device, %error, "messages of this device go through chunks");
        });
        let pinned = pinned.ok();
        self.known.push((key, pinned.clone()));
        pinned
    }
}

impl Staging {
    /// Goes on with a send whose bytes are wanted, by a ring that its device reaches: how many are there now.
    pub fn send_straight(
        &mut self,
        way: &Way<'_>,
        away: &mut Away,
        (ring, rings): (&Buffer<u8>, &mut Rings),
    ) -> Result<usize> {
        let failed = |source| way.call.failed(source);
        let there = self.done(away).map_err(failed)?;
        if there > 0 {
            rings.publish(way, there)?;
        }
        while away.begun < away.len()
            && away.copies.len() < IN_FLIGHT
            && away.is_free().map_err(failed)?
        {
            let chunk = self.chunk(&away.memory, true).map_err(failed)?;
            let Some((at, len)) = rings.reserve(way, chunk.min(away.len() - away.begun))? else {
                break;
            };
            let piece = ring.slice(at..at + len);
            let copied = piece.and_then(|piece| self.copy_straight(away, &piece, true));
            copied.inspect_err(|_| rings.unreserve(len)).map_err(failed)?;
        }
        Ok(there)
    }

    /// Goes on with a receive of `until` bytes, by a ring that its device reaches: whether something went on.
    pub fn receive_straight(
        &mut self,
        way: &Way<'_>,
        (away, until): (&mut Away, usize),
        (ring, rings): (&Buffer<u8>, &mut Rings),
    ) -> Result<bool> {
        let failed = |source| way.call.failed(source);
        let here = self.done(away).map_err(failed)?;
        if here > 0 {
            rings.release(way, here)?;
        }
        let before = away.begun;
        while away.begun < until
            && !away.dropped
            && away.copies.len() < IN_FLIGHT
            && away.is_free().map_err(failed)?
        {
            let chunk = self.chunk(&away.memory, false).map_err(failed)?;
            let Some((at, len)) = rings.claim(way, chunk.min(until - away.begun))? else { break };
            let piece = ring.slice(at..at + len);
            let copied = piece.and_then(|piece| self.copy_straight(away, &piece, false));
            copied.inspect_err(|_| rings.unclaim(len)).map_err(failed)?;
        }
        Ok(here > 0 || away.begun > before)
    }

    /// Takes out the copies that have ended, in order: how many bytes they were.
    fn done(&mut self, away: &mut Away) -> gdsync::Result<usize> {
        let mut bytes = 0;
        while self.is_first_done(away)?
            && let Some(copy) = away.copies.pop_front()
        {
            bytes += copy.len;
        }
        Ok(bytes)
    }
}
