//! Figures of `dcuda --json`, the programs on device ranks, as a run that the report can draw: of `dcuda overlap` the paper's Figures 7 and 8, the
//! time of an iteration over the length of its computation, with the exchange and without; of `dcuda pingpong` times over bytes.
//! Nothing is measured here.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::result::{Axis, FORMAT, Figure, Place, Plot, Point, Results, Role, Series, date};

/// A line of that file.
#[derive(Deserialize)]
struct Line {
    program: String,
    form: String,
    machine: String,
    over: Option<f64>,
    figure: Option<(String, Spread)>,
}

#[derive(Deserialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

/// Whether a text is such a file, and no result of this program.
pub fn is_one(text: &str) -> bool {
    text.trim_start().starts_with('[')
}

/// Reads it.
///
/// # Errors
/// The text is no such file, or has nothing that can be drawn.
pub fn parse(text: &str, path: &Path) -> Result<Results> {
    let what = || format!("{} is neither a result of mp-perf nor of dcuda", path.display());
    let lines: Vec<Line> = serde_json::from_str(text).with_context(what)?;
    let mut figures: Vec<Figure> = Vec::new();
    for line in &lines {
        let (Some(over), Some((unit, spread))) = (line.over, &line.figure) else { continue };
        let Some((mut figure, series, role)) = place_of(line, unit) else { continue };
        let point =
            Point { x: over, samples: vec![spread.min, spread.median, spread.max], p99: None };
        let known = figures.iter_mut().find(|known| known.title == figure.title);
        let figure = match known {
            Some(known) => known,
            None => {
                figures.push(std::mem::replace(&mut figure, blank()));
                figures.last_mut().context("a figure")?
            }
        };
        match figure.series.iter_mut().find(|known| known.name == series) {
            Some(known) => known.points.push(point),
            None => figure.series.push(Series { name: series, role, points: vec![point] }),
        }
    }
    for figure in &mut figures {
        figure.series.iter_mut().for_each(|it| it.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
        if figure.series.iter().any(|series| series.name == COMPUTING) {
            figure.series.extend(perfect(figure));
        }
    }
    ensure!(
        !figures.is_empty(),
        "{}: nothing to draw: expected times of `dcuda overlap` or `dcuda pingpong`",
        path.display()
    );
    let machine = lines.first().map_or("", |line| &line.machine);
    let written = std::fs::metadata(path).and_then(|file| file.modified());
    Ok(Results {
        format: FORMAT,
        command: format!("dcuda {} --json {}", program_of(&lines), path.display()),
        date: date(written.unwrap_or(SystemTime::UNIX_EPOCH)),
        build: mp::version_string().to_owned(),
        machine: Place {
            processor: machine.to_owned(),
            cores: 0,
            kernel: String::new(),
            gpus: Vec::new(),
            driver: None,
        },
        method: vec![
            format!("Device ranks: {machine}."),
            "Each point has the least, the middle and the greatest of the repeats; the date is that of the file."
                .into(),
        ],
        figures,
        absent: Vec::new(),
    })
}

const COMPUTING: &str = "computation alone";
const EXCHANGING: &str = "exchange alone";

fn program_of(lines: &[Line]) -> &str {
    match lines.first().map(|line| line.program.as_str()) {
        Some("ping-pong") => "pingpong",
        Some(program) => program,
        None => "",
    }
}

fn blank() -> Figure {
    Figure {
        title: String::new(),
        plot: Plot::Lines,
        x: Axis::linear("", ""),
        y: Axis::linear("", ""),
        less_is_better: true,
        series: Vec::new(),
    }
}

/// The figure and the series that a line belongs to.
fn place_of(line: &Line, unit: &str) -> Option<(Figure, String, Role)> {
    // Devices that share a GPU, or are the CPU, hide no link's time; the machine is in the title so that nobody takes it for one.
    let of = &line.machine;
    let ranks = Role::Ours;
    let (form, stream) = match line.form.strip_suffix(", stream") {
        Some(form) => (form, true),
        None => (line.form.as_str(), false),
    };
    match (line.program.as_str(), unit) {
        ("overlap", "t_c ms" | "t_x ms" | "t ms") => {
            let (name, role) = match (unit, stream) {
                ("t_c ms", false) => (COMPUTING, Role::Floor),
                ("t_x ms", false) => (EXCHANGING, Role::Floor),
                ("t ms", false) => ("both, ranks", ranks),
                ("t ms", true) => ("both, stream", ranks),
                _ => return None,
            };
            let title = format!("Overlap, {form}: {of}");
            let (x, y) = (Axis::log("units of computation", ""), Axis::log("an iteration", "ms"));
            Some((Figure { title, x, y, ..blank() }, name.into(), role))
        }
        ("overlap", "eta") => {
            let title = format!("What is hidden of the shorter, {form}: {of}");
            let (x, y) = (Axis::log("units of computation", ""), Axis::linear("η", ""));
            let name = if stream { "stream" } else { "ranks" };
            Some((Figure { title, x, y, less_is_better: false, ..blank() }, name.into(), ranks))
        }
        ("ping-pong", "us") => {
            let title = format!("A message one way: {of}");
            let (x, y) = (Axis::linear("message", "B"), Axis::log("one way", "µs"));
            Some((Figure { title, x, y, ..blank() }, line.form.clone(), ranks))
        }
        _ => None,
    }
}

/// The longer of computation and exchange.
fn perfect(figure: &Figure) -> Option<Series> {
    let of = |name| figure.series.iter().find(|series| series.name == name);
    let (computing, exchanging) = (of(COMPUTING)?, of(EXCHANGING)?);
    let points = computing.points.iter().zip(&exchanging.points).map(|(one, other)| {
        let (one_y, other_y) = (one.samples[1], other.samples[1]);
        Point { x: one.x, samples: vec![one_y.max(other_y)], p99: None }
    });
    Some(Series { name: "perfect overlap".into(), role: Role::Model, points: points.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(form: &str, unit: &str, over: f64, median: f64) -> String {
        format!(
            r#"{{"program": "overlap", "form": "{form}", "size": "s", "machine": "2 × 4 ranks, X", "over": {over},
                "figure": ["{unit}", {{"median": {median}, "min": 1.0, "max": 9.0, "count": 3}}]}}"#
        )
    }

    fn figures(lines: &[String]) -> Result<Results> {
        parse(&format!("[{}]", lines.join(",")), Path::new("file"))
    }

    #[test]
    fn the_lines_of_a_program_become_the_papers_figures() {
        let mut lines = Vec::new();
        for (over, computing, exchanging, both) in [(5.0, 4.0, 2.0, 4.5), (1.0, 1.5, 2.0, 2.5)] {
            lines.push(line("chain, copy", "t_c ms", over, computing));
            lines.push(line("chain, copy", "t_x ms", over, exchanging));
            lines.push(line("chain, copy", "t ms", over, both));
            lines.push(line("chain, copy", "eta", over, 0.5));
            lines.push(line("chain, copy, stream", "t ms", over, 6.0));
        }
        let run = figures(&lines).unwrap();
        assert_eq!(run.figures.len(), 2);
        let times = &run.figures[0];
        assert_eq!(times.title, "Overlap, chain, copy: 2 × 4 ranks, X");
        let names: Vec<_> = times.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(
            names,
            [COMPUTING, EXCHANGING, "both, ranks", "both, stream", "perfect overlap"]
        );
        let perfect: Vec<_> =
            times.series[4].points.iter().map(|it| (it.x, it.samples[0])).collect();
        assert_eq!(perfect, [(1.0, 2.0), (5.0, 4.0)]);
        assert!(crate::report::page(&[run], &[]).unwrap().contains("perfect overlap"));
    }

    #[test]
    fn what_is_no_figure_is_refused() {
        let said = figures(&[]).unwrap_err().to_string();
        assert!(said.contains("nothing to draw"), "{said}");
        let said = parse("[{}]", Path::new("file")).unwrap_err().to_string();
        assert_eq!(said, "file is neither a result of mp-perf nor of dcuda");
    }
}
