//! RDMA adapters: their kernel drivers, device nodes and libraries, their ports, and how much memory may be registered.

use super::facts::{Access, PciDevice};
use super::{Facts, Finding, defect, unknown, warning};

const MELLANOX: u32 = 0x15b3;
const NETWORK: u32 = 0x02;
const CONTAINER: &str = "in a container: start it with --device=/dev/infiniband";
const UNLIMITED: &str = "echo '* - memlock unlimited' >/etc/security/limits.d/rdma.conf and log in again; in a systemd unit \
    LimitMEMLOCK=infinity; in a container --ulimit memlock=-1; in Slurm PropagateResourceLimitsExcept=MEMLOCK";

/// Less than this is not enough for queues and a first window.
const LEAST_LOCKED: u64 = 64 << 20;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = without_rdma(facts);
    if facts.adapters.is_empty() {
        return findings;
    }
    nodes(facts, &mut findings);
    let needed = ["libibverbs.so.1"].into_iter().chain(has_mlx5(facts).then_some("libmlx5.so.1"));
    findings.extend(needed.filter(|name| facts.library(name).is_none()).map(|name| {
        defect(
            "rdma-library",
            format!("{name} is not found"),
            "libibverbs.so.1 and the library of the adapter (libmlx5.so.1)",
            "apt-get install libibverbs1 ibverbs-providers (libibverbs on Red Hat and SUSE)",
        )
    }));
    findings.extend(ports(facts));
    findings.extend(locked(facts));
    findings
}

fn has_mlx5(facts: &Facts) -> bool {
    facts.adapters.iter().any(|adapter| adapter.name.starts_with("mlx5"))
}

/// Adapters on PCI of which the kernel makes no RDMA device.
fn without_rdma(facts: &Facts) -> Vec<Finding> {
    let known = |device: &PciDevice| {
        let same = |pci: &PciDevice| pci.address == device.address;
        facts.adapters.iter().any(|adapter| adapter.pci.as_ref().is_some_and(same))
    };
    let devices = facts.pci.as_deref().unwrap_or_default().iter();
    let adapters =
        devices.filter(|device| device.vendor == MELLANOX && device.class >> 16 == NETWORK);
    adapters
        .filter(|device| !known(device) && device.driver.as_deref() != Some("vfio-pci"))
        .map(|device| {
            let address = &device.address;
            let (found, mend) = match device.driver.as_deref() {
                None => ("has no driver", "modprobe mlx5_core mlx5_ib".into()),
                Some(_) if !facts.exists("sys/module/mlx5_ib") => {
                    ("has no RDMA driver: mlx5_ib is not loaded", "modprobe mlx5_ib".into())
                }
                Some(_) => (
                    "has its driver, and yet is no RDMA device",
                    format!("devlink dev param set pci/{address} name enable_roce value true cmode driverinit; \
                        devlink dev reload pci/{address}; in a container: start it with --network=host"),
                ),
            };
            defect(
                "rdma-driver",
                format!("the adapter {address} {found}"),
                "an RDMA device in /sys/class/infiniband",
                mend,
            )
        })
        .collect()
}

/// The device nodes that libibverbs opens.
fn nodes(facts: &Facts, findings: &mut Vec<Finding>) {
    let folder = "sys/class/infiniband_verbs";
    let all = facts.list(folder).unwrap_or_default();
    for adapter in &facts.adapters {
        let name = &adapter.name;
        let is_ours =
            |node: &&String| facts.read(&format!("{folder}/{node}/ibdev")).as_ref() == Some(name);
        let Some(node) = all.iter().find(is_ours) else {
            findings.push(defect(
                "rdma-module",
                format!("programs cannot reach {name}: it has no entry in /{folder}"),
                "the kernel module ib_uverbs is loaded",
                "modprobe ib_uverbs",
            ));
            continue;
        };
        let node = format!("dev/infiniband/{node}");
        findings.extend(match facts.access(&node) {
            Access::Granted => None,
            Access::Missing => Some(defect(
                "rdma-nodes",
                format!("/{node}, the node of {name}, is missing"),
                "a node of every adapter in /dev/infiniband",
                format!("udevadm trigger --subsystem-match=infiniband_verbs; {CONTAINER}"),
            )),
            Access::Mode(mode) => Some(defect(
                "rdma-permission",
                format!("this user may not read and write /{node} (mode {mode:04o}), the node of {name}"),
                "read and write for who runs the program (mode 0666)",
                format!(
                    "chmod a+rw /{node}; to stay: KERNEL==\"uverbs*\", MODE=\"0666\" in /etc/udev/rules.d/90-rdma.rules"
                ),
            )),
            Access::Refused(error) => Some(super::refused("rdma-device-cgroup", &node, error, CONTAINER)),
        });
    }
}

/// Whether any port can send.
fn ports(facts: &Facts) -> Option<Finding> {
    let mut seen = Vec::new();
    for name in facts.adapters.iter().map(|adapter| &adapter.name) {
        let folder = format!("sys/class/infiniband/{name}/ports");
        for port in facts.list(&folder)? {
            let read = |file: &str| facts.read(&format!("{folder}/{port}/{file}"));
            seen.push((name, port.clone(), read("state")?, read("link_layer")));
        }
    }
    if seen.iter().any(|(_, _, state, _)| state.contains("ACTIVE")) {
        return None;
    }
    let (name, port, state, link_layer) = seen.first()?;
    let state_of = |(name, port, state, _): &(&String, String, String, _)| {
        format!("{name} port {port}: {}", state.split(": ").last().unwrap_or_default())
    };
    let list: Vec<_> = seen.iter().map(state_of).collect();
    let mend = match link_layer.as_deref() {
        Some("Ethernet") => format!(
            "ip link set $(ls /sys/class/infiniband/{name}/device/net | head -n 1) up, and give it an address"
        ),
        _ if state.contains("INIT") => {
            "start a subnet manager in this fabric: systemctl start opensm".into()
        }
        _ => format!("look at cable and switch of {name} port {port}: ibstat {name}"),
    };
    let found = format!("no port of any adapter is active ({})", list.join(", "));
    Some(defect("rdma-port", found, "a port in state ACTIVE", mend))
}

/// The limit of locked memory, which all registered memory counts against.
fn locked(facts: &Facts) -> Option<Finding> {
    if facts.process.may_lock_memory() {
        return None;
    }
    let expected = "unlimited: memory that an adapter reads and writes is locked";
    let Some(limit) = facts.limit("Max locked memory") else {
        let found = "/proc/self/limits does not say how much memory may be locked";
        return Some(unknown("memlock", found, expected, "look at: ulimit -l"));
    };
    let found = format!("this process may lock {} KiB of memory", limit / 1024);
    match limit {
        ..LEAST_LOCKED => Some(defect("memlock", found, expected, UNLIMITED)),
        limit if limit < facts.memory().unwrap_or(0) => {
            Some(warning("memlock", found, expected, UNLIMITED))
        }
        _ => None,
    }
}
