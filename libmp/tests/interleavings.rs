//! A message started by the host, under every short interleaving of what its two ranks can do, against a model of the credit
//! protocol, and against one of the slots through which small ones go: which starts are refused, when each side is complete, what is in the receiver's memory at every moment. Then the
//! same with one of the two lost at every point. Both ranks are driven by one thread, so each order really happens; what two
//! threads do inside one call is the business of `models/`.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use libmp::{Device, Error, Operation, Recv, Region, Send, World};

const SEND: usize = 0;
const RECV: usize = 1;
/// Words of a message that goes through slots, and of one that waits for a credit.
const SMALL: usize = 3;
const LARGE: usize = 13;
/// Messages of which none has been told to be taken.
const SLOTS: u64 = 4;
const NOTHING: u64 = u64::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Do {
    Prepare,
    Start,
    Test,
}

/// Who does what.
type Action = (usize, Do);

/// All sequences of so many actions in which each side prepares once, before anything else it does.
fn sequences(len: usize) -> Vec<Vec<Action>> {
    let mut all = vec![(Vec::new(), [false; 2])];
    for _ in 0..len {
        let mut longer = Vec::new();
        for (sequence, prepared) in &all {
            for side in [SEND, RECV] {
                let possible: &[Do] =
                    if prepared[side] { &[Do::Start, Do::Test] } else { &[Do::Prepare] };
                for &what in possible {
                    let (mut next, mut now): (Vec<Action>, _) = (sequence.clone(), *prepared);
                    next.push((side, what));
                    now[side] = true;
                    longer.push((next, now));
                }
            }
        }
        all = longer;
    }
    all.into_iter().map(|(sequence, _)| sequence).collect()
}

/// One side, as the model knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Side {
    prepared: bool,
    started: u64,
    /// Credits of a receive, arrivals of a send.
    handed: u64,
    observed: u64,
}

/// The credit protocol, or that of slots.
#[derive(Debug, Clone, Copy, Default)]
struct Model {
    slots: bool,
    sides: [Side; 2],
}

impl Model {
    /// What a call of a rank does with its own side when it gets the chance.
    fn help(&mut self, side: usize) {
        let [send, recv] = self.sides;
        let room = match self.slots {
            // Every second one is told.
            true => SLOTS + recv.observed / 2 * 2,
            false => recv.handed,
        };
        let can = send.prepared
            && recv.prepared
            && (side == RECV || (room >= send.started && send.handed < send.started));
        if can {
            self.sides[side].handed = self.sides[side].started;
        }
    }

    /// Whether the start is allowed.
    fn start(&mut self, side: usize) -> bool {
        let Side { started, observed, .. } = self.sides[side];
        if observed < started {
            return false;
        }
        self.sides[side].started += 1;
        self.help(side);
        true
    }

    /// Whether the last start is complete.
    fn test(&mut self, side: usize) -> bool {
        self.help(side);
        let arrived = self.sides[SEND].handed;
        let Side { started, handed, .. } = self.sides[side];
        let complete = handed == started && arrived >= started;
        if complete {
            self.sides[side].observed = started;
        }
        complete
    }

    /// The last message in the receiver's memory.
    fn last(&self) -> u64 {
        match self.slots {
            true => self.sides[RECV].observed,
            false => self.sides[SEND].handed,
        }
    }
}

/// Two ranks, and the message from the one to the other.
struct Pair {
    worlds: [Option<World>; 2],
    regions: [Region<u64>; 2],
    send: Option<Send>,
    recv: Option<Recv>,
    model: Model,
}

impl Pair {
    fn new(slots: bool) -> Pair {
        let worlds: Vec<World> = World::threads(2).unwrap();
        let [a, b]: [World; 2] = worlds.try_into().ok().unwrap();
        let words = if slots { SMALL } else { LARGE };
        let region = |world: &World| world.alloc::<u64>(&Device::Host, words).unwrap();
        let regions = [region(&a), region(&b)];
        let worlds = [Some(a), Some(b)];
        let mut pair = Pair {
            worlds,
            regions,
            send: None,
            recv: None,
            model: Model { slots, ..Model::default() },
        };
        pair.again();
        pair
    }

    /// Forgets the message, and begins with a new one.
    fn again(&mut self) {
        (self.send, self.recv) = (None, None);
        self.model.sides = Default::default();
        self.fill(RECV, NOTHING);
    }

    fn fill(&self, side: usize, word: u64) {
        self.regions[side].write(&vec![word; self.regions[side].len()]).unwrap();
    }

    fn operation(&self, side: usize) -> &dyn Operation {
        match side {
            SEND => self.send.as_ref().unwrap(),
            _ => self.recv.as_ref().unwrap(),
        }
    }

    fn prepare(&mut self, side: usize) -> libmp::Result<()> {
        let peer = self.worlds[side].as_ref().unwrap().peer(1 - side)?;
        match side {
            SEND => self.send = Some(peer.send(&self.regions[SEND], 7).prepare()?),
            _ => self.recv = Some(peer.recv(&self.regions[RECV], 7).prepare()?),
        }
        Ok(())
    }

    fn start(&self, side: usize) -> libmp::Result<()> {
        match side {
            SEND => self.send.as_ref().unwrap().start(),
            _ => self.recv.as_ref().unwrap().start(),
        }
    }

