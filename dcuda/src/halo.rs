//! What the forms on streams exchange with the devices before and behind: messages that are prepared once, in pieces of the device's memory.

use anyhow::Result;
use libmp::{Recv, Region, Send, Step};

use crate::machine::Machine;

/// Pieces of memory: the first word and how many.
pub type Pieces = Vec<(u64, u64)>;

/// Messages that go all one way or both.
#[derive(Default)]
pub struct Halo {
    sends: Vec<Send>,
    recvs: Vec<Recv>,
}

impl Halo {
    /// `down`: what goes to the device before, and where it belongs there, which is where what comes from the device behind belongs here; `up`: the
    /// other way. Halos at the same time have different numbers. In a `ring` the first device is behind the last.
    pub fn new(
        machine: &Machine,
        memory: &Region<u64>,
        (number, ring): (u64, bool),
        down: Option<(Pieces, Pieces)>,
        up: Option<(Pieces, Pieces)>,
    ) -> Result<Halo> {
        let (world, size) = (&machine.world, machine.world.size());
        let before = world.rank().checked_sub(1).or(ring.then_some(size - 1));
        let behind = Some((world.rank() + 1) % size).filter(|rank| ring || *rank > 0);
        let (mut sends, mut recvs) = (Vec::new(), Vec::new());
        let pieces = |pieces: &Pieces| -> Vec<_> {
            let range = |&(first, words): &(u64, u64)| first as usize..(first + words) as usize;
            pieces.iter().map(|piece| (memory, range(piece))).collect()
        };
        for (tag, given, to, from) in
            [(2 * number, down, before, behind), (2 * number + 1, up, behind, before)]
        {
            let Some((given, taken)) = given else { continue };
            if let Some(to) = to {
                sends.push(world.peer(to)?.sendv(&pieces(&given), tag)?.prepare()?);
            }
            if let Some(from) = from {
                recvs.push(world.peer(from)?.recvv(&pieces(&taken), tag)?.prepare()?);
            }
        }
        Ok(Halo { sends, recvs })
    }

    /// Of a stream: all messages start and have come.
    pub fn steps(&self) -> Vec<Step<'_>> {
        let posts = self.recvs.iter().map(Step::start);
        let sends = self.sends.iter().map(Step::start);
        let waits = self.recvs.iter().map(Step::wait);
        posts.chain(sends).chain(waits).collect()
    }
}
