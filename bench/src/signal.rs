//! What a signal costs between two kernels: a ping-pong through the device headers, unbounded and bounded, beside the
//! same game in bare PTX, the three interleaved in one process.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use gdsync::{Arg, Buffer, Deadline, Device, Dims, PeerLink, PeerMemory};
use mp_kernels::WaitBounds;
use serde::Serialize;

use crate::kernels::{Kernels, PingPong, PingPongTime};
use crate::spread::Spread;

/// The three players; each is a kernel `mp_…_pingpong` or `mp_pingpong_…`.
const PLAYERS: [(&str, &str); 3] = [
    ("bare PTX", "mp_bare_pingpong"),
    ("unbounded", "mp_pingpong_unbounded"),
    ("bounded", "mp_pingpong_bounded"),
];

/// Rounds before the clock starts.
const UNTIMED: u64 = 200;

/// One pair of GPUs, all players.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// "cuda:0 - cuda:1".
    pub pair: String,
    /// How the two reach each other.
    pub link: String,
    /// Rounds timed in each repeat.
    pub rounds: u64,
    /// The players, the bare machine first.
    pub players: Vec<Player>,
}

/// One player.
#[derive(Debug, Clone, Serialize)]
pub struct Player {
    /// What it is.
    pub name: &'static str,
    /// Microseconds one way (half a round).
    pub one_way_us: Spread,
    /// Its median over the bare machine's.
    pub over_bare: f64,
}

/// Plays on the GPUs `first` and `second` (which may be one), `repeats` times each player in turn.
///
/// # Errors
/// No GPU, no peer access, a wait that failed.
pub fn measure(first: u32, second: u32, rounds: u64, repeats: usize) -> Result<Figures> {
    let devices = [Device::cuda(first)?, Device::cuda(second)?];
    let words = devices.clone().map(|device| device.alloc::<u64>(64));
    let [mine, theirs] = words;
    let words = [mine?, theirs?];
    let kernels = [Kernels::load(&devices[0])?, Kernels::load(&devices[1])?];
    let table = Table { devices: &devices, kernels: &kernels, words: &words };
    let mut times = [vec![], vec![], vec![]];
    let mut base = 0;
    for repeat in 0..=repeats {
        for ((_, kernel), times) in PLAYERS.iter().zip(&mut times) {
            let ns = table
                .play(kernel, base, rounds)
                .with_context(|| format!("{kernel}, repeat {repeat}"))?;
            base += UNTIMED + rounds;
            // The first round of all warms up.
            if repeat > 0 {
                times.push(ns as f64 * 1e-3 / rounds as f64 / 2.0);
            }
        }
    }
    let bare = Spread::of(&times[0]).context("no repeats")?;
    let player = |(name, times): (&'static str, &Vec<f64>)| -> Result<Player> {
        let one_way_us = Spread::of(times).context("no repeats")?;
        Ok(Player { name, one_way_us, over_bare: one_way_us.median / bare.median })
    };
    let players =
        PLAYERS.iter().map(|player| player.0).zip(&times).map(player).collect::<Result<_>>()?;
    let link = if first == second {
        "two blocks of one GPU".into()
    } else {
        let link = PeerLink::between(first, second)?;
        format!(
            "peer access, rank {}, atomics {}",
            link.rank,
            if link.atomics { "native" } else { "no" }
        )
    };
    Ok(Figures { pair: format!("cuda:{first} - cuda:{second}"), link, rounds, players })
}

struct Table<'a> {
    devices: &'a [Device; 2],
    kernels: &'a [Kernels; 2],
    /// What each side polls.
    words: &'a [Buffer<u64>; 2],
}

impl Table<'_> {
    /// Nanoseconds of the timed rounds, by the serving side's clock.
    fn play(&self, kernel: &str, base: u64, rounds: u64) -> Result<u64> {
        let mut sides = Vec::new();
        for side in 0..2 {
            let device = &self.devices[side];
            let peer = PeerMemory::map(&self.words[1 - side].export()?, device)?.buffer;
            let results = device.alloc_pinned::<u64>(8)?;
            let game = PingPong {
                mine: self.words[side].device_address().context("no address")?,
                peer: peer.device_address().context("no address")?,
                base,
                untimed_rounds: UNTIMED,
                timed_rounds: rounds,
                serves: u32::from(side == 0),
                reserved: 0,
            };
            let bounds = WaitBounds { abort: 0, timeout_ns: 5_000_000_000 };
            let report = results.device_address().context("no address")?;
            let time = report + 32;
            let stream = device.stream()?;
            let kernel = self.kernels[side].get(kernel)?;
            let args = [Arg::new(&game), Arg::new(&bounds), Arg::new(&report), Arg::new(&time)];
            // SAFETY: the kernel's signature; all memory outlives the synchronise below.
            unsafe { stream.launch(&kernel, Dims::one(), &args)? };
            sides.push((stream, results, peer));
        }
        for (stream, ..) in &sides {
            stream.synchronize(Deadline::after(Duration::from_secs(20)))?;
        }
        let results = sides[0].1.to_vec()?;
        if results[0] != 0 {
            bail!(
                "a wait failed: status {}, expected {}, saw {}",
                results[0] as u32,
                results[1],
                results[2]
            );
        }
        let time = PingPongTime { ns: results[4], cycles: results[5] };
        if time.ns == 0 { bail!("the kernel wrote no time") } else { Ok(time.ns) }
    }
}
