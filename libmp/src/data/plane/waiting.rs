//! The started operations of a rank that cannot go on by themselves, and what each of them waits for. Every call that waits
//! looks at all of them, again and again, and there may be hundreds: a look at one that still waits is one load of the word
//! that will say so. Nobody has to tell the list that something has changed, so no news can be lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gdsync::Word64;

use super::Plane;
use crate::data::endpoint::Endpoint;
use crate::ownership::Lock;

/// What a start waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wake {
    /// The peer has to prepare its side.
    Peer,
    /// Its signal has to reach the value: the credit.
    Credit(u64),
    /// The NIC had no room.
    Room,
}

/// The list.
pub(crate) struct Waiting {
    entries: Lock<Entries>,
    /// How many wait, for those who only pass by.
    count: AtomicUsize,
}

/// First those that wait, then those that have: an operation that has waited once keeps its entry until it is dropped.
#[derive(Default)]
struct Entries {
    all: Vec<Entry>,
    waiting: usize,
}

struct Entry {
    end: Arc<Endpoint>,
    /// Its signal once the peer is known, beside the rest of what a look needs.
    signal: Option<Word64>,
    /// Number of the start.
    number: u64,
    wake: Wake,
}

/// Where the entry of an operation is. Of the list's, behind its lock.
pub(crate) struct Place(AtomicUsize);

impl Default for Place {
    fn default() -> Place {
        Place(AtomicUsize::new(usize::MAX))
    }
}

impl Place {
    fn get(&self) -> Option<usize> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&at| at != usize::MAX)
    }

    fn set(&self, at: Option<usize>) {
        self.0.store(at.unwrap_or(usize::MAX), Ordering::Relaxed);
    }
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting { entries: Lock::new(Entries::default()), count: AtomicUsize::new(0) }
    }
}

impl Waiting {
    /// Notes start number `number` of an operation.
    pub fn add(&self, end: &Arc<Endpoint>, number: u64, wake: Wake) {
        let mut entries = self.entries.lock();
        let at = entries.place(end);
        let entry = &mut entries.all[at];
        (entry.number, entry.wake) = (number, wake);
        if entry.signal.is_none() {
            entry.signal = end.signal();
        }
        if at >= entries.waiting {
            let first = entries.waiting;
            entries.swap(at, first);
            entries.waiting += 1;
        }
        self.count.store(entries.waiting, Ordering::Relaxed);
    }

    /// Goes on with those that can, unless another thread is at it.
    pub fn help(&self, plane: &Plane) {
        if self.is_empty() {
            return;
        }
        let Some(mut entries) = self.entries.try_lock() else { return };
        let mut at = 0;
        while at < entries.waiting {
            let entry = &mut entries.all[at];
            if entry.waits(plane) || entry.go_on(plane) {
                at += 1;
            } else if entry.end.is_dropped() {
                entries.remove(at);
            } else {
                entries.rest(at);
            }
        }
        self.count.store(entries.waiting, Ordering::Relaxed);
    }

    /// An operation is dropped, and nothing of it is under way.
    pub fn forget(&self, end: &Endpoint) {
        let mut entries = self.entries.lock();
        if let Some(at) = end.place.get() {
            entries.remove(at);
        }
        self.count.store(entries.waiting, Ordering::Relaxed);
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }
}

impl Entries {
    /// Where an operation's entry is, which is made.
    fn place(&mut self, end: &Arc<Endpoint>) -> usize {
        end.place.get().unwrap_or_else(|| {
            let at = self.all.len();
            end.place.set(Some(at));
            self.all.push(Entry { end: end.clone(), signal: None, number: 0, wake: Wake::Room });
            at
        })
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.all.swap(one, other);
        for at in [one, other] {
            self.all[at].end.place.set(Some(at));
        }
    }

    /// One that waited waits no more.
    fn rest(&mut self, at: usize) {
        self.waiting -= 1;
        self.swap(at, self.waiting);
    }

    fn remove(&mut self, mut at: usize) {
        if at < self.waiting {
            self.rest(at);
            at = self.waiting;
        }
        self.swap(at, self.all.len() - 1);
        self.all.pop().inspect(|entry| entry.end.place.set(None));
    }
}

impl Entry {
    /// Whether there is no use in trying.
    fn waits(&self, plane: &Plane) -> bool {
        match self.wake {
            Wake::Peer => {
                plane.listen(self.end.neighbour);
                !self.end.is_paired()
            }
            Wake::Credit(value) => {
                let seen = self.signal.as_ref().and_then(Word64::load);
                seen.is_some_and(|seen| seen < value)
            }
            Wake::Room => false,
        }
    }

