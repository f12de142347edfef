//! What streams promise, on the host and on a GPU: order, memory operations, copies, events, callbacks, graphs.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Outcome, on_host_and_cuda, soon};
use gdsync::{
    Buffer, CudaDevice, Deadline, Device, Error, Event, MemOp, Rows, Stream, Until, Watchdog,
};

on_host_and_cuda!(
    operations_run_in_the_order_in_which_they_were_enqueued,
    a_wait_holds_the_stream_until_the_word_has_reached_the_value,
    a_32_bit_wait_counts_through_zero,
    a_wait_for_a_value_or_for_bits_holds_the_stream_until_they_are_there,
    a_wait_for_more_less_or_something_else_holds_the_stream_until_it_is_there,
    a_batch_longer_than_one_driver_call_keeps_its_order,
    copies_and_fills_move_the_bytes_asked_for,
    copies_of_different_lengths_are_refused,
    rows_are_copied_to_their_places_and_no_further,
    an_event_orders_two_streams_and_measures_time,
    a_panicking_callback_is_reported_and_does_not_stop_the_stream,
    a_synchronise_that_gives_up_names_the_wait,
    a_graph_replays_what_was_captured,
    a_capture_cannot_begin_twice_or_end_without_beginning,
    a_capture_by_the_owner_of_an_adopted_stream_keeps_what_operations_use,
    two_streams_play_ping_pong,
    signals_are_raised_and_awaited_on_streams,
    a_bounded_wait_gives_up_and_says_what_it_saw,
    a_stream_can_be_dropped_with_work_in_it,
    memory_dropped_under_a_blocked_stream_is_still_written,
    a_hundred_operations_go_behind_a_wait_whatever_went_before,
    streams_of_several_threads_wait_for_each_other_however_many_have_been_used,
);

fn operations_run_in_the_order_in_which_they_were_enqueued(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let word = device.alloc_pinned::<u64>(1)?.word(0)?;
    let log = Arc::new(Mutex::new(Vec::new()));
    for value in 1..=50 {
        stream.write64(&word, value)?;
        let (word, log) = (word.clone(), log.clone());
        stream.call(move || log.lock().unwrap().push(word.load()))?;
    }
    stream.synchronize(soon())?;
    assert_eq!(*log.lock().unwrap(), (1..=50).map(Some).collect::<Vec<_>>());
    Ok(())
}

fn a_wait_holds_the_stream_until_the_word_has_reached_the_value(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let words = device.alloc_pinned::<u64>(2)?;
    let (gate, passed) = (words.word(0)?, words.word(1)?);
    stream.batch(&[
        MemOp::Wait64(&gate, Until::Geq(5)),
        MemOp::Barrier,
        MemOp::Write64(&passed, 1),
    ])?;
    for below in 0..5 {
        gate.store(below)?;
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(passed.load(), Some(0), "passed at {below}");
        assert!(!stream.is_idle()?);
    }
    gate.store(7)?;
    stream.synchronize(soon())?;
    assert_eq!(passed.load(), Some(1));
    Ok(())
}

fn a_32_bit_wait_counts_through_zero(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let words = device.alloc_pinned::<u32>(2)?;
    let (gate, passed) = (words.word(0)?, words.word(1)?);
    gate.store(u32::MAX - 1)?;
    stream.wait_geq32(&gate, 1)?;
    stream.write32(&passed, 1)?;
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(passed.load(), Some(0));
    gate.store(1)?;
    stream.synchronize(soon())?;
    assert_eq!(passed.load(), Some(1));
    // In cyclic order 2^32 - 1 lies before 1, and what was reached stays reached.
    stream.wait_geq32(&gate, u32::MAX)?;
    stream.synchronize(soon())?;
    Ok(())
}

