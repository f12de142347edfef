//! What a job's end means: who named whom, when, and what should have been otherwise. No I/O.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fault::{Expected, Fault, Phase};
use crate::job::{Ended, FULL, Job};

/// Exit status of mprun for a job of which a rank was killed.
const KILLED: i32 = 128 + 9;
/// How soon after a rank was killed at any moment every survivor must have named it.
const SOON: Duration = Duration::from_secs(2);

/// The judgement of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verdict {
    pub survivors: usize,
    /// Survivors that named the cause.
    pub reports: usize,
    /// From the fault to the last of these.
    pub slowest: Option<Duration>,
    /// The job ended in order, with the right result.
    pub right: bool,
    /// A result was given as right that is not.
    pub wrong: bool,
    pub problems: Vec<String>,
}

/// What a rank said: its first blame, or that it finished.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Said {
    blames: Vec<(Instant, Vec<usize>, String)>,
    finished: bool,
    other: Vec<String>,
}

/// The ranks that a sentence of libmp says are the cause; empty if it blames nobody.
pub fn blamed(text: &str) -> Vec<usize> {
    let numbers = |text: &str| -> Vec<usize> {
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
    };
    let before = |end: usize| -> Option<usize> {
        let begin = text[..end].rfind("rank ")? + "rank ".len();
        numbers(&text[begin..end]).first().copied()
    };
    for sentence in [" is lost", " aborted the world", " did not enter it"] {
        if let Some(end) = text.find(sentence) {
            return before(end).into_iter().collect();
        }
    }
    if let Some(end) = text.find(" did not arrive") {
        let begin = text[..end].find("rank").unwrap_or(0);
        let list = text[begin..end].split(" of ").next().unwrap_or_default();
        return numbers(list);
    }
    let alone =
        ["could not reach rank 0", "rank 0 cannot listen", "rank 0 accepted the connection"];
    if alone.iter().any(|sentence| text.contains(sentence)) {
        return vec![0];
    }
    Vec::new()
}

/// The rank that a line is from, and what it says: `[1] text` of mprun, `storm: rank 1: text` of threads.
fn from_rank(line: &str) -> Option<(usize, &str)> {
    let (mut rank, mut text) = (None, line);
    if let Some((number, rest)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        rank = number.trim().parse().ok();
        text = rest.trim_start();
    }
    if let Some((number, rest)) =
        text.strip_prefix("storm: rank ").and_then(|rest| rest.split_once(": "))
    {
        rank = number.parse().ok().or(rank);
        text = rest;
    }
    Some((rank?, text))
}

/// The numbers of a run of HPGMG that every run must find, to the bit.
pub fn numbers(json: &str) -> Option<Value> {
    let report: Value = serde_json::from_str(json).ok()?;
    let solves: Vec<Value> = report
        .get("solves")?
        .as_array()?
        .iter()
        .map(|solve| {
            ["dim", "fmax", "umax", "cycles"].map(|key| solve[key].clone()).to_vec().into()
        })
        .collect();
    Some(serde_json::json!([report.get("lambda_max")?, solves]))
}

/// Judges.
pub fn judge(job: &Job, ended: &Ended, reference: Option<&Value>) -> Verdict {
    let mut verdict = Verdict::default();
    let mut said = vec![Said::default(); job.ranks];
    for line in &ended.lines {
        verdict.wrong |= line.text.contains("WRONG:");
        let Some((rank, text)) = from_rank(&line.text) else { continue };
        let Some(said) = said.get_mut(rank) else { continue };
        let blamed = blamed(text);
        said.finished |= text == "finished";
        if !blamed.is_empty() {
            said.blames.push((line.at, blamed, text.to_owned()));
        } else {
            said.other.push(text.to_owned());
        }
    }
    if ended.status == Some(0) {
        let result = ended.json.as_deref();
        verdict.right = match job.workload {
            workload if workload.is_hpgmg() => {
                result.and_then(numbers).as_ref() == reference && reference.is_some()
            }
            _ => result.is_some_and(|text| crate::storm::read(text).is_ok()),
        };
        if !verdict.right && job.fault != Some(Fault::DiskFull) {
            verdict.wrong = true;
        }
    }
    let expected = job.fault.map_or(Expected::Right, Fault::expected);
    check(job, ended, expected, &said, &mut verdict);
    let mut problem = |text: String| verdict.problems.push(text);
    if ended.hung {
        problem("it hung".into());
    }
    if !ended.left.processes.is_empty() {
        problem(format!("processes {:?} were left", ended.left.processes));
    }
    if !ended.left.others.is_empty() {
        problem(format!("left: {}", ended.left.others.join(", ")));
    }
    if verdict.wrong {
        verdict.problems.push("a wrong result was given as right".into());
    }
    verdict
}

