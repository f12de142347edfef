//! What a queue pair must know of its peer: exchanged between the two by any means before they connect.

use super::error::{Error, Result};
use super::port::{Gid, LinkLayer, Mtu};
use serde::{Deserialize, Serialize};

/// One end of a connection. Send it to the peer as [`Endpoint::to_bytes`] or through serde.
///
/// See [`verbs`](super) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Queue pair (24 bits).
    pub qp_num: u32,
    /// First packet sequence number it sends (24 bits).
    pub psn: u32,
    /// Reads and atomics that it serves at once.
    pub incoming_reads: u8,
    /// Kind of its port.
    pub link_layer: LinkLayer,
    /// Largest packet of its port.
    pub mtu: Mtu,
    /// Local identifier of its port; 0 on Ethernet.
    pub lid: u16,
    /// Address of its port.
    pub gid: Gid,
}

const MAGIC: [u8; 4] = *b"MPep";
const VERSION: u8 = 1;

impl Endpoint {
    /// Size of the byte form.
    pub const BYTES: usize = 36;

    /// The byte form: the same on every machine, integers big-endian.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = match self.link_layer {
            LinkLayer::InfiniBand => 1,
            LinkLayer::Ethernet => 2,
        };
        // An MTU is 1 to 5.
        bytes[6] = self.mtu.number() as u8;
        bytes[7] = self.incoming_reads;
        bytes[8..12].copy_from_slice(&self.qp_num.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.psn.to_be_bytes());
        bytes[16..18].copy_from_slice(&self.lid.to_be_bytes());
        bytes[20..].copy_from_slice(&self.gid.0);
        bytes
    }

    /// Reads the byte form.
    ///
    /// # Errors
    /// If the bytes are none, or of another version, with both versions named.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let error = |why: String| Error::Endpoint { why };
        let bytes: &[u8; Self::BYTES] = bytes
            .try_into()
            .map_err(|_| error(format!("{} bytes instead of {}", bytes.len(), Self::BYTES)))?;
        if bytes[..4] != MAGIC {
            return Err(error(format!(
                "it begins with {:02x?} instead of {MAGIC:02x?}",
                &bytes[..4]
            )));
        }
        if bytes[4] != VERSION {
            return Err(error(format!(
                "the peer speaks version {}, this is version {VERSION}",
                bytes[4]
            )));
        }
        let link_layer = match bytes[5] {
            1 => LinkLayer::InfiniBand,
            2 => LinkLayer::Ethernet,
            other => return Err(error(format!("link layer {other}, expected 1 or 2"))),
        };
        let mtu = Mtu::from_number(bytes[6].into())
            .ok_or_else(|| error(format!("MTU number {}, expected 1 to 5", bytes[6])))?;
        let word = |at: usize| {
            bytes[at..at + 4].iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
        };
        let (qp_num, psn) = (word(8), word(12));
        for (what, value) in [("queue pair number", qp_num), ("packet sequence number", psn)] {
            if value >> 24 != 0 {
                return Err(error(format!("{what} {value:#x} has more than 24 bits")));
            }
        }
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[20..]);
        Ok(Self {
            qp_num,
            psn,
            incoming_reads: bytes[7],
            link_layer,
            mtu,
            lid: u16::from_be_bytes([bytes[16], bytes[17]]),
            gid: Gid(gid),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn endpoint() -> Endpoint {
        Endpoint {
            qp_num: 0x01_0203,
            psn: 0x11_1213,
            incoming_reads: 16,
            link_layer: LinkLayer::Ethernet,
            mtu: Mtu::from_number(3).unwrap(),
            lid: 0x2122,
            gid: Gid([7; 16]),
        }
    }

    #[test]
    fn an_endpoint_survives_its_bytes_and_serde() {
        let bytes = endpoint().to_bytes();
        assert_eq!(Endpoint::from_bytes(&bytes).unwrap(), endpoint());
        let json = serde_json::to_string(&endpoint()).unwrap();
        assert_eq!(serde_json::from_str::<Endpoint>(&json).unwrap(), endpoint());
    }

    #[test]
    fn an_endpoint_of_another_version_is_refused_with_both_versions() {
        let mut bytes = endpoint().to_bytes();
        bytes[4] = 9;
        let error = Endpoint::from_bytes(&bytes).unwrap_err().to_string();
        assert_eq!(error, "not an endpoint: the peer speaks version 9, this is version 1");
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_endpoint_or_an_error(
            noise in proptest::collection::vec(any::<u8>(), 0..64),
            at in 0..Endpoint::BYTES,
            value: u8,
        ) {
            let _ = Endpoint::from_bytes(&noise);
            let mut bytes = endpoint().to_bytes();
            bytes[at] = value;
            if let Ok(endpoint) = Endpoint::from_bytes(&bytes) {
                let mut again = endpoint.to_bytes();
                again[18..20].copy_from_slice(&bytes[18..20]);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
