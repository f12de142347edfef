//! Collectives of the host: what each rank contributes, and what each gets for it. Pure functions over bytes, evaluated by
//! rank 0 once all contributions are there ([`Hub`](crate::control)); the way there and back is not here.
//!
//! They carry set-up, convergence tests and diagnostics – small things, rarely. Everything passes through rank 0: good for
//! some hundred ranks, not a data path.

mod gather;
mod reduce;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::control::message::{Outcome, Payload};
pub(crate) use gather::{
    are_parts as are_gathered, decode as decode_gathered, encode as encode_gathered,
    parts as gathered_parts,
};
pub(crate) use reduce::{Element, from_bytes, to_bytes};
pub use reduce::{Number, ReduceOp};

/// Largest blob that one rank gives to a collective, in bytes: 1 MiB.
pub const BLOB_MAX: usize = 1 << 20;
/// Largest result of a collective (the gathered blobs of all ranks), in bytes: 64 MiB.
pub const RESULT_MAX: usize = 64 << 20;

/// A collective, as one rank calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    Barrier,
    Broadcast { root: u32 },
    AllGather,
    Gather { root: u32 },
    AllReduce { op: ReduceOp, element: Element },
    Split { color: Option<u64>, key: i64 },
    Finish,
}

/// What a rank gets.
pub(crate) type Share = (Outcome, Payload);

/// Evaluates a collective. `members` are ranks of the world in the order of the group, `contributions` in the same order.
/// `next_group` numbers the groups that a split makes.
pub(crate) fn combine(
    members: &[u32],
    contributions: &[(Call, Payload)],
    next_group: &mut u64,
) -> Vec<Share> {
    match evaluate(members, contributions, next_group) {
        Ok(results) => results,
        Err(reason) => vec![(Outcome::Mismatch(reason), nothing()); members.len()],
    }
}

fn evaluate(
    members: &[u32],
    contributions: &[(Call, Payload)],
    next_group: &mut u64,
) -> Result<Vec<Share>, String> {
    let Some(&(first, _)) = contributions.first() else { return Ok(Vec::new()) };
    for (&(call, _), rank) in contributions.iter().zip(members) {
        if !same(first, call) {
            let lead = members.first().copied().unwrap_or_default();
            return Err(format!("rank {lead} called {first}, rank {rank} called {call}"));
        }
    }
    let payloads = || contributions.iter().map(|(_, payload)| payload);
    let to_all = |payload: Payload| vec![(Outcome::Done, payload); members.len()];
    Ok(match first {
        Call::Barrier | Call::Finish => to_all(nothing()),
        Call::Broadcast { root } => {
            let blob = contributions.get(root as usize).map(|(_, payload)| payload.clone());
            to_all(blob.ok_or_else(|| format!("root {root} of {} ranks", members.len()))?)
        }
        Call::AllGather => to_all(gathered(members.len(), payloads())?),
        Call::Gather { root } => {
            let gathered = gathered(members.len(), payloads())?;
            let share = |place| if place == root as usize { gathered.clone() } else { nothing() };
            (0..members.len()).map(|place| (Outcome::Done, share(place))).collect()
        }
        Call::AllReduce { op, element } => {
            to_all(reduce::reduce(op, element, members, payloads())?)
        }
        Call::Split { .. } => split(members, contributions, next_group),
    })
}

fn gathered<'a>(
    ranks: usize,
    payloads: impl Iterator<Item = &'a Payload> + Clone,
) -> Result<Payload, String> {
    let total: usize = payloads.clone().map(|payload| payload.len()).sum();
    if total > RESULT_MAX {
        return Err(format!(
            "the blobs of {ranks} ranks are {total} bytes together, more than the limit of {RESULT_MAX}"
        ));
    }
    Ok(encode_gathered(payloads))
}

/// Whether two ranks call the same; a split's colour and key are each rank's own.
fn same(one: Call, other: Call) -> bool {
    matches!((one, other), (Call::Split { .. }, Call::Split { .. })) || one == other
}

