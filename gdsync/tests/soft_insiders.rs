//! A peer over TCP that has the secrets of a connection and means harm, or is broken: bytes one at a time, frames that never
//! end, every byte of a session changed, a session played again, the place of another taken.

mod soft_common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use gdsync::Device;
use gdsync::nic::soft::SoftNic;
use gdsync::nic::{Access, Address, Nic, QueuePair, QueuePairOptions, WireKind};
use serde_json::Value;
use soft_common::{Memory, Outcome, Way, pattern, soon};

/// Bytes of memory on either side of what is registered.
const GUARD: usize = 64;
const REGISTERED: usize = 256;

/// A NIC, and what it has to lose.
struct Victim {
    nic: SoftNic,
    /// An address that the insider changes into his own.
    other: Value,
    memory: gdsync::Buffer<u8>,
    region: gdsync::nic::MemoryRegion,
    inbox: Memory,
}

/// A queue pair of the victim's, and who says that he is its peer.
struct Insider {
    queue: QueuePair,
    to: SocketAddr,
    hello: [u8; 48],
}

impl Victim {
    fn new() -> Outcome<Victim> {
        let (nic, other) = (Way::Tcp.nic()?, Way::Tcp.nic()?);
        let other = other.queue_pair(&Device::Host, &QueuePairOptions::default())?;
        let other = serde_json::to_value(other.address())?;
        let memory = Device::Host.alloc_pinned::<u8>(REGISTERED + 2 * GUARD)?;
        let middle = memory.slice(GUARD..GUARD + REGISTERED)?;
        let region = nic.register(&middle, Access::REMOTE_WRITE)?;
        let inbox = Memory::new(&nic, &[0; 64], Access::LOCAL_WRITE)?;
        let victim = Victim { nic, other, memory, region, inbox };
        victim.restore()?;
        Ok(victim)
    }

    fn restore(&self) -> Outcome {
        self.memory.write(&vec![0x5a; REGISTERED + 2 * GUARD])?;
        Ok(self.inbox.buffer.write(&[0; 64])?)
    }

    /// Nothing beside the region has changed.
    fn is_whole(&self) -> Outcome<bool> {
        let bytes = self.memory.to_vec()?;
        let guards = bytes[..GUARD].iter().chain(&bytes[GUARD + REGISTERED..]);
        Ok(guards.into_iter().all(|byte| *byte == 0x5a))
    }

    /// A queue pair with one receive posted that believes the insider to be its peer, who dials.
    fn expect(&self, timeout: Duration) -> Outcome<Insider> {
        let options = QueuePairOptions { transport_timeout: timeout, ..Default::default() };
        let queue = self.nic.queue_pair(&Device::Host, &options)?;
        queue.receive(&[self.inbox.region.segment(0, 64)?])?;
        let own = serde_json::to_value(queue.address())?;
        let token = own["Soft"]["token"].as_u64().ok_or("a secret")?;
        let version = own["Soft"]["version"].as_u64().ok_or("a version")? as u32;
        let mut insider = self.other.clone();
        // The smaller secret dials.
        insider["Soft"]["token"] = 0.into();
        queue.connect_over(&serde_json::from_value::<Address>(insider)?, WireKind::Tcp)?;
        let mut hello = frame(1, version, 0);
        hello[12..16].copy_from_slice(&queue.qpn().to_le_bytes());
        hello[32..40].copy_from_slice(&token.to_le_bytes());
        Ok(Insider { queue, to: self.nic.listens().ok_or("it listens")?, hello })
    }

    /// A hello, a write of the whole region, a send, a ping.
    fn session(&self, hello: &[u8; 48]) -> Vec<u8> {
        let mut write = frame(17, 0, REGISTERED as u32);
        let remote = self.region.remote(0);
        write[12..16].copy_from_slice(&remote.rkey.to_le_bytes());
        write[16..24].copy_from_slice(&remote.address.to_le_bytes());
        let (ping, send) = (frame(2, 0, 0), frame(16, 1, 8));
        [&hello[..], &write, &pattern(1, REGISTERED), &send, b"a secret", &ping].concat()
    }
}

/// A frame (`wire::frame`) of this kind with so many bytes of payload, which are its whole message.
fn frame(kind: u8, psn: u32, payload: u32) -> [u8; 48] {
    let mut bytes = [0; 48];
    bytes[0] = kind;
    bytes[4..8].copy_from_slice(&psn.to_le_bytes());
    bytes[8..12].copy_from_slice(&payload.to_le_bytes());
    bytes[24..28].copy_from_slice(&payload.to_le_bytes());
    bytes
}

