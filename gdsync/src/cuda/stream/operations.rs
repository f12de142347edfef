//! What is enqueued on a CUDA stream: memory operations, kernels, copies, calls, events, graphs. What a capture must hold for an
//! operation it is given here.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys;
use mp_kernels::{Comparison, QueuePair};

use super::CudaStream;
use crate::cuda::batch::{EMPTY, encode};
use crate::cuda::callback::{Callback, run_again, run_once};
use crate::cuda::driver::cu;
use crate::cuda::kernel::Kernel;
use crate::error::{Error, Result};
use crate::event::CudaEvent;
use crate::launch::{Arg, Dims};
use crate::memop::{MAX_BATCH, MemOp, Until};
use crate::memory::Buffer;
use crate::memory::allocation::Allocation;
use crate::memory::rows::Rows;
use crate::memory::word::Word64;
use crate::report::bounds;

impl CudaStream {
    /// Enqueues memory operations, at most [`MAX_BATCH`] in one driver call.
    pub fn batch(
        &self,
        ops: &[MemOp<'_>],
        before: impl Fn(u64, &MemOp<'_>) -> Result<()>,
    ) -> Result<()> {
        if !self.device.capabilities().stream_mem_ops_64 {
            return Err(self
                .unsupported("a stream memory operation", "the driver has none on 64-bit words"));
        }
        let mut parameters = [EMPTY; MAX_BATCH];
        for chunk in ops.chunks(MAX_BATCH) {
            for (parameter, op) in parameters.iter_mut().zip(chunk) {
                *parameter = encode(op)?;
            }
            self.hold(chunk);
            self.enqueue(|number| {
                for op in chunk.iter().filter(|op| op.is_wait()) {
                    before(number, op)?;
                }
                // SAFETY: `chunk.len()` parameters are encoded; the words' memory is released only when the stream
                // has been idle, or is held by the graph being captured.
                unsafe {
                    cu!(cuStreamBatchMemOp_v2(
                        self.stream,
                        chunk.len() as u32,
                        parameters.as_mut_ptr(),
                        0
                    ))?
                };
                self.mark(number);
                Ok(())
            })?;
        }
        Ok(())
    }

    fn hold(&self, ops: &[MemOp<'_>]) {
        self.captures(|capture| {
            for op in ops {
                match op {
                    MemOp::Write32(word, _) | MemOp::Wait32(word, _) => {
                        capture.owners.push(word.owner())
                    }
                    MemOp::Write64(word, _) | MemOp::Wait64(word, _) => {
                        capture.owners.push(word.owner())
                    }
                    MemOp::Barrier => {}
                }
            }
        });
    }

    /// The graph being captured, if there is one, keeps the memory.
    pub fn hold_memory(&self, memory: &Arc<Allocation>) {
        self.captures(|capture| capture.owners.push(memory.clone()));
    }

    /// # Safety
    /// As for [`Stream::launch`](crate::Stream::launch).
    pub unsafe fn launch(&self, kernel: &Kernel, dims: Dims, args: &[Arg<'_>]) -> Result<()> {
        // SAFETY: the caller's promise.
        self.enqueue(|number| unsafe { self.launch_as(number, kernel, dims, args) })
    }

    /// # Safety
    /// As for [`Stream::launch`](crate::Stream::launch).
    unsafe fn launch_as(
        &self,
        number: u64,
        kernel: &Kernel,
        dims: Dims,
        args: &[Arg<'_>],
    ) -> Result<()> {
        kernel.check(dims)?;
        let function = kernel.function()?;
        // In a graph it is slower; of several blocks it would take room while it waits.
        let early = kernel.is_early() && dims.grid == (1, 1, 1) && !self.is_capturing();
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let launch = sys::CUlaunchConfig {
            gridDimX: dims.grid.0,
            gridDimY: dims.grid.1,
            gridDimZ: dims.grid.2,
            blockDimX: dims.block.0,
            blockDimY: dims.block.1,
            blockDimZ: dims.block.2,
            sharedMemBytes: dims.shared,
            hStream: self.stream,
            attrs: &mut attribute,
            numAttrs: early.into(),
        };
        // SAFETY: `Arg` is a transparent pointer to the argument's value, which outlives the call; number and
        // types of arguments are the caller's promise. The driver copies the values before it returns.
        unsafe {
            let args = args.as_ptr().cast::<*mut c_void>().cast_mut();
            cu!(cuLaunchKernelEx(&launch, function, args, std::ptr::null_mut()))?
        };
        self.mark(number);
        Ok(())
    }

    /// # Safety
    /// As for [`Stream::launch`](crate::Stream::launch).
    pub unsafe fn launch_together(
        &self,
        kernel: &Kernel,
        dims: Dims,
        args: &[Arg<'_>],
    ) -> Result<()> {
        kernel.check(dims)?;
        let (grid, block) = (dims.grid, dims.block);
        let count = |(x, y, z): (u32, u32, u32)| u64::from(x) * u64::from(y) * u64::from(z);
        let threads = u32::try_from(count(block)).unwrap_or(u32::MAX);
        let fit = self.device.co_resident_blocks(kernel, threads, dims.shared)?;
        if count(grid) > u64::from(fit) {
            let kernel = kernel.name();
            return Err(Error::TooManyBlocks {
                kernel,
                place: self.name.clone(),
                blocks: count(grid),
                fit,
                threads,
                shared: dims.shared,
            });
        }
        let function = kernel.function()?;
        self.enqueue(|number| {
            // SAFETY: as in `launch_as`.
            unsafe {
                cu!(cuLaunchCooperativeKernel(
                    function,
                    grid.0,
                    grid.1,
                    grid.2,
                    block.0,
                    block.1,
                    block.2,
                    dims.shared,
                    self.stream,
                    args.as_ptr().cast::<*mut c_void>().cast_mut(),
                ))?
            };
            self.mark(number);
            Ok(())
        })
    }

    /// By a kernel that takes a signal and a value.
    pub fn raise(&self, kernel: &str, word: &Word64, value: u64) -> Result<()> {
        let kernel = self.device.kernel(kernel)?;
        let address = word.device_address()?;
        self.hold(&[MemOp::Write64(word, value)]);
        // SAFETY: the kernel takes an address and a value; the word is alive as for `batch`.
        unsafe { self.launch(&kernel, Dims::one(), &[Arg::new(&address), Arg::new(&value)]) }
    }

    /// By a kernel that rings blocks of a queue of prepared entries.
    pub fn ring(&self, queue: &QueuePair, blocks: Range<u64>, timeout: Duration) -> Result<()> {
        let kernel = self.device.kernel("mp_ring")?;
        let bounds = bounds(0, timeout);
        let report = self.report.address();
        let args = [
            Arg::new(queue),
            Arg::new(&blocks.start),
            Arg::new(&blocks.end),
            Arg::new(&bounds),
            Arg::new(&report),
        ];
        // SAFETY: the kernel's signature; the queue's memory and the report are alive as for `batch`.
        unsafe { self.launch(&kernel, Dims::one(), &args) }
    }

    pub fn wait_signal(
        &self,
        word: &Word64,
        until: Until<u64>,
        timeout: Duration,
        abort: u64,
        before: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        let kernel = self.device.kernel("mp_signal_wait")?;
        let address = word.device_address()?;
        let bounds = bounds(abort, timeout);
        let report = self.report.address();
        let (value, comparison) = (until.value(), comparison(until) as u32);
        self.hold(&[MemOp::Wait64(word, until)]);
        self.captures(|capture| capture.owners.push(self.report.memory().clone()));
        let args = [
            Arg::new(&address),
            Arg::new(&value),
            Arg::new(&comparison),
            Arg::new(&bounds),
            Arg::new(&report),
        ];
        self.enqueue(|number| {
            before(number)?;
            // SAFETY: the kernel's signature; word, what aborts and report are alive as for `batch`.
            unsafe { self.launch_as(number, &kernel, Dims::one(), &args) }
        })
    }

    /// Copies rows of bytes, which both have.
    pub fn copy(&self, to: &Buffer<u8>, from: &Buffer<u8>, rows: Rows) -> Result<()> {
        let (to_address, from_address) = (self.address("copy", to)?, self.address("copy", from)?);
        let both = || [to.allocation().clone(), from.allocation().clone()];
        self.captures(|capture| capture.owners.extend(both()));
        if rows.count > 1 && rows.is_pitched() {
            let copy = sys::CUDA_MEMCPY2D {
                srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED,
                srcDevice: from_address,
                srcPitch: rows.from,
                dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED,
                dstDevice: to_address,
                dstPitch: rows.to,
                WidthInBytes: rows.len,
                Height: rows.count,
                srcXInBytes: 0,
                srcY: 0,
                srcHost: std::ptr::null(),
                srcArray: std::ptr::null_mut(),
                dstXInBytes: 0,
                dstY: 0,
                dstHost: std::ptr::null_mut(),
                dstArray: std::ptr::null_mut(),
            };
            return self.enqueue(|number| {
                // SAFETY: all rows are inside live allocations (checked by the caller); the struct is read before the call returns.
                unsafe { cu!(cuMemcpy2DAsync_v2(&copy, self.stream))? };
                self.mark(number);
                Ok(())
            });
        }
        rows.starts().try_for_each(|(to_at, from_at)| {
            let (to, from) = (to_address + to_at as u64, from_address + from_at as u64);
            self.enqueue(|number| {
                // SAFETY: the row is inside live allocations (checked by the caller).
                unsafe { cu!(cuMemcpyAsync(to, from, rows.len, self.stream))? };
                self.mark(number);
                Ok(())
            })
        })
    }

    pub fn fill(&self, buffer: &Buffer<u8>, byte: u8) -> Result<()> {
        let address = self.address("fill", buffer)?;
        self.captures(|capture| capture.owners.push(buffer.allocation().clone()));
        self.enqueue(|number| {
            // SAFETY: the range is inside a live allocation.
            unsafe { cu!(cuMemsetD8Async(address, byte, buffer.len(), self.stream))? };
            self.mark(number);
            Ok(())
        })
    }

    fn address(&self, what: &'static str, buffer: &Buffer<u8>) -> Result<u64> {
        buffer.device_address().ok_or_else(|| Error::NotReachable {
            what,
            memory: buffer.allocation().describe(),
            place: self.name.clone(),
            hint: "use pinned memory",
        })
    }

    /// Calls back on a driver thread. The callback must not call CUDA.
    pub fn call(&self, call: Arc<dyn Fn() + Send + Sync>) -> Result<()> {
        let callback = Arc::new(Callback::new(call, self.name.clone(), self.failure.clone()));
        if self.is_capturing() {
            let data = Arc::as_ptr(&callback);
            self.captures(|capture| capture.calls.push(callback));
            // SAFETY: the callback is held by the capture and then by the graph as long as it can run.
            return self.enqueue(|_| unsafe {
                cu!(cuLaunchHostFunc(self.stream, Some(run_again), data as *mut c_void))
            });
        }
        let data = Arc::into_raw(callback);
        // SAFETY: the one reference that `data` holds is taken back by `run_once`.
        let result = self.enqueue(|_| unsafe {
            cu!(cuLaunchHostFunc(self.stream, Some(run_once), data as *mut c_void))
        });
        if result.is_err() {
            // SAFETY: it was not enqueued, so nobody else takes the reference back.
            drop(unsafe { Arc::from_raw(data) });
        }
        result
    }

    pub fn record(&self, event: &CudaEvent) -> Result<()> {
        // SAFETY: both handles are alive.
        self.enqueue(|_| unsafe { cu!(cuEventRecord(event.event, self.stream)) })
    }

    pub fn wait_event(&self, event: &CudaEvent) -> Result<()> {
        // SAFETY: both handles are alive; the driver keeps what it needs of the event.
        self.enqueue(|_| unsafe { cu!(cuStreamWaitEvent(self.stream, event.event, 0)) })
    }

    pub fn launch_graph(
        &self,
        exec: sys::CUgraphExec,
        before: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        self.enqueue(|number| {
            before(number)?;
            // SAFETY: the graph is alive; it is released only when the stream has been idle.
            unsafe { cu!(cuGraphLaunch(exec, self.stream))? };
            self.mark(number);
            Ok(())
        })
    }
}

/// As kernels know it.
fn comparison(until: Until<u64>) -> Comparison {
    match until {
        Until::Geq(_) => Comparison::Ge,
        Until::Eq(_) => Comparison::Eq,
        Until::And(_) => Comparison::AnyBit,
        Until::Ne(_) => Comparison::Ne,
        Until::Gt(_) => Comparison::Gt,
        Until::Lt(_) => Comparison::Lt,
        Until::Le(_) => Comparison::Le,
    }
}
