//! What ranks exchange where messages carry it (`staged.rs`) or libmp's exchange does (`halo.rs`): which cells of which vector go to
//! whom. Of each cut level the borders of the two vectors that smoothers alternate between; and of each level that has fewer boxes
//! than the one before what others have restricted to it, axis by axis: after the last axis a rank has all of its box.

use super::division::Along;
use super::layout::{GHOSTS, Region};
use super::partition::{Part, Partition};
use crate::backend::Vector;

/// Cells that go to a peer and come from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Border {
    pub peer: usize,
    /// Where it is, of neighbours; zero of others.
    pub direction: [i8; 3],
    pub send: Region,
    pub receive: Region,
}

/// Cells of one vector of a level that are exchanged at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exchanged {
    pub level: usize,
    pub vector: Vector,
    pub borders: Vec<Border>,
    /// They are all that there is here of their planes.
    pub planes: bool,
}

/// The directions of neighbours of a box, by the numbers that they have in exchanges; of a slab there are the fifth and the 22nd only.
pub(super) fn directions() -> impl Iterator<Item = [i8; 3]> {
    (0..27i8).filter(|&code| code != 13).map(|code| [code % 3 - 1, code / 3 % 3 - 1, code / 9 - 1])
}

/// The borders of `vector` of the cut level `l`; the domain wraps around if `around`.
pub(super) fn borders(partition: &Partition, l: usize, vector: Vector, around: bool) -> Exchanged {
    of_depth(partition, l, vector, around, partition.depth(l))
}

/// The same of so many cells at each border.
fn of_depth(
    partition: &Partition,
    l: usize,
    vector: Vector,
    around: bool,
    depth: usize,
) -> Exchanged {
    let (division, part) = (partition.division(), partition.part(l));
    let (n, depth, ghosts) = (partition.dim(l), depth as isize, GHOSTS as isize);
    let whole = |axis: usize| division.along(l)[axis] == 1;
    let border = |direction: [i8; 3]| {
        let peer = division.toward(l, partition.rank(), direction, around)?;
        let region = |sent: bool| -> Region {
            [0, 1, 2].map(|axis| {
                let (start, end) = (part[axis].start as isize, part[axis].end as isize);
                let inward = if sent { depth } else { 0 };
                match direction[axis] {
                    -1 => start + inward - depth..start + inward,
                    1 => end - inward..end - inward + depth,
                    // Ghosts at the ends of rows go with the rows.
                    _ if axis == 0 => {
                        let low = if start == 0 && (whole(0) || !around) { ghosts } else { 0 };
                        let high =
                            if end == n as isize && (whole(0) || !around) { ghosts } else { 0 };
                        start - low..end + high
                    }
                    _ => start..end,
                }
            })
        };
        Some(Border { peer, direction, send: region(true), receive: region(false) })
    };
    let borders = directions().filter_map(border).collect();
    Exchanged { level: l, vector, borders, planes: partition.in_slabs(l) }
}

/// What a rank gets of the right-hand side of level `l` after restriction to it, one exchange after the other: what it has of the level, and
/// the planes around that which whole sweeps read.
pub(super) fn gathers(partition: &Partition, l: usize) -> Vec<Exchanged> {
    let (division, rank) = (partition.division(), partition.rank());
    let whole = partition.part(l);
    let along = |axis: usize| {
        let others = division.gathered(l, rank, axis).into_iter().filter(|&peer| peer != rank);
        // Along the axes before it each has all of its box already.
        let region = |of: usize| -> Region {
            let share: Part = partition.share_of(l, of);
            [0, 1, 2].map(|other| {
                let cells = if other < axis { &whole[other] } else { &share[other] };
                cells.start as isize..cells.end as isize
            })
        };
        let borders = others
            .map(|peer| Border {
                peer,
                direction: [0; 3],
                send: region(rank),
                receive: region(peer),
            })
            .collect();
        Exchanged { level: l, vector: Vector::R, borders, planes: axis == 2 }
    };
    let stages: Vec<usize> = match partition.gathers(l) {
        true => {
            let (finer, coarser): (Along, Along) = (division.along(l - 1), division.along(l));
            (0..3).filter(|&axis| finer[axis] != coarser[axis]).collect()
        }
        false => Vec::new(),
    };
    let around =
        (partition.sweeps(l) && l > 0).then(|| of_depth(partition, l, Vector::R, false, 1));
    stages.into_iter().map(along).chain(around).collect()
}

