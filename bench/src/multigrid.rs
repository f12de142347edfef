//! HPGMG-FV as an application benchmark: the program `hpgmg-fv` in several modes, in turn, at several sizes and on several
//! numbers of ranks; its times, its speed beside what memory allows, its scaling, and the gain of every mode over the first
//! (as figure 10 of Agostini, Rossetti and Potluri, "GPUDirect Async: exploring GPU synchronous communication techniques
//! for InfiniBand clusters", 2018).

mod figures;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;

use crate::result::Results;

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
    /// GB/s that memory reaches in a plain copy (read and write counted): of one rank if `ranks` are given, else of all
    /// together; for the roofline.
    pub bandwidth: Option<f64>,
    /// Numbers of ranks that share the boxes; empty: the modes' arguments say, and a size counts the boxes of a rank.
    pub ranks: Vec<usize>,
    /// Arguments of one rank, which communicates with nobody: measured once for all modes. Without them each mode's own.
    pub alone: Option<String>,
    /// What starts several ranks: a command in which `{}` is their number. Without it they are threads of one process.
    pub launcher: Option<String>,
}

impl Plan {
    /// What starts `mode` at `size` on `ranks` ranks.
    ///
    /// # Errors
    /// The boxes cannot be shared among the ranks.
    fn command(&self, mode: &Mode, size: Size, ranks: Option<usize>) -> Result<Command> {
        let boxes = size.boxes_per_rank as usize;
        let several = ranks.filter(|&ranks| ranks > 1);
        let launcher = several.and(self.launcher.as_deref()).unwrap_or_default();
        let words: Vec<String> = launcher
            .split_whitespace()
            .map(|word| word.replace("{}", &several.unwrap_or(1).to_string()))
            .collect();
        let mut command = match words.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        let share = ranks.unwrap_or(1);
        ensure!(boxes.is_multiple_of(share), "{boxes} boxes cannot be shared by {share} ranks");
        command.arg(size.log2_box_dim.to_string()).arg((boxes / share).to_string());
        match (ranks, &self.alone) {
            (Some(1), Some(alone)) => command.args(alone.split_whitespace()),
            _ => command.args(&mode.arguments),
        };
        if let (Some(ranks), true) = (ranks, words.is_empty()) {
            command.arg("--ranks").arg(ranks.to_string());
        }
        Ok(command)
    }
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

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.log2_box_dim, self.boxes_per_rank)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let parsed = text.split_once(':').and_then(|(a, b)| {
            Some(Size { log2_box_dim: a.parse().ok()?, boxes_per_rank: b.parse().ok()? })
        });
        let possible =
            |size: &Size| (4..=9).contains(&size.log2_box_dim) && size.boxes_per_rank > 0;
        parsed.filter(possible).ok_or_else(|| {
            format!("{text:?} is not of the form LOG2_BOX_DIM:BOXES_PER_RANK, 4 to 9 and at least 1, for example 5:8")
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

/// Runs all modes in turn at each size and number of ranks.
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
    let counts: Vec<Option<usize>> = match plan.ranks.as_slice() {
        [] => vec![None],
        counts => counts.iter().copied().map(Some).collect(),
    };
    if let Some(alone) = &plan.alone {
        results.method.push(format!("One rank, in all modes the same runs: hpgmg-fv {alone}"));
    }
    if !plan.ranks.is_empty() {
        let how = plan.launcher.as_deref().unwrap_or("threads of one process");
        results
            .method
            .push(format!("Several ranks share the boxes of a size; they are started by: {how}."));
    }
    let bar = ProgressBar::new(
        (plan.sizes.len() * plan.repeats * plan.modes.len() * counts.len()) as u64,
    );
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} runs, {elapsed} {msg}")?);
    let mut points = Vec::new();
    for &ranks in &counts {
        for &size in &plan.sizes {
            points.push(measure_at(plan, ranks, size, &bar)?);
        }
    }
    bar.finish_and_clear();
    results.figures = figures::all(plan, &points);
    Ok(results)
}

/// What all modes took at one size on one number of ranks.
struct Measured {
    ranks: Option<usize>,
    /// Cells a side.
    dim: f64,
    bytes_per_cell: Option<f64>,
    /// Solves by mode and repeat.
    solves: Vec<Vec<Solve>>,
}

