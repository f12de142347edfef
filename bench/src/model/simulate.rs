//! One F-cycle on many ranks: a clock for each rank; after each pass it sends to its neighbours and goes on when all their
//! messages of that pass have arrived. Ranks of a node share nothing but NVLink; a NIC sends one message after another.

use super::network::{FatTree, LogGp};
use super::pattern::{Division, EXCHANGES, Level, PASSES, levels};

/// Microseconds of passes over levels, fitted to one rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compute {
    /// Of one F-cycle on the levels of at most `small` cells a side, which one kernel does.
    pub resident: f64,
    /// Of a pass, whatever its size.
    pub pass: f64,
    /// Of a cell and pass.
    pub cell: f64,
    /// Cells a side of the largest resident level.
    pub small: usize,
}

impl Compute {
    /// One pass over a rank's part of a level.
    pub fn of(&self, level: &Level) -> f64 {
        // A resident level costs its share of the one kernel, not a launch.
        let resident = level.ranks == [1; 3] && level.part[0] <= self.small;
        if resident { 0.0 } else { self.pass + self.cell * level.cells() }
    }

    /// Passes over levels that are not resident, and their cells, in one F-cycle on one rank: what `resident`, `pass` and
    /// `cell` are multiplied with.
    pub fn features(dim: usize, small: usize) -> [f64; 3] {
        let mut features = [1.0, 0.0, 0.0];
        for level in
            levels(dim, [1; 3], Division::Boxes).iter().filter(|level| level.part[0] > small)
        {
            features[1] += (level.visits * PASSES) as f64;
            features[2] += (level.visits * PASSES) as f64 * level.cells();
        }
        features
    }
}

/// What is simulated.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Between two GPUs of a node.
    pub mode: LogGp,
    /// Between nodes.
    pub tree: FatTree,
    /// Of one GPU.
    pub compute: Compute,
}

/// Microseconds of one F-cycle over a domain of `dim` cells a side on `ranks` (along x, y, z).
pub fn f_cycle(machine: &Machine, dim: usize, ranks: [usize; 3], division: Division) -> f64 {
    let count: usize = ranks.iter().product();
    let mut clocks = Clocks { machine, now: vec![0.0; count], nic: vec![0.0; count], all: ranks };
    let levels = levels(dim, ranks, division);
    for (number, level) in levels.iter().enumerate() {
        let one = machine.compute.of(level);
        let routes = clocks.routes(level);
        for _ in 0..level.visits {
            for pass in 0..PASSES {
                clocks.compute(&routes, level.whole, one);
                if pass < EXCHANGES && !level.whole {
                    clocks.exchange(&routes);
                }
            }
            clocks.change_of_level(level, levels.get(number + 1));
        }
    }
    clocks.now.iter().copied().fold(0.0, f64::max) + machine.compute.resident
}

struct Clocks<'a> {
    machine: &'a Machine,
    /// When each rank has done what it has been told so far.
    now: Vec<f64>,
    /// When each rank's NIC is free.
    nic: Vec<f64>,
    /// All ranks, along x, y, z.
    all: [usize; 3],
}

