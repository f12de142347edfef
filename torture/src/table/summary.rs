//! The first things a reader sees: ten lines of what was tried and what came of it, a picture, and a table of classes. Counted from the files, as
//! everything in the document.

use std::fmt::Write;

use anyhow::Result;
use mp_program::drawing::{BLUE, Drawing, GREY, INK, ORANGE, Side};

use super::{Material, sanitizers};
use crate::fault::{Expected, Phase};
use crate::record::Run;

/// What was tried of a kind, by what, and how much came out as it must.
struct Class {
    name: String,
    by: &'static str,
    runs: u64,
    right: u64,
}

/// All classes: faults by name, then the rest.
fn classes(material: &Material) -> Vec<Class> {
    let Material { records, storms, soaked, swept, mutated, fuzzed, ran } = material;
    let mut classes: Vec<Class> = Vec::new();
    let mut count = |name: &str, by: &'static str, [right, runs]: [u64; 2]| match classes
        .iter_mut()
        .find(|class| class.name == name && class.by == by)
    {
        Some(class) => (class.runs, class.right) = (class.runs + runs, class.right + right),
        None => classes.push(Class { name: name.to_owned(), by, runs, right }),
    };
    for run in records.iter().flat_map(|record| &record.runs) {
        let (class, by) = match run.phase {
            Phase::Random => ("a rank killed at any moment", "`mp-torture kills`"),
            _ => (run.fault.class(), "`mp-torture faults`"),
        };
        count(class, by, [u64::from(run.problems.is_empty()), 1]);
    }
    for sweep in swept {
        let name = "every way to start ranks and messages, every path, 1 to 16 ranks";
        count(name, "`mp-torture sweep`", sweep.right().map(|number| number as u64));
    }
    for soak in soaked {
        let right = u64::from(soak.problems.is_empty());
        count("two hosts on a bad cable", "`mp-torture soak`", [right, 1]);
    }
    for [.., struck, caught, _] in mutated {
        let numbers = [caught, struck].map(|number| number.parse().unwrap_or_default());
        count(
            "faults in the solver, caught by the verdict",
            "tests of `hpgmg/src/mutation`",
            numbers,
        );
    }
    classes.sort_by(|a, b| a.name.cmp(&b.name));
    let mut class = |name: String, by, right, runs| classes.push(Class { name, by, runs, right });
    if !storms.is_empty() {
        let operations = storms.iter().map(|storm| storm.operations).sum::<u64>() as f64;
        let (name, all) =
            (format!("storms, {operations:.2e} operations compared with a model"), storms.len());
        class(name, "`mp-torture storm`", all as u64, all as u64);
    }
    if !fuzzed.is_empty() {
        let right = fuzzed.iter().filter(|target| !target.crashed).count() as u64;
        let inputs = fuzzed.iter().filter_map(|t| t.executions.parse::<u64>().ok()).sum::<u64>();
        let name = format!("parsers, {:.2e} inputs without a crash", inputs as f64);
        class(name, "`tools/fuzz`", right, fuzzed.len() as u64);
    }
    for (tool, [runs, right]) in sanitizers::by_tool(ran) {
        let by = match tool {
            "Miri" => "`tools/miri`",
            "loom" => "`tools/models`",
            _ => "`tools/tsan`",
        };
        class(format!("tests under {tool}"), by, right, runs);
    }
    classes
}

/// The table of them.
pub fn table(text: &mut String, material: &Material) -> Result<()> {
    writeln!(text, "| class | runs | as they must be | by |\n|---|--:|--:|---|")?;
    for Class { name, by, runs, right } in classes(material) {
        writeln!(text, "| {name} | {runs} | {right} | {by} |")?;
    }
    writeln!(text)?;
    Ok(())
}

