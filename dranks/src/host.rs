//! Ranks that are threads of the CPU, in one world with those that are blocks of kernels: what `mp/ranks.cuh` does, by the CPU, over the
//! same memory. What another device holds is written by libmp's windows: by stores where it is mapped here, by a stream where it is a GPU's, by
//! requests where it is behind a NIC.

mod together;

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytemuck::Pod;
use gdsync::{Buffer, Deadline};
use libmp::Region;
use libmp::matching::{Label, Matcher, Pattern};
use mp_kernels::{
    RANK_BITS, RANK_WINDOWS, RankCall, RankPhase, RankPosition, RankState, TAG_BITS, WINDOW_BITS,
    WaitStatus,
};

use crate::error::{Error, Failure, Result};
use crate::ranks::Ranks;

/// Who meets, or opens a window together.
///
/// See [`HostRank`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Team {
    /// All ranks.
    World,
    /// Those of one device.
    Device,
}

/// A rank that is a thread of the CPU: [`Ranks::host_rank`].
///
/// Its calls are those of `mp/ranks.cuh`, with its order: a notification comes behind all that the rank has put to the target before, and who
/// has waited for one sees what it came behind. Each ends: after the communicator's timeout, and when the world is lost. A rank takes in
/// what comes to it in all calls that wait.
///
/// Puts and gets are between the regions of this program and the shares of windows, in bytes. To memory of a GPU each takes some
/// microseconds: a stream does it.
///
/// ```no_run
/// use dranks::{Options, Ranks, Team};
/// use libmp::matching::Pattern;
/// use libmp::{Device, World};
///
/// # fn main() -> dranks::Result<()> {
/// let world = World::init()?; // rank 0 launches kernels on its GPU, rank 1 is this
/// let memory = world.alloc::<f64>(&Device::Host, 1024)?; // if kernels of a GPU reach it: pinned memory of the GPU
/// let ranks = Ranks::open(&world, &memory, &Options::new(1))?;
/// let mut rank = ranks.host_rank(0)?;
/// let window = rank.win_create(Team::World, 0..8192)?;
/// rank.put_notify(window, 0, 0, &memory.slice(0..128)?, 7)?;
/// let wanted = Pattern { context: Some(window.into()), source: None, tag: Some(8) };
/// for label in rank.wait_notifications(&wanted, 4)? {
///     println!("rank {} has put", label.source);
/// }
/// rank.win_free(window)?;
/// rank.finish();
/// # Ok(())
/// # }
/// ```
pub struct HostRank<'a> {
    ranks: &'a Ranks,
    words: &'a [AtomicU64],
    rank: u32,
    local: u32,
    /// What has come and nobody has waited for.
    arrived: Matcher<(), ()>,
    /// The ring of each device.
    positions: Vec<RankPosition>,
    /// Barriers of the world, and of the device.
    rounds: [u64; 2],
    /// Windows that are open, a bit for each, of the same two.
    open: [u64; 2],
    /// A barrier has failed.
    broken: Option<WaitStatus>,
    /// What is written where the CPU does not reach.
    word: Region<u64>,
}

