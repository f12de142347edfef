//! What a rank of several sets up for its GPU is what it would take of the whole problem.

use std::time::Duration;

use super::layout::{self, Boxes, Grid};
use super::{Cut, check_memory, set_up_all};
use crate::backend::Vector;
use crate::comm::Alone;
use crate::comm::Comm;
use crate::cpu::Cpu;
use crate::launch::on_threads;
use crate::options::{Config, Equation, Operator, Smoother};

const LIMIT: Duration = Duration::from_secs(120);

const UPLOADED: [Vector; 7] = [
    Vector::F,
    Vector::Dinv,
    Vector::Beta(0),
    Vector::Beta(1),
    Vector::Beta(2),
    Vector::Alpha,
    Vector::L1Inv,
];

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Compares what `ranks` ranks set up with the whole problem; returns how many levels are cut.
fn compare(config: &Config, ranks: usize, cut: Cut<'_>) -> usize {
    on_threads(ranks, LIMIT, |comm| {
        let whole = Cpu::new(config.clone(), &Alone, 1)?;
        let part = set_up_all(config.clone(), comm, cut, 2)?;
        let part = part.borrow();
        let mut cut_levels = 0;
        for l in 0..whole.timers.levels() {
            let (found, expected) = (part.level(l), whole.level(l));
            let what = format!("{config:?} {cut:?}, rank {} of {ranks}, level {l}", comm.rank());
            assert_eq!(found.lambda_max, expected.lambda_max, "{what}");
            for v in UPLOADED {
                let field = expected.field(v);
                let Some(slab) = &found.slab else {
                    assert_eq!(bits(found.field(v)), bits(field), "{what}, {v:?}");
                    continue;
                };
                assert!(found.field(v).is_empty(), "{what}, {v:?} is there twice");
                assert_eq!(slab.field(v).is_empty(), field.is_empty(), "{what}, {v:?}");
                if field.is_empty() {
                    continue;
                }
                let (boxes, part) = (Boxes::of(expected), slab.part());
                let n = expected.shape.dim;
                let grid = Grid::part(n, part).with_around(3);
                let mut uploaded = [vec![f64::NAN; grid.volume()], vec![f64::NAN; grid.volume()]];
                // Of a neighbour's, whole sweeps read two planes of the coefficients.
                let beyond = if matches!(v, Vector::Beta(_)) { 2 } else { 1 };
                let planes = grid.planes().start - beyond..grid.planes().end + beyond;
                for k in planes.start.max(-1)..planes.end.min(n as isize + 1) {
                    layout::gather_from_slab(slab, slab.field(v), &grid, k, 0, &mut uploaded[0]);
                    layout::gather_plane(boxes, field, &grid, k, 0, &mut uploaded[1]);
                }
                assert_eq!(bits(&uploaded[0]), bits(&uploaded[1]), "{what}, {v:?}");
            }
            cut_levels += usize::from(found.slab.is_some());
        }
        Ok(cut_levels)
    })
    .unwrap()
}

#[test]
fn parts_of_several_ranks_are_those_of_the_whole_problem_bit_by_bit() {
    let base = Config { box_dim: 16, ..Config::default() };
    for (operator, equation, smoother, box_dim, boxes_per_rank, cuts) in [
        (
            Operator::Fv4,
            Equation::Poisson,
            Smoother::Gsrb,
            64,
            1,
            &[([1, 1, 2], 8, 3), ([1, 1, 3], 32, 1), ([2, 2, 2], 8, 3), ([1, 2, 1], 8, 3)][..],
        ),
        (
            Operator::Fv4,
            Equation::Helmholtz,
            Smoother::L1Jacobi,
            16,
            27,
            &[([1, 1, 2], 12, 2), ([1, 1, 5], 24, 1), ([2, 3, 1], 12, 2)],
        ),
        (
            Operator::Fv2,
            Equation::Helmholtz,
            Smoother::L1Jacobi,
            16,
            8,
            &[([1, 1, 2], 4, 2), ([1, 1, 4], 8, 2), ([1, 2, 2], 4, 2)],
        ),
        (Operator::Fv2, Equation::Poisson, Smoother::Chebyshev, 32, 8, &[([1, 1, 3], 8, 3)]),
    ] {
        let config =
            Config { operator, equation, smoother, box_dim, boxes_per_rank, ..base.clone() };
        for &(along, limit, levels) in cuts {
            let cut = Cut { whole: [limit; 2], along: &[along], ..Cut::default() };
            let ranks = along.iter().product();
            assert_eq!(compare(&config, ranks, cut), levels, "{config:?} {along:?} {limit}");
        }
    }
}

#[test]
fn coarse_levels_of_the_cpu_are_whole_on_every_rank() {
    let config = Config { box_dim: 64, ..Config::default() };
    let cut = Cut { whole: [4; 2], threshold: 40_000, ..Cut::default() };
    assert_eq!(compare(&config, 2, cut), 1);
}

#[test]
fn a_rank_of_several_needs_about_its_share_of_the_memory() {
    let config = Config { box_dim: 128, boxes_per_rank: 1, ..Config::default() };
    let cut = Cut::default();
    // 256³ cells: five vectors of an eighth, and something around them.
    let share = 256u64.pow(3) / 8 * 5 * 8;
    assert!(check_memory(&config, 8, cut, share).is_err());
    assert_eq!(check_memory(&config, 8, cut, 2 * share), Ok(()));
}

/// Run by itself, with `--nocapture`, for the figures of the documentation.
#[test]
#[ignore = "needs a machine of its own, and up to 4 GiB"]
fn times_of_setting_up() {
    for (log2, ranks) in [(7, 1), (7, 2), (8, 1), (8, 2)] {
        let config = Config { box_dim: 1 << (log2 - 1), boxes_per_rank: 8, ..Config::default() };
        let cut = Cut::default();
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let begin = std::time::Instant::now();
        on_threads(ranks, LIMIT, |comm| {
            let part = set_up_all(config.clone(), comm, cut, (threads / ranks).max(1))?;
            // Nobody's memory is given back before all have theirs.
            if let Some(mut group) = comm.group(&(0..ranks).collect::<Vec<_>>())? {
                group.max(&mut [0.0])?;
            }
            drop(part);
            Ok(())
        })
        .unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
        println!("{}³ on {ranks} ranks: {:?}, so far {peak}", 1 << log2, begin.elapsed());
    }
}
