//! The page: one HTML file that loads nothing, readable in light and dark.

use anyhow::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{LEGEND, Table, Timeline, plot, slug};
use crate::result::{Figure, Results};

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1a1a1a; --ground: #fff; --soft: #f3f4f6; --edge: #d5d7db; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --ground: #15171a; --soft: #1f2226; --edge: #3a3f45; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  max-width: 62rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; } h3 { font-size: 1.05rem; }
nav ul { columns: 2; } a { color: inherit; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; background: var(--soft);
  padding: .8rem 1rem; border-radius: .5rem; } dt { font-weight: 600; } dd { margin: 0; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; }
svg text[fill='#000000'] { fill: var(--ink); }
svg [stroke='#000000'] { stroke: var(--ink); }
.table { overflow-x: auto; margin: .5rem 0; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; }
th, td { border-bottom: 1px solid var(--edge); padding: .2rem .6rem; text-align: right; white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; } small { color: inherit; opacity: .75; }
summary { cursor: pointer; }
";

/// The page of some runs, timelines at its end.
///
/// # Errors
/// A figure that cannot be drawn.
pub fn page(runs: &[Results], timelines: &[Timeline]) -> Result<String> {
    let sections = runs.iter().enumerate().map(|(number, run)| section(number, run));
    let sections = sections.collect::<Result<Vec<_>>>()?;
    let titles = runs.iter().enumerate().flat_map(|(number, run)| {
        run.figures.iter().map(move |figure| (anchor(number, &figure.title), &figure.title))
    });
    let strips =
        timelines.iter().map(|timeline| (anchor(runs.len(), &timeline.title), &timeline.title));
    let titles = titles.chain(strips);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Performance of libmp" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Performance of libmp" }
                nav { ul { @for (anchor, title) in titles { li { a href={ "#" (anchor) } { (title) } } } } }
                @for section in sections { (section) }
                @for timeline in timelines { (strip(runs.len(), timeline)) }
            }
        }
    };
    Ok(page.into_string())
}

/// Where a figure is on the page: several runs may have figures of one title.
fn anchor(run: usize, title: &str) -> String {
    format!("{}-{}", slug(title), run + 1)
}

fn section(number: usize, run: &Results) -> Result<Markup> {
    let figures =
        run.figures.iter().map(|one| figure(number, run, one)).collect::<Result<Vec<_>>>()?;
    let machine = &run.machine;
    Ok(html! {
        h2 { code { (run.command) } }
        dl {
            dt { "when" } dd { (run.date) }
            dt { "processor" } dd { (machine.what()) }
            @if !machine.gpus.is_empty() {
                dt { "GPUs" } dd { (machine.gpus.join(", ")) }
                dt { "CUDA" } dd { (machine.driver.as_deref().unwrap_or("unknown")) }
            }
            dt { "build" } dd { (run.build) }
            @for sentence in &run.method { dt { "method" } dd { (sentence) } }
        }
        @for figure in figures { (figure) }
    })
}

fn strip(number: usize, timeline: &Timeline) -> Markup {
    html! {
        h2 id=(anchor(number, &timeline.title)) { (timeline.title) }
        (PreEscaped(timeline.svg()))
        details { summary { "Table" } (drawn(&timeline.table())) }
    }
}

fn drawn(table: &Table) -> Markup {
    html! {
        div.table {
            table {
                thead { tr { @for cell in &table.head { th { (cell) } } } }
                tbody { @for row in &table.rows { tr { @for cell in row { td { (cell) } } } } }
            }
        }
    }
}

fn figure(number: usize, run: &Results, figure: &Figure) -> Result<Markup> {
    let drawing = plot::svg(figure)?;
    let tables = Table::all(figure);
    let better = if figure.less_is_better { "less is better" } else { "more is better" };
    Ok(html! {
        h3 id=(anchor(number, &figure.title)) { (figure.title) " " small { "(" (better) ")" } }
        (PreEscaped(drawing))
        details {
            summary { "Table" }
            @for table in &tables { (drawn(table)) }
            @for sentence in run.absent_from(figure) { p { (sentence) } }
            small { (LEGEND) }
        }
    })
}
