//! Another program at the other end: `ibv_rc_pingpong` of rdma-core's examples, as a server and as a client, in the guest of
//! `tools/rxe-vm`. The two say over TCP where their queue pairs are, in its words, and then send a buffer to and fro. It sends what it
//! has received, so that each of our messages comes back, and is checked.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gdsync::verbs::{
    self, Access, Endpoint, Gid, Init, Mtu, PortChoice, QueuePair, QueuePairOptions, RetryPolicy,
    SendOperation, SendRequest,
};
use gdsync::{Buffer, Deadline, Device, Space};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Bytes of a message: several packets.
const SIZE: usize = 10_000;
/// Messages each way.
const ROUNDS: usize = 200;
/// What it says of its end, with a zero behind: local identifier, queue pair, first sequence number, GID.
const LINE: usize = "0000:000000:000000:00000000000000000000000000000000".len() + 1;
/// What a client says when it is connected, with the zero.
const DONE: &[u8] = b"done\0";

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn say(stream: &mut TcpStream, own: &Endpoint) -> Outcome {
    let gid = own.gid.0.iter().fold(String::new(), |gid, byte| gid + &format!("{byte:02x}"));
    let line = format!("{:04x}:{:06x}:{:06x}:{gid}\0", own.lid, own.qp_num, own.psn);
    assert_eq!(line.len(), LINE);
    Ok(stream.write_all(line.as_bytes())?)
}

fn hear(stream: &mut TcpStream, own: &Endpoint) -> Outcome<Endpoint> {
    let mut line = [0; LINE];
    stream.read_exact(&mut line)?;
    let line = std::str::from_utf8(&line[..LINE - 1])?;
    let mut fields = line.split(':');
    let mut next = || fields.next().ok_or_else(|| format!("it said {line}"));
    let (lid, qp_num, psn, gid) = (next()?, next()?, next()?, next()?);
    Ok(Endpoint {
        qp_num: u32::from_str_radix(qp_num, 16)?,
        psn: u32::from_str_radix(psn, 16)?,
        incoming_reads: 1,
        link_layer: own.link_layer,
        // What it takes unless told otherwise: 1024.
        mtu: Mtu::from_number(3).ok_or("no such MTU")?,
        lid: u16::from_str_radix(lid, 16)?,
        gid: Gid(u128::from_str_radix(gid, 16)?.to_be_bytes()),
    })
}

/// The other program; killed if it still runs at the end.
struct Other(Child);

impl Other {
    fn start(gid_index: u32, server: Option<&str>) -> Outcome<Other> {
        let arguments = ["-e", "-g", &gid_index.to_string(), "-s", &SIZE.to_string(), "-n"];
        let mut command = Command::new("ibv_rc_pingpong");
        command.args(arguments).arg(ROUNDS.to_string()).args(server).stdout(Stdio::piped());
        Ok(Other(command.spawn().map_err(|error| format!("ibv_rc_pingpong: {error}"))?))
    }

    /// What it says at the end, and that it is content.
    fn finish(mut self) -> Outcome {
        let mut said = String::new();
        self.0.stdout.take().ok_or("no stdout")?.read_to_string(&mut said)?;
        let status = self.0.wait()?;
        println!("{said}");
        assert!(status.success() && said.contains(&format!("{ROUNDS} iters")), "{status}: {said}");
        Ok(())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What message `round` has.
fn message(round: usize) -> Vec<u8> {
    (0..SIZE).map(|at| (at * 7 + round * 31) as u8).collect()
}

/// A game: `introduce` starts the other program and tells the two of each other. Who is a client begins.
fn play(
    begins: bool,
    introduce: impl FnOnce(&QueuePair<Init>, u32) -> Outcome<(Other, TcpStream, Endpoint)>,
) -> Outcome {
    let context = verbs::device(None)?.open()?;
    let port = context.port(&PortChoice::default())?;
    let domain = context.protection_domain()?;
    let completions = context.completion_queue(16)?;
    let region = || {
        let buffer = Buffer::<u8>::new(&Device::Host, Space::Host, SIZE)?;
        Ok::<_, verbs::Error>((domain.register(&buffer, Access::LOCAL)?, buffer))
    };
    let ((sent, outgoing), (filled, incoming)) = (region()?, region()?);
    let pair = domain
        .queue_pair(&completions, &completions, &QueuePairOptions::default())?
        .init(&port, Access::LOCAL)?;
    let into = [filled.slice(0..SIZE)?];
    pair.post_receive(0, &into)?;
    let index = port.gid.ok_or("the port has no GID")?.index;
    let (other, mut stream, peer) = introduce(&pair, index)?;
    let own = pair.endpoint();
    let pair = pair.connect(&peer)?.ready_to_send(&RetryPolicy::default())?;
    if begins {
        stream.write_all(DONE)?;
    } else {
        // It waits for this, and then says that it is connected.
        say(&mut stream, &own)?;
        let mut done = [0; DONE.len()];
        stream.read_exact(&mut done)?;
        assert_eq!(done, DONE);
    }
    let send = |round: usize| -> Outcome {
        outgoing.write(&message(round))?;
        let from = [sent.slice(0..SIZE)?];
        let operation = SendOperation::Send { from: &from, imm: None };
        Ok(pair.post(&SendRequest::new(1, operation))?)
    };
    if begins {
        send(0)?;
    }
    let (mut rounds, mut under_way) = (0, usize::from(begins));
    while rounds < ROUNDS || under_way > 0 {
        let completion = completions.wait(soon())?;
        completion.outcome.map_err(|failure| format!("round {rounds}: {failure}"))?;
        if completion.id == 1 {
            under_way -= 1;
            continue;
        }
        let back = incoming.to_vec()?;
        match begins {
            true => assert!(back == message(rounds), "message {rounds} came back changed"),
            // Its first message is its own.
            false if rounds > 0 => assert!(back == message(rounds - 1), "message {rounds}"),
            false => assert!(back.iter().all(|byte| *byte == 0x7b), "its first message"),
        }
        rounds += 1;
        pair.post_receive(0, &into)?;
        let last = if begins { ROUNDS - 1 } else { ROUNDS };
        if rounds <= last {
            send(if begins { rounds } else { rounds - 1 })?;
            under_way += 1;
        }
    }
    other.finish()
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm) and ibv_rc_pingpong"]
fn ibv_rc_pingpong_plays_with_ours_as_server() -> Outcome {
    play(false, |pair, gid_index| {
        let listener = TcpListener::bind(("127.0.0.1", 18515))?;
        let other = Other::start(gid_index, Some("127.0.0.1"))?;
        listener.set_nonblocking(true)?;
        let accepted = soon().poll(|| listener.accept().ok());
        let (mut stream, _) = accepted.ok_or("it does not come")?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let peer = hear(&mut stream, &pair.endpoint())?;
        Ok((other, stream, peer))
    })
}

#[test]
#[ignore = "needs a verbs device (run by tools/rxe-vm) and ibv_rc_pingpong"]
fn ibv_rc_pingpong_plays_with_ours_as_client() -> Outcome {
    play(true, |pair, gid_index| {
        let other = Other::start(gid_index, None)?;
        let dialed = soon().poll(|| TcpStream::connect(("127.0.0.1", 18515)).ok());
        let mut stream = dialed.ok_or("it does not listen")?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        say(&mut stream, &pair.endpoint())?;
        let peer = hear(&mut stream, &pair.endpoint())?;
        Ok((other, stream, peer))
    })
}
