//! Solves whose calling thread only enqueues: the bits of ranks that call, on every path, and refusals.

mod common;

use std::time::Duration;

use hpgmg::comm;
use hpgmg::enqueued::{Enqueued, Form};
use hpgmg::error::Error;
use hpgmg::options::{Bottom, Boundary, Config, Cycle, Operator, Smoother};
use hpgmg::run::{Effort, Outcome, Solver, run};
use libmp::World;

const LIMIT: Duration = Duration::from_secs(60);

/// Residuals, errors and the solution of a run, to the bit.
type Bits = (Vec<u64>, u64, bool);

fn bits(outcome: &Outcome, solution: u64) -> Bits {
    let residuals = outcome.runs.iter().flat_map(|run| &run.first.cycles).map(|c| c.residual);
    let sizes = outcome.runs.iter().flat_map(|run| [run.umax, run.first.fmax]);
    let errors = [outcome.error_2h_h, outcome.error_4h_2h];
    let repeatable = outcome.runs.iter().all(|run| run.repeatable);
    (residuals.chain(sizes).chain(errors).map(f64::to_bits).collect(), solution, repeatable)
}

fn solve(solver: &mut impl Solver) -> Result<Bits, Error> {
    let outcome = run(solver, Effort::Solves(2), |_, _, _| {})?;
    Ok(bits(&outcome, solver.fingerprint(0)?))
}

fn enqueued(worlds: Vec<World>, config: &Config, threads: usize, form: Form) -> Bits {
    let found = comm::libmp::run(worlds, LIMIT, |comm| {
        solve(&mut Enqueued::new(config.clone(), comm, threads, form, LIMIT)?)
    });
    found.unwrap()
}

fn same(config: &Config, ranks: usize, threads: usize) {
    let expected = common::on_ranks(config, ranks, threads, |cpu, _| solve(cpu));
    for form in [Form::Stream, Form::Kernel] {
        let found = enqueued(World::threads(ranks).unwrap(), config, threads, form);
        assert_eq!(found, expected, "{form:?}: {config:?} on {ranks} ranks of {threads} threads");
    }
}

fn config(operator: Operator, boxes_per_rank: usize) -> Config {
    Config { operator, boxes_per_rank, box_dim: 16, ..Config::default() }
}

#[test]
fn streams_and_tasks_that_send_find_the_bits_of_ranks_that_call() {
    same(&config(Operator::Fv4, 8), 1, 1);
    same(&config(Operator::Fv4, 4), 2, 2);
    same(&config(Operator::P27, 1), 8, 1);
    // More ranks than boxes.
    same(&config(Operator::Fv4, 1), 5, 1);
    // Three boxes a side stay three: several ranks solve the coarsest level together.
    same(&config(Operator::Fv4, 9), 3, 1);
}

#[test]
fn so_do_other_cycles_smoothers_and_boundaries() {
    let fv4 = config(Operator::Fv4, 4);
    same(&Config { cycle: Cycle::V, smoother: Smoother::Chebyshev, ..fv4.clone() }, 2, 1);
    same(&Config { cycle: Cycle::Fv, bottom: Bottom::Cg, ..fv4.clone() }, 2, 1);
    same(&Config { boundary: Boundary::Periodic, ..fv4.clone() }, 2, 1);
    same(&Config { smoother: Smoother::Jacobi, bottom: Bottom::Smoother, ..fv4 }, 2, 1);
    // Half-sweeps in pairs, in place.
    same(&Config { box_dim: 64, boxes_per_rank: 1, ..config(Operator::Fv2, 1) }, 2, 1);
    same(&Config { box_dim: 32, ..config(Operator::P7, 4) }, 2, 1);
}

#[test]
fn so_do_ranks_that_a_nic_connects() {
    // Two ranks, and more ranks than boxes.
    for (boxes, ranks) in [(4, 2), (1, 5)] {
        let config = config(Operator::Fv4, boxes);
        let expected = common::on_ranks(&config, ranks, 1, |cpu, _| solve(cpu));
        for path in ["nic", "nic-tcp"] {
            let through = libmp::Config::from_variables([("MP_PATH", path)]).unwrap();
            for form in [Form::Stream, Form::Kernel] {
                let worlds = World::threads_with_config(ranks, &through).unwrap();
                let found = enqueued(worlds, &config, 1, form);
                assert_eq!(found, expected, "{form:?} over {path}, {ranks} ranks");
            }
        }
    }
}

#[test]
fn other_ranks_than_libmps_are_refused_by_name() {
    let config = config(Operator::Fv4, 1);
    let error = Enqueued::new(config, &comm::Alone, 1, Form::Stream, LIMIT).map(drop).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("libmp") && error.contains("alone"), "{error}");
}

#[test]
fn a_rank_that_leaves_ends_the_solve_of_the_others_with_its_number() {
    for form in [Form::Stream, Form::Kernel] {
        let began = std::time::Instant::now();
        let errors = std::sync::Mutex::new(Vec::new());
        let agreed = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for world in World::threads(2).unwrap() {
                let (errors, agreed) = (&errors, &agreed);
                scope.spawn(move || {
                    let comm = comm::libmp::LibmpComm::new(&world, LIMIT);
                    let config = config(Operator::Fv4, 4);
                    let mut solver = Enqueued::new(config, &comm, 1, form, LIMIT).unwrap();
                    // Both are set up, and know it.
                    solver.agree(0, 0.0).unwrap();
                    agreed.wait();
                    if comm::Comm::rank(&comm) == 1 {
                        return;
                    }
                    let mut solved = hpgmg::cycle::Solved::empty();
                    let error = solver.solve(0, &mut solved).unwrap_err();
                    errors.lock().unwrap().push(error.to_string());
                });
            }
        });
        let errors = errors.into_inner().unwrap();
        assert!(errors[0].contains("rank 1"), "{form:?}: {errors:?}");
        assert!(began.elapsed() < LIMIT / 2, "{form:?}: {:?}", began.elapsed());
    }
}
