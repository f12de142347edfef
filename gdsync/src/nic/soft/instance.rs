//! A running software NIC: what its clones, queue pairs and regions share. Its threads end with the last of them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::address::HostId;
use super::direct::MapRequest;
use super::door::Listener;
use super::engine::{Engine, Shared, help};
use super::rdma::RdmaPort;
use crate::cuda::device::lock;
use crate::nic::Capabilities;

pub(super) struct Inner {
    pub capabilities: Capabilities,
    pub shared: Arc<Shared>,
    pub engine: Arc<Mutex<Engine>>,
    pub host: HostId,
    pub listener: Option<Arc<Listener>>,
    /// The port that it sends through to other hosts, if it has one.
    pub rdma: Option<Arc<RdmaPort>>,
    pub map_peers: bool,
    pub mapper: Mutex<Sender<MapRequest>>,
    pub thread: Mutex<Option<JoinHandle<()>>>,
    pub next_qpn: AtomicU32,
}

impl Inner {
    /// See [`help`].
    pub fn help(&self) {
        help(&self.shared, &self.engine);
    }

    /// Where peers on other hosts reach it, if they do.
    pub fn listens(&self) -> Option<SocketAddr> {
        self.listener.as_ref().map(|listener| listener.address())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake();
        // It ends by itself within the time that goodbyes may take.
        if let Some(thread) = lock(&self.thread).take()
            && thread.join().is_err()
        {
            tracing::error!("the NIC's thread panicked");
        }
    }
}
