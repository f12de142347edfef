//! Timelines: of all ranks on one clock, in one file, and what becomes of a run whose timeline cannot be written.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Rank, on_threads, over_tcp, say, soon, start_mprun};
use libmp::tagged::{self, Options, Place, Source};
use libmp::trace::{Calibration, Stamp, Trace};
use libmp::{Config, Deadline, Device, Operation, Step, Traffic, World, trace, wait_all};
use serde_json::Value;

/// A path in a directory that goes with it.
fn file(name: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    (directory, path)
}

fn config(path: &Path) -> Config {
    let mut config = Config::from_variables(Vec::<(String, String)>::new()).unwrap();
    config.trace = Some(path.into());
    config
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The events of a rank with this name, by their start.
fn events<'a>(document: &'a Value, rank: usize, name: &str) -> Vec<&'a Value> {
    let all = document["traceEvents"].as_array().unwrap();
    let wanted = |event: &&Value| event["pid"] == rank && event["name"] == name;
    let mut events: Vec<&Value> = all.iter().filter(wanted).collect();
    events.sort_by(|a, b| a["ts"].as_f64().partial_cmp(&b["ts"].as_f64()).unwrap());
    events
}

fn end(event: &Value) -> f64 {
    event["ts"].as_f64().unwrap() + event["dur"].as_f64().unwrap()
}

/// Each rank works while the others wait for it in a barrier: on one clock the work of one comes after that of the other.
fn take_turns(world: &World) {
    for turn in 0..world.size() {
        if turn == world.rank() {
            let _span = world.trace().span("test", "my turn").arg("turn", turn as u64);
            std::thread::sleep(Duration::from_millis(3));
        }
        world.barrier().unwrap();
    }
}

fn assert_in_turn(document: &Value, ranks: usize, slack: f64) {
    let turns: Vec<&Value> = (0..ranks).map(|rank| events(document, rank, "my turn")[0]).collect();
    for pair in turns.windows(2) {
        assert!(end(pair[0]) <= pair[1]["ts"].as_f64().unwrap() + slack, "{pair:?}");
    }
    for (rank, turn) in turns.iter().enumerate() {
        assert_eq!(turn["args"]["turn"], rank);
        assert!(turn["dur"].as_f64().unwrap() >= 3000.0);
    }
}

#[test]
fn ranks_that_are_threads_write_one_file_with_their_spans_in_order() {
    let (_directory, path) = file("a.json");
    let worlds = World::threads_with_config(3, &config(&path)).unwrap();
    on_threads(worlds, |world| {
        take_turns(&world);
        world.finish().unwrap();
    });
    let document = read(&path);
    assert_in_turn(&document, 3, 0.0);
    for rank in 0..3 {
        assert_eq!(events(&document, rank, "barrier").len(), 3);
        assert_eq!(events(&document, rank, "process_name").len(), 1);
    }
    assert!(!events(&document, 0, "CPU (cores in use)").is_empty());
    assert!(events(&document, 1, "CPU (cores in use)").is_empty(), "one process, one curve");
}

/// A rank that has done nothing has no rows, but what was looked at for it meanwhile: a program that is started alone is such a
/// world first.
#[test]
fn a_rank_that_does_nothing_has_a_timeline() {
    let (_directory, path) = file("alone.json");
    let world = World::threads_with_config(1, &config(&path)).unwrap().pop().unwrap();
    world.trace().counter("value", trace::now(), 3.0);
    world.finish().unwrap();
    let document = read(&path);
    assert_eq!(events(&document, 0, "value").len(), 1, "{document}");
}

#[test]
fn rank_zero_turns_it_on_for_ranks_that_meet_over_tcp_and_share_a_clock() {
    let (_directory, path) = file("a.json");
    let adapt = |rank: usize, config: &mut Config| {
        config.trace = (rank == 0).then(|| path.clone());
    };
    over_tcp(3, &[], adapt, |_, world| {
        let world = world.unwrap();
        assert!(world.trace().is_on());
        take_turns(&world);
        world.finish().unwrap();
    });
    let document = read(&path);
    assert_in_turn(&document, 3, 0.0);
    for rank in 0..3 {
        assert_eq!(document["otherData"]["ranks"][rank]["clock_within_ns"], 0);
    }
}

