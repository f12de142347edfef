//! HPGMG-FV as an application benchmark: the program `hpgmg-fv` in several modes, in turn, at several sizes; its times, its
//! speed beside what memory allows, and the gain of every mode over the first (as figure 10 of Agostini, Rossetti and
//! Potluri, "GPUDirect Async: exploring GPU synchronous communication techniques for InfiniBand clusters", 2018).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;

use crate::result::{Axis, Figure, Plot, Point, Results, Role, Series};

/// What is run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program.
    pub program: PathBuf,
    /// The modes, the base of the gains first.
    pub modes: Vec<Mode>,
    /// The sizes.
    pub sizes: Vec<Size>,
    /// Runs of each mode and size.
    pub repeats: usize,
    /// Seconds of solves in a run.
    pub seconds: f64,
    /// GB/s that memory reaches in a plain copy (read and write counted), all ranks together, for the roofline.
    pub bandwidth: Option<f64>,
}

/// One mode: a name and the arguments that make it, written `NAME=ARGUMENTS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mode {
    name: String,
    arguments: Vec<String>,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        match text.split_once('=') {
            Some((name, arguments)) if !name.trim().is_empty() => Ok(Mode {
                name: name.trim().to_owned(),
                arguments: arguments.split_whitespace().map(str::to_owned).collect(),
            }),
            _ => Err(format!(
                "{text:?} is not of the form NAME=ARGUMENTS, for example \"two ranks=--ranks 2\""
            )),
        }
    }
}

/// One size, as `hpgmg-fv` takes it: `LOG2_BOX_DIM:BOXES_PER_RANK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    log2_box_dim: u32,
    boxes_per_rank: u32,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let parsed = text.split_once(':').and_then(|(a, b)| {
            Some(Size { log2_box_dim: a.parse().ok()?, boxes_per_rank: b.parse().ok()? })
        });
        parsed.ok_or_else(|| {
            format!("{text:?} is not of the form LOG2_BOX_DIM:BOXES_PER_RANK, for example 5:8")
        })
    }
}

/// The part of `hpgmg-fv --json` that is used here.
#[derive(Debug, Clone, Deserialize)]
struct Run {
    bytes_per_cell: Option<f64>,
    solves: Vec<Solve>,
}

#[derive(Debug, Clone, Deserialize)]
struct Solve {
    dim: f64,
    seconds: f64,
    dof_per_s: f64,
}

/// Runs all modes in turn at each size.
///
/// # Errors
/// The program is not there, a run fails (its verdict counts), or two modes give different sizes.
pub fn measure(plan: &Plan) -> Result<Results> {
    let mut results = Results::begin(vec![
        format!(
            "Each point: {} runs of hpgmg-fv, the modes in turn within each; a run's value is its mean over {} s of solves.",
            plan.repeats, plan.seconds
        ),
        "A run counts only if its own verdict (residual, error, order) is good.".into(),
    ]);
    for mode in &plan.modes {
        results.method.push(format!("{}: hpgmg-fv {}", mode.name, mode.arguments.join(" ")));
    }
    let mut times = new_series(plan);
    let mut speeds = new_series(plan);
    let mut gains = new_series(plan);
    let mut roofline = Vec::new();
    let bar = ProgressBar::new((plan.sizes.len() * plan.repeats * plan.modes.len()) as u64);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} runs, {elapsed} {msg}")?);
    for size in &plan.sizes {
        let mut solves: Vec<Vec<Solve>> = vec![Vec::new(); plan.modes.len()];
        let mut bytes_per_cell = None;
        for _ in 0..plan.repeats {
            for (mode, solves) in plan.modes.iter().zip(&mut solves) {
                bar.set_message(mode.name.clone());
                let run =
                    run(plan, mode, *size).with_context(|| format!("{} {size:?}", mode.name))?;
                bytes_per_cell = bytes_per_cell.or(run.bytes_per_cell);
                solves.extend(run.solves.into_iter().next());
                bar.inc(1);
            }
        }
        let dim = solves[0].first().context("hpgmg-fv reported no solve")?.dim;
        for (place, solves) in solves.iter().enumerate() {
            ensure!(
                solves.iter().all(|solve| solve.dim == dim),
                "{} solves another size than {} ({dim}): give modes that agree in ranks",
                plan.modes[place].name,
                plan.modes[0].name
            );
            let point = |value: fn(&Solve) -> f64| Point {
                x: dim,
                samples: solves.iter().map(value).collect(),
                p99: None,
            };
            times[place].points.push(point(|solve| solve.seconds * 1e3));
            speeds[place].points.push(point(|solve| solve.dof_per_s));
        }
        let base = &solves[0];
        for (gains, solves) in gains.iter_mut().zip(&solves) {
            let samples = base.iter().zip(solves);
            let samples = samples.map(|(a, b)| (a.seconds / b.seconds - 1.0) * 100.0).collect();
            gains.points.push(Point { x: dim, samples, p99: None });
        }
        if let (Some(bandwidth), Some(bytes)) = (plan.bandwidth, bytes_per_cell) {
            roofline.push(Point { x: dim, samples: vec![bandwidth * 1e9 / bytes], p99: None });
        }
    }
    bar.finish_and_clear();
    if !roofline.is_empty() {
        let name = format!("memory at {} GB/s", plan.bandwidth.unwrap_or_default());
        speeds.push(Series { name, role: Role::Floor, points: roofline });
    }
    let side = || Axis::log("cells a side", "");
    results.figures = vec![
        Figure {
            title: "HPGMG-FV, one solve".into(),
            plot: Plot::Lines,
            x: side(),
            y: Axis::log("solve", "ms"),
            less_is_better: true,
            series: times,
        },
        Figure {
            title: "HPGMG-FV, speed".into(),
            plot: Plot::Lines,
            x: side(),
            y: Axis::log("speed", "DOF/s"),
            less_is_better: false,
            series: speeds,
        },
    ];
    if plan.modes.len() > 1 {
        gains.remove(0);
        results.figures.push(Figure {
            title: "HPGMG-FV, gain".into(),
            plot: Plot::Bars,
            x: Axis::linear("cells a side", ""),
            y: Axis::linear(&format!("gain over {}", plan.modes[0].name), "%"),
            less_is_better: false,
            series: gains,
        });
    }
    Ok(results)
}

