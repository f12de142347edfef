//! What becomes of the ranks' output.

use std::fs::File;

use super::*;

#[test]
fn with_prefix_every_line_of_both_streams_begins_with_the_rank() {
    let job = run(&["-n", "2", "-l", "sh", "-c", "echo out; echo; echo err >&2"]);
    assert_eq!(job.sorted(), ["[0] ", "[0] out", "[1] ", "[1] out"]);
    let mut errors: Vec<_> = job.stderr.lines().collect();
    errors.sort_unstable();
    assert_eq!(errors, ["[0] err", "[1] err"]);
}

#[test]
fn lines_of_many_ranks_never_mix() {
    // Every line is written in three pieces.
    let program = "i=0; while [ $i -lt 300 ]; do
                     printf 'rank %s' $MP_RANK; printf ' line %s' $i; echo ' end of line'; i=$((i+1))
                   done";
    let job = script(8, program);
    assert!(job.status.success(), "{job:?}");
    let mut expected: Vec<_> = (0..8)
        .flat_map(|rank| (0..300).map(move |i| format!("rank {rank} line {i} end of line")))
        .collect();
    expected.sort_unstable();
    assert_eq!(job.sorted(), expected);
    // And the lines of one rank keep their order.
    let of_rank_3 = job.stdout.lines().filter(|line| line.starts_with("rank 3 "));
    assert!(of_rank_3.enumerate().all(|(i, line)| line == format!("rank 3 line {i} end of line")));
}

#[test]
fn the_status_of_a_job_says_what_happened_where_words_are_lost() {
    let mprun = env!("CARGO_BIN_EXE_mprun");
    let unheard = |arguments: &[&str]| mp_program::absurd::unheard(mprun, arguments).unwrap();
    assert_eq!(unheard(&["-n", "2", "true"]), [Some(0); 2]);
    // A rank that cannot say so itself, and one whose words mprun passes on.
    assert_eq!(unheard(&["-n", "2", "sh", "-c", "exit $((7 * MP_RANK))"]), [Some(7); 2]);
    assert_eq!(unheard(&["-l", "-n", "2", "sh", "-c", "seq 9 >&2; exit 3"]), [Some(3); 2]);
    assert_eq!(unheard(&["-n", "1", "/nowhere"]), [Some(127); 2]);
    assert_eq!(unheard(&["-n", "x", "true"]), [Some(2); 2]);
}

#[test]
fn mp_info_ends_with_its_status_where_words_are_lost() {
    let info = env!("CARGO_BIN_EXE_mp-info");
    let unheard = |arguments: &[&str]| mp_program::absurd::unheard(info, arguments).unwrap();
    assert_eq!(unheard(&["--root", "/nowhere"]), [Some(2); 2]);
    let [full, closed] = unheard(&["--root", "/"]);
    assert!(full == closed && matches!(full, Some(0 | 1)), "{full:?} {closed:?}");
}

#[test]
fn nothing_is_lost_when_a_rank_ends_right_after_writing() {
    for _ in 0..10 {
        let job = run(&["-n", "4", "sh", "-c", "seq 20000; seq 20000 >&2"]);
        assert!(job.status.success());
        assert_eq!(job.stdout.lines().count(), 4 * 20_000);
        assert_eq!(job.stderr.lines().count(), 4 * 20_000);
    }
}

#[test]
fn nothing_is_lost_when_the_reader_is_slower_than_the_job() {
    // More than one pipe holds, less than two do: the rank ends before anybody reads.
    let job = Job::start(&mut mprun(&["-n", "1", "seq", "20000"]));
    thread::sleep(Duration::from_millis(500));
    let job = job.end();
    assert!(job.status.success(), "{}", job.stderr);
    assert_eq!(job.stdout.lines().count(), 20_000);
}

#[test]
fn nothing_is_lost_when_a_rank_fails_right_after_writing() {
    let program = "seq 20000; [ $MP_RANK != 2 ] || exit 6; sleep 1000";
    let job = run(&["-n", "4", "-l", "sh", "-c", program]);
    assert_eq!(job.status.code(), Some(6));
    assert_eq!(job.stdout.lines().filter(|line| line.starts_with("[2] ")).count(), 20_000);
    assert!(job.stderr.starts_with("mprun: rank 2"), "{}", job.stderr);
}

#[test]
fn bytes_of_one_rank_arrive_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in"), folder.path().join("out"));
    // Every byte value, no text, long stretches without a newline, no newline at the end.
    let bytes: Vec<u8> =
        (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let bytes = [&bytes[..], &[b'x'; 3 << 20]].concat();
    std::fs::write(&input, &bytes).unwrap();
    let mut command = mprun(&["-n", "1", "cat", input.to_str().unwrap()]);
    let job = Job::start(command.stdout(File::create(&output).unwrap())).end();
    assert!(job.status.success(), "{job:?}");
    assert!(std::fs::read(&output).unwrap() == bytes, "the output differs from the input");
}

#[test]
fn a_line_that_is_no_text_keeps_its_bytes_behind_the_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out");
    let mut command = mprun(&["-n", "1", "-l", "printf", "\\377\\000\\n\\200"]);
    Job::start(command.stdout(File::create(&output).unwrap())).end();
    assert_eq!(std::fs::read(&output).unwrap(), b"[0] \xff\0\n[0] \x80");
}

#[test]
fn a_last_line_without_end_is_passed_on_and_kept_apart() {
    assert_eq!(script(1, "printf abc").stdout, "abc");
    let job = script(3, "printf abc");
    assert_eq!(job.stdout, "abc\nabc\nabc");
}

#[test]
fn ranks_learn_that_nobody_reads() {
    let command = format!("{} -n 2 yes | head -n 1; echo end", env!("CARGO_BIN_EXE_mprun"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).stdout(Stdio::piped()).stderr(Stdio::piped());
    assert_eq!(Job::start(&mut shell).end().stdout, "y\nend\n");
}

#[test]
fn a_full_disk_is_told_and_makes_the_job_fail() {
    let mut command = mprun(&["-n", "1", "echo", "x"]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let job = Job::start(command.stdout(full)).end();
    assert_eq!(job.status.code(), Some(1));
    assert!(job.stderr.contains("cannot write the standard output: No space left"), "{job:?}");
}

#[test]
fn a_process_that_left_the_job_keeps_nobody_waiting() {
    // In a session of its own it is not ours to end, but it holds the pipe of its rank open.
    let (_folder, escaped) = meeting();
    let program =
        format!("setsid sh -c 'echo $$; >{escaped}; exec sleep 1000' & {}", until_there(&escaped));
    let mut job = Job::start(&mut mprun(&["-n", "1", "sh", "-c", &program]));
    let escaped = job.wait_for_pids(1)[0];
    assert!(job.wait().success());
    assert!(runs(escaped), "it was to survive");
    rustix::process::kill_process(Pid::from_raw(escaped).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn a_reader_that_stops_reading_keeps_mprun_from_nothing() {
    let mut job = Job::start(&mut mprun(&["-n", "2", "--kill-after", "0.2", "yes"]));
    job.wait_for_lines(1);
    // The pipes are full within the blink of an eye; nobody reads any more.
    thread::sleep(Duration::from_millis(200));
    job.signal(Signal::INT);
    assert_eq!(job.wait().code(), Some(130));
}
