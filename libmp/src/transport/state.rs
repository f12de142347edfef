//! The memory of one end of a device operation, in the memory of its own device: its counters, the signal that the peer
//! raises, and a receiver's slots for packets.

use gdsync::{Buffer, Device, Word64};
use mp_kernels::{MessageState, PACKET, PACKET_BYTES, PACKET_SLOTS};

/// Messages up to so many bytes travel as packets: up to there one store of data and epoch together is faster than data, a
/// fence and a flag (1.4 µs against 2.1 for 8 KiB between two GPUs; at 64 KiB it is 4.0 against 3.4).
pub(crate) const PACKETS_MAX: u64 = 8 << 10;
/// The same between CPUs: two cache lines of packets, where the message by itself, that it has come and its credit are four.
pub(crate) const HOST_PACKETS_MAX: u64 = 96;

/// A word that nobody waits for, for what raises no signal.
const NOBODYS: usize = 192;
const INBOX: usize = 256;

/// One end's counters, signal and slots, as its own device or the peer's sees them.
#[derive(Clone)]
pub(crate) struct EndState {
    memory: Buffer<u8>,
}

impl EndState {
    /// Where its signal is.
    pub const SIGNAL: usize = 128;

    /// Bytes of a state: of a receiver with packets, for messages of up to `packets` bytes.
    pub fn size(packets: Option<u64>) -> usize {
        let inbox = packets.map_or(0, |bytes| {
            PACKET_SLOTS * PACKET * bytes.div_ceil(u64::from(PACKET_BYTES)).max(1)
        });
        INBOX + inbox as usize
    }

    pub fn new(memory: Buffer<u8>) -> EndState {
        EndState { memory }
    }

    pub fn memory(&self) -> &Buffer<u8> {
        &self.memory
    }

    /// The signal that its owner waits on.
    pub fn signal(&self) -> gdsync::Result<Word64> {
        self.memory.slice(Self::SIGNAL..Self::SIGNAL + 8)?.cast::<u64>()?.word(0)
    }

    /// The counters: how far its owner is.
    pub fn epoch(&self) -> gdsync::Result<Word64> {
        self.memory.slice(0..8)?.cast::<u64>()?.word(0)
    }

    /// The second counter, see [`MessageState`].
    pub fn room(&self) -> gdsync::Result<Word64> {
        let at = std::mem::offset_of!(MessageState, room);
        self.memory.slice(at..at + 8)?.cast::<u64>()?.word(0)
    }

    /// A word that may be raised and is never looked at.
    pub fn nobodys(&self) -> gdsync::Result<Word64> {
        self.memory.slice(NOBODYS..NOBODYS + 8)?.cast::<u64>()?.word(0)
    }

    /// Of a new state: from here on there is room for every start, and no peer has to say so.
    pub fn make_room(&self) -> gdsync::Result<()> {
        let mut bytes = [0; INBOX];
        let room = std::mem::offset_of!(MessageState, room);
        for at in [room, Self::SIGNAL] {
            bytes[at..at + 8].copy_from_slice(&u64::MAX.to_ne_bytes());
        }
        self.memory.slice(0..INBOX)?.write(&bytes)
    }

    /// Address of the counters for its device.
    pub fn state(&self) -> gdsync::Result<u64> {
        self.epoch()?.device_address()
    }

    /// The slots for packets, and what is behind them.
    pub fn slots(&self) -> gdsync::Result<Buffer<u64>> {
        self.memory.slice(INBOX..self.memory.len())?.cast()
    }

    /// Address of the slots for packets.
    pub fn inbox(&self) -> gdsync::Result<u64> {
        Ok(self.state()? + INBOX as u64)
    }
}

/// Whether messages into a buffer of `posted` bytes travel as packets: between two GPUs or two CPUs, and if the buffer is small. Both
/// ends know both.
pub(crate) fn packets(one: &Device, other_is_gpu: bool, posted: u64) -> bool {
    match (one.as_cuda().is_some(), other_is_gpu) {
        (true, true) => posted <= PACKETS_MAX,
        (false, false) => posted <= HOST_PACKETS_MAX,
        _ => false,
    }
}
