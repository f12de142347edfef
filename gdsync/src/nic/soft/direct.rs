//! Memory of peers that is reached from here, by the peers' keys, so that writes, reads and atomics need no frame: mapped
//! within a host, where they are one copy; by the RDMA device between hosts, which then carries them out itself.
//!
//! A key that is met for the first time goes to the peer by frames, and a question with it: where is that memory? The
//! answer is what the device needs; or memory to map, by a thread of its own, since mapping may wait for a driver call of
//! somebody else. When the peer
//! takes a key back it says so and waits for the word that nobody uses it any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::engine::{Command, Shared};
use super::keys::RegionMemory;
use super::state::{DirectPath, Found, Violation};
use crate::device::Device;
use crate::nic::memory_region::Access;
use crate::peer::{PeerHandle, PeerMemory};
use crate::verbs::RemoteRegion;
use crate::wqe::RemoteAddress;

/// What is known of a peer's key.
enum Known {
    /// The peer was asked.
    Asked,
    /// Its answer is being mapped: which answer, since a key may be taken back and asked for again meanwhile.
    Mapping(u64),
    /// Mapped.
    Mapped(Arc<RegionMemory>),
    /// Reached by the device.
    ByDevice(DeviceMemory),
    /// Cannot be mapped here.
    No,
}

/// Memory of a peer as its entries and its device name it.
pub(crate) struct DeviceMemory {
    pub address: u64,
    pub access: Access,
    pub region: RemoteRegion,
}

impl DeviceMemory {
    fn find(&self, address: u64, len: u64, need: Access) -> Option<RemoteAddress> {
        let offset = address.checked_sub(self.address).filter(|_| self.access.includes(need))?;
        self.region.at(offset, len).ok()
    }
}

/// The keys of one peer.
pub(crate) struct Direct {
    enabled: bool,
    known: BTreeMap<u32, Known>,
    /// Keys to ask for.
    wanted: Vec<u32>,
    /// Answers so far.
    answers: u64,
}

/// Keys remembered of one peer; one that uses more gets frames for the rest.
const MAX_KEYS: usize = 4096;

impl Direct {
    pub fn new(enabled: bool) -> Direct {
        Direct { enabled, known: BTreeMap::new(), wanted: Vec::new(), answers: 0 }
    }

    /// The next key to ask the peer for.
    pub fn wanted(&mut self) -> Option<u32> {
        self.wanted.pop()
    }

    /// The peer's answer: is there something to map? Returns the number of the answer, for [`Direct::learn`].
    ///
    /// # Errors
    /// If nobody asked.
    pub fn answered(&mut self, key: u32, maps: bool) -> Result<u64, Violation> {
        match self.known.get_mut(&key) {
            Some(known @ Known::Asked) => {
                self.answers += 1;
                *known = if maps { Known::Mapping(self.answers) } else { Known::No };
                Ok(self.answers)
            }
            _ => Err(Violation::Other("an answer to a question that was not asked")),
        }
    }

    /// What the mapper made of an answer: the memory, or that it cannot be mapped.
    pub fn learn(&mut self, key: u32, answer: u64, memory: Option<RegionMemory>) {
        // A key that was taken back meanwhile is not known any more, or is a new question.
        if let Some(known) = self.known.get_mut(&key)
            && matches!(known, Known::Mapping(number) if *number == answer)
        {
            *known = memory.map_or(Known::No, |memory| Known::Mapped(Arc::new(memory)));
        }
    }

    /// The peer's answer: there its device has it.
    ///
    /// # Errors
    /// If nobody asked.
    pub fn told(&mut self, key: u32, memory: DeviceMemory) -> Result<(), Violation> {
        self.answered(key, true)?;
        self.known.insert(key, Known::ByDevice(memory));
        Ok(())
    }

    /// The peer takes the key back.
    pub fn forget(&mut self, key: u32) {
        self.known.remove(&key);
    }
}

