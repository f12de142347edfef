//! This library: prepared sends and receives, host form, and tagged messages.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use libmp::tagged::{self, Options, Tagged};
use libmp::{
    Collective, Deadline, Device, Operation, Recv, ReduceOp, Region, Send, World, start_all,
    wait_all,
};

use super::{IN_FLIGHT, Player};
use crate::result::Role;

pub struct Ours<'a> {
    world: &'a World,
    wires: Vec<Wire>,
    answer: Option<Wire>,
    meeting: Option<Collective>,
    tags: u64,
}

/// A prepared message each way, with their buffers.
struct Wire {
    send: Send,
    recv: Recv,
    _buffers: [Region<u8>; 2],
}

fn deadline() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

impl Ours<'_> {
    pub fn new(world: &World) -> Ours<'_> {
        Ours { world, wires: Vec::new(), answer: None, meeting: None, tags: 0 }
    }

    fn wire(&mut self, size: usize) -> Result<Wire> {
        let peer = self.world.peer(1 - self.world.rank())?;
        let buffer = || self.world.alloc(&Device::Host, size);
        let [out, here]: [Region<u8>; 2] = [buffer()?, buffer()?];
        self.tags += 1;
        let send = peer.send(&out, self.tags).prepare()?;
        let recv = peer.recv(&here, self.tags).prepare()?;
        Ok(Wire { send, recv, _buffers: [out, here] })
    }
}

impl Player for Ours<'_> {
    fn name(&self) -> String {
        "libmp".into()
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    fn prepare(&mut self, size: usize) -> Result<()> {
        self.wires.clear();
        for _ in 0..IN_FLIGHT {
            let wire = self.wire(size)?;
            self.wires.push(wire);
        }
        if self.answer.is_none() {
            self.answer = Some(self.wire(0)?);
        }
        Ok(())
    }

    fn ping_pong(&mut self, rounds: usize) -> Result<()> {
        let Wire { send, recv, .. } = self.wires.first().context("not prepared")?;
        for _ in 0..rounds {
            recv.start()?;
            if self.world.rank() == 0 {
                send.start()?;
                recv.wait(deadline())?;
            } else {
                recv.wait(deadline())?;
                send.start()?;
            }
            send.wait(deadline())?;
        }
        Ok(())
    }

    fn stream(&mut self, rounds: usize) -> Result<Option<()>> {
        let answer = self.answer.as_ref().context("not prepared")?;
        for _ in 0..rounds {
            if self.world.rank() == 0 {
                answer.recv.start()?;
                let sends: Vec<&dyn Operation> =
                    self.wires.iter().map(|wire| &wire.send as &dyn Operation).collect();
                start_all(&sends)?;
                wait_all(&sends, deadline())?;
                answer.recv.wait(deadline())?;
            } else {
                let recvs: Vec<&dyn Operation> =
                    self.wires.iter().map(|wire| &wire.recv as &dyn Operation).collect();
                start_all(&recvs)?;
                wait_all(&recvs, deadline())?;
                answer.send.start()?;
                answer.send.wait(deadline())?;
            }
        }
        Ok(Some(()))
    }

    fn exchange(&mut self, rounds: usize) -> Result<Option<()>> {
        let Wire { send, recv, .. } = self.wires.first().context("not prepared")?;
        for _ in 0..rounds {
            recv.start()?;
            send.start()?;
            recv.wait(deadline())?;
            send.wait(deadline())?;
        }
        Ok(Some(()))
    }

    fn meet(&mut self, rounds: usize) -> Result<Option<()>> {
        // More than two ranks have no messages to prepare. The first time warms up.
        if self.meeting.is_none() {
            self.meeting = Some(self.world.prepare_collective(&Device::Host, 8)?);
        }
        let meeting = self.meeting.as_ref().context("not prepared")?;
        for _ in 0..rounds {
            meeting.all_reduce_slice(ReduceOp::Max, &mut [1u64])?;
        }
        Ok(Some(()))
    }
}

/// Tagged messages, matched when they meet, as MPI's: from and into regions.
pub struct OursTagged {
    messages: Tagged,
    device: Device,
    regions: Vec<Region<u8>>,
    other: usize,
    world: libmp::Communicator,
}

const PLAY: u64 = 1;
const STREAM: u64 = 2;
const ANSWER: u64 = 3;

/// A tagged message there and one back between two ranks, `rounds` times: rank 0 sends first.
pub fn ping_pong(messages: &Tagged, [out, here]: [&Region<u8>; 2], rounds: usize) -> Result<()> {
    let other = 1 - messages.rank();
    for _ in 0..rounds {
        if messages.rank() == 0 {
            messages.isend(out, other, PLAY)?.wait(deadline())?;
            messages.irecv(here, other, PLAY)?.wait(deadline())?;
        } else {
            messages.irecv(here, other, PLAY)?.wait(deadline())?;
            messages.isend(out, other, PLAY)?.wait(deadline())?;
        }
    }
    Ok(())
}

impl OursTagged {
    pub fn new(world: &World) -> Result<OursTagged> {
        let messages = world.tagged(&Options::default())?;
        let other = 1 - world.rank();
        let world = libmp::Communicator::clone(world);
        Ok(OursTagged { messages, device: Device::Host, regions: Vec::new(), other, world })
    }
}

impl Player for OursTagged {
    fn name(&self) -> String {
        "libmp, tagged messages".into()
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    fn prepare(&mut self, size: usize) -> Result<()> {
        let regions = (0..=IN_FLIGHT).map(|_| self.world.alloc(&self.device, size));
        self.regions = regions.collect::<libmp::Result<_>>()?;
        Ok(())
    }

    fn ping_pong(&mut self, rounds: usize) -> Result<()> {
        let [out, here, ..] = self.regions.as_slice() else { bail!("not prepared") };
        ping_pong(&self.messages, [out, here], rounds)
    }

    fn stream(&mut self, rounds: usize) -> Result<Option<()>> {
        let (messages, other, regions) = (&self.messages, self.other, &self.regions[..IN_FLIGHT]);
        for _ in 0..rounds {
            let start = |region| match self.world.rank() {
                0 => messages.isend(region, other, STREAM),
                _ => messages.irecv(region, other, STREAM),
            };
            let mut all = regions.iter().map(start).collect::<libmp::Result<Vec<_>>>()?;
            tagged::wait_all(&mut all, deadline())?;
            if self.world.rank() == 0 {
                messages.recv::<u8>(&mut [], other, ANSWER, deadline())?;
            } else {
                messages.send::<u8>(&[], other, ANSWER, deadline())?;
            }
        }
        Ok(Some(()))
    }

    fn exchange(&mut self, rounds: usize) -> Result<Option<()>> {
        let [out, here, ..] = self.regions.as_slice() else { bail!("not prepared") };
        for _ in 0..rounds {
            let mut recv = self.messages.irecv(here, self.other, PLAY)?;
            let mut send = self.messages.isend(out, self.other, PLAY)?;
            tagged::wait_all([&mut recv, &mut send], deadline())?;
        }
        Ok(Some(()))
    }

    fn meet(&mut self, _: usize) -> Result<Option<()>> {
        Ok(None)
    }
}