#[test]
fn the_clocks_of_other_hosts_are_found_out_at_the_start() {
    let (_directory, path) = file("a.json");
    // Ranks that take each other for ranks of other hosts do not know that they share a clock.
    let adapt = |rank: usize, config: &mut Config| {
        config.trace = Some(path.clone());
        config.node = Some(format!("host {rank}"));
    };
    over_tcp(2, &[], adapt, |_, world| {
        let world = world.unwrap();
        take_turns(&world);
        world.finish().unwrap();
    });
    let document = read(&path);
    let one = &document["otherData"]["ranks"][1];
    let (offset, within) =
        (one["clock_offset_ns"].as_i64().unwrap(), one["clock_within_ns"].as_u64().unwrap());
    assert!(within > 0, "it was measured");
    assert!(offset.unsigned_abs() <= within, "the truth is 0, {offset} was found, within {within}");
    assert_in_turn(&document, 2, within as f64 / 1000.0);
}

#[test]
fn a_timeline_of_many_pieces_arrives_whole() {
    let (_directory, path) = file("a.json");
    let worlds = World::threads_with_config(2, &config(&path)).unwrap();
    const EVENTS: usize = 120_000;
    on_threads(worlds, |world| {
        let lane = world.trace().lane("many");
        for at in 0..EVENTS as u64 {
            world.trace().record(lane, "test", "one of many", (at, at + 1), &[("at", at)]);
        }
        world.finish().unwrap();
    });
    let document = read(&path);
    for rank in 0..2 {
        assert_eq!(events(&document, rank, "one of many").len(), EVENTS);
    }
}

#[test]
fn a_path_that_cannot_be_written_or_a_full_disk_do_not_cost_the_run() {
    for path in ["/nowhere/at/all.json", "/dev/full"] {
        let worlds = World::threads_with_config(2, &config(Path::new(path))).unwrap();
        let sums = on_threads(worlds, |world| {
            assert_eq!(world.trace().is_on(), path == "/dev/full");
            let sum = world.sum(1u64).unwrap();
            world.finish().unwrap();
            sum
        });
        assert_eq!(sums, [2, 2]);
    }
    // Asked for by the program, it is an error.
    let (_directory, path) = file("a.json");
    let worlds = World::threads_with_config(2, &config(&path)).unwrap();
    on_threads(worlds, |world| {
        let written = world.write_trace(Path::new("/dev/full"));
        match world.rank() {
            0 => {
                let text = written.unwrap_err().to_string();
                assert!(text.contains("/dev/full") && text.contains("No space left"), "{text}");
            }
            _ => assert_eq!(written.unwrap(), None),
        }
        world.finish().unwrap();
    });
}

#[test]
fn a_program_writes_what_there_is_by_now_and_goes_on() {
    let (_directory, path) = file("a.json");
    let now = path.with_extension("now");
    let worlds = World::threads_with_config(2, &config(&path)).unwrap();
    on_threads(worlds, |world| {
        take_turns(&world);
        let summary = world.write_trace(&now).unwrap();
        assert_eq!(summary.is_some(), world.rank() == 0);
        if let Some(summary) = summary {
            assert_eq!(summary.bytes, std::fs::metadata(&now).unwrap().len());
            assert_eq!((summary.ranks, summary.lost), (2, 0));
        }
        world.finish().unwrap();
    });
    assert_in_turn(&read(&now), 2, 0.0);
    assert_in_turn(&read(&path), 2, 0.0);
}

#[test]
fn every_rank_of_a_world_that_fails_keeps_its_own_part() {
    let (_directory, path) = file("a.json");
    let worlds = World::threads_with_config(2, &config(&path)).unwrap();
    on_threads(worlds, |world| {
        drop(world.trace().span("test", "before the end"));
        if world.rank() == 1 {
            world.abort("enough");
        }
        world.finish().unwrap_err();
    });
    for rank in 0..2 {
        let document = read(&PathBuf::from(format!("{}.rank-{rank}", path.display())));
        assert_eq!(events(&document, rank, "before the end").len(), 1);
    }
}

