//! Memory of peers mapped here, by the peers' keys, so that writes, reads and atomics within a host are one copy and
//! no frame.
//!
//! A key that is met for the first time goes to the peer by frames, and a question with it: where is that memory? The
//! answer is mapped by a thread of its own, since mapping may wait for a driver call of somebody else. When the peer
//! takes a key back it says so and waits for the word that nobody uses it any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::engine::{Command, Shared};
use super::keys::{Access, RegionMemory};
use super::state::DirectPath;
use crate::device::Device;
use crate::peer::{PeerHandle, PeerMemory};

/// What is known of a peer's key.
enum Known {
    /// The peer was asked, or its answer is being mapped.
    Pending,
    /// Mapped.
    Mapped(Arc<RegionMemory>),
    /// Cannot be mapped here.
    No,
}

/// The keys of one peer.
pub(crate) struct Direct {
    enabled: bool,
    known: HashMap<u32, Known>,
    /// Keys to ask for.
    wanted: Vec<u32>,
}

/// Keys remembered of one peer; one that uses more gets frames for the rest.
const MAX_KEYS: usize = 4096;

impl Direct {
    pub fn new(enabled: bool) -> Direct {
        Direct { enabled, known: HashMap::new(), wanted: Vec::new() }
    }

    /// The next key to ask the peer for.
    pub fn wanted(&mut self) -> Option<u32> {
        self.wanted.pop()
    }

    /// The answer: the memory, or that there is none.
    pub fn learn(&mut self, key: u32, memory: Option<RegionMemory>) {
        // A key that was taken back meanwhile is not known any more.
        if let Some(known) = self.known.get_mut(&key) {
            *known = memory.map_or(Known::No, |memory| Known::Mapped(Arc::new(memory)));
        }
    }

    /// The peer takes the key back.
    pub fn forget(&mut self, key: u32) {
        self.known.remove(&key);
    }
}

impl DirectPath for Direct {
    fn find(
        &mut self,
        key: u32,
        address: u64,
        len: u64,
        need: Access,
    ) -> Option<(Arc<RegionMemory>, *mut u8)> {
        match self.known.get(&key) {
            Some(Known::Mapped(memory)) => {
                let pointer = memory.check(address, len, need).ok()?;
                Some((memory.clone(), pointer))
            }
            Some(Known::Pending | Known::No) => None,
            None => {
                if self.enabled && self.known.len() < MAX_KEYS {
                    self.known.insert(key, Known::Pending);
                    self.wanted.push(key);
                }
                None
            }
        }
    }
}

/// Something to map.
pub(crate) struct MapRequest {
    pub qpn: u32,
    pub key: u32,
    pub address: u64,
    pub access: Access,
    pub handle: Vec<u8>,
}

/// The thread that maps. It ends when the engine drops its end of the channel.
pub(crate) fn start_mapper(shared: Arc<Shared>) -> std::io::Result<Sender<MapRequest>> {
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("mp-nic-mapper".into())
        .spawn(move || map_all(&shared, &receiver))?;
    Ok(sender)
}

fn map_all(shared: &Shared, requests: &Receiver<MapRequest>) {
    for MapRequest { qpn, key, address, access, handle } in requests {
        let mapped = postcard::from_bytes::<PeerHandle>(&handle)
            .map_err(|error| error.to_string())
            .and_then(|handle| {
                PeerMemory::map(&handle, &Device::Host).map_err(|error| error.to_string())
            });
        let memory = match mapped {
            Ok(peer) => RegionMemory::new(peer.buffer, address, access, None),
            Err(error) => {
                tracing::debug!("key {key:#x} of the peer of {qpn:#x} is not mapped: {error}");
                None
            }
        };
        shared.command(Command::Mapped { qpn, key, memory });
    }
}