fn check(job: &Job, ended: &Ended, expected: Expected, said: &[Said], verdict: &mut Verdict) {
    let status = ended.status;
    let text = || tail(ended);
    match expected {
        Expected::Right => {
            if !verdict.right {
                verdict.problems.push(format!("it ended with {status:?}: {}", text()));
            } else if job.fault == Some(Fault::Paused)
                && job.phase != Phase::Finish
                && ended.struck.is_none()
            {
                verdict.problems.push("it was over before the fault".into());
            }
        }
        Expected::Gone => {}
        Expected::TimelineLost => {
            verdict.survivors = 1;
            let lost = ended
                .lines
                .iter()
                .any(|line| line.text.contains("the timeline is lost") && line.text.contains(FULL));
            verdict.reports = usize::from(lost);
            if !lost {
                verdict.problems.push(format!("the lost timeline is not reported: {}", text()));
            }
            if !verdict.right {
                verdict.problems.push(format!("it ended with {status:?}: {}", text()));
            }
        }
        Expected::FileNamed => {
            verdict.survivors = 1;
            let names = ended.lines.iter().find(|line| line.text.contains(FULL));
            verdict.reports = usize::from(names.is_some());
            if status == Some(0) || names.is_none() {
                verdict
                    .problems
                    .push(format!("the full disk is not reported: {status:?}: {}", text()));
            }
        }
        Expected::NamedOrRight | Expected::Named | Expected::NamedBothWays => {
            if verdict.right {
                // The fault came when everything was done.
                let may = expected == Expected::NamedOrRight
                    || matches!(job.phase, Phase::Finish | Phase::Random);
                if !may && !came_too_late(ended) {
                    verdict
                        .problems
                        .push("the job ended in order, as if nothing had happened".into());
                }
                return;
            }
            if job.fault == Some(Fault::Killed) && !job.workload.is_threads() {
                launcher(job, ended, verdict);
            }
            // Ended by the launcher at once, they need not have found the time.
            let heard = if job.lingers { said } else { &[] };
            for (rank, said) in heard.iter().enumerate() {
                let both = expected == Expected::NamedBothWays;
                if rank == job.victim && !both {
                    continue;
                }
                verdict.survivors += 1;
                let culprit = if rank == job.victim { 0 } else { job.victim };
                survivor(job, rank, culprit, said, ended, verdict);
            }
        }
    }
}

/// mprun blames the rank that was killed, with its status, and nobody before it.
fn launcher(job: &Job, ended: &Ended, verdict: &mut Verdict) {
    let blame = ended.lines.iter().find(|line| line.text.starts_with("mprun: rank "));
    let right = format!("mprun: rank {} (process ", job.victim);
    let named = blame.is_some_and(|line| {
        line.text.starts_with(&right) && line.text.contains(") was killed by SIGKILL")
    });
    if !named || ended.status != Some(KILLED) {
        let said = blame.map_or("nothing", |line| &line.text);
        let status = ended.status;
        verdict.problems.push(format!("mprun ended with {status:?} and said: {said}"));
    }
}

/// mprun says that a rank failed.
fn failed(rank: usize, ended: &Ended) -> bool {
    let failed = format!("mprun: rank {rank} (process ");
    ended.lines.iter().any(|line| line.text.starts_with(&failed))
}

/// The fault was not done before the end of the job.
fn came_too_late(ended: &Ended) -> bool {
    ended.struck.is_some_and(|struck| struck >= ended.over)
}

