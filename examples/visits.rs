//! People visit places, and both are spread over the ranks, as in a simulation of an epidemic: a rank does not know how many messages it will get from
//! which other, places differ in size as cities do, and each message is unpacked by a kernel. Five ways, in turn:
//! *blocking* receives into host memory, then a copy and the kernel, and waits for them; *pool* has pinned memory for several receives of its own,
//! whose copies and kernels are on streams; *pool anew* makes that memory in each round; *device* leaves it to the library: prepared receives from
//! any source into fragments in the device's memory, enqueued on a stream when they have come, and a kernel behind each; *stream* lets the library start the
//! kernels, too: each is enqueued before its message has come, behind it.
//!
//! `visits [host] [PEOPLE [PLACES [ROUNDS [RANKS]]]]`: 20000, 2000, 4, and, without a launcher, how many threads (3); `host` keeps it on the CPU.

use std::sync::Arc;
use std::time::Instant;

use libmp::gdsync::{Arg, Dims, Event, Kernel, Stream};
use libmp::tagged::{Options, Place, Request, Source, Status, Tagged};
use libmp::{Device, Region, World};
use mp_examples::{Arguments, Failure, kernel, run, soon, verdict};

/// Visits of a person in a round, and how long one is computed.
const EACH: u64 = 5;
const LONG: u64 = 64;
/// Visits in a message, and words of it.
const FRAGMENT: usize = 1024;
const WORDS: usize = 1 + 2 * FRAGMENT;
const TAG: u64 = 1;
/// Receives of a rank that are posted at once.
const POSTED: usize = 4;

fn main() -> Result<(), Failure> {
    let arguments = Arguments::of_program()?;
    let (people, places) = (arguments.number(0, 20_000), arguments.number(1, 2000));
    let (rounds, threads) = (arguments.number(2, 4), arguments.number(3, 3));
    run(threads, |world| rank(world, &arguments.device(world)?, people, places, rounds))
}

/// How messages get to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Blocking,
    Pool,
    PoolAnew,
    Device,
    Stream,
}

const WAYS: [(Way, &str); 5] = [
    (Way::Blocking, "blocking"),
    (Way::Pool, "pool"),
    (Way::PoolAnew, "pool anew"),
    (Way::Device, "device"),
    (Way::Stream, "stream"),
];

/// The place of a person's visit: few have many visitors, many have few.
fn place_of(round: usize, person: u64, visit: u64, places: usize) -> usize {
    let mut value = (round as u64) << 48 ^ person << 8 ^ visit;
    for _ in 0..3 {
        value = (value ^ value >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(1);
    }
    let share = (value >> 11) as f64 / (1u64 << 53) as f64;
    ((share * share * share * places as f64) as usize).min(places - 1)
}

/// `visit_of` of visits.cu.
fn visit_of(person: u64, place: u64) -> u64 {
    (0..LONG).fold(person << 32 | place, |value, round| {
        (value ^ value >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(round)
    })
}

/// What a rank's places have got after all rounds of one way, computed alone.
fn alone((rank, size): (usize, usize), people: usize, places: usize, rounds: usize) -> Vec<u64> {
    let mut sums = vec![0u64; places.div_ceil(size)];
    for (round, person) in (0..rounds).flat_map(|round| (0..people).map(move |it| (round, it))) {
        for visit in 0..EACH {
            let place = place_of(round, person as u64, visit, places);
            if place % size == rank {
                let here = place / size;
                sums[here] = sums[here].wrapping_add(visit_of(person as u64, here as u64));
            }
        }
    }
    sums
}

/// The device, and what its places have got.
struct Places<'a> {
    world: &'a World,
    device: &'a Device,
    sums: Region<u64>,
    unpack: Kernel,
}

impl Places<'_> {
    /// Enqueues the kernel for what is in a fragment then.
    fn unpack(&self, fragment: &Region<u32>, stream: &Stream) -> Result<(), Failure> {
        let address = |bytes: Option<u64>| bytes.ok_or("the device does not reach its memory");
        let from = address(fragment.buffer().device_address())?;
        let to = address(self.sums.buffer().device_address())?;
        let dims = Dims::linear(1, if self.device.as_cuda().is_some() { 512 } else { 1 });
        // SAFETY: the kernel's parameters; the memory lives until the stream has been waited for.
        unsafe {
            stream.launch(
                &self.unpack,
                dims,
                &[Arg::new(&from), Arg::new(&to), Arg::new(&LONG)],
            )?;
        }
        Ok(())
    }
}

/// A fragment on the device, and the stream on which it is unpacked, maybe with others.
#[derive(Clone, Copy)]
struct Slot<'a> {
    fragment: &'a Region<u32>,
    stream: &'a Arc<Stream>,
}