fn new_series(plan: &Plan) -> Vec<Series> {
    let series =
        |mode: &Mode| Series { name: mode.name.clone(), role: Role::Ours, points: Vec::new() };
    plan.modes.iter().map(series).collect()
}

/// One run of the program.
fn run(plan: &Plan, mode: &Mode, size: Size) -> Result<Run> {
    let folder = tempfile::tempdir()?;
    let json = folder.path().join("run.json");
    let mut command = Command::new(&plan.program);
    command.arg(size.log2_box_dim.to_string()).arg(size.boxes_per_rank.to_string());
    command.args(&mode.arguments).arg("--seconds").arg(plan.seconds.to_string());
    command.arg("--json").arg(&json).stdin(Stdio::null()).stdout(Stdio::piped());
    let output = command
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("starting {}", plan.program.display()))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let last: Vec<&str> = said.lines().rev().take(3).collect();
        bail!("{}: {}", output.status, last.into_iter().rev().collect::<Vec<_>>().join("; "));
    }
    let text = std::fs::read_to_string(&json).context("reading what hpgmg-fv wrote")?;
    serde_json::from_str(&text).context("understanding what hpgmg-fv wrote")
}

/// The program `hpgmg-fv` beside this one.
///
/// # Errors
/// It is not there.
pub fn beside_this_program() -> Result<PathBuf> {
    let this = std::env::current_exe().context("finding this program")?;
    let program = this.parent().unwrap_or(Path::new(".")).join("hpgmg-fv");
    ensure!(
        program.is_file(),
        "{} is not there: build it (cargo build --release -p hpgmg) or name it with --program",
        program.display()
    );
    Ok(program)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that stands in for `hpgmg-fv`: it prints what `body` says.
    fn stand_in(folder: &Path, body: &str) -> PathBuf {
        let path = folder.join("hpgmg-fv");
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn plan(program: PathBuf) -> Plan {
        Plan {
            program,
            modes: vec!["slow=--ranks 1".parse().unwrap(), "fast=--ranks 2".parse().unwrap()],
            sizes: vec!["4:8".parse().unwrap()],
            repeats: 2,
            seconds: 0.1,
            bandwidth: Some(100.0),
        }
    }

    // Its arguments: LOG2 BOXES --ranks N --seconds S --json FILE.
    const ANSWER: &str = r#"if [ "$4" = 1 ]; then t=0.2; else t=0.1; fi
echo "{\"bytes_per_cell\": 1000, \"solves\": [{\"dim\": 32, \"seconds\": $t, \"dof_per_s\": 5, \"cycles\": []}]}" > "$8""#;

    #[test]
    fn the_gain_is_over_the_first_mode_and_the_roofline_is_bandwidth_over_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let results = measure(&plan(stand_in(folder.path(), ANSWER))).unwrap();
        let titles: Vec<_> = results.figures.iter().map(|figure| figure.title.as_str()).collect();
        assert_eq!(titles, ["HPGMG-FV, one solve", "HPGMG-FV, speed", "HPGMG-FV, gain"]);
        assert_eq!(results.figures[0].series[1].points[0].samples, [100.0, 100.0]);
        assert_eq!(results.figures[2].series.len(), 1);
        assert_eq!(results.figures[2].series[0].points[0].samples, [100.0, 100.0]);
        let roofline = &results.figures[1].series[2];
        assert_eq!((roofline.role, &roofline.points[0].samples[..]), (Role::Floor, &[1e8][..]));
    }

    #[test]
    fn a_run_with_a_bad_verdict_is_an_error_that_quotes_it() {
        let folder = tempfile::tempdir().unwrap();
        let program = stand_in(folder.path(), "echo the order is wrong; exit 3");
        let error = format!("{:#}", measure(&plan(program)).unwrap_err());
        assert!(
            error.contains("exit status: 3") && error.contains("the order is wrong"),
            "{error}"
        );
    }

    #[test]
    fn modes_and_sizes_that_cannot_be_are_refused_with_an_example() {
        assert!("--ranks 2".parse::<Mode>().unwrap_err().contains("NAME=ARGUMENTS"));
        assert!("5x8".parse::<Size>().unwrap_err().contains("for example 5:8"));
    }
}
