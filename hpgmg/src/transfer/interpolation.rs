//! Interpolation: tensor products of one-dimensional rules, from coarse cells and their ghosts.

use super::{Side, coarse_of};
use crate::block::{Block, Phase, View, tile};
use crate::boundary::Extrapolation;
use crate::comm::{Comm, CommError};
use crate::halo::copy_blocks;
use crate::isa::Isa;
use crate::options::Operator;
use crate::route::Route;
use crate::rows::SharedVector;
use crate::team::Team;
use crate::work::Stage;

/// One-dimensional interpolation rules; the three-dimensional ones are their tensor products.
///
/// See [`Operators`](crate::backend::Operators) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Piecewise constant.
    Constant,
    /// Linear in point values: 3/4, 1/4.
    Linear,
    /// Quadratic in point values: 30/32, 5/32, −3/32.
    PointQuadratic,
    /// Quadratic in cell averages.
    Quadratic,
    /// Quartic in cell averages.
    Quartic,
}

impl Rule {
    /// The rules of an operator's corrections and of its solutions.
    pub fn of_operator(operator: Operator) -> (Rule, Rule) {
        match operator {
            Operator::Fv4 => (Rule::Quadratic, Rule::Quartic),
            Operator::Fv2 => (Rule::Quadratic, Rule::Quadratic),
            Operator::P7 => (Rule::Constant, Rule::Linear),
            Operator::P27 => (Rule::PointQuadratic, Rule::PointQuadratic),
        }
    }

    /// What extrapolates the ghosts that it reads, where boxes have `n` cells a side; it may read none.
    pub fn ghosts(self, n: usize) -> Option<Extrapolation> {
        let rule = match self {
            Rule::Constant => return None,
            Rule::Linear => Extrapolation::Linear,
            Rule::PointQuadratic => Extrapolation::PointQuadratic,
            Rule::Quadratic => Extrapolation::Quadratic,
            Rule::Quartic => Extrapolation::Quartic,
        };
        Some(rule.lowered(n))
    }

    /// Coarse cells read on either side.
    pub fn reach(self) -> usize {
        match self {
            Rule::Constant => 0,
            Rule::Linear | Rule::PointQuadratic | Rule::Quadratic => 1,
            Rule::Quartic => 2,
        }
    }

    /// Weights of coarse cells −2..=2 for the even (low) child; the odd child mirrors them.
    fn weights(self) -> [f64; 5] {
        match self {
            Rule::Constant => [0.0, 0.0, 1.0, 0.0, 0.0],
            Rule::Linear => [0.0, 0.25, 0.75, 0.0, 0.0],
            Rule::PointQuadratic => [0.0, 5.0 / 32.0, 30.0 / 32.0, -3.0 / 32.0, 0.0],
            Rule::Quadratic => [0.0, 0.125, 1.0, -0.125, 0.0],
            Rule::Quartic => [-3.0 / 128.0, 22.0 / 128.0, 1.0, -22.0 / 128.0, 3.0 / 128.0],
        }
    }
}

/// Interpolation from a level to the next finer one.
pub struct Interpolation {
    /// The lists and messages.
    pub route: Route,
    rule: Rule,
}

/// Rows and planes of coarse cells of one interpolation task.
const TILE: usize = 32;

/// Scratch elements an interpolation onto boxes of `n` cells needs.
pub fn scratch_len(n: usize) -> usize {
    (n / 2 + 4) * (TILE + 5)
}

/// The lists of an interpolation with `reach`. Pack blocks copy coarse cells and ghosts; local and
/// unpack blocks interpolate, their `dims` are coarse cells and `from` points at the first of them.
fn interpolation_phase(rank: usize, fine: Side<'_>, coarse: Side<'_>, reach: usize) -> Phase {
    let dims = [fine.geometry.n / 2; 3];
    let padded = [dims[0] + 2 * reach; 3];
    let cells: usize = padded.iter().product();
    let mut phase = Phase::default();
    for id in 0..fine.shape.boxes() {
        let (source, corner) = coarse_of(fine.shape, coarse.shape, id);
        let source_rank = coarse.shape.rank_of_box[source] as usize;
        let target_rank = fine.shape.rank_of_box[id] as usize;
        let to = fine.view(id, [0; 3]);
        if source_rank == rank && target_rank == rank {
            phase.local.push(Block { dims, from: coarse.view(source, corner), to });
        } else if source_rank == rank {
            let from = coarse.view(source, corner.map(|c| c - reach as isize));
            let n = phase.neighbour(target_rank);
            n.pack.push(Block { dims: padded, from, to: View::dense(n.send, padded) });
            n.send += cells;
        } else if target_rank == rank {
            let n = phase.neighbour(source_rank);
            let mut from = View::dense(n.receive, padded);
            from.at += reach * (1 + from.pitch + from.plane);
            n.unpack.push(Block { dims, from, to });
            n.receive += cells;
        }
    }
    phase
}

