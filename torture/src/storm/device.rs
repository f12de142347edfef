//! The storm in kernels: channels between all ranks with sizes, tags and groups of threads drawn at random, whose messages
//! kernels of all ranks send, receive and compare by themselves; the host only counts what they found.

use std::time::Instant;

use libmp::{Recv, Region, Send, Stream, World};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::Moment;
use super::launch::{End, Machine, PLAYERS_ON_CPU, THREADS_ON_CPU, Tally, WARPS};
use super::plan::mix;
use super::play::{Play, Stop, deadline};
use crate::mark::Mark;

/// Launches of a generation; the epochs go on from one to the next.
const LAUNCHES: u64 = 5;
/// Share of the resident blocks that is used: other ranks of other jobs are not reckoned with, the driver's own kernels are.
const SHARE: f64 = 0.9;
/// Messages of a channel in a launch, if they are short.
const MESSAGES: u64 = 5_000;
const MESSAGES_ON_CPU: u64 = 1_000;
/// Where the storm is brief, or somebody fails in it: it has to get to several worlds in its time.
const MESSAGES_IN_BRIEF: u64 = 40;
/// Ends that a thread of a CPU plays in turn, unless the storm is brief and each has its own: a thread with one end spends its
/// time on giving the core to the thread of the other end.
const ENDS_OF_A_PLAYER: usize = 64;

/// A channel: one sender's end and one receiver's.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Channel {
    from: usize,
    to: usize,
    tag: u64,
    /// Length of a message in words of 32 bits.
    words: usize,
    /// Words by which the buffers are shifted from a good alignment: the sender's, the receiver's.
    shift: [usize; 2],
    /// Messages of a launch.
    count: u64,
}

/// What one generation does.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    channels: Vec<Channel>,
    /// Blocks of each rank that play one end each; the others' warps play one each.
    of_blocks: Vec<usize>,
}

impl Plan {
    /// With `blocks` blocks a rank on a GPU; none: on the CPU, where a storm may be brief.
    fn new(seed: u64, ranks: usize, blocks: Option<usize>, brief: bool) -> Plan {
        let mut random = SmallRng::seed_from_u64(mix(&[seed, 3]));
        let of_blocks: Vec<usize> =
            (0..ranks).map(|_| blocks.map_or(0, |n| random.random_range(0..=n / 2))).collect();
        let (on_cpu, messages) = match (blocks, brief) {
            (Some(_), _) => (0, MESSAGES),
            (None, false) => (PLAYERS_ON_CPU * ENDS_OF_A_PLAYER, MESSAGES_ON_CPU),
            (None, true) => (THREADS_ON_CPU, MESSAGES_IN_BRIEF),
        };
        let mut room: Vec<usize> = of_blocks
            .iter()
            .map(|of_blocks| blocks.map_or(on_cpu, |n| of_blocks + (n - of_blocks) * WARPS))
            .collect();
        let mut channels = Vec::new();
        // Until a pair is drawn that has no room left for both of its ends.
        loop {
            let (from, to) = (random.random_range(0..ranks), random.random_range(0..ranks));
            for end in [from, to] {
                match room[end].checked_sub(1) {
                    Some(left) => room[end] = left,
                    None => return Plan { channels, of_blocks }.sorted(),
                }
            }
            channels.push(Channel::draw(&mut random, [from, to], messages));
        }
    }

    /// Messages of all ranks and launches.
    fn messages(&self) -> u64 {
        LAUNCHES * self.channels.iter().map(|channel| channel.count).sum::<u64>()
    }

    /// Long messages first: they are played by blocks.
    fn sorted(mut self) -> Plan {
        self.channels.sort_by_key(|channel| std::cmp::Reverse(channel.words));
        self
    }
}

impl Channel {
    fn draw(random: &mut SmallRng, [from, to]: [usize; 2], messages: u64) -> Channel {
        // Packets up to 8 KiB, one piece beyond.
        let words = match random.random_range(0..1000) {
            0..600 => random.random_range(0..=16),
            600..900 => random.random_range(17..=256),
            900..990 => random.random_range(257..=2048),
            _ => random.random_range(2049..=16384),
        };
        Channel {
            from,
            to,
            tag: random.random_range(0..16),
            words,
            shift: [random.random_range(0..4), random.random_range(0..4)],
            count: (messages / (1 + words as u64 / 64)).max(2),
        }
    }
}

/// This rank's end of a channel.
enum Half {
    Send(Send),
    Recv(Recv),
}

