//! The parameters of the model, from figures of measured results. Each is one median or one difference of medians, but for what is fitted to
//! solves: what one GPU does to those on one rank, and what an exchange takes besides its messages to those on the fewest ranks that there are
//! several of. Solves on more ranks check the model.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use hpgmg::cuda::{Cut, FCycle};

use super::network::{FatTree, LogGp};
use super::simulate::{Compute, Machine, f_cycle};
use crate::result::{Results, Series};

/// The modes that the model knows, by their names in `mp-perf multigrid`; the base of gains last.
pub const MODES: [&str; 3] = ["kernel", "stream", "mpi"];

const KERNELS: &str = "Latency, kernels of two GPUs";
const EXCHANGE: &str = "Exchange of a halo, two GPUs";
const CPU_TIME: &str = "CPU time of a receive and a send on a stream";
const HOST: &str = "Latency, host memory";
const SOLVE: &str = "HPGMG-FV, one solve, ";

/// What the simulation needs.
#[derive(Debug, Clone)]
pub struct Parameters {
    /// By mode.
    pub modes: Vec<(&'static str, LogGp)>,
    pub(super) compute: Compute,
    /// Ranks of the solves that exchanges were fitted to, if there are any.
    pub(super) fitted: Option<usize>,
}

impl Parameters {
    /// Takes them from `measured`, whose solves on several ranks were divided as `cut` says.
    ///
    /// # Errors
    /// A figure or a series is missing; the error names it and the command that measures it.
    pub fn of(measured: &[Results], cut: Cut<'_>) -> Result<Parameters> {
        let wire = smallest(series(measured, KERNELS, "plain stores, release")?)?;
        // Both ranks send and wait, as in HPGMG-FV: what goes one way only shows half of what staging costs.
        let exchange = |name: &str, gap: f64| -> Result<LogGp> {
            let halo = series(measured, EXCHANGE, name)?;
            let (per_byte, (bytes, time)) = (slope(halo)?, smallest(halo)?);
            let overhead = ((time - wire.1 - bytes * per_byte) / 2.0).max(0.0);
            Ok(LogGp { latency: wire.1, overhead, gap, per_byte, exchange: 0.0 })
        };
        // Blocks store to all neighbours at the same time: no gap.
        let kernel = exchange("libmp, kernel", 0.0)?;
        let stream =
            exchange("libmp, graph", smallest(series(measured, CPU_TIME, "libmp, graph")?)?.1)?;
        let mpi = exchange("MPI, staged", smallest(mpi_on_the_host(measured)?)?.1)?;
        let mut modes: Vec<_> = MODES.into_iter().zip([kernel, stream, mpi]).collect();
        let compute = compute(measured)?;
        let several = solves_on_several_ranks(measured).into_iter().next();
        if let Some((ranks, solves)) = &several {
            for (name, mode) in &mut modes {
                for solves in solves.iter().filter(|series| series.name == *name) {
                    mode.exchange = exchange_of(*mode, compute, (*ranks, cut), solves)?;
                }
            }
        }
        Ok(Parameters { modes, compute, fitted: several.map(|(ranks, _)| ranks) })
    }

    /// They, in sentences.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences: Vec<String> = self
            .modes
            .iter()
            .map(|(mode, p)| {
                format!(
                    "{mode}: L {:.2} µs, o {:.2} µs, g {:.2} µs, G {:.2} ps a byte, {:.2} µs an exchange besides.",
                    p.latency,
                    p.overhead,
                    p.gap,
                    p.per_byte * 1e6,
                    p.exchange
                )
            })
            .collect();
        sentences.push("L: plain stores and a release; G: the slope of an exchange of halos over the two largest; o: half of what the smallest exchange takes above these; g: the CPU's time for a message, for mpi that of a message on the host, none in kernels.".into());
        sentences.push(match self.fitted {
            Some(ranks) => format!("An exchange besides its messages: fitted to the solves on {ranks} ranks, which therefore check it less than those on more do."),
            None => "An exchange besides its messages: nothing, as there are no solves on several ranks.".into(),
        });
        let c = &self.compute;
        sentences.push(format!(
            "One GPU, fitted to solves on one rank: {:.2} µs a pass and {:.3} ps a byte of memory; {:.1} µs each time that the coarsest levels are done at once.",
            c.pass, c.byte * 1e6, c.at_once
        ));
        sentences
    }
}

