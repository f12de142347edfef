//! Two ranks of this process with memory of GPUs, between which messages are timed.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::time::Instant;

use libmp::tagged::{Options, Tagged};
use libmp::{Device, Region, World};

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
    pub stream: libmp::gdsync::Stream,
}

impl Pair {
    pub fn new(world: World, device: &Device, most: usize, options: &Options) -> Pair {
        let messages = world.tagged(options).unwrap();
        let memory = world.alloc::<u8>(device, most).unwrap();
        let pinned = Region::from_buffer(device.alloc_pinned::<u8>(most).unwrap());
        let stream = world.stream(device).unwrap();
        Pair { world, messages, memory, pinned, stream }
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
