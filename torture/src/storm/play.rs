//! A rank's part in a storm: carries out plans and compares what comes with what the model says.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use libmp::{Deadline, Device, Operation, Recv, Region, Send, Stream, World, wait_all, wait_any};
use rustix::process::{Signal, getpid, kill_process};

use super::launch::Machine;
use super::plan::{Form, Plan, mix, word};
use super::{Fault, Moment, Options};
use crate::mark::Mark;

/// No operation of a storm takes so long, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(20);
/// Storms of fewer seconds are brief.
const BRIEF: f64 = 3.0;
/// Generations of a world.
const GENERATIONS: u64 = 6;
/// What a receive buffer holds beyond its message.
pub(super) const UNTOUCHED: u64 = u64::MAX;

/// Why a rank stops.
#[derive(Debug)]
pub enum Stop {
    /// libmp returned an error: its sentence.
    Failed(String),
    /// Something was not as the model says.
    Wrong(String),
}

impl From<libmp::Error> for Stop {
    fn from(error: libmp::Error) -> Stop {
        Stop::Failed(error.to_string())
    }
}

/// What all ranks did, in all worlds.
#[derive(Debug, Clone, Copy)]
pub struct Totals {
    pub operations: u64,
    pub messages: u64,
    pub words: u64,
}

/// A rank's counters and what is to become of it.
pub struct Play<'a> {
    pub(super) options: &'a Options,
    pub(super) operations: u64,
    /// Messages received and compared.
    pub(super) messages: u64,
    pub(super) words: u64,
    /// When the middle is at the latest.
    middle: Instant,
    /// Operations until the middle, on the victim.
    pub(super) left: Option<u64>,
    over: bool,
    pub(super) kernel_seconds: f64,
    /// Where kernels run, from the first on.
    pub(super) machine: Option<Machine>,
}

/// An end of a message.
pub(super) struct Half {
    pub number: usize,
    pub region: Region<u64>,
    pub end: End,
    pub on_stream: bool,
}

pub(super) enum End {
    Send(Send),
    Recv(Recv),
}

impl Half {
    pub fn operation(&self) -> &dyn Operation {
        match &self.end {
            End::Send(send) => send,
            End::Recv(recv) => recv,
        }
    }
}

pub(super) fn deadline() -> Deadline {
    Deadline::after(PATIENCE)
}

impl<'a> Play<'a> {
    pub fn new(options: &'a Options) -> Play<'a> {
        // In the first or second world: they have some hundred operations a rank.
        let left = Some(100 + mix(&[options.seed, 7]) % 1000);
        let middle = Instant::now() + Duration::from_secs_f64(options.seconds / 2.0);
        Play {
            middle,
            options,
            operations: 0,
            messages: 0,
            words: 0,
            left,
            over: false,
            kernel_seconds: 0.0,
            machine: None,
        }
    }

    /// Short storms look at their time more often, and through a NIC a message takes longer. The same on all ranks.
    pub(super) fn is_brief(&self) -> bool {
        self.options.seconds < BRIEF || super::path() != "auto"
    }

    /// What all ranks did.
    fn totals(&self, world: &World) -> Result<Totals, Stop> {
        Ok(Totals {
            operations: world.sum(self.operations)?,
            messages: world.sum(self.messages)?,
            words: world.sum(self.words)?,
        })
    }

    pub(super) fn count(&mut self, world: &World, mark: &Mark) -> Result<(), Stop> {
        self.operations += 1;
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(1);
            // On a slow path, or a busy machine, there are not so many.
            let late = self.options.fault.is_some() && Instant::now() >= self.middle;
            if *left == 0 || late {
                self.left = None;
                self.moment(world, mark, Moment::Middle)?;
            }
        }
        Ok(())
    }

    /// If this is the moment and this rank the victim: what it does to itself.
    pub(super) fn moment(&self, world: &World, mark: &Mark, moment: Moment) -> Result<(), Stop> {
        let Options { victim, fault, moment: chosen, .. } = self.options;
        let Some(fault) = fault.filter(|_| *victim == Some(world.rank()) && *chosen == moment)
        else {
            return Ok(());
        };
        mark.announce();
        match fault {
            Fault::Announce => {}
            // Neither returns, or not before somebody sends SIGCONT.
            Fault::Kill => drop(kill_process(getpid(), Signal::KILL)),
            Fault::Stop => drop(kill_process(getpid(), Signal::STOP)),
            Fault::Leave if self.options.threads.is_none() => std::process::exit(0),
            // A thread that leaves drops its world on the way out.
            Fault::Leave => return Err(Stop::Failed("it leaves, as it was told to".into())),
            Fault::Panic => panic!("a rank of the storm panics, as it was told to"),
        }
        Ok(())
    }

