//! The numbers that the reference program printed, case by case: levels, spectrum, residuals, solution,
//! errors, order. Tolerances are those of the algorithm's description, section 14.

mod common;

use hpgmg::known::{Verdict, judge};
use hpgmg::options::{Bottom, Boundary, Config, Cycle, Equation, Operator, Smoother};
use hpgmg::run::{Effort, run};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    run: String,
    operator: Operator,
    smoother: Smoother,
    bottom: String,
    cycle: Cycle,
    boundary: Boundary,
    equation: Equation,
    log2_box_dim: u32,
    boxes_per_rank: usize,
    ranks: usize,
    boxes: usize,
    dim: usize,
    bottom_iterations: usize,
    /// Cells per side, cells per side of a box, boxes per side, owning ranks.
    levels: Vec<[usize; 4]>,
    lambda_max: Vec<f64>,
    order: f64,
    error_2h_h: f64,
    error_4h_2h: f64,
    solves: Vec<Solve>,
}

#[derive(Deserialize)]
struct Solve {
    dim: usize,
    fmax: f64,
    umax: f64,
    last_cycle: String,
    residual: f64,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("data/golden.json")).unwrap()
}

/// The bottom solver to compare with; the reference's communication-avoiding variants are those of the
/// same space, so their results are compared but not their iterations.
fn bottom(case: &Case) -> (Bottom, bool) {
    match case.bottom.as_str() {
        "bicgstab" => (Bottom::Bicgstab, true),
        "cg" => (Bottom::Cg, true),
        "relax" => (Bottom::Smoother, true),
        "cabicgstab" => (Bottom::Bicgstab, false),
        "cacg" => (Bottom::Cg, false),
        other => panic!("unknown bottom solver {other}"),
    }
}

/// Runs a case and returns what is wrong with it.
fn check(case: &Case) -> Vec<String> {
    let (bottom, same_bottom) = bottom(case);
    let config = Config {
        operator: case.operator,
        smoother: case.smoother,
        cycle: case.cycle,
        boundary: case.boundary,
        equation: case.equation,
        bottom,
        box_dim: 1 << case.log2_box_dim,
        boxes_per_rank: case.boxes_per_rank,
    };
    let (outcome, levels, lambda) = common::on_ranks(&config, case.ranks, 1, |cpu, _| {
        // The first solve of each size is what is compared; that others repeat it, `ranks.rs` checks.
        let outcome = run(cpu, Effort::Solves(0), |_, _, _| {})?;
        let level = |l| {
            let level = cpu.level(l);
            let s = &level.shape;
            ([s.dim, s.box_dim, s.boxes_per_side, s.owners()], level.lambda_max)
        };
        let (levels, lambda): (Vec<_>, Vec<_>) = (0..outcome.timers.levels()).map(level).unzip();
        Ok((outcome, levels, lambda))
    });
    let mut wrong = Vec::new();
    if same_bottom && let Verdict::Fail(text) = judge(&config, &outcome) {
        wrong.push(format!("{}: the verdict is: {text}", case.run));
    }
    let mut close = |what: &str, found: f64, expected: f64, tolerance: f64| {
        let off = (found - expected).abs();
        // NaN is wrong, too.
        let right = off <= tolerance;
        if !right {
            wrong.push(format!(
                "{}: {what} {found:e}, expected {expected:e}: off by {off:.2e}, allowed {tolerance:.1e}",
                case.run
            ));
        }
    };
    for (found, expected) in lambda.iter().zip(&case.lambda_max) {
        close("lambda_max", *found, *expected, 1e-12 * expected);
    }
    for (found, expected) in outcome.runs.iter().zip(&case.solves) {
        assert_eq!(found.dim, expected.dim);
        let last = found.first.cycles.last().unwrap();
        let at = |what| format!("{what} at {}³", found.dim);
        let tolerance = 1e-13 * (found.dim as f64 / 128.0).powi(2);
        close(&at("residual"), last.residual, expected.residual, tolerance);
        close(&at("max|u|"), found.umax, expected.umax, 1e-14 * expected.umax);
        close(&at("max|f|"), found.first.fmax, expected.fmax, 1e-14 * expected.fmax);
    }
    close("error", outcome.error_2h_h, case.error_2h_h, 1e-9 * case.error_2h_h);
    close("error at 2h", outcome.error_4h_2h, case.error_4h_2h, 1e-9 * case.error_4h_2h);
    close("order", outcome.order(), case.order, 1e-8);
    let mut same = |what: &str, found: String, expected: String| {
        if found != expected {
            wrong.push(format!("{}: {what} {found}, expected {expected}", case.run));
        }
    };
    same("levels", format!("{levels:?}"), format!("{:?}", case.levels));
    same("boxes", levels[0][2].pow(3).to_string(), case.boxes.to_string());
    for (found, expected) in outcome.runs.iter().zip(&case.solves) {
        let cycles = &found.first.cycles;
        let v = cycles.iter().filter(|c| c.kind == "v-cycle").count();
        let label = if v == 0 { "f-cycle".into() } else { format!("v-cycle={v}") };
        same(&format!("cycles at {}³", found.dim), label, expected.last_cycle.clone());
    }
    // On a bottom level of one cell the right-hand side is a mean that cancels to zero or to the last
    // bit of it, and with it one iteration.
    if same_bottom && levels.last().is_some_and(|l| l[0] > 1) {
        let iterations = outcome.bottom_iterations.to_string();
        same("bottom iterations", iterations, case.bottom_iterations.to_string());
    }
    wrong
}

