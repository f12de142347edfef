//! What lies between GPUs and adapters: GPUDirect RDMA, doorbells that a GPU can ring, address translation and routing of PCI
//! Express, and the distance in NUMA nodes.

use super::facts::PciDevice;
use super::{Facts, Finding, defect, unknown, warning};

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    if facts.pci.is_none() {
        return vec![unknown(
            "pci",
            "/sys/bus/pci/devices cannot be listed: GPUs and adapters are not known",
            "/sys is mounted",
            "mount -t sysfs sysfs /sys; in a container: mount the host's /sys",
        )];
    }
    let adapters: Vec<_> =
        facts.adapters.iter().filter_map(|a| Some((a.name.as_str(), a.pci.as_ref()?))).collect();
    let mut findings = Vec::new();
    if let ([_, ..], [(adapter, _), ..]) = (&facts.gpus[..], &adapters[..]) {
        // Without the module the check of the driver says all that is to be said.
        if let Some(version) = facts.read("proc/driver/nvidia/version") {
            findings.extend(gpudirect(facts, &version, adapter));
            findings.extend(doorbells(facts, adapter));
        }
        findings.extend(facts.gpus.iter().filter_map(|gpu| distance(facts, gpu, &adapters)));
    }
    let mut ends: Vec<&PciDevice> = facts.gpus.iter().collect();
    if !ends.is_empty() {
        ends.extend(adapters.iter().map(|(_, pci)| pci));
    }
    if ends.len() > 1 {
        findings.extend(translation(facts, &ends));
        findings.extend(routing(facts, &ends));
    }
    findings
}

/// Whether adapters can reach the memory of GPUs: by nvidia-peermem, or by dma-buf.
fn gpudirect(facts: &Facts, version: &str, adapter: &str) -> Option<Finding> {
    let modules = ["nvidia_peermem", "nv_peer_mem"];
    if modules.iter().any(|module| facts.exists(&format!("sys/module/{module}"))) {
        return None;
    }
    let expected = "the module nvidia-peermem, or dma-buf (NVIDIA's open kernel module and Linux 5.12 or newer)";
    let mend = "modprobe nvidia-peermem (needs the ib_core of DOCA-OFED or Ubuntu), or install the open kernel module (package nvidia-open)";
    let open = version.contains("Open Kernel Module");
    let Some(release) = facts.read("proc/sys/kernel/osrelease") else {
        let found = "/proc/sys/kernel/osrelease cannot be read: whether dma-buf works is not known";
        return (open).then(|| unknown("gpudirect-rdma", found, expected, "look at: uname -r"));
    };
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse().ok());
    let kernel: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let why = match open {
        true if kernel >= (5, 12) => return None,
        true => format!("Linux {release} has no dma-buf for RDMA"),
        false => "the NVIDIA kernel module is the closed one, which exports no dma-buf".into(),
    };
    let found =
        format!("{adapter} cannot reach GPU memory: nvidia-peermem is not loaded, and {why}");
    Some(defect("gpudirect-rdma", found, expected, mend))
}

/// Whether kernels may ring the doorbell of an mlx5 adapter: the driver maps registers of other devices for GPUs only if told.
fn doorbells(facts: &Facts, adapter: &str) -> Option<Finding> {
    if !adapter.starts_with("mlx5") {
        return None;
    }
    let expected = "RegistryDwords has PeerMappingOverride=1 in /proc/driver/nvidia/params";
    let mend = "echo 'options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\"' >/etc/modprobe.d/nvidia-peer.conf; \
        update-initramfs -u; restart";
    let Some(dwords) = facts.field("proc/driver/nvidia/params", "RegistryDwords") else {
        let found = "/proc/driver/nvidia/params cannot be read: whether GPUs may ring doorbells is not known";
        return Some(unknown(
            "gpu-doorbell",
            found,
            expected,
            "as root: grep RegistryDwords /proc/driver/nvidia/params",
        ));
    };
    let set = dwords.trim_matches('"').split(';').any(|one| one.trim() == "PeerMappingOverride=1");
    let found = format!("GPUs may not ring the doorbells of {adapter}: RegistryDwords is {dwords}");
    (!set).then(|| warning("gpu-doorbell", found, expected, mend))
}

