//! Who connects to a software NIC without the secrets of two queue pairs: nothing comes of it, not even an answer.

mod soft_common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gdsync::Device;
use gdsync::nic::soft::{SoftNic, SoftNicOptions};
use gdsync::nic::{Nic, QueuePair, QueuePairOptions, WireKind};
use gdsync::wqe::Operation;
use soft_common::{Outcome, Way, signaled, soon};

/// A hello (`wire::frame`): kind 1, version 1, the queue pair's number, its secret, the sender's secret.
fn hello(qpn: u32, to: u64, from: u64) -> [u8; 48] {
    let mut bytes = [0; 48];
    bytes[0] = 1;
    bytes[4..8].copy_from_slice(&1u32.to_le_bytes());
    bytes[12..16].copy_from_slice(&qpn.to_le_bytes());
    bytes[32..40].copy_from_slice(&to.to_le_bytes());
    bytes[40..48].copy_from_slice(&from.to_le_bytes());
    bytes
}

/// Sends `bytes`; what comes back until the NIC hangs up.
fn answer(to: SocketAddr, bytes: &[u8]) -> Outcome<Vec<u8>> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(Duration::from_secs(15)))?;
    stream.write_all(bytes)?;
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => Ok(answer),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(answer),
        Err(error) => Err(format!("the connection stays open: {error}").into()),
    }
}

#[test]
fn a_hello_with_a_wrong_secret_and_nonsense_are_hung_up_on_and_the_peer_still_gets_in() -> Outcome {
    let (left_nic, right_nic) = (Way::Tcp.nic()?, Way::Tcp.nic()?);
    let options = QueuePairOptions::default();
    let left = left_nic.queue_pair(&Device::Host, &options)?;
    let right = right_nic.queue_pair(&Device::Host, &options)?;
    // Before one side dials: it does not listen any more.
    for (nic, qpn) in [(&left_nic, left.qpn()), (&right_nic, right.qpn())] {
        let to = nic.listens().ok_or("it listens")?;
        for bytes in [
            &hello(qpn, 0, 0)[..],
            &hello(qpn, 1, u64::MAX),
            &hello(qpn ^ 1, 0, 0),
            &[0xff; 48],
            b"GET / HTTP/1.1\r\nHost: nobody-in-particular\r\n\r\n....",
        ] {
            assert!(answer(to, bytes)?.is_empty(), "an answer to a stranger");
        }
    }
    left.connect_over(right.address(), WireKind::Tcp)?;
    right.connect_over(left.address(), WireKind::Tcp)?;
    left.wait_connected(soon())?;
    right.wait_connected(soon())?;
    let position = left.post(&signaled(Operation::Nop))?;
    left.wait(position, soon())?;
    Ok(())
}

#[test]
fn hundreds_of_silent_connections_are_borne_and_the_peer_still_gets_in() -> Outcome {
    let (left_nic, right_nic) = (Way::Tcp.nic()?, Way::Tcp.nic()?);
    let options = QueuePairOptions::default();
    let left = left_nic.queue_pair(&Device::Host, &options)?;
    let right = right_nic.queue_pair(&Device::Host, &options)?;
    let mut silent = Vec::new();
    for nic in [&left_nic, &right_nic] {
        let to = nic.listens().ok_or("it listens")?;
        for _ in 0..100 {
            silent.push(TcpStream::connect(to)?);
        }
    }
    left.connect_over(right.address(), WireKind::Tcp)?;
    right.connect_over(left.address(), WireKind::Tcp)?;
    left.wait_connected(soon())?;
    right.wait_connected(soon())?;
    Ok(())
}