impl Play<'_> {
    /// One generation in kernels: prepared, launched several times, dropped.
    pub(super) fn kernels(
        &mut self,
        world: &World,
        name: [u64; 2],
        mark: &Mark,
    ) -> Result<(), Stop> {
        let (me, ranks) = (world.rank(), world.size());
        if self.machine.is_none() {
            let machine = Machine::open(me).map_err(|e| Stop::Failed(format!("{e:#}")));
            self.machine = Some(heard(world, machine)?);
        }
        let Some(machine) = &self.machine else { return Ok(()) };
        let blocks = match machine {
            Machine::Gpu { blocks, .. } => {
                let sharing = ranks.div_ceil(machine.count());
                Some((SHARE * f64::from(*blocks)) as usize / sharing)
            }
            Machine::Cpu => None,
        };
        // All ranks have the same plan, whatever their devices.
        let blocks = match world.min(blocks.unwrap_or(0) as u64)? {
            0 => None,
            blocks => Some(blocks as usize),
        };
        let seed = mix(&[self.options.seed, name[0], name[1]]);
        let brief = self.is_brief() || self.options.fault.is_some();
        let plan = Plan::new(seed, ranks, blocks, brief);
        let prepared = heard(world, Prepared::new(machine, world, &plan, me, seed))?;
        if self.left.take_if(|left| *left <= plan.messages()).is_some() {
            // Of the others some already wait in their kernels.
            self.moment(world, mark, Moment::Middle)?;
        }
        let begin = Instant::now();
        let tally = heard(world, prepared.run(machine, world))?;
        self.kernel_seconds += begin.elapsed().as_secs_f64();
        self.check_tally(&tally, &plan, me, name)?;
        self.operations += tally.sent + tally.received;
        self.messages += tally.received;
        self.words += tally.words;
        self.count(world, mark)
    }

    /// Whether kernels found what the model says, in each message that it knows of.
    fn check_tally(
        &self,
        tally: &Tally,
        plan: &Plan,
        me: usize,
        [world, generation]: [u64; 2],
    ) -> Result<(), Stop> {
        let place = format!("seed {}, world {world}, generation {generation}", self.options.seed);
        let Tally { sent, received, mismatches, failures, .. } = *tally;
        if mismatches > 0 {
            let Tally { channel, round, index, found, expected, .. } = *tally;
            let which = plan.channels.get(channel as usize);
            return Err(Stop::Wrong(format!(
                "{place}: {mismatches} words of messages in kernels, first in message {round} of channel {channel} {which:?}: \
                 word {index} is {found:#x}, expected {expected:#x}"
            )));
        }
        if failures > 0 {
            return Err(Stop::Failed(format!("{place}: {failures} waits of kernels gave up")));
        }
        let sum = |mine: &dyn Fn(&Channel) -> bool| -> u64 {
            let channels = plan.channels.iter().filter(|channel| mine(channel));
            LAUNCHES * channels.map(|channel| channel.count).sum::<u64>()
        };
        let expected = (sum(&|channel| channel.from == me), sum(&|channel| channel.to == me));
        if (sent, received) != expected {
            return Err(Stop::Wrong(format!(
                "{place}: kernels sent and received {:?} messages, expected {expected:?}",
                (sent, received)
            )));
        }
        Ok(())
    }
}

/// The others are to hear why this rank fails; if they know already, this changes nothing.
fn heard<T>(world: &World, result: Result<T, Stop>) -> Result<T, Stop> {
    if let Err(Stop::Failed(why)) = &result {
        world.abort(why.clone());
    }
    result
}

/// This rank's part of a generation, ready to be launched.
struct Prepared {
    stream: Stream,
    ends: Region<End>,
    tally: Region<Tally>,
    /// Ends, and those that blocks play.
    count: [u64; 2],
    /// Until the launches of all ranks are over.
    _halves: Vec<Half>,
}

