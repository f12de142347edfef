//! What the solver should find: values printed by the reference program, and the verdict on a run.
//!
//! Every run is judged, and the verdict says by what. Where the reference program has been run with the same settings at the
//! same size (`data/known.tsv`: commit a93ff237 of HPGMG, compiled without contraction of floating-point operations, one
//! thread, numbers printed with 17 digits), its numbers have to come out. Elsewhere there are bounds:
//! the reference's numbers at the nearest size it has been run at, carried over by the order of the discretisation.

use crate::cycle::{Solved, TOLERANCE};
use crate::options::{Boundary, Config, Cycle, Operator, Smoother};
use crate::run::Outcome;

const TABLE: &str = include_str!("data/known.tsv");

/// The reference program's numbers for one configuration and grid.
///
/// ```
/// use hpgmg::known::known;
/// use hpgmg::options::Config;
///
/// // What the reference program finds with the settings of the benchmark on 64³.
/// if let Some(reference) = known(&Config::default(), 64) {
///     println!("residual {:e}, order {:.3}", reference.residual, reference.order);
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Cells per side.
    pub dim: usize,
    /// Residual of the solve on the finest grid.
    pub residual: f64,
    /// max |u_2h − R u_h|.
    pub error_2h_h: f64,
    /// Observed order.
    pub order: f64,
    /// max |u| on the finest grid.
    pub umax: f64,
}

/// Name of an option's value as on the command line.
pub fn name(value: impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}

/// A configuration as the table's columns name it.
fn key(config: &Config) -> [String; 6] {
    [
        name(config.operator),
        name(config.smoother),
        name(config.cycle),
        name(config.boundary),
        name(config.equation),
        name(config.bottom),
    ]
}

/// The rows of the table: settings and numbers.
fn rows() -> impl Iterator<Item = ([&'static str; 6], Known)> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut fields = line.split('\t');
        let mut key = [""; 6];
        for part in &mut key {
            *part = fields.next()?;
        }
        let dim = fields.next()?.parse().ok()?;
        let mut number = || fields.next()?.parse().ok();
        let (residual, error_2h_h, order) = (number()?, number()?, number()?);
        Some((key, Known { dim, residual, error_2h_h, order, umax: number()? }))
    })
}

/// The reference program's numbers for `config` on a grid of `dim`³ cells, if it has been run.
pub fn known(config: &Config, dim: usize) -> Option<Known> {
    let key = key(config);
    rows().find(|(row, known)| known.dim == dim && *row == key).map(|(_, known)| known)
}

/// The reference program's numbers at the size nearest to `dim`, with settings that share with `config` as many as possible
/// of: operator, boundary, equation (always), cycle, smoother, bottom solver. Of two sizes as near the finer.
fn nearest(config: &Config, dim: usize) -> Option<Known> {
    let key = key(config);
    let distance = |known: &Known| (known.dim as f64 / dim as f64).log2().abs();
    rows()
        .filter(|(row, known)| known.dim != dim && [0, 3, 4].iter().all(|&i| row[i] == key[i]))
        .max_by(|(a, near), (b, far)| {
            let shared = |row: &[&str; 6]| [2, 1, 5].map(|i: usize| row[i] == key[i]);
            shared(a).cmp(&shared(b)).then(distance(far).total_cmp(&distance(near)))
        })
        .map(|(_, known)| known)
}

/// True when the numbers are at most `tolerance` apart; never for NaN.
fn within(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance
}

/// The judgement on a run.
///
/// See [the crate](crate) for an example.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// As expected; the text says what was compared.
    Pass(String),
    /// Not as expected.
    Fail(String),
}

/// Judges a run: all numbers are finite, all solves found the same, iterated cycles converged at the rate of a multigrid
/// method; then by the reference program's numbers, or where there are none by bounds.
pub fn judge(config: &Config, outcome: &Outcome) -> Verdict {
    let dim = outcome.runs.first().map_or(0, |run| run.dim);
    judge_by(config, outcome, known(config, dim))
}

/// Judges a run with the reference's numbers at its size, or without.
pub(crate) fn judge_by(config: &Config, outcome: &Outcome, known: Option<Known>) -> Verdict {
    let judged = sound(config, outcome).and_then(|sound| {
        let rest = match known {
            Some(known) => compare(config.operator, outcome, &known)?,
            None => bounded(config, outcome)?,
        };
        Ok(format!("{sound}; {rest}"))
    });
    judged.map_or_else(Verdict::Fail, Verdict::Pass)
}