    /// Tries. False if nothing is left to do: the start is handed over, here or by a call of its user, who then notes by
    /// himself what he starts next.
    fn go_on(&mut self, plane: &Plane) -> bool {
        match self.end.help_start(plane, self.number) {
            Some(wake) => {
                self.wake = wake;
                if self.signal.is_none() {
                    self.signal = self.end.signal();
                }
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use gdsync::{Deadline, Device};

    use crate::{Config, Operation, Recv, Region, Send, World};

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    fn worlds(path: &str) -> [World; 2] {
        let config = Config::from_variables([("MP_PATH", path)]).unwrap();
        World::threads_with_config(2, &config).unwrap().try_into().ok().unwrap()
    }

    fn region(world: &World, value: u64) -> Region<u64> {
        let region = world.alloc(&Device::Host, 1).unwrap();
        region.write(&[value]).unwrap();
        region
    }

    /// A sequence in which every number below `count` comes once, another for each seed.
    fn shuffled(count: usize, seed: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        order
            .sort_by_key(|&number| (number as u64 + 1).wrapping_mul(seed * 2 + 0x9e37_79b9) % 1009);
        order
    }

    fn end(world: &World, region: &Region<u64>, tag: usize) -> crate::Message<crate::Send> {
        world.peer(1 - world.rank()).unwrap().send(region, tag as u64)
    }

    /// Both ranks are driven by this thread, so nobody looks at a send but the calls that are seen here.
    #[test]
    fn whatever_a_start_waits_for_any_call_of_its_rank_sends_it() {
        const COUNT: usize = 120;
        for path in ["auto", "nic"] {
            let [one, two] = worlds(path);
            // Never complete, for what goes through it are the calls of its rank.
            let never = |world: &World| {
                let recv = world.peer(world.rank()).unwrap().recv(&region(world, 0), 9999);
                let recv = recv.prepare().unwrap();
                recv.start().unwrap();
                recv
            };
            let idle = [never(&one), never(&two)];
            let sources: Vec<Region<u64>> = (0..COUNT).map(|_| region(&one, 0)).collect();
            let targets: Vec<Region<u64>> = (0..COUNT).map(|_| region(&two, 0)).collect();
            let sends: Vec<Send> =
                (0..COUNT).map(|tag| end(&one, &sources[tag], tag).prepare().unwrap()).collect();
            let mut recvs: Vec<Option<Recv>> = (0..COUNT).map(|_| None).collect();
            let plane = &one.peer(1).unwrap().plane;
            for round in 1..=6u64 {
                let value = |tag: usize| round << 32 | tag as u64;
                for tag in shuffled(COUNT, round) {
                    sources[tag].write(&[value(tag)]).unwrap();
                    // In the first round nobody has prepared the other side: the send waits for that, then for the credit.
                    sends[tag].start().unwrap();
                }
                for tag in shuffled(COUNT, 31 * round) {
                    let recv = recvs[tag].get_or_insert_with(|| {
                        let recv = two.peer(0).unwrap().recv(&targets[tag], tag as u64);
                        let recv = recv.prepare().unwrap();
                        // The sender hears of it now, and not of a credit.
                        assert!(!idle[0].test().unwrap());
                        recv
                    });
                    recv.start().unwrap();
                    let deadline = soon();
                    // Only through the operation that has nothing to do with it.
                    while !recv.test().unwrap() {
                        assert!(!idle[0].test().unwrap() && !idle[1].test().unwrap());
                        assert!(
                            !deadline.expired(),
                            "{path}, round {round}: {recv:?} is forgotten"
                        );
                    }
                    assert_eq!(targets[tag].to_vec().unwrap(), [value(tag)]);
                }
                let deadline = soon();
                sends.iter().for_each(|send| send.wait(deadline).unwrap());
                // What a send's own call has handed over leaves the list at the next look.
                assert!(!idle[0].test().unwrap());
                // The receive that never comes posts itself to nobody, so it stays: this is all that does.
                assert_eq!(plane.waiting.len(), 1, "{path}, round {round}");
            }
            drop(idle);
        }
    }

    #[test]
    fn several_threads_that_start_and_wait_in_one_rank_lose_nothing() {
        const THREADS: usize = 3;
        const EACH: usize = 8;
        const ROUNDS: u64 = 400;
        let [one, two] = worlds("auto");
        let failed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (one, failed) = (&one, &failed);
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let regions: Vec<_> = (0..EACH).map(|_| region(one, 0)).collect();
                    let tags = thread * EACH..;
                    let sends: Vec<Send> = (tags.zip(&regions))
                        .map(|(tag, region)| end(one, region, tag).prepare().unwrap())
                        .collect();
                    for round in 0..ROUNDS {
                        for (region, send) in regions.iter().zip(&sends) {
                            region.write(&[round]).unwrap();
                            send.start().unwrap();
                        }
                        // The others of this thread move through the calls of all threads.
                        for send in sends.iter().rev() {
                            if let Err(error) = send.wait(soon()) {
                                failed.store(true, Ordering::Relaxed);
                                panic!("{error}");
                            }
                        }
                    }
                });
            }
            let regions: Vec<_> = (0..THREADS * EACH).map(|_| region(&two, 0)).collect();
            let recvs: Vec<Recv> = (0..)
                .zip(&regions)
                .map(|(tag, region)| two.peer(0).unwrap().recv(region, tag).prepare().unwrap())
                .collect();
            for round in 0..ROUNDS {
                for &number in &shuffled(recvs.len(), round) {
                    recvs[number].start().unwrap();
                }
                for (recv, region) in recvs.iter().zip(&regions) {
                    recv.wait(soon()).unwrap();
                    assert_eq!(region.to_vec().unwrap(), [round]);
                }
                assert!(!failed.load(Ordering::Relaxed));
            }
        });
        assert!(one.peer(1).unwrap().plane.waiting.is_empty());
    }
}
