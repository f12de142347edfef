//! What the ranks find: variables, sockets, standard input.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;

use super::*;

#[test]
fn every_rank_knows_its_rank_and_the_size_in_both_spellings() {
    let job = script(
        3,
        "echo $MP_RANK/$MP_SIZE $MP_LOCAL_RANK/$MP_LOCAL_SIZE \
         $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE",
    );
    assert!(job.status.success(), "{job:?}");
    assert_eq!(job.sorted(), ["0/3 0/3 0/3 0/3", "1/3 1/3 1/3 1/3", "2/3 2/3 2/3 2/3"]);
}

#[test]
fn the_ranks_of_a_job_share_its_id_token_and_addresses() {
    let show = "echo $MP_JOB $MP_TOKEN $MP_RENDEZVOUS $MASTER_ADDR:$MASTER_PORT";
    let (one, other) = (script(2, show), script(1, show));
    let lines: Vec<_> = one.stdout.lines().collect();
    assert_eq!(lines[0], lines[1]);
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let (ours, theirs) = (words(lines[0]), words(other.stdout.trim_end()));
    assert_eq!(ours[1].len(), 32, "{ours:?}");
    assert!(ours[0] != theirs[0] && ours[1] != theirs[1], "two jobs are alike: {ours:?}");
    let (rendezvous, master): (SocketAddr, SocketAddr) =
        (ours[2].parse().unwrap(), ours[3].parse().unwrap());
    assert!(rendezvous.ip().is_loopback() && master.ip().is_loopback());
    assert_ne!(rendezvous.port(), master.port());
}

#[test]
fn rank_0_holds_the_listening_socket_and_nobody_else_does() {
    let mut job = Job::start(&mut mprun(&[
        "-n",
        "2",
        "sh",
        "-c",
        "if [ $MP_RANK = 0 ]
         then echo $$ $MP_RENDEZVOUS $(readlink /proc/$$/fd/$MP_RENDEZVOUS_FD)
         else ls -l /proc/$$/fd | grep -c socket: | sed 's/^/- /'
         fi; sleep 100",
    ]));
    let lines = job.wait_for_lines(2);
    let rank_0 = lines.iter().find(|line| !line.starts_with('-')).unwrap();
    let rank_1 = lines.iter().find(|line| line.starts_with('-')).unwrap();
    assert_eq!(rank_1, "- 0", "rank 1 inherited a socket");
    let words: Vec<_> = rank_0.split(' ').collect();
    assert!(words[2].starts_with("socket:"), "{rank_0}");
    TcpStream::connect(words[1]).expect("rank 0 listens");

    let of_mprun = std::fs::read_dir(format!("/proc/{}/fd", job.mprun.id())).unwrap();
    let links = of_mprun.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    assert!(
        links.into_iter().all(|link| link.to_str() != Some(words[2])),
        "mprun still holds the socket: connections would hang when rank 0 is gone"
    );
}

#[test]
fn a_program_can_listen_on_the_master_port() {
    let mut job = Job::start(&mut mprun(&[
        "-n",
        "1",
        "sh",
        "-c",
        "echo $MASTER_ADDR:$MASTER_PORT; sleep 100",
    ]));
    let address = job.wait_for_lines(1).remove(0);
    TcpStream::connect(&address).expect_err("nobody listens yet");
    let server = TcpListener::bind(&address).expect("free for the program");
    TcpStream::connect(&address).expect("it listens");
    drop(server);
}

#[test]
fn a_list_of_gpus_is_dealt_to_the_ranks_in_turn() {
    let show = ["sh", "-c", "echo $MP_RANK:${MP_GPU-none}"];
    assert_eq!(run(&[&["--gpus", "5,0-1"], &show[..]].concat()).sorted(), ["0:5", "1:0", "2:1"]);
    let three = run(&[&["-n", "3", "--gpus", "5,0"], &show[..]].concat());
    assert_eq!(three.sorted(), ["0:5", "1:0", "2:5"]);
}

#[test]
fn per_gpu_starts_one_rank_a_gpu_or_says_in_one_line_why_it_cannot() {
    let job = run(&["--per-gpu", "sh", "-c", "echo $MP_RANK:$MP_GPU"]);
    if job.status.success() {
        let expected: Vec<_> = (0..job.sorted().len()).map(|i| format!("{i}:{i}")).collect();
        assert_eq!(job.sorted(), expected);
    } else {
        assert_eq!(job.status.code(), Some(1));
        assert!(job.stderr.starts_with("mprun: --per-gpu: "), "{job:?}");
        assert_eq!(job.stderr.lines().count(), 1, "{job:?}");
    }
}

#[test]
fn a_job_started_by_a_rank_of_another_job_inherits_nothing_of_it() {
    let inner = format!(
        "{} -n 2 sh -c 'echo $MP_RANK/$MP_SIZE ${{MP_GPU-none}}",
        env!("CARGO_BIN_EXE_mprun")
    );
    let job = run(&["--gpus", "7", "sh", "-c", &format!("{inner} ${{MP_RENDEZVOUS_FD:+fd}}'")]);
    assert_eq!(job.sorted(), ["0/2 none fd", "1/2 none"], "{job:?}");
}

#[test]
fn variables_given_on_the_command_line_reach_every_rank() {
    let show = ["sh", "-c", "echo $A-$B"];
    let job = run(&[&["-n", "2", "-e", "A=1 2", "--env", "B=x=y"], &show[..]].concat());
    assert_eq!(job.sorted(), ["1 2-x=y"; 2]);
}

#[test]
fn rank_0_reads_the_standard_input_and_the_others_read_nothing() {
    let mut command = mprun(&["-n", "3", "-l", "cat"]);
    let mut job = Job::start(command.stdin(Stdio::piped()));
    job.mprun.stdin.take().unwrap().write_all(b"a\nb\n").unwrap();
    let job = job.end();
    assert!(job.status.success(), "{job:?}");
    assert_eq!(job.stdout, "[0] a\n[0] b\n");
}

#[test]
fn the_version_names_what_mprun_was_built_from() {
    let version = run(&["--version"]).stdout;
    assert_eq!(version, format!("mprun {}\n", mp::version_string()));
}