fn a_wait_for_more_less_or_something_else_holds_the_stream_until_it_is_there(
    device: &Device,
) -> Outcome {
    let stream = device.stream()?;
    let words = device.alloc_pinned::<u64>(2)?;
    let (word, passed) = (words.word(0)?, words.word(1)?);
    // The largest values tell a comparison without sign from one in cyclic order.
    let waits = [
        (Until::Ne(5), 5, 6),
        (Until::Gt(5), 5, u64::MAX),
        (Until::Lt(5), u64::MAX, 4),
        (Until::Le(3), 4, 3),
    ];
    for (i, (until, not, met)) in (0u64..).zip(waits) {
        word.store(not)?;
        stream.wait64(&word, until)?;
        stream.write64(&passed, i + 1)?;
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(passed.load(), Some(i), "{until} with {not}");
        word.store(met)?;
        stream.synchronize(soon())?;
        assert_eq!(passed.load(), Some(i + 1), "{until} with {met}");
    }
    for never in [Until::Lt(0), Until::Gt(u64::MAX), Until::And(0)] {
        let refused = stream.wait64(&word, never);
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{never}: {refused:?}");
    }
    Ok(())
}

fn a_wait_for_a_value_or_for_bits_holds_the_stream_until_they_are_there(
    device: &Device,
) -> Outcome {
    let stream = device.stream()?;
    let (words, halves) = (device.alloc_pinned::<u64>(2)?, device.alloc_pinned::<u32>(2)?);
    let (wide, passed) = (words.word(0)?, words.word(1)?);
    let narrow = halves.word(0)?;
    stream.wait64(&wide, Until::Eq(1 << 40))?;
    stream.write64(&passed, 1)?;
    stream.wait64(&wide, Until::And(6))?;
    stream.write64(&passed, 2)?;
    stream.wait32(&narrow, Until::Eq(7))?;
    stream.write64(&passed, 3)?;
    stream.wait32(&narrow, Until::And(1 << 31))?;
    stream.write64(&passed, 4)?;
    let holds = |at: u64| -> Outcome {
        assert!(soon().poll(|| (passed.load() == Some(at)).then_some(())).is_some(), "{at}");
        std::thread::sleep(Duration::from_millis(3));
        assert_eq!(passed.load(), Some(at));
        Ok(())
    };
    // More is not equal, and other bits are not these.
    wide.store((1 << 40) + 1)?;
    holds(0)?;
    wide.store(1 << 40)?;
    holds(1)?;
    wide.store(9)?;
    holds(1)?;
    wide.store(4)?;
    holds(2)?;
    narrow.store(8)?;
    holds(2)?;
    narrow.store(7)?;
    holds(3)?;
    narrow.store(u32::MAX >> 1)?;
    holds(3)?;
    narrow.store(u32::MAX)?;
    stream.synchronize(soon())?;
    assert_eq!(passed.load(), Some(4));
    for refused in [stream.wait64(&wide, Until::And(0)), stream.wait32(&narrow, Until::And(0))] {
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    }
    stream.synchronize(soon())?;
    Ok(())
}

fn a_batch_longer_than_one_driver_call_keeps_its_order(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let words = device.alloc_pinned::<u64>(2)?;
    let (gate, last) = (words.word(0)?, words.word(1)?);
    let mut ops = vec![MemOp::Wait64(&gate, Until::Geq(1))];
    ops.extend((1..=600).map(|value| MemOp::Write64(&last, value)));
    stream.batch(&ops)?;
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(last.load(), Some(0));
    gate.store(1)?;
    stream.synchronize(soon())?;
    assert_eq!(last.load(), Some(600));
    Ok(())
}