impl Ranks {
    /// Rank number `local` of this device, as a thread of the CPU. A device whose ranks are threads launches no kernel of ranks.
    ///
    /// # Errors
    /// [`Error::Option`] for a number that the device does not have, or that is given already; [`Error::NotOnHost`] for memory that the CPU does not
    /// reach.
    pub fn host_rank(&self, local: u32) -> Result<HostRank<'_>> {
        let handle = self.handle();
        let wrong = |expected: String| Error::Option {
            option: "the number of a host rank",
            value: local.into(),
            expected,
        };
        if local >= handle.per_device {
            return Err(wrong(format!("less than {}", handle.per_device)));
        }
        let reached = self.words().zip(self.desk.as_ref());
        let (words, desk) =
            reached.ok_or_else(|| Error::NotOnHost { device: self.device().to_string() })?;
        let word = desk.slice(local as usize..local as usize + 1)?;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.contains(&local) {
            return Err(wrong("one that no other thread is".into()));
        }
        taken.push(local);
        let state =
            |word: usize| words[self.layout.state(local) + word / 8].load(Ordering::Relaxed);
        let first = (handle.positions / 8) as usize
            + (local * handle.devices) as usize * (size_of::<RankPosition>() / 8);
        let position = |device: usize| {
            let at = first + device * (size_of::<RankPosition>() / 8);
            let [next, told] = [0, 1].map(|word| words[at + word].load(Ordering::Relaxed));
            RankPosition { next, told }
        };
        let rank = HostRank {
            ranks: self,
            words,
            rank: handle.first + local,
            local,
            arrived: Matcher::new(),
            positions: (0..handle.devices as usize).map(position).collect(),
            rounds: [0; 2],
            open: [state(std::mem::offset_of!(RankState, world_windows)), 0],
            broken: None,
            word,
        };
        rank.state(std::mem::offset_of!(RankState, phase))
            .store(RankPhase::Joined as u64, Ordering::Relaxed);
        Ok(rank)
    }
}

