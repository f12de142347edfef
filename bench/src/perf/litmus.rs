//! Whether messages, puts and signals keep their order between GPUs: many channels at once, every one a block on either side;
//! every repetition is filled anew, checked word by word, and its buffers poisoned (`cuda/litmus.cu`). No
//! figures; the first wrong word is an error, and a run that cannot find one is, too.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use comfy_table::{Table, presets::UTF8_FULL_CONDENSED};
use gdsync::{Arg, Buffer, Dims};
use libmp::{Recv, Region, Send, Window};

use super::{Rank, soon};

/// What is checked.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Bytes of a message and of a put, multiples of 8.
    pub sizes: Vec<u64>,
    /// Repetitions of each order, all channels together, each way.
    pub rounds: u64,
    /// Channels at once, at most.
    pub channels: u32,
}

/// One order at one size.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What was promised.
    pub order: &'static str,
    /// Bytes.
    pub size: u64,
    /// Channels at once.
    pub channels: u32,
    /// Repetitions that were checked, both ways together.
    pub repetitions: u64,
    /// Seconds of rank 0.
    pub seconds: f64,
}

/// Names of `mp::litmus::Order`, by number.
const ORDERS: [&str; 3] = [
    "two puts, then signal; source reused",
    "put with signal; source reused",
    "signal, then wait, then read; reads before the answer",
];
const MESSAGES: &str = "messages: send completion, buffer reuse, order of a pair";
/// The wrong order, and how many repetitions it gets.
const CONTROL: u32 = 3;
const CONTROLS: u64 = 100_000;
/// Threads of a block, at most.
const THREADS: u32 = 256;

/// Checks every order at every size as one of two ranks. The control comes first: an order that is wrong on purpose must be
/// found wrong.
///
/// # Errors
/// A word that is not what was sent; a wait that failed; a control that finds nothing; no GPU.
pub fn check(rank: &Rank, plan: &Plan) -> Result<Vec<Outcome>> {
    ensure!(rank.device.as_cuda().is_some(), "the litmus tests run on GPUs, and there is none");
    let mut outcomes = Vec::new();
    for &size in &plan.sizes {
        ensure!(size > 0 && size.is_multiple_of(8), "{size} bytes: a multiple of 8 is needed");
        let puts = Puts::new(rank, plan, size)?;
        let control = puts.play(rank, CONTROL, CONTROLS.min(plan.rounds))?;
        let found = rank.world.sum(control.wrong)?;
        ensure!(
            found > 0,
            "the control of {size} bytes, whose signals come before their puts, found nothing wrong: this test proves nothing here"
        );
        let messages = Messages::new(rank, plan, size)?;
        let tally = messages.play(rank, plan.rounds)?;
        outcomes.push(tally.outcome(rank, MESSAGES, size, messages.game.channels)?);
        drop(messages);
        for (number, order) in ORDERS.into_iter().enumerate() {
            let puts = Puts::new(rank, plan, size)?;
            let tally = puts.play(rank, number as u32, plan.rounds)?;
            outcomes.push(tally.outcome(rank, order, size, puts.game.channels)?);
        }
    }
    Ok(outcomes)
}

/// Prints a table, and what its repetitions were.
pub fn print(outcomes: &[Outcome], pair: &str) {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(["order", "bytes", "channels", "repetitions", "wrong words", "s"]);
    for Outcome { order, size, channels, repetitions, seconds } in outcomes {
        table.add_row([
            (*order).to_owned(),
            size.to_string(),
            channels.to_string(),
            repetitions.to_string(),
            "0".into(),
            format!("{seconds:.2}"),
        ]);
    }
    mp_program::outln!("{table}");
    mp_program::outln!(
        "Between {pair}, both ways at once; each channel a block a side; each repetition filled anew, checked word by word, its buffers poisoned before they are used again. Before each size {CONTROLS} repetitions (at most) with the signal before its put, which were found wrong."
    );
}

/// What a launch found on this rank.
struct Tally {
    rounds: u64,
    wrong: u64,
    seconds: f64,
}

impl Tally {
    fn outcome(
        self,
        rank: &Rank,
        order: &'static str,
        size: u64,
        channels: u32,
    ) -> Result<Outcome> {
        let wrong = rank.world.sum(self.wrong)?;
        ensure!(wrong == 0, "{order}, {size} B: {wrong} words were not what was sent");
        let repetitions = rank.world.sum(self.rounds)?;
        Ok(Outcome { order, size, channels, repetitions, seconds: self.seconds })
    }
}

/// The shape of a launch and where its tally goes.
struct Game {
    kernel: &'static str,
    channels: u32,
    threads: u32,
    results: Buffer<u64>,
}

impl Game {
    fn new(rank: &Rank, plan: &Plan, size: u64, kernel: &'static str) -> Result<Game> {
        let threads = (size.div_ceil(8).clamp(32, u64::from(THREADS)) as u32).next_multiple_of(32);
        let cuda = rank.device.as_cuda().context("no GPU")?;
        let fit = cuda.co_resident_blocks(&rank.kernel(kernel)?, threads, 0)?;
        // Both ranks may be on this GPU, and all blocks of both have to run at once.
        let channels = rank.world.min(u64::from(plan.channels.min(fit / 2)))? as u32;
        ensure!(
            channels > 0,
            "{kernel}: not one block of {threads} threads a side fits on the GPU"
        );
        Ok(Game { kernel, channels, threads, results: rank.device.alloc_pinned(2)? })
    }