    /// One world up to its finish; the totals if it is the last.
    pub fn one(
        &mut self,
        world: &World,
        number: u64,
        until: Instant,
        mark: &Mark,
    ) -> Result<Option<Totals>, Stop> {
        if number == 0 {
            self.moment(world, mark, Moment::Start)?;
        }
        if self.world(world, number, until, mark)? {
            return Ok(None);
        }
        let totals = self.totals(world)?;
        self.moment(world, mark, Moment::Finish)?;
        Ok(Some(totals))
    }

    /// The operations of a world. False if it is the last.
    fn world(
        &mut self,
        world: &World,
        number: u64,
        until: Instant,
        mark: &Mark,
    ) -> Result<bool, Stop> {
        let stream = world.stream(&Device::Host)?;
        let Options { seed, form, .. } = *self.options;
        for generation in 0..GENERATIONS {
            let (name, ranks) = ([number, generation], world.size());
            match generation % 3 {
                0 => {
                    let plan = Plan::new(seed, number, generation, ranks, form);
                    self.generation(world, &stream, &plan, name, mark)?;
                }
                _ if form == Form::Kernel => self.kernels(world, name, mark)?,
                _ => {
                    let name = [seed, number, generation];
                    let plan = Plan::flood(name, ranks, form, self.is_brief());
                    self.flood(world, &stream, &plan, [number, generation], mark)?;
                }
            }
            // All ranks agree, whatever their clocks say.
            self.over = world.max(u64::from(Instant::now() >= until))? > 0;
            if self.over {
                break;
            }
        }
        world.synchronize(&stream, deadline())?;
        Ok(!self.over)
    }

    fn generation(
        &mut self,
        world: &World,
        stream: &Stream,
        plan: &Plan,
        name: [u64; 2],
        mark: &Mark,
    ) -> Result<(), Stop> {
        let me = world.rank();
        let halves = prepare(world, plan)?;
        let window = self.open_window(world, plan)?;
        // A stream waits for what its peer has prepared, so all prepare before any starts.
        world.barrier()?;
        for round in 0..plan.rounds {
            self.messages(stream, plan, &halves, me, [name[0], name[1], round], world, mark)?;
            if let Some(window) = &window {
                window.round(self, plan, [name[0], name[1], round], world, mark)?;
            }
        }
        if let Some(window) = &window {
            world.barrier()?;
            let expected = plan.rounds * (0..world.size() as u64).map(|rank| rank + 1).sum::<u64>();
            let found = window.counters.fetch_add(me, 0, 0)?;
            self.compare("the sum of fetch-and-adds", name, &[found], |_| expected)?;
        }
        if plan.split {
            let half = world.split(Some(me as u64 % 2), -(me as i64))?;
            if let Some(half) = half {
                let found = half.sum(me as u64)?;
                let expected =
                    (0..world.size() as u64).filter(|rank| rank % 2 == me as u64 % 2).sum();
                self.compare("a sum over half of the ranks", name, &[found], |_| expected)?;
            }
            let half: Vec<usize> = (0..world.size()).filter(|rank| rank % 2 == me % 2).collect();
            let found = world.team(&half)?.sum(me as u64)?;
            let expected = half.iter().sum::<usize>() as u64;
            self.compare("a sum over a team", name, &[found], |_| expected)?;
        }
        self.count(world, mark)?;
        // Nobody drops what another still uses.
        Ok(world.barrier()?)
    }

    #[allow(clippy::too_many_arguments, reason = "the coordinates of a round")]
    fn messages(
        &mut self,
        stream: &Stream,
        plan: &Plan,
        halves: &[Half],
        me: usize,
        name: [u64; 3],
        world: &World,
        mark: &Mark,
    ) -> Result<(), Stop> {
        let names = |number: usize| mix(&[name[0], name[1], name[2], number as u64]);
        let place: HashMap<(usize, bool), usize> = (0..)
            .zip(halves)
            .map(|(at, half)| ((half.number, matches!(half.end, End::Send(_))), at))
            .collect();
        let order: Vec<&Half> =
            plan.order(me, name[2]).iter().map(|half| &halves[place[half]]).collect();
        // On the one stream a send must not wait in front of this rank's own receive.
        let (last, first): (Vec<&Half>, Vec<&Half>) =
            order.iter().partition(|half| half.on_stream && matches!(half.end, End::Send(_)));
        for half in first.into_iter().chain(last) {
            let Half { number, region, end, on_stream } = half;
            match end {
                End::Send(send) => {
                    let name = names(*number);
                    let words: Vec<u64> = (0..region.len()).map(|at| word(name, at)).collect();
                    region.write(&words)?;
                    if *on_stream { send.start_on(stream) } else { send.start() }?;
                }
                End::Recv(recv) => {
                    region.write(&vec![UNTOUCHED; region.len()])?;
                    if *on_stream { recv.start_on(stream) } else { recv.start() }?;
                }
            }
            self.count(world, mark)?;
        }
        let mut operations: Vec<&dyn Operation> =
            order.iter().map(|half| half.operation()).collect();
        if name[2].is_multiple_of(2) {
            wait_all(&operations, deadline())?;
        } else {
            while !operations.is_empty() {
                operations.remove(wait_any(&operations, deadline())?);
            }
        }
        for Half { number, region, end, .. } in halves {
            let End::Recv(recv) = end else { continue };
            self.messages += 1;
            let (len, own) = (plan.messages[*number].len, names(*number));
            let expected = |at| if at < len { word(own, at) } else { UNTOUCHED };
            let what =
                format!("message {number} {:?} in round {}", plan.messages[*number], name[2]);
            self.compare(&what, [name[0], name[1]], &region.to_vec()?, expected)?;
            if recv.message_len()? != Some(8 * len as u64) {
                let text = format!("{what}: its length is {:?}", recv.message_len()?);
                return Err(Stop::Wrong(text));
            }
        }
        Ok(())
    }