/// How far the nearest adapter is from a GPU.
fn distance(facts: &Facts, gpu: &PciDevice, adapters: &[(&str, &PciDevice)]) -> Option<Finding> {
    let nodes = facts.list("sys/devices/system/node").unwrap_or_default();
    let is_node =
        |name: &&String| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok());
    if nodes.iter().filter(is_node).count() < 2 {
        return None;
    }
    let expected = "an adapter on the NUMA node of every GPU";
    let silent = |device: &PciDevice| {
        let address = &device.address;
        unknown(
            "numa-distance",
            format!("the firmware does not say on which NUMA node {address} is"),
            expected,
            format!(
                "ask for it in the firmware's settings; lspci -tv shows where {address} is plugged in"
            ),
        )
    };
    let Some(home) = gpu.node else { return Some(silent(gpu)) };
    if let Some((_, adapter)) = adapters.iter().find(|(_, adapter)| adapter.node.is_none()) {
        return Some(silent(adapter));
    }
    let distances = facts.read(&format!("sys/devices/system/node/node{home}/distance"));
    let distances: Vec<u32> = distances
        .iter()
        .flat_map(|text| text.split_whitespace())
        .filter_map(|number| number.parse().ok())
        .collect();
    let far = |adapter: &PciDevice| {
        let node = adapter.node.unwrap_or(home);
        // Distances are relative: 10 is the node itself.
        if node == home { 10 } else { distances.get(node as usize).copied().unwrap_or(u32::MAX) }
    };
    let (name, nearest) = adapters.iter().min_by_key(|(_, adapter)| far(adapter))?;
    let node = nearest.node.filter(|node| *node != home)?;
    let how_far = match far(nearest) {
        u32::MAX => "of unknown distance".to_owned(),
        distance => format!("at distance {distance}"),
    };
    let address = &gpu.address;
    Some(warning(
        "numa-distance",
        format!(
            "the GPU {address} is on NUMA node {home}, the nearest adapter {name} on node {node}, {how_far}"
        ),
        expected,
        format!(
            "plug an adapter into a slot of node {home}; until then give ranks that use the network the GPUs of node {node} \
             (CUDA_VISIBLE_DEVICES) and its cores (numactl --cpunodebind={node})"
        ),
    ))
}

/// Whether an IOMMU translates the addresses that devices use between themselves.
fn translation(facts: &Facts, ends: &[&PciDevice]) -> Option<Finding> {
    let expected = "no IOMMU, or one that passes addresses through (/sys/bus/pci/devices/*/iommu_group/type: identity)";
    let mend = "iommu=pt (on ARM iommu.passthrough=1) on the kernel's command line, or the IOMMU off in the firmware; then restart";
    for end in ends {
        let address = &end.address;
        let group = format!("sys/bus/pci/devices/{address}/iommu_group");
        if !facts.exists(&group) {
            continue;
        }
        match facts.read(&format!("{group}/type")).as_deref() {
            Some("identity") => continue,
            Some(kind) => {
                let found = format!(
                    "the IOMMU translates for {address} (its group is of type {kind}): transfers between devices go through the processor"
                );
                return Some(warning("iommu", found, expected, mend));
            }
            None => {
                let line = facts.read("proc/cmdline").unwrap_or_default();
                let through = ["iommu=pt", "iommu.passthrough=1"];
                if !line.split_whitespace().any(|option| through.contains(&option)) {
                    let found =
                        format!("{address} is behind an IOMMU; whether it translates is not known");
                    return Some(unknown(
                        "iommu",
                        found,
                        expected,
                        "dmesg | grep -i 'default domain type' says it",
                    ));
                }
            }
        }
    }
    None
}

/// Whether switches send transfers between two of their devices up to the processor (Access Control Services).
fn routing(facts: &Facts, ends: &[&PciDevice]) -> Option<Finding> {
    let expected =
        "switches between GPUs and adapters pass transfers on directly: no redirection by ACS";
    let (mut redirecting, mut silent) = (Vec::new(), Vec::new());
    for (at, a) in ends.iter().enumerate() {
        for b in &ends[at + 1..] {
            let shared = a.bridges.iter().zip(&b.bridges).take_while(|(x, y)| x == y).count();
            if shared == 0 {
                continue;
            }
            for bridge in a.bridges[shared..].iter().chain(&b.bridges[shared..]) {
                let config = facts.bytes(&format!("sys/bus/pci/devices/{bridge}/config"));
                match config.as_deref().map(redirects) {
                    Some(Some(true)) if !redirecting.contains(bridge) => {
                        redirecting.push(bridge.clone())
                    }
                    Some(Some(_)) => {}
                    _ => silent.push(bridge.clone()),
                }
            }
        }
    }
    if !redirecting.is_empty() {
        let list = redirecting.join(" ");
        return Some(warning(
            "pci-acs",
            format!(
                "ACS sends transfers between devices of one switch through the processor (at {list})"
            ),
            expected,
            format!(
                "as root, after every start: for bridge in {list}; do setpci -s $bridge ECAP_ACS+6.w=0; done; or ACS off in the firmware"
            ),
        ));
    }
    silent.first().map(|bridge| {
        unknown(
            "pci-acs",
            format!("the extended configuration of {bridge} cannot be read by this user: whether ACS redirects is not known"),
            expected,
            format!("as root: mp-info, or lspci -s {bridge} -vvv | grep ACSCtl"),
        )
    })
}

/// Whether the configuration space of a bridge asks for redirection; `None` if only its first part can be read.
fn redirects(config: &[u8]) -> Option<bool> {
    const ACS: u32 = 0x000d;
    // Requests, completions, upstream forwarding.
    const REDIRECTION: u16 = 1 << 2 | 1 << 3 | 1 << 4;
    let word = |at: usize| Some(u32::from_le_bytes(config.get(at..at + 4)?.try_into().ok()?));
    let mut at = 0x100;
    // A list of capabilities: number, version, where the next one is. It has no more than fit.
    for _ in 0..(4096 - 0x100) / 4 {
        let header = word(at)?;
        if header & 0xffff == ACS {
            let control = (word(at + 4)? >> 16) as u16;
            return Some(control & REDIRECTION != 0);
        }
        at = (header >> 20) as usize;
        if at < 0x100 {
            break;
        }
    }
    Some(false)
}
