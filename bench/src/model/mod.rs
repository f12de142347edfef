//! A model of HPGMG-FV on more GPUs than there are to run on: parameters from results that `mp-perf compare` and `multigrid`
//! measured, the exchanges of one F-cycle, divided as `hpgmg-fv` divides it, played through rank by rank, and its error at the
//! points that were measured. Everything that comes out is marked as a model.

mod network;
mod parameters;
mod simulate;

use anyhow::Result;
use hpgmg::cuda::{Cut, FCycle, FCycleLevel};

use crate::result::{Axis, Figure, Plot, Point, Results, Role, Series};
use network::FatTree;
pub use parameters::{MODES, Parameters};
use simulate::{Machine, f_cycle};

/// What is asked of the model.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Cells a side of a GPU's box.
    pub boxes: Vec<usize>,
    /// Cells a side of domains that all ranks share.
    pub domains: Vec<usize>,
    /// Ranks; for weak scaling only cubes are taken.
    pub ranks: Vec<usize>,
    /// GPUs of a node.
    pub gpus_per_node: Vec<usize>,
    /// Microseconds from NIC to NIC through one switch; none: what `FatTree::assumed` says.
    pub nic_latency: Option<f64>,
    /// GB/s of a NIC; none: as above.
    pub nic_bandwidth: Option<f64>,
    /// Cells a side of the largest level that every rank computed in the solves that were measured; none: what `hpgmg-fv` chooses.
    pub whole: Option<usize>,
}

impl Plan {
    fn tree(&self, gpus_per_node: usize) -> FatTree {
        let mut tree = FatTree::assumed(gpus_per_node);
        tree.nic_latency = self.nic_latency.unwrap_or(tree.nic_latency);
        tree.per_byte = self.nic_bandwidth.map_or(tree.per_byte, |rate| 1e-3 / rate);
        tree
    }

    /// How the solves that were measured were divided.
    fn measured(&self) -> Cut<'static> {
        let chosen = Cut::default();
        Cut { whole: self.whole.map_or(chosen.whole, |cells| [cells; 2]), ..chosen }
    }
}

/// Fits, checks and simulates.
///
/// # Errors
/// The results lack a figure that the parameters come from.
pub fn run(measured: &[Results], plan: &Plan) -> Result<Results> {
    let parameters = Parameters::of(measured, plan.measured())?;
    let mut results = Results::begin(vec![
        "A MODEL, not a measurement. LogGP parameters of each mode between two GPUs of a node, from measured results:".into(),
    ]);
    let sources: Vec<String> =
        measured.iter().map(|run| format!("{} ({})", run.command, run.date)).collect();
    results.method.push(format!("Results used: {}.", sources.join("; ")));
    results.method.extend(parameters.sentences());
    let check = check(&parameters, measured, plan)?;
    results.method.push(check.sentence);
    let tree = plan.tree(1);
    results.method.push(format!(
        "Between nodes nothing was measured. Assumed: a NIC for each GPU, {} µs through one switch and {} µs for each further one, {:.0} GB/s, full bisection, {} nodes a first-layer switch; a mode's overhead as within a node.",
        tree.nic_latency, tree.hop, 1e-3 / tree.per_byte, tree.radix
    ));
    results.method.push("Levels are divided, and go to fewer ranks, as hpgmg-fv does it by its count; passes, bytes of memory, borders and gathers are its own, too. Consecutive ranks are on a node. Weak scaling: a cube of cells a GPU. Nothing overlaps.".into());
    results.figures = check.figures;
    for &cells in &plan.boxes {
        for &gpus in &plan.gpus_per_node {
            results.figures.push(weak_scaling(&parameters, plan, cells, gpus)?);
        }
    }
    for &dim in &plan.domains {
        for &gpus in &plan.gpus_per_node {
            let (figure, division) = strong_scaling(&parameters, plan, dim, gpus)?;
            results.method.push(division);
            results.figures.push(figure);
        }
    }
    if let Some(&gpus) = plan.gpus_per_node.last() {
        let gains = gains(plan, gpus, &results.figures);
        results.figures.push(gains);
    }
    Ok(results)
}

struct Check {
    figures: Vec<Figure>,
    sentence: String,
}