    /// Addresses of the rounds and of the words found wrong.
    fn tally(&self) -> (u64, u64) {
        let address = self.results.device_address().unwrap_or_default();
        (address, address + 8)
    }

    /// Rounds of each channel.
    fn share(&self, rounds: u64) -> u64 {
        rounds.div_ceil(u64::from(self.channels))
    }

    /// Launches on both ranks and waits.
    ///
    /// # Safety
    /// As [`gdsync::Stream::launch`].
    unsafe fn run(&self, rank: &Rank, rounds: u64, args: &[Arg<'_>]) -> Result<Tally> {
        self.results.write(&[0; 2])?;
        let kernel = rank.kernel(self.kernel)?;
        rank.world.barrier()?;
        let since = Instant::now();
        let dims = Dims::linear(self.channels, self.threads);
        // SAFETY: the caller's promise.
        unsafe { rank.stream.launch(&kernel, dims, args)? };
        rank.world.synchronize(&rank.stream, soon())?;
        let seconds = since.elapsed().as_secs_f64();
        let results = self.results.to_vec()?;
        let (played, wrong) = (results[0], results[1]);
        let expected = rounds * u64::from(self.channels);
        ensure!(played == expected, "{}: {played} rounds of {expected} were played", self.kernel);
        rank.world.barrier()?;
        Ok(Tally { rounds: played, wrong, seconds })
    }
}

/// A pair of messages for each channel.
struct Messages {
    game: Game,
    sends: Vec<Send>,
    recvs: Vec<Recv>,
}

impl Messages {
    fn new(rank: &Rank, plan: &Plan, size: u64) -> Result<Messages> {
        let game = Game::new(rank, plan, size, "mp_litmus_messages")?;
        let peer = rank.peer()?;
        let (len, channels) = (size as usize, game.channels as usize);
        let all = || rank.world.alloc::<u8>(&rank.device, len * channels);
        let (from, to): (Region<u8>, Region<u8>) = (all()?, all()?);
        let (mut sends, mut recvs) = (Vec::new(), Vec::new());
        for channel in 0..channels {
            let part = channel * len..(channel + 1) * len;
            sends.push(peer.send(&from.slice(part.clone())?, channel as u64).prepare()?);
            recvs.push(peer.recv(&to.slice(part)?, channel as u64).prepare()?);
        }
        Ok(Messages { game, sends, recvs })
    }

    fn play(&self, rank: &Rank, rounds: u64) -> Result<Tally> {
        let (mut sends, mut recvs) = (Vec::new(), Vec::new());
        for (send, recv) in self.sends.iter().zip(&self.recvs) {
            sends.push(send.handle()?.message);
            recvs.push(recv.handle()?.message);
        }
        let table = |ends: &[mp_kernels::Message]| -> Result<(Buffer<mp_kernels::Message>, u64)> {
            let table = rank.device.alloc(ends.len())?;
            table.write(ends)?;
            let address = table.device_address().context("no address")?;
            Ok((table, address))
        };
        let ((_sends, sends), (_recvs, recvs)) = (table(&sends)?, table(&recvs)?);
        let (base, count) = (0u64, self.game.share(rounds));
        let side = u32::from(rank.leads());
        let (played, wrong) = self.game.tally();
        let args = [
            Arg::new(&sends),
            Arg::new(&recvs),
            Arg::new(&base),
            Arg::new(&count),
            Arg::new(&side),
            Arg::new(&played),
            Arg::new(&wrong),
        ];
        // SAFETY: the kernel's signature; pairs, tables and results outlive the launch, which `run` waits for.
        unsafe { self.game.run(rank, count, &args) }
    }
}

/// A window with a place and two signals for each channel.
struct Puts {
    game: Game,
    size: u64,
    landing: Region<u8>,
    source: Region<u8>,
    window: Window<u8>,
}

impl Puts {
    fn new(rank: &Rank, plan: &Plan, size: u64) -> Result<Puts> {
        let game = Game::new(rank, plan, size, "mp_litmus_puts")?;
        let bytes = 2 * size as usize * game.channels as usize;
        let landing: Region<u8> = rank.world.alloc(&rank.device, bytes)?;
        let source: Region<u8> = rank.world.alloc(&rank.device, bytes)?;
        let window = rank.world.window(&landing, 2 * game.channels as usize)?;
        Ok(Puts { game, size, landing, source, window })
    }

    fn play(&self, rank: &Rank, order: u32, rounds: u64) -> Result<Tally> {
        let window = self.window.handle()?;
        let address = |region: &Region<u8>| region.buffer().device_address().context("no address");
        let (landing, source) = (address(&self.landing)?, address(&self.source)?);
        let (base, count) = (0u64, self.game.share(rounds));
        let (played, wrong) = self.game.tally();
        let args = [
            Arg::new(&window),
            Arg::new(&landing),
            Arg::new(&source),
            Arg::new(&self.size),
            Arg::new(&base),
            Arg::new(&count),
            Arg::new(&order),
            Arg::new(&played),
            Arg::new(&wrong),
        ];
        // SAFETY: the kernel's signature; regions, window and results outlive the launch, which `run` waits for.
        unsafe { self.game.run(rank, count, &args) }
    }
}