/// Every V-cycle but the first from zero leaves at most this share of the residual: more than twice what the slowest of the
/// settings in the table leaves at 16³ to 64³ (`tests/golden.rs`). The coefficients of the 7-point operator jump.
fn slowest(operator: Operator) -> f64 {
    if operator == Operator::P7 { 0.75 } else { 0.25 }
}

/// What has to hold for any settings and size; the text says what that is.
fn sound(config: &Config, outcome: &Outcome) -> Result<String, String> {
    if outcome.runs.is_empty() {
        return Err("nothing was solved".into());
    }
    for run in &outcome.runs {
        let dim = run.dim;
        let Solved { fmax, cycles, .. } = &run.first;
        let Some(last) = cycles.last() else { return Err(format!("no cycle was run at {dim}³")) };
        let residuals = cycles.iter().flat_map(|c| [c.residual, c.relative]);
        if !residuals.chain([*fmax, run.umax]).all(f64::is_finite) {
            return Err(format!("a number at {dim}³ is not finite"));
        }
        if !(*fmax > 0.0 && run.umax > 0.0) {
            return Err(format!("right-hand side or solution at {dim}³ is zero"));
        }
        if !run.repeatable {
            return Err(format!("repeated solves at {dim}³ differ"));
        }
        if config.cycle == Cycle::F {
            continue;
        }
        if last.relative >= TOLERANCE {
            let (relative, count) = (last.relative, cycles.len());
            return Err(format!(
                "relative residual {relative:e} at {dim}³ after {count} cycles is not below {TOLERANCE:e}"
            ));
        }
        let most = slowest(config.operator);
        for (before, cycle) in cycles.iter().zip(&cycles[1..]) {
            let share = cycle.residual / before.residual;
            if share > most {
                return Err(format!(
                    "a V-cycle at {dim}³ left {share:.2} of the residual, more than {most}"
                ));
            }
        }
    }
    let (fine, coarse) = (outcome.error_2h_h, outcome.error_4h_2h);
    if !(fine.is_finite() && coarse.is_finite() && fine > 0.0 && coarse > 0.0) {
        return Err(format!("errors {fine:e} and {coarse:e} give no order"));
    }
    Ok(match config.cycle {
        Cycle::F => "all finite, repeated solves agree".into(),
        _ => format!(
            "all finite, repeated solves agree, every V-cycle left at most {} of the residual and the last less than \
             {TOLERANCE:e} of max |f|",
            slowest(config.operator)
        ),
    })
}

/// The finest size's last residual and max |u|; there is one, see [`sound`].
fn finest(outcome: &Outcome) -> Result<(f64, f64), String> {
    let run = outcome.runs.first().ok_or("nothing was solved")?;
    let last = run.first.cycles.last().ok_or("no cycle was run")?;
    Ok((last.residual, run.umax))
}

/// The largest coefficient of an operator, to one digit. That of the 7-point operator jumps from 1 to 10.
fn largest_coefficient(operator: Operator) -> f64 {
    if operator == Operator::P7 { 10.0 } else { 1.0 }
}

/// Compares with the reference's numbers at the same size. Residuals differ by what rounding makes of them, ε ‖A‖ max |u|: with
/// the number of cells a side squared, and with the coefficients. It shows where it can add up, in the mean of a domain without
/// boundary, which smoothers leave alone.
fn compare(operator: Operator, outcome: &Outcome, known: &Known) -> Result<String, String> {
    let (residual, umax) = finest(outcome)?;
    let scale = (known.dim as f64 / 128.0).powi(2) * largest_coefficient(operator);
    for (what, found, expected, tolerance) in [
        ("residual", residual, known.residual, 1e-13 * scale),
        ("error", outcome.error_2h_h, known.error_2h_h, 1e-9 * known.error_2h_h),
        ("order", outcome.order(), known.order, 1e-8),
        ("max |u|", umax, known.umax, 1e-12 * known.umax),
    ] {
        if !within(found, expected, tolerance) {
            return Err(format!(
                "{what} {found:e} is not the reference's {expected:e} (within {tolerance:.1e})"
            ));
        }
    }
    Ok(format!("residual, error, order and max |u| are the reference's (order {:.6})", known.order))
}

