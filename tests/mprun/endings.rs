//! How jobs end: exit statuses, ranks that fail, and that nothing is left afterwards.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn a_job_whose_ranks_all_succeed_succeeds() {
    let job = script(4, "exit 0");
    assert_eq!((job.status.code(), &*job.stderr), (Some(0), ""));
}

#[test]
fn a_rank_that_ends_early_with_0_ends_nobody() {
    let job = script(3, "[ $MP_RANK = 1 ] || sleep 0.3; echo done");
    assert_eq!((job.status.code(), job.sorted()), (Some(0), vec!["done"; 3]));
}

#[test]
fn a_rank_that_fails_ends_the_others_and_gives_the_status() {
    let started = Instant::now();
    let job = script(3, "[ $MP_RANK = 1 ] && { echo $$; exit 7; }; sleep 1000");
    let pid = job.stdout.trim_end();
    assert_eq!(job.status.code(), Some(7));
    let said =
        format!("mprun: rank 1 (process {pid}) exited with status 7; ending the other ranks\n");
    assert_eq!(job.stderr, said);
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn a_rank_that_a_signal_kills_gives_128_and_its_number() {
    let job = script(2, "[ $MP_RANK = 0 ] && kill -SEGV $$; sleep 1000");
    assert_eq!(job.status.code(), Some(128 + 11));
    assert!(job.stderr.contains("rank 0 (process "), "{job:?}");
    assert!(job.stderr.contains("was killed by SIGSEGV; ending the other rank\n"), "{job:?}");
}

#[test]
fn ranks_that_are_ended_may_clean_up_first() {
    let (_folder, ready) = meeting();
    let program = format!(
        "if [ $MP_RANK = 0 ]; then trap 'echo cleaned up; exit 0' TERM; echo ready; >{ready}; sleep 1000 & wait
         else {}; exit 3; fi",
        until_there(&ready)
    );
    let job = script(2, &program);
    assert_eq!((job.status.code(), &*job.stdout), (Some(3), "ready\ncleaned up\n"));
}

#[test]
fn a_rank_that_ignores_the_request_to_end_is_killed() {
    let (_folder, ready) = meeting();
    let command = format!(
        "if [ $MP_RANK = 0 ]; then trap '' TERM; >{ready}; sleep 1000; else {}; exit 3; fi",
        until_there(&ready)
    );
    let job = run(&["-n", "2", "--kill-after", "0.2", "sh", "-c", &command]);
    assert_eq!(job.status.code(), Some(3));
    assert!(job.stderr.contains("killing 1 rank that still runs"), "{job:?}");
}

#[test]
fn survivors_can_be_given_time_to_say_what_they_saw() {
    let command = "[ $MP_RANK = 0 ] && exit 4; sleep 0.5; echo lost rank 0; exit 1";
    let job = run(&["-n", "2", "--linger", "30", "sh", "-c", command]);
    assert_eq!((job.status.code(), &*job.stdout), (Some(4), "lost rank 0\n"));
    assert!(job.stderr.contains("rank 1 (process "), "{job:?}");
}

#[test]
fn what_a_rank_started_ends_with_the_job() {
    let (_folder, started) = meeting();
    let program = format!(
        "sleep 1000 & echo $!
         if [ $MP_RANK = 0 ]; then {}; exit 5; else >{started}; wait; fi",
        until_there(&started)
    );
    let job = script(2, &program);
    assert_eq!(job.status.code(), Some(5));
    let pids: Vec<i32> = job.stdout.lines().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    assert!(!pids.into_iter().any(runs), "a child of a rank still runs");
}

#[test]
fn what_successful_ranks_leave_running_is_ended_and_told() {
    let job = script(2, "sleep 1000 & echo $!");
    assert_eq!(job.status.code(), Some(0));
    assert_eq!(job.stderr, "mprun: the ranks left processes behind; ending 2\n");
    assert!(!job.stdout.lines().any(|pid| runs(pid.parse().unwrap())));
}

#[test]
fn a_job_that_takes_too_long_is_ended_with_124() {
    let job = run(&["-n", "2", "--timeout", "0.3", "sleep", "1000"]);
    assert_eq!(job.status.code(), Some(124));
    assert!(job.stderr.contains("0.3 s are over (--timeout)"), "{job:?}");
}

#[test]
fn nothing_is_left_when_mprun_is_killed() {
    // Ranks that ignore what can be ignored, each with a child that does the same.
    let program = "trap '' HUP INT TERM; sleep 1000 & echo $$ $!; wait";
    let mut job = Job::start(&mut mprun(&["-n", "3", "sh", "-c", program]));
    let mut pids = job.wait_for_pids(3);
    assert_eq!(pids.len(), 6, "three ranks and their children");
    // Whatever else there is of mprun does not help: it is the kernel that ends the job.
    let others: Vec<i32> =
        children(job.mprun.id()).into_iter().filter(|pid| !pids.contains(pid)).collect();
    for pid in &others {
        rustix::process::kill_process(Pid::from_raw(*pid).unwrap(), Signal::STOP).unwrap();
    }
    pids.extend(others);
    assert!(pids.iter().all(|pid| runs(*pid)));

    job.signal(Signal::KILL);
    eventually("ranks and their children are gone", || !pids.iter().any(|pid| runs(*pid)));
}

#[test]
fn nothing_is_left_when_mprun_is_stopped_and_then_killed() {
    let program = "trap '' HUP INT TERM; (trap '' HUP INT TERM; sleep 1000) & echo $$ $!; wait";
    let mut job = Job::start(&mut mprun(&["-n", "2", "sh", "-c", program]));
    let pids = job.wait_for_pids(2);
    job.signal(Signal::STOP);
    job.signal(Signal::KILL);
    eventually("ranks and their children are gone", || !pids.iter().any(|pid| runs(*pid)));
}

#[test]
fn the_ranks_that_have_started_are_gone_when_mprun_is_killed_at_any_moment_of_the_start() {
    let (_folder, started) = meeting();
    for delay in 0..12 {
        let command = format!("echo $$ >>{started}; sleep 1000 & echo $! >>{started}; wait");
        let mut job = Job::start(&mut mprun(&["-n", "8", "sh", "-c", &command]));
        thread::sleep(Duration::from_millis(3 * delay));
        job.signal(Signal::KILL);
        job.wait();
    }
    let mut pids = Vec::new();
    eventually("nothing of the jobs runs", || {
        let text = fs::read_to_string(&started).unwrap_or_default();
        pids = text.lines().filter_map(|pid| pid.parse::<i32>().ok()).collect();
        !pids.iter().any(|pid| runs(*pid))
    });
    assert!(!pids.is_empty(), "none of the jobs got as far as to a rank");
}

#[test]
fn a_rank_that_is_killed_is_blamed_and_not_those_that_notice_it() {
    // The others notice by the end of what the killed one held open, as they would by a connection, and exit with 1.
    let program = "if [ $MP_RANK = 2 ]; then exec 3>$PIPE.0 4>$PIPE.1; kill -9 $$; fi
                   read nothing <$PIPE.$MP_RANK; exit 1";
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe").display().to_string();
    let pipes = [0, 1].map(|rank| format!("{pipe}.{rank}"));
    assert!(Command::new("mkfifo").args(pipes).status().unwrap().success());
    let variable = format!("PIPE={pipe}");
    for round in 0..40 {
        let linger = if round % 2 == 0 { "0" } else { "30" };
        let job = run(&["-n", "3", "--linger", linger, "-e", &variable, "sh", "-c", program]);
        assert_eq!(job.status.code(), Some(137), "{job:?}");
        let first = job.stderr.lines().next().unwrap_or_default();
        assert!(first.starts_with("mprun: rank 2 (process "), "{job:?}");
        assert!(first.contains("was killed by SIGKILL"), "{job:?}");
    }
}

#[test]
fn a_job_of_which_only_a_stopped_rank_is_left_does_not_linger() {
    let (_folder, stopped) = meeting();
    let program = format!(
        "if [ $MP_RANK = 1 ]; then >{stopped}; kill -STOP $$; else {}; exit 3; fi",
        until_there(&stopped)
    );
    let started = Instant::now();
    let job = run(&["-n", "3", "--linger", "1000", "sh", "-c", &program]);
    assert_eq!(job.status.code(), Some(3), "{job:?}");
    assert!(started.elapsed() < PATIENCE);
}

/// A rank that meets the others, and says why not; does nothing else unless the test below started it.
#[test]
#[ignore = "started by another test"]
fn a_rank_that_meets_the_others() {
    match libmp::World::init() {
        Ok(world) => world.finish().unwrap(),
        Err(error) => {
            println!("{error}");
            std::process::exit(1);
        }
    }
}

#[test]
fn a_rank_that_is_stopped_before_it_joins_is_named_and_given_up() {
    let rank = std::env::current_exe().unwrap().display().to_string();
    let program = "if [ $MP_RANK = $STOPPED ]; then kill -STOP $$; fi
                   exec $0 --ignored --exact --nocapture endings::a_rank_that_meets_the_others";
    for stopped in [1, 0] {
        let started = Instant::now();
        let variable = format!("STOPPED={stopped}");
        let mut job = vec!["-n", "3", "--linger", "1000", "-e", &variable];
        job.extend(["-e", "MP_HEARTBEAT_TIMEOUT=2", "-e", "MP_INIT_TIMEOUT=1000"]);
        job.extend(["sh", "-c", program, &rank]);
        let job = run(&job);
        assert_eq!(job.status.code(), Some(1), "{job:?}");
        let said = format!("mprun: rank {stopped} (process ");
        let said = job.stderr.lines().find(|line| line.starts_with(&said)).unwrap_or_default();
        assert!(said.contains(") is stopped (state T of ps)"), "{job:?}");
        let lost = |line: &&str| {
            line.contains(&format!("rank {stopped} on "))
                && line.contains("is lost: it is stopped, for ")
                && line.contains(" s, before all ranks had met")
        };
        assert_eq!(job.stdout.lines().filter(lost).count(), 2, "both survivors name it: {job:?}");
        assert!(started.elapsed() < PATIENCE);
    }
}

#[test]
fn a_stopped_rank_0_is_named_and_not_who_gave_up_because_of_it() {
    let rank = std::env::current_exe().unwrap().display().to_string();
    let program = "case $MP_RANK in 0) kill -STOP $$;; 1) exit 1;; esac
                   exec $0 --ignored --exact --nocapture endings::a_rank_that_meets_the_others";
    let mut job = vec!["-n", "3", "--linger", "1000", "-e", "MP_HEARTBEAT_TIMEOUT=2"];
    job.extend(["-e", "MP_INIT_TIMEOUT=1000", "sh", "-c", program, &rank]);
    let job = run(&job);
    assert_eq!(job.status.code(), Some(1), "{job:?}");
    assert!(job.stdout.contains("is lost: it is stopped, for "), "{job:?}");
}

#[test]
fn a_rank_that_goes_on_before_the_others_start_is_not_given_up() {
    let rank = std::env::current_exe().unwrap().display().to_string();
    for stopped in [1, 0] {
        let (_folder, goes_on) = meeting();
        let program = format!(
            "if [ $MP_RANK = {stopped} ]; then (sleep 3; kill -CONT $$) & kill -STOP $$; >{goes_on}; fi
             {}
             exec $0 --ignored --exact --nocapture endings::a_rank_that_meets_the_others",
            until_there(&goes_on)
        );
        let limit = ["-e", "MP_HEARTBEAT_TIMEOUT=2"];
        let job = run(&[&["-n", "3"], &limit[..], &["sh", "-c", &program, &rank]].concat());
        assert_eq!(job.status.code(), Some(0), "{job:?}");
        assert!(job.stderr.contains(&format!("mprun: rank {stopped} (process ")), "{job:?}");
    }
}

#[test]
fn no_process_of_mprun_stays_when_the_job_is_over() {
    let mut job = Job::start(&mut mprun(&["-n", "1", "sh", "-c", "echo $$; read line"]));
    let rank = job.wait_for_pids(1)[0];
    let others = children(job.mprun.id());
    let job = job.end();
    assert_eq!(job.status.code(), Some(1), "nothing to read: {job:?}");
    assert!(!others.into_iter().chain([rank]).any(runs));
}

#[test]
fn a_command_that_does_not_exist_is_named() {
    let job = run(&["-n", "2", "no-such-command"]);
    assert_eq!(job.status.code(), Some(127));
    assert_eq!(job.stderr, "mprun: command not found: no-such-command (looked in PATH)\n");
    let job = run(&["-n", "2", "./no/such/command"]);
    assert_eq!(job.stderr, "mprun: command not found: ./no/such/command\n");
}

#[test]
fn a_file_that_cannot_be_executed_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("program");
    let path = file.to_str().unwrap();
    // Written by another process: what other tests start just then would have it open, too, and what somebody writes
    // cannot be executed.
    let write = format!("echo '#!/no/such/interpreter' >{path}");
    assert!(Command::new("sh").args(["-c", &write]).status().unwrap().success());

    let job = run(&["-n", "1", path]);
    assert_eq!(job.status.code(), Some(126));
    assert!(job.stderr.starts_with(&format!("mprun: cannot start {path} as rank 0: ")), "{job:?}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let job = run(&["-n", "1", path]);
    assert_eq!(job.status.code(), Some(127));
    assert!(job.stderr.contains("the interpreter of its #! line"), "{job:?}");
}

#[test]
fn when_a_later_rank_cannot_be_started_the_earlier_ones_are_ended() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    // Descriptors for a few ranks only.
    let command = format!(
        "ulimit -n 24; exec {} -n 100 sh -c 'echo $$ >>{}; exec sleep 1000'",
        env!("CARGO_BIN_EXE_mprun"),
        seen.display()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let job = Job::start(&mut shell).end();
    assert_eq!(job.status.code(), Some(1), "{job:?}");
    assert!(job.stderr.contains("Too many open files"), "{job:?}");
    let started = fs::read_to_string(seen).unwrap_or_default();
    assert!(!started.lines().any(|pid| runs(pid.parse().unwrap())), "{started}");
}

#[test]
fn a_job_without_a_size_is_refused() {
    let job = run(&["true"]);
    assert_eq!(job.status.code(), Some(2));
    assert!(job.stderr.contains("give -n N, --per-gpu or --gpus LIST"), "{job:?}");
}

#[test]
fn sixty_four_ranks_start_and_end_quickly() {
    let started = Instant::now();
    let job = run(&["-n", "64", "-l", "sh", "-c", "echo $MP_RANK"]);
    let took = started.elapsed();
    assert!(job.status.success(), "{job:?}");
    let expected: Vec<_> = (0..64).map(|rank| format!("[{rank:>2}] {rank}")).collect();
    assert_eq!(job.sorted(), expected);
    // 0.1 s on an idle machine of two cores; a second for each rank, or each pair of ranks, would be seen.
    assert!(took < Duration::from_secs(30), "64 ranks took {took:?}");
}

/// The processes whose parent is `parent`.
fn children(parent: u32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").unwrap();
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let behind_name = stat.rsplit(')').next().unwrap_or_default();
        behind_name.split_whitespace().nth(1) == Some(&parent.to_string())
    })
    .collect()
}
