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
    /// Of the interface behind the GID; only on Ethernet.
    pub(super) mac: Option<[u8; 6]>,
}

/// The address of the interface behind a GID, as the kernel shows it.
pub(super) fn mac_of(device: &str, port: u8, gid_index: u32) -> Result<[u8; 6]> {
    let ports = format!("/sys/class/infiniband/{device}/ports/{port}");
    let read = |path: String| {
        std::fs::read_to_string(&path)
            .map(|text| text.trim().to_owned())
            .map_err(|error| Error::Route { why: format!("{path}: {error}") })
    };
    let interface = read(format!("{ports}/gid_attrs/ndevs/{gid_index}"))?;
    let text = read(format!("/sys/class/net/{interface}/address"))?;
    parse_mac(&text).ok_or_else(|| Error::Route {
        why: format!("{interface} has the address {text}, which is none of Ethernet"),
    })
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<u8>> =
        text.split(':').map(|part| u8::from_str_radix(part, 16).ok()).collect();
    bytes?.try_into().ok()
}

/// The way from `port` to a peer.
pub(super) fn route(port: &Port, peer: &QueuePairAddress) -> Result<Route> {
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
    match (peer.link_layer, peer.mac) {
        (LinkLayer::InfiniBand, _) if peer.gid.subnet() == own.gid.subnet() && peer.lid != 0 => {
            Ok(Route::Lid(peer.lid))
        }
        (LinkLayer::InfiniBand, _) => {
            Ok(Route::Global { lid: peer.lid, gid: peer.gid.0, own_index })
        }
        (LinkLayer::Ethernet, None) => refused("the peer did not say its Ethernet address".into()),
        (LinkLayer::Ethernet, Some(mac)) => {
            // The range that RoCE v2 reserves for sources begins at 0xc000; by queue pair, to spread over paths.
            let udp_port =
                (own.kind == GidType::RoceV2).then_some(0xc000 | (peer.qpn as u16 & 0x3fff));
            Ok(Route::Ethernet { gid: peer.gid.0, mac, own_index, udp_port })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ethernet_address_is_six_bytes() {
        assert_eq!(parse_mac("0c:42:a1:00:ff:07"), Some([0x0c, 0x42, 0xa1, 0, 0xff, 7]));
        for text in ["", "0c:42:a1:00:ff", "0c:42:a1:00:ff:07:01", "xx:42:a1:00:ff:07"] {
            assert_eq!(parse_mac(text), None, "{text}");
        }
    }

    #[test]
    fn a_device_that_the_kernel_does_not_know_has_no_address() {
        let error = mac_of("no_such_nic", 1, 0).unwrap_err().to_string();
        assert!(error.contains("/sys/class/infiniband/no_such_nic/ports/1"), "{error}");
    }
}