fn survivor(
    job: &Job,
    rank: usize,
    culprit: usize,
    said: &Said,
    ended: &Ended,
    verdict: &mut Verdict,
) {
    let named = |blamed: &[usize]| blamed.contains(&culprit);
    match said.blames.iter().find(|(_, blamed, _)| named(blamed)) {
        Some((_, _, text)) if job.fault == Some(Fault::DriverError) && !text.contains("CUDA") => {
            verdict.problems.push(format!("rank {rank} does not name the driver: {text}"));
        }
        Some((at, _, _)) => {
            verdict.reports += 1;
            if let Some(struck) = ended.struck {
                let after = at.saturating_duration_since(struck);
                if job.phase == Phase::Random && after > SOON {
                    let late = format!("rank {rank} named rank {culprit} only after {after:.1?}");
                    verdict.problems.push(late);
                }
                verdict.slowest = Some(verdict.slowest.map_or(after, |slowest| slowest.max(after)));
            }
        }
        // Its finish was complete before: it has nothing to report, and HPGMG says nothing then.
        None if said.finished
            || job.phase == Phase::Finish && job.workload.is_hpgmg() && said.blames.is_empty()
            || job.phase == Phase::Random && !failed(rank, ended) =>
        {
            verdict.survivors -= 1;
        }
        None => verdict.problems.push(format!(
            "rank {rank} did not name rank {culprit}, it said: {:?}",
            said.blames.iter().map(|blame| &blame.2).chain(&said.other).collect::<Vec<_>>()
        )),
    }
    if let Some((_, _, text)) = said.blames.iter().find(|(_, blamed, _)| !named(blamed)) {
        verdict.problems.push(format!("rank {rank} blamed another than rank {culprit}: {text}"));
    }
}

