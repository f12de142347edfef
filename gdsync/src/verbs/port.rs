//! A port of a device, and the GID by which peers reach it.

use super::context::Context;
use super::error::{Error, Result};
use gdsync_sys::ibv_query_gid_ex;
use gdsync_sys::verbs::{
    IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2, IBV_LINK_LAYER_ETHERNET,
    IBV_PORT_ACTIVE, ibv_gid_entry, ibv_port_attr,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv6Addr;
use std::sync::Arc;

/// What a port is connected to.
///
/// See [`Device`](super::Device) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LinkLayer {
    /// InfiniBand: peers are reached by LID, across subnets by GID.
    InfiniBand,
    /// Ethernet (RoCE): peers are reached by GID.
    Ethernet,
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet (RoCE)",
        })
    }
}

/// A 128-bit address of a port.
///
/// See [`Device`](super::Device) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The first half: the subnet of an InfiniBand port.
    #[must_use]
    pub fn subnet(&self) -> &[u8] {
        &self.0[..8]
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

/// Which protocol a GID stands for.
///
/// See [`Device`](super::Device) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GidType {
    /// InfiniBand.
    InfiniBand,
    /// RoCE over Ethernet frames: not routable.
    RoceV1,
    /// RoCE over UDP.
    RoceV2,
    /// A number that the header does not list.
    Other(u32),
}

impl fmt::Display for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InfiniBand => f.write_str("IB"),
            Self::RoceV1 => f.write_str("RoCE v1"),
            Self::RoceV2 => f.write_str("RoCE v2"),
            Self::Other(n) => write!(f, "type {n}"),
        }
    }
}

/// One line of a port's GID table.
///
/// See [`Device`](super::Device) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidEntry {
    /// Index in the table.
    pub index: u32,
    /// Address.
    pub gid: Gid,
    /// Protocol.
    pub kind: GidType,
}

impl fmt::Display for GidEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.index, self.gid, self.kind)
    }
}

impl GidEntry {
    /// How well it suits; the lowest is taken. See [`PortChoice`].
    fn rank(&self) -> u32 {
        let address = Ipv6Addr::from(self.gid.0);
        match self.kind {
            GidType::InfiniBand => 0,
            GidType::RoceV2 if address.to_ipv4_mapped().is_some() => 1,
            GidType::RoceV2 if !address.is_unicast_link_local() => 2,
            GidType::RoceV2 => 3,
            GidType::RoceV1 => 4,
            GidType::Other(_) => 5,
        }
    }
}

/// Bytes that a packet carries at most: the path MTU of InfiniBand and RoCE, 256 to 4096.
///
/// See [`Device`](super::Device) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mtu(u8);

impl Mtu {
    /// From the number of `enum ibv_mtu`, 1 (256 bytes) to 5 (4096 bytes).
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        u8::try_from(number).ok().filter(|n| (1..=5).contains(n)).map(Self)
    }

    /// The number of `enum ibv_mtu`.
    #[must_use]
    pub fn number(self) -> u32 {
        u32::from(self.0)
    }

    /// Bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        128 << self.0
    }
}

/// A port of a device, with the GID that queue pairs will use.
///
/// See [`Device`](super::Device) for an example.
#[derive(Debug, Clone)]
pub struct Port {
    pub(super) context: Arc<Context>,
    /// Number, from 1.
    pub number: u8,
    /// Whether it is up.
    pub active: bool,
    /// What it is connected to.
    pub link_layer: LinkLayer,
    /// Local identifier; 0 on Ethernet.
    pub lid: u16,
    /// Largest packet now.
    pub mtu: Mtu,
    /// Entries of the GID table.
    pub gid_count: u32,
    pkey_count: u16,
    /// The GID; `None` only on a port that was listed and has none.
    pub gid: Option<GidEntry>,
    /// Index of the partition key in its table.
    pub pkey_index: u16,
    /// Service level of its packets: 0 to 15.
    pub service_level: u8,
    /// Traffic class of their global route header: on RoCE v2 the upper six bits are the DSCP.
    pub traffic_class: u8,
}