/// Compares with what follows from the reference's numbers at the nearest size N₀, a distance d = |log₂ N/N₀| away, for a
/// discretisation of order p. The error is that of N₀ times (N₀/N)^p, within a factor 2·4^d. The order is that of N₀
/// within 0.5 + 4 d at 64³ (where [`reaches_design_order`] says no, 1.5 more), more or less room in inverse proportion to the coarser of the two grids, and from there on
/// positive; from 256³ on it is p ± 0.1. The largest value of a cell is that of N₀ but for terms in h². An F-cycle's residual falls with finer
/// grids, at most a little faster than the error.
fn bounded(config: &Config, outcome: &Outcome) -> Result<String, String> {
    let (residual, umax) = finest(outcome)?;
    let dim = outcome.runs.first().map_or(0, |run| run.dim);
    let order = outcome.order();
    let Some(near) = nearest(config, dim) else {
        return Err("there is no reference value for such settings".into());
    };
    let design = if config.operator == Operator::Fv4 { 4.0 } else { 2.0 };
    let (n, n0) = (dim as f64, near.dim as f64);
    let d = (n / n0).log2().abs();
    let mut said = Vec::new();
    let mut check = |what: &str, found: f64, [least, most]: [f64; 2]| {
        if (least..=most).contains(&found) {
            said.push(format!("{what} {found:.4e} ({least:.3e} to {most:.3e})"));
            Ok(())
        } else {
            Err(format!(
                "{what} {found:.4e} is not between {least:.3e} and {most:.3e}, as the reference's at {}³ has it",
                near.dim
            ))
        }
    };
    let expected = near.error_2h_h * (n0 / n).powf(design);
    let factor = 2.0 * 4f64.powf(d);
    check("error", outcome.error_2h_h, [expected / factor, expected * factor])?;
    let erratic = if reaches_design_order(config) { 0.0 } else { 1.5 };
    let room = 0.5 + erratic + 4.0 * d * 64.0 / n.min(n0);
    let least = if n.min(n0) >= 64.0 { f64::MIN_POSITIVE } else { f64::NEG_INFINITY };
    let mut orders = [(near.order - room).max(least), near.order + room];
    if dim >= 256 && config.boundary == Boundary::Dirichlet && reaches_design_order(config) {
        orders = [design - 0.1, design + 0.1];
    }
    check("order", order, orders)?;
    let room = near.umax * (1e-9 + 100.0 * (n.powi(-2) - n0.powi(-2)).abs());
    check("max |u|", umax, [near.umax - room, near.umax + room])?;
    if config.cycle == Cycle::F {
        let base = near.residual;
        let (up, down) = ((n0 / n).max(1.0), (n / n0).max(1.0));
        let most = 2.0 * 2f64.powf(d) * base * up.powf(design);
        check("residual", residual, [base / (4.0 * down.powf(design + 1.0)), most])?;
    }
    Ok(format!(
        "no reference value at this size, and so by the reference's at {}³: {}",
        near.dim,
        said.join(", ")
    ))
}

