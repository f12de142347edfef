//! Coefficients and right-hand sides of slabs of several levels, from the formulas of the finest one.
//!
//! What restriction makes of a pencil, all cells along i of as many rows and planes as lie under one row of the coarsest
//! level, depends on that pencil alone. So pencil after pencil is computed and restricted in a cache, and the cells that
//! this rank has of each level are kept. It has all of the coarsest one then without asking other ranks for theirs. The
//! numbers are those of a rank that has everything, bit by bit.

use crate::backend::Vector;
use crate::block::View;
use crate::field::Field;
use crate::halo::Entity;
use crate::isa::Isa;
use crate::problem::{Axis, Problem};
use crate::rows::SharedVector;
use crate::slab::Slab;
use crate::team::Team;
use crate::transfer::restrict_row;

/// Levels that have a right-hand side: solves may start from them.
pub const STARTS: usize = 3;

/// Fills the coefficients and the right-hand sides of `slabs`, finest first, each of half as many cells a side as the one
/// before, with what `problem` says on the finest.
pub fn fill(team: &Team, isa: Isa, problem: &Problem, slabs: &mut [Slab]) {
    for axis in 0..3 {
        fill_one(team, isa, problem, slabs, Some(axis));
    }
    let starts = slabs.len().min(STARTS);
    fill_one(team, isa, problem, &mut slabs[..starts], None);
}

/// The coefficient of one normal, or the right-hand side.
fn fill_one(team: &Team, isa: Isa, problem: &Problem, slabs: &mut [Slab], normal: Option<usize>) {
    let Some(n) = slabs.first().map(Slab::n) else { return };
    let v = normal.map_or(Vector::F, |axis| Vector::Beta(axis as u8));
    let entity = normal.map_or(Entity::Cells, Entity::Faces);
    // There is one face more than cells.
    let more: [usize; 3] = std::array::from_fn(|axis| usize::from(normal == Some(axis)));
    let [x, y, z] = std::array::from_fn(|axis| problem.along(0, n + more[axis], more[axis] == 1));
    let side = 1 << (slabs.len() - 1);
    // The domain's last faces are a pencil by themselves, one row or plane thin.
    let pencils = |axis: usize| n / side + more[axis];
    let rows = |axis: usize, p: usize| p * side..((p + 1) * side).min(n + more[axis]);
    let mut fields: Vec<Field> = slabs.iter_mut().map(|slab| slab.take(v)).collect();
    {
        let outputs: Vec<_> = fields.iter_mut().map(|f| SharedVector::new(f)).collect();
        let slabs = &*slabs;
        let count = pencils(1) * pencils(2);
        team.share(count, n * n * n, &Buffers::default, &|buffers, pencil| {
            let (js, ks) = (rows(1, pencil % pencils(1)), rows(2, pencil / pencils(1)));
            let kept = |(l, slab): (usize, &Slab)| {
                [(1, &js), (2, &ks)].into_iter().all(|(axis, cells)| {
                    let stored = slab.stored(axis, slab.n() + more[axis]);
                    stored.start << l < cells.end && cells.start < stored.end << l
                })
            };
            if !slabs.iter().enumerate().any(kept) {
                return;
            }
            let [fine, coarse] = &mut buffers.0;
            evaluate(problem, normal, [&x, &y[js.clone()], &z[ks.clone()]], fine);
            let mut dims = [x.len(), js.len(), ks.len()];
            for (l, (slab, out)) in slabs.iter().zip(&outputs).enumerate() {
                let stored = [0, 1, 2].map(|axis| slab.stored(axis, slab.n() + more[axis]));
                for (row, values) in fine.chunks_exact(dims[0]).take(dims[1] * dims[2]).enumerate()
                {
                    let (j, k) = ((js.start >> l) + row % dims[1], (ks.start >> l) + row / dims[1]);
                    if stored[1].contains(&j) && stored[2].contains(&k) {
                        let at = slab.at(stored[0].start as isize, j as isize, k as isize);
                        let values = &values[stored[0].clone()];
                        // SAFETY: every row is one pencil's.
                        unsafe { out.row(at, values.len()) }.copy_from_slice(values);
                    }
                }
                if l + 1 < slabs.len() {
                    dims = restrict(isa, entity, fine, dims, coarse);
                    std::mem::swap(fine, coarse);
                }
            }
        });
    }
    for (slab, field) in slabs.iter_mut().zip(fields) {
        slab.put(v, field);
    }
}

/// A pencil of a level and of the next coarser one, dense; each is as long as it ever had to be.
#[derive(Default)]
struct Buffers([Vec<f64>; 2]);

fn at_least(buffer: &mut Vec<f64>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
}

/// The formulas between axes.
fn evaluate(problem: &Problem, normal: Option<usize>, [x, y, z]: [&[Axis]; 3], out: &mut Vec<f64>) {
    at_least(out, x.len() * y.len() * z.len());
    let positions = z.iter().flat_map(|z| y.iter().map(move |y| (y, z)));
    for ((y, z), row) in positions.zip(out.chunks_exact_mut(x.len())) {
        problem.row(normal, x, y, z, row);
    }
}

/// Restricts a pencil of `dims`; returns the dimensions of the coarse one.
fn restrict(
    isa: Isa,
    entity: Entity,
    fine: &[f64],
    dims: [usize; 3],
    coarse: &mut Vec<f64>,
) -> [usize; 3] {
    // Every second face.
    let half = dims.map(|n| n.div_ceil(2));
    at_least(coarse, half.iter().product());
    let view = View::dense(0, dims);
    isa.call(
        #[inline(always)]
        || {
            for (row, out) in coarse.chunks_exact_mut(half[0]).take(half[1] * half[2]).enumerate() {
                let (j, k): (usize, usize) = (row % half[1], row / half[1]);
                restrict_row(entity, fine, view.row(2 * j, 2 * k), &view, out);
            }
        },
    );
    half
}
