//! A NIC whose process has no descriptors left while a peer knocks. In a process of its own, since the limit is the
//! process's.

mod soft_common;

use std::time::Duration;

use gdsync::nic::{Nic, QueuePairOptions, WireKind};
use gdsync::{Deadline, Device};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use soft_common::{Outcome, Way, soon};

#[test]
fn a_peer_that_came_while_there_were_no_descriptors_gets_in_once_there_are_some() -> Outcome {
    let (left_nic, right_nic) = (Way::Tcp.nic()?, Way::Tcp.nic()?);
    let options = QueuePairOptions {
        transport_timeout: Duration::from_secs(60),
        ..QueuePairOptions::default()
    };
    let left = left_nic.queue_pair(&Device::Host, &options)?;
    let right = right_nic.queue_pair(&Device::Host, &options)?;
    let before = getrlimit(Resource::Nofile);
    let file = || std::fs::File::open("/dev/null");
    let mut held = vec![file()?];
    let limit = Some(std::os::fd::AsRawFd::as_raw_fd(&held[0]) as u64 + 16);
    setrlimit(Resource::Nofile, Rlimit { current: limit, ..before })?;
    held.extend(std::iter::from_fn(|| file().ok()));
    // One for the side that dials.
    held.pop();
    left.connect_over(right.address(), WireKind::Tcp)?;
    right.connect_over(left.address(), WireKind::Tcp)?;
    let early = left.wait_connected(Deadline::after(Duration::from_millis(300)));
    setrlimit(Resource::Nofile, before)?;
    assert!(early.is_err(), "it connected without a descriptor");
    // Nobody else knocks.
    left.wait_connected(soon())?;
    right.wait_connected(soon())?;
    Ok(())
}
