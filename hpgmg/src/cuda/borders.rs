//! What ranks exchange where messages carry it (`staged.rs`) or a launch of libmp's (`halo.rs`): which planes of which vector go to
//! whom, and the number of each exchange, by which it is found.

use super::layout::GHOSTS;
use super::partition::Partition;
use crate::backend::Vector;

/// Planes that go to a peer and come from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Border {
    pub peer: usize,
    /// First planes, and how many.
    pub send: (isize, usize),
    pub receive: (isize, usize),
}

/// Planes of one vector of a level that are exchanged at once.
#[derive(Clone, Debug)]
pub(super) struct Exchanged {
    pub level: usize,
    pub vector: Vector,
    pub borders: Vec<Border>,
}

/// All exchanges of rank `rank` of `size`, by their numbers: for each cut level of the two vectors that smoothers alternate
/// between, whose borders go to the neighbours; then of the right-hand side of the first whole level, of which every rank
/// gets the others' shares. The domain wraps around if `around`.
pub(super) fn exchanges(
    partition: &Partition,
    rank: usize,
    size: usize,
    around: bool,
) -> Vec<Exchanged> {
    let whole = partition.whole();
    let of_level = |level: usize| {
        let borders = borders(partition, rank, neighbours(rank, size, around), level);
        [Vector::Temp, Vector::U].map(|vector| Exchanged {
            level,
            vector,
            borders: borders.clone(),
        })
    };
    let borders = shares(partition, rank, size);
    let gather = Exchanged { level: whole, vector: Vector::R, borders };
    (0..whole).flat_map(of_level).chain([gather]).collect()
}

/// The number of the exchange of `vector`, scratch or the solution, of the cut level `l`.
pub(super) fn border_number(l: usize, vector: Vector) -> usize {
    2 * l + usize::from(vector == Vector::U)
}

/// The number of the exchange of the shares.
pub(super) fn gather_number(partition: &Partition) -> usize {
    2 * partition.whole()
}

/// The ranks below and above; where the domain wraps around two ranks are each other's on both sides.
pub(super) fn neighbours(rank: usize, size: usize, around: bool) -> [Option<usize>; 2] {
    let below = rank.checked_sub(1).or(around.then_some(size - 1));
    let above = (rank + 1 < size).then_some(rank + 1).or(around.then_some(0));
    [below, above]
}

fn borders(
    partition: &Partition,
    rank: usize,
    [below, above]: [Option<usize>; 2],
    l: usize,
) -> Vec<Border> {
    let planes = partition.planes_of(l, rank);
    let (start, end, depth) = (planes.start as isize, planes.end as isize, GHOSTS as isize);
    let below =
        below.map(|peer| Border { peer, send: (start, GHOSTS), receive: (start - depth, GHOSTS) });
    let above =
        above.map(|peer| Border { peer, send: (end - depth, GHOSTS), receive: (end, GHOSTS) });
    below.into_iter().chain(above).collect()
}

/// Nothing if no level is cut.
fn shares(partition: &Partition, rank: usize, size: usize) -> Vec<Border> {
    let whole = partition.whole();
    let share = |rank| {
        let share = partition.share_of(whole, rank);
        (share.start as isize, share.len())
    };
    (0..size)
        .filter(|&peer| peer != rank && whole > 0)
        .map(|peer| Border { peer, send: share(rank), receive: share(peer) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANKS: usize = 3;

    fn of(rank: usize) -> Vec<Exchanged> {
        let partition = Partition::new(&[96, 48, 24, 12, 6, 3], RANKS, rank, 24);
        assert_eq!(partition.whole(), 2);
        exchanges(&partition, rank, RANKS, false)
    }

    #[test]
    fn what_a_rank_sends_its_peer_receives_under_the_same_number() {
        for rank in 0..RANKS {
            for (number, exchange) in of(rank).iter().enumerate() {
                for border in &exchange.borders {
                    let theirs = &of(border.peer)[number];
                    assert_eq!(
                        (theirs.level, theirs.vector),
                        (exchange.level, exchange.vector),
                        "number {number}"
                    );
                    let back = Border { peer: rank, send: border.receive, receive: border.send };
                    assert!(theirs.borders.contains(&back), "{back:?} {theirs:?}");
                }
            }
        }
    }

    #[test]
    fn exchanges_are_found_by_their_numbers() {
        let all = of(1);
        for (number, exchange) in all.iter().enumerate().take(all.len() - 1) {
            assert_eq!(border_number(exchange.level, exchange.vector), number);
            assert_eq!(exchange.borders.len(), 2);
        }
        let gather = gather_number(&Partition::new(&[96, 48, 24, 12, 6, 3], RANKS, 1, 24));
        assert_eq!((all[gather].level, all[gather].vector), (2, Vector::R));
        assert_eq!(all[gather].borders.len(), RANKS - 1);
    }
}
