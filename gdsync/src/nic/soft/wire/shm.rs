//! The wire within a host: two rings in shared memory, one for each direction, each owned by its reader.
//!
//! A ring is a sequence of records in a power of two of bytes: a word with the record's length, a frame's header, its
//! payload, padded to whole words. A record does not wrap; a mark sends the reader back to the beginning. The writer
//! publishes its cursor after the record, the reader its own after having taken it. The writer is another process:
//! the reader checks everything that it finds.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::frame::{Frame, HEADER};
use super::{Cut, PeerProcess, Sink, Wire};
use crate::device::Device;
use crate::error::Result;
use crate::memory::{Buffer, Space};
use crate::nic::soft::state::{Outgoing, Payload};
use crate::nic::words::Words;
use crate::peer::{PeerHandle, PeerMemory};

/// Bytes of records in a ring.
const RING: usize = 256 * 1024;
/// Payload of a frame on this wire.
const MAX_PAYLOAD: usize = 32 * 1024;
/// The largest record.
const MAX_RECORD: usize = 8 + HEADER + MAX_PAYLOAD;
/// Frames taken in one go.
const BATCH: usize = 64;
/// In the place of a length: go on at the beginning.
const WRAP: u64 = u64::MAX;

/// Word of the writer's cursor, of the reader's cursor, and of the flags; each on a cache line of its own.
const WRITTEN: usize = 0;
const READ: usize = 8;
const FLAGS: usize = 16;
/// First word of the records.
const RECORDS: usize = 32;

/// The writer has mapped the ring.
const ATTACHED: u32 = 1;
/// One side has gone.
const CLOSED: u32 = 2;

/// One direction.
#[derive(Clone)]
pub(crate) struct Ring {
    words: Words,
}

impl Ring {
    /// A new ring for this process to read.
    pub fn create() -> Result<Ring> {
        let memory = Buffer::new(&Device::Host, Space::Pinned, RECORDS + RING / 8)?;
        Ok(Ring { words: Words::new(memory)? })
    }

    /// A peer's ring, for this process to write.
    pub fn open(handle: &PeerHandle) -> Result<Ring> {
        let memory = PeerMemory::map(handle, &Device::Host)?.buffer.cast::<u64>()?;
        if memory.len() != RECORDS + RING / 8 {
            return Err(crate::Error::LengthMismatch {
                what: "a peer's ring",
                left: 8 * RECORDS + RING,
                right: memory.size(),
            });
        }
        Ok(Ring { words: Words::new(memory)? })
    }

    pub fn handle(&self) -> Result<PeerHandle> {
        self.words.buffer().export()
    }

    /// As if a peer had written these bytes from the beginning of the records on, and this cursor.
    #[cfg(any(test, fuzzing))]
    pub fn fill(&self, written: u64, bytes: &[u8]) {
        let (words, _) = bytes.as_chunks::<8>();
        self.read().store(0, Ordering::Relaxed);
        for at in 0..self.words.len() - RECORDS {
            let word = words.get(at).map_or(0, |word| u64::from_le_bytes(*word));
            self.words.word(RECORDS + at).store(word, Ordering::Relaxed);
        }
        self.written().store(written, Ordering::Release);
    }

    fn flags(&self) -> &AtomicU32 {
        self.words.half(2 * FLAGS)
    }

    fn written(&self) -> &AtomicU64 {
        self.words.word(WRITTEN)
    }

    fn read(&self) -> &AtomicU64 {
        self.words.word(READ)
    }

    /// Word of the records at cursor `at`.
    fn record(&self, at: u64) -> usize {
        RECORDS + (at as usize & (RING - 1)) / 8
    }
}

/// A connection over two rings.
pub(crate) struct ShmWire {
    inbound: Ring,
    outbound: Ring,
    /// This side's own cursors, and the peer's as last seen.
    written: u64,
    read_by_peer: u64,
    read: u64,
    up: bool,
    peer: PeerProcess,
}

impl ShmWire {
    pub fn new(inbound: Ring, outbound: Ring, pid: u32) -> ShmWire {
        outbound.flags().fetch_or(ATTACHED, Ordering::AcqRel);
        let peer = PeerProcess::new(pid);
        ShmWire { inbound, outbound, written: 0, read_by_peer: 0, read: 0, up: false, peer }
    }