/// All exchanges of a rank: for each cut level of the two vectors that smoothers alternate between, then what is gathered.
pub(super) fn exchanges(partition: &Partition, around: bool) -> Vec<Exchanged> {
    let whole = partition.whole();
    let of_level = |l: usize| [Vector::Temp, Vector::U].map(|v| borders(partition, l, v, around));
    (0..whole).flat_map(of_level).chain((1..=whole).flat_map(|l| gathers(partition, l))).collect()
}

/// The number of the exchange of `vector`, scratch or the solution, of the cut level `l`.
pub(super) fn border_number(l: usize, vector: Vector) -> usize {
    2 * l + usize::from(vector == Vector::U)
}

#[cfg(test)]
mod tests {
    use super::super::division::Division;
    use super::*;

    const DIMS: [usize; 5] = [96, 48, 24, 12, 6];

    fn of(steps: &[Along], rank: usize, around: bool) -> Vec<Exchanged> {
        let division = Division::by_level(&DIMS, steps.to_vec()).unwrap();
        exchanges(&Partition::new(&DIMS, division, rank), around)
    }

    const CASES: [(&[Along], bool); 6] = [
        (&[[1, 1, 3], [1, 1, 3], [1, 1, 1]], false),
        (&[[1, 1, 2], [1, 1, 1]], true),
        (&[[2, 3, 2], [1, 1, 2], [1, 1, 1]], false),
        (&[[1, 2, 2], [1, 2, 2], [1, 1, 1]], true),
        (&[[3, 3, 3], [1, 1, 1]], false),
        (&[[5, 5, 2], [1, 1, 1]], false),
    ];

    #[test]
    fn what_a_rank_sends_its_peer_receives_in_the_same_exchange() {
        for (steps, around) in CASES {
            let ranks: usize = steps[0].iter().product();
            for rank in 0..ranks {
                for (number, exchange) in of(steps, rank, around).iter().enumerate() {
                    for border in &exchange.borders {
                        let theirs = &of(steps, border.peer, around)[number];
                        assert_eq!(
                            (theirs.level, theirs.vector, theirs.planes),
                            (exchange.level, exchange.vector, exchange.planes)
                        );
                        let back = theirs.borders.iter().find(|back| {
                            back.peer == rank
                                && back.direction == border.direction.map(|step| -step)
                        });
                        let back = back.unwrap();
                        let n = DIMS[exchange.level] as isize;
                        // Around the domain the same cells have other indices there.
                        let same = |one: &Region, other: &Region| {
                            (0..3).all(|axis| {
                                let (a, b) = (&one[axis], &other[axis]);
                                a.len() == b.len() && (a.start - b.start) % n == 0
                            })
                        };
                        assert!(same(&border.send, &back.receive), "{border:?} {back:?}");
                        assert!(same(&border.receive, &back.send), "{border:?} {back:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn borders_are_found_by_their_numbers_and_gathers_complete_a_box() {
        for (steps, around) in CASES {
            let all = of(steps, 0, around);
            let whole = steps.len() - 1;
            for l in 0..whole {
                for vector in [Vector::Temp, Vector::U] {
                    let exchange = &all[border_number(l, vector)];
                    assert_eq!((exchange.level, exchange.vector), (l, vector));
                }
            }
            let division = Division::by_level(&DIMS, steps.to_vec()).unwrap();
            let partition = Partition::new(&DIMS, division, 0);
            for l in 1..=whole {
                let count = |region: &Region| region.iter().map(|r| r.len()).product::<usize>();
                let mut cells: usize = partition.share(l).iter().map(|r| r.len()).product();
                for stage in all[2 * whole..].iter().filter(|stage| stage.level == l) {
                    assert!(stage.borders.iter().all(|border| count(&border.send) == cells));
                    cells +=
                        stage.borders.iter().map(|border| count(&border.receive)).sum::<usize>();
                }
                assert_eq!(cells, partition.part(l).iter().map(|r| r.len()).product::<usize>());
            }
        }
    }
}