/// The last lines, for people.
fn tail(ended: &Ended) -> String {
    let lines: Vec<&str> =
        ended.lines.iter().rev().take(6).map(|line| line.text.as_str()).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Workload;
    use crate::job::Line;

    #[test]
    fn the_blamed_rank_is_read_from_each_of_libmps_sentences() {
        for (text, ranks) in [
            (
                "rank 2 on n1 is lost: its connection was closed (end of stream) (during barrier)",
                vec![2],
            ),
            ("Error: rank 12 on n1 aborted the world: rank 3 is tired (during sum)", vec![12]),
            ("barrier did not complete within 2s: rank 1 on n1 did not enter it", vec![1]),
            (
                "ranks 1, 2 and 5 of 8 did not arrive within 60.0s; turned away: 127.0.0.1:4: no",
                vec![1, 2, 5],
            ),
            ("rank 2 could not reach rank 0 at 127.0.0.1:1 for 4s: refused", vec![0]),
            ("rank 0 cannot listen on 127.0.0.1:1: in use", vec![0]),
            ("rank 0 accepted the connection and then did not answer (during init)", vec![0]),
            ("recv tag 1 of rank 0 on n1 not complete after 20s", vec![]),
        ] {
            assert_eq!(blamed(text), ranks, "{text}");
        }
    }

    #[test]
    fn a_line_is_known_by_the_launchers_prefix_or_the_storms() {
        assert_eq!(from_rank("[1] Error: rank 2 is lost"), Some((1, "Error: rank 2 is lost")));
        assert_eq!(from_rank("[0] storm: rank 0: finished"), Some((0, "finished")));
        assert_eq!(from_rank("storm: rank 3: finished"), Some((3, "finished")));
        assert_eq!(from_rank("mprun: rank 1 was killed"), None);
    }

    fn job(fault: Fault) -> Job {
        Job {
            fault: Some(fault),
            phase: Phase::Middle,
            workload: Workload::StormHost,
            victim: 1,
            ranks: 3,
            seed: 1,
            length: Duration::from_secs(1),
            moment: Duration::ZERO,
            lingers: true,
        }
    }

    fn ended(status: i32, lines: &[&str]) -> Ended {
        let now = Instant::now();
        let line = |text: &&str| Line { at: now, text: (*text).to_owned() };
        Ended {
            status: Some(status),
            lines: lines.iter().map(line).collect(),
            stdout: String::new(),
            struck: Some(now),
            over: now + Duration::from_secs(1),
            hung: false,
            stalled: Duration::ZERO,
            left: Default::default(),
            json: None,
        }
    }

    #[test]
    fn every_survivor_must_name_the_victim_and_nobody_else() {
        let lost = "storm: rank 0: rank 1 on n is lost: x";
        let blame = "mprun: rank 1 (process 5) was killed by SIGKILL; ending the other ranks";
        let good = ended(137, &[blame, lost, "[2] storm: rank 2: rank 1 on n is lost: x"]);
        let verdict = judge(&job(Fault::Killed), &good, None);
        assert_eq!((verdict.reports, verdict.survivors, verdict.problems.len()), (2, 2, 0));
        let silent = judge(&job(Fault::Killed), &ended(137, &[blame, lost]), None);
        assert!(silent.problems[0].contains("rank 2 did not name rank 1"), "{silent:?}");
        let wrong = ended(137, &[blame, lost, "storm: rank 2: rank 0 on n is lost: x"]);
        assert_eq!(judge(&job(Fault::Killed), &wrong, None).problems.len(), 2);
    }

    #[test]
    fn mprun_must_blame_the_killed_rank_and_end_with_its_status() {
        let killed = Job { lingers: false, phase: Phase::Random, ..job(Fault::Killed) };
        let problems = |status: i32, lines: &[&str]| {
            judge(&killed, &ended(status, lines), None).problems.join("; ")
        };
        let right = "mprun: rank 1 (process 5) was killed by SIGKILL; ending the other ranks";
        let survivor = "mprun: rank 2 (process 6) exited with status 1";
        assert_eq!(problems(137, &[right, survivor]), "");
        assert!(problems(1, &[survivor, right]).contains("mprun ended with Some(1)"));
        assert!(problems(137, &[survivor, right]).contains("said: mprun: rank 2"));
        assert!(problems(1, &[right]).contains("Some(1)"));
        assert!(problems(137, &[]).contains("nothing"));
    }

    #[test]
    fn a_killed_rank_must_be_named_soon() {
        let right = "mprun: rank 1 (process 5) was killed by SIGKILL; ending the other ranks";
        let lost = |rank: usize| format!("[{rank}] storm: rank {rank}: rank 1 on n is lost: x");
        let killed = Job { phase: Phase::Random, ..job(Fault::Killed) };
        let mut late = ended(137, &[right, &lost(0), &lost(2)]);
        assert_eq!(judge(&killed, &late, None).problems, [""; 0]);
        late.struck = late.struck.map(|struck| struck - 2 * SOON);
        assert_eq!(judge(&killed, &late, None).problems.len(), 2);
    }

    #[test]
    fn a_job_that_ends_with_0_and_no_result_is_wrong_and_one_that_should_go_on_must() {
        let verdict = judge(&job(Fault::Killed), &ended(0, &[]), None);
        assert!(verdict.wrong);
        let verdict =
            judge(&job(Fault::Paused), &ended(1, &["storm: rank 0: rank 1 on n is lost"]), None);
        assert!(!verdict.problems.is_empty());
    }

    #[test]
    fn a_survivor_of_a_driver_error_must_name_the_driver() {
        let with = |why: &str| {
            let lines = [0, 2].map(|rank| {
                format!(
                    "[{rank}] storm: rank {rank}: rank 1 on n aborted the world: {why} (during sum)"
                )
            });
            let ended = ended(1, &[&lines[0], &lines[1]]);
            judge(&Job { workload: Workload::StormGpu, ..job(Fault::DriverError) }, &ended, None)
        };
        let named = with("cuMemAlloc_v2 failed: unspecified launch failure (CUDA error 719)");
        assert_eq!((named.reports, named.problems.len()), (2, 0), "{named:?}");
        assert_eq!(with("it is tired").problems.len(), 2);
    }

    #[test]
    fn a_lost_timeline_must_be_said_and_cost_nothing() {
        let said = "[0] libmp: the timeline is lost: writing the timeline /dev/full: no space";
        let failed = judge(&job(Fault::TraceFull), &ended(1, &[said]), None);
        assert!(failed.reports == 1 && !failed.problems.is_empty(), "{failed:?}");
        let silent = judge(&job(Fault::TraceFull), &ended(0, &[]), None);
        assert!(silent.problems.iter().any(|text| text.contains("not reported")), "{silent:?}");
    }

    #[test]
    fn a_difference_from_the_model_is_a_wrong_result() {
        let verdict =
            judge(&job(Fault::Killed), &ended(9, &["storm: rank 0: WRONG: word 3"]), None);
        assert!(verdict.wrong && !verdict.problems.is_empty());
    }
}
