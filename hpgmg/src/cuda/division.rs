//! How many ranks along i, j and k share each level: chosen by a count of the bytes and neighbours of a solve, or as the user says.
//! Slabs, [1, 1, ranks], are whole planes: what is sent is stored once, by the kernel that computes it. Boxes send less to more
//! neighbours. Coarser levels may have fewer boxes: each is then computed by several ranks, one of each group of ranks that share
//! the level among them, so that nothing has to be brought back; from some level on every rank computes everything.
//!
//! Only numbers are handled here; which cells they stand for is `partition.rs`.

use super::launches::{OnLevel, launches};
use super::layout::GHOSTS;
use super::tiles;
use crate::error::ConfigError;
use crate::options::{Boundary, Config, Cycle, Operator, Smoother};

/// Cells per side of the largest level that every rank computes, unless the user says otherwise: so many at least, and no more.
/// Nothing to communicate is faster than half of the cells up to 32, and with GSRB often up to 64, unless what the ranks then get
/// from each other at restrictions is too much for the links between them.
pub const WHOLE: [usize; 2] = [32, 64];

/// Ranks along i, j and k.
pub type Along = [usize; 3];

/// Which levels the ranks share, and how. The same on all ranks, and for the set-up ([`super::set_up`]) as for [`super::Gpu::new`].
///
/// See [`super::Gpu`] for an example.
#[derive(Clone, Copy, Debug)]
pub struct Cut<'a> {
    /// Levels of at most so many cells a side are computed by every rank, none of more than the second number; between the
    /// two, with GSRB, what costs least. The first number alone counts where `along` says how they are divided.
    pub whole: [usize; 2],
    /// Levels of fewer cells are the CPU's.
    pub threshold: u64,
    /// Ranks along i, j and k of the finest level, the next, and so on, the last entry for all behind it; empty: what costs least.
    pub along: &'a [Along],
    /// Consecutive ranks that are on a host; between hosts there are NICs.
    pub host: usize,
}

impl Default for Cut<'_> {
    /// All levels are GPUs', divided as costs least on one host.
    fn default() -> Self {
        Self { whole: WHOLE, threshold: 0, along: &[], host: usize::MAX }
    }
}

/// Cells that a rank has at least of a level that is cut, along each axis: ghosts beyond the domain are sums of four cells.
const MIN_CELLS: usize = 4;

/// Ranks that get a level's right-hand side from each other are at most so many along an axis: they have read what the last gather
/// brought before the next one overwrites it because there are enough phases of borders between the two for the news to pass
/// from the first of them to the last.
pub const GATHERED_MAX: usize = 8;

/// What a count of bytes, neighbours and launches is weighed with: nanoseconds, and bytes a nanosecond. Of an H200, NVLink and a NIC
/// of 400 Gbit/s, rounded (`docs/hpgmg-gpu.md`).
#[derive(Clone, Copy, Debug)]
struct Weights {
    /// A pass over a level without cells, and bytes of memory.
    launch: f64,
    memory: f64,
    /// How much longer a pass over boxes takes than one that marches through the columns of slabs (2600 and 2140 µs at 512³).
    plain: f64,
    /// An exchange that carries nothing, each neighbour of it, and the bytes that a rank sends.
    exchange: f64,
    neighbour: f64,
    link: f64,
    /// What an exchange with another host takes longer, and the bytes that a rank's NIC sends.
    hosts: f64,
    nic: f64,
}

const WEIGHTS: Weights = Weights {
    launch: 3000.0,
    memory: 3000.0,
    plain: 1.2,
    exchange: 3400.0,
    neighbour: 100.0,
    link: 200.0,
    hosts: 1500.0,
    nic: 48.0,
};

/// Ranks whose messages are looked at.
const LOOKED_AT: usize = 16;

/// Levels of a multiple of so many cells a side have columns.
const COLUMNS_OF: usize = 64;