impl Port {
    /// Its device.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

/// Which port and GID to take, and what goes into every packet.
///
/// Unless a port is named, the first active one. Unless an index is named, the GID is
/// * on InfiniBand the first entry, which holds the port's own GUID;
/// * on Ethernet the best kind of entry, and of those the one with the lowest index: RoCE v2 with an IPv4
///   address, RoCE v2 with a routable IPv6 address, RoCE v2 with a link-local one, RoCE v1.
///
/// Both ends of a connection must come to the same kind of RoCE, which they do on a network set up in one way; where
/// it is not, name the index. Empty (all-zero) entries are never taken.
///
/// ```no_run
/// use gdsync::verbs::{self, PortChoice};
///
/// let context = verbs::device(Some("mlx5_0"))?.open()?;
/// let port = context.port(&PortChoice { gid_index: Some(3), ..PortChoice::default() })?;
/// # Ok::<(), verbs::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortChoice {
    /// Number of the port, from 1.
    pub port: Option<u8>,
    /// Index in its GID table.
    pub gid_index: Option<u32>,
    /// Partition key: the entry of the port's table with these lower 15 bits. Unless one is named, the entry at index 0.
    pub pkey: Option<u16>,
    /// Service level, 0 to 15: the lane of an InfiniBand fabric, the priority on Ethernet.
    pub service_level: u8,
    /// Traffic class; on RoCE v2 four times the DSCP.
    pub traffic_class: u8,
}

impl PortChoice {
    pub(super) fn choose(&self, context: &Arc<Context>) -> Result<Port> {
        let ports = context.ports()?;
        let wanted = |port: &&Port| self.port.is_none_or(|number| number == port.number);
        let Some(port) = ports.iter().filter(wanted).find(|port| port.active) else {
            let state = |p: &Port| {
                format!("port {}: {}", p.number, if p.active { "active" } else { "not active" })
            };
            return Err(Error::NoActivePort {
                device: context.name().to_owned(),
                wanted: self.port,
                states: ports.iter().map(state).collect(),
            });
        };
        if self.service_level > MAX_SERVICE_LEVEL {
            let (found, most) = (self.service_level.into(), MAX_SERVICE_LEVEL.into());
            return Err(Error::TooMuch { what: "service level", found, most });
        }
        let (service_level, traffic_class) = (self.service_level, self.traffic_class);
        let pkey_index = self.pkey.map_or(Ok(0), |pkey| find_pkey(context, port, pkey))?;
        let table = read_gids(context, port)?;
        match pick(&table, self.gid_index) {
            Some(gid) => Ok(Port {
                gid: Some(gid),
                pkey_index,
                service_level,
                traffic_class,
                ..port.clone()
            }),
            None => Err(Error::NoGid {
                device: context.name().to_owned(),
                port: port.number,
                wanted: self.gid_index,
                table: table.iter().map(ToString::to_string).collect(),
            }),
        }
    }
}

/// The entry that the rule of [`PortChoice`] takes.
fn pick(table: &[GidEntry], index: Option<u32>) -> Option<GidEntry> {
    let there = table.iter().filter(|entry| entry.gid.0 != [0; 16]);
    match index {
        Some(index) => there.into_iter().find(|entry| entry.index == index).copied(),
        None => there.min_by_key(|entry| (entry.rank(), entry.index)).copied(),
    }
}

/// Service levels have four bits.
const MAX_SERVICE_LEVEL: u8 = 15;
/// The bit of a partition key that says how much of a member a port is.
const FULL_MEMBER: u16 = 0x8000;