fn measure_at(
    plan: &Plan,
    ranks: Option<usize>,
    size: Size,
    bar: &ProgressBar,
) -> Result<Measured> {
    let mut solves: Vec<Vec<Solve>> = vec![Vec::new(); plan.modes.len()];
    let mut bytes_per_cell = None;
    let once = ranks == Some(1) && plan.alone.is_some();
    for _ in 0..plan.repeats {
        for (mode, solves) in
            plan.modes.iter().zip(&mut solves).take(if once { 1 } else { usize::MAX })
        {
            bar.set_message(mode.name.clone());
            let run = run(plan, plan.command(mode, size, ranks)?)
                .with_context(|| format!("{} {size}", mode.name))?;
            bytes_per_cell = bytes_per_cell.or(run.bytes_per_cell);
            solves.extend(run.solves.into_iter().next());
            bar.inc(1);
        }
    }
    if once {
        let of_one_rank = solves[0].clone();
        solves.fill(of_one_rank);
    }
    let dim = solves[0].first().context("hpgmg-fv reported no solve")?.dim;
    for (mode, solves) in plan.modes.iter().zip(&solves) {
        ensure!(
            solves.iter().all(|solve| solve.dim == dim),
            "{} solves another size than {} ({dim}): give modes that agree in ranks",
            mode.name,
            plan.modes[0].name
        );
    }
    Ok(Measured { ranks, dim, bytes_per_cell, solves })
}

/// One run of the program.
fn run(plan: &Plan, mut command: Command) -> Result<Run> {
    let folder = tempfile::tempdir()?;
    let json = folder.path().join("run.json");
    command.arg("--seconds").arg(plan.seconds.to_string());
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
    use super::*;
    use crate::result::Role;

    /// A program that stands in for `hpgmg-fv`: it prints what `body` says.
    fn stand_in(folder: &Path, body: &str) -> PathBuf {
        mp_program::stand_in::stand_in(folder, "hpgmg-fv", body)
    }

    fn plan(program: PathBuf) -> Plan {
        Plan {
            program,
            modes: vec!["slow=--ranks 1".parse().unwrap(), "fast=--ranks 2".parse().unwrap()],
            sizes: vec!["4:8".parse().unwrap()],
            repeats: 2,
            seconds: 0.1,
            bandwidth: Some(100.0),
            ranks: Vec::new(),
            alone: None,
            launcher: None,
        }
    }

    #[test]
    fn several_ranks_share_the_boxes_and_are_started_by_the_launcher() {
        let mut plan = plan("hpgmg-fv".into());
        (plan.ranks, plan.launcher) = (vec![1, 4], Some("mpirun -n {}".into()));
        plan.modes = vec!["host=--comm host".parse().unwrap()];
        let size: Size = "5:8".parse().unwrap();
        let words = |ranks| -> Vec<String> {
            let command = plan.command(&plan.modes[0], size, Some(ranks)).unwrap();
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            words.map(|word| word.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(words(4), ["mpirun", "-n", "4", "hpgmg-fv", "5", "2", "--comm", "host"]);
        assert_eq!(words(1), ["hpgmg-fv", "5", "8", "--comm", "host", "--ranks", "1"]);
        let error = plan.command(&plan.modes[0], size, Some(3)).unwrap_err().to_string();
        assert!(error.contains("8 boxes") && error.contains("3 ranks"), "{error}");
    }

    #[test]
    fn with_several_numbers_of_ranks_there_are_scaling_curves() {
        let folder = tempfile::tempdir().unwrap();
        let answer = r#"for last; do :; done
echo "{\"solves\": [{\"dim\": 32, \"seconds\": 0.1, \"dof_per_s\": 5}]}" > "$last""#;
        let mut plan = plan(stand_in(folder.path(), answer));
        plan.modes = vec!["a=--comm host".parse().unwrap(), "b=--comm kernel".parse().unwrap()];
        plan.ranks = vec![1, 2];
        let results = measure(&plan).unwrap();
        let scaling = results.figures.iter().find(|f| f.title == "HPGMG-FV, scaling, 32³").unwrap();
        let places: Vec<f64> = scaling.series[1].points.iter().map(|point| point.x).collect();
        assert_eq!(places, [1.0, 2.0]);
        let gains = results.figures.iter().find(|f| f.title == "HPGMG-FV, gain").unwrap();
        let names: Vec<_> = gains.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["b, 2 ranks"], "one rank communicates with nobody");
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
