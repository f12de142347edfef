//! A red and a black half-sweep of GSRB fused, so that the vectors of a level pass through memory once
//! for both.
//!
//! The red half-sweep goes from `x` to `Temp`, the black one from `Temp` back to `x`, a few planes
//! behind it in the same block of rows. What makes that possible with one halo exchange in between is
//! that the outer layers of every box, which the neighbours and the boundary rule read, are made red
//! first; the fused sweep computes them again, to the same bits, on its way. Blocks are
//! parallelograms: black lags red by the stencil's radius in j and k, so that no red cell reads a
//! black one and nothing is computed twice inside. The result is that of two separate half-sweeps.

use std::ops::Range;
use std::time::Instant;

use crate::backend::Vector;
use crate::comm::CommError;
use crate::cpu::{Cpu, Step, box_coefficients, run_tiles};
use crate::operators::Tile;
use crate::rows::SharedVector;
use crate::sweep::{self, Pass, Update};
use crate::timers::Phase;

/// Cells per side from which the extra work on the outer layers pays.
pub const SMALLEST_BOX: usize = 32;
/// Rows and planes of a block: what a block touches stays in the second-level cache.
const ROWS: usize = 16;
const PLANES: usize = 4;

/// Half-sweeps `sweep` and `sweep + 1` on `A x = rhs`; the level has a shell.
///
/// # Errors
/// [`CommError`] when the ranks lose each other.
pub fn pair(
    cpu: &mut Cpu,
    l: usize,
    x: Vector,
    rhs: Vector,
    sweep: usize,
) -> Result<(), CommError> {
    let rule = cpu.boundary_rule(l);
    let Cpu { config, levels, team, isa, timers, .. } = cpu;
    let level = &mut levels[l];
    let (mut source, mut red) = (level.take(x), level.take(Vector::Temp));

    let clock = Instant::now();
    level.halo.start(team, &mut source, rule)?;
    level.halo.finish(team, &mut source, rule)?;
    let clock = timers.add(l, Phase::Exchange, clock);
    let step = Step::Gsrb { rhs, sweep };
    run_tiles(config, team, *isa, level, &level.shell, &source, &mut red, step);
    let clock = timers.add(l, Phase::Smooth, clock);
    level.halo.start(team, &mut red, rule)?;
    level.halo.finish(team, &mut red, rule)?;
    let clock = timers.add(l, Phase::Exchange, clock);

    let (g, operator) = (level.geometry, config.operator);
    let (fields, boxes, shape) = (&level.fields, &level.boxes, &level.shape);
    let (x_shared, red_shared) = (SharedVector::new(&mut source), SharedVector::new(&mut red));
    team.run(boxes.len(), usize::MAX, &|index, scratch| {
        let base = index * g.volume;
        let of = |v: Vector| &fields[v.index()][base..base + g.volume];
        let origin = g.n * shape.coordinates(boxes[index]).iter().sum::<usize>();
        let mut half = |sweep, from: SharedVector<'_>, out, j: Range<usize>, k: Range<usize>| {
            let pass = Pass {
                geometry: g,
                coefficients: box_coefficients(config, fields, shape, base, g.volume),
                // SAFETY: only this task touches the box, and this half-sweep writes the other vector.
                x: unsafe { from.read(base, g.volume) },
                out,
                base,
                update: Update::Gsrb {
                    rhs: of(rhs),
                    dinv: of(Vector::Dinv),
                    parity: origin + sweep,
                },
            };
            // SAFETY: as above.
            unsafe { sweep::run(*isa, operator, &pass, &Tile { index, i: 0..g.n, j, k }, scratch) };
        };
        for j in blocks(g.n, ROWS, operator.radius()) {
            for k in blocks(g.n, PLANES, operator.radius()) {
                half(sweep, x_shared, red_shared, j.red.clone(), k.red.clone());
                half(sweep + 1, red_shared, x_shared, j.black.clone(), k.black.clone());
            }
        }
    });
    timers.add(l, Phase::Smooth, clock);
    level.put(x, source);
    level.put(Vector::Temp, red);
    Ok(())
}

/// A range of rows or planes to be made red, and the one to be made black after it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    red: Range<usize>,
    black: Range<usize>,
}

/// Cuts `0..n` into blocks of `step` whose black part lags by `lag`.
fn blocks(n: usize, step: usize, lag: usize) -> impl Iterator<Item = Block> {
    let shift = move |edge: usize| if edge == 0 || edge == n { edge } else { edge - lag };
    (0..n).step_by(step).map(move |start| {
        let end = n.min(start + step);
        Block { red: start..end, black: shift(start)..shift(end) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn black_covers_every_row_once_and_never_reads_ahead_of_red_or_spoils_what_red_will_read() {
        for (n, step, lag) in [(32, 16, 2), (40, 16, 1), (64, 4, 2), (36, 8, 2)] {
            let mut next = (0, 0);
            for b in blocks(n, step, lag) {
                assert_eq!((b.red.start, b.black.start), next);
                let ready = b.red.end;
                assert!(b.black.end + lag <= ready || ready == n);
                assert!(b.black.end <= b.red.end.saturating_sub(lag) || ready == n);
                next = (b.red.end, b.black.end);
            }
            assert_eq!(next, (n, n));
        }
    }
}
