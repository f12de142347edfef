//! The test binary, started again as a peer: its test `peer` is [`peer`], and does what its order says. Parent and
//! peer talk in lines; those of the peer begin with "peer: ".

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use gdsync::nic::soft::{SoftNic, SoftNicOptions};
use gdsync::nic::{Access, Error, Nic, QueuePairOptions};
use gdsync::wqe::{Operation, Payload};
use gdsync::{Buffer, Device, Space};
use serde::{Deserialize, Serialize};

use super::side::{Introduction, Side};
use super::{Outcome, Way, signaled, soon};

/// What a peer is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub way: Way,
    pub task: Task,
    /// Where its NIC listens, if not where [`Way::nic`] does.
    pub listen: Option<SocketAddr>,
    pub seed: u64,
    pub transport_timeout: Duration,
}

/// Its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// So many random operations.
    Work(u64),
    /// Leaves its receives unfilled, and waits to be killed.
    Idle,
    /// Offers so many bytes of a GPU's own memory, and waits to be killed.
    OfferGpuMemory(usize),
    /// Answers so many writes ([`Side::volley`]), and waits to be killed.
    Volley(u64),
    /// Sends without an end, says "sending", and then how and how long after the last success it failed.
    SendUntilCut,
}

impl Order {
    pub fn new(way: Way, task: Task) -> Order {
        let transport_timeout = Duration::from_secs(5);
        Order { way, task, listen: None, seed: 2, transport_timeout }
    }
}

/// A peer that runs.
pub struct Peer {
    pub child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts one; `prefix` is a command to start it with, or nothing.
    pub fn start(order: &Order, prefix: &[&str]) -> Outcome<Peer> {
        let program = std::env::current_exe()?;
        let mut command = match prefix {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        let mut child = command
            .args(["peer", "--exact", "--nocapture", "--include-ignored"])
            .env("MP_TEST_PEER", serde_json::to_string(order)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("no stdin")?;
        let output = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        Ok(Peer { child, input, output })
    }

    pub fn tell(&mut self, line: &str) -> Outcome {
        writeln!(self.input, "{line}")?;
        Ok(self.input.flush()?)
    }

    pub fn hear(&mut self) -> Outcome<String> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err("the peer ended".into());
            }
            if let Some((_, text)) = line.trim_end().split_once("peer: ") {
                return Ok(text.to_owned());
            }
        }
    }

    /// For a side in this process.
    pub fn exchange(&mut self, own: &Introduction) -> Outcome<Introduction> {
        let peers = serde_json::from_str(&self.hear()?)?;
        self.tell(&serde_json::to_string(own)?)?;
        Ok(peers)
    }

    /// Makes two peers known to each other.
    pub fn introduce(&mut self, other: &mut Peer) -> Outcome {
        let (own, others) = (self.hear()?, other.hear()?);
        self.tell(&others)?;
        other.tell(&own)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The peer's side; does nothing unless it was started as one.
pub fn peer() -> Outcome {
    let Ok(order) = std::env::var("MP_TEST_PEER") else { return Ok(()) };
    let order: Order = serde_json::from_str(&order)?;
    let nic = match order.listen {
        Some(listen) => {
            SoftNic::open(&SoftNicOptions { listen: Some(listen), ..SoftNicOptions::default() })?
        }
        None => order.way.nic()?,
    };
    let exchange = |own: &Introduction| -> Outcome<Introduction> {
        println!("peer: {}", serde_json::to_string(own)?);
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    };
    if let Task::OfferGpuMemory(bytes) = order.task {
        // The other GPU where there are two; who asks uses the first.
        let gpu = Device::cuda(gdsync::CudaDevice::count()?.saturating_sub(1))?;
        let queue = nic.queue_pair(&Device::Host, &QueuePairOptions::default())?;
        let memory = Buffer::<u8>::new(&gpu, Space::Device, bytes)?;
        let region = nic.register(&memory.bytes(), Access::REMOTE_READ | Access::REMOTE_WRITE)?;
        let own = (queue.address().clone(), region.address(), region.rkey());
        queue.connect_over(&exchange(&own)?.0, order.way.wire())?;
        std::thread::sleep(Duration::from_secs(60));
        return Ok(());
    }
    let mut side = Side::start(&nic, order.way, order.seed, order.transport_timeout, exchange)?;
    match order.task {
        Task::Work(operations) => {
            side.run(operations)?;
            println!("peer: {} operations, {} bytes", operations, side.bytes);
        }
        Task::Idle | Task::OfferGpuMemory(_) => std::thread::sleep(Duration::from_secs(60)),
        Task::Volley(count) => {
            side.volley(&nic, 0..count, false)?;
            std::thread::sleep(Duration::from_secs(60));
        }
        Task::SendUntilCut => {
            let write =
                Operation::Write { remote: side.remote, payload: Payload::Inline(b"?"), imm: None };
            let mut last = Instant::now();
            let begin = last;
            println!("peer: sending");
            let error = loop {
                if begin.elapsed() > Duration::from_secs(60) {
                    return Err("never cut".into());
                }
                let position = side.queue.post(&signaled(write))?;
                match side.queue.wait(position, soon()) {
                    Ok(()) => last = Instant::now(),
                    Err(error) => break error,
                }
                std::thread::sleep(Duration::from_millis(1));
            };
            let Error::Failed { syndrome, .. } = error else { return Err(error.into()) };
            println!("peer: {syndrome:?} {}", last.elapsed().as_millis());
        }
    }
    Ok(())
}
