//! Two ranks of this process with memory of GPUs, between which messages are timed.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::cell::OnceCell;
use std::ops::Range;
use std::time::Instant;

use libmp::tagged::{Options, Place, Tagged, wait_all};
use libmp::{Device, Region, Stream, World};

use super::common::soon;

pub const MIB: usize = 1 << 20;

/// The median of some seconds.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Two ranks of this process that have memory of a GPU, pinned memory of theirs, and messages.
pub struct Pair {
    pub world: World,
    pub messages: Tagged,
    pub memory: Region<u8>,
    pub pinned: Region<u8>,
    pub stream: Stream,
    /// For copies that are all started at once, once there are any: streams share channels of the device.
    many: OnceCell<Vec<Stream>>,
}

/// How a message of a GPU's memory goes by way of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Library,
    /// The whole is copied, sent, and copied.
    Hand,
    /// Parts of 1 MiB, all of whose copies are given to the driver at once, each on a stream of its own as far as there are streams.
    HandAtOnce,
}

impl Pair {
    pub fn new(world: World, device: &Device, most: usize, options: &Options) -> Pair {
        let messages = world.tagged(options).unwrap();
        let memory = world.alloc::<u8>(device, most).unwrap();
        let pinned = Region::from_buffer(device.alloc_pinned::<u8>(most).unwrap());
        let stream = world.stream(device).unwrap();
        Pair { world, messages, memory, pinned, stream, many: OnceCell::new() }
    }

    pub fn goes(&self, len: usize, by: By) {
        match by {
            By::Library => self.message(len),
            By::Hand => self.by_hand(len, len),
            By::HandAtOnce => self.at_once(len),
        }
    }

    pub fn sends(&self) -> bool {
        self.world.rank() == 0
    }

    /// As the library does it.
    pub fn message(&self, len: usize) {
        let memory = self.memory.slice(0..len).unwrap();
        if self.sends() {
            self.messages.isend(&memory, 1, 1).unwrap().wait(soon()).unwrap();
        } else {
            self.messages.irecv(&memory, 0, 1).unwrap().wait(soon()).unwrap();
        }
    }

    /// A copy of the whole, a message of host memory, and a copy of the whole: in parts of so many bytes, of which a rank has two pinned
    /// ones in turn when there are several.
    pub fn by_hand(&self, len: usize, part: usize) {
        let mut sends = Vec::new();
        let parts = (0..len).step_by(part).map(|at| at..len.min(at + part));
        for range in parts {
            let (memory, pinned) = (self.memory.slice(range.clone()), self.pinned.slice(range));
            let (memory, pinned) = (memory.unwrap(), pinned.unwrap());
            if self.sends() {
                self.stream.copy(pinned.buffer(), memory.buffer()).unwrap();
                self.stream.synchronize(soon()).unwrap();
                sends.push(self.messages.isend(&pinned, 1, 2).unwrap());
                if sends.len() > 1 {
                    sends.remove(0).wait(soon()).unwrap();
                }
            } else {
                self.messages.irecv(&pinned, 0, 2).unwrap().wait(soon()).unwrap();
                self.stream.copy(memory.buffer(), pinned.buffer()).unwrap();
            }
        }
        for send in &mut sends {
            send.wait(soon()).unwrap();
        }
        self.stream.synchronize(soon()).unwrap();
    }

    /// By hand, in parts all of whose copies are given to the driver at once: as many at a time as there are streams.
    fn at_once(&self, len: usize) {
        let parts = || (0..len).step_by(MIB).map(|at| at..len.min(at + MIB)).enumerate();
        let part = |range: Range<usize>| {
            let (memory, pinned) = (self.memory.slice(range.clone()), self.pinned.slice(range));
            (memory.unwrap(), pinned.unwrap())
        };
        let device = self.memory.buffer().device();
        let new = || (0..8).map(|_| self.world.stream(device).unwrap()).collect();
        let many = self.many.get_or_init(new);
        let stream = |number: usize| &many[number % many.len()];
        if self.sends() {
            for (number, range) in parts() {
                let (memory, pinned) = part(range);
                stream(number).copy(pinned.buffer(), memory.buffer()).unwrap();
            }
            let sends = parts().map(|(number, range)| {
                let (_, pinned) = part(range);
                self.messages.isend(Place::from(&pinned).on(stream(number)), 1, 3).unwrap()
            });
            wait_all(&mut sends.collect::<Vec<_>>(), soon()).unwrap();
        } else {
            for (number, range) in parts() {
                let (memory, pinned) = part(range);
                self.messages.irecv(&pinned, 0, 3).unwrap().wait(soon()).unwrap();
                stream(number).copy(memory.buffer(), pinned.buffer()).unwrap();
            }
            many.iter().for_each(|stream| stream.synchronize(soon()).unwrap());
        }
    }

    /// GB/s of the median, until both are through.
    pub fn rate(&self, len: usize, mut way: impl FnMut()) -> f64 {
        let mut times = Vec::new();
        for turn in 0..9 {
            self.world.barrier().unwrap();
            let since = Instant::now();
            way();
            self.world.barrier().unwrap();
            if turn > 0 {
                times.push(since.elapsed().as_secs_f64());
            }
        }
        len as f64 / median(times) / 1e9
    }
}

/// With whom a device exchanges messages: itself, and another one if there is one.
pub fn with_others(device: &Device) -> impl Iterator<Item = Device> {
    [Some(device.clone()), Device::cuda(1).ok()].into_iter().flatten()
}