/// Microseconds of an exchange besides its messages with which the solves of a mode on so many ranks of a node are explained best: the least
/// squares of relative errors.
fn exchange_of(
    mode: LogGp,
    compute: Compute,
    (ranks, cut): (usize, Cut<'_>),
    solves: &Series,
) -> Result<f64> {
    let (mut slopes, mut both) = (0.0, 0.0);
    for point in &solves.points {
        let Some(spread) = point.spread() else { continue };
        let cycle = FCycle::new(point.x as usize, ranks, cut)?;
        let time = |exchange: f64| {
            let mode = LogGp { exchange, ..mode };
            f_cycle(&Machine { mode, tree: FatTree::assumed(ranks), compute }, &cycle)
        };
        // Every exchange is one of all ranks: a line.
        let (none, one) = (time(0.0), time(1.0));
        let measured = spread.median * 1e3;
        let (error, slope) = (none / measured - 1.0, (one - none) / measured);
        slopes += slope * slope;
        both += slope * error;
    }
    Ok(if slopes > 0.0 { (-both / slopes).max(0.0) } else { 0.0 })
}

/// Solves on more than one rank: by number of ranks, the series of all results, each with all its sizes.
pub(super) fn solves_on_several_ranks(measured: &[Results]) -> BTreeMap<usize, Vec<Series>> {
    let mut found = BTreeMap::<usize, Vec<Series>>::new();
    for figure in measured.iter().flat_map(|run| &run.figures) {
        let count = figure.title.strip_prefix(SOLVE).and_then(|title| title.strip_suffix(" ranks"));
        let Some(ranks) = count.and_then(|count| count.parse().ok()) else { continue };
        let all = found.entry(ranks).or_default();
        for series in &figure.series {
            match all.iter_mut().find(|other| other.name == series.name) {
                Some(other) => other.points.extend(series.points.iter().cloned()),
                None => all.push(series.clone()),
            }
        }
    }
    for series in found.values_mut().flatten() {
        series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    found
}

fn series<'a>(measured: &'a [Results], title: &str, name: &str) -> Result<&'a Series> {
    let figures =
        measured.iter().flat_map(|run| &run.figures).filter(|figure| figure.title == title);
    let mut series = figures.flat_map(|figure| &figure.series);
    series.find(|series| series.name == name).with_context(|| {
        format!("no series {name:?} in a figure {title:?}: mp-perf compare --json on two GPUs, under mpirun, measures it")
    })
}

fn mpi_on_the_host(measured: &[Results]) -> Result<&Series> {
    let figures =
        measured.iter().flat_map(|run| &run.figures).filter(|figure| figure.title == HOST);
    let mut series = figures.flat_map(|figure| &figure.series);
    series
        .find(|series| series.name.contains("MPI"))
        .with_context(|| format!("no MPI in a figure {HOST:?}: mp-perf compare --json measures it"))
}

/// The smallest x and the median there.
fn smallest(series: &Series) -> Result<(f64, f64)> {
    let first = series.points.first().and_then(|point| Some((point.x, point.spread()?.median)));
    first.with_context(|| format!("series {:?} has no points", series.name))
}

/// Over the two largest x.
fn slope(series: &Series) -> Result<f64> {
    let [.., a, b] = series.points.as_slice() else {
        anyhow::bail!("series {:?} has fewer than two sizes", series.name)
    };
    let medians = a.spread().zip(b.spread()).context("a point without samples")?;
    Ok(((medians.1.median - medians.0.median) / (b.x - a.x)).max(0.0))
}

