//! What the solver should find: values printed by the reference program, and the verdict on a run.

use crate::cycle::TOLERANCE;
use crate::options::{Boundary, Config, Cycle, Operator, Smoother};
use crate::run::Outcome;

const TABLE: &str = include_str!("data/known.tsv");

/// The reference program's numbers for one configuration and grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Residual of the solve on the finest grid.
    pub residual: f64,
    /// max |u_2h − R u_h|.
    pub error_2h_h: f64,
    /// Observed order.
    pub order: f64,
}

/// Name of an option's value as on the command line.
pub fn name(value: impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default()
}

/// The reference program's numbers for `config` on a grid of `dim`³ cells, if it has been run.
pub fn known(config: &Config, dim: usize) -> Option<Known> {
    let key = [
        name(config.operator),
        name(config.smoother),
        name(config.cycle),
        name(config.boundary),
        name(config.equation),
        name(config.bottom),
        dim.to_string(),
    ];
    TABLE.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = line.split('\t');
        if !key.iter().all(|k| fields.next() == Some(k)) {
            return None;
        }
        let mut number = || fields.next()?.parse().ok();
        Some(Known { residual: number()?, error_2h_h: number()?, order: number()? })
    })
}

/// True when the numbers are at most `tolerance` apart; never for NaN.
fn within(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance
}

/// The judgement on a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// As expected; the text says what was compared.
    Pass(String),
    /// Not as expected.
    Fail(String),
}

/// Compares a run with the reference program's numbers, or where there are none with what the
/// discretisation promises: F-cycles reach the design order on fine grids, iterated cycles the
/// tolerance.
pub fn judge(config: &Config, outcome: &Outcome) -> Verdict {
    let Some(finest) = outcome.runs.first() else {
        return Verdict::Fail("nothing was solved".into());
    };
    let Some(last) = finest.first.cycles.last() else {
        return Verdict::Fail("no cycle was run".into());
    };
    if let Some(run) = outcome.runs.iter().find(|r| !r.repeatable) {
        return Verdict::Fail(format!("repeated solves at {}³ differ", run.dim));
    }
    if let Some(known) = known(config, finest.dim) {
        let scale = (finest.dim as f64 / 128.0).powi(2);
        let checks = [
            ("residual", last.residual, known.residual, 1e-13 * scale),
            ("error", outcome.error_2h_h, known.error_2h_h, 1e-9 * known.error_2h_h),
            ("order", outcome.order(), known.order, 1e-8),
        ];
        for (what, found, expected, tolerance) in checks {
            if !within(found, expected, tolerance) {
                return Verdict::Fail(format!(
                    "{what} {found:e} is not the reference's {expected:e} (within {tolerance:.1e})"
                ));
            }
        }
        return Verdict::Pass(format!(
            "residual, error and order are the reference's (order {:.6})",
            known.order
        ));
    }
    let converged = last.relative < TOLERANCE;
    if config.cycle != Cycle::F && !converged {
        return Verdict::Fail(format!(
            "relative residual {:e} after {} cycles is not below {TOLERANCE:e}",
            last.relative,
            finest.first.cycles.len()
        ));
    }
    let design = match config.operator {
        Operator::Fv4 => 4.0,
        Operator::Fv2 => 2.0,
        // The order of the point-centred operators shows only on grids beyond the table.
        Operator::P7 | Operator::P27 => f64::NAN,
    };
    let order = outcome.order();
    if finest.dim >= 256 && config.boundary == Boundary::Dirichlet && design.is_finite() {
        return judge_order(config, order, design);
    }
    if order.is_finite() && last.residual.is_finite() {
        Verdict::Pass(format!(
            "order {order:.3}; no reference value for this case, and grids below 256³ do not show the \
             design order yet"
        ))
    } else {
        Verdict::Fail(format!("order {order}, residual {}", last.residual))
    }
}

/// Judges the order observed on a fine grid. Of fv4 one F-cycle gets below the discretisation error with GSRB only: the
/// reference program's own orders are 3.94 and 2.50 at 64³ and 128³ with Jacobi and 2.96 at 256³ with Chebyshev, where
/// iterating to the tolerance gives 2.78, 3.67 and 3.91. So there the error has to fall as with second order; all other
/// cases have to show the order of the discretisation.
fn judge_order(config: &Config, order: f64, design: f64) -> Verdict {
    let weak = config.smoother != Smoother::Gsrb;
    if config.operator == Operator::Fv4 && config.cycle == Cycle::F && weak {
        return if (2.0..=design + 1.0).contains(&order) {
            Verdict::Pass(format!(
                "order {order:.3} is between 2 and {:.0} (no reference value for this case; one F-cycle with this \
                 smoother does not reach the order of the discretisation)",
                design + 1.0
            ))
        } else {
            Verdict::Fail(format!("order {order:.3} is not between 2 and {:.0}", design + 1.0))
        };
    }
    if within(order, design, 0.1) {
        Verdict::Pass(format!(
            "order {order:.3} is {design:.0} ± 0.1 (no reference value for this case)"
        ))
    } else {
        Verdict::Fail(format!("order {order:.3} is not {design:.0} ± 0.1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_benchmark_at_64_is_known_and_an_unheard_of_size_is_not() {
        let config = Config::default();
        let known = known(&config, 64).unwrap();
        assert!((known.order - 3.2468).abs() < 1e-3);
        assert_eq!(super::known(&config, 72), None);
    }
    #[test]
    fn on_fine_grids_the_design_order_is_asked_for_where_one_cycle_reaches_it() {
        let passes = |smoother, cycle, order| {
            let config = Config { smoother, cycle, ..Config::default() };
            matches!(judge_order(&config, order, 4.0), Verdict::Pass(_))
        };
        assert!(passes(Smoother::Gsrb, Cycle::F, 3.95) && !passes(Smoother::Gsrb, Cycle::F, 3.67));
        assert!(
            passes(Smoother::Jacobi, Cycle::F, 3.67) && !passes(Smoother::Jacobi, Cycle::Fv, 3.67)
        );
        assert!(
            !passes(Smoother::Jacobi, Cycle::F, 1.9)
                && !passes(Smoother::Jacobi, Cycle::F, f64::NAN)
        );
    }
}
