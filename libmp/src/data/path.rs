//! The paths between the ranks of a world. Each rank finds out what keeps it from the others' memory and tells all, so that
//! all choose the same; [`gdsync::path`] chooses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use gdsync::path::Path;
use gdsync::path::{Adapter, Choice, Facts, Memories, PathChoice, choose};
use gdsync::verbs::LinkLayer;
use gdsync::verbs::RdmaOptions;
use gdsync::{Buffer, CudaDevice, Device, PeerHandle, PeerLink, PeerMemory, Space};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::collective::{self, Call};
use crate::control::message::PeerInfo;
use crate::control::{Control, Turn, WORLD};
use crate::error::{Error, Result};

/// The paths between the ranks of a world.
pub(crate) struct Paths {
    pub wish: PathChoice,
    peers: Arc<[PeerInfo]>,
    /// Of each rank, if its host is not the only one.
    adapters: Vec<Rdma>,
    /// Between ranks of one host, the lower first.
    obstacles: BTreeMap<(usize, usize), Obstacle>,
}

/// What keeps two ranks of one host from each other's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Obstacle {
    /// The GPUs that the launcher chose for them have no peer access.
    Gpus,
    /// One cannot map host memory of the other, and why.
    Memory(String),
}

/// The RDMA device that a rank has found, with the kind of its port, or why there is none.
type Rdma = std::result::Result<(String, LinkLayer), String>;

/// What a rank tells the others.
#[derive(Serialize, Deserialize)]
struct Place {
    /// Memory that they try to map.
    page: PeerHandle,
    /// The GPU that the launcher chose for it.
    gpu: Option<[u8; 16]>,
    /// Nothing where all are on one host.
    rdma: Option<Rdma>,
}

impl Paths {
    fn new(wish: PathChoice, peers: Arc<[PeerInfo]>) -> Paths {
        Paths { wish, peers, adapters: Vec::new(), obstacles: BTreeMap::new() }
    }

    /// The paths of the world of `control`, and how many collectives it took to find out: the same number on all ranks. `gpu`
    /// is what the launcher chose for this rank, and `rdma` the RDMA device.
    ///
    /// # Errors
    /// What ended the world meanwhile; [`Error::Memory`].
    pub fn explore(
        control: &Control,
        peers: Arc<[PeerInfo]>,
        wish: PathChoice,
        (gpu, rdma): (Option<&str>, &RdmaOptions),
        timeout: Duration,
    ) -> Result<(Paths, u64)> {
        let ranks = peers.len();
        let mut paths = Paths::new(wish, peers);
        let one_host = paths.is_one_host();
        if one_host && !paths.has_processes_of_one_host() {
            return Ok((paths, 0));
        }
        let what = "finding the paths between the ranks";
        let gather = |turn, mine: postcard::Result<Vec<u8>>| {
            let mine = mine.map_err(|error| control.breach(format!("{what}: {error}")))?;
            let (turn, call) = (Turn { group: WORLD, turn, team: None }, Call::AllGather);
            let (_, all) = control.call(turn, call, mine.into(), what, timeout, || None)?;
            collective::decode_gathered(&all, ranks)
                .ok_or_else(|| control.breach(format!("rank 0 gave no result for {what}")))
        };
        let failed = |source| Error::Memory { op: what.into(), source };
        let page = Buffer::<u8>::new(&Device::Host, Space::Pinned, 1).map_err(failed)?;
        let own_gpu: Option<u32> = gpu.and_then(|gpu| gpu.parse().ok());
        let place = Place {
            page: page.export().map_err(failed)?,
            gpu: own_gpu.and_then(|ordinal| CudaDevice::uuid_of(ordinal).ok()),
            rdma: (!one_host).then(|| match rdma.find() {
                Ok(port) => Ok((port.context().name().to_owned(), port.link_layer)),
                Err(error) => Err(error.to_string()),
            }),
        };
        let (rank, mut own) = (control.rank(), Vec::new());
        for (other, blob) in gather(0, postcard::to_stdvec(&place))?.iter().enumerate() {
            let mut place: Place = decode(control, other, blob)?;
            paths.adapters.extend(place.rdma.take());
            if paths.are_processes_of_one_host(rank, other)
                && let Some(obstacle) = obstacle(own_gpu, &place)
            {
                own.push((other as u32, obstacle));
            }
        }
        // Until all have said what they found, the page is there.
        let found = gather(1, postcard::to_stdvec(&own))?;
        for (rank, blob) in found.iter().enumerate() {
            let found: Vec<(u32, Obstacle)> = decode(control, rank, blob)?;
            for (other, obstacle) in found {
                paths.note(rank, other as usize, obstacle);
            }
        }
        Ok((paths, 2))
    }

