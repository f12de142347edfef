//! The same as a Markdown document, for the repository: a summary and a picture first, then each figure in a line, its table folded.

use std::fmt::Write;
use std::path::Path;

use super::{LEGEND, Table, verdict};
use crate::result::Results;

/// The document of some runs; `command` is what makes it, `picture` the file beside it that [`super::picture`] is in.
pub fn markdown(runs: &[Results], command: &str, picture: Option<&Path>) -> String {
    let mut text = format!("# Performance\n\nMade by `{command}`; not to be edited.\n");
    if let Some((summary, words)) = verdict::table(runs) {
        _ = writeln!(text, "\n## In short\n\n{}", rows(&summary));
        _ = writeln!(text, "{words}");
    }
    if let Some(name) = picture.and_then(|path| path.file_name()) {
        let name = name.to_string_lossy();
        _ = writeln!(text, "\n![times as fast as the other, a dot for each size]({name})");
    }
    for run in runs {
        let machine = &run.machine;
        _ = writeln!(text, "\n## `{}`\n", run.command);
        let gpus = machine.gpus.join(", ");
        let place = if gpus.is_empty() { machine.processor.clone() } else { gpus };
        _ = writeln!(
            text,
            "<details><summary>{place}, {}: machine, build, method</summary>\n",
            run.date
        );
        let mut line = |what: &str, value: &str| _ = writeln!(text, "* {what}: {value}");
        line("when", &run.date);
        line("machine", &machine.what());
        if !machine.gpus.is_empty() {
            line("GPUs", &machine.gpus.join(", "));
            line("CUDA", machine.driver.as_deref().unwrap_or("unknown"));
        }
        line("build", &run.build);
        for sentence in &run.method {
            line("method", sentence);
        }
        text.push_str("\n</details>\n");
        for figure in &run.figures {
            let better = if figure.less_is_better { "less" } else { "more" };
            _ = writeln!(text, "\n### {} ({better} is better)\n", figure.title);
            let sentence = verdict::sentence(figure);
            if !sentence.is_empty() {
                _ = writeln!(text, "This library {sentence}.\n");
            }
            text.push_str("<details><summary>Table</summary>\n\n");
            for table in Table::all(figure) {
                _ = writeln!(text, "{}", rows(&table));
            }
            for sentence in run.absent_from(figure) {
                _ = writeln!(text, "{sentence}\n");
            }
            _ = writeln!(text, "{LEGEND}\n\n</details>");
        }
    }
    text
}

/// A table in Markdown.
fn rows(table: &Table) -> String {
    let mut text = String::new();
    let mut row = |cells: &[String]| _ = writeln!(text, "| {} |", cells.join(" | "));
    row(&table.head);
    row(&vec!["---:".to_owned(); table.head.len()]);
    table.rows.iter().for_each(|cells| row(cells));
    text
}
