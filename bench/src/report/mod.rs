//! One page, or one Markdown document, from the results of one or more runs: every figure drawn, its table below it, ratios
//! with their intervals, and how and where it was measured. Nothing in them is typed by hand.

mod markdown;
mod number;
mod page;
mod plot;
pub mod timeline;
mod verdict;

use std::path::Path;

use anyhow::{Context, Result};

pub use markdown::markdown;
pub use page::page;
pub use timeline::Timeline;
pub use verdict::{picture, verdict};

use crate::result::{Figure, Point, Results, Role, Series};
use crate::spread::Ratio;
use number::{bytes, short};

/// Writes each figure of `runs` and each timeline into `folder` as `NAME.svg` and `NAME.png`; gives the names back.
///
/// # Errors
/// A figure that cannot be drawn, a file that cannot be written.
pub fn images(runs: &[Results], timelines: &[Timeline], folder: &Path) -> Result<Vec<String>> {
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let mut names = Vec::new();
    let figures = runs.iter().flat_map(|run| &run.figures);
    let figures = figures.map(|figure| (&figure.title, plot::svg(figure)));
    let strips = timelines.iter().map(|timeline| (&timeline.title, Ok(timeline.svg())));
    for (place, (title, svg)) in figures.chain(strips).enumerate() {
        let name = format!("{:02}-{}", place + 1, slug(title));
        let svg = svg?;
        let png = plot::png(&svg)?;
        for (kind, content) in [("svg", svg.as_bytes()), ("png", &png)] {
            let path = folder.join(format!("{name}.{kind}"));
            mp_program::write(&path, content)?;
        }
        names.push(name);
    }
    Ok(names)
}

