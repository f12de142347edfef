//! The control thread of every other process: one connection to rank 0, which has answered. It passes messages on in both
//! directions, gives signs of life, and notices when rank 0 goes.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use super::cause::{Cause, Loss};
use super::frame::{FROM_ROOT, Item, Preamble, TO_ROOT};
use super::hub::Heartbeat;
use super::local::{Ending, Local};
use super::message::Message;
use super::wire::{Broken, Wire};
use super::{Command, LINGER, handshake, nap};
use crate::collective::nothing;
use crate::trace::{self, Answer};

const ROOT: Token = Token(1);

/// The control thread's state.
pub(super) struct Leaf {
    poll: Poll,
    commands: Receiver<Command>,
    wire: Wire,
    local: Arc<Local>,
    preamble: Preamble,
    /// This rank's until rank 0 says otherwise.
    heartbeat: Heartbeat,
    root_host: String,
    /// Once set, the thread goes when all is sent, or at this time.
    leaving: Option<Instant>,
    /// This rank has reported a failure.
    failing: bool,
}

impl Leaf {
    pub(super) fn new(
        poll: Poll,
        commands: Receiver<Command>,
        stream: std::net::TcpStream,
        local: Arc<Local>,
        preamble: Preamble,
        heartbeat: Heartbeat,
    ) -> std::io::Result<Leaf> {
        stream.set_nonblocking(true)?;
        let stream = mio::net::TcpStream::from_std(stream);
        let wire = Wire::new(stream, poll.registry(), ROOT, FROM_ROOT, TO_ROOT)?;
        let root_host = wire.address.clone();
        Ok(Leaf {
            poll,
            commands,
            wire,
            local,
            preamble,
            heartbeat,
            root_host,
            leaving: None,
            failing: false,
        })
    }

    /// Runs until the world is over.
    pub(super) fn run(mut self) {
        let _ending = Ending(vec![self.local.clone()]);
        let mut events = Events::with_capacity(8);
        loop {
            let before = Instant::now();
            let timeout =
                self.heartbeat.interval.min(self.leaving.map_or(Duration::MAX, |_| LINGER / 10));
            if let Err(error) = nap(&mut self.poll, &mut events, Some(timeout)) {
                let what = format!("the control thread cannot poll: {error}");
                return self.local.fail(Cause::Protocol { what });
            }
            // This thread was not running itself: rank 0's silence proves nothing.
            if before.elapsed() > timeout + self.heartbeat.silence / 2 {
                self.wire.heard = Instant::now();
            }
            self.obey();
            self.wire.flush();
            if !self.listen() {
                return;
            }
            let now = Instant::now();
            let silent = now.saturating_duration_since(self.wire.heard);
            if silent > self.heartbeat.silence {
                return self.lost(Loss::Silent { milliseconds: silent.as_millis() as u64 });
            }
            if self.wire.quiet_for(self.heartbeat.interval, now) {
                self.wire.send(&Message::Alive, &nothing());
            }
            if self.failing && self.wire.flushed() {
                self.local.set_passed_on();
            }
            if self.leaving.is_some_and(|until| self.wire.flushed() || now >= until) {
                return;
            }
        }
    }

    /// Sends what this rank says.
    fn obey(&mut self) {
        loop {
            match self.commands.try_recv() {
                Ok(Command::AskTime) => {
                    // Looked at here, as late as possible: the rest of the way counts as uncertainty.
                    self.wire.send(&Message::AskTime { asked: trace::now() }, &nothing());
                }
                Ok(Command::Close) => self.leaving = Some(Instant::now() + LINGER),
                Ok(Command::Say { message, payload, .. }) => {
                    match &message {
                        Message::Leave { .. } => self.leaving = Some(Instant::now() + LINGER),
                        Message::Fail { .. } => self.failing = true,
                        _ => {}
                    }
                    if !self.wire.send(&message, &payload) {
                        let what = "a message is larger than rank 0 accepts".into();
                        self.local.fail(Cause::Protocol { what });
                    }
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.leaving.get_or_insert_with(|| Instant::now() + LINGER);
                    return;
                }
            }
        }
    }

    /// Takes in what rank 0 says. False if there will be no more.
    fn listen(&mut self) -> bool {
        loop {
            let more = self.wire.read();
            loop {
                match self.wire.next() {
                    Ok(None) => break,
                    Ok(Some(item)) => {
                        if !self.take(item) {
                            return false;
                        }
                    }
                    Err(Broken::Closed(detail)) => {
                        self.lost(Loss::Closed { detail });
                        return false;
                    }
                    Err(Broken::Frame(error)) => {
                        let what = format!("rank 0 at {} sent {error}", self.wire.address);
                        self.local.fail(Cause::Protocol { what });
                        return false;
                    }
                }
            }
            if !more {
                return true;
            }
        }
    }

    /// False if it was the last message.
    fn take(&mut self, item: Item) -> bool {
        let (message, payload) = match item {
            Item::Preamble(theirs) => {
                let (theirs, ours) = (theirs.protocol, self.preamble.protocol);
                if theirs != ours {
                    let reason = handshake::versions("this rank", ours, &self.wire.address, theirs);
                    self.local.fail(Cause::Refused { reason });
                }
                return theirs == ours;
            }
            Item::Frame(message, payload) => (message, payload),
        };
        if let Message::Welcome { peers, heartbeat_ms, silence_ms, .. } = &message {
            if let Some(root) = peers.first() {
                self.root_host.clone_from(&root.host);
            }
            self.heartbeat = Heartbeat {
                interval: Duration::from_millis(*heartbeat_ms).max(Duration::from_millis(1)),
                silence: Duration::from_millis(*silence_ms).max(Duration::from_millis(2)),
            };
        }
        if let Message::Time { asked, root } = message {
            self.local.answer(Answer { asked, root, received: trace::now() });
            return true;
        }
        let last = matches!(message, Message::Ended { .. });
        if let Err(what) = self.local.deliver(message, payload) {
            let what = format!("rank 0 at {} sent {what}", self.wire.address);
            self.local.fail(Cause::Protocol { what });
            return false;
        }
        !last
    }

    fn lost(&self, how: Loss) {
        // After `finish` this is how it ends.
        self.local.fail(Cause::Lost { rank: 0, host: self.root_host.clone(), how });
    }
}
