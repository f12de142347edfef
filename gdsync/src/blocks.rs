//! Signals by which the blocks of a launch meet (`mp/meeting.cuh`).

use mp_kernels::BlockSignals as Handle;

use crate::memory::Buffer;

/// A signal for each block of the launches of one stream whose blocks meet: made by [`Stream::block_signals`](crate::Stream::block_signals).
#[derive(Debug)]
pub struct BlockSignals {
    pub(crate) signals: Buffer<u64>,
    pub(crate) handle: Handle,
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