/// Least squares, relative to the measured times, over the solves on one rank; no coefficient below zero.
fn compute(measured: &[Results]) -> Result<Compute> {
    let title = format!("{SOLVE}1 rank");
    let figures =
        measured.iter().flat_map(|run| &run.figures).filter(|figure| figure.title == title);
    let mut points: Vec<(f64, f64)> = figures
        .filter_map(|figure| figure.series.first())
        .flat_map(|series| &series.points)
        .filter_map(|point| Some((point.x, point.spread()?.median * 1e3)))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup_by(|a, b| a.0 == b.0);
    anyhow::ensure!(
        points.len() > 1,
        "a figure {title:?} with two sizes or more is needed: mp-perf multigrid --ranks 1,2 --json measures it"
    );
    let row = |&(dim, us): &(f64, f64)| -> Result<[f64; 3]> {
        let cycle = FCycle::new(dim as usize, 1, Cut::default())?;
        Ok(Compute::features(&cycle).map(|feature| feature / us))
    };
    let rows = points.iter().map(row).collect::<Result<Vec<_>>>()?;
    let [at_once, pass, byte] =
        not_negative(&rows).context("the solves on one rank allow no fit")?;
    Ok(Compute { at_once, pass, byte })
}

/// The x, none below zero, with the least |A x - 1|²: the best of the solutions with some of them zero.
fn not_negative(rows: &[[f64; 3]]) -> Option<[f64; 3]> {
    let error = |x: &[f64; 3]| -> f64 {
        rows.iter()
            .map(|row| (row.iter().zip(x).map(|(a, x)| a * x).sum::<f64>() - 1.0).powi(2))
            .sum()
    };
    let mut best: Option<([f64; 3], f64)> = None;
    for mask in 1u32..8 {
        let used: Vec<usize> = (0..3).filter(|i| mask >> i & 1 == 1).collect();
        if used.len() > rows.len() {
            continue;
        }
        let Some(solution) = normal_equations(rows, &used) else { continue };
        if solution.iter().all(|value| *value >= 0.0) {
            let found = error(&solution);
            // Of nearly equal ones the first, with fewer terms.
            if best.is_none_or(|(_, least)| found < 0.999 * least - 1e-15) {
                best = Some((solution, found));
            }
        }
    }
    best.map(|(solution, _)| solution)
}