fn copies_and_fills_move_the_bytes_asked_for(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let values: Vec<u32> = (0..100_000u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let pinned = device.alloc_pinned::<u32>(values.len())?;
    pinned.write(&values)?;
    let (there, back) =
        (device.alloc::<u32>(values.len())?, device.alloc_pinned::<u32>(values.len())?);
    stream.copy(&there, &pinned)?;
    stream.copy(&back, &there)?;
    stream.fill(&back.slice(10..20)?, 0xab)?;
    stream.synchronize(soon())?;
    let mut expected = values.clone();
    expected[10..20].fill(0xabab_abab);
    assert_eq!(back.to_vec()?, expected);
    assert_eq!(there.to_vec()?, values);
    stream.copy(&there.slice(0..0)?, &pinned.slice(3..3)?)?;
    stream.synchronize(soon())?;
    Ok(())
}

fn copies_of_different_lengths_are_refused(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let (a, b) = (device.alloc::<u8>(10)?, device.alloc::<u8>(11)?);
    assert!(matches!(stream.copy(&a, &b), Err(Error::LengthMismatch { left: 10, right: 11, .. })));
    Ok(())
}

fn rows_are_copied_to_their_places_and_no_further(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let values: Vec<u16> = (1..=4000).collect();
    let [here, back] = [device.alloc_pinned::<u16>(4000)?, device.alloc_pinned::<u16>(4000)?];
    let there = device.alloc::<u16>(4000)?;
    here.write(&values)?;
    // One row, rows side by side, at distances, and the same row again and again.
    for rows in [
        Rows::one(4000),
        Rows { len: 10, count: 30, to: 10, from: 10 },
        Rows { len: 3, count: 100, to: 40, from: 7 },
        Rows { len: 7, count: 20, to: 8, from: 0 },
        Rows { len: 5, count: 1, to: 0, from: 0 },
        Rows { len: 1, count: 4000, to: 1, from: 1 },
    ] {
        stream.fill(&there, 0)?;
        stream.copy_rows(&there, &here, rows)?;
        stream.copy(&back, &there)?;
        stream.synchronize(soon())?;
        let mut expected = vec![0; 4000];
        for (to, from) in rows.starts() {
            expected[to..to + rows.len].copy_from_slice(&values[from..from + rows.len]);
        }
        assert_eq!(back.to_vec()?, expected, "{rows:?}");
    }
    for rows in [
        Rows { len: 10, count: 2, to: 3991, from: 1 },
        Rows { len: 10, count: 2, to: 1, from: 3991 },
        Rows { len: 1, count: usize::MAX, to: 8, from: 1 },
        Rows::one(4001),
    ] {
        let refused = stream.copy_rows(&there, &here, rows);
        assert!(matches!(refused, Err(Error::OutOfRange { size: 8000, .. })), "{rows:?}");
    }
    stream.copy_rows(&there, &here, Rows { len: 0, count: 9, to: 9999, from: 9999 })?;
    stream.synchronize(soon())?;
    Ok(())
}

fn an_event_orders_two_streams_and_measures_time(device: &Device) -> Outcome {
    let (first, second) = (device.stream()?, device.stream()?);
    let words = device.alloc_pinned::<u64>(2)?;
    let (gate, passed) = (words.word(0)?, words.word(1)?);
    let (begin, end) = (Event::new(device)?, Event::new(device)?);
    assert!(end.is_reached()?, "an event never recorded holds nobody up");
    first.record(&begin)?;
    first.wait_geq64(&gate, 1)?;
    first.record(&end)?;
    second.wait_event(&end)?;
    second.write64(&passed, 1)?;
    // The time is counted from when the stream got so far.
    begin.synchronize(soon())?;
    std::thread::sleep(Duration::from_millis(20));
    assert!(!end.is_reached()? && passed.load() == Some(0));
    assert!(matches!(
        end.synchronize(Deadline::after(Duration::from_millis(5))),
        Err(Error::Timeout { .. })
    ));
    gate.store(1)?;
    end.synchronize(soon())?;
    second.synchronize(soon())?;
    assert_eq!(passed.load(), Some(1));
    let time = end.since(&begin)?;
    assert!(time >= Duration::from_millis(20) && time < Duration::from_secs(60), "{time:?}");
    Ok(())
}

fn a_panicking_callback_is_reported_and_does_not_stop_the_stream(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let word = device.alloc_pinned::<u64>(1)?.word(0)?;
    stream.call(|| panic!("on purpose"))?;
    stream.write64(&word, 1)?;
    match stream.synchronize(soon()) {
        Err(Error::CallbackPanicked { message, .. }) => assert_eq!(message, "on purpose"),
        other => panic!("{other:?}"),
    }
    assert_eq!(word.load(), Some(1));
    Ok(())
}

fn a_synchronise_that_gives_up_names_the_wait(device: &Device) -> Outcome {
    let watchdog = Watchdog::new(device)?;
    let stream = device.watched_stream(&watchdog)?;
    let gate = device.alloc_pinned::<u64>(4)?.word(3)?;
    gate.store(40)?;
    stream.wait_geq64(&gate, 41)?;
    let error =
        stream.synchronize(Deadline::after(Duration::from_millis(30))).unwrap_err().to_string();
    for part in [stream.name(), "byte 24", ">= 41", "sees 40"] {
        assert!(error.contains(part), "{error}");
    }
    gate.store(41)?;
    stream.synchronize(soon())?;
    Ok(())
}

fn a_graph_replays_what_was_captured(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let calls = Arc::new(AtomicU64::new(0));
    let words = device.alloc_pinned::<u64>(3)?;
    let (gate, done) = (words.word(0)?, words.word(1)?);
    let (from, to) = (device.alloc::<u64>(8)?, device.alloc::<u64>(8)?);
    from.write(&[9; 8])?;
    stream.begin_capture()?;
    stream.batch(&[MemOp::Wait64(&gate, Until::Geq(1))])?;
    stream.copy(&to, &from)?;
    let counter = calls.clone();
    stream.call(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    })?;
    stream.signal(&done, 7)?;
    stream.wait_signal(&done, 7, Duration::from_secs(5))?;
    let graph = stream.end_capture()?;
    drop((from, words)); // The graph holds what it uses.
    stream.synchronize(soon())?;
    assert_eq!((calls.load(Ordering::SeqCst), done.load()), (0, Some(0)), "capturing runs nothing");
    for replay in 1..=5 {
        stream.launch_graph(&graph)?;
        if replay == 1 {
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(done.load(), Some(0));
            gate.store(1)?;
        }
        stream.synchronize(soon())?;
        assert_eq!((calls.load(Ordering::SeqCst), done.load()), (replay, Some(7)));
        assert_eq!(to.to_vec()?, [9; 8]);
        done.store(0)?;
    }
    stream.launch_graph(&graph)?;
    drop(graph); // A replay under way keeps what it needs.
    stream.synchronize(soon())?;
    assert_eq!(calls.load(Ordering::SeqCst), 6);
    Ok(())
}

