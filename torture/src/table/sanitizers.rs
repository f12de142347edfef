//! What ran under Miri, ThreadSanitizer and loom: the log of `tools/record-tests`, and its table.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;

/// A test program under a tool, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    tool: String,
    program: String,
    begin: String,
    revision: String,
    passed: u64,
    failed: u64,
    /// Data races, or undefined behaviour.
    reports: u64,
    seconds: u64,
}

impl Ran {
    fn read(line: &str) -> Option<Ran> {
        let fields: Vec<&str> = line.strip_prefix("== ")?.split(", ").collect();
        let [tool, program, begin, revision, passed, failed, reports, seconds] = fields[..] else {
            return None;
        };
        let number = |field: &str, unit| field.strip_suffix(unit)?.trim_end().parse().ok();
        Some(Ran {
            tool: tool.to_owned(),
            program: program.to_owned(),
            begin: begin.to_owned(),
            revision: revision.to_owned(),
            passed: number(passed, "passed")?,
            failed: number(failed, "failed")?,
            reports: number(reports, "reports")?,
            seconds: number(seconds, "s")?,
        })
    }
}

/// Reads a log; `None` if it is none.
pub fn read(log: &str) -> Option<Vec<Ran>> {
    let ran: Vec<Ran> = log.lines().map(Ran::read).collect::<Option<_>>()?;
    (!ran.is_empty()).then_some(ran)
}

/// The last run of each program under each tool: tests, and those that passed and of whose programs nothing was reported.
pub fn by_tool(ran: &[Ran]) -> BTreeMap<&str, [u64; 2]> {
    let mut sums: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for ran in last(ran).into_values() {
        let [tests, right] = sums.entry(&ran.tool).or_default();
        *tests += ran.passed + ran.failed;
        *right += ran.passed.saturating_sub(ran.reports);
    }
    sums
}

fn last(ran: &[Ran]) -> BTreeMap<(&str, &str), &Ran> {
    ran.iter().map(|ran| ((&ran.tool[..], &ran.program[..]), ran)).collect()
}

/// The last run of each program.
pub fn table(text: &mut String, ran: &[Ran]) -> Result<()> {
    let last = last(ran);
    let mut sums: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for ran in last.values() {
        let sum = sums.entry(&ran.tool).or_default();
        for (sum, number) in sum.iter_mut().zip([ran.passed, ran.failed, ran.reports]) {
            *sum += number;
        }
    }
    let sums: Vec<String> = sums
        .into_iter()
        .map(|(tool, [passed, failed, reports])| {
            format!("{tool}: {passed} passed, {failed} failed, {reports} reports")
        })
        .collect();
    writeln!(
        text,
        "## Data races, undefined behaviour, interleavings\n\nThe last run of each test program under ThreadSanitizer (`tools/tsan`: ranks as \
         threads, the software NIC, the device headers built for the host), of the parts without I/O under Miri (`tools/miri`), and of the \
         lock-free parts under every interleaving (loom, `tools/models`, where a mistake made on purpose has to be noticed for its test to \
         pass). A report is a data race or undefined behaviour. {}.\n",
        sums.join("; ")
    )?;
    writeln!(text, "<details><summary>Table</summary>\n")?;
    writeln!(
        text,
        "| under | tests of | begun | revision | passed | failed | reports | seconds |"
    )?;
    writeln!(text, "|---|---|---|---|--:|--:|--:|--:|")?;
    for ran in last.values() {
        let Ran { tool, program, begin, revision, passed, failed, reports, seconds } = ran;
        writeln!(
            text,
            "| {tool} | {program} | {begin} | {revision} | {passed} | {failed} | {reports} | {seconds} |"
        )?;
    }
    writeln!(text, "\n</details>\n")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
== Miri, libmp/src/lib.rs, 2026-01-01T10:00Z, 0123456789ab, 5 passed, 0 failed, 0 reports, 7 s
== ThreadSanitizer, libmp/tests/a.rs, 2026-01-01T10:01Z, 0123456789ab, 3 passed, 1 failed, 2 reports, 9 s
== ThreadSanitizer, libmp/tests/b.rs, 2026-01-01T10:02Z, 0123456789ab, 4 passed, 0 failed, 0 reports, 9 s
== ThreadSanitizer, libmp/tests/a.rs, 2026-01-02T10:00Z, ba9876543210 with changes, 4 passed, 0 failed, 0 reports, 8 s
";

    #[test]
    fn the_last_run_of_each_program_counts() {
        let mut text = String::new();
        table(&mut text, &read(LOG).unwrap()).unwrap();
        assert!(text.contains("ThreadSanitizer: 8 passed, 0 failed, 0 reports"), "{text}");
        let row = "| ThreadSanitizer | libmp/tests/a.rs | 2026-01-02T10:00Z | ba9876543210 with changes | 4 | 0 | 0 | 8 |";
        assert!(text.contains(row), "{text}");
        assert_eq!(text.matches("libmp/tests/a.rs").count(), 1);
    }

    #[test]
    fn failures_and_reports_are_shown() {
        let mut text = String::new();
        let first: Vec<&str> = LOG.lines().take(2).collect();
        table(&mut text, &read(&first.join("\n")).unwrap()).unwrap();
        assert!(text.contains("ThreadSanitizer: 3 passed, 1 failed, 2 reports"), "{text}");
    }

    #[test]
    fn what_is_no_log_of_it_is_not_read() {
        assert_eq!(read(""), None);
        assert_eq!(read("== hub, 600 s, 2026-01-01T10:00Z\n"), None);
        assert_eq!(read(&LOG.replace("5 passed", "many passed")), None);
    }
}
