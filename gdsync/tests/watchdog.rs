//! What the watchdog promises, on the host and on a GPU: after an abort no stream stays blocked, and no result passes
//! as good.

mod common;

use std::time::{Duration, Instant};

use common::{Outcome, on_host_and_cuda, soon};
use gdsync::{Device, Error, MemOp, Until, Watchdog};

on_host_and_cuda!(
    an_abort_releases_every_blocked_stream,
    an_abort_sets_the_abort_word_before_it_releases,
    an_abort_wins_over_a_peer_that_goes_on_writing,
    an_abort_ends_waits_in_kernels,
    an_abort_releases_the_waits_of_a_graph,
    an_abort_releases_waits_for_a_value_and_for_bits,
    an_abort_ends_waits_for_more_less_and_something_else,
    after_an_abort_nothing_more_can_wait,
    the_pending_waits_are_listed_oldest_first_and_forgotten_when_over,
    a_dropped_stream_is_released_too,
    unwatched_streams_and_other_watchdogs_are_left_alone,
);

fn aborted(result: gdsync::Result<()>, cause: &str) {
    match result {
        Err(Error::Aborted { cause: said, .. }) => assert_eq!(said, cause),
        other => panic!("{other:?}"),
    }
}

fn an_abort_releases_every_blocked_stream(device: &Device) -> Outcome {
    let watchdog = Watchdog::new(device)?;
    // More streams than a GPU has hardware queues by default: the release must not stand in line behind them.
    let streams =
        (0..48).map(|_| device.watched_stream(&watchdog)).collect::<Result<Vec<_>, _>>()?;
    let (pinned, own) = (device.alloc_pinned::<u64>(48)?, device.alloc::<u64>(48)?);
    let (pinned32, own32) = (device.alloc_pinned::<u32>(48)?, device.alloc::<u32>(48)?);
    for (i, stream) in streams.iter().enumerate() {
        stream.wait_geq64(&pinned.word(i)?, 5)?;
        stream.wait_geq64(&own.word(i)?, 1 << 40)?;
        stream.batch(&[
            MemOp::Wait32(&pinned32.word(i)?, Until::Geq(3)),
            MemOp::Wait32(&own32.word(i)?, Until::Geq(4)),
        ])?;
        stream.wait_geq64(&own.word(i)?, 1 << 41)?;
    }
    std::thread::sleep(Duration::from_millis(20));
    assert!(streams.iter().all(|stream| matches!(stream.is_idle(), Ok(false))));
    let began = Instant::now();
    watchdog.abort("peer 3 lost");
    for stream in &streams {
        aborted(stream.synchronize(soon()), "peer 3 lost");
        assert!(stream.is_idle()?, "released, not only reported");
    }
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    Ok(())
}

fn an_abort_sets_the_abort_word_before_it_releases(device: &Device) -> Outcome {
    let watchdog = Watchdog::new(device)?;
    let stream = device.watched_stream(&watchdog)?;
    let words = device.alloc_pinned::<u64>(2)?;
    let (gate, seen) = (words.word(0)?, words.word(1)?);
    stream.wait_geq64(&gate, 1)?;
    let (abort, note) = (watchdog.abort_word().clone(), seen.clone());
    stream.call(move || {
        let _ = note.store(abort.load().unwrap_or(0) + 10);
    })?;
    watchdog.abort("test");
    aborted(stream.synchronize(soon()), "test");
    assert_eq!(seen.load(), Some(11), "the stream ran on after the abort word was set");
    Ok(())
}

fn an_abort_wins_over_a_peer_that_goes_on_writing(device: &Device) -> Outcome {
    let watchdog = Watchdog::new(device)?;
    let stream = device.watched_stream(&watchdog)?;
    let gate = device.alloc_pinned::<u64>(1)?.word(0)?;
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| -> Outcome {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = gate.store(2); // A peer that lives on and writes what it always wrote.
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        for value in 3..40 {
            stream.wait_geq64(&gate, value)?;
        }
        watchdog.abort("test");
        let result = stream.synchronize(soon());
        let idle = stream.is_idle();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        aborted(result, "test");
        assert!(idle?);
        Ok(())
    })
}

