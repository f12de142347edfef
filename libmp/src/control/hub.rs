//! Rank 0's part of the control plane as a state machine without I/O: it gathers the ranks, completes their collectives,
//! and turns the first failure into the end of the world for all. The time is an argument; sockets are in `root`.
//!
//! One collective of a group is open at a time: a rank enters the next only after the reply to the last.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cause::{Cause, Loss};
use super::message::{Message, Outcome, Payload, PeerInfo};
use crate::collective::{self, Call};
use crate::patience::Reminder;
use crate::trace::TraceFile;

/// The group of all ranks.
pub(crate) const WORLD: u64 = 0;
/// This bit of a number says that it is a team's.
const TEAM: u64 = 1 << 63;

/// The number of a team: the same for all its members, and in all likelihood no other's. `founded` is how many teams of these
/// ranks, in this order, each of them has made of the communicator `of` before.
pub(crate) fn team_number(of: u64, founded: u64, members: &[u32]) -> u64 {
    let words = [of, founded].into_iter().chain(members.iter().map(|&rank| u64::from(rank)));
    TEAM | words.fold(members.len() as u64, |sum, word| mixed(sum ^ word))
}

/// A permutation of 64 bits of which every bit depends on every other (the finaliser of SplitMix64).
fn mixed(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

fn is_team(id: u64) -> bool {
    id & TEAM != 0
}

/// How many missing ranks are listed to those who wait.
const LISTED: usize = 16;
/// How many refused connections are remembered.
const NOTES: usize = 8;
/// Longest name of an operation that a rank may give.
const WHAT_MAX: usize = 256;

/// Signs of life: how often, and how long their absence is borne.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    pub interval: Duration,
    pub silence: Duration,
}

/// A message to a rank.
pub(crate) type Output = (u32, Message, Payload);

#[derive(Debug)]
enum Phase {
    Assembling { since: Instant, timeout: Duration, reminder: Reminder },
    Running,
    Finished,
    Failed,
}

/// The state machine.
#[derive(Debug)]
pub(crate) struct Hub {
    peers: Vec<Option<PeerInfo>>,
    /// How many have come.
    joined: usize,
    phase: Phase,
    heartbeat: Heartbeat,
    trace: Option<TraceFile>,
    groups: HashMap<u64, Group>,
    /// No collective that is open passes its deadline before.
    due: Option<Instant>,
    next_group: u64,
    notes: Vec<String>,
    /// Why the start failed.
    stillborn: Option<Cause>,
    out: Vec<Output>,
}

#[derive(Debug)]
struct Group {
    members: Arc<[u32]>,
    turn: u64,
    open: Option<Open>,
    released: Vec<bool>,
}

/// A collective that some ranks have entered.
#[derive(Debug)]
struct Open {
    arrived: Vec<Option<(Call, Payload)>>,
    count: usize,
    what: String,
    since: Instant,
    deadline: Instant,
}

impl Group {
    fn new(members: Arc<[u32]>) -> Group {
        let released = vec![false; members.len()];
        Group { members, turn: 0, open: None, released }
    }

    /// A rank's place in it. In the group of all ranks, and others in order from 0, it is its number.
    fn place_of(&self, rank: u32) -> Option<usize> {
        let guess = rank as usize;
        if self.members.get(guess) == Some(&rank) {
            return Some(guess);
        }
        self.members.iter().position(|&member| member == rank)
    }
}

impl Hub {
    pub(crate) fn new(size: u32, heartbeat: Heartbeat, now: Instant, timeout: Duration) -> Hub {
        Hub {
            peers: vec![None; size as usize],
            joined: 0,
            phase: Phase::Assembling { since: now, timeout, reminder: Reminder::new(now) },
            heartbeat,
            trace: None,
            groups: HashMap::from([(WORLD, Group::new((0..size).collect()))]),
            due: None,
            next_group: WORLD + 1,
            notes: Vec::new(),
            stillborn: None,
            out: Vec::new(),
        }
    }

    /// The same, whose ranks keep a timeline.
    pub(crate) fn with_trace(self, trace: Option<TraceFile>) -> Hub {
        Hub { trace, ..self }
    }

    /// What is to be told to whom, oldest first. To be asked for after every other call.
    pub(crate) fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    pub(crate) fn assembling(&self) -> bool {
        matches!(self.phase, Phase::Assembling { .. })
    }

    fn running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    /// Why the start failed, if it did.
    pub(crate) fn stillborn(&self) -> Option<&Cause> {
        self.stillborn.as_ref()
    }

    /// The world is over, one way or the other.
    pub(crate) fn over(&self) -> bool {
        matches!(self.phase, Phase::Finished | Phase::Failed)
    }

    /// It is over in good order.
    pub(crate) fn finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    /// What a rank that waits for the others is told as a sign of life.
    pub(crate) fn sign_of_life(&self) -> Message {
        if self.assembling() {
            Message::Waiting { missing: self.missing().take(LISTED).collect() }
        } else {
            Message::Alive
        }
    }

