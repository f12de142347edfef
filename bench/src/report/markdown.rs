//! The same as a Markdown document, for the repository.

use std::fmt::Write;

use super::{LEGEND, Table};
use crate::result::Results;

/// The document of some runs; `command` is what makes it.
pub fn markdown(runs: &[Results], command: &str) -> String {
    let mut text = format!("# Performance\n\nMade by `{command}`; not to be edited.\n");
    for run in runs {
        let machine = &run.machine;
        _ = writeln!(text, "\n## `{}`\n", run.command);
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
        for figure in &run.figures {
            let better = if figure.less_is_better { "less" } else { "more" };
            _ = writeln!(text, "\n### {} ({better} is better)\n", figure.title);
            for table in Table::all(figure) {
                let mut row = |cells: &[String]| _ = writeln!(text, "| {} |", cells.join(" | "));
                row(&table.head);
                row(&vec!["---:".to_owned(); table.head.len()]);
                table.rows.iter().for_each(|cells| row(cells));
                text.push('\n');
            }
            for sentence in run.absent_from(figure) {
                _ = writeln!(text, "{sentence}\n");
            }
            _ = writeln!(text, "{LEGEND}");
        }
    }
    text
}
