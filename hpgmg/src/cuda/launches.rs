//! Which steps of a cycle are launched together, how often a solve launches what on which level, and what its ranks send each
//! other, counted from the cycle alone: what `traffic.rs` turns into bytes of memory and the report into bytes between GPUs. A
//! GPU test counts the launches of a solve.

use std::convert::Infallible;

use super::division::Division;
use crate::cycle::{CycleStep, Kind, Levels, Op};
use crate::options::Cycle;

/// The launches of one solve over a level, of those that are not done with all coarser ones at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OnLevel {
    /// Cells a side.
    pub n: usize,
    /// Sweeps of a smoother, those from zero among them.
    pub sweeps: usize,
    /// First sweeps from zero.
    pub from_zero: usize,
    /// Residuals that are restricted.
    pub residuals: usize,
    /// Interpolations of a correction.
    pub corrections: usize,
    /// Interpolations of a solution.
    pub solutions: usize,
    /// Restrictions of the right-hand side.
    pub restrictions: usize,
    /// Norms of the residual.
    pub norms: usize,
}

/// The steps of a cycle from level `l` of `count`.
pub(super) fn steps(kind: Kind, count: usize, l: usize) -> Vec<CycleStep> {
    let mut steps = Vec::new();
    let Ok(()) = Levels { count, active: count }.cycle(kind, l, &mut |step| {
        steps.push(step);
        Ok::<_, Infallible>(())
    });
    steps
}

/// The steps as they are launched: those of the levels from `coarse` on as many at once as follow each other, on levels with `legs`
/// a correction, a call of the smoother and a restricted residual as far as they do, the others one by one.
pub(super) fn grouped(
    steps: &[CycleStep],
    coarse: usize,
    legs: impl Fn(usize) -> bool,
) -> impl Iterator<Item = &[CycleStep]> {
    steps.chunk_by(move |step, next| {
        let follow = matches!(
            (step.op, next.op),
            (Op::Correct, Op::Smooth) | (Op::Smooth, Op::RestrictResidual)
        );
        step.l.min(next.l) >= coarse || step.l == next.l && follow && legs(step.l)
    })
}

/// The launches of an F-cycle from the finest level, or of one V-cycle (`Cycle::V`), on levels of `dims` cells a side above
/// those that are done at once; a call of the smoother is `sweeps` of them.
pub(super) fn launches(cycle: Cycle, dims: &[usize], sweeps: usize) -> Vec<OnLevel> {
    let kind = if cycle == Cycle::V { Kind::V } else { Kind::F };
    let mut levels: Vec<_> = dims.iter().map(|&n| OnLevel { n, ..OnLevel::default() }).collect();
    for CycleStep { op, l, zero, .. } in steps(kind, dims.len() + 1, 0) {
        let Some(level) = levels.get_mut(l) else { continue };
        match op {
            Op::Smooth => {
                level.sweeps += sweeps;
                level.from_zero += usize::from(zero);
            }
            Op::RestrictResidual => level.residuals += 1,
            Op::Restrict => level.restrictions += 1,
            Op::Correct => level.corrections += 1,
            Op::Replace => level.solutions += 1,
            Op::Solve => {}
        }
    }
    if let Some(finest) = levels.first_mut() {
        finest.norms = 1;
    }
    levels
}

impl OnLevel {
    /// Launches that write planes which neighbours read, if the level is cut; with both colours of a sweep at once or not.
    pub fn exchanges(&self, at_once: bool) -> usize {
        let fewer = if at_once { self.whole_sweeps() } else { 0 };
        self.sweeps - fewer + self.corrections + self.solutions
    }

    /// Sweeps of both colours, where they are one launch: all but those whose first half is from zero.
    pub fn whole_sweeps(&self) -> usize {
        self.sweeps / 2 - self.from_zero
    }

    /// Launches after which neighbours may go on, if the level is cut: phases of `cuda/slab.cuh`.
    pub fn phases(&self, at_once: bool) -> usize {
        self.exchanges(at_once) + self.residuals + self.norms
    }
}

/// What a rank sends in one solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    /// Exchanges with the neighbours that carry borders.
    pub exchanges: usize,
    /// Phases, those that carry nothing among them.
    pub phases: usize,
    /// Bytes to all neighbours together, of a rank in the middle.
    pub bytes: usize,
    /// Its neighbours on the finest level.
    pub neighbours: usize,
    /// Exchanges in which ranks give each other what they have restricted to a level: all of it where that has fewer parts, and
    /// what sweeps read of the neighbours'.
    pub gathers: usize,
}

