//! Graphs: operations of a stream that are captured instead of run, and replayed. What a CUDA stream captures is `cuda::graph`'s.

use std::fmt;
use std::sync::Arc;

use super::{Inner, Stream};
use crate::cuda::graph::CudaGraph;
use crate::error::{Error, Result};
use crate::host::executor::HostOp;
use crate::watchdog::target::Target;

/// Captured operations that can be replayed any number of times, in one piece.
///
/// ```
/// use std::time::Duration;
///
/// use gdsync::{Deadline, Device};
///
/// let device = Device::Host; // or Device::best()
/// let (stream, word) = (device.stream()?, device.alloc_pinned::<u64>(1)?.word(0)?);
/// stream.begin_capture()?;
/// stream.write64(&word, 5)?;
/// let graph = stream.end_capture()?;
/// assert_eq!(word.load(), Some(0)); // captured, not run
/// stream.launch_graph(&graph)?;
/// stream.synchronize(Deadline::after(Duration::from_secs(10)))?;
/// assert_eq!(word.load(), Some(5));
/// # Ok::<(), gdsync::Error>(())
/// ```
pub struct Graph {
    inner: GraphInner,
    targets: Arc<[Target]>,
}

enum GraphInner {
    Host(Arc<[HostOp]>),
    Cuda(CudaGraph),
}

impl Stream {
    /// Whether operations are being captured instead of running.
    pub fn is_capturing(&self) -> bool {
        match &self.inner {
            Inner::Host(executor) => executor.is_capturing(),
            Inner::Cuda(stream) => stream.is_capturing(),
        }
    }

    /// From here on operations are captured instead of running, until [`Stream::end_capture`].
    ///
    /// # Errors
    /// If a capture is under way.
    pub fn begin_capture(&self) -> Result<()> {
        match &self.inner {
            Inner::Host(executor) => {
                executor.begin_capture().then_some(()).ok_or_else(|| Error::Unsupported {
                    what: "beginning a capture",
                    place: self.name.clone(),
                    why: "one is under way".into(),
                })
            }
            Inner::Cuda(stream) => stream.begin_capture(),
        }
    }

    /// Ends the capture and makes a graph of it. The graph holds the memory that its operations use.
    ///
    /// # Errors
    /// If no capture is under way; what the driver says.
    pub fn end_capture(&self) -> Result<Graph> {
        match &self.inner {
            Inner::Host(executor) => {
                let ops = executor.end_capture().ok_or_else(|| Error::Unsupported {
                    what: "ending a capture",
                    place: self.name.clone(),
                    why: "none is under way".into(),
                })?;
                let mut targets = Vec::new();
                ops.iter().for_each(|op| host_targets(op, &mut targets));
                Ok(Graph { inner: GraphInner::Host(ops.into()), targets: targets.into() })
            }
            Inner::Cuda(stream) => {
                let (graph, mut capture) = stream.end_capture()?;
                let targets = std::mem::take(&mut capture.targets).into();
                let graph = CudaGraph::instantiate(stream.device(), graph, capture)?;
                Ok(Graph { inner: GraphInner::Cuda(graph), targets })
            }
        }
    }

    /// Replays a graph. Two replays of one graph do not overlap, on whatever streams.
    ///
    /// # Errors
    /// If the graph belongs to another device; what the driver says.
    pub fn launch_graph(&self, graph: &Graph) -> Result<()> {
        let watch = |number| match graph.targets.is_empty() {
            true => Ok(()),
            false => self.watch_wait(number, Target::Graph(graph.targets.clone())),
        };
        match (&self.inner, &graph.inner) {
            (Inner::Host(executor), GraphInner::Host(ops)) => {
                executor.enqueue(std::iter::once(HostOp::Graph(ops.clone())), watch)
            }
            (Inner::Cuda(stream), GraphInner::Cuda(graph))
                if graph.ordinal() == stream.device().ordinal() =>
            {
                stream.launch_graph(graph.exec(), watch)
            }
            _ => Err(self.foreign("a graph")),
        }
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            GraphInner::Host(ops) => write!(f, "graph of {} operations (host)", ops.len()),
            GraphInner::Cuda(graph) => write!(f, "graph (cuda:{})", graph.ordinal()),
        }
    }
}

fn host_targets(op: &HostOp, targets: &mut Vec<Target>) {
    match op {
        HostOp::Wait32(word, until) => targets.push(Target::Word32(word.clone(), *until)),
        HostOp::Wait64(word, until) => targets.push(Target::Word64(word.clone(), *until)),
        HostOp::Bounded(word, until, _) => targets.push(Target::Bounded(word.clone(), *until)),
        HostOp::Graph(ops) => ops.iter().for_each(|op| host_targets(op, targets)),
        _ => {}
    }
}
