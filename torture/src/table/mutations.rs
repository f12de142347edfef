//! Faults put into HPGMG-FV, and how many its verdict caught: the lines that the tests of `hpgmg/src/mutation.rs` print.

use std::fmt::Write;

use anyhow::Result;

/// One setting: its name, the way of communicating, faults that changed a result, caught, caught without reference values.
pub type Row = [String; 5];

/// Reads a log; `None` if it holds no such line.
pub fn read(log: &str) -> Option<Vec<Row>> {
    let row = |line: &str| -> Option<Row> {
        // The name of the test may stand before it.
        let (_, row) = line.split_once("mutations: ")?;
        let parts: Vec<String> = row.split("; ").map(|part| part.trim().to_owned()).collect();
        parts.try_into().ok()
    };
    let mut rows: Vec<Row> = log.lines().filter_map(row).collect();
    rows.sort();
    (!rows.is_empty()).then_some(rows)
}

/// The section.
pub fn table(text: &mut String, rows: &[Row]) -> Result<()> {
    let sum =
        |column: usize| rows.iter().filter_map(|row| row[column].parse::<u64>().ok()).sum::<u64>();
    writeln!(
        text,
        "## Faults in the solver\n\n{} runs of HPGMG-FV, 32³ on two ranks, each with a fault put into it: ghosts zero, shifted, of the wrong sign; \
         messages lost or stale; wrong boundaries, weights of restriction and interpolation, sweeps, diagonals, coefficients, right-hand sides; numbers \
         that are none, in one rank (`hpgmg/src/mutation.rs`). Counted are those that change a bit of what is found. Caught: the verdict is FAIL, {} of \
         {}. The last column is what the verdict catches where it has no reference value to compare with and judges by bounds, which a small or coarse \
         fault can stay within: {} of {}.\n",
        sum(2),
        sum(3),
        sum(2),
        sum(4),
        sum(2)
    )?;
    writeln!(text, "<details><summary>Table</summary>\n")?;
    writeln!(
        text,
        "| operator, smoother, cycle, boundary, equation | communication | faults | caught | by bounds alone |\n|---|---|--:|--:|--:|"
    )?;
    for [settings, way, faults, caught, bounds] in rows {
        writeln!(text, "| {settings} | {way} | {faults} | {caught} | {bounds} |")?;
    }
    writeln!(text, "\n</details>\n")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_of_mutations_is_read_and_summed() {
        let log = "running 1 test\ntest a ... mutations: fv4 f; threads; 62; 61; 44\nmutations: fv2 f; host; 8; 8; 6\n";
        let rows = read(log).unwrap();
        let mut text = String::new();
        table(&mut text, &rows).unwrap();
        assert!(
            text.contains("| fv4 f | threads | 62 | 61 | 44 |") && text.contains("69 of 70"),
            "{text}"
        );
        assert_eq!(read("nothing"), None);
    }
}
