//! An executable CUDA graph and what its replays use.

use cudarc::driver::sys;

use super::device::CudaDevice;
use super::driver::cu;
use super::graveyard::Grave;
use super::stream::Capture;
use crate::error::Result;

/// Owns an executable graph; memory and callbacks of its operations live as long as it may run.
pub(crate) struct CudaGraph {
    device: CudaDevice,
    exec: sys::CUgraphExec,
    held: Option<Box<Capture>>,
}

// SAFETY: a CUgraphExec may be used from any thread with its context bound; launches are ordered by streams.
unsafe impl Send for CudaGraph {}
// SAFETY: as for Send.
unsafe impl Sync for CudaGraph {}

impl CudaGraph {
    pub fn instantiate(
        device: &CudaDevice,
        graph: sys::CUgraph,
        capture: Capture,
    ) -> Result<CudaGraph> {
        device.bind()?;
        let mut exec = std::ptr::null_mut();
        // SAFETY: `graph` was just captured; writes one handle.
        let made = unsafe { cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)) };
        // SAFETY: the executable graph is a copy; the captured one is needed no more.
        let destroyed = unsafe { cu!(cuGraphDestroy(graph)) };
        made.and(destroyed)?;
        Ok(CudaGraph { device: device.clone(), exec, held: Some(Box::new(capture)) })
    }

    pub fn exec(&self) -> sys::CUgraphExec {
        self.exec
    }

    pub fn ordinal(&self) -> u32 {
        self.device.ordinal()
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.device.bury(Grave::Graph(self.exec, held));
        }
    }
}
