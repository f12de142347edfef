//! What a run of `mp-perf` found: figures with their samples, the machine, the method. This is the one file format of all
//! subcommands; reports and documents are made from it and from nothing else.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use mp::info::{Gpus, Machine};
use serde::{Deserialize, Serialize};

use crate::device_ranks;
use crate::spread::Spread;

/// The version of the file format.
pub const FORMAT: u32 = 1;

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`FORMAT`].
    pub format: u32,
    /// The command line, as a user would repeat it.
    pub command: String,
    /// When it began: `YYYY-MM-DDTHH:MM:SSZ`.
    pub date: String,
    /// What the program was built from.
    pub build: String,
    /// Where it ran.
    pub machine: Place,
    /// How it was measured, a sentence each.
    pub method: Vec<String>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Who is not in a figure, or not in all of it, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<Absent>,
}

/// Another library's player that did not start, or failed on the way: what it had measured before stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// The title of the figure.
    pub figure: String,
    /// The series that lacks points, or the library where it has none.
    pub player: String,
    /// Why, in its own last words where it had any.
    pub reason: String,
}

/// The machine of a run; no host name, so that results can be published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Processor.
    pub processor: String,
    /// Cores that the process could use.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// The GPUs' names.
    pub gpus: Vec<String>,
    /// CUDA version of the driver.
    pub driver: Option<String>,
}

/// One diagram: some players over one quantity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Title, unique in a run.
    pub title: String,
    /// How it is drawn.
    pub plot: Plot,
    /// What is varied.
    pub x: Axis,
    /// What is measured.
    pub y: Axis,
    /// Whether less is better.
    pub less_is_better: bool,
    /// The players.
    pub series: Vec<Series>,
}

/// How a figure is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plot {
    /// Lines through points.
    Lines,
    /// Groups of bars, one group for each x.
    Bars,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity.
    pub label: String,
    /// Its unit; empty for a number.
    pub unit: String,
    /// Whether the axis is logarithmic.
    pub log: bool,
}

/// What a player is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// This library.
    Ours,
    /// Another library, in the same run.
    Peer,
    /// The bare machine: what no library can beat.
    Floor,
    /// Computed, not measured.
    Model,
}

/// One player's points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The player.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Its points, ascending in x.
    pub points: Vec<Point>,
}

/// One point: every repeat of one measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where on the x axis.
    pub x: f64,
    /// One value for each repeat, in the order of measurement, never empty.
    pub samples: Vec<f64>,
    /// The 99th percentile of single operations, where those were timed one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
}

impl Place {
    /// Processor, cores and system, or what a program that writes no more says of its machine.
    pub fn what(&self) -> String {
        match self.cores {
            0 => self.processor.clone(),
            cores => format!("{}, {cores} cores, Linux {}", self.processor, self.kernel),
        }
    }
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: &str, unit: &str) -> Axis {
        Axis { label: label.into(), unit: unit.into(), log: false }
    }

    /// A logarithmic axis.
    pub fn log(label: &str, unit: &str) -> Axis {
        Axis { log: true, ..Axis::linear(label, unit) }
    }

    /// "label, unit".
    pub fn title(&self) -> String {
        if self.unit.is_empty() {
            self.label.clone()
        } else {
            format!("{}, {}", self.label, self.unit)
        }
    }
}

impl Point {
    /// Median and spread of the samples; `None` if there are none or one is not a number.
    pub fn spread(&self) -> Option<Spread> {
        Spread::of(&self.samples)
    }
}

impl Results {
    /// An empty run that begins now, on this machine, with this program's command line.
    pub fn begin(method: Vec<String>) -> Results {
        let machine = Machine::collect();
        let gpus = Gpus::collect();
        let command: Vec<String> = std::env::args().skip(1).map(quoted).collect();
        Results {
            format: FORMAT,
            command: format!("mp-perf {}", command.join(" ")),
            date: date(SystemTime::now()),
            build: mp::version_string().to_owned(),
            machine: Place {
                processor: machine.processor,
                cores: machine.cores,
                kernel: machine.kernel,
                gpus: gpus.devices.into_iter().map(|gpu| gpu.name).collect(),
                driver: gpus.driver,
            },
            method,
            figures: Vec::new(),
            absent: Vec::new(),
        }
    }