/// Where a partition key stands in a port's table.
fn find_pkey(context: &Arc<Context>, port: &Port, wanted: u16) -> Result<u16> {
    let mut table = Vec::new();
    for index in 0..port.pkey_count {
        let mut pkey = 0;
        // SAFETY: the context is open and `pkey` writable.
        let rc = unsafe {
            let index = i32::from(index);
            context.verbs().ibv_query_pkey(context.as_ptr(), port.number, index, &mut pkey)
        };
        // It comes in network order. An entry that is not there is 0.
        match u16::from_be(pkey) {
            _ if rc != 0 => break,
            0 => {}
            pkey if (pkey ^ wanted) & !FULL_MEMBER == 0 => return Ok(index),
            pkey => table.push(format!("{pkey:#06x}")),
        }
    }
    let (device, port) = (context.name().to_owned(), port.number);
    Err(Error::NoPkey { device, port, wanted, table })
}

/// Asks for the state of a port.
pub(super) fn read_port(context: &Arc<Context>, number: u8) -> Result<Port> {
    let mut attr = ibv_port_attr::default();
    let what = format!("port {number}");
    // SAFETY: the context is open; the library writes the older, shorter beginning of the struct.
    let rc =
        unsafe { context.verbs().ibv_query_port(context.as_ptr(), number, (&raw mut attr).cast()) };
    context.check("ibv_query_port", rc, &what)?;
    let mtu = Mtu::from_number(attr.active_mtu)
        .ok_or_else(|| context.failed("ibv_query_port", &what, Errno::PROTO))?;
    let ethernet = u32::from(attr.link_layer) == IBV_LINK_LAYER_ETHERNET;
    let mut port = Port {
        context: context.clone(),
        number,
        active: attr.state == IBV_PORT_ACTIVE,
        // "Unspecified" is what drivers said that knew InfiniBand only.
        link_layer: if ethernet { LinkLayer::Ethernet } else { LinkLayer::InfiniBand },
        lid: attr.lid,
        mtu,
        gid_count: attr.gid_tbl_len.max(0) as u32,
        pkey_count: attr.pkey_tbl_len,
        gid: None,
        pkey_index: 0,
        service_level: 0,
        traffic_class: 0,
    };
    port.gid = pick(&read_gids(context, &port)?, None);
    Ok(port)
}

/// The entries of a port's GID table that are set.
pub(super) fn read_gids(context: &Arc<Context>, port: &Port) -> Result<Vec<GidEntry>> {
    let mut table = Vec::new();
    for index in 0..port.gid_count {
        let mut entry = ibv_gid_entry::default();
        let number = u32::from(port.number);
        // SAFETY: the context is open and `entry` writable.
        let rc = unsafe {
            ibv_query_gid_ex(context.verbs(), context.as_ptr(), number, index, &mut entry, 0)
        };
        // An empty entry is ENODATA.
        if rc == Errno::NODATA.raw_os_error() {
            continue;
        }
        context.check("ibv_query_gid_ex", rc, &format!("GID {index} of port {number}"))?;
        let kind = match entry.gid_type {
            IBV_GID_TYPE_IB => GidType::InfiniBand,
            IBV_GID_TYPE_ROCE_V1 => GidType::RoceV1,
            IBV_GID_TYPE_ROCE_V2 => GidType::RoceV2,
            other => GidType::Other(other),
        };
        // SAFETY: every part of the union is plain bytes.
        let gid = Gid(unsafe { entry.gid.raw });
        table.push(GidEntry { index, gid, kind });
    }
    Ok(table)
}

/// Which RDMA device and port are used.
///
/// ```no_run
/// use gdsync::nic::{Nic, WireKind};
/// use gdsync::nic::soft::{SoftNic, SoftNicOptions};
/// use gdsync::verbs::RdmaOptions;
///
/// let rdma = RdmaOptions { device: Some("mlx5_0".into()), ..RdmaOptions::default() };
/// let nic = SoftNic::open(&SoftNicOptions { rdma: Some(rdma), ..SoftNicOptions::default() })?;
/// assert!(nic.capabilities().wires.contains(&WireKind::Rdma));
/// # Ok::<(), gdsync::nic::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RdmaOptions {
    /// Name of the device; the first with an active port, if there is none.
    pub device: Option<String>,
    /// Port, GID, partition, service level and traffic class.
    pub port: PortChoice,
    /// What the device carries out itself.
    pub zero_copy: ZeroCopy,
}