/// The model beside what was measured on several ranks.
fn check(parameters: &Parameters, measured: &[Results], plan: &Plan) -> Result<Check> {
    let mut figures = Vec::new();
    let mut errors: Vec<(f64, String)> = Vec::new();
    for (ranks, solves) in parameters::solves_on_several_ranks(measured) {
        let mut series = Vec::new();
        for (mode, costs) in &parameters.modes {
            let Some(found) = solves.iter().find(|series| series.name == *mode) else {
                continue;
            };
            let machine =
                Machine { mode: *costs, tree: plan.tree(ranks), compute: parameters.compute };
            let mut modelled = Vec::new();
            for point in &found.points {
                let Some(spread) = point.spread() else { continue };
                let ms = f_cycle(&machine, &FCycle::new(point.x as usize, ranks, plan.measured())?)
                    * 1e-3;
                let error = (ms / spread.median - 1.0) * 100.0;
                errors.push((error, format!("{mode} {}³ on {ranks}: {error:+.0} %", point.x)));
                modelled.push(Point { x: point.x, samples: vec![ms], p99: None });
            }
            series.push(Series {
                name: format!("{mode}, measured"),
                role: Role::Ours,
                points: found.points.clone(),
            });
            series.push(Series {
                name: format!("{mode}, model"),
                role: Role::Model,
                points: modelled,
            });
        }
        if !series.is_empty() {
            figures.push(figure(
                format!("Model against measurement, {ranks} ranks"),
                Axis::log("cells a side", ""),
                Axis::log("solve", "ms"),
                true,
                series,
            ));
        }
    }
    let worst = errors.iter().map(|error| error.0.abs()).fold(0.0, f64::max);
    let mean = errors.iter().map(|error| error.0.abs()).sum::<f64>() / errors.len().max(1) as f64;
    let sentence = if errors.is_empty() {
        "Not checked: the results have no solves on several ranks.".into()
    } else {
        let each: Vec<String> = errors.into_iter().map(|error| error.1).collect();
        format!(
            "Error at the measured points, mean {mean:.0} %, largest {worst:.0} %: {}.",
            each.join("; ")
        )
    };
    Ok(Check { figures, sentence })
}

/// Ranks along each axis, if they are a cube.
fn cube(ranks: usize) -> Option<usize> {
    let side = (ranks as f64).cbrt().round() as usize;
    (side.pow(3) == ranks).then_some(side)
}

/// Ranks with a GPU each, `gpus` on a host.
fn on_hosts(gpus: usize) -> Cut<'static> {
    Cut { host: gpus, ..Cut::default() }
}

fn title(cells: usize, gpus: usize) -> String {
    let s = if gpus == 1 { "" } else { "s" };
    format!("Model: weak scaling, {cells}³ a GPU, {gpus} GPU{s} a node")
}

fn weak_scaling(parameters: &Parameters, plan: &Plan, cells: usize, gpus: usize) -> Result<Figure> {
    let (tree, compute) = (plan.tree(gpus), parameters.compute);
    let cubes = plan.ranks.iter().filter_map(|&ranks| Some((ranks, cube(ranks)?)));
    let cycles = cubes.map(|(ranks, side)| FCycle::new(cells * side, ranks, on_hosts(gpus)));
    let cycles = cycles.collect::<Result<Vec<_>, _>>()?;
    let mut series = Vec::new();
    for &(name, mode) in &parameters.modes {
        let of = |cycle: &FCycle| {
            let ms = f_cycle(&Machine { mode, tree, compute }, cycle) * 1e-3;
            Point { x: cycle.ranks() as f64, samples: vec![ms], p99: None }
        };
        let points = cycles.iter().map(of).collect();
        series.push(Series { name: name.into(), role: Role::Model, points });
    }
    let (ranks, solve) = (Axis::log("ranks", ""), Axis::log("solve", "ms"));
    Ok(figure(title(cells, gpus), ranks, solve, true, series))
}

