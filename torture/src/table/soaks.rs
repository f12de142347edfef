//! The table of soaks: what `mp-torture soak` wrote.

use std::fmt::Write;

use anyhow::Result;

use crate::soak::{Soak, Solves};

/// Reads one; `None` if the text is none.
pub fn read(text: &str) -> Option<Soak> {
    serde_json::from_str(text).ok()
}

/// What was done to the cable, and what came through it.
pub fn table(text: &mut String, soaks: &[Soak]) -> Result<()> {
    writeln!(
        text,
        "## Two hosts on a bad cable\n\nFour ranks on two hosts, as network namespaces, whose cable in turn loses 1 % of the frames, lets 5 % be overtaken, \
         duplicates 2 %, delays all by 2 to 3 ms, does all of that at once, or nothing, and is cut for a second now and then \
         (`torture/src/cable.rs`). A storm goes on all the time, each of its words compared with a model; beside it HPGMG-FV solves, \
         one job after another, each result compared bit by bit with a run without a cable. Memory and descriptors are those of the storm's \
         largest rank after the first quarter and at the end.\n"
    )?;
    for soak in soaks {
        writeln!(text, "{:.1} minutes {}.\n", soak.minutes, soak.origin)?;
        let cable = &soak.cable;
        writeln!(text, "| what | how much |\n|---|--:|")?;
        writeln!(text, "| frames on the cable | {} |", cable.frames)?;
        writeln!(text, "| lost | {} |", cable.lost)?;
        writeln!(text, "| overtaken | {} |", cable.late)?;
        writeln!(text, "| duplicated | {} |", cable.twice)?;
        writeln!(text, "| delayed | {} |", cable.delayed)?;
        writeln!(
            text,
            "| cuts of a second; frames lost in them | {}; {} |",
            cable.cuts, cable.cut_off
        )?;
        if let Some(storm) = &soak.storm {
            writeln!(text, "| storm: operations | {} |", storm.operations)?;
            writeln!(
                text,
                "| storm: messages and words compared | {}; {} |",
                storm.messages, storm.words
            )?;
            writeln!(text, "| storm: worlds | {} |", storm.worlds)?;
            let ([first, last], growth) = (storm.resident_kib, storm.growth_kib);
            writeln!(
                text,
                "| storm: resident KiB; growth by a line | {first} → {last}; {growth:+.0} |"
            )?;
            let [first, last] = storm.descriptors;
            writeln!(text, "| storm: descriptors | {first} → {last} |")?;
        }
        for Solves { comm, jobs, right, longest } in &soak.solves {
            writeln!(
                text,
                "| HPGMG-FV, `--comm {comm}`: jobs, right, longest | {jobs}, {right}, {longest:.1} s |"
            )?;
        }
        writeln!(text, "| not as it should be | {} |\n", soak.problems.len())?;
        for problem in &soak.problems {
            writeln!(text, "* {problem}")?;
        }
    }
    Ok(())
}