/// Sweeps of a call of the smoother, the benchmark's.
pub const SWEEPS: usize = 6;

/// Divisions of the finest level that are looked at more closely.
const CLOSER: usize = 4;

/// Bytes of memory of a cell and pass, a half-sweep of the benchmark's; and of one for both colours, which takes 23 ps a cell (256³, an
/// H200), as much as so many take. That begins so many planes before a block's own.
const PASS_BYTES: f64 = 48.0;
const SWEEP_BYTES: f64 = 70.0;
const SWEEP_PLANES: f64 = 4.0;

/// How levels are divided, finest first, down to the first that every rank has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// Of each level; the last is [1, 1, 1].
    along: Vec<Along>,
    /// Of all ranks: rank x + i (y + j z) is at (x, y, z).
    ranks: Along,
    /// Whether both colours of a sweep are one launch where a level is large enough.
    whole_sweeps: bool,
}

/// What a rank that has neighbours on all sides sends in an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub bytes: usize,
    pub neighbours: usize,
}

impl Division {
    /// The division of levels of `dims` cells a side, each half of the one before, as `cut` says. Every rank has the last of `dims`, too,
    /// and those that are too small to be cut.
    ///
    /// # Errors
    /// [`ConfigError::Along`] if `along` does not fit.
    pub fn new(
        config: &Config,
        dims: &[usize],
        ranks: usize,
        cut: Cut<'_>,
    ) -> Result<Self, ConfigError> {
        let Cut { whole: [least, most], along, host, .. } = cut;
        let whole_sweeps = (config.operator, config.smoother, config.boundary)
            == (Operator::Fv4, Smoother::Gsrb, Boundary::Dirichlet);
        let with_sweeps = |division: Self| Self { whole_sweeps, ..division };
        let nothing = Self { along: vec![[1; 3]], ranks: [1, 1, ranks], whole_sweeps };
        if ranks == 1 {
            return Ok(nothing);
        }
        let possible = |along: Along| {
            // Rows of a domain that wraps around are whole: their sums are formed in the CPU's order.
            let [i, j, k] = along;
            config.boundary == Boundary::Dirichlet || i == 1 && (j == 1 || k > 1)
        };
        if let [first, ..] = along {
            let refuse = |reason| ConfigError::Along { along: along.to_vec(), ranks, reason };
            if first.iter().product::<usize>() != ranks {
                return Err(refuse("their product is not the number of ranks"));
            }
            if !along.iter().all(|&along| possible(along)) {
                return Err(refuse("a domain that wraps around is not cut along i"));
            }
            return Self::of(dims, along, least).map(with_sweeps).ok_or_else(|| {
                refuse(
                    "the parts of the finest level would be too small, or cannot go to fewer ranks",
                )
            });
        }
        let levels = launches(Cycle::F, &dims[..dims.len() - 1], SWEEPS);
        let ways: Vec<Along> = factors(ranks).into_iter().filter(|&one| possible(one)).collect();
        let best = |whole: usize| {
            let divisions = ways.iter().filter_map(|&along| Self::of(dims, &[along], whole));
            let mut found: Vec<(f64, Self)> = divisions
                .map(with_sweeps)
                .map(|division| (division.cost(&levels, host), division))
                .collect();
            // The first of those that cost the same: slabs if they do. Few are worth a closer look.
            found.sort_by(|one, other| one.0.total_cmp(&other.0));
            found.truncate(CLOSER);
            let small = Self::small(dims, whole);
            // Slabs stay on all their ranks, as they have been measured.
            let in_slabs = |(_, division): &(f64, Self)| division.ranks[..2] == [1, 1];
            if found.first().is_some_and(in_slabs) {
                found.truncate(1);
            }
            for (cost, division) in found.iter_mut().filter(|one| !in_slabs(one)) {
                division.improve(cost, &dims[..=small], (&levels, host), possible);
            }
            let cheaper = found.into_iter().min_by(|one, other| one.0.total_cmp(&other.0));
            cheaper.unwrap_or_else(|| (nothing.cost(&levels, host), nothing.clone()))
        };
        // Of the other smoothers a call has more passes, and half of 64³ is faster (Chebyshev, 128³ on two H200: 2.18 and 2.60 ms).
        let most = if config.smoother == Smoother::Gsrb { most } else { least };
        let larger = dims.iter().copied().filter(|&n| least < n && n <= most);
        let cheaper =
            |one: (f64, Self), other: (f64, Self)| if other.0 < one.0 { other } else { one };
        Ok(larger.map(best).fold(best(least), cheaper).1)
    }

