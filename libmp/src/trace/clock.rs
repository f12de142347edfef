//! Clocks of a timeline: the host's, what another rank's differs by, and a device's. Nothing here waits or sends.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Nanoseconds of the clock that timelines are on: `CLOCK_MONOTONIC` of this host.
pub fn now() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds of CPU time that this process has used, all its threads together.
pub(super) fn process_cpu() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock is ever negative, and 64 bits last for 584 years.
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// What is to be added to a rank's clock to get rank 0's.
///
/// See [`Summary`](super::Summary) for an example.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    /// Nanoseconds to add.
    pub ns: i64,
    /// The truth is at most so many nanoseconds away.
    pub within_ns: u64,
}

/// One question for rank 0's time: when it was asked and when the answer came by this rank's clock, and the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub asked: u64,
    pub root: u64,
    pub received: u64,
}

impl Offset {
    /// What the answers say together: rank 0 read its clock after the question and before the answer, so each answer
    /// bounds the offset from both sides, and the tightest bounds hold (F. Cristian, *Probabilistic clock synchronization*,
    /// Distributed Computing 3, 1989). Two ranks that share a host share its clock, unless the bounds exclude that.
    pub(crate) fn of(answers: &[Answer], same_host: bool) -> Offset {
        let difference = |root: u64, here: u64| root.wrapping_sub(here) as i64;
        let low = answers.iter().map(|answer| difference(answer.root, answer.received)).max();
        let high = answers.iter().map(|answer| difference(answer.root, answer.asked)).min();
        let (Some(low), Some(high)) = (low, high) else { return Offset::default() };
        if same_host && low <= 0 && high >= 0 {
            return Offset::default();
        }
        let width = high.abs_diff(low);
        Offset { ns: low.wrapping_add((width / 2) as i64), within_ns: width.div_ceil(2) }
    }
}

/// How a device's clock goes against this host's. A GPU's `%globaltimer` counts nanoseconds; other counters have a rate.
///
/// See [`trace`](super) for an example.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// A reading of the device's clock …
    device: u64,
    /// … and the host's time at that moment.
    host_ns: u64,
    ns_per_tick: f64,
    within_ns: u64,
}

impl Calibration {
    /// Of a clock that showed `device` when the host's showed `host_ns` ([`now`]), and counts nanoseconds.
    pub fn at(device: u64, host_ns: u64) -> Calibration {
        Calibration { device, host_ns, ns_per_tick: 1.0, within_ns: 0 }
    }

    /// From several readings, each between two looks at the host's clock: `(before, device, after)`. The one with the least
    /// time between the looks is taken. `None` without readings.
    pub fn measured(readings: &[(u64, u64, u64)]) -> Option<Calibration> {
        let best =
            readings.iter().min_by_key(|(before, _, after)| after.saturating_sub(*before))?;
        let (before, device, after) = *best;
        let half = after.saturating_sub(before) / 2;
        Some(Calibration { within_ns: half, ..Calibration::at(device, before + half) })
    }

    /// The same of a clock that counts every `ns` nanoseconds.
    #[must_use = "the calibration itself keeps its rate"]
    pub fn with_ns_per_tick(self, ns: f64) -> Calibration {
        Calibration { ns_per_tick: ns, ..self }
    }

    /// How far the conversion may be off, in nanoseconds, at the moment it was measured.
    pub fn within_ns(&self) -> u64 {
        self.within_ns
    }

    /// The host's time of a reading.
    pub fn to_host(&self, device: u64) -> u64 {
        let ticks = device.wrapping_sub(self.device) as i64;
        let ns = if self.ns_per_tick == 1.0 {
            ticks
        } else {
            // Saturates where it cannot be right anyway.
            (ticks as f64 * self.ns_per_tick) as i64
        };
        self.host_ns.saturating_add_signed(ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranks_of_one_host_share_its_clock_and_others_do_not() {
        let answers = [Answer { asked: 1000, root: 1400, received: 1900 }];
        assert_eq!(Offset::of(&answers, true), Offset::default());
        assert_eq!(Offset::of(&answers, false), Offset { ns: -50, within_ns: 450 });
        // A host whose containers have clocks of their own.
        let apart = [Answer { asked: 1000, root: 9000, received: 2000 }];
        assert_eq!(Offset::of(&apart, true), Offset { ns: 7500, within_ns: 500 });
        assert_eq!(Offset::of(&[], false), Offset::default());
    }

    proptest! {
        #[test]
        fn the_true_offset_is_within_what_is_said(
            truth in -1_000_000_000_000i64..1_000_000_000_000,
            delays in prop::collection::vec((1u64..50_000, 1u64..50_000), 1..20),
        ) {
            let mut here = 2_000_000_000_000u64;
            let answers: Vec<Answer> = delays.iter().map(|(there, back)| {
                let asked = here;
                here += there;
                let root = here.saturating_add_signed(truth);
                here += back;
                Answer { asked, root, received: here }
            }).collect();
            let offset = Offset::of(&answers, false);
            prop_assert!(offset.ns.abs_diff(truth) <= offset.within_ns, "{offset:?}");
            let shortest = delays.iter().map(|(there, back)| there + back).min().unwrap();
            prop_assert!(offset.within_ns <= shortest.div_ceil(2));
        }
    }

    #[test]
    fn a_device_clock_takes_the_tightest_reading_and_goes_both_ways() {
        let clock =
            Calibration::measured(&[(1000, 50, 9000), (20_000, 7000, 20_100), (30_000, 9, 31_000)])
                .unwrap();
        assert_eq!(clock.within_ns(), 50);
        assert_eq!(clock.to_host(7000), 20_050);
        assert_eq!(clock.to_host(6000), 19_050);
        assert_eq!(clock.with_ns_per_tick(0.5).to_host(7100), 20_100);
        assert_eq!(Calibration::measured(&[]), None);
    }

    #[test]
    fn the_clock_goes_on() {
        let before = now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(now() >= before + 2_000_000);
    }
}