    pub(super) fn compare(
        &mut self,
        what: impl std::fmt::Display,
        [world, generation]: [u64; 2],
        found: &[u64],
        expected: impl Fn(usize) -> u64,
    ) -> Result<(), Stop> {
        self.words += found.len() as u64;
        match found.iter().enumerate().find(|&(at, &found)| found != expected(at)) {
            None => Ok(()),
            Some((at, found)) => Err(Stop::Wrong(format!(
                "seed {}, world {world}, generation {generation}: {what}: word {at} is {found:#x}, expected {:#x}",
                self.options.seed,
                expected(at)
            ))),
        }
    }

    fn open_window(&self, world: &World, plan: &Plan) -> Result<Option<Puts>, Stop> {
        if plan.put == 0 {
            return Ok(None);
        }
        let ranks = world.size();
        let memory = world.alloc::<u64>(&Device::Host, plan.put * ranks)?;
        memory.write(&vec![UNTOUCHED; plan.put * ranks])?;
        let counter = world.alloc::<u64>(&Device::Host, 1)?;
        counter.write(&[0])?;
        Ok(Some(Puts {
            source: world.alloc::<u64>(&Device::Host, plan.put)?,
            window: world.window(&memory, ranks)?,
            counters: world.window(&counter, 0)?,
            memory,
        }))
    }
}

/// One-sided operations: every rank puts a block and a signal into the window of another, and adds to everybody's counter.
struct Puts {
    source: Region<u64>,
    memory: Region<u64>,
    window: libmp::Window<u64>,
    counters: libmp::Window<u64>,
}

impl Puts {
    fn round(
        &self,
        play: &mut Play<'_>,
        plan: &Plan,
        name: [u64; 3],
        world: &World,
        mark: &Mark,
    ) -> Result<(), Stop> {
        let (me, ranks) = (world.rank(), world.size());
        let (to, from) = ((me + plan.shift) % ranks, (me + ranks - plan.shift) % ranks);
        let own = |rank: usize| mix(&[name[0], name[1], name[2], !(rank as u64)]);
        let words: Vec<u64> = (0..plan.put).map(|at| word(own(me), at)).collect();
        self.source.write(&words)?;
        self.window.put_signal(to, (me * plan.put) as u64, &self.source, me, name[2] + 1)?;
        play.count(world, mark)?;
        for rank in 0..ranks {
            self.counters.fetch_add(rank, 0, me as u64 + 1)?;
            play.count(world, mark)?;
        }
        self.window.wait_signal(from, name[2] + 1, deadline())?;
        let block = self.memory.slice(from * plan.put..(from + 1) * plan.put)?.to_vec()?;
        let what = format!("what rank {from} put in round {}", name[2]);
        play.compare(&what, [name[0], name[1]], &block, |at| word(own(from), at))?;
        // The block may be overwritten when all have looked at theirs.
        Ok(world.barrier()?)
    }
}

/// Prepares this rank's ends in an order of its own.
pub(super) fn prepare(world: &World, plan: &Plan) -> Result<Vec<Half>, Stop> {
    let me = world.rank();
    let mut taken: HashMap<(usize, usize, u64, bool), usize> = HashMap::new();
    let mut halves = Vec::new();
    for (any, sends) in plan.order(me, u64::MAX) {
        let message = &plan.messages[any];
        let (from, to, tag) = (message.from, message.to, message.tag);
        let nth = taken.entry((from, to, tag, sends)).or_default();
        // The n-th end that is prepared belongs to the n-th message of the connection, whichever was drawn.
        let number = plan.nth(from, to, tag, *nth).unwrap_or(any);
        *nth += 1;
        let message = &plan.messages[number];
        let room = if sends { 0 } else { message.room };
        let region = world.alloc::<u64>(&Device::Host, message.len + room)?;
        let end = if sends {
            End::Send(world.peer(to)?.send(&region, tag).prepare()?)
        } else {
            End::Recv(world.peer(from)?.recv(&region, tag).prepare()?)
        };
        let on_stream = message.on_stream[usize::from(!sends)];
        halves.push(Half { number, region, end, on_stream });
    }
    Ok(halves)
}