    /// Notes what rank `one` has found of rank `two`. Of two obstacles the greater counts; of equal ones the first.
    fn note(&mut self, one: usize, two: usize, obstacle: Obstacle) {
        let known = self.obstacles.entry((one.min(two), one.max(two)));
        let known = known.or_insert_with(|| obstacle.clone());
        if *known == Obstacle::Gpus {
            *known = obstacle;
        }
    }

    /// Whether every rank has every other's memory mapped. Every rank comes to the same answer.
    pub fn all_direct(&self) -> bool {
        self.peers.len() < 2
            || (self.wish == PathChoice::Auto && self.obstacles.is_empty() && self.is_one_host())
    }

    fn is_one_host(&self) -> bool {
        let first = self.peers.first().map(|peer| &peer.node);
        self.peers.iter().all(|peer| Some(&peer.node) == first)
    }

    /// The path between two ranks of the world.
    pub fn between(&self, one: usize, two: usize) -> Path {
        if one == two { Path::Direct } else { self.choice(one, two).path }
    }

    /// The path between two ranks, and why not a faster one.
    pub fn choice(&self, one: usize, two: usize) -> Choice {
        let one_host = self.peers[one].node == self.peers[two].node;
        let (not_shared, memories) = match self.obstacles.get(&(one.min(two), one.max(two))) {
            None => (None, Memories::Host),
            Some(Obstacle::Memory(why)) => (Some(why.clone()), Memories::Host),
            Some(Obstacle::Gpus) => {
                let link = PeerLink { access: false, atomics: false, rank: 0 };
                (None, Memories::TwoGpus(Ok(link)))
            }
        };
        let one_process = one_host && self.peers[one].pid == self.peers[two].pid;
        let adapter = match one_host {
            true => Adapter::Unknown,
            false => self.adapter(one, two),
        };
        choose(self.wish, &Facts { one_process, one_host, not_shared, memories, adapter })
    }

    /// The RDMA devices of two ranks. As [`choice`](Self::choice) needs it: alike from both sides, but for a name.
    fn adapter(&self, one: usize, two: usize) -> Adapter {
        let missing = |rank: usize, why: &str| {
            Adapter::Missing(format!("rank {rank} on {}: {why}", self.peers[rank].host))
        };
        match (self.adapters.get(one), self.adapters.get(two)) {
            (Some(Err(why)), _) => missing(one, why),
            (_, Some(Err(why))) => missing(two, why),
            (Some(Ok((name, here))), Some(Ok((_, there)))) if here == there => {
                Adapter::Found { name: name.clone(), gpu: false }
            }
            (Some(Ok((name, here))), Some(Ok((other, there)))) => {
                Adapter::Missing(format!("{name} is on {here}, {other} on {there}"))
            }
            _ => Adapter::Unknown,
        }
    }

    fn are_processes_of_one_host(&self, one: usize, two: usize) -> bool {
        let (one, two) = (&self.peers[one], &self.peers[two]);
        one.node == two.node && one.pid != two.pid
    }

    fn has_processes_of_one_host(&self) -> bool {
        let mut process_on = BTreeMap::new();
        self.peers.iter().any(|peer| *process_on.entry(&peer.node).or_insert(peer.pid) != peer.pid)
    }
}

/// What keeps this rank from the memory of another one.
fn obstacle(own_gpu: Option<u32>, other: &Place) -> Option<Obstacle> {
    if let Err(error) = PeerMemory::map(&other.page, &Device::Host) {
        return Some(Obstacle::Memory(error.to_string()));
    }
    // A GPU that this process does not see is taken to be reached.
    let their_gpu = CudaDevice::ordinal_of(&other.gpu?).ok()??;
    let link = PeerLink::between(own_gpu?, their_gpu).ok()?;
    (!link.access).then_some(Obstacle::Gpus)
}

