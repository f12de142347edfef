//! Who rings a queue pair whose peer's memory is mapped executes short requests itself, and over TCP sends them; who waits
//! there receives. The engine still executes the rest, and what streams and other threads ring: one at a time, in the order
//! of the queue, and no doorbell is lost.

mod soft_common;

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use gdsync::nic::{Access, CompletionMode, Error, Nic, QueuePairOptions, Trigger};
use gdsync::wqe::{Operation, Payload};
use gdsync::{Deadline, Device};
use soft_common::operations::write;
use soft_common::{Memory, Outcome, Pair, Way, signaled, soon};

fn pair(way: Way, send_completions: CompletionMode) -> Outcome<Pair> {
    let options = QueuePairOptions { send_completions, send_blocks: 64, ..Default::default() };
    Pair::new(way, &options)
}

#[test]
fn a_short_write_to_mapped_memory_is_complete_when_it_has_been_posted() -> Outcome {
    let pair = pair(Way::Mapped, CompletionMode::Ring)?;
    let from = Memory::new(&pair.left_nic, &[1; 8], Access::LOCAL_READ)?;
    let to = Memory::new(&pair.right_nic, &[0; 8], Access::ALL)?;
    let segment = [from.region.segment(0, 8)?];
    let request = write(to.region.remote(0), &segment);
    // The first ones go by frames, until the memory is mapped; and now and then the engine comes first.
    let all_at_once = soon().poll(|| {
        let complete = (0..1000).map(|_| {
            let position = pair.left.post(&request)?;
            let complete = pair.left.is_complete(position)?;
            pair.left.wait(position, soon())?;
            Ok::<bool, Error>(complete)
        });
        let complete: Result<Vec<bool>, Error> = complete.collect();
        match complete {
            Ok(complete) => {
                let most = complete.into_iter().filter(|complete| *complete).count() > 500;
                most.then_some(Ok(()))
            }
            Err(error) => Some(Err(error)),
        }
    });
    all_at_once.ok_or("the engine is waited for")??;
    assert_eq!(to.bytes()?, [1; 8]);
    Ok(())
}

/// Posts, also when the queue is full for a while.
fn posted(pair: &Pair, request: &gdsync::wqe::WorkRequest<'_>) -> Result<u64, Error> {
    let posted = Deadline::after(Duration::from_secs(60)).poll(|| match pair.left.post(request) {
        Err(Error::Full { .. }) => None,
        other => Some(other),
    });
    posted.unwrap_or(Err(Error::Stopped))
}

#[test]
fn short_requests_wait_for_long_ones_before_them() -> Outcome {
    short_after_long(Way::Mapped)
}

#[test]
fn short_requests_wait_for_long_ones_before_them_over_tcp() -> Outcome {
    short_after_long(Way::Tcp)
}

fn short_after_long(way: Way) -> Outcome {
    const LONG: usize = 100_000;
    let pair = pair(way, CompletionMode::Collapsed)?;
    let target = Memory::new(&pair.right_nic, &vec![0; LONG + 8], Access::ALL)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| -> Outcome {
        let watcher = scope.spawn(|| {
            let words = target.buffer.cast::<u64>()?;
            while !over.load(Ordering::Acquire) {
                // The last word is the round, and the others are not from before it.
                let round = words.slice(LONG / 8..LONG / 8 + 1)?.to_vec()?[0];
                fence(Ordering::Acquire);
                let data = words.slice(0..LONG / 8)?.to_vec()?;
                if let Some(old) = data.iter().find(|word| **word < round) {
                    return Err(gdsync::Error::OutOfRange {
                        what: "data of a later round",
                        offset: *old as usize,
                        len: 8,
                        size: round as usize,
                    });
                }
            }
            Ok(())
        });
        let source = Memory::new(&pair.left_nic, &vec![0; LONG], Access::LOCAL_READ)?;
        let words = source.buffer.cast::<u64>()?;
        for round in 1..=300u64 {
            words.write(&vec![round; LONG / 8])?;
            let segment = [source.region.segment(0, LONG as u32)?];
            posted(&pair, &write(target.region.remote(0), &segment))?;
            let bytes = round.to_ne_bytes();
            let remote = target.region.remote(LONG as u64);
            let signal = Operation::Write { remote, payload: Payload::Inline(&bytes), imm: None };
            let position = posted(&pair, &signaled(signal))?;
            pair.left.wait(position, soon())?;
        }
        over.store(true, Ordering::Release);
        watcher.join().map_err(|_| "the watcher panicked")??;
        Ok(())
    })
}