/// Pinned memory for what comes to a slot, and when it, or the fragment, may be used again.
struct Stage {
    memory: Region<u32>,
    read: Event,
}

/// One receive of several.
struct Posted<'a> {
    way: Way,
    slot: Slot<'a>,
    stage: &'a Stage,
    request: Request<'a>,
    /// What it received is still read.
    is_read: bool,
}

impl Posted<'_> {
    /// Starts it, and what comes behind it on the device.
    fn start(&mut self, places: &Places<'_>) -> Result<(), Failure> {
        self.is_read = false;
        self.request.start()?;
        match self.way {
            Way::Stream => places.unpack(self.slot.fragment, self.slot.stream),
            _ => Ok(()),
        }
    }

    /// Takes what has come; whether it was the end of a rank's messages.
    fn take(&mut self, places: &Places<'_>, Status { bytes, .. }: Status) -> Result<bool, Failure> {
        let (Slot { fragment, stream }, Stage { memory, read }) = (self.slot, self.stage);
        if bytes == 0 || self.way == Way::Stream {
            return Ok(bytes == 0);
        }
        if self.way != Way::Device {
            let words = 0..bytes / size_of::<u32>();
            let (to, from) = (fragment.slice(words.clone())?, memory.slice(words)?);
            stream.copy(to.buffer(), from.buffer())?;
            stream.record(read)?;
            self.is_read = true;
        }
        places.unpack(fragment, stream)?;
        Ok(false)
    }

    /// Whether its message has come, and was the end of a rank's; started again as soon as its memory is free.
    fn look(&mut self, places: &Places<'_>) -> Result<bool, Failure> {
        let mut ends = false;
        if !self.is_read {
            let Some(status) = self.request.test()? else { return Ok(false) };
            ends = self.take(places, status)?;
        }
        if !self.is_read || self.stage.read.is_reached()? {
            self.start(places)?;
        }
        Ok(ends)
    }
}

/// Where a rank's messages come in.
enum Inbox<'a> {
    /// Each when somebody looks for one.
    Blocking {
        slot: Slot<'a>,
        stage: &'a Stage,
    },
    Posted(Vec<Posted<'a>>),
}

impl Inbox<'_> {
    /// Takes what is there; how many ranks have sent their last message.
    fn look(&mut self, places: &Places<'_>, messages: &Tagged) -> Result<usize, Failure> {
        match self {
            Inbox::Blocking { slot: Slot { fragment, stream }, stage } => {
                let Some(status) = messages.iprobe(Source::Any, TAG)? else { return Ok(0) };
                messages.irecv(&stage.memory, status.source, TAG)?.wait(soon())?;
                if status.bytes == 0 {
                    return Ok(1);
                }
                stream.copy(fragment.buffer(), stage.memory.buffer())?;
                places.unpack(fragment, stream)?;
                places.world.synchronize(stream, soon())?;
                Ok(0)
            }
            Inbox::Posted(all) => {
                let mut ended = 0;
                for posted in all {
                    ended += usize::from(posted.look(places)?);
                }
                Ok(ended)
            }
        }
    }

    /// All have sent their last: takes back what is posted.
    fn close(&mut self, places: &Places<'_>) -> Result<(), Failure> {
        let Inbox::Posted(all) = self else { return Ok(()) };
        for posted in all.iter_mut() {
            if posted.request.is_active() && !posted.request.cancel() {
                // Its message came before another's end, and is still on its way.
                let status = posted.request.wait(soon())?;
                posted.take(places, status)?;
            }
        }
        all.iter().try_for_each(|it| Ok(places.world.synchronize(it.slot.stream, soon())?))
    }
}

/// Channels that a GPU has for the streams of this process.
fn channels() -> usize {
    let set = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS");
    set.ok().and_then(|it| it.parse().ok()).unwrap_or(8)
}

