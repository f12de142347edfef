//! What a NIC without work costs, and how soon it notices work that nobody wakes it for: a doorbell rung from a stream or
//! a kernel is a store to memory.

mod soft_common;

use std::time::{Duration, Instant};

use gdsync::Device;
use gdsync::nic::{Access, QueuePairOptions, Trigger};
use gdsync::wqe::{Operation, Payload};
use rustix::time::{ClockId, clock_gettime};
use soft_common::{Memory, Outcome, Pair, Way, signaled, soon};

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Two NICs of this process, connected; the time is that of both.
#[test]
#[ignore = "long; its own process (cargo test … --test soft_idle -- --ignored --test-threads 1)"]
fn an_idle_nic_costs_less_than_three_hundredths_of_a_core() -> Outcome {
    for way in [Way::Mapped, Way::Tcp] {
        let _pair = Pair::new(way, &QueuePairOptions::default())?;
        std::thread::sleep(Duration::from_millis(100));
        let (began, before) = (Instant::now(), processor_time());
        std::thread::sleep(Duration::from_secs(2));
        let used = (processor_time() - before).as_secs_f64() / began.elapsed().as_secs_f64() / 2.0;
        println!("{way:?}: an idle NIC uses {:.2} % of a core", 100.0 * used);
        assert!(used < 0.03, "{way:?}: {used}");
    }
    Ok(())
}

/// Microseconds from a stream's doorbell to the completion, when nothing happened for `idle` before: median and highest
/// but one in twenty.
fn noticed_after(idle: Duration, rounds: usize) -> Outcome<(Duration, Duration)> {
    let pair = Pair::new(Way::Mapped, &QueuePairOptions::default())?;
    let target = Memory::new(&pair.right_nic, &[0; 8], Access::ALL)?;
    let stream = Device::Host.stream()?;
    let remote = target.region.remote(0);
    let mut waits = Vec::new();
    for _ in 0..rounds {
        std::thread::sleep(idle);
        let write = Operation::Write { remote, payload: Payload::Inline(&[1; 8]), imm: None };
        let prepared = pair.left.prepare(&signaled(write))?;
        let position = prepared.position();
        stream.ring(&pair.left, prepared)?;
        stream.synchronize(soon())?;
        let rung = Instant::now();
        pair.left.wait(position, soon())?;
        waits.push(rung.elapsed());
    }
    waits.sort();
    let found = (waits[rounds / 2], waits[rounds - 1 - rounds / 20]);
    println!("idle for {idle:?}: noticed after {:.1?}, 95 of 100 within {:.1?}", found.0, found.1);
    Ok(found)
}

#[test]
#[ignore = "needs an idle machine"]
fn a_doorbell_that_a_stream_rings_is_noticed_within_100_us_also_after_a_long_pause() -> Outcome {
    let (soon_after, _) = noticed_after(Duration::from_millis(3), 200)?;
    let (after_long, _) = noticed_after(Duration::from_millis(60), 40)?;
    assert!(soon_after < Duration::from_micros(100), "{soon_after:?}");
    assert!(after_long < Duration::from_micros(100), "{after_long:?}");
    Ok(())
}
