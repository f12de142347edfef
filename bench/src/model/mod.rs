//! A model of HPGMG-FV on more GPUs than there are to run on: parameters from results that `mp-perf compare` and `multigrid`
//! measured, the exchanges of one F-cycle played through rank by rank, and its error at the points that were measured.
//! Everything that comes out is marked as a model.

mod network;
mod parameters;
mod pattern;
mod simulate;

use anyhow::{Result, ensure};

use crate::result::{Axis, Figure, Plot, Point, Results, Role, Series};
use network::FatTree;
pub use parameters::{MODES, Parameters};
use pattern::Division;
use simulate::{Machine, f_cycle};

/// What is asked of the model.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Cells a side of a GPU's box.
    pub boxes: Vec<usize>,
    /// Cells a side of domains that all ranks share.
    pub domains: Vec<usize>,
    /// Ranks; cubes of powers of two.
    pub ranks: Vec<usize>,
    /// GPUs of a node.
    pub gpus_per_node: Vec<usize>,
    /// Microseconds from NIC to NIC through one switch; none: what `FatTree::assumed` says.
    pub nic_latency: Option<f64>,
    /// GB/s of a NIC; none: as above.
    pub nic_bandwidth: Option<f64>,
}

impl Plan {
    fn tree(&self, gpus_per_node: usize) -> FatTree {
        let mut tree = FatTree::assumed(gpus_per_node);
        tree.nic_latency = self.nic_latency.unwrap_or(tree.nic_latency);
        tree.per_byte = self.nic_bandwidth.map_or(tree.per_byte, |rate| 1e-3 / rate);
        tree
    }
}

/// Levels of at most so many cells a side every rank computes on its own (`hpgmg-fv --whole`).
const WHOLE: usize = 32;

