//! Which path bytes take between two places, and why not a faster one: the one place where that is decided. Pure: facts in,
//! choice out. `libmp` gathers the facts of two ranks and does what this says; `mp-info` gathers those of a machine and
//! prints it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::cuda::topology::PeerLink;
use crate::nic::WireKind;

/// Which paths the user allows: `MP_PATH`.
///
/// See [`Facts`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PathChoice {
    /// The fastest.
    #[default]
    Auto,
    /// The software NIC also between places of one host, over shared memory.
    Nic,
    /// The software NIC over TCP between all places.
    NicTcp,
    /// The software NIC over RDMA devices between all places.
    NicVerbs,
}

impl FromStr for PathChoice {
    type Err = ();

    fn from_str(text: &str) -> Result<PathChoice, ()> {
        Ok(match text {
            "auto" => PathChoice::Auto,
            "nic" => PathChoice::Nic,
            "nic-tcp" => PathChoice::NicTcp,
            "nic-verbs" => PathChoice::NicVerbs,
            _ => return Err(()),
        })
    }
}

impl fmt::Display for PathChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathChoice::Auto => "auto",
            PathChoice::Nic => "nic",
            PathChoice::NicTcp => "nic-tcp",
            PathChoice::NicVerbs => "nic-verbs",
        })
    }
}

/// How bytes go from one place to another.
///
/// ```
/// use gdsync::path::Path;
///
/// assert!(Path::Direct.wire().is_none());
/// println!("bytes go by {}", Path::NicTcp);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Path {
    /// The other's memory is mapped.
    Direct,
    /// Through queue pairs of the software NIC, over shared memory of the host.
    NicSharedMemory,
    /// Through queue pairs of the software NIC, over TCP.
    NicTcp,
    /// Through queue pairs of the software NIC, over RDMA devices.
    NicVerbs,
}

impl Path {
    /// The wire of its queue pairs, if it has any.
    pub fn wire(self) -> Option<WireKind> {
        match self {
            Path::Direct => None,
            Path::NicSharedMemory => Some(WireKind::SharedMemory),
            Path::NicTcp => Some(WireKind::Tcp),
            Path::NicVerbs => Some(WireKind::Rdma),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Path::Direct => "direct",
            Path::NicSharedMemory => "software NIC over shared memory",
            Path::NicTcp => "software NIC over TCP",
            Path::NicVerbs => "software NIC over RDMA",
        })
    }
}

/// What is known of two places.
///
/// ```
/// use gdsync::PeerLink;
/// use gdsync::path::{Adapter, Facts, Memories, Path, PathChoice, choose};
///
/// let mut facts = Facts {
///     one_process: false,
///     one_host: true,
///     not_shared: None,
///     memories: Memories::TwoGpus(Ok(PeerLink { access: true, atomics: false, rank: 0 })),
///     adapter: Adapter::Unknown,
/// };
/// let choice = choose(PathChoice::Auto, &facts);
/// assert_eq!((choice.path, choice.by), (Path::Direct, "PCIe peer memory"));
/// assert!(choice.not_faster.is_some()); // atomics over the link would be NVLink's
///
/// facts.one_host = false;
/// facts.adapter = Adapter::Missing("libibverbs.so.1 is not installed".into());
/// assert_eq!(choose(PathChoice::Auto, &facts).path, Path::NicTcp);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// They are the same process.
    pub one_process: bool,
    /// They are on the same host.
    pub one_host: bool,
    /// Why processes of the two cannot map host memory of each other, though on one host.
    pub not_shared: Option<String>,
    /// The memories at the two ends.
    pub memories: Memories,
    /// What there is of RDMA adapters.
    pub adapter: Adapter,
}

/// The memories at the two ends of a path.
///
/// See [`Facts`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Memories {
    /// Host memory at both, or nothing is known of GPUs.
    Host,
    /// Host memory at one, a GPU's at the other.
    HostAndGpu,
    /// Of the same GPU.
    OneGpu,
    /// Of two GPUs: how one reaches the other's memory, or why that is not known.
    TwoGpus(Result<PeerLink, String>),
}