/// Which requests of a software NIC the RDMA device carries out itself, on registered memory of both sides, without a copy by
/// the CPU and without the peer's help. The others go as messages between the two NICs.
///
/// ```
/// use gdsync::verbs::{RdmaOptions, ZeroCopy};
///
/// let by_messages = RdmaOptions { zero_copy: ZeroCopy::Off, ..RdmaOptions::default() };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ZeroCopy {
    /// None.
    Off,
    /// As `On`, but this side's memory goes through a small pool, as memory does that the device cannot reach.
    Staged,
    /// Writes and reads; atomics if those of the peer's device are atomic for its CPU, too.
    #[default]
    On,
    /// Atomics in any case. For programs that change such words by this device alone: few devices' atomics are atomic for
    /// the CPU, which does those of peers on the same host.
    All,
}

impl RdmaOptions {
    /// Opens the device and finds the port.
    ///
    /// # Errors
    /// If there is no such device, or no such port on it; the error lists what there is.
    pub fn find(&self) -> Result<Port> {
        if let Some(name) = &self.device {
            return super::device(Some(name))?.open()?.port(&self.port);
        }
        let mut first = None;
        for device in super::devices()? {
            match device.open().and_then(|context| context.port(&self.port)) {
                Ok(port) => return Ok(port),
                Err(error) => first = first.or(Some(error)),
            }
        }
        let nothing = || Error::NoDevice { wanted: "at all".into(), found: Vec::new() };
        Err(first.unwrap_or_else(nothing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u32, kind: GidType, address: &str) -> GidEntry {
        GidEntry { index, kind, gid: Gid(address.parse::<Ipv6Addr>().unwrap().octets()) }
    }

    #[test]
    fn the_routable_roce_address_is_taken_before_the_others() {
        let mut table = vec![
            entry(0, GidType::RoceV1, "fe80::1"),
            entry(1, GidType::RoceV2, "fe80::1"),
            entry(2, GidType::RoceV1, "::ffff:10.0.0.1"),
            entry(3, GidType::RoceV2, "2001:db8::1"),
            entry(4, GidType::RoceV2, "::ffff:10.0.0.1"),
            entry(5, GidType::RoceV2, "::ffff:10.0.0.2"),
        ];
        let mut order = Vec::new();
        while let Some(best) = pick(&table, None) {
            order.push(best.index);
            table.retain(|e| e.index != best.index);
        }
        assert_eq!(order, [4, 5, 3, 1, 0, 2]);
    }

    #[test]
    fn a_named_index_is_taken_as_it_is_unless_it_is_empty() {
        let table = [entry(0, GidType::RoceV2, "::ffff:10.0.0.1"), entry(1, GidType::RoceV1, "::")];
        assert_eq!(pick(&table, Some(0)).map(|e| e.index), Some(0));
        assert_eq!(pick(&table, Some(1)), None);
        assert_eq!(pick(&table, Some(7)), None);
        let table =
            [entry(3, GidType::InfiniBand, "fe80::2"), entry(4, GidType::InfiniBand, "::2")];
        assert_eq!(pick(&table, None).map(|e| e.index), Some(3));
    }

    #[test]
    fn an_mtu_has_the_bytes_of_its_number() {
        let bytes: Vec<_> = (0..7).map(|n| Mtu::from_number(n).map(Mtu::bytes)).collect();
        assert_eq!(bytes, [None, Some(256), Some(512), Some(1024), Some(2048), Some(4096), None]);
    }
}
