//! This library's tagged messages between memories of two GPUs: by way of the devices, which map each other's memory, and by way of the host, as between
//! machines.

use std::time::Instant;

use anyhow::{Context, Result};
use libmp::Region;
use libmp::tagged::{Options, Tagged};

use super::{Player, Sample, rounds_by_host};
use crate::compare::ours::ping_pong;
use crate::perf::Rank;
use crate::result::Role;

/// Messages; `staged`: by way of the host.
pub fn player(staged: bool) -> Box<dyn Player> {
    Box::new(Messages { staged, messages: None, memory: None })
}

struct Messages {
    staged: bool,
    messages: Option<Tagged>,
    /// What is sent, and what is received.
    memory: Option<[Region<u8>; 2]>,
}

impl Player for Messages {
    fn name(&self) -> String {
        let way = if self.staged { ", by way of the host" } else { "" };
        format!("libmp, tagged messages{way}")
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    fn prepare(&mut self, rank: &Rank, size: u64) -> Result<bool> {
        let alloc = || rank.world.alloc::<u8>(&rank.device, size as usize);
        self.memory = Some([alloc()?, alloc()?]);
        if self.messages.is_none() {
            let options = Options { staged: self.staged, ..Options::default() };
            self.messages = Some(rank.world.tagged(&options)?);
        }
        Ok(true)
    }

    fn sample(&mut self, _: &Rank) -> Result<Sample> {
        let [out, into] = self.memory.as_ref().context("not prepared")?;
        let messages = self.messages.as_ref().context("not prepared")?;
        let rounds = rounds_by_host(out.len() as u64);
        let since = Instant::now();
        ping_pong(messages, [out, into], rounds as usize)?;
        Ok(Sample::of(since.elapsed().as_secs_f64() * 0.5 * 1e6 / f64::from(rounds)))
    }
}