fn decode<T: DeserializeOwned>(control: &Control, rank: usize, blob: &[u8]) -> Result<T> {
    postcard::from_bytes(blob)
        .map_err(|error| control.breach(format!("what rank {rank} says of its memory: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks 0 and 1 are threads of a process, 2 another process of their host, 3 on another host.
    fn world(wish: PathChoice) -> Paths {
        let peer = |node: &str, pid| PeerInfo { host: "h".into(), node: node.into(), pid };
        Paths::new(wish, [peer("a", 1), peer("a", 1), peer("a", 2), peer("b", 1)].into())
    }

    #[test]
    fn the_path_follows_the_hosts_and_the_variable_and_is_the_same_from_both_sides() {
        for (wish, near, far) in [
            (PathChoice::Auto, Path::Direct, Path::NicTcp),
            (PathChoice::Nic, Path::NicSharedMemory, Path::NicTcp),
            (PathChoice::NicTcp, Path::NicTcp, Path::NicTcp),
            (PathChoice::NicVerbs, Path::NicVerbs, Path::NicVerbs),
        ] {
            let paths = world(wish);
            for (one, two, expected) in
                [(0, 1, near), (1, 2, near), (0, 3, far), (2, 3, far), (3, 3, Path::Direct)]
            {
                assert_eq!(paths.between(one, two), expected);
                assert_eq!(paths.between(two, one), expected);
            }
            assert!(!paths.all_direct());
        }
    }

    #[test]
    fn hosts_with_rdma_devices_of_one_kind_use_them_and_others_say_why_not() {
        let mut paths = world(PathChoice::Auto);
        let found = |layer| Ok(("rxe0".to_owned(), layer));
        let (ethernet, infiniband) = (LinkLayer::Ethernet, LinkLayer::InfiniBand);
        paths.adapters =
            vec![found(ethernet), found(infiniband), Err("no library".into()), found(ethernet)];
        assert_eq!((paths.between(0, 3), paths.between(3, 0)), (Path::NicVerbs, Path::NicVerbs));
        assert_eq!(paths.between(0, 1), Path::Direct);
        for (one, why) in [(1, "InfiniBand"), (2, "rank 2 on h: no library")] {
            for choice in [paths.choice(one, 3), paths.choice(3, one)] {
                assert_eq!(choice.path, Path::NicTcp);
                assert!(choice.not_faster.as_ref().unwrap().contains(why), "{choice:?}");
            }
        }
    }

    #[test]
    fn ranks_that_cannot_map_each_other_take_the_nic_and_say_why_and_the_others_do_not() {
        let mut paths = world(PathChoice::Auto);
        // Either side may find it; what memory lacks weighs more than what GPUs lack.
        paths.note(2, 0, Obstacle::Gpus);
        assert_eq!(paths.between(0, 2), Path::NicSharedMemory);
        assert!(paths.choice(2, 0).not_faster.unwrap().contains("no peer access"));
        paths.note(0, 2, Obstacle::Memory("another user".into()));
        paths.note(0, 2, Obstacle::Gpus);
        assert_eq!((paths.between(0, 2), paths.between(2, 0)), (Path::NicTcp, Path::NicTcp));
        assert!(paths.choice(2, 0).not_faster.unwrap().contains("another user"));
        assert_eq!((paths.between(0, 1), paths.between(1, 2)), (Path::Direct, Path::Direct));
    }

    #[test]
    fn one_host_without_obstacles_is_all_direct_and_asks_nobody_if_it_is_one_process() {
        let peer = |pid| PeerInfo { host: "h".into(), node: "a".into(), pid };
        let mut paths = Paths::new(PathChoice::Auto, [peer(1), peer(1)].into());
        assert!(paths.all_direct() && !paths.has_processes_of_one_host());
        paths.note(0, 1, Obstacle::Gpus);
        assert!(!paths.all_direct());
        let paths = Paths::new(PathChoice::Auto, [peer(1), peer(2)].into());
        assert!(paths.all_direct() && paths.has_processes_of_one_host());
        assert!(
            !world(PathChoice::Auto).all_direct()
                && world(PathChoice::Auto).has_processes_of_one_host()
        );
    }
}