#[test]
fn threads_and_a_stream_ring_one_queue_and_every_request_is_executed_once() -> Outcome {
    threads_and_a_stream(Way::Mapped)
}

#[test]
fn threads_and_a_stream_ring_one_queue_over_tcp_and_every_request_is_executed_once() -> Outcome {
    threads_and_a_stream(Way::Tcp)
}

fn threads_and_a_stream(way: Way) -> Outcome {
    const THREADS: u64 = 4;
    const EACH: u64 = 2000;
    let pair = pair(way, CompletionMode::Collapsed)?;
    let word = Memory::new(&pair.right_nic, &[0; 8], Access::ALL)?;
    let results = Memory::new(&pair.left_nic, &[0; 8 * (THREADS as usize + 1)], Access::ALL)?;
    let remote = word.region.remote(0);
    let add = |thread: u64| -> Result<_, Error> {
        let into = results.region.segment(8 * thread, 8)?;
        Ok(signaled(Operation::FetchAdd { remote, add: 1, into }))
    };
    let stream = Device::Host.stream()?;
    let run = |thread: u64| -> Result<(), Error> {
        let mut last = 0;
        for number in 0..EACH {
            last = posted(&pair, &add(thread)?)?;
            if number % 3 == 0 {
                pair.left.wait(last, soon())?;
            }
        }
        pair.left.wait(last, soon())
    };
    let from_stream = || -> Result<(), Error> {
        for _ in 0..EACH {
            let prepared = soon().poll(|| match pair.left.prepare(&add(THREADS).ok()?) {
                Err(Error::Full { .. }) => None,
                other => Some(other),
            });
            let prepared = prepared.unwrap_or(Err(Error::Stopped))?;
            let position = prepared.position();
            stream.ring(&pair.left, prepared)?;
            pair.left.wait(position, soon())?;
        }
        Ok(())
    };
    std::thread::scope(|scope| -> Outcome {
        let mut threads: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || run(t))).collect();
        threads.push(scope.spawn(from_stream));
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })?;
    assert_eq!(word.buffer.cast::<u64>()?.to_vec()?[0], (THREADS + 1) * EACH);
    Ok(())
}

#[test]
fn what_may_go_along_goes_though_nobody_looks_any_more() -> Outcome {
    for way in [Way::Mapped, Way::Ring, Way::Tcp] {
        let pair = pair(way, CompletionMode::Collapsed)?;
        let to = Memory::new(&pair.right_nic, &[0; 16], Access::ALL)?;
        let words = to.buffer.cast::<u64>()?;
        let store = |at: u64, value: u64| -> Result<_, Error> {
            let (remote, bytes) = (to.region.remote(8 * at), value.to_ne_bytes());
            let payload = Payload::Inline(&bytes);
            pair.left.prepare(&signaled(Operation::Write { remote, payload, imm: None }))
        };
        for round in 1..=200_u64 {
            // A thread that waits has looked a moment ago, and is gone.
            (0..20).for_each(|_| pair.left_nic.progress());
            pair.left.ring_along(store(0, round)?, soon())?;
            if round % 2 == 0 {
                pair.left.ring(store(1, round)?, soon())?;
            }
            let last = words.word(usize::from(round % 2 == 0))?;
            let come = soon().poll(|| (last.load()? == round).then_some(()));
            come.ok_or_else(|| format!("{way:?}: round {round} has not come"))?;
            assert_eq!(words.word(0)?.load(), Some(round), "{way:?}: it was posted first");
        }
    }
    Ok(())
}
