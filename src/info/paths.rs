//! Which path bytes take between two places, and what a faster one would need. Pure: facts in, choice out.

use serde::Serialize;

use super::{Gpus, RdmaDevices};

/// A path between two places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Route {
    /// From where.
    pub from: String,
    /// To where.
    pub to: String,
    /// "direct" (the memory is mapped), or "nic" (a queue pair).
    pub path: &'static str,
    /// By what means.
    pub by: String,
    /// Why not a faster way; `None` if there is none.
    pub not_faster: Option<String>,
}

/// Every pair of places of this machine, then this machine and another.
pub fn all(gpus: &Gpus, rdma: &RdmaDevices) -> Vec<Route> {
    let mut routes = vec![Route {
        from: "cpu".into(),
        to: "cpu".into(),
        path: "direct",
        by: "shared memory".into(),
        not_faster: None,
    }];
    let usable: Vec<u32> = gpus.devices.iter().map(|gpu| gpu.ordinal).collect();
    for &gpu in &usable {
        routes.push(Route {
            from: format!("cuda:{gpu}"),
            to: "cpu".into(),
            path: "direct",
            by: "pinned host memory".into(),
            not_faster: None,
        });
    }
    for &from in &usable {
        for &to in usable.iter().filter(|to| **to >= from) {
            routes.push(between_gpus(gpus, from, to));
        }
    }
    if usable.is_empty() {
        let missing = gpus.missing.clone().unwrap_or_else(|| "there is no GPU".into());
        routes[0].not_faster = Some(format!("no GPU takes part: {missing}"));
    }
    routes.push(to_another_host(gpus, rdma));
    routes
}

fn between_gpus(gpus: &Gpus, from: u32, to: u32) -> Route {
    let route = |path, by: &str, not_faster| Route {
        from: format!("cuda:{from}"),
        to: format!("cuda:{to}"),
        path,
        by: by.into(),
        not_faster,
    };
    if from == to {
        return route("direct", "the same GPU (CUDA IPC between processes)", None);
    }
    match gpus.link(from, to) {
        Some(link) if link.access && link.atomics => route("direct", "NVLink peer memory", None),
        Some(link) if link.access => {
            let why = "the link has no native atomics, so it is no NVLink".to_owned();
            route("direct", "PCIe peer memory", Some(why))
        }
        Some(_) => {
            let why = "the driver gives the two GPUs no peer access".to_owned();
            route("nic", "software NIC, staged through host memory", Some(why))
        }
        None => {
            let why = "the driver says nothing about the link".to_owned();
            route("nic", "software NIC, staged through host memory", Some(why))
        }
    }
}

fn to_another_host(gpus: &Gpus, rdma: &RdmaDevices) -> Route {
    let route = |by: String, why: String| Route {
        from: "this host".into(),
        to: "another host".into(),
        path: "nic",
        by,
        not_faster: Some(why),
    };
    let soft = || "software NIC over TCP".to_owned();
    let active = |device: &&super::RdmaDevice| device.ports.iter().any(|port| port.active);
    match rdma.devices.iter().find(active) {
        None => {
            let missing = rdma.missing.clone().unwrap_or_else(|| "no RDMA port is active".into());
            route(soft(), format!("no RDMA device: {missing}"))
        }
        Some(device) if !device.name.starts_with("mlx5") => {
            let why = "only mlx5 queues can be mapped for the GPU";
            route(soft(), format!("{}: {why}", device.name))
        }
        Some(device) if gpus.devices.iter().any(|gpu| gpu.capabilities.gpudirect_rdma) => {
            let by = format!("mlx5 queues of {}", device.name);
            let why =
                "not yet run on hardware: mp-info --probe-nic tries it; else the software NIC";
            route(by, why.into())
        }
        Some(device) => route(soft(), format!("{}: no GPU with GPUDirect RDMA", device.name)),
    }
}

#[cfg(test)]
mod tests {
    use gdsync::{Capabilities, PeerLink};

    use super::super::{Gpu, Link, RdmaDevice, RdmaPort};
    use super::*;

    fn gpu(ordinal: u32) -> Gpu {
        let capabilities = Capabilities { gpudirect_rdma: true, ..Capabilities::default() };
        Gpu { ordinal, name: "GPU".into(), uuid: String::new(), capabilities, checks: Vec::new() }
    }

    fn machine(access: bool, atomics: bool) -> Gpus {
        let link = |from, to| Link { from, to, link: PeerLink { access, atomics, rank: 0 } };
        Gpus {
            driver: None,
            missing: None,
            devices: vec![gpu(0), gpu(1)],
            links: vec![link(0, 1), link(1, 0)],
        }
    }

    fn rdma(name: Option<&str>) -> RdmaDevices {
        let port = RdmaPort {
            number: 1,
            active: true,
            link_layer: "InfiniBand".into(),
            mtu: 4096,
            gid: None,
        };
        let device = |name: &str| RdmaDevice {
            name: name.into(),
            guid: String::new(),
            error: None,
            ports: vec![port],
        };
        RdmaDevices {
            missing: name.is_none().then(|| "none".into()),
            devices: name.map(device).into_iter().collect(),
        }
    }

    fn route<'a>(routes: &'a [Route], from: &str, to: &str) -> &'a Route {
        routes
            .iter()
            .find(|route| route.from == from && route.to == to)
            .expect("a route for every pair")
    }

    #[test]
    fn gpus_with_nvlink_are_mapped_and_nothing_is_faster() {
        let routes = all(&machine(true, true), &rdma(None));
        let found = route(&routes, "cuda:0", "cuda:1");
        assert_eq!(
            (found.path, found.by.as_str(), &found.not_faster),
            ("direct", "NVLink peer memory", &None)
        );
        assert_eq!(route(&routes, "cuda:1", "cuda:1").path, "direct");
    }

    #[test]
    fn a_slower_link_says_why_it_is_not_a_faster_one() {
        let pcie = all(&machine(true, false), &rdma(None));
        assert!(route(&pcie, "cuda:0", "cuda:1").not_faster.as_ref().unwrap().contains("atomics"));
        let none = all(&machine(false, false), &rdma(None));
        let found = route(&none, "cuda:0", "cuda:1");
        assert_eq!(found.path, "nic");
        assert!(found.not_faster.as_ref().unwrap().contains("peer access"));
    }

    #[test]
    fn another_host_is_reached_by_the_best_nic_there_is() {
        let by = |name| {
            let routes = all(&machine(true, true), &rdma(name));
            route(&routes, "this host", "another host").by.clone()
        };
        assert!(by(None).contains("TCP"));
        assert!(by(Some("rxe0")).contains("TCP"));
        assert!(by(Some("mlx5_0")).contains("mlx5 queues"));
    }

    #[test]
    fn a_machine_without_gpu_says_so() {
        let gpus = Gpus {
            driver: None,
            missing: Some("no driver".into()),
            devices: vec![],
            links: vec![],
        };
        let routes = all(&gpus, &rdma(None));
        assert!(route(&routes, "cpu", "cpu").not_faster.as_ref().unwrap().contains("no driver"));
    }
}
