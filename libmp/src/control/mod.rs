//! The control plane: set-up, collectives of the host, and the detection of failures. It moves no user data.
//!
//! A star over TCP: every process keeps one connection to rank 0, served by one thread. That is one hop for any news and
//! good for some hundred ranks; a tree would take its place behind the same messages. Ranks that are threads of one process
//! share one control thread and need no sockets.
//!
//! * `message`, `cause`: what is said. `frame`: as bytes. `handshake`: who may join. `hub`: what rank 0 makes of it.
//!   All of these are without I/O.
//! * `wire`: a socket. `root`, `leaf`: the threads. `local`: what callers wait on.
//!
//! A failure travels like this: whoever notices (end of a connection, silence, a panic, `abort`) tells rank 0, which tells
//! everybody; each process sets its abort word first and then wakes its waiting calls. If rank 0 is lost, everybody notices
//! that by himself.

pub(crate) mod cause;
pub(crate) mod frame;
pub(crate) mod handshake;
mod hub;
mod leaf;
mod local;
pub(crate) mod message;
mod root;
mod wire;

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token, Waker};

use crate::collective::{Call, nothing};
use crate::error::{Error, Result};
use crate::trace::{Offset, TraceFile};
use cause::{Cause, Loss};
use frame::Preamble;
use handshake::Expected;
#[cfg(any(test, fuzzing))]
pub(crate) use hub::Hub;
pub(crate) use hub::{Heartbeat, WORLD, team_number};
use local::Local;
pub(crate) use local::Waited;
use message::{Message, Outcome, Payload, PeerInfo};

const WAKE: Token = Token(0);
/// How long a control thread stays to get the last word out.
const LINGER: Duration = Duration::from_secs(1);
/// Between two rounds of help for messages while a rank waits in a collective, and how long it grows, to a part of the time for which
/// nothing has gone on: so that hundreds of ranks of a host that wait leave the cores to those that do not.
const HELP: Duration = Duration::from_millis(1);
const LONGEST_HELP: Duration = Duration::from_millis(20);
const HELP_PART: u32 = 32;
/// How much later than the deadline a caller gives up by itself, if rank 0 does not say what is wrong.
const GRACE: Duration = Duration::from_secs(1);
/// How often rank 0 is asked for its time.
const ANSWERS: usize = 24;

/// What a rank of this process wants of its control thread.
enum Command {
    /// Tell rank 0.
    Say { from: u32, message: Message, payload: Payload },
    /// Ask rank 0 what time it is.
    AskTime,
    /// It has finished and needs the thread no more.
    Close,
}

/// The way to a control thread. Shared by the ranks of this process that it serves.
struct Port {
    commands: Sender<Command>,
    waker: Arc<Waker>,
    /// Ranks that have neither finished nor left.
    worlds: AtomicUsize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// One rank's hold on the control plane.
pub(crate) struct Control {
    local: Arc<Local>,
    port: Arc<Port>,
    /// Rank 0 is another process.
    asks: bool,
}

impl Drop for Control {
    fn drop(&mut self) {
        // Does nothing after `close` or `leave`.
        self.leave(Loss::Unfinished);
    }
}

/// What the control plane of a world needs to know.
pub(crate) struct Setup {
    pub expected: Expected,
    pub heartbeat: Heartbeat,
    pub timeout: Duration,
    /// Of rank 0: the timeline that all ranks keep.
    pub trace: Option<TraceFile>,
}

/// Which collective of which communicator.
#[derive(Clone)]
pub(crate) struct Turn {
    /// The communicator.
    pub group: u64,
    /// Its collectives are counted; this is the number of this one.
    pub turn: u64,
    /// Who is in it, where rank 0 may not know: with the first collective of a team.
    pub team: Option<Arc<[u32]>>,
}

impl Control {
    /// Rank 0 and, if they are threads of this process, more ranks: `here` are the ranks of this process, which must be all
    /// if there is no listener.
    pub(crate) fn root(
        setup: Setup,
        listener: Option<TcpListener>,
        here: Vec<PeerInfo>,
    ) -> Result<Vec<Control>> {
        let failed = || Error::io("the control plane of rank 0 could not be set up");
        let Setup { expected, heartbeat, timeout, trace } = setup;
        let locals: Vec<Arc<Local>> =
            (0u32..).zip(&here).map(|(rank, _)| Arc::new(Local::new(rank))).collect();
        let hub = hub::Hub::new(expected.size, heartbeat, Instant::now(), timeout);
        let mut hub = hub.with_trace(trace);
        for (rank, peer) in (0u32..).zip(here) {
            hub.join(rank, peer);
        }
        let listener = listener
            .map(|listener| {
                listener.set_nonblocking(true)?;
                Ok(mio::net::TcpListener::from_std(listener))
            })
            .transpose()
            .map_err(failed())?;
        let served = locals.clone();
        Control::spawn(locals, |poll, commands| {
            let root = root::Root::new(poll, commands, listener, expected, heartbeat, hub, served)?;
            Ok(move || root.run())
        })
        .map_err(failed())
    }