    /// The first level of at most `whole` cells, or the last.
    fn small(dims: &[usize], whole: usize) -> usize {
        dims.iter().position(|&n| n <= whole).unwrap_or(dims.len() - 1)
    }

    /// `along` on the levels down to the first of at most `whole` cells, or of as many as can be cut, its last entry on those behind it
    /// but for the last few where they cannot be every rank's at once; none if none can be cut.
    pub fn of(dims: &[usize], along: &[Along], whole: usize) -> Option<Self> {
        let at = |l: usize| along[l.min(along.len() - 1)];
        // Levels that are too small are whole; where they are may make those before them too small.
        (1..=Self::small(dims, whole)).rev().find_map(|count| {
            let steps = (1..=count).rev().find_map(|kept| {
                let ends = ends(at(kept - 1))?;
                (kept + ends.len() == count + 1).then(|| (0..kept).map(at).chain(ends).collect())
            });
            Self::by_level(dims, steps?)
        })
    }

    /// `steps` says it of each level, and ends with [1, 1, 1]; none if a level cannot be cut so.
    pub fn by_level(dims: &[usize], steps: Vec<Along>) -> Option<Self> {
        let whole = steps.len().checked_sub(1)?;
        let division = Self { ranks: *steps.first()?, along: steps, whole_sweeps: false };
        let fits = |l: usize| {
            let (along, next) = (division.along[l], division.along[l + 1]);
            let unit = dims[division.last_alike(l)] / 2;
            let after_all = division.along[division.last_alike(l) + 1];
            // Parts may be unequal, if the same ranks have them until every rank has everything.
            let to_all = after_all == [1; 3] && along == division.ranks;
            (0..3).all(|axis| {
                let (ranks, after) = (along[axis], next[axis]);
                let (unit, step) = (unit / step(axis, ranks), step(axis, ranks));
                let equal = unit.is_multiple_of(ranks);
                2 * step * (unit / ranks) >= MIN_CELLS
                    && dims[division.last_alike(l)].is_multiple_of(2 * step)
                    && (equal || to_all)
                    && ranks.is_multiple_of(after)
                    && ranks / after <= GATHERED_MAX
            })
        };
        let cut = (0..whole).all(|l| division.along[l] != [1; 3] && fits(l));
        (whole < dims.len() && division.along[whole] == [1; 3] && cut).then_some(division)
    }

    /// Gives levels of `dims` between the first and the last to fewer ranks as long as that makes it cost less.
    fn improve(
        &mut self,
        cost: &mut f64,
        dims: &[usize],
        (levels, host): (&[OnLevel], usize),
        possible: impl Fn(Along) -> bool,
    ) {
        let small = dims.len() - 1;
        let mut improved = true;
        while std::mem::take(&mut improved) {
            for l in (1..small).rev() {
                for fewer in fewer(self.ranks).into_iter().filter(|&fewer| possible(fewer)) {
                    let mut steps: Vec<Along> = (0..=small).map(|l| self.along(l)).collect();
                    steps[l] = fewer;
                    for later in &mut steps[l + 1..] {
                        let possible = (0..3).all(|axis| fewer[axis].is_multiple_of(later[axis]));
                        *later = if possible { *later } else { fewer };
                    }
                    let end = steps.iter().position(|&along| along == [1; 3]).unwrap_or(small);
                    steps.truncate(end);
                    steps.push([1; 3]);
                    let Some(other) = Self::by_level(dims, steps) else { continue };
                    let other = Self { whole_sweeps: self.whole_sweeps, ..other };
                    let its = other.cost(levels, host);
                    if its < *cost {
                        (*self, *cost, improved) = (other, its, true);
                    }
                }
            }
        }
    }