/// A ring of messages by the host and on a stream, and puts with signals.
fn communicate(world: &World) {
    let deadline = || Deadline::after(Duration::from_secs(20));
    let right = world.peer((world.rank() + 1) % world.size()).unwrap();
    let left = world.peer((world.rank() + world.size() - 1) % world.size()).unwrap();
    let [edge, ghost] = [100, 100].map(|len| world.alloc::<f64>(&Device::Host, len).unwrap());
    let (send, recv) =
        (right.send(&edge, 7).prepare().unwrap(), left.recv(&ghost, 7).prepare().unwrap());
    let stream = world.stream(&Device::Host).unwrap();
    for _ in 0..2 {
        recv.start().unwrap();
        send.start().unwrap();
        wait_all(&[&send, &recv], deadline()).unwrap();
        recv.start_on(&stream).unwrap();
        send.start_on(&stream).unwrap();
        recv.wait_on(&stream).unwrap();
        world.synchronize(&stream, deadline()).unwrap();
        send.wait(deadline()).unwrap();
        recv.wait(deadline()).unwrap();
    }
    let window = world.window(&ghost, 1).unwrap();
    window.put_signal((world.rank() + 1) % world.size(), 0, &edge, 0, 1).unwrap();
    window.wait_signal(0, 1, deadline()).unwrap();
    world.barrier().unwrap();
}

#[test]
fn messages_show_their_starts_flights_and_arrivals_by_the_host_and_on_streams() {
    let (_directory, path) = file("a.json");
    let worlds = World::threads_with_config(2, &config(&path)).unwrap();
    on_threads(worlds, |world| {
        communicate(&world);
        let counters = world.counters();
        let other = &counters[1 - world.rank()];
        assert_eq!(other.sends, Traffic { operations: 4, bytes: 3200 });
        assert_eq!(other.recvs, Traffic { operations: 4, bytes: 3200 });
        assert_eq!((other.puts.bytes, other.signals), (800, 1));
        assert_eq!(other.path, Some(libmp::Path::Direct));
        assert!(counters[world.rank()].waits > 0, "for the signal");
        assert!(counters[world.rank()].sends.operations == 0);
        world.finish().unwrap();
    });
    let document = read(&path);
    let all = document["traceEvents"].as_array().unwrap();
    let count = |rank: usize, ph: &str, name: &str| {
        let wanted = |event: &&Value| {
            event["pid"] == rank
                && event["ph"] == ph
                && event["name"].as_str().is_some_and(|full| full.starts_with(name))
        };
        all.iter().filter(wanted).count()
    };
    for rank in 0..2 {
        assert_eq!(count(rank, "X", "prepare send tag 7"), 1);
        assert_eq!(count(rank, "X", "start send tag 7"), 2);
        assert_eq!(count(rank, "X", "move send tag 7"), 2);
        assert_eq!(count(rank, "X", "enqueue send tag 7"), 2);
        // When the stream ran it.
        assert_eq!(count(rank, "X", "send tag 7"), 2);
        assert!(count(rank, "X", "wait for recv tag 7") >= 2);
        assert_eq!(count(rank, "b", "send tag 7"), 4);
        assert_eq!(count(rank, "b", "recv tag 7"), 4);
        assert_eq!(count(rank, "X", "put"), 1);
        assert_eq!(count(rank, "X", "wait for a signal"), 1);
        let streams = all.iter().filter(|event| {
            event["pid"] == rank
                && event["name"] == "thread_name"
                && event["args"]["name"].as_str().is_some_and(|name| name.starts_with("stream"))
        });
        assert_eq!(streams.count(), 1);
    }
    // Every message that leaves a rank arrives in the other, later.
    let arrows = |ph: &str, rank: usize| -> BTreeMap<String, f64> {
        let wanted = |event: &&Value| event["ph"] == ph && event["pid"] == rank;
        let arrow = |event: &Value| {
            (event["id"].as_str().unwrap().to_owned(), event["ts"].as_f64().unwrap())
        };
        all.iter().filter(wanted).map(arrow).collect()
    };
    for rank in 0..2 {
        let (leaves, arrives) = (arrows("s", rank), arrows("f", 1 - rank));
        assert_eq!(leaves.len(), 4);
        for (id, left) in leaves {
            assert!(arrives.get(&id).is_some_and(|arrived| *arrived >= left), "{id}");
        }
    }
}

