//! Where what is in a device's control memory. What others write is at the same place on all devices of a world.

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
    /// Of device number `device` of a world whose devices have so many ranks each, as a handle without addresses.
    pub fn new(counts: &[u32], device: usize, options: &Options) -> Control {
        let (here, devices) = (u64::from(options.ranks), counts.len() as u64);
        let most = u64::from(counts.iter().copied().max().unwrap_or_default());
        let first: u32 = counts[..device].iter().sum();
        let size: u32 = counts.iter().sum();
        let all = u64::from(size);
        let mut bytes = 0;
        let mut room = |count: u64, size: u64| {
            let at = bytes;
            bytes += (count * size).next_multiple_of(ALIGN);
            at
        };
        let of = |bytes: usize| bytes as u64;
        let windows = 2 * u64::from(RANK_WINDOWS);
        let handle = mp_kernels::Ranks {
            tails: room(all, 8),
            heads: room(all, 8),
            arrived: room(devices, 8),
            meetings: room(MEETING_WORDS, SIGNAL_STRIDE),
            parts: room(windows * all, of(size_of::<RankPart>())),
            calls: room(windows, 8),
            report: room(1, of(size_of::<RankReport>())),
            states: room(most, of(size_of::<RankState>())),
            // What is behind this is in no place that another device knows.
            rings: room(here * devices * u64::from(options.slots), mp_kernels::PACKET),
            positions: room(here * devices, of(size_of::<RankPosition>())),
            queues: room(here * u64::from(options.spill), 8),
            devices: devices as u32,
            device: device as u32,
            size,
            first,
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
        let (all, rings) = (u64::from(handle.size), self.rings());
        // The epoch is a packet's second word; no slot holds the one that is expected there.
        set(handle.rings + 8, rings * u64::from(handle.slots), 2, first);
        set(handle.tails, all, 1, first);
        set(handle.heads, all, 1, first);
        set(handle.positions, 2 * rings, 1, first);
        words
    }

    /// Rings to ranks of this device.
    fn rings(&self) -> u64 {
        u64::from(self.handle.per_device) * u64::from(self.handle.devices)
    }

    /// The number of a word that ranks of this device meet at.
    pub fn meeting(&self, word: MeetingWord) -> usize {
        ((self.handle.meetings + word as u64 * SIGNAL_STRIDE) / 8) as usize
    }

    /// The number of the first word of a rank's share of a window.
    pub fn part(&self, window: u32, rank: u32) -> usize {
        let part = u64::from(window) * u64::from(self.handle.size) + u64::from(rank);
        (self.handle.parts / 8) as usize + part as usize * (size_of::<RankPart>() / 8)
    }

    /// The number of the first word of the state of a rank, by its number on its device.
    pub fn state(&self, local: u32) -> usize {
        (self.handle.states / 8) as usize + local as usize * (size_of::<RankState>() / 8)
    }

    /// The number of the first word of a packet of the ring from a device to a rank, by its number on its device.
    pub fn packet(&self, local: u32, from: u32, number: u64) -> usize {
        let ring = u64::from(local) * u64::from(self.handle.devices) + u64::from(from);
        let slots = u64::from(self.handle.slots);
        let packet = ring * slots + (number & (slots - 1));
        ((self.handle.rings + packet * mp_kernels::PACKET) / 8) as usize
    }

    /// The report, in words.
    pub fn report(&self) -> std::ops::Range<usize> {
        let first = (self.handle.report / 8) as usize;
        first..first + size_of::<RankReport>() / 8
    }
}