    /// Bytes to the end of the ring from cursor `at`.
    fn to_end(at: u64) -> usize {
        RING - (at as usize & (RING - 1))
    }
}

impl Wire for ShmWire {
    fn poll_up(&mut self, _wanted: bool) -> Result<bool, Cut> {
        self.up = self.up || self.inbound.flags().load(Ordering::Acquire) & ATTACHED != 0;
        Ok(self.up)
    }

    fn max_payload(&self) -> usize {
        MAX_PAYLOAD
    }

    fn has_room(&mut self) -> bool {
        // The largest record, and what may be left unused before it.
        let needed = (2 * MAX_RECORD) as u64;
        if self.written - self.read_by_peer + needed <= RING as u64 {
            return true;
        }
        let read = self.outbound.read().load(Ordering::Acquire);
        // A peer that says nonsense gets no more; silence ends the connection.
        if (self.read_by_peer..=self.written).contains(&read) {
            self.read_by_peer = read;
        }
        self.written - self.read_by_peer + needed <= RING as u64
    }

    fn send(&mut self, out: &mut Outgoing) -> Result<(), Cut> {
        let len = HEADER + out.len;
        let record = 8 + len.next_multiple_of(8);
        if record > MAX_RECORD {
            return Err(Cut(format!("a frame of {len} bytes does not fit the ring")));
        }
        if ShmWire::to_end(self.written) < record {
            let words = &self.outbound.words;
            words.word(self.outbound.record(self.written)).store(WRAP, Ordering::Relaxed);
            self.written += ShmWire::to_end(self.written) as u64;
        }
        let at = self.outbound.record(self.written);
        self.outbound.words.word(at).store(len as u64, Ordering::Relaxed);
        let header = out.frame.encode(out.len as u32);
        // SAFETY: the record lies inside the ring and the reader has given it back; it reads after the cursor.
        unsafe {
            let to = self.outbound.words.pointer(at + 1);
            std::ptr::copy_nonoverlapping(header.as_ptr(), to, HEADER);
            out.copy_payload(to.add(HEADER));
        }
        self.written += record as u64;
        self.outbound.written().store(self.written, Ordering::Release);
        Ok(())
    }

    fn flush(&mut self) -> Result<bool, Cut> {
        Ok(false)
    }

    fn is_flushed(&self) -> bool {
        true
    }

    fn receive(&mut self, sink: &mut dyn Sink) -> Result<bool, Cut> {
        // Before the cursor: what was written before the flag was set is still read.
        let closed = self.inbound.flags().load(Ordering::Acquire) & CLOSED != 0;
        let broken = |what: &str| Err(Cut(format!("the peer's ring is broken: {what}")));
        let written = self.inbound.written().load(Ordering::Acquire);
        let mut taken = 0;
        while self.read != written && taken < BATCH {
            let there = written.wrapping_sub(self.read);
            if there > RING as u64 || !there.is_multiple_of(8) {
                return broken("impossible cursor");
            }
            let at = self.inbound.record(self.read);
            let len = self.inbound.words.word(at).load(Ordering::Relaxed);
            let to_end = ShmWire::to_end(self.read);
            if len == WRAP {
                self.read += to_end as u64;
                if to_end as u64 > there {
                    return broken("impossible mark");
                }
                continue;
            }
            let len = len.min(RING as u64) as usize;
            let record = 8 + len.next_multiple_of(8);
            if len < HEADER || record > MAX_RECORD || record > to_end || record as u64 > there {
                return broken("impossible length");
            }
            let from = self.inbound.words.pointer(at + 1);
            let mut header = [0; HEADER];
            // SAFETY: the record lies inside the ring; the header is copied before it is looked at.
            unsafe { std::ptr::copy_nonoverlapping(from, header.as_mut_ptr(), HEADER) };
            let (frame, payload) = Frame::decode(header)?;
            if payload as usize != len - HEADER {
                return broken("payload and length disagree");
            }
            // SAFETY: inside the record, which stays until the cursor is published.
            let payload = unsafe { Payload::new(from.add(HEADER), len - HEADER) };
            sink.take(frame, payload)?;
            self.read += record as u64;
            self.inbound.read().store(self.read, Ordering::Release);
            taken += 1;
        }
        if closed && self.read == written {
            return Err(Cut("the peer closed the connection".into()));
        }
        Ok(taken > 0)
    }