/// Messages of every way that their envelopes go, matched when they meet, and one through chunks or rings behind a stream.
#[test]
fn tagged_messages_show_their_starts_flights_arrivals_and_what_streams_copy() {
    const LENGTHS: [usize; 4] = [8, 80, 5000, 300_000];
    let (_directory, path) = file("a.json");
    on_threads(World::threads_with_config(2, &config(&path)).unwrap(), |world| {
        let plain = world.tagged(&Options::default()).unwrap();
        let staged = world.tagged(&Options { staged: true, ..Options::default() }).unwrap();
        let before = world.counters();
        let other = 1 - world.rank();
        let len: usize = LENGTHS.iter().sum();
        let memory = [(); 2].map(|()| world.alloc::<u8>(&Device::Host, len).unwrap());
        for (messages, tag) in [(&plain, 7), (&staged, 8)] {
            for len in LENGTHS {
                let [from, to] = memory.each_ref().map(|it| it.slice(0..len).unwrap());
                let mut recv = messages.irecv(&to, Source::Any, tag).unwrap();
                let mut send = messages.isend(&from, other, tag).unwrap();
                tagged::wait_all([&mut recv, &mut send], soon()).unwrap();
            }
        }
        // One that a blocking receive waits for.
        world.barrier().unwrap();
        let mut word = [0u64];
        if world.rank() == 0 {
            plain.send(&[5u64], 1, 9, soon()).unwrap();
            plain.recv(&mut word, 1, 9, soon()).unwrap();
        } else {
            plain.recv(&mut word, 0, 9, soon()).unwrap();
            plain.send(&word, 0, 9, soon()).unwrap();
        }
        assert_eq!(word, [5]);
        // What a receive on a stream gets is shown as that stream's.
        let stream = Arc::new(world.stream(&Device::Host).unwrap());
        let place = Place::from(&memory[1]).enqueued_on(&stream);
        let mut recv = plain.irecv(place, other, 10).unwrap();
        let mut send = plain.isend(&memory[0], other, 10).unwrap();
        tagged::wait_all([&mut recv, &mut send], soon()).unwrap();
        world.synchronize(&stream, soon()).unwrap();
        let (now, all) = (&world.counters()[other], 2 * LENGTHS.len() as u64 + 2);
        let expected = Traffic { operations: all, bytes: (3 * len + 8) as u64 };
        let grown = |now: Traffic, before: Traffic| Traffic {
            operations: now.operations - before.operations,
            bytes: now.bytes - before.bytes,
        };
        assert_eq!(grown(now.sends, before[other].sends), expected);
        assert_eq!(grown(now.recvs, before[other].recvs), expected);
        drop((recv, send));
        world.finish().unwrap();
    });
    let document = read(&path);
    let all = document["traceEvents"].as_array().unwrap();
    for rank in 0..2 {
        let other = 1 - rank;
        let bars = |name: &str| {
            let bars = events(&document, rank, name).into_iter().filter(|event| event["ph"] == "b");
            bars.map(|event| event["args"]["bytes"].as_u64().unwrap() as usize).collect::<Vec<_>>()
        };
        for tag in [7, 8] {
            assert_eq!(bars(&format!("send tag {tag} to rank {other}")), LENGTHS);
            assert_eq!(bars(&format!("recv tag {tag} from rank {other}")), LENGTHS);
            let starts = events(&document, rank, &format!("start send tag {tag} to rank {other}"));
            assert_eq!(starts.len(), LENGTHS.len());
            let posts = events(&document, rank, &format!("start recv tag {tag} from any rank"));
            assert_eq!(posts.len(), LENGTHS.len());
        }
        assert_eq!(
            (
                bars(&format!("send tag 9 to rank {other}")),
                bars(&format!("recv tag 9 from rank {other}"))
            ),
            (vec![8], vec![8])
        );
        let named = |event: &&Value, start: &str| {
            event["pid"] == rank && event["name"].as_str().is_some_and(|it| it.starts_with(start))
        };
        assert!(all.iter().filter(|event| named(event, "wait for recv tag 9")).count() >= 1);
        // Each message through streams is copied from the memory of one rank and to that of the other, piece by piece, and the last by the program's.
        for (way, bytes) in
            [("from", LENGTHS.iter().sum::<usize>()), ("to", 2 * LENGTHS.iter().sum::<usize>())]
        {
            let copies = events(&document, rank, &format!("tagged message {way} host"));
            let copied: u64 =
                copies.iter().map(|copy| copy["args"]["bytes"].as_u64().unwrap()).sum();
            assert_eq!(copied, bytes as u64, "{way}");
        }
        // Each leaves before it has come.
        let arrows = |ph: &'static str, rank: usize| {
            all.iter().filter(move |event| event["ph"] == ph && event["pid"] == rank)
        };
        let mut met = 0;
        for left in arrows("s", rank) {
            let mut came = arrows("f", other).filter(|event| event["id"] == left["id"]);
            let came = came.next().unwrap_or_else(|| panic!("{left} has not come"));
            assert!(came["ts"].as_f64() >= left["ts"].as_f64(), "{left} {came}");
            met += 1;
        }
        assert_eq!(met, 2 * LENGTHS.len() + 2);
    }
}