impl DirectPath for Direct {
    fn find(&mut self, key: u32, address: u64, len: u64, need: Access) -> Option<Found> {
        match self.known.get(&key) {
            Some(Known::Mapped(memory)) => {
                let pointer = memory.check(address, len, need).ok()?;
                Some(Found::Mapped(memory.clone(), pointer))
            }
            Some(Known::ByDevice(memory)) => memory.find(address, len, need).map(Found::ByDevice),
            Some(Known::Asked | Known::Mapping(_) | Known::No) => None,
            None => {
                if self.enabled && self.known.len() < MAX_KEYS {
                    self.known.insert(key, Known::Asked);
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
    pub answer: u64,
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
    for MapRequest { qpn, key, answer, address, access, handle } in requests {
        let mapped = postcard::from_bytes::<PeerHandle>(&handle)
            .map_err(|error| error.to_string())
            .and_then(|handle| map(shared, &handle, address, access));
        let memory = mapped.unwrap_or_else(|error| {
            tracing::debug!("key {key:#x} of the peer of {qpn:#x} is not mapped: {error}");
            None
        });
        shared.command(Command::Mapped { qpn, key, answer, memory });
    }
}

/// Host memory for the CPU, memory of a GPU for one of the GPUs that this NIC works with.
fn map(
    shared: &Shared,
    handle: &PeerHandle,
    address: u64,
    access: Access,
) -> Result<Option<RegionMemory>, String> {
    let on_host = PeerMemory::map(handle, &Device::Host).map(|peer| peer.buffer);
    let mut why = match on_host {
        Ok(buffer) if buffer.host_address().is_some() => {
            return Ok(RegionMemory::new(buffer, address, access, None));
        }
        Ok(_) => "it is a GPU's".to_owned(),
        Err(error) => error.to_string(),
    };
    for (gpu, copies) in shared.gpus() {
        match PeerMemory::map(handle, &Device::Cuda(gpu)) {
            Ok(peer) => {
                let (buffer, owner) = (peer.buffer, handle.gpu());
                return Ok(RegionMemory::of_gpu(buffer, address, access, None, copies, owner));
            }
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Buffer, Space};

    fn memory() -> Option<RegionMemory> {
        let buffer = Buffer::<u8>::new(&Device::Host, Space::Host, 64).unwrap();
        RegionMemory::new(buffer, 0x1000, Access::ALL, None)
    }

    fn found(direct: &mut Direct) -> bool {
        direct.find(7, 0x1000, 8, Access::REMOTE_WRITE).is_some()
    }

    #[test]
    fn a_key_is_asked_for_once_and_then_found() {
        let mut direct = Direct::new(true);
        assert!(!found(&mut direct) && !found(&mut direct));
        assert_eq!((direct.wanted(), direct.wanted()), (Some(7), None));
        let answer = direct.answered(7, true).unwrap();
        assert!(!found(&mut direct));
        direct.learn(7, answer, memory());
        assert!(found(&mut direct));
        direct.forget(7);
        assert!(!found(&mut direct));
    }

    #[test]
    fn an_answer_that_nobody_asked_for_is_a_violation() {
        let mut direct = Direct::new(true);
        assert!(direct.answered(7, true).is_err());
        found(&mut direct);
        assert!(direct.answered(7, false).is_ok() && direct.answered(7, true).is_err());
    }

    #[test]
    fn memory_of_a_device_is_found_within_its_bounds_and_rights() {
        let mut direct = Direct::new(true);
        let far = |direct: &mut Direct, address, len, need| match direct.find(7, address, len, need)
        {
            Some(Found::ByDevice(there)) => Some(there),
            _ => None,
        };
        let write = Access::REMOTE_WRITE;
        assert!(far(&mut direct, 0x1000, 8, write).is_none());
        let region = RemoteRegion { address: 0x70_0000, size: 64, rkey: 9 };
        let memory = || DeviceMemory { address: 0x1000, access: write, region };
        direct.told(7, memory()).unwrap();
        let there = far(&mut direct, 0x1038, 8, write).unwrap();
        assert_eq!(there, RemoteAddress { address: 0x70_0038, rkey: 9 });
        for (address, len, need) in [
            (0x1039, 8, write),
            (0xfff, 8, write),
            (u64::MAX, 8, write),
            (0x1000, u64::MAX, write),
            (0x1000, 8, Access::REMOTE_READ),
        ] {
            assert!(far(&mut direct, address, len, need).is_none(), "{address:#x} {len}");
        }
        assert!(direct.told(7, memory()).is_err(), "nobody asked again");
        direct.forget(7);
        assert!(far(&mut direct, 0x1000, 8, write).is_none());
    }

    #[test]
    fn memory_that_was_taken_back_while_it_was_being_mapped_is_not_found_again() {
        let mut direct = Direct::new(true);
        found(&mut direct);
        let old = direct.answered(7, true).unwrap();
        direct.forget(7);
        found(&mut direct);
        let new = direct.answered(7, true).unwrap();
        direct.learn(7, old, memory());
        assert!(!found(&mut direct), "the mapping belongs to the first question");
        direct.learn(7, new, memory());
        assert!(found(&mut direct));
    }
}