fn a_capture_cannot_begin_twice_or_end_without_beginning(device: &Device) -> Outcome {
    let stream = device.stream()?;
    assert!(matches!(stream.end_capture(), Err(Error::Unsupported { .. })));
    stream.begin_capture()?;
    assert!(matches!(stream.begin_capture(), Err(Error::Unsupported { .. })));
    drop(stream.end_capture()?);
    stream.synchronize(soon())?;
    Ok(())
}

fn a_capture_by_the_owner_of_an_adopted_stream_keeps_what_operations_use(
    device: &Device,
) -> Outcome {
    let (owner, watchdog) = (device.stream()?, Watchdog::new(device)?);
    let raw = owner.as_raw_cuda().unwrap_or(std::ptr::null_mut());
    // SAFETY: the owner outlives what is made of it, which is idle when it is dropped.
    let adopted = unsafe { Stream::adopt(device, raw, Some(&watchdog)) };
    if matches!(device, Device::Host) {
        assert!(matches!(adopted, Err(Error::Unsupported { .. })));
        return Ok(());
    }
    let adopted = adopted?;
    let (memory, token) = (device.alloc::<u64>(1)?, Arc::new(()));
    let address = memory.device_address().unwrap_or_default();
    // SAFETY: `memory` is dropped at the end.
    let lent = unsafe { Buffer::<u64>::from_cuda_memory(device, address, 1, token.clone())? };
    let word = lent.word(0)?;
    assert!(!adopted.is_capturing());
    owner.begin_capture()?;
    assert!(adopted.is_capturing());
    adopted.write64(&word, 7)?;
    let refused = adopted.wait_geq64(&word, 7).unwrap_err();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    let bounded = adopted.wait_signal(&word, 7, Duration::from_secs(10));
    if !matches!(bounded, Err(Error::NoGpuCode { .. })) {
        bounded?;
    }
    let graph = owner.end_capture()?;
    assert!(!adopted.is_capturing());
    drop((lent, word));
    assert_eq!(memory.to_vec()?, [0], "captured, not run");
    owner.launch_graph(&graph)?;
    owner.synchronize(soon())?;
    assert_eq!((memory.to_vec()?, Arc::strong_count(&token)), (vec![7], 2));
    drop(graph);
    let gone = soon().poll(|| {
        device.as_cuda().map(CudaDevice::reap);
        (Arc::strong_count(&token) == 1).then_some(())
    });
    assert!(gone.is_some(), "the graph is gone, and what it kept is not");
    adopted.write64(&memory.word(0)?, 8)?;
    adopted.synchronize(soon())?;
    assert_eq!(memory.to_vec()?, [8]);
    Ok(())
}