    /// When `tick` is due, if nothing happens before.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Assembling { since, timeout, ref reminder } => {
                Some(reminder.at().min(since + timeout))
            }
            Phase::Running => self.due,
            Phase::Finished | Phase::Failed => None,
        }
    }

    /// A connection was turned away.
    pub(crate) fn note(&mut self, reason: String) {
        if self.notes.len() < NOTES && !self.notes.contains(&reason) {
            self.notes.push(reason);
        }
    }

    /// A rank has come.
    pub(crate) fn join(&mut self, rank: u32, peer: PeerInfo) {
        if !self.assembling() {
            return;
        }
        match self.peers.get_mut(rank as usize) {
            None => {
                return self.fail(Cause::Protocol { what: format!("rank {rank} does not exist") });
            }
            Some(Some(other)) => {
                let reason = format!(
                    "two processes are rank {rank}: {} on {} and {} on {}",
                    other.pid, other.host, peer.pid, peer.host
                );
                return self.fail(Cause::Refused { reason });
            }
            Some(place) => *place = Some(peer),
        }
        self.joined += 1;
        if self.joined < self.peers.len() {
            return;
        }
        self.phase = Phase::Running;
        let welcome = Message::Welcome {
            peers: self.peers.iter().flatten().cloned().collect(),
            heartbeat_ms: self.heartbeat.interval.as_millis() as u64,
            silence_ms: self.heartbeat.silence.as_millis() as u64,
            trace: self.trace.clone(),
        };
        self.tell_all(welcome);
    }

    /// What to tell the user from time to time: who is missing.
    pub(crate) fn reminder(&mut self, now: Instant) -> Option<String> {
        let Phase::Assembling { timeout, reminder, .. } = &mut self.phase else { return None };
        let timeout = timeout.as_secs_f64();
        reminder.is_due(now).then(|| {
            let missing: Vec<usize> = self.missing().map(|rank| rank as usize).collect();
            let (ranks, size) = (crate::error::ranks(&missing), self.peers.len());
            format!("rank 0 waits for {ranks} of {size}, for MP_INIT_TIMEOUT={timeout} s in all")
        })
    }

    /// A rank has ended before the world was complete, says the launcher.
    pub(crate) fn gone(&mut self, rank: u32, host: String, how: String) {
        if self.assembling() && (rank as usize) < self.peers.len() {
            self.fail(Cause::Lost { rank, host, how: Loss::Ended { how } });
        }
    }

    /// A rank that has joined is lost.
    pub(crate) fn lost(&mut self, rank: u32, how: Loss) {
        self.fail(Cause::Lost { rank, host: self.host(rank), how });
    }

    /// The world ends here, unless it has ended.
    pub(crate) fn fail(&mut self, cause: Cause) {
        if self.over() {
            return;
        }
        if self.assembling() {
            self.stillborn = Some(cause.clone());
        }
        self.phase = Phase::Failed;
        self.groups.clear();
        tracing::warn!(%cause, "the world is over");
        self.tell_all(Message::Ended { cause });
    }

    /// The time has come, or gone on.
    pub(crate) fn tick(&mut self, now: Instant) {
        match self.phase {
            Phase::Assembling { since, timeout, .. } if now >= since + timeout => {
                self.fail(Cause::Incomplete {
                    missing: self.missing().take(LISTED * 4).collect(),
                    size: self.peers.len() as u32,
                    waited_ms: now.duration_since(since).as_millis() as u64,
                    refused: self.notes.clone(),
                });
            }
            Phase::Running if self.due.is_some_and(|due| now >= due) => {
                let late = self.groups.values().find_map(|group| {
                    let open = group.open.as_ref().filter(|open| now >= open.deadline)?;
                    let absent =
                        group.members.iter().zip(&open.arrived).filter(|(_, call)| call.is_none());
                    Some(Cause::Late {
                        what: open.what.clone(),
                        missing: absent.map(|(&rank, _)| (rank, self.host(rank))).collect(),
                        waited_ms: now.duration_since(open.since).as_millis() as u64,
                    })
                });
                let open = self.groups.values().filter_map(|group| group.open.as_ref());
                self.due = open.map(|open| open.deadline).min();
                if let Some(cause) = late {
                    self.fail(cause);
                }
            }
            _ => {}
        }
    }

    /// A rank that has joined says something.
    pub(crate) fn handle(&mut self, from: u32, message: Message, payload: Payload, now: Instant) {
        match message {
            Message::Alive => {}
            Message::Fail { cause } => self.fail(cause),
            Message::Leave { how } => self.lost(from, how),
            Message::Release { group } if self.running() => self.release(from, group),
            Message::Letter { rank } if self.running() && (rank as usize) < self.peers.len() => {
                self.out.push((rank, Message::Letter { rank: from }, payload));
            }
            Message::Enter { group, turn, call, timeout_ms, what, team } if self.running() => {
                let met = team.map_or(Ok(()), |team| self.meet(from, group, team));
                let entered = met.and_then(|()| {
                    self.enter(from, group, turn, (call, payload), timeout_ms, what, now)
                });
                if let Err(what) = entered {
                    self.broken(from, &what);
                }
            }
            // Sent before its rank heard of the end.
            Message::Release { .. } | Message::Enter { .. } | Message::Letter { .. }
                if self.over() => {}
            _ => self.broken(from, "a message that only rank 0 sends, or out of order"),
        }
    }

    fn broken(&mut self, from: u32, what: &str) {
        let what = format!("rank {from} on {} broke the protocol: {what}", self.host(from));
        self.fail(Cause::Protocol { what });
    }

    /// A member of a team comes with its first collective. The first that comes founds the group here; it is forgotten when all have
    /// released it, as others are: whoever completes a collective of it has heard of every member.
    fn meet(&mut self, from: u32, id: u64, team: Arc<[u32]>) -> Result<(), String> {
        if let Some(group) = self.groups.get(&id) {
            return match group.members == team {
                true => Ok(()),
                false => Err("two teams of one number".into()),
            };
        }
        let mut sorted = team.to_vec();
        sorted.sort_unstable();
        let distinct = sorted.windows(2).all(|pair| pair[0] < pair[1]);
        let exist = sorted.last().is_some_and(|&last| (last as usize) < self.peers.len());
        if !is_team(id) || !distinct || !exist || sorted.binary_search(&from).is_err() {
            return Err("a team of ranks that cannot be one".into());
        }
        self.groups.insert(id, Group::new(team));
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "one message taken apart")]
    fn enter(
        &mut self,
        from: u32,
        id: u64,
        turn: u64,
        call: (Call, Payload),
        timeout_ms: u64,
        mut what: String,
        now: Instant,
    ) -> Result<(), String> {
        let group = self.groups.get_mut(&id).ok_or("no such group")?;
        let place = group.place_of(from).ok_or("not in that group")?;
        if turn != group.turn {
            return Err(format!("collective {turn} of a group that is at {}", group.turn));
        }
        // A year at most: an `Instant` cannot hold every u64.
        let deadline = now + Duration::from_millis(timeout_ms.min(365 * 86_400_000));
        if what.len() > WHAT_MAX {
            what = "a collective".into();
        }
        let size = group.members.len();
        let open = group.open.get_or_insert_with(|| Open {
            arrived: vec![None; size],
            count: 0,
            what,
            since: now,
            deadline,
        });
        open.deadline = open.deadline.min(deadline);
        self.due = Some(self.due.map_or(open.deadline, |due| due.min(open.deadline)));
        let slot = &mut open.arrived[place];
        if slot.is_some() {
            return Err("entered a collective twice".into());
        }
        *slot = Some(call);
        open.count += 1;
        if open.count == size {
            self.complete(id);
        }
        Ok(())
    }

    fn complete(&mut self, id: u64) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        let Some(open) = group.open.take() else { return };
        let contributions: Vec<_> = open.arrived.into_iter().flatten().collect();
        let (turn, members) = (group.turn, group.members.clone());
        group.turn += 1;
        let results = collective::combine(&members, &contributions, &mut self.next_group);
        let finish = contributions.iter().all(|(call, _)| *call == Call::Finish);
        for (&rank, (outcome, payload)) in members.iter().zip(results) {
            if let Outcome::Group { id, members } = &outcome {
                self.groups.entry(*id).or_insert_with(|| Group::new(members.clone()));
            }
            self.out.push((rank, Message::Reply { group: id, turn, outcome }, payload));
        }
        if finish && id == WORLD {
            self.phase = Phase::Finished;
            self.groups.clear();
        }
    }

    fn release(&mut self, from: u32, id: u64) {
        let Some(group) = self.groups.get_mut(&id) else {
            return self.broken(from, "released a group that does not exist");
        };
        if let Some(place) = group.place_of(from) {
            group.released[place] = true;
        }
        if group.released.iter().all(|&released| released) {
            self.groups.remove(&id);
        }
    }

    fn tell_all(&mut self, message: Message) {
        let nothing: Payload = Arc::from([]);
        let joined = (0u32..).zip(&self.peers).filter(|(_, peer)| peer.is_some());
        self.out.extend(joined.map(|(rank, _)| (rank, message.clone(), nothing.clone())));
    }

    fn missing(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.peers).filter(|(_, peer)| peer.is_none()).map(|(rank, _)| rank)
    }

    fn host(&self, rank: u32) -> String {
        let peer = self.peers.get(rank as usize).and_then(Option::as_ref);
        peer.map_or_else(|| "an unknown host".into(), |peer| peer.host.clone())
    }
}

#[cfg(test)]
mod tests;
