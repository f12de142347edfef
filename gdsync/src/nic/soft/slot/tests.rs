use super::*;
use crate::Device;
use crate::nic::QueuePairOptions;
use crate::nic::soft::wire::shm::{Ring, ShmWire};

/// Whether a connection lives whose peer, process `pid`, has attached and then says nothing for longer than it may.
fn outlives_silence(pid: u32) -> bool {
    let options = QueuePairOptions::default();
    let memory = QueueMemory::new(&Device::Host, &options).unwrap();
    let (mapper, _requests) = std::sync::mpsc::channel();
    let mut slot = Slot::new(SlotParts {
        qpn: 1,
        token: 2,
        machine: Machine::new(1, &memory, &options).unwrap(),
        memory,
        timeout: options.transport_timeout,
        status: Arc::default(),
        map_peers: false,
        mapper,
        door: None,
    });
    let (own, peers) = (Ring::create().unwrap(), Ring::create().unwrap());
    let _peer = ShmWire::new(peers.clone(), own.clone(), std::process::id());
    slot.attach(Box::new(ShmWire::new(own, peers, pid)), true);
    let begin = Instant::now();
    slot.drive(By::Engine, &KeyTable::default(), begin, &mut Outgoing::new());
    assert_eq!(slot.link, LinkState::Up);
    slot.keep_house(begin + options.transport_timeout);
    assert_eq!(slot.link, LinkState::Up, "not before");
    slot.keep_house(begin + options.transport_timeout + Duration::from_millis(1));
    slot.link == LinkState::Up
}

#[test]
fn a_process_that_runs_is_not_given_up_for_silence_and_one_of_which_nothing_is_known_is() {
    assert!(outlives_silence(std::process::id()));
    // No process has this number.
    assert!(!outlives_silence(u32::MAX));
}