impl HostRank<'_> {
    /// Its number in the world.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Ranks of the team.
    pub fn size(&self, team: Team) -> u32 {
        let handle = self.ranks.handle();
        if team == Team::World { handle.size } else { handle.per_device }
    }

    /// Copies the region to byte `at` of a rank's share of a window. It may be written again after [`flush`](Self::flush). The target knows
    /// of it by a notification, or a barrier. Nothing is copied if source and destination are the same memory.
    ///
    /// # Errors
    /// [`Error::Failed`] for what is outside of the share, and memory that overlaps it; then nothing is written. [`Error::World`]: what libmp says.
    pub fn put<T: Pod>(
        &mut self,
        window: u32,
        target: u32,
        at: u64,
        from: &Region<T>,
    ) -> Result<()> {
        self.transfer(RankCall::Put, (window, target, None), at, from)
    }

    /// Copies from byte `at` of a rank's share of a window to the region, where it is after [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get<T: Pod>(&mut self, window: u32, target: u32, at: u64, to: &Region<T>) -> Result<()> {
        self.transfer(RankCall::Get, (window, target, None), at, to)
    }

    /// [`put`](Self::put), and then a notification of the target: (window, this rank, tag).
    ///
    /// # Errors
    /// As [`put`](Self::put), also for a tag of more than 24 bits. A full ring is waited for; if it stays full, the bytes have been written and the
    /// target has not been notified.
    pub fn put_notify<T: Pod>(
        &mut self,
        window: u32,
        target: u32,
        at: u64,
        from: &Region<T>,
        tag: u32,
    ) -> Result<()> {
        self.transfer(RankCall::Put, (window, target, Some(tag)), at, from)?;
        self.notify(window, target, tag)
    }

    /// [`get`](Self::get), and then a notification of the target: its bytes have been read, and are here.
    ///
    /// # Errors
    /// As [`put_notify`](Self::put_notify).
    pub fn get_notify<T: Pod>(
        &mut self,
        window: u32,
        target: u32,
        at: u64,
        to: &Region<T>,
        tag: u32,
    ) -> Result<()> {
        self.transfer(RankCall::Get, (window, target, Some(tag)), at, to)?;
        self.notify(window, target, tag)
    }

    /// Ends when all that this rank has put and got has happened here.
    ///
    /// # Errors
    /// [`Error::World`]: what libmp says.
    pub fn flush(&mut self) -> Result<()> {
        Ok(self.ranks.memories.flush_all()?)
    }

    /// Waits for `count` notifications that match and takes them, the earliest; all others stay. A pattern's context is the window. Of those
    /// taken their labels, in order.
    ///
    /// # Errors
    /// [`Error::Failed`]: too late, with how many there were; no room for what comes among those that nobody has waited for; more than the queue
    /// holds. Then nothing is taken. [`Error::World`]: what ended the world.
    pub fn wait_notifications(&mut self, wanted: &Pattern, count: usize) -> Result<Vec<Label>> {
        self.wait_notifications_until(wanted, count, self.soon())
    }

    /// [`wait_notifications`](Self::wait_notifications) with a deadline of its own.
    ///
    /// # Errors
    /// As [`wait_notifications`](Self::wait_notifications).
    pub fn wait_notifications_until(
        &mut self,
        wanted: &Pattern,
        count: usize,
        deadline: Deadline,
    ) -> Result<Vec<Label>> {
        let (since, spill) = (Instant::now(), self.ranks.handle().spill);
        let about = self.failure(RankCall::Wait, WaitStatus::Ok);
        let failed = |status, have: u64| Failure {
            status,
            window: wanted.context.map(|window| window as u32),
            peer: wanted.source,
            tag: wanted.tag.map(|tag| tag as u32),
            wanted: count as u64,
            have,
            waited: since.elapsed(),
            full: status == WaitStatus::NoRoom,
            ..about.clone()
        };
        let known = wanted.context.is_none_or(|window| window < u64::from(2 * RANK_WINDOWS))
            && wanted.source.is_none_or(|source| source < self.ranks.size())
            && wanted.tag.is_none_or(|tag| tag < 1 << TAG_BITS);
        if !known || count > spill as usize {
            return Err(Error::Failed(failed(WaitStatus::BadArgument, spill.into())));
        }
        let mut taken = self.arrived.take_all(wanted, count);
        let mut room = true;
        if taken.is_none() {
            let ended = self.wait(deadline, |rank| {
                room = rank.take_in()?;
                taken = rank.arrived.take_all(wanted, count);
                Ok(taken.is_some() || !room)
            })?;
            if taken.is_none() {
                let have = self.arrived.labels().iter().filter(|it| wanted.matches(it)).count();
                let status = if ended { WaitStatus::NoRoom } else { WaitStatus::TimedOut };
                return Err(Error::Failed(Failure {
                    missing: self.unheard(wanted.source, status)?,
                    ..failed(status, have as u64)
                }));
            }
        }
        Ok(taken.unwrap_or_default().into_iter().map(|(label, ())| label).collect())
    }

    /// Takes `count` that match if they are there; `None`, and all stay, if there are fewer.
    ///
    /// # Errors
    /// [`Error::World`]: what libmp says.
    pub fn test_notifications(
        &mut self,
        wanted: &Pattern,
        count: usize,
    ) -> Result<Option<Vec<Label>>> {
        self.take_in()?;
        let taken = self.arrived.take_all(wanted, count);
        Ok(taken.map(|taken| taken.into_iter().map(|(label, ())| label).collect()))
    }

    /// Says that this rank is done, so that others that wait for it learn why.
    pub fn finish(self) {
        self.state(std::mem::offset_of!(RankState, phase))
            .store(RankPhase::Finished as u64, Ordering::Relaxed);
    }

    fn soon(&self) -> Deadline {
        Deadline::after(Duration::from_nanos(self.ranks.handle().timeout_ns))
    }

    fn failure(&self, call: RankCall, status: WaitStatus) -> Failure {
        Failure {
            status,
            call,
            rank: self.rank,
            peer: None,
            window: None,
            tag: None,
            missing: None,
            full: false,
            wanted: 0,
            have: 0,
            waited: Duration::ZERO,
        }
    }

    /// A word of this rank's state, which others read when something has failed.
    fn state(&self, word: usize) -> &AtomicU64 {
        &self.words[self.ranks.layout.state(self.local) + word / 8]
    }

    /// Waits until `look` says so; false if it was too late.
    fn wait(
        &mut self,
        deadline: Deadline,
        mut look: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<bool> {
        let (mut failed, ranks) = (None, self.ranks);
        let ended = ranks.world.wait_until("a host rank", deadline, || match look(self) {
            Ok(there) => there,
            Err(error) => {
                failed = Some(error);
                true
            }
        });
        match (failed, ended) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(true),
            (None, Err(libmp::Error::Late { .. })) => Ok(false),
            (None, Err(error)) => Err(error.into()),
        }
    }

    /// Writes words of a device's control memory, the last behind the others and behind what this rank has put there.
    fn raise(&self, device: usize, at: usize, values: &[u64]) -> Result<()> {
        let mapped = match self.ranks.controls.memory_of(device) {
            Ok(there) => Some(there),
            Err(libmp::Error::NoPath { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        if let Some(there) = mapped.and_then(Buffer::atomics) {
            for (word, value) in there[at..].iter().zip(values) {
                word.store(*value, Ordering::Release);
            }
            return Ok(());
        }
        for (number, value) in values.iter().enumerate() {
            self.word.write(&[*value])?;
            self.ranks.controls.put(device, (at + number) as u64, &self.word)?;
        }
        Ok(())
    }

    /// Takes what has come out of the rings. False if there was no room for all.
    fn take_in(&mut self) -> Result<bool> {
        let handle = self.ranks.handle();
        let mut room = true;
        for device in 0..handle.devices {
            let position = &mut self.positions[device as usize];
            loop {
                let at = self.ranks.layout.packet(self.local, device, position.next);
                if self.words[at + 1].load(Ordering::Acquire) != position.next.wrapping_add(1) {
                    break;
                }
                if self.arrived.unexpected() >= handle.spill as usize {
                    room = false;
                    break;
                }
                let label = self.words[at].load(Ordering::Relaxed);
                let field = |shift: u32, bits: u32| label >> shift & ((1 << bits) - 1);
                let label = Label {
                    context: field(TAG_BITS, WINDOW_BITS),
                    source: field(TAG_BITS + WINDOW_BITS, RANK_BITS) as u32,
                    tag: field(0, TAG_BITS),
                };
                self.arrived.keep(label, ());
                position.next = position.next.wrapping_add(1);
            }
            // Half a ring at once: a full ring has been read by then.
            let next = position.next;
            if next.wrapping_sub(position.told) >= u64::from(handle.slots).div_ceil(2) {
                position.told = next;
                let tail = handle.tails / 8 + u64::from(self.rank);
                self.raise(device as usize, tail as usize, &[next])?;
            }
        }
        Ok(room)
    }

    /// A rank's share of a window: its device, where it begins in that one's memory, and its bytes.
    fn share(&self, window: u32, target: u32) -> Option<(usize, u64, u64)> {
        let (device, _) = self.ranks.place_of(target)?;
        let at = (window < 2 * RANK_WINDOWS).then(|| self.ranks.layout.part(window, target))?;
        let [behind, bytes] = [0, 1].map(|word| self.words[at + word].load(Ordering::Acquire));
        Some((device, behind.checked_sub(1)?, bytes))
    }

    fn transfer<T: Pod>(
        &mut self,
        call: RankCall,
        (window, target, tag): (u32, u32, Option<u32>),
        at: u64,
        mine: &Region<T>,
    ) -> Result<()> {
        let mine = Region::from_buffer(mine.buffer().bytes());
        let length = mine.len() as u64;
        let share = self.share(window, target);
        let inside = share.filter(|(_, _, bytes)| at <= *bytes && length <= bytes - at);
        let inside = inside.filter(|_| tag.is_none_or(|tag| tag >> TAG_BITS == 0));
        let apart = |(device, first, _): &(usize, u64, u64)| self.apart(*device, first + at, &mine);
        let Some(((device, first, _), apart)) = inside
            .map(|share| (share, apart(&share)))
            .filter(|(_, apart)| apart.is_none_or(|apart| apart == 0 || apart >= length))
        else {
            return Err(Error::Failed(Failure {
                peer: Some(target),
                window: Some(window),
                tag,
                wanted: at,
                have: share.map_or(0, |(_, _, bytes)| bytes),
                waited: Duration::from_nanos(length),
                ..self.failure(call, WaitStatus::BadArgument)
            }));
        };
        if apart == Some(0) || length == 0 {
            return Ok(());
        }
        match call {
            RankCall::Put => self.ranks.memories.start_put(device, first + at, &mine)?,
            _ => self.ranks.memories.start_get(device, first + at, &mine)?,
        }
        Ok(())
    }

    /// How far a region is from a place of this device's memory, if both are memory that the CPU reaches.
    fn apart(&self, device: usize, at: u64, mine: &Region<u8>) -> Option<u64> {
        let there = self.ranks.memories.memory_of(device).ok()?.host_address()?.as_ptr() as u64;
        Some((there + at).abs_diff(mine.buffer().host_address()?.as_ptr() as u64))
    }

    /// Notifies a rank of what has been moved before.
    fn notify(&mut self, window: u32, target: u32, tag: u32) -> Result<()> {
        let (handle, since) = (self.ranks.handle(), Instant::now());
        let no_rank = || Error::Option {
            option: "the target",
            value: target.into(),
            expected: format!("less than {}", handle.size),
        };
        let (device, local) = self.ranks.place_of(target).ok_or_else(no_rank)?;
        // What has been put is there, and what has been got is here.
        self.ranks.memories.quiet(device)?;
        let [head, tail] = [handle.heads, handle.tails]
            .map(|ends| &self.words[ends as usize / 8 + target as usize]);
        let (mut ticket, mut room) = (None, true);
        self.wait(self.soon(), |rank| {
            let mut next = head.load(Ordering::Relaxed);
            while next.wrapping_sub(tail.load(Ordering::Acquire)) < u64::from(handle.slots) {
                let (order, after) = (Ordering::Relaxed, next.wrapping_add(1));
                match head.compare_exchange(next, after, order, order) {
                    Ok(_) => {
                        ticket = Some(next);
                        return Ok(true);
                    }
                    Err(found) => next = found,
                }
            }
            room = rank.take_in()?;
            Ok(false)
        })?;
        let Some(number) = ticket else {
            let status = if room { WaitStatus::TimedOut } else { WaitStatus::NoRoom };
            return Err(Error::Failed(Failure {
                peer: Some(target),
                window: Some(window),
                tag: Some(tag),
                missing: self.unheard(Some(target), status)?,
                full: !room,
                wanted: 1,
                waited: since.elapsed(),
                ..self.failure(RankCall::Notify, status)
            }));
        };
        let label = u64::from(self.rank) << (TAG_BITS + WINDOW_BITS)
            | u64::from(window) << TAG_BITS
            | u64::from(tag);
        let at = self.ranks.layout.packet(local, handle.device, number);
        self.raise(device, at, &[label, number.wrapping_add(1)])
    }

    /// How far a rank has got, if its state can be read here: why nothing came of it.
    fn unheard(&self, rank: Option<u32>, status: WaitStatus) -> Result<Option<(u32, RankPhase)>> {
        let Some(rank) = rank.filter(|_| status == WaitStatus::TimedOut) else { return Ok(None) };
        let phase = self.state_of(rank, std::mem::offset_of!(RankState, phase))?;
        Ok(RankPhase::from_code(phase as u32).map(|phase| (rank, phase)))
    }

    /// A word of the state of any rank.
    fn state_of(&self, rank: u32, word: usize) -> Result<u64> {
        let Some((device, local)) = self.ranks.place_of(rank) else { return Ok(0) };
        let at = self.ranks.layout.state(local) + word / 8;
        self.ranks.controls.get(device, at as u64, &self.word)?;
        Ok(self.word.to_vec()?[0])
    }
}

impl std::fmt::Debug for HostRank<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "host rank {} of {}", self.rank, self.ranks.size())
    }
}