/// The RDMA devices that could carry bytes between two hosts.
///
/// See [`Facts`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adapter {
    /// Nobody has looked.
    Unknown,
    /// One of the hosts has none, and why.
    Missing(String),
    /// Both have one. The first with an active port here, and whether a GPU is there whose memory it can reach.
    Found {
        /// What it is called.
        name: String,
        /// A GPU of this host supports GPUDirect RDMA.
        gpu: bool,
    },
}

/// The path, by what means, and why not a faster one.
///
/// See [`Facts`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The path.
    pub path: Path,
    /// What carries the bytes.
    pub by: &'static str,
    /// Why not a faster way; `None` if there is none.
    pub not_faster: Option<String>,
}

/// Decides. The answer is the same from both sides if the facts are.
pub fn choose(wish: PathChoice, facts: &Facts) -> Choice {
    let direct = |by, not_faster| Choice { path: Path::Direct, by, not_faster };
    let shared = |why: &str| {
        let by = "software NIC, staged through host memory";
        Choice { path: Path::NicSharedMemory, by, not_faster: Some(why.to_owned()) }
    };
    let tcp = |why: String| Choice {
        path: Path::NicTcp,
        by: "software NIC over TCP",
        not_faster: Some(why),
    };
    let verbs = |why: String| Choice {
        path: Path::NicVerbs,
        by: "software NIC over RDMA",
        not_faster: Some(why),
    };
    match wish {
        PathChoice::NicTcp => return tcp("MP_PATH=nic-tcp was asked for".into()),
        PathChoice::NicVerbs => return verbs("MP_PATH=nic-verbs was asked for".into()),
        PathChoice::Auto | PathChoice::Nic => {}
    }
    if !facts.one_host {
        return match &facts.adapter {
            Adapter::Unknown => tcp("nobody has looked for RDMA devices".into()),
            Adapter::Missing(why) => tcp(format!("no RDMA device: {why}")),
            Adapter::Found { name, gpu } => verbs(no_queues_of_its_own(name, *gpu)),
        };
    }
    match (wish, &facts.not_shared) {
        // The NIC's shared memory is mapped as any other.
        (_, Some(why)) if !facts.one_process => {
            return tcp(format!("the processes cannot map each other's memory: {why}"));
        }
        (PathChoice::Nic, _) => return shared("MP_PATH=nic was asked for"),
        _ => {}
    }
    match &facts.memories {
        Memories::Host => direct("shared memory", None),
        Memories::HostAndGpu => direct("pinned host memory", None),
        Memories::OneGpu => direct("the same GPU (CUDA IPC between processes)", None),
        Memories::TwoGpus(Ok(PeerLink { access: true, atomics: true, .. })) => {
            direct("NVLink peer memory", None)
        }
        Memories::TwoGpus(Ok(PeerLink { access: true, .. })) => {
            let why = "the link has no native atomics, so it is no NVLink";
            direct("PCIe peer memory", Some(why.into()))
        }
        Memories::TwoGpus(Ok(_)) => shared("the driver gives the two GPUs no peer access"),
        Memories::TwoGpus(Err(why)) => shared(why),
    }
}