fn two_streams_play_ping_pong(device: &Device) -> Outcome {
    let (one, two) = (device.stream()?, device.stream()?);
    let words = device.alloc::<u64>(2)?;
    let (ping, pong) = (words.word(0)?, words.word(1)?);
    for chunk in 0..10 {
        for round in chunk * 20 + 1..=chunk * 20 + 20 {
            one.batch(&[MemOp::Write64(&ping, round), MemOp::Wait64(&pong, Until::Geq(round))])?;
            two.batch(&[MemOp::Wait64(&ping, Until::Geq(round)), MemOp::Write64(&pong, round)])?;
        }
        one.synchronize(soon())?;
        two.synchronize(soon())?;
    }
    assert_eq!(words.to_vec()?, [200, 200]);
    Ok(())
}

fn signals_are_raised_and_awaited_on_streams(device: &Device) -> Outcome {
    let (one, two) = (device.stream()?, device.stream()?);
    let words = device.alloc::<u64>(2)?;
    let (ping, pong) = (words.word(0)?, words.word(1)?);
    let patience = Duration::from_secs(10);
    for round in 1..=50 {
        two.wait_signal(&ping, round, patience)?;
        two.signal(&pong, round)?;
        one.signal(&ping, round)?;
        one.wait_signal(&pong, round, patience)?;
    }
    one.synchronize(soon())?;
    two.synchronize(soon())?;
    assert_eq!(words.to_vec()?, [50, 50]);
    Ok(())
}

fn a_bounded_wait_gives_up_and_says_what_it_saw(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let word = device.alloc_pinned::<u64>(1)?.word(0)?;
    word.store(3)?;
    stream.wait_signal(&word, 3, Duration::from_secs(10))?;
    stream.synchronize(soon())?;
    let timeout = Duration::from_millis(50);
    stream.wait_signal(&word, 4, timeout)?;
    match stream.synchronize(soon()) {
        Err(Error::WaitFailed { status: "timed out", expected: 4, seen: 3, waited, .. }) => {
            assert!(waited >= timeout && waited < Duration::from_secs(15), "{waited:?}");
        }
        other => panic!("{other:?}"),
    }
    assert!(stream.synchronize(soon()).is_err(), "a failed wait is never forgotten");
    Ok(())
}

fn a_stream_can_be_dropped_with_work_in_it(device: &Device) -> Outcome {
    let words = device.alloc_pinned::<u64>(2)?;
    let (gate, done) = (words.word(0)?, words.word(1)?);
    let stream = device.stream()?;
    stream.write64(&done, 1)?;
    stream.wait_geq64(&gate, 1)?;
    // If that waited for what is in the stream it would not come back: the gate opens only then.
    drop(stream);
    gate.store(1)?;
    let reached = soon().poll(|| (done.load() == Some(1)).then_some(()));
    assert!(reached.is_some());
    Ok(())
}

fn memory_dropped_under_a_blocked_stream_is_still_written(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let gate = device.alloc_pinned::<u64>(1)?.word(0)?;
    let result = device.alloc_pinned::<u64>(1000)?;
    {
        let (from, middle) = (device.alloc::<u64>(1000)?, device.alloc::<u64>(1000)?);
        from.write(&[77; 1000])?;
        stream.wait_geq64(&gate, 1)?;
        stream.copy(&middle, &from)?;
        stream.copy(&result, &middle)?;
    }
    // Fresh allocations must not get the memory that the stream still uses.
    let others = (0..16).map(|_| device.alloc::<u64>(1000)).collect::<Result<Vec<_>, _>>()?;
    others.iter().try_for_each(|other| other.write(&[1; 1000]))?;
    gate.store(1)?;
    stream.synchronize(soon())?;
    assert_eq!(result.to_vec()?, [77; 1000]);
    Ok(())
}