/// A figure of a run as a table for a terminal, with its title and who is absent from it.
pub fn terminal(run: &Results, figure: &Figure) -> String {
    let mut text = format!("{}\n", figure.title);
    for table in Table::all(figure) {
        let mut drawn = comfy_table::Table::new();
        drawn.load_preset(comfy_table::presets::UTF8_FULL_CONDENSED);
        drawn.set_header(table.head).add_rows(table.rows);
        for column in drawn.column_iter_mut() {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
        text += &format!("{drawn}\n");
    }
    for sentence in run.absent_from(figure) {
        text += &format!("{sentence}\n");
    }
    text + LEGEND + "\n"
}

/// Letters, digits and dashes of a title.
fn slug(title: &str) -> String {
    let mapped: String = title
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    mapped.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// A figure's table: a head and rows of text, one row for each x.
struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Medians with extremes, a row for each x.
    fn of(figure: &Figure) -> Table {
        let mut head = vec![figure.x.title()];
        head.extend(figure.series.iter().map(|s| format!("{}, {}", s.name, figure.y.unit)));
        let row = |x: f64| {
            let mut row = vec![place(figure, x)];
            for series in &figure.series {
                let spread = at(series, x).and_then(|point| point.spread());
                row.push(spread.map_or(String::new(), |y| {
                    if y.count == 1 {
                        return short(y.median);
                    }
                    format!("{} ({}–{})", short(y.median), short(y.min), short(y.max))
                }));
            }
            row
        };
        Table { head, rows: places(figure).into_iter().map(row).collect() }
    }

    /// The ratio of each series of ours to each measured other one, a row for each two, a column for each x; `None` without
    /// two such series.
    fn ratios(figure: &Figure) -> Option<Table> {
        let ours = || figure.series.iter().filter(|series| series.role == Role::Ours);
        let places = places(figure);
        let mut head = vec![format!("ratio, at {}", figure.x.title())];
        head.extend(places.iter().map(|x| place(figure, *x)));
        let mut rows = Vec::new();
        for our in ours() {
            for other in figure.series.iter().filter(|s| matches!(s.role, Role::Peer | Role::Floor))
            {
                let ratio = |x: &f64| {
                    let (a, b) = (at(our, *x)?, at(other, *x)?);
                    let r = Ratio::of(&a.samples, &b.samples)?;
                    Some(format!("{:.2} ({:.2}–{:.2})", r.value, r.low, r.high))
                };
                let mut row = vec![format!("{} / {}", our.name, other.name)];
                row.extend(places.iter().map(|x| ratio(x).unwrap_or_default()));
                if row.iter().skip(1).any(|cell| !cell.is_empty()) {
                    rows.push(row);
                }
            }
        }
        (!rows.is_empty()).then_some(Table { head, rows })
    }

    /// Both.
    fn all(figure: &Figure) -> Vec<Table> {
        std::iter::once(Table::of(figure)).chain(Table::ratios(figure)).collect()
    }
}

/// All x of a figure, ascending.
fn places(figure: &Figure) -> Vec<f64> {
    let points = figure.series.iter().flat_map(|series| &series.points);
    let mut places: Vec<f64> = points.map(|point| point.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    places
}

/// An x as it is written.
fn place(figure: &Figure, x: f64) -> String {
    if figure.x.unit == "B" { bytes(x) } else { short(x) }
}

fn at(series: &Series, x: f64) -> Option<&Point> {
    series.points.iter().find(|point| point.x == x)
}

/// What stands below a figure's table.
const LEGEND: &str = "Medians (smallest–largest); ratios of medians (95 % interval, bootstrap).";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Axis, Plot};

    fn run() -> Results {
        let series = |name: &str, role, factor: f64| Series {
            name: name.into(),
            role,
            points: [8.0, 1024.0, 65536.0]
                .map(|x| Point { x, samples: vec![factor * x, factor * x * 1.5], p99: None })
                .into(),
        };
        let mut run = Results::begin(vec!["two threads & one word".into()]);
        for (title, plot) in [("Latency <host>", Plot::Lines), ("Gain", Plot::Bars)] {
            run.figures.push(Figure {
                title: title.into(),
                plot,
                x: Axis::log("message", "B"),
                y: Axis::log("one way", "µs"),
                less_is_better: true,
                series: vec![
                    series("this library", Role::Ours, 1.0),
                    series("a peer", Role::Peer, 2.0),
                    series("memcpy", Role::Floor, 0.5),
                    series("a model", Role::Model, 0.75),
                ],
            });
        }
        run
    }

    #[test]
    fn a_table_has_a_row_for_each_x_and_ratios_of_ours_to_the_measured_others() {
        let figure = &run().figures[0];
        let table = Table::of(figure);
        assert_eq!(
            table.head,
            ["message, B", "this library, µs", "a peer, µs", "memcpy, µs", "a model, µs"]
        );
        assert_eq!(table.rows[1][0], "1 KiB");
        assert_eq!(table.rows[0][1], "10 (8–12)");
        assert_eq!(table.rows.len(), 3);
        let ratios = Table::ratios(figure).unwrap();
        assert_eq!(ratios.head, ["ratio, at message, B", "8 B", "1 KiB", "64 KiB"]);
        let pairs: Vec<&str> = ratios.rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(pairs, ["this library / a peer", "this library / memcpy"]);
        assert!(ratios.rows[0][1].starts_with("0.50 ("), "{:?}", ratios.rows[0]);
    }

    #[test]
    fn who_is_absent_from_a_figure_is_named_below_its_table_and_nowhere_else() {
        let mut run = run();
        let (figure, player) = ("Latency <host>".into(), "a peer".into());
        run.absent.push(crate::result::Absent { figure, player, reason: "no | route".into() });
        let sentence = "a peer: absent: no | route";
        assert!(terminal(&run, &run.figures[0]).contains(sentence));
        assert!(!terminal(&run, &run.figures[1]).contains("absent"));
        let runs = [run];
        assert_eq!(markdown(&runs, "", None).matches("a peer: absent: no | route").count(), 1);
        assert_eq!(page(&runs, &[]).unwrap().matches(sentence).count(), 1);
    }

    #[test]
    fn a_figure_of_one_player_has_no_ratios() {
        let mut run = run();
        run.figures[0].series.truncate(1);
        assert!(Table::ratios(&run.figures[0]).is_none());
    }

    #[test]
    fn every_figure_becomes_a_drawing_that_names_its_series() {
        let folder = tempfile::tempdir().unwrap();
        let names = images(&[run()], &[], folder.path()).unwrap();
        assert_eq!(names, ["01-latency-host", "02-gain"]);
        for name in names {
            let svg = std::fs::read_to_string(folder.path().join(format!("{name}.svg"))).unwrap();
            for words in ["this library", "a peer", "64 KiB", "one way, µs"] {
                assert!(svg.contains(words), "{name}: no {words:?}");
            }
            let png = std::fs::read(folder.path().join(format!("{name}.png"))).unwrap();
            assert!(png.starts_with(b"\x89PNG") && png.len() > 10_000, "{} bytes", png.len());
        }
    }

    #[test]
    fn the_png_holds_its_text() {
        // The same drawing with its text taken out differs in many pixels: the font was found.
        let svg = plot::svg(&run().figures[0]).unwrap();
        let silent = svg.replace("one way, µs", "").replace("a peer", "");
        assert_ne!(plot::png(&svg).unwrap(), plot::png(&silent).unwrap());
    }

    #[test]
    fn a_value_that_a_logarithm_cannot_show_is_an_error_naming_the_figure() {
        let mut run = run();
        run.figures[0].series[0].points[0].samples = vec![0.0];
        let error = format!("{:#}", page(&[run], &[]).unwrap_err());
        assert!(error.contains("Latency <host>") && error.contains("one way = 0"), "{error}");
    }

    #[test]
    fn the_page_is_one_file_that_escapes_what_it_quotes() {
        let page = page(&[run()], &[]).unwrap();
        assert!(page.contains("Latency &lt;host&gt;") && page.contains("two threads &amp; one"));
        assert!(page.contains("<svg") && page.contains("prefers-color-scheme: dark"));
        assert!(!page.contains("src=") && !page.contains("href=\"http"), "it loads nothing");
    }

    #[test]
    fn the_markdown_has_the_same_table() {
        let text =
            markdown(&[run()], "mp-perf report run.json", Some(Path::new("docs/picture.svg")));
        assert!(text.contains("| 8 B | 10 (8–12) |"), "{text}");
        assert!(text.contains("mp-perf report run.json"), "{text}");
        // First the summary and the picture, then every table folded.
        let summary = text.find("| Latency <host> | a peer |").unwrap();
        assert!(summary < text.find("](picture.svg)").unwrap(), "{text}");
        let folds = ["<details>", "</details>"].map(|tag| text.matches(tag).count());
        assert_eq!(folds, [3, 3], "{text}");
    }
}