impl Sent {
    /// What is sent of the launches `levels` if levels are divided so.
    pub fn of(levels: &[OnLevel], division: &Division) -> Self {
        let cut = &levels[..division.whole()];
        let of = |l: usize, level: &OnLevel| {
            let sweeps = division.sweeps(l, level.n);
            (level.exchanges(sweeps), level.phases(sweeps))
        };
        let bytes =
            |(l, level): (usize, &OnLevel)| of(l, level).0 * division.sent(l, level.n).bytes;
        let gathers = |(l, level): (usize, &OnLevel)| {
            let stages = division.gathers(l + 1, level.n / 2, 0).len();
            stages * (level.restrictions + level.residuals)
        };
        Self {
            exchanges: cut.iter().enumerate().map(|(l, level)| of(l, level).0).sum(),
            phases: cut.iter().enumerate().map(|(l, level)| of(l, level).1).sum(),
            bytes: cut.iter().enumerate().map(bytes).sum(),
            neighbours: levels.first().map_or(0, |level| division.sent(0, level.n).neighbours),
            gathers: cut.iter().enumerate().map(gathers).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::division::Cut;
    use super::*;
    use crate::options::Config;

    #[test]
    fn a_level_is_visited_once_for_each_finer_one_and_itself() {
        let f = launches(Cycle::F, &[64, 32, 16], 6);
        assert_eq!(f.iter().map(|l| l.sweeps).collect::<Vec<_>>(), [12, 24, 36]);
        assert_eq!(f.iter().map(|l| l.from_zero).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(f.iter().map(|l| l.norms).collect::<Vec<_>>(), [1, 0, 0]);
        let v = launches(Cycle::V, &[64, 32, 16], 6);
        assert_eq!(v.iter().map(|l| l.sweeps).collect::<Vec<_>>(), [12; 3]);
        assert_eq!(v.iter().map(|l| l.from_zero).collect::<Vec<_>>(), [0, 1, 1]);
        assert_eq!(v.iter().map(|l| l.solutions + l.restrictions).sum::<usize>(), 0);
    }

    /// The steps that are launched together, by their first letters and levels, `|` between launches, `*` behind levels that
    /// are done at once.
    fn sequence(kind: Kind, count: usize, l: usize, coarse: usize, legs: usize) -> String {
        let word = |step: &CycleStep| {
            let what = match step.op {
                Op::Smooth => "s",
                Op::RestrictResidual => "rr",
                Op::Restrict => "r",
                Op::Correct => "c",
                Op::Replace => "p",
                Op::Solve => "b",
            };
            format!("{}{what}{}", step.l, if step.zero { "0" } else { "" })
        };
        let together = |group: &[CycleStep]| {
            let mark = if group[0].l >= coarse { "*" } else { "" };
            group.iter().map(word).collect::<Vec<_>>().join(" ") + mark
        };
        grouped(&steps(kind, count, l), coarse, |l| l == legs)
            .map(together)
            .collect::<Vec<_>>()
            .join("|")
    }

    #[test]
    fn each_way_down_and_up_again_through_the_coarse_levels_is_one_launch() {
        assert_eq!(
            sequence(Kind::F, 4, 0, 2, 9),
            "0r|1r|2r 3b0 2p 2s 2rr 3b0 2c 2s*|1p|1s|1rr|2s0 2rr 3b0 2c 2s*|1c|1s|\
             0p|0s|0rr|1s0|1rr|2s0 2rr 3b0 2c 2s*|1c|1s|0c|0s"
        );
        assert_eq!(sequence(Kind::V, 4, 0, 2, 9), "0s|0rr|1s0|1rr|2s0 2rr 3b0 2c 2s*|1c|1s|0c|0s");
        assert_eq!(sequence(Kind::F, 4, 2, 2, 9), "2r 3b0 2p 2s 2rr 3b0 2c 2s*");
        assert_eq!(sequence(Kind::V, 4, 3, 2, 9), "3b*");
        assert_eq!(sequence(Kind::V, 3, 1, 2, 9), "1s|1rr|2b0*|1c|1s");
    }

    #[test]
    fn a_leg_is_one_launch() {
        assert_eq!(
            sequence(Kind::F, 3, 0, 2, 1),
            "0r|1r|2b0*|1p|1s 1rr|2b0*|1c 1s|0p|0s|0rr|1s0 1rr|2b0*|1c 1s|0c|0s"
        );
    }

    /// The numbers of `docs/hpgmg-gpu.md`, for four ranks: 384³ to 48³ in slabs, 24³ whole on each.
    #[test]
    fn the_page_about_gpus_states_these_counts() {
        let levels = launches(Cycle::F, &[384, 192, 96, 48, 24], 6);
        let division = Division::of(&[384, 192, 96, 48, 24], &[[1, 1, 4]], 24).unwrap();
        let sent = Sent::of(&levels, &division);
        let (exchanges, phases, bytes) = (134, 145, 2 * 56_807_424);
        assert_eq!(sent, Sent { exchanges, phases, bytes, neighbours: 2, gathers: 5 });
        assert_eq!(
            levels.iter().map(|level| level.phases(false)).collect::<Vec<_>>(),
            [16, 29, 43, 57, 71]
        );
        assert_eq!(levels[4].sweeps, 60);
        // Since both colours are one launch at 384³ and 192³.
        let dims = [384, 192, 96, 48, 24];
        let cut = Cut { whole: [24; 2], along: &[[1, 1, 4]], ..Cut::default() };
        let sent = Sent::of(&levels, &Division::new(&Config::default(), &dims, 4, cut).unwrap());
        assert_eq!([0, 1].map(|l| levels[l].phases(true)), [10, 18]);
        let (exchanges, phases, bytes) = (117, 128, 2 * 50_319_360);
        assert_eq!(sent, Sent { exchanges, phases, bytes, neighbours: 2, gathers: 7 });
    }
}
