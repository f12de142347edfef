//! The same bits on any number of ranks and threads.

mod common;

use std::sync::Mutex;

use hpgmg::backend::Vector;
use hpgmg::options::{Bottom, Boundary, Config, Equation, Operator, Smoother};
use hpgmg::run::{Effort, run};

/// The bits of a run: residuals and errors, and the solution of every box.
#[derive(Debug, PartialEq)]
struct Bits {
    numbers: Vec<u64>,
    boxes: Vec<(usize, Vec<u64>)>,
}

fn bits(config: &Config, boxes: usize, ranks: usize, threads: usize) -> Bits {
    let config = Config { boxes_per_rank: boxes.div_ceil(ranks), ..config.clone() };
    let solution = Mutex::new(Vec::new());
    let outcome = common::on_ranks(&config, ranks, threads, |cpu, _| {
        let outcome = run(cpu, Effort::Solves(1), |_, _, _| {})?;
        let level = cpu.level(0);
        assert_eq!(level.shape.boxes(), boxes);
        for (index, &id) in level.boxes.iter().enumerate() {
            let g = level.geometry;
            let field = &level.field(Vector::U)[index * g.volume..][..g.volume];
            let rows = (0..g.n * g.n).map(|r| g.row(r % g.n, r / g.n));
            let bits = rows.flat_map(|at| field[at..at + g.n].iter().map(|x| x.to_bits()));
            solution.lock().unwrap().push((id, bits.collect()));
        }
        Ok(outcome)
    });
    let mut boxes = solution.into_inner().unwrap();
    boxes.sort();
    let mut numbers = vec![outcome.error_2h_h.to_bits(), outcome.error_4h_2h.to_bits()];
    for run in &outcome.runs {
        numbers.push(run.umax.to_bits());
        numbers.extend(run.first.cycles.iter().map(|c| c.residual.to_bits()));
        assert!(run.repeatable);
    }
    Bits { numbers, boxes }
}

fn same_on(config: &Config, boxes: usize, ways: &[(usize, usize)]) {
    let expected = bits(config, boxes, 1, 1);
    for &(ranks, threads) in ways {
        let found = bits(config, boxes, ranks, threads);
        assert!(found == expected, "{config:?}: {ranks} ranks × {threads} threads differ from one");
    }
}

const WAYS: [(usize, usize); 9] =
    [(1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1), (4, 2), (8, 1), (8, 2)];

#[test]
fn eight_boxes_give_the_same_bits_on_1_2_3_4_and_8_ranks_with_1_and_2_threads() {
    for operator in [Operator::Fv4, Operator::Fv2, Operator::P7, Operator::P27] {
        same_on(&Config { operator, box_dim: 32, ..Config::default() }, 8, &WAYS);
    }
}

#[test]
fn half_sweeps_fused_tile_by_tile_give_the_bits_of_half_sweeps_out_of_place() {
    // One thread fuses them, two do not; boxes of 96 cells have three tiles.
    for operator in [Operator::Fv2, Operator::P7] {
        for equation in [Equation::Poisson, Equation::Helmholtz] {
            let config = Config { operator, equation, box_dim: 96, ..Config::default() };
            same_on(&config, 1, &[(1, 2)]);
        }
    }
}

#[test]
fn every_smoother_and_bottom_solver_gives_the_same_bits_on_more_ranks() {
    for smoother in [Smoother::Chebyshev, Smoother::Jacobi, Smoother::L1Jacobi] {
        for bottom in [Bottom::Bicgstab, Bottom::Cg, Bottom::Smoother] {
            let config = Config { smoother, bottom, box_dim: 16, ..Config::default() };
            same_on(&config, 8, &[(3, 2), (8, 1)]);
        }
    }
}

#[test]
fn odd_box_counts_and_more_ranks_than_boxes_give_the_same_bits() {
    let config = Config { box_dim: 16, ..Config::default() };
    same_on(&config, 27, &[(2, 1), (4, 2), (5, 1), (27, 1)]);
    same_on(&Config { operator: Operator::Fv2, ..config.clone() }, 27, &[(4, 1), (13, 1)]);
    same_on(&config, 1, &[(2, 1), (7, 2)]);
}

#[test]
fn periodic_domains_and_helmholtz_give_the_same_bits_because_sums_are_formed_per_box() {
    for operator in [Operator::Fv4, Operator::Fv2] {
        for equation in [Equation::Poisson, Equation::Helmholtz] {
            let boundary = Boundary::Periodic;
            let config = Config { operator, boundary, equation, box_dim: 16, ..Config::default() };
            same_on(&config, 8, &[(1, 2), (3, 1), (8, 1)]);
        }
    }
}