fn split(members: &[u32], contributions: &[(Call, Payload)], next_group: &mut u64) -> Vec<Share> {
    // Sorted by colour, in it by key, equal keys by their place in the old group.
    let mut wishes: Vec<(u64, i64, usize)> = contributions
        .iter()
        .enumerate()
        .filter_map(|(place, (call, _))| match *call {
            Call::Split { color, key } => Some((color?, key, place)),
            _ => None,
        })
        .collect();
    wishes.sort_unstable();
    let mut shares = vec![(Outcome::NoGroup, nothing()); members.len()];
    for group in wishes.chunk_by(|one, other| one.0 == other.0) {
        let ranks: Arc<[u32]> = group.iter().map(|&(.., place)| members[place]).collect();
        for &(.., place) in group {
            shares[place].0 = Outcome::Group { id: *next_group, members: ranks.clone() };
        }
        *next_group += 1;
    }
    shares
}

pub(crate) fn nothing() -> Payload {
    Arc::from([])
}

impl Call {
    /// What it is called in a timeline.
    pub fn name(self) -> &'static str {
        match self {
            Call::Barrier => "barrier",
            Call::Broadcast { .. } => "broadcast",
            Call::AllGather => "all-gather",
            Call::Gather { .. } => "gather",
            Call::AllReduce { .. } => "all-reduce",
            Call::Split { .. } => "split",
            Call::Finish => "finish",
        }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Call::Barrier => write!(f, "barrier"),
            Call::Broadcast { root } => write!(f, "broadcast from rank {root}"),
            Call::AllGather => write!(f, "all-gather"),
            Call::Gather { root } => write!(f, "gather at rank {root}"),
            Call::AllReduce { op, element } => write!(f, "all-reduce ({op} of {element})"),
            Call::Split { .. } => write!(f, "split"),
            Call::Finish => write!(f, "finish"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(bytes: &[u8]) -> Payload {
        Arc::from(bytes)
    }

    #[test]
    fn a_broadcast_gives_everyone_the_roots_blob() {
        let calls = [
            (Call::Broadcast { root: 1 }, payload(b"no")),
            (Call::Broadcast { root: 1 }, payload(b"yes")),
        ];
        for (outcome, blob) in combine(&[4, 7], &calls, &mut 1) {
            assert_eq!((outcome, &blob[..]), (Outcome::Done, &b"yes"[..]));
        }
    }

    #[test]
    fn a_gather_gives_the_root_everyones_blob_and_the_others_nothing() {
        let calls = [
            (Call::Gather { root: 1 }, payload(b"no")),
            (Call::Gather { root: 1 }, payload(b"yes")),
        ];
        let results = combine(&[4, 7], &calls, &mut 1);
        assert_eq!(results[0], (Outcome::Done, nothing()));
        let blobs = decode_gathered(&results[1].1, 2).unwrap();
        assert_eq!(blobs, [&b"no"[..], b"yes"]);
    }

    #[test]
    fn different_calls_are_named_with_their_ranks() {
        let calls = [(Call::Barrier, nothing()), (Call::AllGather, nothing())];
        let results = combine(&[4, 7], &calls, &mut 1);
        let expected = Outcome::Mismatch("rank 4 called barrier, rank 7 called all-gather".into());
        assert!(results.iter().all(|(outcome, _)| *outcome == expected), "{results:?}");
    }

    #[test]
    fn a_split_orders_by_key_then_by_rank_and_leaves_out_who_has_no_colour() {
        let split = |color, key| (Call::Split { color, key }, nothing());
        let calls = [
            split(Some(9), 5),
            split(Some(2), 0),
            split(None, 0),
            split(Some(9), 1),
            split(Some(9), 5),
        ];
        let mut next = 10;
        let results: Vec<Outcome> = combine(&[0, 1, 2, 3, 4], &calls, &mut next)
            .into_iter()
            .map(|(outcome, _)| outcome)
            .collect();
        let nine = Outcome::Group { id: 11, members: Arc::from([3, 0, 4]) };
        let two = Outcome::Group { id: 10, members: Arc::from([1]) };
        assert_eq!(results, [nine.clone(), two, Outcome::NoGroup, nine.clone(), nine]);
        assert_eq!(next, 12);
    }

    #[test]
    fn blobs_that_are_too_large_together_are_refused_with_their_size() {
        let blob = payload(&vec![0; BLOB_MAX]);
        let calls = vec![(Call::AllGather, blob); 65];
        let members: Vec<u32> = (0..65).collect();
        let results = combine(&members, &calls, &mut 1);
        assert!(
            matches!(&results[0].0, Outcome::Mismatch(text) if text.contains("68157440 bytes"))
        );
    }
}
