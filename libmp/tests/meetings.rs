//! Blocks of a launch that meet, by the signals of a stream (`mp/meeting.cuh`) and in a cluster (`mp/cluster.cuh`): on the host as OS
//! threads, and on a GPU.

#[path = "common/devices.rs"]
#[macro_use]
mod devices;
#[path = "common/kernels.rs"]
mod kernels;

use std::time::{Duration, Instant};

use kernels::{Kernels, Value, address};
use libmp::gdsync::{BlockSignals, Buffer, Error, Watchdog};
use libmp::{Deadline, Device, Stream};

const NOBODY: u32 = u32::MAX;
const WORDS: usize = 40;

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Launches of some blocks of one stream.
struct Blocks {
    kernels: Kernels,
    stream: Stream,
    signals: BlockSignals,
    data: Buffer<u64>,
    results: Buffer<u64>,
    threads: u32,
}

impl Blocks {
    fn new(stream: Stream, timeout: Duration) -> Blocks {
        let device = stream.device().clone();
        let blocks = if device.as_cuda().is_some() { 64 } else { 4 };
        Blocks {
            kernels: Kernels::of(&device),
            signals: stream.block_signals(blocks, timeout).unwrap(),
            data: device.alloc(2 * blocks * WORDS).unwrap(),
            results: device.alloc_pinned(2).unwrap(),
            threads: if device.as_cuda().is_some() { 96 } else { 5 },
            stream,
        }
    }

    /// `turns` turns from number `first` on: of all blocks with all, or of neighbours; `absent` stays away.
    fn play(&self, all: bool, absent: u32, first: u64, turns: u64) {
        let mut args = vec![Value::Signals(self.signals.handle())];
        args.extend([u32::from(all), absent].map(Value::Half));
        let words = [address(&self.data), WORDS as u64, first, turns, address(&self.results)];
        args.extend(words.map(Value::Word));
        let dims = (self.signals.blocks() as u32, self.threads);
        self.kernels.launch_together(&self.stream, "mp_meetings", dims, args);
    }

    fn found(&self) -> Vec<u64> {
        self.results.to_vec().unwrap()
    }
}

fn blocks_see_what_those_they_meet_have_written(device: &Device) {
    for all in [false, true] {
        let blocks = Blocks::new(device.stream().unwrap(), Duration::from_secs(60));
        let turns = if device.as_cuda().is_some() { 20_000 } else { 60 };
        for launch in 0..3 {
            blocks.play(all, NOBODY, launch * turns, turns);
        }
        blocks.stream.synchronize(soon()).unwrap();
        assert_eq!(blocks.found(), [0, 3 * turns * blocks.signals.blocks() as u64]);
    }
}

fn a_block_that_stays_away_is_reported_by_the_stream(device: &Device) {
    let blocks = Blocks::new(device.stream().unwrap(), Duration::from_millis(100));
    let since = Instant::now();
    blocks.play(true, 1, 0, 50);
    let told = |error: &Error| match error {
        Error::WaitFailed { status: "timed out", expected: 1, seen: 0, waited, .. } => {
            *waited >= Duration::from_millis(100)
        }
        _ => false,
    };
    let error = blocks.stream.synchronize(soon()).unwrap_err();
    assert!(told(&error), "{error}");
    // The signals serve no more launches: nobody waits a second time.
    for _ in 0..20 {
        blocks.play(true, 1, 0, 50);
    }
    let error = blocks.stream.synchronize(soon()).unwrap_err();
    assert!(told(&error), "{error}");
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    assert_eq!(blocks.found(), [0, 0]);
}

fn more_blocks_than_a_block_has_threads_are_refused(device: &Device) {
    let blocks = Blocks::new(device.stream().unwrap(), Duration::from_secs(60));
    let blocks = Blocks { threads: 2, ..blocks };
    blocks.play(true, NOBODY, 0, 5);
    let error = blocks.stream.synchronize(soon()).unwrap_err();
    let met = blocks.signals.blocks() as u64;
    let Error::WaitFailed { status, expected, seen, .. } = error else { panic!("{error}") };
    assert_eq!((status, expected, seen), ("was refused", met, 2));
    assert_eq!(blocks.found(), [0, 0]);
}

fn an_abort_ends_meetings(device: &Device) {
    let watchdog = Watchdog::new(device).unwrap();
    let stream = device.watched_stream(&watchdog).unwrap();
    let blocks = Blocks::new(stream, Duration::from_secs(3600));
    blocks.play(true, 0, 0, 50);
    watchdog.abort("the test says so");
    let error = blocks.stream.synchronize(soon()).unwrap_err();
    assert!(matches!(error, Error::Aborted { .. }), "{error}");
    assert!(blocks.stream.is_idle().unwrap());
    assert_eq!(blocks.found(), [0, 0]);
}

fn blocks_of_a_cluster_get_what_is_stored_to_them(device: &Device) {
    let (stream, kernels) = (device.stream().unwrap(), Kernels::of(device));
    let results = device.alloc_pinned::<u64>(2).unwrap();
    let (turns, threads) = if device.as_cuda().is_some() { (100_000, 32) } else { (60, 3) };
    let args = vec![Value::Word(turns), Value::Word(address(&results))];
    kernels.launch(&stream, "mp_arrivals", (4, threads), args);
    stream.synchronize(soon()).unwrap();
    assert_eq!(results.to_vec().unwrap(), [0, 4 * turns]);
}

tests_of_devices! {
    crate::devices::once;
    "needs a GPU and TEST_KERNELS":
    blocks_see_what_those_they_meet_have_written;
    a_block_that_stays_away_is_reported_by_the_stream;
    more_blocks_than_a_block_has_threads_are_refused;
    an_abort_ends_meetings;
    "needs a GPU with clusters and TEST_KERNELS":
    blocks_of_a_cluster_get_what_is_stored_to_them;
}

mod host {
    on_the_host!();
}

mod gpu {
    on_a_gpu!();
}
