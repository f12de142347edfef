//! How bytes go to a rank: chosen once for each pair, from what both sides know, so that both choose the same.

use std::fmt;

use gdsync::nic::WireKind;

use crate::config::PathChoice;
use crate::control::message::PeerInfo;

/// How bytes go to another rank: [`Communicator::path`](crate::Communicator::path).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Path {
    /// Its memory is mapped here.
    Direct,
    /// Through queue pairs of the software NIC, over shared memory of the host.
    NicSharedMemory,
    /// Through queue pairs of the software NIC, over TCP.
    NicTcp,
}

impl Path {
    /// The path between two ranks of a world.
    pub(crate) fn between(choice: PathChoice, peers: &[PeerInfo], one: usize, two: usize) -> Path {
        let one_host = peers[one].node == peers[two].node;
        match choice {
            _ if one == two => Path::Direct,
            PathChoice::Auto if one_host => Path::Direct,
            PathChoice::Nic if one_host => Path::NicSharedMemory,
            _ => Path::NicTcp,
        }
    }

    /// The wire of its queue pairs, if it has any.
    pub(crate) fn wire(self) -> Option<WireKind> {
        match self {
            Path::Direct => None,
            Path::NicSharedMemory => Some(WireKind::SharedMemory),
            Path::NicTcp => Some(WireKind::Tcp),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Path::Direct => "direct",
            Path::NicSharedMemory => "software NIC over shared memory",
            Path::NicTcp => "software NIC over TCP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_follows_the_hosts_and_the_variable_and_is_the_same_from_both_sides() {
        let peer = |node: &str| PeerInfo { host: "h".into(), node: node.into(), pid: 1 };
        let peers = [peer("a"), peer("a"), peer("b")];
        for (choice, near, far) in [
            (PathChoice::Auto, Path::Direct, Path::NicTcp),
            (PathChoice::Nic, Path::NicSharedMemory, Path::NicTcp),
            (PathChoice::NicTcp, Path::NicTcp, Path::NicTcp),
        ] {
            for (one, two, expected) in
                [(0, 1, near), (0, 2, far), (1, 2, far), (2, 2, Path::Direct)]
            {
                assert_eq!(Path::between(choice, &peers, one, two), expected);
                assert_eq!(Path::between(choice, &peers, two, one), expected);
            }
        }
    }
}
