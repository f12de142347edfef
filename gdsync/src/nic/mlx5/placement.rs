//! Where the queues of a queue pair of an mlx5 adapter lie, and why not in the GPU's own memory where they do not.

use std::fmt;

use super::objects::dma_bufs;
use crate::device::Device;
use crate::nic::options::Posters;

/// Where queues lie: what a machine says, before it is tried.
///
/// ```
/// use gdsync::Device;
/// use gdsync::nic::Posters;
/// use gdsync::nic::mlx5::Placement;
///
/// let of_the_host = Placement::choose(&Device::Host, Posters::Kernels);
/// assert_eq!(of_the_host.to_string(), "in pinned memory: the host has no memory of its own");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// In the GPU's own memory, which the adapter gets as a dma-buf.
    DmaBuf,
    /// In the GPU's own memory, which the adapter gets by its address, through the kernel module nvidia-peermem.
    Address {
        /// Why not as a dma-buf.
        why: String,
    },
    /// In pinned memory of the host.
    Pinned {
        /// Why not in a GPU's.
        why: String,
    },
}

/// What decides.
struct Facts<'a> {
    posters: Posters,
    /// None: no GPU.
    gpu: Option<Gpu<'a>>,
}

#[derive(Clone, Copy)]
struct Gpu<'a> {
    /// The driver says that devices reach its memory.
    direct: bool,
    /// The driver exports its memory.
    dma_buf: bool,
    /// Whether libmlx5 takes dma-bufs for queues.
    library: Result<(), &'a str>,
}

impl Placement {
    /// Of queues to which `posters` of `device` post. What is chosen may still be refused when it is tried; then it is the next one.
    pub fn choose(device: &Device, posters: Posters) -> Placement {
        let library = dma_bufs().map(drop).map_err(|error| error.to_string());
        let library = library.as_ref().copied().map_err(String::as_str);
        let gpu = device.as_cuda().map(|gpu| Gpu {
            direct: gpu.capabilities().gpudirect_rdma,
            dma_buf: gpu.capabilities().dma_buf,
            library,
        });
        choose(&Facts { posters, gpu })
    }
}

fn choose(facts: &Facts<'_>) -> Placement {
    let pinned = |why: &str| Placement::Pinned { why: why.to_owned() };
    let Some(gpu) = facts.gpu else { return pinned("the host has no memory of its own") };
    if facts.posters == Posters::All {
        return pinned("the CPU posts, too");
    }
    if !gpu.direct {
        return pinned("the driver says that no device reaches this GPU's memory (GPUDirect RDMA)");
    }
    match (gpu.dma_buf, gpu.library) {
        (true, Ok(())) => Placement::DmaBuf,
        (true, Err(why)) => Placement::Address { why: why.to_owned() },
        (false, _) => {
            Placement::Address { why: "the driver exports no memory of this GPU".to_owned() }
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::DmaBuf => f.write_str("in the GPU's memory, as a dma-buf"),
            Placement::Address { why } => {
                write!(f, "in the GPU's memory, by its address (nvidia-peermem): no dma-buf, {why}")
            }
            Placement::Pinned { why } => write!(f, "in pinned memory: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_kernels_lie_in_the_gpus_memory_where_the_adapter_reaches_it_and_else_it_is_said_why()
     {
        let kernels = Posters::Kernels;
        let best = Gpu { direct: true, dma_buf: true, library: Ok(()) };
        let text = |posters, gpu| choose(&Facts { posters, gpu }).to_string();
        assert_eq!(choose(&Facts { posters: kernels, gpu: Some(best) }), Placement::DmaBuf);
        for (posters, gpu, expected) in [
            (kernels, None, "in pinned memory: the host has no memory of its own"),
            (Posters::All, Some(best), "in pinned memory: the CPU posts, too"),
            (kernels, Some(Gpu { direct: false, ..best }), "GPUDirect RDMA"),
            (
                kernels,
                Some(Gpu { dma_buf: false, ..best }),
                "nvidia-peermem): no dma-buf, the driver",
            ),
            (kernels, Some(Gpu { library: Err("too old"), ..best }), "no dma-buf, too old"),
        ] {
            assert!(text(posters, gpu).contains(expected), "{}", text(posters, gpu));
        }
    }
}