/// Gauss with pivots on AᵀA x = Aᵀ1, over the columns in `used`, scaled to length 1.
fn normal_equations(rows: &[[f64; 3]], used: &[usize]) -> Option<[f64; 3]> {
    let length = |i: usize| rows.iter().map(|row| row[i] * row[i]).sum::<f64>().sqrt();
    let scales: Vec<f64> = used.iter().map(|&i| length(i)).collect();
    let count = used.len();
    let mut system = vec![vec![0.0; count + 1]; count];
    for row in rows {
        for (a, &i) in used.iter().enumerate() {
            for (b, &j) in used.iter().enumerate() {
                system[a][b] += row[i] / scales[a] * row[j] / scales[b];
            }
            system[a][count] += row[i] / scales[a];
        }
    }
    for column in 0..count {
        let pivot = (column..count)
            .max_by(|&a, &b| system[a][column].abs().total_cmp(&system[b][column].abs()))?;
        system.swap(column, pivot);
        if system[column][column].abs() < 1e-9 {
            return None;
        }
        let leading = system[column].clone();
        for (_, row) in system.iter_mut().enumerate().filter(|(number, _)| *number != column) {
            let factor = row[column] / leading[column];
            row.iter_mut().zip(&leading).for_each(|(value, lead)| *value -= factor * lead);
        }
    }
    let mut solution = [0.0; 3];
    for (a, &i) in used.iter().enumerate() {
        solution[i] = system[a][count] / system[a][a] / scales[a];
    }
    Some(solution)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::result::{Axis, Figure, Plot, Point, Role};

    fn figure(title: &str, all: &[(&str, &[(f64, f64)])]) -> Figure {
        let one = |(name, points): &(&str, &[(f64, f64)])| Series {
            name: (*name).into(),
            role: Role::Ours,
            points: points.iter().map(|&(x, y)| Point { x, samples: vec![y], p99: None }).collect(),
        };
        Figure {
            title: title.into(),
            plot: Plot::Lines,
            x: Axis::log("x", ""),
            y: Axis::log("y", ""),
            less_is_better: true,
            series: all.iter().map(one).collect(),
        }
    }

    /// Times as of two H200, rounded; solves on one rank that a pass of 3 µs, 0.3 ps a byte and 60 µs for the coarsest levels explain.
    pub fn measured() -> Vec<Results> {
        let solve = |dim: f64| {
            let cycle = FCycle::new(dim as usize, 1, Cut::default()).unwrap();
            let [visits, passes, bytes] = Compute::features(&cycle);
            (dim, (60.0 * visits + 3.0 * passes + 3e-7 * bytes) * 1e-3)
        };
        let alone = [64.0, 128.0, 256.0].map(solve);
        let mut run = Results::begin(Vec::new());
        run.figures = vec![
            figure(KERNELS, &[("plain stores, release", &[(8.0, 1.9)])]),
            figure(
                EXCHANGE,
                &[
                    ("libmp, kernel", &[(4096.0, 2.4), (262144.0, 3.0), (1048576.0, 5.0)]),
                    ("libmp, graph", &[(4096.0, 3.8), (262144.0, 7.0), (1048576.0, 9.0)]),
                    ("MPI, staged", &[(4096.0, 14.0), (262144.0, 73.0), (1048576.0, 273.0)]),
                ],
            ),
            figure(CPU_TIME, &[("libmp, graph", &[(8.0, 0.2)])]),
            figure(HOST, &[("Open MPI", &[(8.0, 0.4)])]),
            figure("HPGMG-FV, one solve, 1 rank", &[("mpi", &alone)]),
            figure(
                "HPGMG-FV, one solve, 2 ranks",
                &[("mpi", &[(64.0, 5.0)]), ("kernel", &[(64.0, 1.2)])],
            ),
        ];
        vec![run]
    }

    #[test]
    fn the_parameters_are_those_that_the_figures_show() {
        let parameters = Parameters::of(&measured(), Cut::default()).unwrap();
        let [kernel, _, mpi] = [0, 1, 2].map(|mode| parameters.modes[mode].1);
        let slope = 2.0 / 786432.0;
        assert!((kernel.latency - 1.9).abs() < 1e-9 && (kernel.per_byte - slope).abs() < 1e-12);
        assert!((kernel.overhead - (2.4 - 1.9 - 4096.0 * slope) / 2.0).abs() < 1e-9);
        assert!((mpi.per_byte - 200.0 / 786432.0).abs() < 1e-12 && mpi.gap == 0.4);
        let Compute { at_once, pass, byte } = parameters.compute;
        assert!(
            (at_once - 60.0).abs() < 0.1
                && (pass - 3.0).abs() < 1e-2
                && (byte - 3e-7).abs() < 1e-11
        );
    }

    #[test]
    fn what_an_exchange_takes_besides_is_what_solves_on_few_ranks_show() {
        let mut all = measured();
        let parameters = Parameters::of(&all, Cut::default()).unwrap();
        let (mode, compute) = (parameters.modes[0].1, parameters.compute);
        let mode = LogGp { exchange: 3.5, ..mode };
        let solves = [64, 128].map(|dim| {
            let cycle = FCycle::new(dim, 2, Cut::default()).unwrap();
            let machine = Machine { mode, tree: FatTree::assumed(2), compute };
            (dim as f64, f_cycle(&machine, &cycle) * 1e-3)
        });
        let last = all[0].figures.len() - 1;
        all[0].figures[last] = figure("HPGMG-FV, one solve, 2 ranks", &[("kernel", &solves)]);
        let parameters = Parameters::of(&all, Cut::default()).unwrap();
        assert!((parameters.modes[0].1.exchange - 3.5).abs() < 1e-6, "{parameters:?}");
        assert_eq!((parameters.modes[2].1.exchange, parameters.fitted), (0.0, Some(2)));
        all[0].figures.truncate(last);
        assert_eq!(Parameters::of(&all, Cut::default()).unwrap().fitted, None);
    }

    #[test]
    fn a_missing_figure_is_named_with_the_command_that_measures_it() {
        let mut measured = measured();
        measured[0].figures.remove(1);
        let error = Parameters::of(&measured, Cut::default()).unwrap_err().to_string();
        assert!(error.contains(EXCHANGE) && error.contains("mp-perf compare"), "{error}");
    }

    #[test]
    fn a_fit_has_no_term_below_zero() {
        // Time falls with passes: best explained without them.
        let rows = [[1.0, 5.0, 0.0], [1.0, 4.0, 0.0], [1.0, 9.0, 0.0]];
        let found = not_negative(&rows).unwrap();
        assert!(found.iter().all(|value| *value >= 0.0), "{found:?}");
    }
}
