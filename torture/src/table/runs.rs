//! What `mp-torture sweep` and `mp-torture soak` did, as sections of the document.

use std::fmt::Write;

use anyhow::Result;

use std::collections::BTreeMap;

use crate::soak::{Soak, Solves};
use crate::sweep::Sweep;

/// Which jobs there were, by how their ranks and messages were started and by path.
pub fn sweep(text: &mut String, sweep: &Sweep) -> Result<()> {
    let [right, all] = sweep.right();
    writeln!(
        text,
        "## Every way, every path, one rank to sixteen\n\n{right} of {all} jobs of HPGMG-FV {}. Each must end in time with the bits of one rank; {} of them \
         had to be refused, each with its sentence.\n",
        sweep.origin, sweep.refused
    )?;
    writeln!(text, "<details><summary>Table</summary>\n")?;
    writeln!(
        text,
        "| ranks are | messages started by | path | numbers of ranks | longest | problems |\n|---|---|---|---|--:|--:|"
    )?;
    let mut rows: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for job in &sweep.jobs {
        let case = &job.case;
        rows.entry((case.start, &case.comm, &case.path)).or_default().push(job);
    }
    for ((start, comm, path), jobs) in rows {
        let ranks: Vec<String> = jobs.iter().map(|job| job.case.ranks.to_string()).collect();
        let longest = jobs.iter().map(|job| job.seconds).fold(0.0, f64::max);
        let problems = jobs.iter().filter(|job| job.problem.is_some()).count();
        let (start, ranks) = (start.name(), ranks.join(", "));
        writeln!(text, "| {start} | {comm} | {path} | {ranks} | {longest:.1} s | {problems} |")?;
    }
    writeln!(text, "\n</details>\n")?;
    for job in &sweep.jobs {
        if let Some(problem) = &job.problem {
            writeln!(text, "* {}: {problem}", job.case.name())?;
        }
    }
    sweep.not_refused.iter().try_for_each(|problem| writeln!(text, "* {problem}"))?;
    Ok(())
}

/// What was done to the cable, and what came through it.
pub fn soaks(text: &mut String, soaks: &[Soak]) -> Result<()> {
    writeln!(
        text,
        "## Two hosts on a bad cable\n\nFour ranks on two hosts, as network namespaces, whose cable in turn loses 1 % of the frames, lets 5 % be overtaken, \
         duplicates 2 %, delays all by 2 to 3 ms, does all of that at once, or nothing, and is cut for a second now and then \
         (`torture/src/cable.rs`). A storm goes on all the time, each of its words compared with a model; beside it HPGMG-FV solves, \
         one job after another, each result compared bit by bit with a run without a cable. Memory and descriptors are those of the storm's \
         largest rank after the first quarter and at the end. From revision 40aad02 on, memory that the allocator keeps free is given \
         back before each look, and a line through the looks that rises by more than 1 MiB and four of its standard errors, or by \
         more than 2 descriptors, is a failure. Before, it was counted: up to 6.8 MB of it came and went in a soak of 33 minutes, \
         while the heap in use, looked at every 5 s, stayed between 0.3 and 4.7 MB on every rank, in the first and the last quarter.\n"
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
            let ([first, last], growth) = (storm.memory_kib, storm.growth_kib);
            writeln!(
                text,
                "| storm: KiB of memory; growth by a line | {first} → {last}; {growth:+.0} |"
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
