//! Who connects to a software NIC without the secrets of two queue pairs: nothing comes of it, not even an answer.

mod soft_common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use gdsync::nic::soft::{SoftNic, SoftNicOptions};
use gdsync::nic::{Nic, QueuePairOptions, WireKind};
use gdsync::wqe::Operation;
use gdsync::{Deadline, Device};
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
    // Only one side awaits the other's connection; whichever it is, it is asked.
    left.connect_over(right.address(), WireKind::Tcp)?;
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
    right.connect_over(left.address(), WireKind::Tcp)?;
    left.wait_connected(soon())?;
    right.wait_connected(soon())?;
    let position = left.post(&signaled(Operation::Nop))?;
    left.wait(position, Deadline::after(Duration::from_secs(10)))?;
    Ok(())
}

#[test]
fn hundreds_of_silent_connections_are_borne_and_the_peer_still_gets_in() -> Outcome {
    let (left_nic, right_nic) = (Way::Tcp.nic()?, Way::Tcp.nic()?);
    let mut silent = Vec::new();
    for nic in [&left_nic, &right_nic] {
        let to = nic.listens().ok_or("it listens")?;
        for _ in 0..100 {
            silent.push(TcpStream::connect(to)?);
        }
    }
    let options = QueuePairOptions::default();
    let left = left_nic.queue_pair(&Device::Host, &options)?;
    let right = right_nic.queue_pair(&Device::Host, &options)?;
    left.connect_over(right.address(), WireKind::Tcp)?;
    right.connect_over(left.address(), WireKind::Tcp)?;
    // Behind the silent ones, which lose their places after some seconds.
    left.wait_connected(Deadline::after(Duration::from_secs(40)))?;
    right.wait_connected(Deadline::after(Duration::from_secs(40)))?;
    Ok(())
}

#[test]
fn a_nic_listens_on_the_chosen_address_only_and_not_unless_asked() -> Outcome {
    assert_eq!(SoftNic::open(&SoftNicOptions::default())?.listens(), None);
    let listen = Some("127.0.0.2:0".parse::<SocketAddr>()?);
    let answers_elsewhere = || -> Outcome<bool> {
        let nic = SoftNic::open(&SoftNicOptions { listen, ..SoftNicOptions::default() })?;
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