    /// Whether both colours of a sweep over a rank's planes of level `l` of `n` cells a side are one launch, if the ranks' GPUs have such
    /// kernels.
    pub fn sweeps(&self, l: usize, n: usize) -> bool {
        let [i, j, k] = self.along(l);
        self.whole_sweeps && l < self.whole() && [i, j] == [1, 1] && tiles::has_slabs(n, n / k)
    }

    /// Planes or cells at each border of level `l`, of `n` cells a side, that are a neighbour's ghosts. For a whole sweep its first half is also
    /// done in the plane next to the rank's, and reads one further away than the operator does.
    pub fn depth(&self, l: usize, n: usize) -> usize {
        GHOSTS + usize::from(self.sweeps(l, n))
    }

    /// The first level that every rank has.
    pub fn whole(&self) -> usize {
        self.along.len() - 1
    }

    /// Ranks along the axes of level `l`.
    pub fn along(&self, l: usize) -> Along {
        self.along[l.min(self.whole())]
    }

    /// Levels of which the same ranks have the same shares follow level `l`, which is cut, down to this one.
    pub fn last_alike(&self, l: usize) -> usize {
        let alike = self.along[l..].iter().take_while(|along| **along == self.along[l]).count();
        l + alike - 1
    }

    /// Where rank `rank` is among those along the axes of level `l`.
    pub fn place(&self, l: usize, rank: usize) -> [usize; 3] {
        let (at, along) = (self.coordinates(rank), self.along(l));
        [0, 1, 2].map(|axis| at[axis] * along[axis] / self.ranks[axis])
    }

    /// Whether the rank is the first of those that have the same part of level `l`.
    pub fn is_first(&self, l: usize, rank: usize) -> bool {
        let (at, along) = (self.coordinates(rank), self.along(l));
        (0..3).all(|axis| at[axis].is_multiple_of(self.ranks[axis] / along[axis]))
    }

    fn coordinates(&self, rank: usize) -> [usize; 3] {
        let [i, j, _] = self.ranks;
        [rank % i, rank / i % j, rank / (i * j)]
    }

    /// The rank in the middle.
    fn middle(&self) -> usize {
        self.rank_at(self.ranks.map(|ranks| ranks / 2))
    }

    fn rank_at(&self, [x, y, z]: [usize; 3]) -> usize {
        x + self.ranks[0] * (y + self.ranks[1] * z)
    }

    /// The rank that is so many parts of level `l` further; the domain wraps around if `around`, along axes that are cut.
    pub fn toward(&self, l: usize, rank: usize, direction: [i8; 3], around: bool) -> Option<usize> {
        let (mut at, along) = (self.coordinates(rank), self.along(l));
        for axis in 0..3 {
            let (step, here) = (isize::from(direction[axis]), self.place(l, rank)[axis] as isize);
            let (there, ranks) = (here + step, along[axis] as isize);
            if step != 0 && (ranks == 1 || !around && !(0..ranks).contains(&there)) {
                return None;
            }
            // The ranks that have a part each are in the same places of their groups.
            let group = self.ranks[axis] / along[axis];
            at[axis] = there.rem_euclid(ranks) as usize * group + at[axis] % group;
        }
        Some(self.rank_at(at))
    }