fn an_abort_ends_waits_in_kernels(device: &Device) -> Outcome {
    let watchdog = Watchdog::new(device)?;
    let stream = device.watched_stream(&watchdog)?;
    let word = device.alloc::<u64>(1)?.word(0)?;
    stream.wait_signal(&word, 1, Duration::from_secs(3600))?;
    std::thread::sleep(Duration::from_millis(10));
    assert!(!stream.is_idle()?);
    assert_eq!(watchdog.pending().first().map(|wait| wait.until.value()), Some(1));
    let began = Instant::now();
    watchdog.abort("test");
    aborted(stream.synchronize(soon()), "test");
    assert!(
        stream.is_idle()? && began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
    Ok(())
}

fn an_abort_releases_the_waits_of_a_graph(device: &Device) -> Outcome {
    let watchdog = Watchdog::new(device)?;
    let stream = device.watched_stream(&watchdog)?;
    let words = device.alloc::<u64>(2)?;
    stream.begin_capture()?;
    stream.batch(&[
        MemOp::Wait64(&words.word(0)?, Until::Geq(1)),
        MemOp::Wait64(&words.word(1)?, Until::Geq(2)),
    ])?;
    let graph = stream.end_capture()?;
    stream.launch_graph(&graph)?;
    std::thread::sleep(Duration::from_millis(10));
    assert!(!stream.is_idle()?);
    assert_eq!(watchdog.pending().len(), 2);
    watchdog.abort("test");
    aborted(stream.synchronize(soon()), "test");
    assert!(stream.is_idle()?);
    Ok(())
}

fn an_abort_releases_waits_for_a_value_and_for_bits(device: &Device) -> Outcome {
    let watchdog = Watchdog::new(device)?;
    let stream = device.watched_stream(&watchdog)?;
    let (pinned, own) = (device.alloc_pinned::<u64>(2)?, device.alloc::<u32>(2)?);
    pinned.write(&[9, 3])?;
    own.write(&[9, 3])?;
    stream.wait64(&pinned.word(0)?, Until::Eq(5))?;
    stream.wait64(&pinned.word(1)?, Until::And(12))?;
    stream.wait32(&own.word(0)?, Until::Eq(5))?;
    stream.wait32(&own.word(1)?, Until::And(12))?;
    let pending: Vec<String> = watchdog.pending().iter().map(ToString::to_string).collect();
    assert!(pending[0].contains(" == 5, sees 9") && pending[1].contains(" & 0xc, sees 3"));
    watchdog.abort("test");
    aborted(stream.synchronize(soon()), "test");
    assert!(stream.is_idle()?);
    // Bits that others have set are left. A host stream may have seen the abort before the watchdog wrote anything.
    let (words, seen_first) = (pinned.to_vec()?, device.as_cuda().is_none());
    assert!(words[0] == 5 || seen_first && words[0] == 9, "{words:?}");
    assert!(words[1] == 15 || seen_first && words[1] == 3, "{words:?}");
    Ok(())
}

fn an_abort_ends_waits_for_more_less_and_something_else(device: &Device) -> Outcome {
    for until in [Until::Ne(9), Until::Gt(9), Until::Lt(9), Until::Le(8)] {
        let watchdog = Watchdog::new(device)?;
        let stream = device.watched_stream(&watchdog)?;
        let word = device.alloc_pinned::<u64>(1)?;
        word.write(&[9])?;
        stream.wait64(&word.word(0)?, until)?;
        let pending: Vec<String> = watchdog.pending().iter().map(ToString::to_string).collect();
        assert!(pending[0].contains(&format!(" {until}, sees 9")), "{pending:?}");
        watchdog.abort("test");
        aborted(stream.synchronize(soon()), "test");
        assert!(stream.is_idle()?);
    }
    Ok(())
}

fn after_an_abort_nothing_more_can_wait(device: &Device) -> Outcome {
    let watchdog = Watchdog::new(device)?;
    let stream = device.watched_stream(&watchdog)?;
    let word = device.alloc_pinned::<u64>(1)?.word(0)?;
    watchdog.abort("first");
    watchdog.abort("second");
    assert_eq!(watchdog.cause().as_deref(), Some("first"));
    aborted(stream.wait_geq64(&word, 1), "first");
    aborted(stream.synchronize(soon()), "first");
    Ok(())
}

fn the_pending_waits_are_listed_oldest_first_and_forgotten_when_over(device: &Device) -> Outcome {
    let watchdog = Watchdog::new(device)?;
    let stream = device.watched_stream(&watchdog)?;
    let words = device.alloc_pinned::<u64>(2)?;
    let (one, two) = (words.word(0)?, words.word(1)?);
    stream.wait_geq64(&one, 1)?;
    stream.wait_geq64(&two, 9)?;
    let pending = watchdog.pending();
    let listed: Vec<_> = pending.iter().map(|wait| (wait.until.value(), wait.seen)).collect();
    assert_eq!(listed, [(1, Some(0)), (9, Some(0))]);
    assert!(pending[0].age >= pending[1].age && pending[0].stream == stream.name());
    one.store(1)?;
    two.store(9)?;
    stream.synchronize(soon())?;
    assert!(watchdog.pending().is_empty());
    // Many more than are kept: the list does not grow with waits that are over.
    for value in 1..=3000 {
        stream.wait_geq64(&one, 1)?;
        if value % 200 == 0 {
            stream.synchronize(soon())?;
        }
    }
    assert!(watchdog.pending().is_empty());
    Ok(())
}

fn a_dropped_stream_is_released_too(device: &Device) -> Outcome {
    let watchdog = Watchdog::new(device)?;
    let words = device.alloc_pinned::<u64>(2)?;
    let (gate, done) = (words.word(0)?, words.word(1)?);
    let stream = device.watched_stream(&watchdog)?;
    stream.wait_geq64(&gate, 1)?;
    let note = done.clone();
    stream.call(move || {
        let _ = note.store(1);
    })?;
    drop(stream);
    watchdog.abort("test");
    assert!(soon().poll(|| (done.load() == Some(1)).then_some(())).is_some());
    Ok(())
}

/// A peer would take it for what it was waiting for, or still reads what would be overwritten. On a GPU the driver goes on
/// with what has been enqueued.
#[test]
fn what_a_released_stream_of_the_host_was_to_write_is_not_written() -> Outcome {
    let device = Device::Host;
    for drops in [false, true] {
        let watchdog = Watchdog::new(&device)?;
        let words = device.alloc_pinned::<u64>(2)?;
        let (gate, done) = (words.word(0)?, words.word(1)?);
        let (from, to) = (device.alloc::<u64>(8)?, device.alloc::<u64>(8)?);
        from.write(&[7; 8])?;
        let stream = device.watched_stream(&watchdog)?;
        stream.wait_geq64(&gate, 1)?;
        stream.copy(&to, &from)?;
        stream.write64(&done, 1)?;
        let (tell, told) = std::sync::mpsc::channel();
        stream.call(move || {
            let _ = tell.send(());
        })?;
        if drops {
            drop(stream);
        } else {
            watchdog.abort("test");
            aborted(stream.synchronize(soon()), "test");
        }
        assert!(told.recv_timeout(Duration::from_secs(10)).is_ok(), "the stream was released");
        assert_eq!((done.load(), to.to_vec()?), (Some(0), vec![0; 8]), "dropped: {drops}");
    }
    Ok(())
}

fn unwatched_streams_and_other_watchdogs_are_left_alone(device: &Device) -> Outcome {
    let (mine, other) = (Watchdog::new(device)?, Watchdog::new(device)?);
    let words = device.alloc_pinned::<u64>(2)?;
    let (a, b) = (words.word(0)?, words.word(1)?);
    let (unwatched, watched) = (device.stream()?, device.watched_stream(&other)?);
    unwatched.wait_geq64(&a, 1)?;
    watched.wait_geq64(&b, 1)?;
    mine.abort("test");
    std::thread::sleep(Duration::from_millis(20));
    assert!(!unwatched.is_idle()? && !watched.is_idle()?);
    a.store(1)?;
    b.store(1)?;
    unwatched.synchronize(soon())?;
    watched.synchronize(soon())?;
    Ok(())
}