    fn check_peer(&mut self) -> Result<(), Cut> {
        self.peer.check()
    }

    fn is_lost_by_silence(&self) -> bool {
        !self.peer.runs()
    }
}

impl Drop for ShmWire {
    fn drop(&mut self) {
        self.outbound.flags().fetch_or(CLOSED, Ordering::AcqRel);
        self.inbound.flags().fetch_or(CLOSED, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::soft::wire::Each;

    fn pair() -> (ShmWire, ShmWire) {
        let (one, two) = (Ring::create().unwrap(), Ring::create().unwrap());
        let pid = std::process::id();
        (ShmWire::new(one.clone(), two.clone(), pid), ShmWire::new(two, one, pid))
    }

    fn outgoing(psn: u32, len: usize) -> Outgoing {
        let mut out = Outgoing::new();
        out.frame = Frame::More { psn };
        out.push_inline(&(0..len).map(|k| (psn as usize + k) as u8).collect::<Vec<_>>());
        out
    }

    #[test]
    fn frames_of_all_sizes_come_out_as_they_went_in_for_many_rounds() {
        let (mut one, mut two) = pair();
        assert_eq!((one.poll_up(true), two.poll_up(true)), (Ok(true), Ok(true)));
        let sizes = [0, 1, 7, 8, 100, 4096, MAX_PAYLOAD - 1, MAX_PAYLOAD];
        let (mut sent, mut seen) = (0u32, 0u32);
        while seen < 2000 {
            while one.has_room() {
                one.send(&mut outgoing(sent, sizes[sent as usize % sizes.len()])).unwrap();
                sent += 1;
            }
            two.receive(&mut Each(|frame, payload| {
                let expected = outgoing(seen, sizes[seen as usize % sizes.len()]);
                assert_eq!(frame, Frame::More { psn: seen });
                assert_eq!(payload.to_vec(), expected.inline);
                seen += 1;
                Ok(())
            }))
            .unwrap();
        }
    }

    #[test]
    fn a_peer_that_leaves_is_noticed_after_its_last_frame() {
        let (mut one, mut two) = pair();
        one.send(&mut outgoing(1, 3)).unwrap();
        drop(one);
        let mut frames = 0;
        let result = two.receive(&mut Each(|_, _| {
            frames += 1;
            Ok(())
        }));
        assert_eq!(frames, 1);
        assert_eq!(result, Err(Cut("the peer closed the connection".into())));
    }

    #[test]
    fn silence_of_a_process_that_runs_proves_nothing_and_of_one_that_is_stopped_it_does() {
        use rustix::process::{Pid, Signal, kill_process};
        let wire_to = |pid| ShmWire::new(Ring::create().unwrap(), Ring::create().unwrap(), pid);
        assert!(!wire_to(std::process::id()).is_lost_by_silence(), "an engine of this process");
        let mut process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let mut wire = wire_to(process.id());
        let runs = !wire.is_lost_by_silence();
        let pid = Pid::from_child(&process);
        kill_process(pid, Signal::STOP).unwrap();
        // The kernel tells once it has done so.
        let options = rustix::process::WaitIdOptions::STOPPED;
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), options).unwrap();
        let lost = wire.is_lost_by_silence();
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(runs && lost, "while it runs: {runs}, once it is stopped: {lost}");
        assert!(wire.check_peer().is_err(), "it has ended");
    }

    #[test]
    fn a_ring_full_of_nonsense_is_refused() {
        for (written, len) in [(1u64 << 40, 0u64), (12, 48), (8, 0), (64, 4096), (1024, 1 << 40)] {
            let (one, mut two) = pair();
            one.outbound.words.word(RECORDS).store(len, Ordering::Relaxed);
            one.outbound.written().store(written, Ordering::Release);
            let result = two.receive(&mut Each(|_, _| Ok(())));
            assert!(result.is_err(), "{written} {len}: {result:?}");
        }
    }
}
