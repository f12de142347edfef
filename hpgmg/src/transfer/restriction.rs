//! Restriction: 8-cell means of cell values, 4-face means of the coefficients.

use super::{Side, coarse_of};
use crate::block::{Block, Phase, View, tile};
use crate::comm::{Comm, CommError};
use crate::halo::{Entity, copy_blocks};
use crate::isa::Isa;
use crate::route::Route;
use crate::rows::SharedVector;
use crate::team::Team;
use crate::work::Stage;

/// Restriction of one kind of value from a level to the next coarser one.
pub struct Restriction {
    /// The lists and messages.
    pub route: Route,
    entity: Entity,
}

/// The lists of a restriction. Pack and local blocks compute means; unpack blocks copy.
fn restriction_phase(rank: usize, fine: Side<'_>, coarse: Side<'_>, entity: Entity) -> Phase {
    let mut dims = [fine.geometry.n / 2; 3];
    if let Entity::Faces(axis) = entity {
        dims[axis] += 1;
    }
    let cells: usize = dims.iter().product();
    let mut phase = Phase::default();
    for id in 0..fine.shape.boxes() {
        let (target, corner) = coarse_of(fine.shape, coarse.shape, id);
        let source_rank = fine.shape.rank_of_box[id] as usize;
        let target_rank = coarse.shape.rank_of_box[target] as usize;
        let from = fine.view(id, [0; 3]);
        let to = coarse.view(target, corner);
        if source_rank == rank && target_rank == rank {
            phase.local.push(Block { dims, from, to });
        } else if source_rank == rank {
            let n = phase.neighbour(target_rank);
            n.pack.push(Block { dims, from, to: View::dense(n.send, dims) });
            n.send += cells;
        } else if target_rank == rank {
            let n = phase.neighbour(source_rank);
            n.unpack.push(Block { dims, from: View::dense(n.receive, dims), to });
            n.receive += cells;
        }
    }
    phase
}

impl Restriction {
    /// Prepares a restriction.
    ///
    /// # Errors
    /// [`CommError`] when the messages cannot be prepared.
    pub(crate) fn new(
        comm: &dyn Comm,
        fine: Side<'_>,
        coarse: Side<'_>,
        entity: Entity,
        tag: i32,
    ) -> Result<Self, CommError> {
        const TILE: usize = 16;
        let phase = restriction_phase(comm.rank(), fine, coarse, entity);
        let route = Route::new(comm, tag, phase, |phase| {
            phase.local = tile(&phase.local, TILE, 2);
            for n in &mut phase.neighbours {
                n.pack = tile(&n.pack, TILE, 2);
                n.unpack = tile(&n.unpack, TILE, 1);
            }
        })?;
        Ok(Self { route, entity })
    }

    /// `coarse = means of fine`, all stages.
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    pub fn run(
        &mut self,
        team: &Team,
        isa: Isa,
        fine: &[f64],
        coarse: &mut [f64],
    ) -> Result<(), CommError> {
        Stage::ALL.into_iter().try_for_each(|stage| self.stage(stage, team, isa, fine, coarse))
    }

    /// A stage of it; the last is empty.
    ///
    /// # Errors
    /// [`CommError`] on deadline or peer failure.
    pub fn stage(
        &mut self,
        stage: Stage,
        team: &Team,
        isa: Isa,
        fine: &[f64],
        coarse: &mut [f64],
    ) -> Result<(), CommError> {
        let Self { route, entity } = self;
        match stage {
            Stage::Pack => route
                .send(|blocks, buffer| restrict_blocks(team, isa, *entity, blocks, fine, buffer)),
            Stage::Here => {
                restrict_blocks(team, isa, *entity, route.local(), fine, coarse);
                Ok(())
            }
            Stage::Unpack => {
                route.receive(|blocks, buffer| copy_blocks(team, blocks, buffer, coarse))
            }
            Stage::Rest => Ok(()),
        }
    }
}

fn restrict_blocks(
    team: &Team,
    isa: Isa,
    entity: Entity,
    blocks: &[Block],
    fine: &[f64],
    coarse: &mut [f64],
) {
    let out = SharedVector::new(coarse);
    let work = 8 * blocks.iter().map(Block::cells).sum::<usize>();
    team.run(blocks.len(), work, &|index, _| {
        let b = &blocks[index];
        isa.call(
            #[inline(always)]
            || {
                for k in 0..b.dims[2] {
                    for j in 0..b.dims[1] {
                        // SAFETY: the destinations of a list do not overlap.
                        let out = unsafe { out.row(b.to.row(j, k), b.dims[0]) };
                        restrict_row(entity, fine, b.from.row(2 * j, 2 * k), &b.from, out);
                    }
                }
            },
        );
    });
}

/// One coarse row; `at` is its first fine cell. The four fine values of a face lie in its plane.
#[inline(always)]
pub fn restrict_row(entity: Entity, fine: &[f64], at: usize, view: &View, out: &mut [f64]) {
    let n = out.len();
    let row = |at: usize| &fine[at..][..2 * n];
    match entity {
        Entity::Cells => {
            let (a, b) = (row(at), row(at + view.pitch));
            let (c, d) = (row(at + view.plane), row(at + view.plane + view.pitch));
            for i in 0..n {
                let pair = |r: &[f64]| r[2 * i] + r[2 * i + 1];
                out[i] = 0.125 * ((pair(a) + pair(b)) + (pair(c) + pair(d)));
            }
        }
        Entity::Faces(0) => {
            // Every second face; the last one has no fine cell behind it in the box.
            let row = |at: usize| &fine[at..][..2 * n - 1];
            let (a, b) = (row(at), row(at + view.pitch));
            let (c, d) = (row(at + view.plane), row(at + view.plane + view.pitch));
            for i in 0..n {
                out[i] = 0.25 * ((a[2 * i] + b[2 * i]) + (c[2 * i] + d[2 * i]));
            }
        }
        Entity::Faces(axis) => {
            let side = if axis == 1 { view.plane } else { view.pitch };
            let (a, b) = (row(at), row(at + side));
            for i in 0..n {
                let pair = |r: &[f64]| r[2 * i] + r[2 * i + 1];
                out[i] = 0.25 * (pair(a) + pair(b));
            }
        }
    }
}