/// A domain on more and more ranks, in each mode as `hpgmg-fv` divides it, and in the first mode in other ways, too; with what the
/// division is, and where another would be faster, in words.
fn strong_scaling(
    parameters: &Parameters,
    plan: &Plan,
    dim: usize,
    gpus: usize,
) -> Result<(Figure, String)> {
    let (tree, compute) = (plan.tree(gpus), parameters.compute);
    let time = |mode, cycle: &FCycle| f_cycle(&Machine { mode, tree, compute }, cycle) * 1e-3;
    let point = |ranks: usize, ms| Point { x: ranks as f64, samples: vec![ms], p99: None };
    let cycles = plan.ranks.iter().map(|&ranks| FCycle::new(dim, ranks, on_hosts(gpus)));
    let cycles = cycles.collect::<Result<Vec<_>, _>>()?;
    let mut series: Vec<Series> = Vec::new();
    for &(name, mode) in &parameters.modes {
        let points = cycles.iter().map(|cycle| point(cycle.ranks(), time(mode, cycle))).collect();
        series.push(Series { name: name.into(), role: Role::Model, points });
    }
    let Some(&(name, mode)) = parameters.modes.first() else {
        anyhow::bail!("no mode has parameters");
    };
    for other in [SLABS, BOXES] {
        let along = |ranks: usize| match other {
            SLABS => Some([1, 1, ranks]),
            _ => cube(ranks).map(|side| [side; 3]),
        };
        let divided = |&ranks: &usize| {
            let along = &[along(ranks).filter(|_| ranks > 1)?];
            let cycle = FCycle::new(dim, ranks, Cut { along, ..on_hosts(gpus) });
            // What cannot be cut so has no point.
            Some(point(ranks, time(mode, &cycle.ok()?)))
        };
        let points = plan.ranks.iter().filter_map(divided).collect();
        series.push(Series { name: format!("{name}, {other}"), role: Role::Model, points });
    }
    let mut said = Vec::new();
    for (number, cycle) in cycles.iter().enumerate().filter(|(_, cycle)| cycle.ranks() > 1) {
        let (ranks, division) = (cycle.ranks(), words(cycle));
        let chosen = series[0].points[number].samples[0];
        let others = series[series.len() - 2..].iter().filter_map(|other| {
            let there = other.points.iter().find(|point| point.x == ranks as f64)?.samples[0];
            (there < 0.99 * chosen).then(|| format!("{} {there:.3} ms", other.name))
        });
        let faster: Vec<String> = others.collect();
        said.push(match faster.as_slice() {
            [] => format!("{ranks} ranks: {division}"),
            faster => format!("{ranks} ranks: {division} (faster here: {})", faster.join(", ")),
        });
    }
    let s = if gpus == 1 { "" } else { "s" };
    let title = format!("Model: strong scaling, {dim}³, {gpus} GPU{s} a node");
    let figure = figure(title, Axis::log("ranks", ""), Axis::log("solve", "ms"), true, series);
    Ok((figure, format!("{dim}³, {gpus} a node. {}.", said.join("; "))))
}

const SLABS: &str = "slabs";
const BOXES: &str = "cubes";

/// How the levels of a cycle are divided.
fn words(cycle: &FCycle) -> String {
    let runs = cycle.levels().chunk_by(|level, next| level.along == next.along);
    let run = |levels: &[FCycleLevel]| {
        let (first, last) = (&levels[0], &levels[levels.len() - 1]);
        let levels = match first.n == last.n {
            true => format!("{}³", first.n),
            false => format!("{}³ to {}³", first.n, last.n),
        };
        match first.along {
            [1, 1, 1] => format!("{levels} and coarser whole"),
            [i, j, k] => format!("{levels} in {i} × {j} × {k}"),
        }
    };
    runs.map(run).collect::<Vec<_>>().join(", ")
}

/// The gain of each mode over the last one, by number of ranks, for each size of a box: from the figures of
/// [`weak_scaling`] for nodes of `gpus`.
fn gains(plan: &Plan, gpus: usize, scaling: &[Figure]) -> Figure {
    let mut series = Vec::new();
    for &cells in &plan.boxes {
        let Some(figure) = scaling.iter().find(|figure| figure.title == title(cells, gpus)) else {
            continue;
        };
        let Some((base, modes)) = figure.series.split_last() else { continue };
        for mode in modes {
            let points = mode.points.iter().zip(&base.points).filter(|(point, _)| point.x > 1.0);
            let gain = |(mode, base): (&Point, &Point)| Point {
                x: mode.x,
                samples: vec![(base.samples[0] / mode.samples[0] - 1.0) * 100.0],
                p99: None,
            };
            let name = format!("{}, {cells}³ a GPU", mode.name);
            series.push(Series { name, role: Role::Model, points: points.map(gain).collect() });
        }
    }
    let y = Axis::linear(&format!("gain over {}", MODES[MODES.len() - 1]), "%");
    let title = format!("Model: gain, {gpus} GPUs a node");
    let mut figure = figure(title, Axis::linear("ranks", ""), y, false, series);
    figure.plot = Plot::Bars;
    figure
}

