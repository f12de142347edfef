//! The floor: memcpy into memory of the peer, then one atomic word that it polls. No library can do with less.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use libmp::{Device, Region, Window, World};

use super::Player;
use crate::result::Role;

pub struct Floor<'a> {
    world: &'a World,
    state: Option<State>,
    round: u64,
}

struct State {
    /// The word in the first 64 bytes, then the message.
    window: Window<u64>,
    source: Vec<u64>,
}

/// Words before the message: a cache line.
const HEAD: usize = 8;

impl Floor<'_> {
    pub fn new(world: &World) -> Floor<'_> {
        Floor { world, state: None, round: 0 }
    }
}

impl State {
    fn memory(&self, rank: usize) -> Result<*mut u64> {
        let memory = self.window.memory_of(rank)?;
        Ok(memory.host_address().context("memory of the peer is not mapped here")?.as_ptr())
    }

    fn word(&self, rank: usize) -> Result<&AtomicU64> {
        let memory = self.memory(rank)?;
        // SAFETY: the first word of the window, which lives as long as `self`, and which both ranks only touch atomically.
        Ok(unsafe { AtomicU64::from_ptr(memory) })
    }

    fn send(&self, to: usize, round: u64) -> Result<()> {
        let memory = self.memory(to)?;
        // SAFETY: the window has room for the source behind its head; its owner does not read it before the word says so.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.source.as_ptr(),
                memory.add(HEAD),
                self.source.len(),
            );
        }
        self.word(to)?.store(round, Ordering::Release);
        Ok(())
    }

    fn wait(&self, me: usize, round: u64) -> Result<()> {
        let word = self.word(me)?;
        let begin = Instant::now();
        let mut spins = 0u32;
        while word.load(Ordering::Acquire) < round {
            std::hint::spin_loop();
            spins = spins.wrapping_add(1);
            if spins == 0 && begin.elapsed() > Duration::from_secs(30) {
                bail!("the peer did not answer round {round} within 30 s");
            }
        }
        Ok(())
    }
}

impl Player for Floor<'_> {
    fn name(&self) -> String {
        "memcpy + flag".into()
    }

    fn role(&self) -> Role {
        Role::Floor
    }

    fn prepare(&mut self, size: usize) -> Result<()> {
        let words = size.div_ceil(8);
        let region: Region<u64> = self.world.alloc(&Device::Host, HEAD + words)?;
        region.write(&vec![0; HEAD + words])?;
        let window = self.world.window(&region, 0)?;
        self.state = Some(State { window, source: vec![7; words] });
        self.round = 0;
        self.world.barrier()?;
        Ok(())
    }

    fn ping_pong(&mut self, rounds: usize) -> Result<()> {
        let state = self.state.as_ref().context("not prepared")?;
        let me = self.world.rank();
        for _ in 0..rounds {
            self.round += 1;
            if me == 0 {
                state.send(1, self.round)?;
                state.wait(0, self.round)?;
            } else {
                state.wait(1, self.round)?;
                state.send(0, self.round)?;
            }
        }
        Ok(())
    }

    fn stream(&mut self, _: usize) -> Result<Option<()>> {
        Ok(None)
    }

    fn exchange(&mut self, rounds: usize) -> Result<Option<()>> {
        let state = self.state.as_ref().context("not prepared")?;
        let me = self.world.rank();
        for _ in 0..rounds {
            self.round += 1;
            state.send(1 - me, self.round)?;
            state.wait(me, self.round)?;
        }
        Ok(Some(()))
    }

    fn meet(&mut self, _: usize) -> Result<Option<()>> {
        Ok(None)
    }
}
