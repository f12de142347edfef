//! The control thread of rank 0 (or of all ranks, if they are threads of one process): sockets and clocks around the
//! [`Hub`]. It lets ranks in, carries their messages to the hub and the hub's to them, and notices who goes silent.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

use super::cause::{Cause, Loss};
use super::frame::{FROM_ROOT, FrameError, Item, STRANGER, TO_ROOT};
use super::handshake::{self, Expected, Refusal};
use super::hub::{Heartbeat, Hub};
use super::local::{Ending, Local};
use super::message::{Message, Payload};
use super::wire::{Broken, Wire};
use super::{Command, LINGER, nap};
use crate::collective::nothing;
use crate::{patience, trace};

const LISTENER: Token = Token(1);
const FIRST_LINK: usize = 2;
/// How long a connection may take to say who it is.
const GREETING: Duration = Duration::from_secs(5);
/// Connections that are not those of ranks. One more, and the oldest of them is closed: a rank that has not had the time to
/// say who it is tries again.
const STRANGERS: usize = 64;
/// Connections accepted in one round, between which those that are there are served. The rest waits in the system's queue.
const ROUND: usize = 64;

/// What a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// Has not sent its preamble.
    Unknown,
    /// Has sent a good preamble.
    Greeted,
    /// Has been turned away, and is being told.
    Refused,
    Rank(u32),
}

struct Link {
    wire: Wire,
    who: Who,
    since: Instant,
}

/// A socket that listens, and does so no more when this is dropped, whoever else holds it: the launcher's shell, say, which
/// rank 0 has inherited it from.
struct Listening(TcpListener);

impl Drop for Listening {
    fn drop(&mut self) {
        // It listens, so this cannot fail; if it did, it would end with its last holder.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Read);
    }
}

/// The control thread's state.
pub(super) struct Root {
    poll: Poll,
    commands: Receiver<Command>,
    listener: Option<Listening>,
    /// The last round of accepting left some.
    more: bool,
    expected: Expected,
    heartbeat: Heartbeat,
    hub: Hub,
    locals: BTreeMap<u32, Arc<Local>>,
    /// Ranks of this process that have not left.
    present: usize,
    links: HashMap<Token, Link>,
    tokens: HashMap<u32, Token>,
    next_token: usize,
    /// Ranks that have come, also those that were then refused.
    heard: usize,
    linger: Option<Instant>,
}

impl Root {
    pub(super) fn new(
        poll: Poll,
        commands: Receiver<Command>,
        mut listener: Option<TcpListener>,
        expected: Expected,
        heartbeat: Heartbeat,
        hub: Hub,
        locals: Vec<Arc<Local>>,
    ) -> std::io::Result<Root> {
        if let Some(listener) = &mut listener {
            poll.registry().register(listener, LISTENER, Interest::READABLE)?;
        }
        Ok(Root {
            poll,
            commands,
            listener: listener.map(Listening),
            more: false,
            expected,
            heartbeat,
            hub,
            present: locals.len(),
            heard: locals.len(),
            locals: locals.into_iter().map(|local| (local.rank, local)).collect(),
            links: HashMap::new(),
            tokens: HashMap::new(),
            next_token: FIRST_LINK,
            linger: None,
        })
    }

    /// Runs until the world is over and everybody has been told.
    pub(super) fn run(mut self) {
        let _ending = Ending(self.locals.values().cloned().collect());
        let mut events = Events::with_capacity(128);
        self.dispatch();
        while !self.done() {
            let before = Instant::now();
            let timeout = self.timeout(before);
            if let Err(error) = nap(&mut self.poll, &mut events, timeout) {
                self.hub.fail(Cause::Protocol { what: format!("rank 0 cannot poll: {error}") });
                self.dispatch();
                return;
            }
            let now = Instant::now();
            // This thread was not running itself (stopped, machine suspended): others' silence proves nothing.
            let overslept =
                timeout.is_some_and(|timeout| now - before > timeout + self.heartbeat.silence / 2);
            if overslept {
                self.links.values_mut().for_each(|link| link.wire.heard = now);
            }
            self.obey(now);
            self.accept(now);
            for event in &events {
                self.serve(event.token(), now);
            }
            self.beat(Instant::now());
            self.hub.tick(Instant::now());
            if let Some(reminder) = self.hub.reminder(Instant::now()) {
                patience::say(&reminder);
            }
            self.dispatch();
        }
    }