    /// Does it, and compares.
    fn act(&mut self, (side, what): Action) {
        match what {
            Do::Prepare => {
                self.prepare(side).unwrap();
                self.model.sides[side].prepared = true;
            }
            Do::Start => {
                let next = self.model.sides[side].started + 1;
                let may = self.model.start(side);
                if may && side == SEND {
                    self.fill(SEND, next);
                }
                match self.start(side) {
                    Ok(()) => assert!(may, "started a second time"),
                    Err(Error::Started { epoch, .. }) => {
                        assert_eq!((may, epoch), (false, next - 1))
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            Do::Test => {
                let complete = self.model.test(side);
                assert_eq!(self.operation(side).test().unwrap(), complete);
            }
        }
        self.look();
    }

    /// What is in the receiver's memory is the last message that the model moved.
    fn look(&self) {
        let last = match self.model.last() {
            0 => NOTHING,
            message => message,
        };
        let words = self.regions[RECV].to_vec().unwrap();
        assert!(words.iter().all(|word| *word == last), "{words:?}, not {last}");
    }

    /// From wherever it is, the message can be brought to its end.
    fn end(&mut self) {
        for side in [SEND, RECV] {
            if !self.model.sides[side].prepared {
                self.act((side, Do::Prepare));
            }
        }
        let all = self.model.sides[SEND].started.max(self.model.sides[RECV].started);
        for _ in 0..=2 * all {
            for side in [RECV, SEND] {
                self.act((side, Do::Test));
                let Side { started, observed, .. } = self.model.sides[side];
                if started < all && observed == started {
                    self.act((side, Do::Start));
                }
            }
        }
        self.act((SEND, Do::Test));
        self.act((RECV, Do::Test));
        for side in self.model.sides {
            assert_eq!((side.started, side.handed, side.observed), (all, all, all));
        }
    }

    /// A rank goes without a word, and the other notices.
    fn lose(&mut self, lost: usize) {
        match lost {
            SEND => self.send = None,
            _ => self.recv = None,
        }
        self.worlds[lost] = None;
        let survivor = self.worlds[1 - lost].as_ref().unwrap();
        let began = Instant::now();
        while survivor.check().is_ok() {
            assert!(began.elapsed() < Duration::from_secs(60), "the loss is not noticed");
            std::thread::yield_now();
        }
    }

    /// After the loss nothing starts; what was complete, or what this rank alone has left to do, is told as such, and
    /// everything else names the rank that is gone.
    fn act_alone(&mut self, (side, what): Action) {
        let gone = |result: libmp::Result<()>| match result {
            Err(Error::PeerLost { rank, .. }) => assert_eq!(rank, 1 - side),
            other => panic!("{what:?}: {other:?}"),
        };
        match what {
            Do::Prepare => gone(self.prepare(side)),
            // It was not prepared.
            _ if !self.model.sides[side].prepared => {}
            Do::Start => gone(self.start(side)),
            Do::Test => {
                let complete = self.model.test(side);
                match self.operation(side).test() {
                    Ok(said) => assert!(said && complete, "said {said}, is {complete}"),
                    Err(error) => {
                        assert!(!complete, "{error}");
                        gone(Err(error));
                    }
                }
            }
        }
        self.look();
    }
}

/// Names the sequence that fails.
fn naming<T>(what: impl std::fmt::Debug, run: impl FnOnce() -> T) -> T {
    struct Named<W: std::fmt::Debug>(W);
    impl<W: std::fmt::Debug> Drop for Named<W> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("in {:?}", self.0);
            }
        }
    }
    let named = Named(what);
    let value = run();
    drop(named);
    value
}

#[test]
fn every_order_of_two_ranks_calls_gives_what_the_protocol_says() {
    [true, false].into_iter().for_each(every_order);
}

fn every_order(slots: bool) {
    let mut pair = Pair::new(slots);
    // Words are given back: there are far fewer than messages here.
    for sequence in sequences(9) {
        naming(&sequence, || {
            sequence.iter().for_each(|&action| pair.act(action));
            pair.end();
            pair.again();
        });
    }
}

#[test]
fn a_rank_that_is_lost_at_any_point_is_named_and_no_message_is_made_up() {
    [true, false].into_iter().for_each(every_loss);
}

fn every_loss(slots: bool) {
    const LEN: usize = 5;
    // Of each sequence what comes before the loss, and what the survivor does after it.
    let mut seen = HashSet::new();
    for sequence in sequences(LEN) {
        for (at, lost) in (2..=LEN).flat_map(|at| [(at, SEND), (at, RECV)]) {
            let (before, after) = sequence.split_at(at);
            let after: Vec<Action> =
                after.iter().copied().filter(|(side, _)| *side != lost).collect();
            if !seen.insert((before.to_vec(), lost, after.clone())) {
                continue;
            }
            naming((before, lost, &after), || {
                let mut pair = Pair::new(slots);
                before.iter().for_each(|&action| pair.act(action));
                pair.lose(lost);
                after.iter().for_each(|&action| pair.act_alone(action));
                // And at the end, whatever came before.
                for what in [Do::Test, Do::Start, Do::Test] {
                    pair.act_alone((1 - lost, what));
                }
            });
        }
    }
    assert!(seen.len() > 1000, "{}", seen.len());
}
