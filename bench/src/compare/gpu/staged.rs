//! MPI between GPUs as programs do it without a communication library for GPUs: a kernel packs the message into pinned
//! memory of the host, the CPU waits for the stream and calls MPI; or the driver copies it there, and from there to the other's memory. Nothing of ours is in its
//! way: the kernel is the one of bench/peers/floor.cu, launched and waited for by the driver's own calls.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use cudarc::driver::sys;
use gdsync::Buffer;

use super::{Player, Sample, rounds_by_host};
use crate::compare::Mpi;
use crate::kernels::FATBIN;
use crate::perf::Rank;
use crate::result::Role;

/// Bytes for each block of the kernel, and the most blocks.
const PER_BLOCK: u64 = 8 << 10;
const MOST_BLOCKS: u64 = 64;

/// Messages; none if this build has no GPU code.
pub fn player(mpi: &Mpi) -> Option<Box<dyn Player + '_>> {
    FATBIN.map(|image| staged(mpi, Form::Packed, image))
}

/// Both ranks pack and then send and receive at once.
pub fn exchange(mpi: &Mpi) -> Option<Box<dyn Player + '_>> {
    FATBIN.map(|image| staged(mpi, Form::Exchanged, image))
}

/// Messages from memory of a device to memory of a device, by copies of the whole.
pub fn copied(mpi: &Mpi) -> Box<dyn Player + '_> {
    staged(mpi, Form::Copied, &[])
}

fn staged<'a>(mpi: &'a Mpi, form: Form, image: &'static [u8]) -> Box<dyn Player + 'a> {
    Box::new(Staged { mpi, form, image, function: null_mut(), buffers: None })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Packed,
    Exchanged,
    Copied,
}

struct Staged<'a> {
    mpi: &'a Mpi,
    form: Form,
    /// With the kernel, if that is needed.
    image: &'static [u8],
    /// `floor_copy`; its module stays loaded as long as the process.
    function: sys::CUfunction,
    buffers: Option<Buffers>,
}

struct Buffers {
    /// What is sent, and where it gets to, of the device.
    source: Buffer<u8>,
    target: Buffer<u8>,
    /// What MPI sends and where it receives.
    send: Buffer<u8>,
    recv: Buffer<u8>,
}

fn check(what: &str, code: sys::CUresult) -> Result<()> {
    ensure!(code == sys::CUresult::CUDA_SUCCESS, "{what} returned {code:?}");
    Ok(())
}

fn address(buffer: &Buffer<u8>) -> Result<u64> {
    buffer.device_address().context("no address")
}

impl Staged<'_> {
    /// Copies the message to pinned memory, or from there to where it gets to, and waits.
    fn copy(&self, stream: sys::CUstream, down: bool) -> Result<()> {
        let Buffers { source, target, send, recv } =
            self.buffers.as_ref().context("not prepared")?;
        let host = |buffer: &Buffer<u8>| buffer.host_address().context("no address");
        let len = send.size();
        // SAFETY: the buffers have so many bytes and outlive the synchronise.
        unsafe {
            let code = match down {
                true => {
                    let to = host(send)?.as_ptr().cast();
                    sys::cuMemcpyDtoHAsync_v2(to, address(source)?, len, stream)
                }
                false => {
                    let from = host(recv)?.as_ptr().cast_const().cast();
                    sys::cuMemcpyHtoDAsync_v2(address(target)?, from, len, stream)
                }
            };
            check("cuMemcpyAsync", code)?;
            check("cuStreamSynchronize", sys::cuStreamSynchronize(stream))
        }
    }

    /// Sends what is ready for it.
    fn sends(&self, stream: sys::CUstream, other: usize) -> Result<()> {
        match self.form {
            Form::Copied => self.copy(stream, true)?,
            Form::Packed | Form::Exchanged => self.pack(stream)?,
        }
        self.mpi.send_from(&self.buffers.as_ref().context("not prepared")?.send, other)
    }

    fn receives(&self, stream: sys::CUstream, other: usize) -> Result<()> {
        self.mpi.recv_into(&self.buffers.as_ref().context("not prepared")?.recv, other)?;
        if self.form == Form::Copied { self.copy(stream, false) } else { Ok(()) }
    }

    /// Packs the message and waits.
    fn pack(&self, stream: sys::CUstream) -> Result<()> {
        let Buffers { source, send, .. } = self.buffers.as_ref().context("not prepared")?;
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
            target: rank.device.alloc(size as usize)?,
            send: rank.device.alloc_pinned(size as usize)?,
            recv: rank.device.alloc_pinned(size as usize)?,
        });
        if self.function.is_null() && self.form != Form::Copied {
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
        Ok(size.is_multiple_of(8) || self.form == Form::Copied)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let stream = rank.stream.as_raw_cuda().context("no CUDA stream")?;
        let Buffers { send, recv, .. } = self.buffers.as_ref().context("not prepared")?;
        let (other, rounds) = (1 - rank.world.rank(), rounds_by_host(send.size() as u64));
        let since = Instant::now();
        for _ in 0..rounds {
            if self.form == Form::Exchanged {
                self.pack(stream)?;
                self.mpi.exchange(send, recv, other)?;
                continue;
            }
            // What leads sends first.
            for sends in [rank.leads(), !rank.leads()] {
                match sends {
                    true => self.sends(stream, other)?,
                    false => self.receives(stream, other)?,
                }
            }
        }
        // An exchange is a round, a message half of one.
        let share = if self.form == Form::Exchanged { 1.0 } else { 0.5 };
        Ok(Sample::of(since.elapsed().as_secs_f64() * share * 1e6 / f64::from(rounds)))
    }
}
