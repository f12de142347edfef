//! A peer that is killed, a connection that is cut: every request ends with "transport retry exceeded", in time.

mod soft_common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gdsync::Device;
use gdsync::nic::{Access, Address, Error, Nic, QueuePairOptions};
use gdsync::wqe::{Operation, Payload, Syndrome};
use soft_common::process::{Order, Peer, Task};
use soft_common::side::{RECEIVES, Side};
use soft_common::{Memory, Outcome, Pair, Way, signaled, soon};

/// The peer; does nothing unless one of the tests below started it.
#[test]
#[ignore = "started by the other tests"]
fn peer() -> Outcome {
    soft_common::process::peer()
}

fn a_killed_peer(way: Way) -> Outcome {
    // Who notices the loss by the timeout only, does not within `soon`.
    let transport_timeout = Duration::from_secs(60);
    let order = Order { transport_timeout, ..Order::new(way, Task::Idle) };
    let mut peer = Peer::start(&order, &[])?;
    let nic = way.nic()?;
    let side = Side::start(&nic, way, 1, order.transport_timeout, |own| peer.exchange(own))?;
    // The peer's receives are soon used up.
    let send = Operation::Send { payload: Payload::Inline(b"?"), imm: None };
    let mut last = 0;
    for _ in 0..=RECEIVES {
        last = side.queue.post(&signaled(send))?;
    }
    std::thread::sleep(Duration::from_millis(50));
    peer.child.kill()?;
    let failed = side.queue.wait(last, soon());
    match failed {
        Err(Error::Failed { syndrome: Syndrome::TransportRetryExceeded, detail, .. }) => {
            assert!(detail.contains("the peer was lost"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
    Ok(())
}

#[test]
fn a_killed_peer_is_noticed_at_once_over_shared_memory() -> Outcome {
    a_killed_peer(Way::Mapped)
}

#[test]
fn a_killed_peer_is_noticed_at_once_over_tcp() -> Outcome {
    a_killed_peer(Way::Tcp)
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn a_killed_peer_is_noticed_at_once_over_rdma() -> Outcome {
    a_killed_peer(Way::Rdma)
}

/// A stopped process executes nothing: what happens all the same its device does.
#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm)"]
fn writes_reads_and_atomics_need_nothing_of_a_peer_over_rdma() -> Outcome {
    for way in [Way::Rdma, Way::RdmaStaged] {
        let order = Order::new(way, Task::Idle);
        let mut peer = Peer::start(&order, &[])?;
        let nic = way.nic()?;
        let side = Side::start(&nic, way, 1, order.transport_timeout, |own| peer.exchange(own))?;
        let (remote, one) = (side.remote, [side.segment(0, 8)?]);
        let read = Operation::Read { remote, into: &one };
        let write = Operation::Write { remote, payload: Payload::Gather(&one), imm: None };
        let add = Operation::FetchAdd { remote, add: 1, into: side.segment(8, 8)? };
        let carry_out = |operations: &[Operation<'_>]| {
            operations.iter().try_for_each(|operation| {
                side.queue.wait(side.queue.post(&signaled(*operation))?, soon())
            })
        };
        // The first goes as a message, with the question what the device calls the key.
        carry_out(&[read, write, read])?;
        std::thread::sleep(Duration::from_millis(300));
        signal(peer.child.id(), rustix::process::Signal::STOP)?;
        // Staged stands for a device whose atomics are not for all.
        let atomic: &[Operation<'_>] = if way == Way::Rdma { &[add] } else { &[] };
        let outcome = carry_out(&[read, write, read]).and_then(|()| carry_out(atomic));
        signal(peer.child.id(), rustix::process::Signal::CONT)?;
        outcome?;
    }
    Ok(())
}

/// The interface below the guest's RDMA device, taken down and up again.
struct Down;

impl Down {
    const INTERFACE: &str = "rdma0";

    fn take() -> Outcome<Down> {
        Down::set("down")?;
        Ok(Down)
    }

    fn set(state: &str) -> Outcome {
        let status = std::process::Command::new("ip")
            .args(["link", "set", Down::INTERFACE, state])
            .status()?;
        if status.success() { Ok(()) } else { Err(format!("ip link set: {status}").into()) }
    }
}

impl Drop for Down {
    fn drop(&mut self) {
        let _ = Down::set("up");
    }
}

#[test]
#[ignore = "needs the verbs device of tools/rxe-vm, and takes its port down"]
fn a_port_that_goes_down_loses_the_peer_and_is_named() -> Outcome {
    let options = QueuePairOptions {
        transport_timeout: Duration::from_secs(2),
        ..QueuePairOptions::default()
    };
    let pair = Pair::new(Way::Rdma, &options)?;
    let target = Memory::new(&pair.right_nic, &[0; 8], Access::REMOTE_WRITE)?;
    let write = |value: u64| -> Outcome<Result<(), Error>> {
        let bytes = value.to_ne_bytes();
        let remote = target.region.remote(0);
        let operation = Operation::Write { remote, payload: Payload::Inline(&bytes), imm: None };
        let position = pair.left.post(&signaled(operation))?;
        Ok(pair.left.wait(position, soon()))
    };
    write(1)??;
    let _down = Down::take()?;
    match write(2)? {
        Err(Error::Failed { syndrome: Syndrome::TransportRetryExceeded, detail, .. }) => {
            assert!(detail.contains("is not active"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
    Ok(())
}

/// A cable that can be cut: passes bytes on between two sockets until it is told not to, and then is silent.
struct Cable {
    address: SocketAddr,
    cut: Arc<AtomicBool>,
}

impl Cable {
    fn to(target: SocketAddr) -> Outcome<Cable> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let cut = Arc::new(AtomicBool::new(false));
        let flag = cut.clone();
        std::thread::spawn(move || {
            let Ok((near, _)) = listener.accept() else { return };
            let Ok(far) = TcpStream::connect(target) else { return };
            let both = [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))];
            for (from, to) in both {
                let (Ok(from), Ok(to), flag) = (from, to, flag.clone()) else { return };
                std::thread::spawn(move || pass(from, to, &flag));
            }
        });
        Ok(Cable { address, cut })
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, cut: &AtomicBool) {
    let mut buffer = [0; 65536];
    let _ = from.set_read_timeout(Some(Duration::from_millis(20)));
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(30) {
        if cut.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(read) if to.write_all(&buffer[..read]).is_err() => return,
            _ => {}
        }
    }
}

#[test]
fn a_cut_cable_fails_requests_on_both_sides_within_the_timeout() -> Outcome {
    // Long enough for threads that wait for a processor, and well below the default.
    let timeout = Duration::from_secs(1);
    let latest = QueuePairOptions::default().transport_timeout;
    let options = QueuePairOptions { transport_timeout: timeout, ..QueuePairOptions::default() };
    let (one, two) = (Way::Tcp.nic()?, Way::Tcp.nic()?);
    let left = one.queue_pair(&Device::Host, &options)?;
    let right = two.queue_pair(&Device::Host, &options)?;
    // Whoever dials, dials into a cable.
    let through = |address: &Address| -> Outcome<(Address, Cable)> {
        let mut value = serde_json::to_value(address)?;
        let cable = Cable::to(serde_json::from_value(value["Soft"]["tcp"].clone())?)?;
        value["Soft"]["tcp"] = serde_json::to_value(cable.address)?;
        Ok((serde_json::from_value(value)?, cable))
    };
    let (to_left, cable_left) = through(left.address())?;
    let (to_right, cable_right) = through(right.address())?;
    left.connect_over(&to_right, Way::Tcp.wire())?;
    right.connect_over(&to_left, Way::Tcp.wire())?;
    left.wait_connected(soon())?;
    right.wait_connected(soon())?;
    let send = Operation::Send { payload: Payload::Inline(b"?"), imm: None };
    // Idle for longer than the timeout: the connection lives.
    std::thread::sleep(2 * timeout);
    assert_eq!((left.lost(), right.lost()), (None, None));
    let positions = [left.post(&signaled(send))?, right.post(&signaled(send))?];
    std::thread::sleep(Duration::from_millis(20));
    let begin = Instant::now();
    cable_left.cut.store(true, Ordering::Release);
    cable_right.cut.store(true, Ordering::Release);
    for (queue, position) in [&left, &right].into_iter().zip(positions) {
        match queue.wait(position, soon()) {
            Err(Error::Failed { syndrome: Syndrome::TransportRetryExceeded, .. }) => {}
            other => panic!("{other:?}"),
        }
        assert!(begin.elapsed() < latest, "{:?}", begin.elapsed());
    }
    assert!(begin.elapsed() > timeout / 2);
    Ok(())
}

/// Stops a process, and lets it go on.
fn signal(process: u32, signal: rustix::process::Signal) -> Outcome {
    let pid = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    Ok(rustix::process::kill_process(pid.ok_or("no process")?, signal)?)
}

/// As when a machine sleeps, or a job is stopped: nobody can say who was silent.
#[test]
fn two_processes_that_were_suspended_together_go_on() -> Outcome {
    let timeout = Duration::from_secs(1);
    let order = |seed| {
        let order = Order::new(Way::Tcp, Task::SendUntilCut);
        Order { seed, transport_timeout: timeout, ..order }
    };
    let (mut one, mut two) = (Peer::start(&order(1), &[])?, Peer::start(&order(2), &[])?);
    one.introduce(&mut two)?;
    assert_eq!((one.hear()?, two.hear()?), ("sending".to_owned(), "sending".to_owned()));
    let both = [one.child.id(), two.child.id()];
    both.into_iter().try_for_each(|peer| signal(peer, rustix::process::Signal::STOP))?;
    std::thread::sleep(2 * timeout);
    both.into_iter().try_for_each(|peer| signal(peer, rustix::process::Signal::CONT))?;
    std::thread::sleep(timeout);
    two.child.kill()?;
    let report = one.hear()?;
    let (syndrome, millis) = report.split_once(' ').ok_or("half a report")?;
    assert_eq!(syndrome, "TransportRetryExceeded");
    // Its last success was after the pause, not before: that was three timeouts ago.
    assert!(Duration::from_millis(millis.parse()?) < 3 * timeout, "{report}");
    Ok(())
}