/// Why the GPU does not fill and ring queues of the device itself.
fn no_queues_of_its_own(name: &str, gpu: bool) -> String {
    match gpu {
        _ if !name.starts_with("mlx5") => {
            format!("{name}: only mlx5 queues can be mapped for the GPU")
        }
        false => format!("{name}: no GPU with GPUDirect RDMA"),
        true => format!(
            "{name}: mlx5 queues have not yet run on hardware; mp-info --probe-nic tries them"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Facts = Facts {
        one_process: false,
        one_host: true,
        not_shared: None,
        memories: Memories::Host,
        adapter: Adapter::Unknown,
    };

    fn gpus(access: bool, atomics: bool) -> Memories {
        Memories::TwoGpus(Ok(PeerLink { access, atomics, rank: 0 }))
    }

    /// The topologies that there are: facts, wish, and what comes of them.
    #[test]
    fn every_topology_has_its_path_and_a_reason_unless_it_is_the_fastest() {
        use PathChoice::{Auto, Nic, NicTcp, NicVerbs};
        let far = || Facts { one_host: false, ..NEAR };
        let with = |memories| Facts { memories, ..NEAR };
        let apart = |memories| Facts { not_shared: Some("EACCES".into()), memories, ..NEAR };
        let adapter = |adapter| Facts { adapter, ..far() };
        let found = |name: &str, gpu| adapter(Adapter::Found { name: name.into(), gpu });
        for (wish, facts, path, by, why) in [
            // Processes of one host.
            (Auto, NEAR, Path::Direct, "shared memory", ""),
            (Nic, NEAR, Path::NicSharedMemory, "software NIC", "MP_PATH=nic was"),
            (NicTcp, NEAR, Path::NicTcp, "TCP", "MP_PATH=nic-tcp was"),
            (NicVerbs, NEAR, Path::NicVerbs, "RDMA", "MP_PATH=nic-verbs was"),
            // They cannot map each other: other users, other PID or IPC namespaces.
            (Auto, apart(Memories::Host), Path::NicTcp, "TCP", "map each other's memory: EACCES"),
            (Nic, apart(Memories::Host), Path::NicTcp, "TCP", "map each other's memory: EACCES"),
            (Auto, apart(gpus(true, true)), Path::NicTcp, "TCP", "EACCES"),
            (Auto, apart(Memories::OneGpu), Path::NicTcp, "TCP", "EACCES"),
            // Threads of one process need no mapping.
            (
                Auto,
                Facts { one_process: true, ..apart(Memories::Host) },
                Path::Direct,
                "shared memory",
                "",
            ),
            // GPUs.
            (Auto, with(Memories::HostAndGpu), Path::Direct, "pinned", ""),
            (Auto, with(Memories::OneGpu), Path::Direct, "the same GPU", ""),
            (Auto, with(gpus(true, true)), Path::Direct, "NVLink", ""),
            (Auto, with(gpus(true, false)), Path::Direct, "PCIe", "no native atomics"),
            (Auto, with(gpus(false, false)), Path::NicSharedMemory, "staged", "no peer access"),
            (
                Auto,
                with(Memories::TwoGpus(Err("no answer".into()))),
                Path::NicSharedMemory,
                "staged",
                "no answer",
            ),
            (Nic, with(gpus(true, true)), Path::NicSharedMemory, "staged", "MP_PATH=nic was"),
            (NicTcp, with(gpus(true, true)), Path::NicTcp, "TCP", "MP_PATH=nic-tcp was"),
            // Two hosts.
            (Auto, far(), Path::NicTcp, "TCP", "nobody has looked"),
            (Nic, far(), Path::NicTcp, "TCP", "nobody has looked"),
            (NicTcp, far(), Path::NicTcp, "TCP", "MP_PATH=nic-tcp was"),
            (NicTcp, found("rxe0", true), Path::NicTcp, "TCP", "MP_PATH=nic-tcp was"),
            (NicVerbs, far(), Path::NicVerbs, "RDMA", "MP_PATH=nic-verbs was"),
            (Auto, Facts { memories: gpus(true, true), ..far() }, Path::NicTcp, "TCP", "looked"),
            (
                Auto,
                adapter(Adapter::Missing("no library".into())),
                Path::NicTcp,
                "TCP",
                "no RDMA device: no library",
            ),
            (Auto, found("rxe0", true), Path::NicVerbs, "RDMA", "rxe0: only mlx5"),
            (Nic, found("rxe0", true), Path::NicVerbs, "RDMA", "rxe0: only mlx5"),
            (Auto, found("mlx5_0", false), Path::NicVerbs, "RDMA", "mlx5_0: no GPU"),
            (Auto, found("mlx5_0", true), Path::NicVerbs, "RDMA", "mp-info --probe-nic"),
        ] {
            let choice = choose(wish, &facts);
            let reason = choice.not_faster.as_deref().unwrap_or_default();
            assert_eq!(choice.path, path, "{wish} {facts:?}");
            assert!(choice.by.contains(by), "{wish} {facts:?}: {choice:?}");
            assert!(reason.contains(why), "{wish} {facts:?}: {choice:?}");
            assert_eq!(choice.not_faster.is_none(), why.is_empty(), "{wish} {facts:?}: {choice:?}");
        }
    }

    #[test]
    fn a_wish_is_written_as_it_is_read() {
        for wish in [PathChoice::Auto, PathChoice::Nic, PathChoice::NicTcp, PathChoice::NicVerbs] {
            assert_eq!(wish.to_string().parse(), Ok(wish));
        }
        assert_eq!("direct".parse::<PathChoice>(), Err(()));
    }
}
