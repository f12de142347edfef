//! MPI between GPUs as programs do it without a communication library for GPUs: a kernel writes the message into pinned
//! memory of the host, the CPU waits for the stream and calls MPI.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gdsync::{Arg, Buffer, Deadline, Dims};

use super::{Mpi, Player, Sample};
use crate::perf::Rank;
use crate::result::Role;

/// Rounds of a sample.
const ROUNDS: u32 = 200;

/// The player.
pub fn player(mpi: &Mpi) -> Box<dyn Player + '_> {
    Box::new(Staged { mpi, buffers: None })
}

struct Staged<'a> {
    mpi: &'a Mpi,
    buffers: Option<Buffers>,
}

struct Buffers {
    /// What MPI sends and where it receives.
    send: Buffer<u8>,
    recv: Buffer<u8>,
    stamps: Buffer<u64>,
    blocks: u32,
}

/// Bytes for each block of the kernel, and the most blocks.
const PER_BLOCK: u64 = 8 << 10;
const MOST_BLOCKS: u64 = 64;

impl Buffers {
    /// The kernel: from the received message to the one to send.
    fn kernel(&self, rank: &Rank) -> Result<()> {
        let address = |buffer: Option<u64>| buffer.context("no address");
        let (to, from) =
            (address(self.send.device_address())?, address(self.recv.device_address())?);
        let (bytes, rounds) = (self.send.size() as u64, 1u64);
        let stamps = address(self.stamps.device_address())?;
        let args = [
            Arg::new(&to),
            Arg::new(&from),
            Arg::new(&bytes),
            Arg::new(&rounds),
            Arg::new(&stamps),
        ];
        let kernel = rank.device.as_cuda().context("no GPU")?.kernel("mp_perf_bandwidth")?;
        // SAFETY: the kernel's signature; the buffers outlive the synchronise below.
        unsafe { rank.stream.launch(&kernel, Dims::linear(self.blocks, 1024), &args)? };
        Ok(rank.stream.synchronize(Deadline::after(Duration::from_secs(20)))?)
    }
}

impl Player for Staged<'_> {
    fn name(&self) -> String {
        "MPI, staged".into()
    }

    fn role(&self) -> Role {
        Role::Peer
    }

    fn prepare(&mut self, rank: &Rank, size: u64) -> Result<bool> {
        let blocks = (size / PER_BLOCK).clamp(1, MOST_BLOCKS) as u32;
        self.buffers = Some(Buffers {
            send: rank.device.alloc_pinned(size as usize)?,
            recv: rank.device.alloc_pinned(size as usize)?,
            stamps: rank.device.alloc(2 * blocks as usize)?,
            blocks,
        });
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let buffers = self.buffers.as_ref().context("not prepared")?;
        let other = 1 - rank.world.rank();
        let since = Instant::now();
        for _ in 0..ROUNDS {
            if !rank.leads() {
                self.mpi.recv_into(&buffers.recv, other)?;
            }
            buffers.kernel(rank)?;
            self.mpi.send_from(&buffers.send, other)?;
            if rank.leads() {
                self.mpi.recv_into(&buffers.recv, other)?;
            }
        }
        Ok(Sample::of(since.elapsed().as_secs_f64() * 0.5e6 / f64::from(ROUNDS)))
    }
}