impl Insider {
    fn dial(&self) -> Outcome<TcpStream> {
        let stream = TcpStream::connect(self.to)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// What is said until the other side hangs up.
fn heard(mut stream: TcpStream) -> Outcome<Vec<u8>> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(bytes),
        Err(error) => Err(format!("the connection stays open: {error}").into()),
    }
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_session_that_comes_byte_by_byte_is_the_same_session() -> Outcome {
    let victim = Victim::new()?;
    let insider = victim.expect(LONG)?;
    let mut stream = insider.dial()?;
    for byte in victim.session(&insider.hello) {
        stream.write_all(&[byte])?;
        std::thread::yield_now();
    }
    insider.queue.wait_receive(soon())?;
    assert_eq!(victim.inbox.bytes()?[..8], *b"a secret");
    assert_eq!(victim.memory.to_vec()?[GUARD..GUARD + REGISTERED], pattern(1, REGISTERED));
    assert!(victim.is_whole()?);
    assert_eq!(insider.queue.lost(), None);
    Ok(())
}

#[test]
fn who_sends_a_frame_that_never_ends_is_silent() -> Outcome {
    let victim = Victim::new()?;
    let insider = victim.expect(Duration::from_secs(1))?;
    let mut stream = insider.dial()?;
    stream.write_all(&insider.hello)?;
    insider.queue.wait_connected(soon())?;
    let begun = Instant::now();
    // A byte now and then of a frame that is far longer than this goes on.
    stream.write_all(&frame(16, 0, 100_000))?;
    while insider.queue.lost().is_none() && begun.elapsed() < Duration::from_secs(20) {
        let _ = stream.write_all(&[0]);
        std::thread::sleep(Duration::from_millis(20));
    }
    let why = insider.queue.lost().ok_or("bytes of a frame that never ends are signs of life")?;
    assert!(why.contains("silent for"), "{why}");
    Ok(())
}

#[test]
fn a_session_with_any_byte_changed_harms_nobody_but_itself() -> Outcome {
    let victim = Victim::new()?;
    let length = victim.session(&[0; 48]).len();
    let payload = 96..96 + REGISTERED;
    // Bytes of a payload are all the same to the NIC.
    for at in (0..length).filter(|at| !payload.contains(at) || at % 64 == 0) {
        for change in [1, 0x80, 0xff] {
            victim.restore()?;
            let insider = victim.expect(LONG)?;
            let mut bytes = victim.session(&insider.hello);
            bytes[at] ^= change;
            let mut stream = insider.dial()?;
            // It may hang up in the middle.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            heard(stream).map_err(|error| format!("byte {at} ^ {change:#x}: {error}"))?;
            assert!(victim.is_whole()?, "byte {at} ^ {change:#x} wrote outside the region");
        }
    }
    // The NIC still serves others.
    let insider = victim.expect(LONG)?;
    insider.dial()?.write_all(&victim.session(&insider.hello))?;
    insider.queue.wait_receive(soon())?;
    Ok(())
}

#[test]
fn a_session_that_was_recorded_is_no_session_again() -> Outcome {
    let victim = Victim::new()?;
    let insider = victim.expect(LONG)?;
    let session = victim.session(&insider.hello);
    let mut stream = insider.dial()?;
    stream.write_all(&session)?;
    insider.queue.wait_receive(soon())?;
    victim.restore()?;
    insider.queue.receive(&[victim.inbox.region.segment(0, 64)?])?;
    // Somebody else is expected: the door is open.
    let _other = victim.expect(LONG)?;
    for round in ["while it lasts", "when it is over"] {
        let mut replay = insider.dial()?;
        let _ = replay.write_all(&session);
        assert!(heard(replay)?.is_empty(), "an answer to a replay {round}");
        assert!(victim.memory.to_vec()?.iter().all(|byte| *byte == 0x5a), "written {round}");
        assert_eq!(victim.inbox.bytes()?, [0; 64], "received {round}");
        if round == "while it lasts" {
            assert_eq!(insider.queue.lost(), None, "a replay ended the session");
            stream.write_all(&frame(3, 0, 0))?;
            let lost = soon().poll(|| insider.queue.lost());
            assert!(lost.is_some(), "it said goodbye");
        }
    }
    Ok(())
}

#[test]
fn who_knows_one_secret_of_two_does_not_keep_the_peer_out() -> Outcome {
    let (left_nic, right_nic) = (Way::Tcp.nic()?, Way::Tcp.nic()?);
    let options = QueuePairOptions { transport_timeout: LONG, ..Default::default() };
    let left = left_nic.queue_pair(&Device::Host, &options)?;
    let right = right_nic.queue_pair(&Device::Host, &options)?;
    // The secret by which a queue pair is found, and not that of its peer.
    let mut impostors = Vec::new();
    for (nic, queue) in [(&left_nic, &left), (&right_nic, &right)] {
        let own = serde_json::to_value(queue.address())?;
        let token = own["Soft"]["token"].as_u64();
        let version = own["Soft"]["version"].as_u64().ok_or("a version")? as u32;
        for number in 0..200u64 {
            let mut hello = frame(1, version, 0);
            hello[12..16].copy_from_slice(&queue.qpn().to_le_bytes());
            hello[32..40].copy_from_slice(&token.ok_or("a secret")?.to_le_bytes());
            hello[40..48].copy_from_slice(&number.to_le_bytes());
            let mut stream = TcpStream::connect(nic.listens().ok_or("it listens")?)?;
            stream.write_all(&hello)?;
            impostors.push(stream);
        }
    }
    left.connect_over(right.address(), WireKind::Tcp)?;
    right.connect_over(left.address(), WireKind::Tcp)?;
    left.wait_connected(soon())?;
    right.wait_connected(soon())?;
    Ok(())
}