/// A place for a log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_log_has_events_of_preparing_starting_waiting_and_completing() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let world = World::threads(1).unwrap().pop().unwrap();
        communicate(&world);
        let memory = world.alloc::<u8>(&Device::Host, 4).unwrap();
        let me = world.peer(0).unwrap();
        let send = me.send(&memory, 3).prepare().unwrap();
        let recv = me.recv(&memory, 3).prepare().unwrap();
        let stream = world.stream(&Device::Host).unwrap();
        world
            .enqueue(&stream, &[Step::start(&recv), Step::start(&send), Step::wait(&recv)])
            .unwrap();
        world.synchronize(&stream, Deadline::after(Duration::from_secs(20))).unwrap();
        drop((send, recv));
        let messages = world.tagged(&Options::default()).unwrap();
        let mut recv = messages.irecv(&memory, Source::Any, 12).unwrap();
        messages.isend(&memory, 0, 12).unwrap();
        recv.wait(soon()).unwrap();
        drop((recv, messages));
        world.finish().unwrap();
    });
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let lines = |words: &[&str]| {
        log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    };
    assert_eq!(lines(&["DEBUG", "prepared", "send tag 7 to rank 0", "bytes=800"]), 1, "{log}");
    assert_eq!(lines(&["TRACE", "started", "send tag 7"]), 4);
    assert_eq!(lines(&["TRACE", "complete", "recv tag 7", "epoch=4"]), 1);
    assert_eq!(lines(&["TRACE", "started", "put", "bytes=800"]), 1);
    assert_eq!(lines(&["TRACE", "waiting", "wait for a signal"]), 1);
    assert_eq!(lines(&["TRACE", "started", "send tag 3"]), 1);
    assert_eq!(lines(&["TRACE", "started", "recv tag 12 from any rank"]), 1, "{log}");
    assert_eq!(lines(&["TRACE", "started", "send tag 12 to rank 0"]), 1);
    assert_eq!(lines(&["TRACE", "waiting", "recv tag 12 from any rank"]), 1);
    assert_eq!(lines(&["TRACE", "complete", "send tag 12 to rank 0", "bytes=4"]), 1);
    assert_eq!(lines(&["TRACE", "complete", "recv tag 12 from rank 0", "bytes=4"]), 1);
    assert_eq!(lines(&["DEBUG", "with rank 0", "6 sends of 3208 bytes", "1 signals"]), 1, "{log}");
}

/// What the processes of the next test run.
#[test]
#[ignore = "is a rank of the other tests"]
fn a_rank() {
    let world = World::init().unwrap();
    communicate(&world);
    world.finish().unwrap();
    say("through");
}

#[test]
fn processes_write_one_timeline_by_a_variable_of_rank_zero() {
    let (_directory, path) = file("a.json");
    let mut ranks: Vec<Rank> = start_mprun("", 3, &[("MP_TRACE", path.to_str().unwrap())]);
    for rank in &mut ranks {
        assert_eq!(rank.next(Duration::from_secs(60)).as_deref(), Some("through"));
        assert_eq!(rank.end(Duration::from_secs(20)), Some(0));
    }
    let document = read(&path);
    for rank in 0..3 {
        assert_eq!(document["otherData"]["ranks"][rank]["clock_within_ns"], 0, "one host");
        assert_eq!(events(&document, rank, "put and signal").len(), 1);
        assert!(!events(&document, rank, "CPU (cores in use)").is_empty());
        // What a rank sends to its right neighbour arrives there, on one clock.
        let all = document["traceEvents"].as_array().unwrap();
        let of = |ph: &'static str, rank: usize| {
            all.iter().filter(move |event| event["ph"] == ph && event["pid"] == rank)
        };
        let mut met = 0;
        for left in of("s", rank) {
            let arrived = of("f", (rank + 1) % 3).find(|event| event["id"] == left["id"]).unwrap();
            assert!(arrived["ts"].as_f64() >= left["ts"].as_f64(), "{left} {arrived}");
            met += 1;
        }
        assert_eq!(met, 4);
    }
}

