//! Signals by which the blocks of a launch meet (`mp/meeting.cuh`).

use std::time::Duration;

use mp_kernels::BlockSignals as Handle;

use crate::error::Result;
use crate::memory::Buffer;
use crate::stream::Stream;

/// A signal for each block of the launches of one stream whose blocks meet: made by [`Stream::block_signals`].
///
/// ```
/// use std::time::Duration;
///
/// use gdsync::{Arg, BlockSignals, Device, Dims, Kernel, Stream};
///
/// # #[allow(dead_code)]
/// fn relax(stream: &Stream, kernel: &Kernel, signals: &BlockSignals) -> gdsync::Result<()> {
///     let (dims, handle) = (Dims::linear(signals.blocks() as u32, 128), signals.handle());
///     // SAFETY: the kernel takes an mp::BlockSignals and no more, and these live until it has run.
///     unsafe { stream.launch_together(kernel, dims, &[Arg::new(&handle)]) }
/// }
///
/// let stream = Device::best().stream()?;
/// let signals = stream.block_signals(64, Duration::from_secs(10))?;
/// assert_eq!(signals.blocks(), 64);
/// # Ok::<(), gdsync::Error>(())
/// ```
#[derive(Debug)]
pub struct BlockSignals {
    signals: Buffer<u64>,
    handle: Handle,
}

impl BlockSignals {
    /// What a kernel makes its `mp::Meetings` of: a parameter, or a part of one, of launches that follow one another on the stream. The
    /// signals live until the last of these has run, in a graph until the last replay has.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Blocks of a launch.
    pub fn blocks(&self) -> usize {
        self.signals.len()
    }
}

impl Stream {
    /// Signals for kernels whose blocks meet (`mp/meeting.cuh`): of launches of `blocks` blocks each by
    /// [`launch_together`](Self::launch_together), which follow one another on this stream. A meeting fails when the watchdog aborts, or
    /// when a block has not come after `timeout`: [`Stream::synchronize`] reports it from then on, and the signals serve no more launches.
    ///
    /// # Errors
    /// What the driver says.
    pub fn block_signals(&self, blocks: usize, timeout: Duration) -> Result<BlockSignals> {
        let signals = self.device().alloc::<u64>(blocks)?;
        signals.write(&vec![0; blocks])?;
        let (bounds, report) = self.bounds_and_report(timeout)?;
        let address = if blocks == 0 { 0 } else { signals.word(0)?.device_address()? };
        let handle = Handle { signals: address, bounds, report };
        Ok(BlockSignals { signals, handle })
    }
}
