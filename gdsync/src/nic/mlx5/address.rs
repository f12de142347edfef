//! What a queue pair of an mlx5 adapter tells its peer, and the route that follows from both.

use serde::{Deserialize, Serialize};

use super::command::Route;
use crate::nic::error::{Error, Result};
use crate::verbs::{Gid, GidType, LinkLayer, Mtu, Port};

/// Where a queue pair is found: plain data, to be sent by whatever means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueuePairAddress {
    pub(super) qpn: u32,
    pub(super) psn: u32,
    pub(super) link_layer: LinkLayer,
    pub(super) mtu: Mtu,
    pub(super) lid: u16,
    pub(super) gid: Gid,
}

/// The way from `port` to a peer. On Ethernet `next_hop` says which address is the first on it, for the index of this port's GID.
pub(super) fn route(
    port: &Port,
    peer: &QueuePairAddress,
    next_hop: impl FnOnce(u8) -> Result<[u8; 6]>,
) -> Result<Route> {
    let refused = |why: String| Err(Error::Route { why });
    if port.link_layer != peer.link_layer {
        return refused(format!(
            "this port is on {}, the peer's on {}",
            port.link_layer, peer.link_layer
        ));
    }
    let Some(own) = port.gid else { return refused("this port has no GID".into()) };
    // GID tables have at most 256 entries.
    let own_index = own.index as u8;
    match peer.link_layer {
        LinkLayer::InfiniBand if peer.gid.subnet() == own.gid.subnet() && peer.lid != 0 => {
            Ok(Route::Lid(peer.lid))
        }
        LinkLayer::InfiniBand => Ok(Route::Global { lid: peer.lid, gid: peer.gid.0, own_index }),
        LinkLayer::Ethernet => {
            // The range that RoCE v2 reserves for sources begins at 0xc000; by queue pair, to spread over paths.
            let udp_port =
                (own.kind == GidType::RoceV2).then_some(0xc000 | (peer.qpn as u16 & 0x3fff));
            Ok(Route::Ethernet { gid: peer.gid.0, mac: next_hop(own_index)?, own_index, udp_port })
        }
    }
}