impl Interpolation {
    /// Prepares an interpolation by `rule`.
    ///
    /// # Errors
    /// [`CommError`] when the messages cannot be prepared.
    pub(crate) fn new(
        comm: &dyn Comm,
        fine: Side<'_>,
        coarse: Side<'_>,
        rule: Rule,
        tag: i32,
    ) -> Result<Self, CommError> {
        let phase = interpolation_phase(comm.rank(), fine, coarse, rule.reach());
        let cut = |blocks: &[Block]| {
            let mut cut = Vec::new();
            for b in blocks {
                for k in (0..b.dims[2]).step_by(8) {
                    for j in (0..b.dims[1]).step_by(TILE) {
                        cut.push(Block {
                            dims: [b.dims[0], TILE.min(b.dims[1] - j), 8.min(b.dims[2] - k)],
                            from: View { at: b.from.row(j, k), ..b.from },
                            to: View { at: b.to.row(2 * j, 2 * k), ..b.to },
                        });
                    }
                }
            }
            cut
        };
        let route = Route::new(comm, tag, phase, |phase| {
            phase.local = cut(&phase.local);
            for n in &mut phase.neighbours {
                n.pack = tile(&n.pack, 16, 1);
                n.unpack = cut(&n.unpack);
            }
        })?;
        Ok(Self { route, rule })
    }

    /// The rule.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// A stage of `fine = P coarse`, or `fine += P coarse` with `add`; the last is empty. The ghosts of `coarse` are valid
    /// to the rule's reach.
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    pub fn stage(
        &mut self,
        stage: Stage,
        team: &Team,
        isa: Isa,
        coarse: &[f64],
        fine: &mut [f64],
        add: bool,
    ) -> Result<(), CommError> {
        let Self { route, rule } = self;
        match stage {
            Stage::Pack => route.send(|blocks, buffer| copy_blocks(team, blocks, coarse, buffer)),
            Stage::Here => {
                interpolate_blocks(team, isa, *rule, route.local(), coarse, fine, add);
                Ok(())
            }
            Stage::Unpack => route.receive(|blocks, buffer| {
                interpolate_blocks(team, isa, *rule, blocks, buffer, fine, add)
            }),
            Stage::Rest => Ok(()),
        }
    }
}

fn interpolate_blocks(
    team: &Team,
    isa: Isa,
    rule: Rule,
    blocks: &[Block],
    coarse: &[f64],
    fine: &mut [f64],
    add: bool,
) {
    let out = SharedVector::new(fine);
    let work = 8 * blocks.iter().map(Block::cells).sum::<usize>();
    team.run(blocks.len(), work, &|index, scratch| {
        let b = &blocks[index];
        isa.call(
            #[inline(always)]
            || match rule.reach() {
                0 => interpolate::<0, 1>(rule, b, coarse, &out, add, scratch),
                1 => interpolate::<1, 3>(rule, b, coarse, &out, add, scratch),
                _ => interpolate::<2, 5>(rule, b, coarse, &out, add, scratch),
            },
        );
    });
}

/// `R` is the reach and `W = 2 R + 1`.
#[inline(always)]
fn interpolate<const R: usize, const W: usize>(
    rule: Rule,
    b: &Block,
    coarse: &[f64],
    out: &SharedVector<'_>,
    add: bool,
    scratch: &mut [f64],
) {
    let all = rule.weights();
    let mut even = [0.0; W];
    even.copy_from_slice(&all[2 - R..=2 + R]);
    let mut odd = even;
    odd.reverse();
    let children = [even, odd];
    let [ni, nj, nk] = b.dims;
    let width = ni + 2 * R;
    let (line, plane) = scratch.split_at_mut(width);
    for k in 0..nk {
        for (pk, wk) in children.iter().enumerate() {
            for j in 0..nj + 2 * R {
                let at = b.from.row(j, k) - R * (1 + b.from.pitch + b.from.plane);
                let rows: [&[f64]; W] =
                    std::array::from_fn(|m| &coarse[at + m * b.from.plane..][..width]);
                combine(&rows, wk, &mut plane[j * width..][..width]);
            }
            for j in 0..nj {
                for (pj, wj) in children.iter().enumerate() {
                    let rows: [&[f64]; W] =
                        std::array::from_fn(|m| &plane[(j + m) * width..][..width]);
                    combine(&rows, wj, line);
                    // SAFETY: the destinations of a list do not overlap.
                    let out = unsafe { out.row(b.to.row(2 * j + pj, 2 * k + pk), 2 * ni) };
                    expand(line, &children, out, add);
                }
            }
        }
    }
}

#[inline(always)]
fn combine<const W: usize>(rows: &[&[f64]; W], weights: &[f64; W], out: &mut [f64]) {
    let n = out.len();
    let rows = rows.map(|r| &r[..n]);
    for i in 0..n {
        let mut sum = weights[0] * rows[0][i];
        for m in 1..W {
            sum += weights[m] * rows[m][i];
        }
        out[i] = sum;
    }
}

#[inline(always)]
fn expand<const W: usize>(line: &[f64], w: &[[f64; W]; 2], out: &mut [f64], add: bool) {
    let n = out.len() / 2;
    let line = &line[..n + W - 1];
    let out = &mut out[..2 * n];
    for i in 0..n {
        let (mut even, mut odd) = (w[0][0] * line[i], w[1][0] * line[i]);
        for m in 1..W {
            even += w[0][m] * line[i + m];
            odd += w[1][m] * line[i + m];
        }
        if add {
            out[2 * i] += even;
            out[2 * i + 1] += odd;
        } else {
            out[2 * i] = even;
            out[2 * i + 1] = odd;
        }
    }
}
