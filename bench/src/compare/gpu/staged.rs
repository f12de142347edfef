//! MPI between GPUs as programs do it without a communication library for GPUs: a kernel packs the message into pinned
//! memory of the host, the CPU waits for the stream and calls MPI. Nothing of ours is in its way: the kernel is the one of
//! bench/peers/floor.cu, launched and waited for by the driver's own calls.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use cudarc::driver::sys;
use gdsync::Buffer;

use super::{Player, Sample};
use crate::compare::Mpi;
use crate::kernels::FATBIN;
use crate::perf::Rank;
use crate::result::Role;

/// Rounds of a sample.
const ROUNDS: u32 = 200;
/// Bytes for each block of the kernel, and the most blocks.
const PER_BLOCK: u64 = 8 << 10;
const MOST_BLOCKS: u64 = 64;

/// Messages; none if this build has no GPU code.
pub fn player(mpi: &Mpi) -> Option<Box<dyn Player + '_>> {
    staged(mpi, false)
}

/// Both ranks pack and then send and receive at once.
pub fn exchange(mpi: &Mpi) -> Option<Box<dyn Player + '_>> {
    staged(mpi, true)
}

fn staged(mpi: &Mpi, exchanges: bool) -> Option<Box<dyn Player + '_>> {
    FATBIN.map(|image| -> Box<dyn Player + '_> {
        Box::new(Staged { mpi, exchanges, image, function: null_mut(), buffers: None })
    })
}

struct Staged<'a> {
    mpi: &'a Mpi,
    exchanges: bool,
    image: &'static [u8],
    /// `floor_copy`; its module stays loaded as long as the process.
    function: sys::CUfunction,
    buffers: Option<Buffers>,
}

struct Buffers {
    /// What the kernel packs.
    source: Buffer<u8>,
    /// What MPI sends and where it receives.
    send: Buffer<u8>,
    recv: Buffer<u8>,
}

fn check(what: &str, code: sys::CUresult) -> Result<()> {
    ensure!(code == sys::CUresult::CUDA_SUCCESS, "{what} returned {code:?}");
    Ok(())
}

impl Staged<'_> {
    /// Packs the message and waits.
    fn pack(&self, stream: sys::CUstream) -> Result<()> {
        let Buffers { source, send, .. } = self.buffers.as_ref().context("not prepared")?;
        let address = |buffer: &Buffer<u8>| buffer.device_address().context("no address");
        let (mut to, mut from) = (address(send)?, address(source)?);
        let (mut bytes, mut copies) = (send.size() as u64, 1u64);
        let blocks = (bytes / PER_BLOCK).clamp(1, MOST_BLOCKS) as u32;
        let mut arguments: [*mut c_void; 4] = [
            (&raw mut to).cast(),
            (&raw mut from).cast(),
            (&raw mut bytes).cast(),
            (&raw mut copies).cast(),
        ];
        // SAFETY: the kernel's parameters, which the driver copies; the buffers outlive the synchronise.
        unsafe {
            let (arguments, none) = (arguments.as_mut_ptr(), null_mut());
            let code = sys::cuLaunchKernel(
                self.function,
                blocks,
                1,
                1,
                512,
                1,
                1,
                0,
                stream,
                arguments,
                none,
            );
            check("cuLaunchKernel", code)?;
            check("cuStreamSynchronize", sys::cuStreamSynchronize(stream))
        }
    }
}

impl Player for Staged<'_> {
    fn name(&self) -> String {
        "MPI, staged".into()
    }

    fn role(&self) -> Role {
        Role::Peer
    }

    fn library(&self) -> Option<&'static str> {
        Some("MPI")
    }

    fn prepare(&mut self, rank: &Rank, size: u64) -> Result<bool> {
        // Allocating makes the device's context current on this thread.
        self.buffers = Some(Buffers {
            source: rank.device.alloc(size as usize)?,
            send: rank.device.alloc_pinned(size as usize)?,
            recv: rank.device.alloc_pinned(size as usize)?,
        });
        if self.function.is_null() {
            let mut module = null_mut();
            // SAFETY: a whole image that lives for ever; the name is one of its kernels.
            unsafe {
                let code = sys::cuModuleLoadData(&mut module, self.image.as_ptr().cast());
                check("cuModuleLoadData", code)?;
                let name = c"floor_copy".as_ptr();
                let code = sys::cuModuleGetFunction(&mut self.function, module, name);
                check("cuModuleGetFunction", code)?;
            }
        }
        Ok(size.is_multiple_of(8))
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let stream = rank.stream.as_raw_cuda().context("no CUDA stream")?;
        let Buffers { send, recv, .. } = self.buffers.as_ref().context("not prepared")?;
        let other = 1 - rank.world.rank();
        let since = Instant::now();
        for _ in 0..ROUNDS {
            if self.exchanges {
                self.pack(stream)?;
                self.mpi.exchange(send, recv, other)?;
                continue;
            }
            if !rank.leads() {
                self.mpi.recv_into(recv, other)?;
            }
            self.pack(stream)?;
            self.mpi.send_from(send, other)?;
            if rank.leads() {
                self.mpi.recv_into(recv, other)?;
            }
        }
        // An exchange is a round, a message half of one.
        let share = if self.exchanges { 1.0 } else { 0.5 };
        Ok(Sample::of(since.elapsed().as_secs_f64() * share * 1e6 / f64::from(ROUNDS)))
    }
}