    /// What a rank says first on its connection to rank 0: who it is.
    pub(crate) fn greeting(preamble: &Preamble, message: &Message) -> Vec<u8> {
        let mut bytes = preamble.encode().to_vec();
        bytes.extend(Control::from_stranger(message));
        bytes
    }

    /// What somebody says after the preamble who has not been let in.
    pub(crate) fn from_stranger(message: &Message) -> Vec<u8> {
        // Names are far shorter than what one frame carries.
        frame::encode(message, 0, frame::STRANGER).unwrap_or_default()
    }

    /// A rank with a connection to rank 0, on which it has said its greeting.
    pub(crate) fn leaf(setup: Setup, stream: TcpStream, rank: u32) -> Result<Control> {
        let local = Arc::new(Local::new(rank));
        let served = local.clone();
        let address =
            stream.peer_addr().map_or_else(|_| "its host".into(), |to| to.ip().to_string());
        let mut controls = Control::spawn(vec![local], |poll, commands| {
            let Setup { expected, heartbeat, .. } = setup;
            let preamble = expected.preamble;
            let leaf = leaf::Leaf::new(poll, commands, stream, served, preamble, heartbeat)?;
            Ok(move || leaf.run())
        })
        .map_err(|error| match error.kind() {
            // Closed between the connecting and now: rank 0 has gone, not something here.
            ErrorKind::NotConnected | ErrorKind::ConnectionReset => {
                let how = Loss::Closed { detail: error.to_string() };
                Cause::Lost { rank: 0, host: address, how }.during("init", Duration::ZERO)
            }
            _ => Error::io("the control plane of this rank could not be set up")(error),
        })?;
        let mut control = controls.pop().ok_or_else(|| Error::Protocol {
            what: "no control plane for this rank".into(),
            op: "init".into(),
            age: Duration::ZERO,
        })?;
        control.asks = true;
        Ok(control)
    }