fn figure(title: String, x: Axis, y: Axis, less_is_better: bool, series: Vec<Series>) -> Figure {
    Figure { title, plot: Plot::Lines, x, y, less_is_better, series }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parameters::tests::measured;

    fn plan() -> Plan {
        Plan {
            boxes: vec![32],
            domains: vec![256],
            ranks: vec![1, 8, 64],
            gpus_per_node: vec![1, 8],
            nic_latency: None,
            nic_bandwidth: None,
            whole: None,
        }
    }

    #[test]
    fn the_model_states_its_error_and_all_it_computes_is_marked() {
        let results = run(&measured(), &plan()).unwrap();
        assert!(results.method.iter().any(|line| line.contains("A MODEL")));
        assert!(results.method.iter().any(|line| line.contains("largest")), "{:?}", results.method);
        let titles: Vec<_> = results.figures.iter().map(|figure| figure.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "Model against measurement, 2 ranks",
                "Model: weak scaling, 32³ a GPU, 1 GPU a node",
                "Model: weak scaling, 32³ a GPU, 8 GPUs a node",
                "Model: strong scaling, 256³, 1 GPU a node",
                "Model: strong scaling, 256³, 8 GPUs a node",
                "Model: gain, 8 GPUs a node"
            ]
        );
        let scaling = results.figures[1].series.iter();
        assert!(scaling.clone().all(|series| series.role == Role::Model));
        for series in scaling {
            let times: Vec<f64> = series.points.iter().map(|point| point.samples[0]).collect();
            assert!(times.is_sorted(), "{}: {times:?}", series.name);
        }
    }

    #[test]
    fn the_mode_with_the_larger_overhead_is_slower_and_nodes_of_many_gpus_help() {
        let results = run(&measured(), &plan()).unwrap();
        let last = |figure: usize, series: usize| {
            results.figures[figure].series[series].points.last().unwrap().samples[0]
        };
        // kernel, stream, mpi.
        assert!(last(1, 0) < last(1, 2) && last(2, 0) < last(2, 2));
        assert!(last(2, 0) < last(1, 0));
    }

    #[test]
    fn a_domain_is_divided_as_the_program_divides_it_and_the_division_is_said() {
        let results = run(&measured(), &plan()).unwrap();
        let names: Vec<_> = results.figures[4].series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["kernel", "stream", "mpi", "kernel, slabs", "kernel, cubes"]);
        let at = |series: usize, x: f64| {
            let points = &results.figures[4].series[series].points;
            points.iter().find(|point| point.x == x).map(|point| point.samples[0])
        };
        // Eight ranks of a host keep slabs, 64 have something else.
        assert_eq!(at(0, 8.0), at(3, 8.0));
        assert!(at(0, 64.0).is_some() && at(4, 64.0).is_some() && at(0, 64.0) != at(3, 64.0));
        let said = results.method.iter().find(|line| line.starts_with("256³, 8 a node")).unwrap();
        assert!(
            said.contains("8 ranks: 256³ to 64³ in 1 × 1 × 8, 32³ and coarser whole"),
            "{said}"
        );
    }

    #[test]
    fn weak_scaling_takes_the_cubes_among_the_ranks() {
        let results = run(&measured(), &Plan { ranks: vec![1, 6, 27], ..plan() }).unwrap();
        let ranks = |figure: usize| -> Vec<f64> {
            results.figures[figure].series[0].points.iter().map(|point| point.x).collect()
        };
        assert_eq!((ranks(1), ranks(3)), (vec![1.0, 27.0], vec![1.0, 6.0, 27.0]));
    }
}