/// Silent connections to one address, each made anew when it is closed, until it is dropped.
struct Flood {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    fn of(connections: usize, to: SocketAddr) -> Outcome<Flood> {
        let connect = move || {
            let stream = TcpStream::connect_timeout(&to, Duration::from_millis(100))?;
            stream.set_nonblocking(true)?;
            std::io::Result::Ok(stream)
        };
        let mut streams: Vec<_> = (0..connections).map(|_| connect().ok()).collect();
        let over = Arc::new(AtomicBool::new(false));
        let told = over.clone();
        let renew = move || {
            while !told.load(Ordering::Acquire) {
                for place in &mut streams {
                    let read = place.as_mut().map(|stream| stream.read(&mut [0]));
                    let silent = matches!(read, Some(Err(e)) if e.kind() == ErrorKind::WouldBlock);
                    if !silent && !told.load(Ordering::Acquire) {
                        *place = connect().ok();
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        Ok(Flood { over, thread: Some(std::thread::spawn(renew)) })
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn who_renews_hundreds_of_silent_connections_locks_nobody_out() -> Outcome {
    let (left_nic, right_nic) = (Way::Tcp.nic()?, Way::Tcp.nic()?);
    let options = QueuePairOptions {
        transport_timeout: Duration::from_secs(60),
        ..QueuePairOptions::default()
    };
    let left = left_nic.queue_pair(&Device::Host, &options)?;
    let right = right_nic.queue_pair(&Device::Host, &options)?;
    let _floods = [
        Flood::of(300, left_nic.listens().ok_or("it listens")?)?,
        Flood::of(300, right_nic.listens().ok_or("it listens")?)?,
    ];
    left.connect_over(right.address(), WireKind::Tcp)?;
    right.connect_over(left.address(), WireKind::Tcp)?;
    left.wait_connected(soon())?;
    right.wait_connected(soon())?;
    Ok(())
}

#[test]
fn a_nic_listens_only_while_a_queue_pair_may_be_connected_to() -> Outcome {
    let (left_nic, right_nic) = (Way::Tcp.nic()?, Way::Tcp.nic()?);
    let addresses = [&left_nic, &right_nic].map(|nic| nic.listens());
    let listen = || addresses.map(|at| at.is_some_and(|at| TcpStream::connect(at).is_ok()));
    assert_eq!(listen(), [false; 2], "before there is a queue pair");
    let options = QueuePairOptions::default();
    // Again and again, at the same address.
    let mut queues = Vec::new();
    for round in 0..3 {
        let left = left_nic.queue_pair(&Device::Host, &options)?;
        let right = right_nic.queue_pair(&Device::Host, &options)?;
        assert_eq!(listen(), [true; 2], "round {round}");
        left.connect_over(right.address(), WireKind::Tcp)?;
        right.connect_over(left.address(), WireKind::Tcp)?;
        left.wait_connected(soon())?;
        right.wait_connected(soon())?;
        assert_eq!(listen(), [false; 2], "round {round}, connected");
        let position = left.post(&signaled(Operation::Nop))?;
        left.wait(position, soon())?;
        queues.push((left, right));
    }
    let unused = left_nic.queue_pair(&Device::Host, &options)?;
    assert_eq!(listen(), [true, false]);
    drop(unused);
    let closed = soon().poll(|| (listen() == [false; 2]).then_some(()));
    assert!(closed.is_some(), "it listens for a queue pair that is gone");
    Ok(())
}

#[test]
fn who_dials_a_peer_that_is_late_dials_again() -> Outcome {
    let (left_nic, right_nic) = (Way::Tcp.nic()?, Way::Tcp.nic()?);
    let options = QueuePairOptions::default();
    let left = left_nic.queue_pair(&Device::Host, &options)?;
    let right = right_nic.queue_pair(&Device::Host, &options)?;
    // The one with the smaller secret dials.
    let secret = |queue: &QueuePair| -> Outcome<Option<u64>> {
        Ok(serde_json::to_value(queue.address())?["Soft"]["token"].as_u64())
    };
    let in_order = secret(&left)?.ok_or("a secret")? < secret(&right)?.ok_or("a secret")?;
    let (dials, late) = if in_order { (&left, &right) } else { (&right, &left) };
    dials.connect_over(late.address(), WireKind::Tcp)?;
    // Longer than the other NIC keeps a connection for a queue pair that is not connected.
    std::thread::sleep(Duration::from_millis(2500));
    late.connect_over(dials.address(), WireKind::Tcp)?;
    dials.wait_connected(soon())?;
    late.wait_connected(soon())?;
    Ok(())
}

#[test]
fn a_nic_listens_on_the_chosen_address_only_and_not_unless_asked() -> Outcome {
    assert_eq!(SoftNic::open(&SoftNicOptions::default())?.listens(), None);
    let listen = Some("127.0.0.2:0".parse::<SocketAddr>()?);
    let answers_elsewhere = || -> Outcome<bool> {
        let nic = SoftNic::open(&SoftNicOptions { listen, ..SoftNicOptions::default() })?;
        let _queue = nic.queue_pair(&Device::Host, &QueuePairOptions::default())?;
        let bound = nic.listens().ok_or("it listens")?;
        assert_eq!(bound.ip().to_string(), "127.0.0.2");
        assert!(TcpStream::connect(bound).is_ok());
        Ok(TcpStream::connect(("127.0.0.1", bound.port())).is_ok())
    };
    // Somebody else may have the same port there; not three times in a row.
    let always = answers_elsewhere()? && answers_elsewhere()? && answers_elsewhere()?;
    assert!(!always, "another address answers");
    Ok(())
}