    fn spawn<F: FnOnce() + Send + 'static>(
        locals: Vec<Arc<Local>>,
        make: impl FnOnce(Poll, std::sync::mpsc::Receiver<Command>) -> io::Result<F>,
    ) -> io::Result<Vec<Control>> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        let (commands, receiver) = channel();
        let run = make(poll, receiver)?;
        let thread = std::thread::Builder::new().name("mp-control".into()).spawn(run)?;
        let worlds = AtomicUsize::new(locals.len());
        let port = Arc::new(Port { commands, waker, worlds, thread: Mutex::new(Some(thread)) });
        Ok(locals
            .into_iter()
            .map(|local| Control { local, port: port.clone(), asks: false })
            .collect())
    }

    /// This rank's number in the world.
    pub(crate) fn rank(&self) -> usize {
        self.local.rank as usize
    }

    /// Waits until all ranks have come.
    pub(crate) fn wait_peers(&self, timeout: Duration) -> Result<Arc<[PeerInfo]>> {
        let since = Instant::now();
        match self.local.wait_peers(since + timeout + GRACE) {
            Waited::Ready(peers) => Ok(peers),
            Waited::Ended(cause) => Err(cause.during("init", since.elapsed())),
            Waited::Finished => Err(Error::Finished { op: "init".into() }),
            Waited::Expired => {
                let missing = self.local.missing();
                let what = match missing.len() {
                    0 => "rank 0 accepted the connection and then did not answer".to_owned(),
                    _ => {
                        let missing: Vec<usize> =
                            missing.iter().map(|&rank| rank as usize).collect();
                        format!("{} did not arrive", crate::error::ranks(&missing))
                    }
                };
                Err(Error::Protocol { what, op: "init".into(), age: since.elapsed() })
            }
        }
    }

    /// The timeline that the ranks keep. Known once the peers are.
    pub(crate) fn trace(&self) -> Option<TraceFile> {
        self.local.trace()
    }

    /// What this rank's clock differs by from rank 0's, which may be on the same host. Answers that do not come leave it as
    /// uncertain as it is.
    pub(crate) fn clock_offset(&self, same_host: bool) -> Offset {
        if !self.asks {
            return Offset::default();
        }
        let mut answers = Vec::new();
        for _ in 0..ANSWERS {
            self.order(Command::AskTime);
            match self.local.wait_answer(Instant::now() + GRACE) {
                Waited::Ready(answer) => answers.push(answer),
                _ => break,
            }
        }
        Offset::of(&answers, same_host)
    }

    /// Takes part in a collective and waits for its result. `progress` is called meanwhile, again and again where it says how often
    /// something has gone on so far.
    pub(crate) fn call(
        &self,
        Turn { group, turn, team }: Turn,
        call: Call,
        payload: Payload,
        what: &str,
        timeout: Duration,
        mut progress: impl FnMut() -> Option<u32>,
    ) -> Result<(Outcome, Payload)> {
        self.check(what)?;
        let since = Instant::now();
        let timeout_ms = timeout.as_millis() as u64;
        let enter = Message::Enter { group, turn, call, timeout_ms, what: what.into(), team };
        self.post(enter, payload);
        let deadline = since + timeout + GRACE;
        let (mut moved, mut quiet) = (None, since);
        let reply = loop {
            // Messages of this rank that cannot go on by themselves go on while it waits: soon after they did, and the more seldom
            // the longer they have not.
            let helped = progress();
            let now = Instant::now();
            if std::mem::replace(&mut moved, helped) != helped {
                quiet = now;
            }
            let until = match helped {
                Some(_) => {
                    deadline.min(now + ((now - quiet) / HELP_PART).clamp(HELP, LONGEST_HELP))
                }
                None => deadline,
            };
            match self.local.wait_reply(group, until) {
                Waited::Expired if until < deadline => {}
                reply => break reply,
            }
        };
        let cause = match reply {
            Waited::Ready((theirs, Outcome::Mismatch(reason), _)) if theirs == turn => {
                return Err(Error::Mismatch { op: what.into(), reason });
            }
            Waited::Ready((theirs, outcome, payload)) if theirs == turn => {
                return Ok((outcome, payload));
            }
            Waited::Ready((theirs, ..)) => {
                let what = format!("rank 0 replied to collective {theirs} instead of {turn}");
                self.fail(Cause::Protocol { what })
            }
            Waited::Ended(cause) => cause,
            Waited::Finished => return Err(Error::Finished { op: what.into() }),
            Waited::Expired => {
                let waited_ms = since.elapsed().as_millis() as u64;
                self.fail(Cause::Late { what: what.into(), missing: Vec::new(), waited_ms })
            }
        };
        Err(cause.during(what, since.elapsed()))
    }

    /// Whether the world goes on: an error that names `op` if not.
    pub(crate) fn check(&self, op: &str) -> Result<()> {
        self.check_after(op, Duration::ZERO)
    }

    /// The same for an operation that has been going on for `age`.
    pub(crate) fn check_after(&self, op: &str, age: Duration) -> Result<()> {
        if self.local.finished() {
            return Err(Error::Finished { op: op.into() });
        }
        match self.local.cause() {
            None => Ok(()),
            Some(cause) => Err(cause.during(op, age)),
        }
    }

    /// Whether the world is over in good order, or dropped.
    pub(crate) fn finished(&self) -> bool {
        self.local.finished()
    }

    /// Calls `call` with the cause when the world fails, or now if it has. It must not wait.
    pub(crate) fn on_failure(&self, call: impl FnOnce(&str) + Send + 'static) {
        self.local.on_failure(Box::new(call));
    }

    /// Sends a letter to a rank, by way of rank 0. It is read whatever that rank is doing.
    pub(crate) fn write_to(&self, rank: usize, letter: &[u8]) {
        // Ranks are far fewer than 2^32.
        self.post(Message::Letter { rank: rank as u32 }, Arc::from(letter));
    }

    /// Calls `read` with the letters of other ranks, in the control thread: it must not wait for anybody.
    pub(crate) fn on_letter(&self, read: impl Fn(u32, &[u8]) + Send + Sync + 'static) {
        self.local.on_letter(Arc::new(read));
    }

    /// Somebody breaks the protocol of the data plane: the world is over.
    pub(crate) fn breach(&self, what: String) -> Error {
        self.fail(Cause::Protocol { what }).during("check", Duration::ZERO)
    }

    /// Ends the world, here at once and for the others as soon as they hear of it. Returns the cause that holds, which is an
    /// earlier one if there was.
    pub(crate) fn fail(&self, cause: Cause) -> Cause {
        self.local.fail(cause.clone());
        self.post(Message::Fail { cause: cause.clone() }, nothing());
        self.local.cause().unwrap_or(cause)
    }

    /// Tells rank 0 of a loss that this rank has seen, and leaves the verdict to it. What a rank sees of another may be the
    /// consequence of an earlier loss, of which it has not heard because it did not run: rank 0 has, before any rank could
    /// draw consequences, and answers with the first cause. If rank 0 does not answer, it is lost itself.
    pub(crate) fn report(&self, cause: Cause) {
        self.post(Message::Fail { cause }, nothing());
    }

    /// Waits until the world is over, or `limit` has gone by. What has ended it is on its way to the others by then.
    pub(crate) fn wait_for_end(&self, limit: Duration) -> Waited<Infallible> {
        let waited = self.local.wait_for_end(limit);
        if matches!(waited, Waited::Ended(_)) {
            self.wait_passed_on();
        }
        waited
    }

    /// Waits (shortly) until a failure that this rank reported is on its way to the others.
    pub(crate) fn wait_passed_on(&self) {
        self.local.wait_passed_on(LINGER);
    }

    pub(crate) fn abort_word(&self) -> &AtomicU64 {
        self.local.abort_word()
    }

    pub(crate) fn release(&self, group: u64) {
        if self.check("release").is_ok() {
            self.post(Message::Release { group }, nothing());
        }
    }

    /// After an orderly finish: no more calls, and the control thread ends with its last rank.
    pub(crate) fn close(&self) {
        if self.local.finish() {
            self.order(Command::Close);
            self.port.retire();
        }
    }

    /// Without one.
    pub(crate) fn leave(&self, how: Loss) {
        if self.local.finish() {
            self.post(Message::Leave { how }, nothing());
            self.port.retire();
        }
    }

    fn post(&self, message: Message, payload: Payload) {
        self.order(Command::Say { from: self.local.rank, message, payload });
    }

    fn order(&self, command: Command) {
        // A thread that has gone has left the cause behind.
        let _ = self.port.commands.send(command);
        let _ = self.port.waker.wake();
    }
}