#[test]
fn steps_of_a_replayed_graph_are_shown_as_often_as_they_run() {
    let (_directory, path) = file("a.json");
    let worlds = World::threads_with_config(2, &config(&path)).unwrap();
    on_threads(worlds, |world| {
        let other = world.peer(1 - world.rank()).unwrap();
        let [edge, ghost] = [10, 10].map(|len| world.alloc::<f64>(&Device::Host, len).unwrap());
        let send = other.send(&edge, 0).prepare().unwrap();
        let recv = other.recv(&ghost, 0).prepare().unwrap();
        let stream = world.stream(&Device::Host).unwrap();
        stream.begin_capture().unwrap();
        world
            .enqueue(&stream, &[Step::start(&recv), Step::start(&send), Step::wait(&recv)])
            .unwrap();
        let graph = stream.end_capture().unwrap();
        for _ in 0..3 {
            stream.launch_graph(&graph).unwrap();
        }
        world.synchronize(&stream, Deadline::after(Duration::from_secs(20))).unwrap();
        world.finish().unwrap();
    });
    let document = read(&path);
    let name = |event: &Value| event["name"].as_str().unwrap_or_default().to_owned();
    let all = document["traceEvents"].as_array().unwrap();
    for rank in 0..2 {
        let steps = all.iter().filter(|event| {
            event["pid"] == rank && event["ph"] == "X" && name(event).starts_with("recv tag 0")
        });
        assert_eq!(steps.count(), 3);
    }
}

#[test]
fn stamps_of_a_device_are_put_on_the_clock_of_the_host() {
    let (_directory, path) = file("a.json");
    let trace = Trace::detached(0, "n", 100);
    let clock = Calibration::at(5_000_000, 1_000_000);
    let lane = trace.lane("GPU 0");
    trace.record(trace.lane("host"), "test", "first", (1_000_000, 1_000_001), &[]);
    trace.import(lane, "kernel", &clock, &[Stamp::new("smooth", 5_002_000, 5_004_500)]);
    let part = trace.part().unwrap();
    let part = trace::Part::from_bytes(&part.to_bytes()).unwrap();
    trace::write(&path, &[part]).unwrap();
    let document = read(&path);
    let smooth = events(&document, 0, "smooth")[0];
    assert_eq!((&smooth["ts"], &smooth["dur"]), (&2.0.into(), &2.5.into()));
}

#[test]
fn a_timeline_that_cannot_be_written_leaves_the_old_file_whole() {
    let (directory, path) = file("a.json");
    let part = Trace::detached(0, "n", 100).part().unwrap();
    trace::write(&path, std::slice::from_ref(&part)).unwrap();
    let before = std::fs::read(&path).unwrap();
    // The file beside it cannot be made, as on a full disk.
    let beside = directory.path().join(format!(".a.json.{}", std::process::id()));
    std::fs::create_dir(&beside).unwrap();
    assert!(trace::write(&path, std::slice::from_ref(&part)).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), before);
    std::fs::remove_dir(&beside).unwrap();
    trace::write(&path, &[part]).unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_timeline_that_is_off_takes_everything_and_keeps_nothing() {
    let trace = Trace::off();
    assert!(!trace.is_on());
    drop(trace.span("test", "x").arg("y", 1));
    trace.record(trace.lane("l"), "test", "x", (0, 1), &[]);
    trace.instant("test", "x", &[]);
    assert!(trace.part().is_none());
    let worlds = World::threads(1).unwrap();
    on_threads(worlds, |world| {
        assert!(!world.trace().is_on());
        world.finish().unwrap();
    });
}