impl Clocks<'_> {
    /// The rank at a place of a level: where few ranks share a level, the first of each group of eight, and so on.
    fn rank(&self, level: &Level, place: [usize; 3]) -> usize {
        let of = |i: usize| place[i] * (self.all[i] / level.ranks[i]).max(1);
        // Ranks of a node are neighbours in space: the lowest bits of x, y, z in turn (Morton order), where all are powers
        // of two; plain order else.
        let [x, y, z] = [of(0), of(1), of(2)];
        if !self.all.iter().all(|n| n.is_power_of_two()) {
            return x + self.all[0] * (y + self.all[1] * z);
        }
        let bits = self.all.map(usize::trailing_zeros);
        let (mut rank, mut at) = (0, 0);
        for bit in 0..bits.into_iter().max().unwrap_or(0) {
            for (value, bits) in [x, y, z].into_iter().zip(bits) {
                if bit < bits {
                    rank |= (value >> bit & 1) << at;
                    at += 1;
                }
            }
        }
        rank
    }

    /// The ranks that have a part of a level, each with those it sends to and the bytes.
    fn routes(&self, level: &Level) -> Vec<(usize, Vec<(usize, f64)>)> {
        let neighbours = level.neighbours();
        let to = |place: [usize; 3]| {
            let there = |(offset, bytes): &([i64; 3], f64)| {
                Some((self.rank(level, shifted(place, *offset, level.ranks)?), *bytes))
            };
            neighbours.iter().filter_map(there).collect()
        };
        places(level.ranks).into_iter().map(|place| (self.rank(level, place), to(place))).collect()
    }

    /// A pass, by all ranks where all have all of the level.
    fn compute(&mut self, routes: &[(usize, Vec<(usize, f64)>)], whole: bool, one: f64) {
        if whole {
            self.now.iter_mut().for_each(|now| *now += one);
        } else {
            routes.iter().for_each(|(rank, _)| self.now[*rank] += one);
        }
    }

    fn exchange(&mut self, routes: &[(usize, Vec<(usize, f64)>)]) {
        let mut arrived = self.now.clone();
        for (from, messages) in routes {
            let mut start = self.now[*from];
            for (to, bytes) in messages {
                let at = self.deliver(start, *from, *to, *bytes);
                arrived[*to] = arrived[*to].max(at);
                start += self.machine.mode.gap;
            }
            // What starts a message is not free for the sender either.
            arrived[*from] = arrived[*from].max(start);
        }
        self.now = arrived;
    }

    /// When a message that is started at `start` has been received.
    fn deliver(&mut self, start: f64, from: usize, to: usize, bytes: f64) -> f64 {
        let Machine { mode, tree, .. } = self.machine;
        if tree.same_node(from, to) {
            return start + mode.message(bytes);
        }
        let ready = start + mode.overhead;
        let sent = ready.max(self.nic[from]) + bytes * tree.per_byte.max(mode.per_byte);
        self.nic[from] = sent + tree.gap;
        sent + tree.latency(from, to) + mode.overhead
    }

    /// Between this level and the next: where that has fewer ranks, parts go to those and come back; where there every rank
    /// has everything, everyone tells everyone.
    fn change_of_level(&mut self, level: &Level, next: Option<&Level>) {
        let Some(next) = next.filter(|next| next.ranks != level.ranks) else { return };
        // A cell of the next level for eight of this one.
        let bytes = level.cells();
        let places = places(level.ranks);
        let mut arrived = self.now.clone();
        for &place in &places {
            let from = self.rank(level, place);
            if next.whole {
                for &there in places.iter().filter(|&&there| there != place) {
                    let to = self.rank(level, there);
                    arrived[to] = arrived[to].max(self.deliver(self.now[from], from, to, bytes));
                }
                continue;
            }
            let to = self.rank(level, place.map(|at| at / 2 * 2));
            if from != to {
                let there = self.deliver(self.now[from], from, to, bytes);
                arrived[to] = arrived[to].max(there);
                arrived[from] = arrived[from].max(self.deliver(there, to, from, bytes));
            }
        }
        self.now = arrived;
    }
}

fn places(ranks: [usize; 3]) -> Vec<[usize; 3]> {
    let [x, y, z] = ranks;
    (0..x * y * z).map(|i| [i % x, i / x % y, i / (x * y)]).collect()
}

fn shifted(place: [usize; 3], offset: [i64; 3], ranks: [usize; 3]) -> Option<[usize; 3]> {
    let mut there = place;
    for i in 0..3 {
        there[i] = there[i].checked_add_signed(offset[i] as isize).filter(|at| *at < ranks[i])?;
    }
    Some(there)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(gpus_per_node: usize, overhead: f64) -> Machine {
        Machine {
            mode: LogGp { latency: 1.0, overhead, gap: 0.1, per_byte: 1e-5 },
            tree: FatTree::assumed(gpus_per_node),
            compute: Compute { resident: 100.0, pass: 2.0, cell: 1e-5, small: 16 },
        }
    }

    #[test]
    fn one_rank_takes_what_the_fit_says() {
        let machine = machine(1, 1.0);
        let [one, passes, cells] = Compute::features(64, 16);
        let fitted = one * 100.0 + passes * 2.0 + cells * 1e-5;
        let simulated = f_cycle(&machine, 64, [1; 3], Division::Boxes);
        assert!((simulated - fitted).abs() < 1e-6 * fitted, "{simulated} {fitted}");
    }

    #[test]
    fn communication_costs_and_costs_more_between_nodes_and_with_more_overhead() {
        let time = |gpus, overhead| f_cycle(&machine(gpus, overhead), 128, [2; 3], Division::Boxes);
        let alone = f_cycle(&machine(8, 0.5), 64, [1; 3], Division::Boxes);
        assert!(alone < time(8, 0.5) && time(8, 0.5) < time(8, 5.0) && time(8, 0.5) < time(1, 0.5));
    }

    #[test]
    fn every_rank_has_one_place_and_ranks_of_a_node_are_neighbours() {
        let machine = machine(8, 1.0);
        let clocks = Clocks { machine: &machine, now: vec![], nic: vec![], all: [4, 2, 4] };
        let level = Level { part: [4; 3], ranks: [4, 2, 4], visits: 1, whole: false };
        let mut ranks: Vec<usize> =
            places(level.ranks).iter().map(|&at| clocks.rank(&level, at)).collect();
        let node: Vec<usize> = [[0, 0, 0], [1, 1, 1]].map(|at| clocks.rank(&level, at) / 8).into();
        ranks.sort_unstable();
        assert_eq!(ranks, (0..32).collect::<Vec<_>>());
        assert_eq!(node, [0, 0]);
    }
}