impl Port {
    fn retire(&self) {
        if self.worlds.fetch_sub(1, Ordering::AcqRel) == 1 {
            let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(thread) = thread {
                // A panic of the control thread has been reported to its ranks when it ended.
                let _ = thread.join();
            }
        }
    }
}

/// Waits for events; a signal is none.
fn nap(poll: &mut Poll, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
    match poll.poll(events, timeout) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            events.clear();
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_info::BuildInfo;
    use frame::Token;

    #[test]
    fn a_connection_that_rank_0_closed_at_once_is_the_loss_of_rank_0() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // Closed with bytes that nobody has read: a reset.
        std::io::Write::write_all(&mut &stream, b"x").unwrap();
        drop(listener.accept().unwrap());
        let until = Instant::now() + Duration::from_secs(60);
        while stream.peer_addr().is_ok() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let build = BuildInfo::current();
        let expected = Expected {
            preamble: Preamble { protocol: build.protocol, token: Token([0; 32]) },
            size: 2,
            job: String::new(),
            build,
            host: "here".into(),
        };
        // It is not found out by silence.
        let timeout = Duration::from_secs(60);
        let heartbeat = Heartbeat { interval: timeout, silence: timeout };
        let setup = Setup { expected, heartbeat, timeout, trace: None };
        let error = Control::leaf(setup, stream, 1).err().unwrap().to_string();
        assert!(error.starts_with("rank 0 on ") && error.contains("is lost"), "{error}");
    }
}