/// Fits, checks and simulates.
///
/// # Errors
/// The results lack a figure that the parameters come from; a number of ranks that is no cube of a power of two.
pub fn run(measured: &[Results], plan: &Plan) -> Result<Results> {
    let parameters = Parameters::of(measured)?;
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
    results.method.push("Weak scaling: a box a GPU, 18 neighbours, two ghost layers, twelve half-sweeps a visit, an exchange after each; boxes below 4³ go to fewer ranks. Nothing overlaps.".into());
    results.figures = check.figures;
    for &cells in &plan.boxes {
        for &gpus in &plan.gpus_per_node {
            results.figures.push(weak_scaling(&parameters, plan, cells, gpus)?);
        }
    }
    for &dim in &plan.domains {
        for &gpus in &plan.gpus_per_node {
            let figure = strong_scaling(&parameters, plan, dim, gpus)?;
            results.method.push(choices(dim, gpus, &figure));
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
                let division = Division::Slabs { whole: WHOLE };
                let ms = f_cycle(&machine, point.x as usize, [1, 1, ranks], division) * 1e-3;
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

/// Ranks along x, y, z.
fn cube(ranks: usize) -> Result<[usize; 3]> {
    let side = (ranks as f64).cbrt().round() as usize;
    ensure!(
        side.pow(3) == ranks && side.is_power_of_two(),
        "{ranks} ranks: the model takes cubes of powers of two, 1, 8, 64, 512, 4096"
    );
    Ok([side; 3])
}

fn title(cells: usize, gpus: usize) -> String {
    let s = if gpus == 1 { "" } else { "s" };
    format!("Model: weak scaling, {cells}³ a GPU, {gpus} GPU{s} a node")
}

fn weak_scaling(parameters: &Parameters, plan: &Plan, cells: usize, gpus: usize) -> Result<Figure> {
    let (tree, compute) = (plan.tree(gpus), parameters.compute);
    let mut series = Vec::new();
    for &(name, mode) in &parameters.modes {
        let mut points = Vec::new();
        for &ranks in &plan.ranks {
            let along = cube(ranks)?;
            let machine = Machine { mode, tree, compute };
            let ms = f_cycle(&machine, cells * along[0], along, Division::Boxes) * 1e-3;
            points.push(Point { x: ranks as f64, samples: vec![ms], p99: None });
        }
        series.push(Series { name: name.into(), role: Role::Model, points });
    }
    let (ranks, solve) = (Axis::log("ranks", ""), Axis::log("solve", "ms"));
    Ok(figure(title(cells, gpus), ranks, solve, true, series))
}

/// A domain on more and more ranks: in slabs, as far as there are planes enough, and in boxes.
fn strong_scaling(parameters: &Parameters, plan: &Plan, dim: usize, gpus: usize) -> Result<Figure> {
    let (tree, compute) = (plan.tree(gpus), parameters.compute);
    let mut series = Vec::new();
    for &(name, mode) in &parameters.modes {
        let machine = Machine { mode, tree, compute };
        let (mut slabs, mut boxes) = (Vec::new(), Vec::new());
        for &ranks in &plan.ranks {
            let along = cube(ranks)?;
            let add = |points: &mut Vec<Point>, along, division| {
                let ms = f_cycle(&machine, dim, along, division) * 1e-3;
                points.push(Point { x: ranks as f64, samples: vec![ms], p99: None });
            };
            if let Some(division) = Division::slabs(dim, ranks, WHOLE) {
                add(&mut slabs, [1, 1, ranks], division);
            }
            add(&mut boxes, along, Division::Boxes);
        }
        for (points, division) in [(slabs, SLABS), (boxes, BOXES)] {
            series.push(Series { name: format!("{name}, {division}"), role: Role::Model, points });
        }
    }
    let s = if gpus == 1 { "" } else { "s" };
    let title = format!("Model: strong scaling, {dim}³, {gpus} GPU{s} a node");
    Ok(figure(title, Axis::log("ranks", ""), Axis::log("solve", "ms"), true, series))
}

const SLABS: &str = "slabs";
const BOXES: &str = "boxes";

/// Which division is the faster one for how many ranks, in words: from a figure of [`strong_scaling`].
fn choices(dim: usize, gpus: usize, figure: &Figure) -> String {
    let chosen = figure.series.chunks_exact(2).map(|pair| {
        let [slabs, boxes] = pair else { return String::new() };
        let each = boxes.points.iter().map(|point| {
            let sliced = slabs.points.iter().find(|slab| slab.x == point.x);
            let faster = sliced.filter(|slab| slab.samples[0] <= point.samples[0]);
            format!("{} {}", point.x, if faster.is_some() { SLABS } else { BOXES })
        });
        let mode = boxes.name.split(',').next().unwrap_or_default();
        format!("{mode}: {}", each.collect::<Vec<_>>().join(", "))
    });
    let chosen: Vec<String> = chosen.collect();
    format!("The faster division of {dim}³ by ranks, {gpus} a node: {}.", chosen.join("; "))
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
    fn a_domain_of_many_ranks_is_faster_in_boxes_and_the_choice_is_said() {
        let results = run(&measured(), &plan()).unwrap();
        // kernel in slabs, kernel in boxes: eight ranks, and 64.
        let [slabs, boxes] = [0, 1].map(|series| &results.figures[3].series[series].points);
        let at = |points: &[Point], x: f64| {
            points.iter().find(|point| point.x == x).map(|point| point.samples[0])
        };
        assert!(at(boxes, 64.0).unwrap() < at(slabs, 64.0).unwrap());
        let said = results.method.iter().find(|line| line.contains("faster division")).unwrap();
        assert!(said.contains("64 boxes"), "{said}");
    }

    #[test]
    fn ranks_that_are_no_cube_are_refused() {
        let error = run(&measured(), &Plan { ranks: vec![6], ..plan() }).unwrap_err().to_string();
        assert!(error.contains("6 ranks") && error.contains("64"), "{error}");
    }
}