    fn timeout(&self, now: Instant) -> Option<Duration> {
        if self.more {
            return Some(Duration::ZERO);
        }
        let mut due = self.hub.next_deadline();
        let mut at_latest = |time: Instant| due = Some(due.map_or(time, |due| due.min(time)));
        if !self.links.is_empty() || self.listener.is_some() {
            at_latest(now + self.heartbeat.interval);
        }
        if let Some(linger) = self.linger {
            at_latest(linger);
        }
        // Rounded up: poll counts in milliseconds, and waking early would spin.
        due.map(|due| due.saturating_duration_since(now) + Duration::from_millis(1))
    }

    /// Whether the thread may go: the world is over, and everybody has heard of it or had the time to. A rank closes its connection
    /// when it has heard. Were it closed here before, what the rank says meanwhile would be answered by a reset, which may overtake
    /// the good news on a bad cable. After a failure there is less patience: whoever hears of nothing notices the end as well.
    fn done(&mut self) -> bool {
        if self.present > 0 {
            return false;
        }
        let patience =
            if self.hub.finished() { self.heartbeat.silence.max(LINGER) } else { LINGER };
        let linger = *self.linger.get_or_insert_with(|| Instant::now() + patience);
        if self.tells_latecomers() && Instant::now() < linger {
            return false;
        }
        self.links.values().all(|link| !matches!(link.who, Who::Rank(_)))
            || Instant::now() >= linger
    }

    /// Whether the start has failed for a reason that ranks which are still on their way should hear, too.
    fn tells_latecomers(&self) -> bool {
        let why =
            self.hub.stillborn().is_some_and(|cause| !matches!(cause, Cause::Incomplete { .. }));
        why && self.heard < self.expected.size as usize
    }