/// Ten lines, fewer without some of the files.
pub fn in_short(material: &Material) -> String {
    let runs: Vec<&Run> = material.records.iter().flat_map(|record| &record.runs).collect();
    let mut text = "## In short\n\n".to_owned();
    let mut line = |sentence: String| _ = writeln!(text, "* {sentence}");
    if !runs.is_empty() {
        let count = |what: fn(&Run) -> usize| runs.iter().map(|run| what(run)).sum::<usize>();
        let right = count(|run| usize::from(run.problems.is_empty()));
        line(format!(
            "**{} faults** done to running jobs: {right} ended as they must.",
            runs.len()
        ));
        line(format!(
            "Hung: {}. Wrong results: {}. Processes, shared memory, sockets left behind: {}. Next jobs that did not run: {}.",
            count(|run| usize::from(run.hung)),
            count(|run| usize::from(run.wrong)),
            count(|run| run.orphans + run.leaks),
            count(|run| usize::from(!run.next_runs)),
        ));
        let told = |run: &&&Run| !matches!(run.fault.expected(), Expected::Right | Expected::Gone);
        let told: Vec<&&Run> = runs.iter().filter(told).collect();
        let sum = |what: fn(&Run) -> usize| told.iter().map(|run| what(run)).sum::<usize>();
        line(format!(
            "Survivors that named the cause: {} of {}.",
            sum(|run| run.reports),
            sum(|run| run.survivors)
        ));
        let slowest = runs.iter().filter_map(|run| Some((run.slowest?, *run)));
        if let Some((seconds, run)) = slowest.max_by(|a, b| a.0.total_cmp(&b.0)) {
            line(format!(
                "Slowest report: {seconds:.1} s after the fault ({}, {}).",
                run.fault.name(),
                run.workload.name()
            ));
        }
    }
    for Class { name, by, runs, right } in classes(material) {
        let of_faults = by.ends_with("kills`") || by.ends_with("faults`");
        if !of_faults && text_of_its_own(&name) {
            line(format!("{}: {right} of {runs} as they must be.", upper(&name)));
        }
    }
    let tools: Vec<String> = classes(material)
        .into_iter()
        .filter(|class| !text_of_its_own(&class.name))
        .map(|class| format!("{} {} of {}", class.name, class.right, class.runs))
        .collect();
    if !tools.is_empty() {
        line(format!("{}.", upper(&tools.join(", "))));
    }
    text.push('\n');
    text
}

/// Those of tests under a tool share a line.
fn text_of_its_own(class: &str) -> bool {
    !class.starts_with("tests under")
}

fn upper(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A bar for each class, as long as the logarithm of its runs; what was not as it must be in another colour at its end.
pub fn picture(material: &Material) -> String {
    const LEFT: f64 = 430.0;
    const WIDTH: f64 = 380.0;
    const LINE: f64 = 26.0;
    let classes = classes(material);
    let most = classes.iter().map(|class| class.runs).max().unwrap_or(1).max(2) as f64;
    let mut drawing = Drawing::new(LEFT + WIDTH + 130.0, 40.0 + LINE * classes.len() as f64);
    drawing.text(
        (LEFT, 18.0),
        Side::Behind,
        13,
        INK,
        "how often it was tried (logarithmic), and as it must be",
    );
    for (number, Class { name, runs, right, .. }) in classes.iter().enumerate() {
        let y = 34.0 + LINE * number as f64;
        let length = |count: u64| WIDTH * ((count + 1) as f64).log2() / (most + 1.0).log2();
        drawing.text((LEFT - 12.0, y + 12.0), Side::Before, 12, INK, name);
        drawing.bar((LEFT, y), (length(*runs), 16.0), BLUE);
        if right < runs {
            drawing.bar((LEFT + length(*runs) - 6.0, y), (6.0, 16.0), ORANGE);
        }
        let place = (LEFT + length(*runs) + 8.0, y + 12.0);
        drawing.text(place, Side::Behind, 12, GREY, &format!("{right} of {runs}"));
    }
    drawing.finish()
}