/// Whether the order of the discretisation shows from 256³ on. Of fv4 one F-cycle gets below the discretisation error with
/// GSRB only: the reference program's own orders are 3.94 and 2.50 at 64³ and 128³ with Jacobi and 2.96 at 256³ with
/// Chebyshev, where iterating to the tolerance gives 2.78, 3.67 and 3.91.
fn reaches_design_order(config: &Config) -> bool {
    let weak = config.operator == Operator::Fv4
        && config.cycle == Cycle::F
        && config.smoother != Smoother::Gsrb;
    !weak
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cycle::CycleResult;
    use crate::options::Equation;
    use crate::run::LevelRun;
    use crate::timers::Timers;

    #[test]
    fn the_benchmark_at_64_is_known_and_an_unheard_of_size_is_not() {
        let config = Config::default();
        let known = known(&config, 64).unwrap();
        assert!((known.order - 3.2468).abs() < 1e-3);
        assert_eq!(super::known(&config, 72), None);
    }

    fn all_settings() -> impl Iterator<Item = Config> {
        use clap::ValueEnum;
        let values = |operator: &Operator| (*operator, Smoother::value_variants());
        Operator::value_variants().iter().map(values).flat_map(|(operator, smoothers)| {
            smoothers.iter().flat_map(move |smoother| {
                Cycle::value_variants().iter().flat_map(move |cycle| {
                    Boundary::value_variants().iter().flat_map(move |boundary| {
                        Equation::value_variants().iter().map(move |equation| Config {
                            operator,
                            smoother: *smoother,
                            cycle: *cycle,
                            boundary: *boundary,
                            equation: *equation,
                            ..Config::default()
                        })
                    })
                })
            })
        })
    }

    /// The outcome that the reference's numbers describe.
    fn outcome(config: &Config, known: &Known) -> Outcome {
        let kind = if config.cycle == Cycle::F { "f-cycle" } else { "v-cycle" };
        let result = |residual| CycleResult { kind, residual, relative: residual };
        // As fast as is asked for, and the last one as it was.
        let steps: Vec<f64> = std::iter::successors(Some(0.5), |r| Some(r * 0.125))
            .take_while(|r| *r > 8.0 * known.residual && config.cycle != Cycle::F)
            .collect();
        let cycles = steps.into_iter().chain([known.residual]).map(result).collect();
        let first = Solved { fmax: 1.0, cycles, time: Duration::ZERO };
        let (dim, umax) = (known.dim, known.umax);
        let run = LevelRun { dim, first, umax, solves: 1, mean: Duration::ZERO, repeatable: true };
        Outcome {
            runs: vec![run],
            error_2h_h: known.error_2h_h,
            error_4h_2h: known.error_2h_h * known.order.exp2(),
            timers: Timers::new(1),
            bottom_iterations: 0,
        }
    }

    #[test]
    fn every_setting_has_a_reference_value_at_some_size() {
        let missing: Vec<Config> = all_settings().filter(|c| nearest(c, 1).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn the_bounds_hold_for_every_reference_value_as_carried_over_from_its_neighbour() {
        let mut count = 0;
        for (row, known) in rows() {
            let of = |c: &Config| key(c)[..5] == row[..5];
            // Grids of 16³ show nothing yet; who has no neighbour but them is not carried over.
            let Some(config) = all_settings().find(of).filter(|_| known.dim > 16) else { continue };
            match judge_by(&config, &outcome(&config, &known), None) {
                Verdict::Pass(_) => count += 1,
                Verdict::Fail(text) => panic!("{row:?} at {}³: {text}", known.dim),
            }
        }
        assert!(count > 300, "{count}");
    }

    #[test]
    fn from_256_cells_a_side_the_order_is_that_of_the_discretisation_where_one_cycle_reaches_it() {
        let config = Config::default();
        let known = known(&config, 256).unwrap();
        let with = |order| {
            let known = Known { dim: 512, order, error_2h_h: known.error_2h_h / 16.0, ..known };
            let known = Known { residual: known.residual / 16.0, ..known };
            judge_by(&config, &outcome(&config, &known), None)
        };
        assert!(matches!(with(3.95), Verdict::Pass(_)), "{:?}", with(3.95));
        assert!(matches!(with(3.85), Verdict::Fail(_)), "{:?}", with(3.85));
        assert!(!reaches_design_order(&Config { smoother: Smoother::Jacobi, ..config }));
    }

    #[test]
    fn numbers_that_are_none_and_slow_or_unfinished_cycles_fail() {
        let config = Config { cycle: Cycle::V, ..Config::default() };
        let known = known(&config, 64).unwrap();
        let fails = |change: fn(&mut Outcome), word: &str| {
            let mut outcome = outcome(&config, &known);
            change(&mut outcome);
            let verdict = judge_by(&config, &outcome, None);
            assert!(matches!(&verdict, Verdict::Fail(text) if text.contains(word)), "{verdict:?}");
        };
        fails(|o| o.runs[0].umax = f64::NAN, "not finite");
        fails(|o| o.runs[0].first.cycles[1].residual = f64::INFINITY, "not finite");
        fails(|o| o.error_4h_2h = f64::NAN, "give no order");
        fails(|o| o.error_2h_h = 0.0, "give no order");
        fails(|o| o.runs[0].first.fmax = 0.0, "is zero");
        fails(|o| o.runs[0].first.cycles[2].residual = 0.2, "of the residual");
        fails(|o| o.runs[0].first.cycles.last_mut().unwrap().relative = 2e-10, "not below");
        fails(|o| o.runs[0].repeatable = false, "differ");
        fails(|o| o.error_2h_h *= 10.0, "error");
        fails(|o| o.runs[0].umax *= 2.0, "max |u|");
        fails(|o| o.error_4h_2h = o.error_2h_h * 0.5, "order");
        fails(|o| o.runs.clear(), "nothing was solved");
    }
}
