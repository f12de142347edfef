//! Launching the measuring kernels of `cuda/perf.cu` and reading what they wrote.

use anyhow::{Result, bail, ensure};
use gdsync::{Arg, Buffer, Dims};
use mp_kernels::WaitReport;

use super::{Rank, quantile, soon};
use crate::kernels::PingPongTime;

/// What one launch measured, in microseconds of a round; without a time of each both are the mean.
pub struct Rounds {
    pub median: f64,
    pub p99: f64,
}

/// Where a kernel writes its times.
pub struct Watch {
    samples: Option<Buffer<u32>>,
    results: Buffer<u64>,
    pub rounds: u64,
}

const TIME: usize = 0;
const MISMATCHES: usize = 2;
const REPORT: usize = 4;
const WORDS: usize = REPORT + size_of::<WaitReport>() / 8;

impl Watch {
    pub fn new(rank: &Rank, rounds: u64) -> Result<Watch> {
        let samples = Some(rank.device.alloc(rounds as usize)?);
        Ok(Watch { samples, ..Watch::of_all(rank, rounds)? })
    }

    /// One that takes the time of all rounds together: to write down that of each costs some of it.
    pub fn of_all(rank: &Rank, rounds: u64) -> Result<Watch> {
        let results = rank.device.alloc_pinned(WORDS)?;
        Ok(Watch { samples: None, results, rounds })
    }

    /// 0: none.
    pub fn samples(&self) -> u64 {
        self.samples.as_ref().and_then(Buffer::device_address).unwrap_or_default()
    }

    fn word(&self, index: usize) -> u64 {
        self.results.device_address().unwrap_or_default() + 8 * index as u64
    }

    pub fn time(&self) -> u64 {
        self.word(TIME)
    }

    pub fn mismatches(&self) -> u64 {
        self.word(MISMATCHES)
    }

    pub fn report(&self) -> u64 {
        self.word(REPORT)
    }

    /// Launches a kernel on the rank's stream, waits for it, and gives the times of its rounds. The ranks start together.
    ///
    /// # Safety
    /// As [`gdsync::Stream::launch`].
    pub unsafe fn run(
        &self,
        rank: &Rank,
        name: &str,
        dims: Dims,
        args: &[Arg<'_>],
    ) -> Result<Rounds> {
        self.results.write(&[0; WORDS])?;
        rank.world.barrier()?;
        let kernel = rank.kernel(name)?;
        // SAFETY: the caller's promise.
        unsafe { rank.stream.launch(&kernel, dims, args)? };
        rank.world.synchronize(&rank.stream, soon())?;
        let results = self.results.to_vec()?;
        ensure!(
            results[REPORT] as u32 == 0,
            "a wait of {name} failed: expected {}, saw {}",
            results[REPORT + 1],
            results[REPORT + 2]
        );
        let wrong = results[MISMATCHES];
        ensure!(wrong == 0, "{name}: {wrong} words were not what was sent");
        let time = PingPongTime { ns: results[TIME], cycles: results[TIME + 1] };
        if time.ns == 0 || time.cycles == 0 {
            bail!("{name} wrote no time");
        }
        let Some(samples) = &self.samples else {
            let mean = time.ns as f64 * 1e-3 / self.rounds as f64;
            return Ok(Rounds { median: mean, p99: mean });
        };
        let us_a_cycle = time.ns as f64 * 1e-3 / time.cycles as f64;
        let mut rounds: Vec<f64> =
            samples.to_vec()?.iter().map(|&cycles| f64::from(cycles) * us_a_cycle).collect();
        let median = quantile(&mut rounds, 0.5);
        Ok(Rounds { median, p99: quantile(&mut rounds, 0.99) })
    }
}
