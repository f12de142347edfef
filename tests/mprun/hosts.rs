//! Several hosts, of which each is this one: a command instead of ssh that starts what it is told to here.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// The folder of a command that starts programs, as ssh does, through a shell that knows nothing of the caller.
fn launch() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("launch");
    let lines = "#!/bin/sh\nhost=$1; shift\ncd /\nexec env -i PATH=/usr/bin:/bin HOME=/at/$host sh -c \"exec $*\"\n";
    std::fs::write(&path, lines).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

/// Runs `script` on `hosts`.
fn on(hosts: &str, more: &[&str], script: &str) -> Ended {
    let (_folder, launch) = launch();
    run(&[&["--hosts", hosts, "--launch", &launch], more, &["sh", "-c", script]].concat())
}

#[test]
fn ranks_on_several_hosts_know_their_place_and_meet_where_others_reach_them() {
    let show = "echo $MP_RANK/$MP_SIZE $MP_LOCAL_RANK/$MP_LOCAL_SIZE $HOME; [ ${MP_RENDEZVOUS%:*} != 127.0.0.1 ]";
    let job = on("a:2,b", &[], show);
    assert!(job.status.success(), "{job:?}");
    assert_eq!(job.sorted(), ["0/3 0/2 /at/a", "1/3 1/2 /at/a", "2/3 0/1 /at/b"]);
    let job = on("a,b,c", &["-n", "4", "-l"], "echo $MP_LOCAL_SIZE");
    assert_eq!(job.sorted(), ["[0] 2", "[1] 2", "[2] 1", "[3] 1"], "{job:?}");
}

#[test]
fn environment_and_folder_are_passed_on_and_the_secret_is_in_no_command_line() {
    let (_folder, launch) = launch();
    let script =
        "echo $PASSED $GIVEN $PWD; ! tr '\\0' ' ' </proc/$PPID/cmdline | grep -q $MP_TOKEN";
    let folder = tempfile::tempdir().unwrap();
    let mut command =
        mprun(&["--hosts", "a,b", "--launch", &launch, "-e", "GIVEN=2 3", "sh", "-c", script]);
    command.env("PASSED", "x y").current_dir(folder.path());
    let job = Job::start(&mut command).end();
    assert!(job.status.success(), "{job:?}");
    let line = format!("x y 2 3 {}", folder.path().canonicalize().unwrap().display());
    assert_eq!(job.sorted(), [line.as_str(); 2]);
}

#[test]
fn a_rank_that_fails_ends_the_ranks_of_all_hosts_and_its_host_is_named() {
    let started = Instant::now();
    let job = on("a,b", &["-n", "4"], "[ $MP_RANK = 2 ] && kill -KILL $$; sleep 1000");
    assert_eq!(job.status.code(), Some(137), "{job:?}");
    assert!(job.stderr.contains("mprun on b: rank 2 (process "), "{job:?}");
    assert!(job.stderr.contains("mprun: the launcher of host b (process "), "{job:?}");
    assert!(job.stderr.contains("exited with status 137; ending the other host\n"), "{job:?}");
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn a_host_whose_launcher_dies_ends_the_job_with_its_name() {
    // What a rank of it left would write would be seen here.
    let job =
        on("a,b", &["-n", "4"], "[ $MP_RANK = 3 ] && kill -KILL $PPID; sleep 1000; echo left");
    assert_eq!(job.status.code(), Some(137), "{job:?}");
    assert!(job.stderr.contains("was killed by SIGKILL; ending the other host\n"), "{job:?}");
    assert!(job.stderr.contains("mprun: the launcher of host b (process "), "{job:?}");
    assert_eq!(job.stdout, "", "{job:?}");
}

#[test]
fn a_host_that_cannot_be_reached_is_named_with_what_was_run_and_how_that_ended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssh");
    let lines = "#!/bin/sh\n[ $1 = a ] && exec \"$2\" \"$3\"\necho \"ssh: $1 is not known\" >&2\nexit 255\n";
    std::fs::write(&path, lines).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let launch = path.display().to_string();
    // The host of rank 0, without which nobody can meet; and another one.
    let job = run(&["--hosts", "nowhere,a", "--launch", &launch, "sleep", "1000"]);
    assert_eq!(job.status.code(), Some(1), "{job:?}");
    assert!(job.stderr.starts_with("ssh: nowhere is not known\n"), "{job:?}");
    let said = format!("mprun: host nowhere: no word from its launcher ({launch} nowhere ");
    assert!(job.stderr.contains(&said) && job.stderr.contains("exited with status 255"), "{job:?}");
    let job = run(&["--hosts", "a,nowhere", "--launch", &launch, "sleep", "1000"]);
    assert_eq!(job.status.code(), Some(255), "{job:?}");
    assert!(job.stderr.contains("ssh: nowhere is not known\n"), "{job:?}");
    assert!(job.stderr.contains("the launcher of host nowhere (process "), "{job:?}");
}

#[test]
fn when_mprun_is_killed_the_ranks_of_all_hosts_end() {
    let (_folder, launch) = launch();
    let hosts = ["--hosts", "a,b", "--launch", &launch, "-n", "4"];
    let mut job =
        Job::start(&mut mprun(&[&hosts[..], &["sh", "-c", "echo $$; sleep 1000"]].concat()));
    let ranks = job.wait_for_pids(4);
    job.signal(Signal::KILL);
    eventually("every rank has ended", || !ranks.iter().any(|pid| runs(*pid)));
}

#[test]
fn signals_reach_the_ranks_of_all_hosts() {
    let (_folder, launch) = launch();
    let hosts = ["--hosts", "a,b", "--launch", &launch];
    let script = "trap 'echo heard; exit 0' USR1; echo $$; while :; do sleep 0.05; done";
    let mut job = Job::start(&mut mprun(&[&hosts[..], &["sh", "-c", script]].concat()));
    job.wait_for_pids(2);
    job.signal(Signal::USR1);
    let job = job.end();
    assert!(job.status.success(), "{job:?}");
    assert_eq!(job.stdout.matches("heard").count(), 2, "{job:?}");
}

#[test]
fn a_list_of_hosts_with_less_room_than_ranks_is_refused() {
    let job = run(&["--hosts", "a:1,b:2", "-n", "4", "true"]);
    assert_eq!(
        (job.status.code(), &*job.stderr),
        (Some(2), "mprun: --hosts: there is room for 3 ranks, not for 4\n")
    );
}

#[test]
fn an_agent_without_an_order_says_who_starts_it() {
    let job = run(&["--agent"]);
    assert_eq!(job.status.code(), Some(1), "{job:?}");
    assert!(job.stderr.contains("mprun --hosts starts this"), "{job:?}");
}