/// The enqueuer opens the gate only after them, so none may be waited for.
fn a_hundred_operations_go_behind_a_wait_whatever_went_before(device: &Device) -> Outcome {
    let stream = device.stream()?;
    let words = device.alloc_pinned::<u64>(2)?;
    let (gate, word) = (words.word(0)?, words.word(1)?);
    for turn in 1..=20 {
        // Found idle each time, and with another number of operations.
        (0..90 + turn).try_for_each(|_| stream.signal(&word, turn))?;
        stream.synchronize(soon())?;
        stream.wait_signal(&gate, turn, Duration::from_secs(5))?;
        (0..100).try_for_each(|_| stream.signal(&word, turn))?;
        gate.store(turn)?;
        stream.synchronize(soon())?;
    }
    Ok(())
}

fn streams_of_several_threads_wait_for_each_other_however_many_have_been_used(
    device: &Device,
) -> Outcome {
    const THREADS: usize = 3;
    const ROUNDS: u64 = 5;
    for used in [0, 6, 12, 12, 12, 12, 12, 12] {
        let words = device.alloc::<u64>(THREADS)?;
        let words: Vec<_> = (0..THREADS).map(|at| words.word(at)).collect::<gdsync::Result<_>>()?;
        let streams: Vec<_> =
            (0..THREADS).map(|_| device.stream()).collect::<gdsync::Result<_>>()?;
        // More than a GPU has channels for.
        let others: Vec<_> = (0..used).map(|_| device.stream()).collect::<gdsync::Result<_>>()?;
        let unused = device.alloc_pinned::<u64>(1)?.word(0)?;
        for stream in &others {
            stream.signal(&unused, 1)?;
            stream.synchronize(soon())?;
        }
        let begin = std::sync::Barrier::new(THREADS);
        let plays = |me: usize| -> gdsync::Result<()> {
            begin.wait();
            for round in 1..=ROUNDS {
                streams[me].signal(&words[me], round)?;
                for word in &words {
                    streams[me].wait_signal(word, round, Duration::from_secs(5))?;
                }
            }
            streams[me].synchronize(soon())
        };
        let plays = &plays;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|me| scope.spawn(move || plays(me))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })?;
    }
    Ok(())
}

mod gpu {
    use super::*;

    use std::ffi::{c_int, c_void};

    /// Whoever brings a stream destroys it when the one that was made of it has been dropped, though the watchdog still looks how far that is.
    #[test]
    #[ignore = "needs a CUDA GPU"]
    fn an_adopted_stream_may_be_destroyed_as_soon_as_it_was_dropped() -> Outcome {
        let device = common::gpu();
        device.as_cuda().ok_or("a GPU")?.bind()?;
        // SAFETY: the driver, which is loaded already; the types are those of cuda.h.
        let (create, destroy) = unsafe {
            let driver = libloading::Library::new("libcuda.so.1")?;
            let create: unsafe extern "C" fn(*mut *mut c_void, u32) -> c_int =
                *driver.get(b"cuStreamCreate")?;
            let destroy: unsafe extern "C" fn(*mut c_void) -> c_int =
                *driver.get(b"cuStreamDestroy_v2")?;
            std::mem::forget(driver);
            (create, destroy)
        };
        let watchdog = Watchdog::new(&device)?;
        for round in 0..200 {
            let mut raw = std::ptr::null_mut();
            // SAFETY: writes one handle; 1 is CU_STREAM_NON_BLOCKING.
            assert_eq!(unsafe { create(&mut raw, 1) }, 0);
            // SAFETY: a stream of the device, destroyed after this was dropped, idle.
            let stream = unsafe { gdsync::Stream::adopt(&device, raw.cast(), Some(&watchdog))? };
            let word = device.alloc_pinned::<u64>(1)?.word(0)?;
            stream.write64(&word, round)?;
            stream.wait_geq64(&word, round)?;
            stream.synchronize(soon())?;
            drop(stream);
            // SAFETY: made above, idle, and nobody's any more.
            assert_eq!(unsafe { destroy(raw) }, 0);
            // Asks how far all watched streams are, and looks whether what was dropped can be released.
            assert!(watchdog.pending().is_empty());
            drop(device.alloc::<u64>(1)?);
        }
        Ok(())
    }
}
