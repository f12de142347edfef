//! The path between each pair of places of this machine, and to another: the facts that `mp-info` found, given to
//! [`gdsync::path`].

use gdsync::path::{Adapter, Facts, Memories, Path, PathChoice, choose};
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
    let usable: Vec<u32> = gpus.devices.iter().map(|gpu| gpu.ordinal).collect();
    let near = |from: String, to: String, memories| route(from, to, true, memories, rdma, gpus);
    let mut routes = vec![near("cpu".into(), "cpu".into(), Memories::Host)];
    for gpu in &usable {
        routes.push(near(format!("cuda:{gpu}"), "cpu".into(), Memories::HostAndGpu));
    }
    for &from in &usable {
        for &to in usable.iter().filter(|to| **to >= from) {
            let silent = || "the driver says nothing about the link".to_owned();
            let memories = match from == to {
                true => Memories::OneGpu,
                false => Memories::TwoGpus(gpus.link(from, to).cloned().ok_or_else(silent)),
            };
            routes.push(near(format!("cuda:{from}"), format!("cuda:{to}"), memories));
        }
    }
    if usable.is_empty() {
        let missing = gpus.missing.clone().unwrap_or_else(|| "there is no GPU".into());
        routes[0].not_faster = Some(format!("no GPU takes part: {missing}"));
    }
    let (here, there) = ("this host".into(), "another host".into());
    routes.push(route(here, there, false, Memories::Host, rdma, gpus));
    routes
}

fn route(
    from: String,
    to: String,
    one_host: bool,
    memories: Memories,
    rdma: &RdmaDevices,
    gpus: &Gpus,
) -> Route {
    let adapter = adapter(rdma, gpus);
    let facts = Facts { one_process: false, one_host, not_shared: None, memories, adapter };
    let choice = choose(PathChoice::Auto, &facts);
    let path = if choice.path == Path::Direct { "direct" } else { "nic" };
    Route { from, to, path, by: choice.by.into(), not_faster: choice.not_faster }
}

/// The first RDMA device with an active port.
fn adapter(rdma: &RdmaDevices, gpus: &Gpus) -> Adapter {
    let active = |device: &&super::RdmaDevice| device.ports.iter().any(|port| port.active);
    match rdma.devices.iter().find(active) {
        None => Adapter::Missing(
            rdma.missing.clone().unwrap_or_else(|| "no RDMA port is active".into()),
        ),
        Some(device) => Adapter::Found {
            name: device.name.clone(),
            gpu: gpus.devices.iter().any(|gpu| gpu.capabilities.gpudirect_rdma),
        },
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
            kernel_queues: Vec::new(),
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
    fn each_pair_of_gpus_takes_the_path_that_its_link_allows_and_says_why_not_a_faster_one() {
        for (access, atomics, path, by, why) in [
            (true, true, "direct", "NVLink", None),
            (true, false, "direct", "PCIe", Some("atomics")),
            (false, false, "nic", "staged", Some("peer access")),
        ] {
            let routes = all(&machine(access, atomics), &rdma(None));
            let found = route(&routes, "cuda:0", "cuda:1");
            assert!(found.path == path && found.by.contains(by), "{found:?}");
            match why {
                None => assert_eq!(found.not_faster, None),
                Some(why) => assert!(found.not_faster.as_ref().unwrap().contains(why), "{found:?}"),
            }
            assert_eq!(route(&routes, "cuda:1", "cuda:1").path, "direct");
            assert_eq!(route(&routes, "cuda:1", "cpu").path, "direct");
        }
        let silent = Gpus { links: vec![], ..machine(true, true) };
        let routes = all(&silent, &rdma(None));
        let found = route(&routes, "cuda:0", "cuda:1");
        assert!(found.path == "nic" && found.not_faster.as_ref().unwrap().contains("says nothing"));
    }

    #[test]
    fn another_host_is_reached_as_libmp_reaches_it_and_the_adapter_is_named() {
        for (name, why) in
            [(None, "none"), (Some("rxe0"), "rxe0"), (Some("mlx5_0"), "mp-info --probe-nic")]
        {
            let routes = all(&machine(true, true), &rdma(name));
            let found = route(&routes, "this host", "another host");
            let by = if name.is_some() { "RDMA" } else { "TCP" };
            assert!(found.path == "nic" && found.by.contains(by), "{found:?}");
            assert!(found.not_faster.as_ref().unwrap().contains(why), "{found:?}");
        }
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