    /// Takes in what the ranks of this process say.
    fn obey(&mut self, now: Instant) {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Say { from, message, payload }) => {
                    if matches!(message, Message::Leave { .. }) {
                        self.present = self.present.saturating_sub(1);
                    }
                    self.hub.handle(from, message, payload, now);
                }
                // The ranks of this process have this clock.
                Ok(Command::AskTime) => {}
                Ok(Command::Close) => self.present = self.present.saturating_sub(1),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    self.present = 0;
                    return;
                }
            }
        }
    }

    /// Takes new connections while ranks are missing, or are to be told that there will be no world. Asked every time
    /// round, so that a failure (no file descriptor left) is tried again.
    fn accept(&mut self, now: Instant) {
        self.more = false;
        for _ in 0..ROUND {
            let Some(Listening(listener)) = &self.listener else { return };
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => {
                    self.hub.note(format!("a connection could not be accepted: {error}"));
                    self.make_room();
                    return;
                }
            };
            let token = Token(self.next_token);
            self.next_token += 1;
            match Wire::new(stream, self.poll.registry(), token, STRANGER, FROM_ROOT) {
                Ok(wire) => {
                    self.links.insert(token, Link { wire, who: Who::Unknown, since: now });
                    // What arrived before it was registered may raise no event.
                    self.serve(token, now);
                }
                Err(error) => self.hub.note(format!("a connection could not be set up: {error}")),
            }
            if self.links.len() > self.tokens.len() + STRANGERS {
                self.make_room();
            }
        }
        self.more = true;
    }

    /// Closes the oldest connection that is not a rank's; one that has shown the secret last.
    fn make_room(&mut self) {
        let strangers = self.links.iter().filter(|(_, link)| !matches!(link.who, Who::Rank(_)));
        let oldest = strangers.min_by_key(|(token, link)| (link.who == Who::Greeted, token.0));
        let Some(token) = oldest.map(|(&token, _)| token) else { return };
        // It may have spoken meanwhile.
        self.serve(token, Instant::now());
        if self.links.get(&token).is_some_and(|link| !matches!(link.who, Who::Rank(_))) {
            self.hub
                .note("connections that did not say who they are were closed for others".into());
            self.close(token);
        }
    }

    fn close(&mut self, token: Token) {
        if let Some(mut link) = self.links.remove(&token) {
            link.wire.deregister(self.poll.registry());
        }
    }

    /// Sends and receives on a connection.
    fn serve(&mut self, token: Token, now: Instant) {
        let Some(link) = self.links.get_mut(&token) else { return };
        link.wire.flush();
        loop {
            let Some(link) = self.links.get_mut(&token) else { return };
            let more = link.wire.read();
            loop {
                let Some(link) = self.links.get_mut(&token) else { return };
                match link.wire.next() {
                    Ok(None) => break,
                    Ok(Some(item)) => self.take(token, item, now),
                    Err(broken) => return self.drop_link(token, broken),
                }
            }
            if !more {
                return;
            }
        }
    }

    fn take(&mut self, token: Token, item: Item, now: Instant) {
        let Some(link) = self.links.get_mut(&token) else { return };
        let from = link.wire.address.clone();
        match (link.who, item) {
            (Who::Refused, _) => {}
            (Who::Greeted, _) if !self.hub.assembling() => {
                let cause = self.hub.stillborn().cloned();
                let late = || Refusal::Stranger(format!("{from}: too late, the world is complete"));
                self.refuse(token, cause.map_or_else(late, Refusal::Unfit));
            }
            (Who::Rank(_), Item::Frame(Message::AskTime { asked }, _)) => {
                link.wire.send(&Message::Time { asked, root: trace::now() }, &nothing());
            }
            (Who::Rank(rank), Item::Frame(message, payload)) => {
                self.hub.handle(rank, message, payload, now);
            }
            (Who::Unknown, Item::Preamble(theirs)) => {
                link.wire.greet(&self.expected.preamble.without_token());
                match handshake::check_preamble(&self.expected, &theirs, &from) {
                    Ok(()) => match self.hub.stillborn().cloned() {
                        None => link.who = Who::Greeted,
                        Some(cause) => self.refuse(token, Refusal::Unfit(cause)),
                    },
                    Err(refusal) => self.refuse(token, refusal),
                }
            }
            (Who::Greeted, Item::Frame(Message::Hello(hello), _)) => {
                match handshake::check_hello(&self.expected, hello, &from) {
                    Ok((rank, peer)) => {
                        tracing::debug!(rank, host = peer.host, from, "a rank has joined");
                        link.who = Who::Rank(rank);
                        self.heard += 1;
                        link.wire.set_receive_limit(TO_ROOT);
                        self.tokens.entry(rank).or_insert(token);
                        self.hub.join(rank, peer);
                        if self.tokens.get(&rank) != Some(&token) {
                            // Two say they are this rank, which has ended the start: tell the second, too.
                            let reason = format!("two processes are rank {rank}");
                            self.refuse(token, Refusal::Stranger(reason));
                        }
                    }
                    Err(refusal) => self.refuse(token, refusal),
                }
            }
            (Who::Greeted, Item::Frame(Message::Gone { rank, host, how }, _)) => {
                link.who = Who::Refused;
                self.heard += 1;
                self.hub.gone(rank, host, how);
            }
            _ => self.refuse(token, Refusal::Stranger(format!("{from}: did not say who it is"))),
        }
    }

    fn refuse(&mut self, token: Token, refusal: Refusal) {
        let cause = match refusal {
            Refusal::Stranger(reason) => {
                tracing::warn!(reason, "a connection was turned away");
                self.hub.note(reason.clone());
                Cause::Refused { reason }
            }
            Refusal::Unfit(cause) => {
                self.heard += 1;
                self.hub.fail(cause.clone());
                cause
            }
        };
        if let Some(link) = self.links.get_mut(&token) {
            link.who = Who::Refused;
            link.since = Instant::now();
            link.wire.send(&Message::Ended { cause }, &nothing());
            link.wire.shut();
        }
    }

    fn drop_link(&mut self, token: Token, broken: Broken) {
        let Some(mut link) = self.links.remove(&token) else { return };
        link.wire.deregister(self.poll.registry());
        let from = &link.wire.address;
        match (link.who, broken) {
            (Who::Refused, _) => {}
            (Who::Rank(rank), broken) => {
                self.tokens.remove(&rank);
                match broken {
                    Broken::Closed(detail) => self.hub.lost(rank, Loss::Closed { detail }),
                    Broken::Frame(error) => {
                        let what = format!("rank {rank} at {from} sent {error}");
                        self.hub.fail(Cause::Protocol { what });
                    }
                }
            }
            (_, Broken::Frame(FrameError::Foreign)) => {
                self.hub.note(format!("{from}: does not speak this protocol"));
            }
            (_, Broken::Frame(error)) => self.hub.note(format!("{from}: sent {error}")),
            (_, Broken::Closed(_)) => {
                self.hub.note(format!("{from}: closed before it said who it is"));
            }
        }
    }

    /// Gives and expects signs of life.
    fn beat(&mut self, now: Instant) {
        let sign = self.hub.sign_of_life();
        let mut gone = Vec::new();
        for (&token, link) in &mut self.links {
            match link.who {
                Who::Rank(rank) => {
                    let silent = now.saturating_duration_since(link.wire.heard);
                    if silent > self.heartbeat.silence {
                        self.hub
                            .lost(rank, Loss::Silent { milliseconds: silent.as_millis() as u64 });
                    }
                    if link.wire.quiet_for(self.heartbeat.interval, now) {
                        link.wire.send(&sign, &nothing());
                    }
                }
                Who::Unknown | Who::Greeted if now > link.since + GREETING => {
                    let from = &link.wire.address;
                    self.hub.note(format!("{from}: did not say who it is within {GREETING:?}"));
                    gone.push(token);
                }
                Who::Refused if now > link.since + LINGER => gone.push(token),
                _ => {}
            }
        }
        for token in gone {
            self.close(token);
        }
    }

    /// Carries out what the hub wants said: to other processes first, so that a rank of this one that ends the process on
    /// hearing of a failure does not take the news with it.
    fn dispatch(&mut self) {
        if !self.hub.assembling()
            && !self.tells_latecomers()
            && let Some(mut listener) = self.listener.take()
        {
            // Before anybody is welcomed: who is may start the next world at the same address at once. An inherited
            // socket may stay open elsewhere, and closing this descriptor would not deregister it then.
            let _ = self.poll.registry().deregister(&mut listener.0);
        }
        let mut here: Vec<(Arc<Local>, Message, Payload)> = Vec::new();
        for (rank, message, payload) in self.hub.take_outputs() {
            if let Some(local) = self.locals.get(&rank) {
                here.push((local.clone(), message, payload));
            } else if let Some(link) =
                self.tokens.get(&rank).and_then(|token| self.links.get_mut(token))
            {
                if matches!(message, Message::Ended { .. }) {
                    link.wire.forget_unsent();
                }
                if !link.wire.send(&message, &payload) {
                    let what = format!("the reply to rank {rank} is larger than it accepts");
                    self.hub.fail(Cause::Protocol { what });
                }
            }
        }
        for (local, message, payload) in here {
            // The hub is our own: it sends ranks only what ranks take.
            let _ = local.deliver(message, payload);
        }
        if self.hub.over() && self.links.values().all(|link| link.wire.flushed()) {
            self.locals.values().for_each(|local| local.set_passed_on());
        }
    }
}