impl Prepared {
    fn new(
        machine: &Machine,
        world: &World,
        plan: &Plan,
        me: usize,
        seed: u64,
    ) -> Result<Prepared, Stop> {
        let device = machine.device();
        let stream = world.stream(device)?;
        let (places, total) = places(plan, me);
        let memory: Region<u32> = world.alloc(device, total)?;
        let (mut numbers, mut halves) = (Vec::new(), Vec::new());
        for (number, sends, at) in places {
            let Channel { from, to, tag, words, .. } = plan.channels[number];
            let region = memory.slice(at..at + words)?;
            numbers.push(number);
            halves.push(if sends {
                Half::Send(world.peer(to)?.send(&region, tag).prepare()?)
            } else {
                Half::Recv(world.peer(from)?.recv(&region, tag).prepare()?)
            });
        }
        let mut all = Vec::with_capacity(halves.len());
        for (number, half) in numbers.into_iter().zip(&halves) {
            let (message, sends) = match half {
                Half::Send(send) => (send.handle()?.message, 1),
                Half::Recv(recv) => (recv.handle()?.message, 0),
            };
            let (name, count) = (mix(&[seed, number as u64]), plan.channels[number].count);
            all.push(End { message, name, count, sends, number: number as u32 });
        }
        let ends: Region<End> = world.alloc(device, all.len())?;
        ends.write(&all)?;
        let tally: Region<Tally> = world.alloc(device, 1)?;
        tally.write(&[Tally::default()])?;
        // What allocates or copies does so before any kernel waits: it could have to wait for the kernel.
        world.barrier()?;
        let count = halves.len() as u64;
        let of_blocks = (plan.of_blocks[me] as u64).min(count);
        Ok(Prepared { stream, ends, tally, count: [count, of_blocks], _halves: halves })
    }

    /// Launches, and waits for what comes of it.
    fn run(self, machine: &Machine, world: &World) -> Result<Tally, Stop> {
        let [ends, tally] = [self.ends.buffer().bytes(), self.tally.buffer().bytes()];
        let [ends, tally] = [ends, tally].map(|memory| memory.device_address().unwrap_or_default());
        let addresses = (ends, tally);
        let [count, of_blocks] = self.count;
        let failed = |error: anyhow::Error| Stop::Failed(format!("{error:#}"));
        for launch in (0..LAUNCHES).filter(|_| count > 0) {
            // SAFETY: ends and tally are `self`'s, which waits for the stream below, as the handles are; the plan leaves
            // room for all ranks of the GPU.
            unsafe { machine.launch(&self.stream, addresses, (count, of_blocks), launch) }
                .map_err(failed)?;
        }
        world.synchronize(&self.stream, deadline())?;
        // What the peers' kernels still wait for must not go.
        world.barrier()?;
        let tally = self.tally.to_vec()?;
        // Nor what they copy from.
        world.barrier()?;
        Ok(tally.first().copied().unwrap_or_default())
    }
}

/// The rank's ends, as channel, whether it sends, and where its buffer begins in one region, and the length of that.
fn places(plan: &Plan, me: usize) -> (Vec<(usize, bool, usize)>, usize) {
    let mut places = Vec::new();
    let mut end = 0usize;
    for (number, channel) in plan.channels.iter().enumerate() {
        for (sends, rank) in [(true, channel.from), (false, channel.to)] {
            if rank == me {
                let at = end.next_multiple_of(4) + channel.shift[usize::from(!sends)];
                places.push((number, sends, at));
                end = at + channel.words;
            }
        }
    }
    (places, end.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rank_has_more_ends_than_it_has_groups_of_threads() {
        for seed in 0..20 {
            let plan = Plan::new(seed, 3, Some(40), false);
            for rank in 0..3 {
                let (places, total) = places(&plan, rank);
                let of_blocks = plan.of_blocks[rank];
                assert!(places.len() <= of_blocks + (40 - of_blocks) * WARPS);
                assert!(places.iter().all(|&(n, _, at)| at + plan.channels[n].words <= total));
            }
            assert!(plan.channels.len() > 40);
        }
    }

    #[test]
    fn a_cpu_has_an_end_for_each_thread_in_brief_and_otherwise_several() {
        for (brief, most) in [(true, THREADS_ON_CPU), (false, PLAYERS_ON_CPU * ENDS_OF_A_PLAYER)] {
            let plan = Plan::new(4, 2, None, brief);
            let ends = [0, 1].map(|rank| places(&plan, rank).0.len());
            // One message to itself may have had no room.
            assert!(ends.iter().all(|&ends| ends <= most), "{ends:?}");
            assert!(ends.iter().any(|&ends| ends + 1 >= most), "{ends:?}");
        }
    }

    #[test]
    fn short_messages_of_packets_and_long_ones_in_one_piece_are_drawn() {
        let plan = Plan::new(5, 2, Some(120), false);
        let lengths = |range: std::ops::RangeInclusive<usize>| {
            plan.channels.iter().filter(|channel| range.contains(&channel.words)).count()
        };
        assert!(lengths(0..=2048) > 100 && lengths(2049..=16384) > 0);
    }

    #[test]
    fn buffers_of_a_rank_do_not_overlap() {
        let plan = Plan::new(6, 2, Some(20), false);
        let (places, _) = places(&plan, 1);
        for pair in places.windows(2) {
            assert!(pair[0].2 + plan.channels[pair[0].0].words <= pair[1].2);
        }
    }
}
