//! One page, or one Markdown document, from the results of one or more runs: every figure drawn, its table below it, ratios
//! with their intervals, and how and where it was measured. Nothing in them is typed by hand.

mod markdown;
mod number;
mod page;
mod plot;

use std::path::Path;

use anyhow::{Context, Result};

pub use markdown::markdown;
pub use page::page;

use crate::result::{Figure, Results, Role};
use crate::spread::Ratio;
use number::{bytes, short};

/// Writes each figure of `runs` into `folder` as `NAME.svg` and `NAME.png`; gives the names back.
///
/// # Errors
/// A figure that cannot be drawn, a file that cannot be written.
pub fn images(runs: &[Results], folder: &Path) -> Result<Vec<String>> {
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    let mut names = Vec::new();
    for (place, figure) in runs.iter().flat_map(|run| &run.figures).enumerate() {
        let name = format!("{:02}-{}", place + 1, slug(&figure.title));
        let svg = plot::svg(figure)?;
        let png = plot::png(&svg)?;
        for (kind, content) in [("svg", svg.as_bytes()), ("png", &png)] {
            let path = folder.join(format!("{name}.{kind}"));
            std::fs::write(&path, content)
                .with_context(|| format!("writing {}", path.display()))?;
        }
        names.push(name);
    }
    Ok(names)
}

/// A figure as a table for a terminal, with its title.
pub fn terminal(figure: &Figure) -> String {
    let table = Table::of(figure);
    let mut drawn = comfy_table::Table::new();
    drawn.load_preset(comfy_table::presets::UTF8_FULL_CONDENSED);
    drawn.set_header(table.head).add_rows(table.rows);
    for column in drawn.column_iter_mut() {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    format!("{}\n{drawn}\n{LEGEND}\n", figure.title)
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
    /// Medians with extremes, then the ratio of each series of ours to each other one.
    fn of(figure: &Figure) -> Table {
        let ours = || figure.series.iter().filter(|series| series.role == Role::Ours);
        let others = || figure.series.iter().filter(|s| matches!(s.role, Role::Peer | Role::Floor));
        let mut head = vec![figure.x.title()];
        head.extend(figure.series.iter().map(|s| format!("{}, {}", s.name, figure.y.unit)));
        for our in ours() {
            head.extend(others().map(|other| format!("{} / {}", our.name, other.name)));
        }
        let mut places: Vec<f64> =
            figure.series.iter().flat_map(|s| &s.points).map(|point| point.x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let row = |x: f64| {
            let at = |series: &crate::result::Series| {
                series.points.iter().find(|point| point.x == x).cloned()
            };
            let mut row = vec![if figure.x.unit == "B" { bytes(x) } else { short(x) }];
            for series in &figure.series {
                row.push(at(series).and_then(|point| point.spread()).map_or(String::new(), |y| {
                    format!("{} ({}–{})", short(y.median), short(y.min), short(y.max))
                }));
            }
            for our in ours() {
                for other in others() {
                    let ratio = at(our).zip(at(other));
                    let ratio = ratio.and_then(|(a, b)| Ratio::of(&a.samples, &b.samples));
                    row.push(ratio.map_or(String::new(), |r| {
                        format!("{:.2} ({:.2}–{:.2})", r.value, r.low, r.high)
                    }));
                }
            }
            row
        };
        Table { head, rows: places.into_iter().map(row).collect() }
    }
}

/// What stands below a figure's table.
const LEGEND: &str = "Medians (smallest–largest); ratios of medians (95 % interval, bootstrap).";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Axis, Plot, Point, Series};

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
        let table = Table::of(&run().figures[0]);
        assert_eq!(
            table.head,
            [
                "message, B",
                "this library, µs",
                "a peer, µs",
                "memcpy, µs",
                "a model, µs",
                "this library / a peer",
                "this library / memcpy"
            ]
        );
        assert_eq!(table.rows[1][0], "1 KiB");
        assert_eq!(table.rows[0][1], "10 (8–12)");
        assert!(table.rows[0][5].starts_with("0.50 ("), "{:?}", table.rows[0]);
        assert_eq!(table.rows.len(), 3);
    }

    #[test]
    fn every_figure_becomes_a_drawing_that_names_its_series() {
        let folder = tempfile::tempdir().unwrap();
        let names = images(&[run()], folder.path()).unwrap();
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
        let error = format!("{:#}", page(&[run]).unwrap_err());
        assert!(error.contains("Latency <host>") && error.contains("one way = 0"), "{error}");
    }

    #[test]
    fn the_page_is_one_file_that_escapes_what_it_quotes() {
        let page = page(&[run()]).unwrap();
        assert!(page.contains("Latency &lt;host&gt;") && page.contains("two threads &amp; one"));
        assert!(page.contains("<svg") && page.contains("prefers-color-scheme: dark"));
        assert!(!page.contains("src=") && !page.contains("href=\"http"), "it loads nothing");
    }

    #[test]
    fn the_markdown_has_the_same_table() {
        let text = markdown(&[run()], "mp-perf report run.json");
        assert!(text.contains("| 8 B | 10 (8–12) |"), "{text}");
        assert!(text.contains("mp-perf report run.json"), "{text}");
    }
}