fn check_all(select: impl Fn(&Case) -> bool) {
    let cases: Vec<Case> = cases().into_iter().filter(|c| select(c)).collect();
    assert!(!cases.is_empty());
    let wrong: Vec<String> = cases.iter().flat_map(check).collect();
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn fv4_up_to_80_cells_a_side_gives_the_reference_numbers() {
    check_all(|c| c.operator == Operator::Fv4 && c.dim <= 80);
}

#[test]
fn fv2_up_to_80_cells_a_side_gives_the_reference_numbers() {
    check_all(|c| c.operator == Operator::Fv2 && c.dim <= 80);
}

#[test]
fn point_centred_operators_give_the_reference_numbers() {
    check_all(|c| c.operator.is_point_centred());
}

/// What rounding makes of a residual grows with the coefficients, and adds up in the mean of a domain without boundary, which a
/// Jacobi sweep hardly changes.
#[test]
fn the_verdict_knows_what_rounding_makes_of_large_coefficients() {
    for (smoother, box_dim) in
        [(Smoother::L1Jacobi, 32), (Smoother::Jacobi, 64), (Smoother::L1Jacobi, 64)]
    {
        let config = Config {
            operator: Operator::P7,
            smoother,
            boundary: Boundary::Periodic,
            equation: Equation::Helmholtz,
            box_dim,
            ..Config::default()
        };
        let mut outcome =
            common::on_ranks(&config, 1, 1, |cpu, _| run(cpu, Effort::Solves(0), |_, _, _| {}));
        let verdict = judge(&config, &outcome);
        assert!(matches!(verdict, Verdict::Pass(_)), "{smoother:?}, {box_dim}³: {verdict:?}");
        outcome.runs[0].first.cycles.last_mut().unwrap().residual += 1e-12;
        assert!(matches!(judge(&config, &outcome), Verdict::Fail(_)), "{smoother:?}, {box_dim}³");
    }
}

#[test]
fn grids_of_128_cells_a_side_give_the_reference_numbers() {
    check_all(|c| c.dim == 128);
}

#[test]
#[ignore = "needs a few minutes and 2 GiB of memory"]
fn grids_of_256_cells_a_side_give_the_reference_numbers() {
    check_all(|c| c.dim == 256);
}