    /// What is said below a figure's table of those who are absent from it, a sentence each.
    pub fn absent_from(&self, figure: &Figure) -> Vec<String> {
        let absent = self.absent.iter().filter(|absent| absent.figure == figure.title);
        absent.map(|absent| format!("{}: absent: {}", absent.player, absent.reason)).collect()
    }

    /// Reads a run from a file.
    ///
    /// # Errors
    /// The file cannot be read, is of another format, or holds figures without points or samples.
    pub fn read(path: &Path) -> Result<Results> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Results::parse(&text, path)
    }

    /// Reads a run from the text of the file `path`.
    ///
    /// # Errors
    /// As [`Results::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Results> {
        let results: Results = match device_ranks::is_one(text) {
            true => device_ranks::parse(text, path)?,
            false => serde_json::from_str(text)
                .with_context(|| format!("{} is no result of mp-perf", path.display()))?,
        };
        ensure!(
            results.format == FORMAT,
            "{}: format {}, this program reads format {FORMAT}",
            path.display(),
            results.format
        );
        for figure in &results.figures {
            for series in &figure.series {
                let whole = series.points.iter().all(|point| {
                    point.x.is_finite()
                        && point.spread().is_some_and(|y| y.min.is_finite() && y.max.is_finite())
                });
                ensure!(
                    whole && !series.points.is_empty(),
                    "{}: figure {:?}, series {:?}: a point without samples, or a value that is not finite",
                    path.display(),
                    figure.title,
                    series.name
                );
            }
        }
        Ok(results)
    }

    /// Writes the run to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(mp_program::write(path, serde_json::to_string_pretty(self)? + "\n")?)
    }
}

/// An argument as a shell takes it.
fn quoted(argument: String) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=.,:/+".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument;
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

/// `time` in UTC, to the second.
pub(crate) fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn one_point(samples: Vec<f64>) -> Results {
        let mut results = Results::begin(vec!["by hand".into()]);
        results.figures.push(Figure {
            title: "latency".into(),
            plot: Plot::Lines,
            x: Axis::log("message", "B"),
            y: Axis::log("one way", "µs"),
            less_is_better: true,
            series: vec![Series {
                name: "host".into(),
                role: Role::Ours,
                points: vec![Point { x: 8.0, samples, p99: None }],
            }],
        });
        results
    }

    #[test]
    fn a_run_is_read_back_as_it_was_written() {
        let path = tempfile::tempdir().unwrap();
        let path = path.path().join("run.json");
        let run = one_point(vec![1.0, 0.1 + 0.2]);
        run.write(&path).unwrap();
        assert_eq!(Results::read(&path).unwrap(), run);
    }

    #[test]
    fn a_run_of_another_format_and_a_point_without_samples_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let mut run = one_point(vec![1.0]);
        run.format = 99;
        run.write(&path).unwrap();
        let error = Results::read(&path).unwrap_err().to_string();
        assert!(error.contains("format 99"), "{error}");
        one_point(vec![]).write(&path).unwrap();
        let error = Results::read(&path).unwrap_err().to_string();
        assert!(error.contains("\"host\""), "{error}");
        std::fs::write(&path, "[]").unwrap();
        assert!(Results::read(&path).is_err());
    }

    #[test]
    fn arguments_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(quoted("--sizes=8,64".into()), "--sizes=8,64");
        assert_eq!(quoted("mpi=--comm mpi".into()), "'mpi=--comm mpi'");
        assert_eq!(quoted("it's".into()), r"'it'\''s'");
    }

    #[test]
    fn the_date_is_in_utc_to_the_second() {
        let time = UNIX_EPOCH + Duration::from_millis(1_000_000_000_999);
        assert_eq!(date(time), "2001-09-09T01:46:40Z");
    }
}
