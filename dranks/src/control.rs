//! Where what is in a device's control memory: the same on all devices of a world.

use mp_kernels::{
    MeetingWord, RANK_WINDOWS, RankPart, RankPosition, RankReport, RankState, SIGNAL_STRIDE,
};

use crate::ranks::Options;

/// Words that ranks of a device meet at, and those of the log.
const MEETING_WORDS: u64 = MeetingWord::LogLost as u64 + 1;
/// A cache line: nothing of one kind shares one with another.
const ALIGN: u64 = 64;

/// Offsets in bytes, and the length of all.
pub struct Control {
    pub handle: mp_kernels::Ranks,
    pub bytes: u64,
}

impl Control {
    /// Of a world of so many devices, as a handle without addresses.
    pub fn new(devices: u32, options: &Options) -> Control {
        let (here, devices_64) = (u64::from(options.ranks), u64::from(devices));
        let all = here * devices_64;
        let mut bytes = 0;
        let mut room = |count: u64, size: u64| {
            let at = bytes;
            bytes += (count * size).next_multiple_of(ALIGN);
            at
        };
        let size = |bytes: usize| bytes as u64;
        let handle = mp_kernels::Ranks {
            rings: room(here * devices_64 * u64::from(options.slots), mp_kernels::PACKET),
            tails: room(all, 8),
            heads: room(all, 8),
            arrived: room(devices_64, 8),
            meetings: room(MEETING_WORDS, SIGNAL_STRIDE),
            states: room(here, size(size_of::<RankState>())),
            positions: room(here * devices_64, size(size_of::<RankPosition>())),
            queues: room(here * u64::from(options.spill), 8),
            parts: room(2 * u64::from(RANK_WINDOWS) * all, size(size_of::<RankPart>())),
            report: room(1, size(size_of::<RankReport>())),
            devices,
            per_device: options.ranks,
            slots: options.slots,
            spill: options.spill,
            log_lines: options.lines,
            ..bytemuck::Zeroable::zeroed()
        };
        Control { handle, bytes }
    }

    /// What it holds before the first launch: every ring as if `first` notifications had gone through it.
    pub fn begun(&self, first: u64) -> Vec<u64> {
        let handle = &self.handle;
        let mut words = vec![0; (self.bytes / 8) as usize];
        let mut set = |at: u64, count: u64, stride: usize, value: u64| {
            let words = words[(at / 8) as usize..].iter_mut().step_by(stride);
            words.take(count as usize).for_each(|word| *word = value);
        };
        let all = u64::from(handle.per_device) * u64::from(handle.devices);
        // The epoch is a packet's second word; no slot holds the one that is expected there.
        set(handle.rings + 8, all * u64::from(handle.slots), 2, first);
        set(handle.tails, all, 1, first);
        set(handle.heads, all, 1, first);
        set(handle.positions, 2 * all, 1, first);
        words
    }

    /// The word that counts lost lines.
    pub fn lost(&self) -> usize {
        ((self.handle.meetings + MeetingWord::LogLost as u64 * SIGNAL_STRIDE) / 8) as usize
    }

    /// The report, in words.
    pub fn report(&self) -> std::ops::Range<usize> {
        let first = (self.handle.report / 8) as usize;
        first..first + size_of::<RankReport>() / 8
    }
}