    /// The ranks that give each other along an axis what they have restricted to level `l`, `rank` among them, in order.
    pub fn gathered(&self, l: usize, rank: usize, axis: usize) -> Vec<usize> {
        let (finer, coarser) = (self.along(l - 1)[axis], self.along(l)[axis]);
        let (at, count) = (self.coordinates(rank), finer / coarser);
        let group = self.ranks[axis] / finer;
        let first = at[axis] / (group * count) * (group * count) + at[axis] % group;
        let there = |turn: usize| {
            let mut there = at;
            there[axis] = first + turn * group;
            self.rank_at(there)
        };
        (0..count).map(there).collect()
    }

    /// What a rank in the middle sends when it exchanges a vector of level `l` of `n` cells a side.
    pub fn sent(&self, l: usize, n: usize) -> Sent {
        let mut sent = Sent { bytes: 0, neighbours: 0 };
        for (_, bytes) in self.borders(l, n, self.middle()) {
            sent.neighbours += 1;
            sent.bytes += bytes;
        }
        sent
    }

    /// The bytes that rank `rank` sends to each neighbour on level `l` of `n` cells a side.
    pub fn borders(&self, l: usize, n: usize, rank: usize) -> impl Iterator<Item = (usize, usize)> {
        let (cells, depth) = (self.along(l).map(|ranks| n.div_ceil(ranks)), self.depth(l, n));
        let directions = (0..27i8).map(|code| [code % 3 - 1, code / 3 % 3 - 1, code / 9 - 1]);
        directions.filter(|direction| *direction != [0; 3]).filter_map(move |direction| {
            let peer = self.toward(l, rank, direction, false)?;
            let deep = |axis: usize| if direction[axis] == 0 { cells[axis] } else { depth };
            Some((peer, (0..3).map(deep).product::<usize>() * size_of::<f64>()))
        })
    }

    /// The ranks to which rank `rank` sends of level `l` of `n` cells a side after restriction to it, with the bytes for each: its share, axis by
    /// axis, of which what came along one goes on along the next, and the planes at its borders where sweeps read them.
    pub fn gathers(&self, l: usize, n: usize, rank: usize) -> Vec<(Vec<usize>, usize)> {
        let Some(finer) = l.checked_sub(1).map(|finer| self.along(finer)) else {
            return Vec::new();
        };
        let mut cells: usize = finer.iter().map(|ranks| n.div_ceil(*ranks)).product();
        let mut stages = Vec::new();
        for axis in 0..3 {
            let mut others = self.gathered(l, rank, axis);
            let count = others.len();
            others.retain(|&other| other != rank);
            if !others.is_empty() {
                stages.push((others, cells * size_of::<f64>()));
            }
            cells *= count;
        }
        if self.sweeps(l, n) {
            let others = self.borders(l, n, rank).map(|(peer, _)| peer).collect();
            stages.push((others, n * n * size_of::<f64>()));
        }
        stages
    }

    /// What the borders and, level by level, the gathers of a cycle cost the rank that they cost most, if `host` ranks are on a host.
    fn messages(&self, l: usize, level: &OnLevel, host: usize) -> f64 {
        let w = WEIGHTS;
        let (n, ranks) = (level.n, self.ranks.iter().product::<usize>());
        // What kernels store as they compute it is moved once; other borders are read again.
        let times = if self.along(l)[..2] == [1, 1] { 1.0 } else { 2.0 };
        let exchanges = level.exchanges(self.sweeps(l, n));
        let gathers = level.restrictions + level.residuals;
        let of_rank = |rank: usize| {
            let sent = |to: &mut dyn Iterator<Item = (usize, usize)>, times: f64| {
                let (mut cost, mut far) = (w.exchange, 0.0);
                for (peer, bytes) in to {
                    cost += w.neighbour;
                    match peer / host == rank / host {
                        true => cost += times * bytes as f64 / w.link,
                        false => (cost, far) = (cost + bytes as f64 / w.nic, w.hosts),
                    }
                }
                cost + far
            };
            let borders = exchanges as f64 * sent(&mut self.borders(l, n, rank), times);
            let stages = self.gathers(l + 1, n / 2, rank).into_iter();
            let stages = stages.map(|(others, bytes)| {
                sent(&mut others.into_iter().map(|other| (other, bytes)), 1.0)
            });
            borders + gathers as f64 * stages.sum::<f64>()
        };
        // That in the middle has the most neighbours, those beside it are on its host or the next ones.
        let first = self.middle().saturating_sub(LOOKED_AT / 2);
        (first..ranks.min(first + LOOKED_AT)).map(of_rank).fold(0.0, f64::max)
    }