/// What one rank does.
pub fn rank(
    world: &World,
    device: &Device,
    people: usize,
    places: usize,
    rounds: usize,
) -> Result<(), Failure> {
    let (rank, size) = (world.rank(), world.size());
    let messages = world.tagged(&Options::default())?;
    let sums = world.alloc::<u64>(device, places.div_ceil(size))?;
    let here = Places { world, device, sums, unpack: kernel(device, "visits")? };
    let fragments = (0..POSTED).map(|_| world.alloc(device, WORDS));
    let fragments = fragments.collect::<libmp::Result<Vec<_>>>()?;
    // Streams, each of which may wait for a message. As many as a GPU has channels for streams would let nothing through.
    let streams = if device.as_cuda().is_some() { channels() / 2 / size } else { POSTED };
    let streams = (0..streams.clamp(1, POSTED)).map(|_| world.stream(device).map(Arc::new));
    let streams = streams.collect::<libmp::Result<Vec<_>>>()?;
    // Messages come to receives in the order in which those are posted, so that those on one stream do not wait for each other's.
    let slots = fragments.iter().zip(streams.iter().cycle());
    let slots = slots.map(|(fragment, stream)| Slot { fragment, stream }).collect::<Vec<_>>();
    let pool = || {
        let stage = |_: &Region<u32>| {
            let memory = Region::from_buffer(device.alloc_pinned(WORDS)?);
            Ok::<_, Failure>(Stage { memory, read: Event::new(device)? })
        };
        fragments.iter().map(stage).collect::<Result<Vec<_>, _>>()
    };
    let kept = pool()?;
    let outbox = (0..2 * size).map(|_| world.alloc::<u32>(&Device::Host, WORDS));
    let outbox = outbox.collect::<libmp::Result<Vec<_>>>()?;
    // The first round is not timed: what is made when it is first needed is made there.
    let expected = alone((rank, size), people, places, rounds + 1);
    let (mut right, mut times) = (true, Vec::new());
    for (way, name) in WAYS {
        here.sums.write(&vec![0; here.sums.len()])?;
        let mut spent = 0.0;
        for round in 0..=rounds {
            world.barrier()?;
            let since = Instant::now();
            let anew = if way == Way::PoolAnew { Some(pool()?) } else { None };
            let stages = anew.as_ref().unwrap_or(&kept);
            // ANCHOR: inbox
            let post = |(&slot, stage): (_, _)| {
                let (slot, stage): (Slot<'_>, &Stage) = (slot, stage);
                let place = match way {
                    // What the stream is given next, the kernel and the next receive, comes behind the message.
                    Way::Device => Place::from(slot.fragment).enqueued_on(slot.stream),
                    // Also what it is given before the message has come.
                    Way::Stream => Place::from(slot.fragment).on(slot.stream),
                    _ => Place::from(&stage.memory),
                };
                let request = messages.recv_init(place, Source::Any, TAG)?;
                Ok::<_, Failure>(Posted { way, slot, stage, request, is_read: false })
            };
            let mut inbox = match way {
                Way::Blocking => Inbox::Blocking { slot: slots[0], stage: &stages[0] },
                _ => {
                    let posted = slots.iter().zip(stages).map(post);
                    let mut posted = posted.collect::<Result<Vec<_>, _>>()?;
                    posted.iter_mut().try_for_each(|posted| posted.start(&here))?;
                    Inbox::Posted(posted)
                }
            };
            // ANCHOR_END: inbox
            let mut ended = 0;
            let mut sends: Vec<Option<Request<'_>>> = (0..2 * size).map(|_| None).collect();
            // Of each rank the visits that go to it next, and in which of its two regions.
            let mut next: Vec<(Vec<u32>, usize)> = vec![(vec![0], 0); size];
            let mut leave =
                |to: usize, (words, half): &mut (Vec<u32>, usize), inbox: &mut Inbox<'_>| {
                    words[0] = (words.len() / 2) as u32;
                    let (number, region) = (2 * to + *half, &outbox[2 * to + *half]);
                    while let Some(send) = &mut sends[number]
                        && send.test()?.is_none()
                    {
                        ended += inbox.look(&here, &messages)?;
                    }
                    let region = region.slice(0..words.len())?;
                    region.write(words)?;
                    sends[number] = Some(messages.isend(&region, to, TAG)?);
                    (*words, *half) = (vec![0], 1 - *half);
                    Ok::<_, Failure>(())
                };
            for person in (rank..people).step_by(size) {
                for visit in 0..EACH {
                    let place = place_of(round, person as u64, visit, places);
                    let to = place % size;
                    next[to].0.extend([person as u32, (place / size) as u32]);
                    if next[to].0.len() == WORDS {
                        leave(to, &mut next[to], &mut inbox)?;
                    }
                }
            }
            for (to, next) in next.iter_mut().enumerate() {
                if next.0.len() > 1 {
                    leave(to, next, &mut inbox)?;
                }
            }
            let mut last: Vec<Request<'_>> = Vec::new();
            let nothing = outbox[0].slice(0..0)?;
            for to in 0..size {
                last.push(messages.isend(&nothing, to, TAG)?);
            }
            while ended < size {
                ended += inbox.look(&here, &messages)?;
            }
            inbox.close(&here)?;
            for send in sends.iter_mut().flatten().chain(&mut last) {
                send.wait(soon())?;
            }
            drop(inbox);
            drop(anew);
            if round > 0 {
                spent += since.elapsed().as_secs_f64();
            }
        }
        world.barrier()?;
        right &= here.sums.to_vec()? == expected;
        times.push(format!("{name} {:.2}", spent * 1e3 / rounds as f64));
    }
    let times = times.join(", ");
    let line = format!(
        "visits: {people} people, {places} places, {size} ranks ({device}), ms a round: {times}"
    );
    verdict(world, right, &line)
}
