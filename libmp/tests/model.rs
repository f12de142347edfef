//! Random programs of messages against a model: which message each receive must get, for any order of preparing, starting
//! and waiting, several times over, by the host and on streams, on every path.

mod common;

use std::collections::HashMap;
use std::time::Duration;

use common::{on_every_path, on_threads};
use libmp::{Deadline, Device, Operation, Recv, Region, Send, World, wait_all, wait_any};
use proptest::prelude::*;
use proptest::sample::Index;

const RANKS: usize = 3;
/// Longest message in words.
const LONGEST: usize = 40;

/// A message of a program: from, to, tag, words, room beyond that at the receiver, started on a stream at either side.
#[derive(Debug, Clone)]
struct Message {
    from: usize,
    to: usize,
    tag: u64,
    words: usize,
    room: usize,
    on_stream: [bool; 2],
}

fn message() -> impl Strategy<Value = Message> {
    (0..RANKS, 0..RANKS, 0..2u64, 0..LONGEST, 0..3usize, any::<[bool; 2]>()).prop_map(
        |(from, to, tag, words, room, on_stream)| Message { from, to, tag, words, room, on_stream },
    )
}

/// The order in which a rank goes through what is its own.
fn shuffled(count: usize, order: &[Index]) -> Vec<usize> {
    let mut left: Vec<usize> = (0..count).collect();
    let mut order = order.iter().cycle();
    (0..count)
        .map(|_| left.remove(order.next().map_or(0, |index| index.index(left.len()))))
        .collect()
}

/// What message `number` carries in a round.
fn payload(number: usize, round: u64, words: usize) -> Vec<u64> {
    (0..words as u64).map(|at| number as u64 * 1_000_000 + round * 1000 + at).collect()
}

struct Half {
    number: usize,
    region: Region<u64>,
    send: Option<Send>,
    recv: Option<Recv>,
    on_stream: bool,
}

impl Half {
    fn operation(&self) -> &dyn Operation {
        match (&self.send, &self.recv) {
            (Some(send), _) => send,
            (_, Some(recv)) => recv,
            _ => unreachable!("one of the two"),
        }
    }
}

fn run(world: &World, messages: &[Message], orders: &[Vec<Index>]) {
    let me = world.rank();
    let deadline = || Deadline::after(Duration::from_secs(20));
    let stream = world.stream(&Device::Host).unwrap();
    // Each side prepares its halves in an order of its own; what they carry follows from the model: the n-th of a
    // connection is the n-th on both sides.
    let mine: Vec<(usize, bool)> = messages
        .iter()
        .enumerate()
        .flat_map(|(number, m)| [(number, m.from == me, true), (number, m.to == me, false)])
        .filter(|&(_, is_mine, _)| is_mine)
        .map(|(number, _, sends)| (number, sends))
        .collect();
    let mut taken: HashMap<(usize, usize, u64, bool), usize> = HashMap::new();
    let mut halves = Vec::new();
    for index in shuffled(mine.len(), &orders[me]) {
        let (any, sends) = mine[index];
        let Message { from, to, tag, .. } = messages[any];
        let same = |m: &Message| (m.from, m.to, m.tag) == (from, to, tag);
        let nth = taken.entry((from, to, tag, sends)).or_default();
        let number = (0..messages.len()).filter(|&n| same(&messages[n])).nth(*nth).unwrap();
        *nth += 1;
        let Message { words, room, on_stream, .. } = messages[number];
        let region = |words| world.alloc::<u64>(&Device::Host, words).unwrap();
        halves.push(if sends {
            let region = region(words);
            let send = world.peer(to).unwrap().send(&region, tag).prepare().unwrap();
            Half { number, region, send: Some(send), recv: None, on_stream: on_stream[0] }
        } else {
            let region = region(words + room);
            let recv = world.peer(from).unwrap().recv(&region, tag).prepare().unwrap();
            Half { number, region, send: None, recv: Some(recv), on_stream: on_stream[1] }
        });
    }
    // Streams wait for the peers' preparing, so all prepare before any starts.
    world.barrier().unwrap();
    for round in 0..4u64 {
        let order = shuffled(halves.len(), &orders[(me + round as usize) % RANKS]);
        // On the one stream a send must not wait in front of this rank's own receive.
        let (sends, recvs): (Vec<usize>, Vec<usize>) = order
            .iter()
            .partition(|&&index| halves[index].send.is_some() && halves[index].on_stream);
        for index in recvs.into_iter().chain(sends) {
            let Half { number, region, send, recv, on_stream } = &halves[index];
            match (send, recv) {
                (Some(send), _) => {
                    region.write(&payload(*number, round, region.len())).unwrap();
                    if *on_stream { send.start_on(&stream) } else { send.start() }.unwrap();
                }
                (_, Some(recv)) => {
                    region.write(&vec![u64::MAX; region.len()]).unwrap();
                    if *on_stream { recv.start_on(&stream) } else { recv.start() }.unwrap();
                }
                _ => {}
            }
        }
        let operations: Vec<&dyn Operation> =
            order.iter().map(|&index| halves[index].operation()).collect();
        if round % 2 == 0 {
            wait_all(&operations, deadline()).unwrap();
        } else {
            let mut left = operations;
            while !left.is_empty() {
                left.remove(wait_any(&left, deadline()).unwrap());
            }
        }
        for Half { number, region, recv, .. } in &halves {
            let words = messages[*number].words;
            if let Some(recv) = recv {
                let found = region.to_vec().unwrap();
                assert_eq!(found[..words], payload(*number, round, words));
                assert!(found[words..].iter().all(|&word| word == u64::MAX));
                assert_eq!(recv.message_len().unwrap(), Some(words as u64 * 8));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn every_receive_gets_the_message_that_the_model_says(
        messages in prop::collection::vec(message(), 0..25),
        orders in prop::collection::vec(prop::collection::vec(any::<Index>(), 1..20), RANKS),
    ) {
        // The room of a connection's halves follows the message, so nothing is truncated.
        for worlds in on_every_path(RANKS) {
            on_threads(worlds, |world| {
                run(&world, &messages, &orders);
                world.finish().unwrap();
            });
        }
    }
}