    /// What an F-cycle of the benchmark costs: launches, bytes of memory, exchanges, their neighbours and bytes, in nanoseconds of
    /// a machine like those of [`WEIGHTS`] with `host` ranks a host.
    fn cost(&self, levels: &[OnLevel], host: usize) -> f64 {
        let w = WEIGHTS;
        let of_level = |(l, level): (usize, &OnLevel)| {
            let (n, along) = (level.n, self.along(l));
            let cells: f64 = along.iter().map(|&ranks| n.div_ceil(ranks) as f64).product();
            let boxes = along[..2] != [1, 1];
            let slower = if boxes && n.is_multiple_of(COLUMNS_OF) { w.plain } else { 1.0 };
            let sweeps = if self.sweeps(l, n) { level.whole_sweeps() } else { 0 };
            let planes = n as f64 / along[2] as f64;
            let swept = cells * (planes + SWEEP_PLANES) / planes;
            let pass = |bytes: f64| w.launch + bytes / w.memory;
            let mut cost = (level.phases(sweeps > 0) - sweeps) as f64
                * pass(slower * PASS_BYTES * cells)
                + sweeps as f64 * pass(SWEEP_BYTES * swept);
            if l < self.whole() {
                cost += self.messages(l, level, host);
            }
            cost
        };
        levels.iter().enumerate().map(of_level).sum()
    }
}

/// Parts of a level that restricts to another are a multiple of so many cells of that: pairs along i, where colours take turns.
pub fn step(axis: usize, ranks: usize) -> usize {
    if axis == 0 && ranks > 1 { 2 } else { 1 }
}

/// What levels may go to one after the other, each to no more than [`GATHERED_MAX`] times fewer along an axis, after one that has parts
/// `along`, until every rank has everything; none if there is no such way.
fn ends(along: Along) -> Option<Vec<Along>> {
    let mut ends = vec![along];
    while let Some(last) = ends.last().filter(|last| last.iter().any(|&n| n > GATHERED_MAX)) {
        let fewer = last.map(|n| {
            let enough = |d: &usize| n.is_multiple_of(*d) && n / d <= GATHERED_MAX;
            if n > GATHERED_MAX { (1..=n).find(enough).unwrap_or(n) } else { n }
        });
        if fewer == *last {
            return None;
        }
        ends.push(fewer);
    }
    ends.push([1; 3]);
    ends.remove(0);
    Some(ends)
}

/// All ways to write a number as a product of three, slabs first.
fn factors(ranks: usize) -> Vec<Along> {
    let divisors = |n: usize| (1..=n).filter(move |d| n.is_multiple_of(*d));
    divisors(ranks).flat_map(|i| divisors(ranks / i).map(move |j| [i, j, ranks / i / j])).collect()
}

/// All that `along` is a multiple of, along each axis, but itself.
fn fewer(along: Along) -> Vec<Along> {
    let divisors = |n: usize| (1..=n).filter(move |d| n.is_multiple_of(*d));
    let [i, j, k] = along;
    let all = divisors(i)
        .flat_map(|i| divisors(j).flat_map(move |j| divisors(k).map(move |k| [i, j, k])));
    all.filter(|&other| other != along).collect()
}

#[cfg(test)]
mod tests;
