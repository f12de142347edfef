//! What the ranks of a team do together: barriers, and windows that are opened and closed.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use libmp::matching::Pattern;
use mp_kernels::{MeetingWord, RANK_WINDOWS, RankCall, RankState, WaitStatus};

use super::{HostRank, Team};
use crate::error::{Error, Failure, Result};

impl HostRank<'_> {
    /// Waits for all ranks of the team to come; who leaves sees what each did before.
    ///
    /// # Errors
    /// [`Error::Failed`] with a rank that did not come; then all later barriers of this rank fail likewise. [`Error::World`]: what ended the world.
    pub fn barrier(&mut self, team: Team) -> Result<()> {
        self.meet(team, RankCall::Barrier)
    }

    /// Opens bytes of this device's memory to the ranks of the team, each of which calls with its own. Gives the window's number, the
    /// same for all. It ends with a barrier.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); [`Error::Failed`] for a share outside of the memory, which has no bytes then, and if all windows are open.
    pub fn win_create(&mut self, team: Team, share: Range<u64>) -> Result<u32> {
        let (open, bytes) = (self.open[team as usize], self.ranks.handle().bytes);
        let number = open.trailing_ones();
        if number == RANK_WINDOWS {
            let most = u64::from(RANK_WINDOWS);
            let failure = self.failure(RankCall::Create, WaitStatus::NoRoom);
            return Err(Error::Failed(Failure { wanted: most + 1, have: most, ..failure }));
        }
        let window = number + if team == Team::World { 0 } else { RANK_WINDOWS };
        self.open[team as usize] |= 1 << number;
        let inside = share.start <= share.end && share.end <= bytes;
        let part = if inside { [1 + share.start, share.end - share.start] } else { [1, 0] };
        self.publish(team, window, part)?;
        self.meet(team, RankCall::Create)?;
        match inside {
            true => Ok(window),
            false => {
                let length = share.end.saturating_sub(share.start);
                let failure = self.failure(RankCall::Create, WaitStatus::BadArgument);
                let waited = Duration::from_nanos(length);
                let (window, wanted) = (Some(window), share.start);
                Err(Error::Failed(Failure { window, wanted, have: bytes, waited, ..failure }))
            }
        }
    }

    /// Closes a window, with a barrier; notifications of it that nobody has waited for are gone.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); [`Error::Failed`] for a window that is not open.
    pub fn win_free(&mut self, window: u32) -> Result<()> {
        let team = if window < RANK_WINDOWS { Team::World } else { Team::Device };
        let bit = 1_u64 << (window % RANK_WINDOWS);
        if window >= 2 * RANK_WINDOWS || self.open[team as usize] & bit == 0 {
            let failure = self.failure(RankCall::Free, WaitStatus::BadArgument);
            return Err(Error::Failed(Failure { window: Some(window), ..failure }));
        }
        self.meet(team, RankCall::Free)?;
        // All that were sent are here, if not all in the queue.
        let of_window = Pattern { context: Some(window.into()), ..Pattern::default() };
        loop {
            let room = self.take_in()?;
            let labels = self.arrived.labels();
            let count = labels.iter().filter(|label| of_window.matches(label)).count();
            self.arrived.take_all(&of_window, count);
            if room {
                break;
            }
            if count == 0 {
                let failure = self.failure(RankCall::Free, WaitStatus::NoRoom);
                return Err(Error::Failed(Failure { window: Some(window), full: true, ..failure }));
            }
        }
        self.open[team as usize] &= !bit;
        self.publish(team, window, [0, 0])
    }

    /// Says to all devices of the team where this rank's share of a window is.
    fn publish(&self, team: Team, window: u32, part: [u64; 2]) -> Result<()> {
        let own = self.ranks.world.rank();
        let at = self.ranks.layout.part(window, self.rank);
        for device in 0..self.ranks.world.size() {
            if team == Team::World || device == own {
                self.raise(device, at, &part)?;
            }
        }
        Ok(())
    }

    /// A barrier of the team, for a call.
    fn meet(&mut self, team: Team, call: RankCall) -> Result<()> {
        let (handle, since) = (self.ranks.handle(), Instant::now());
        let round = self.rounds[team as usize] + 1;
        let world = team == Team::World;
        let [here, open] = match team {
            Team::World => [MeetingWord::WorldHere, MeetingWord::WorldOpen],
            Team::Device => [MeetingWord::DeviceHere, MeetingWord::DeviceOpen],
        };
        let [here, open] = [here, open].map(|word| &self.words[self.ranks.layout.meeting(word)]);
        let counter = match team {
            Team::World => std::mem::offset_of!(RankState, world_barriers),
            Team::Device => std::mem::offset_of!(RankState, device_barriers),
        };
        let mut status = self.broken.unwrap_or(WaitStatus::Ok);
        if status == WaitStatus::Ok {
            if world {
                self.ranks.memories.quiet_all()?;
            }
            self.rounds[team as usize] = round;
            self.state(counter).store(round, Ordering::Relaxed);
            let mut room = true;
            let last =
                here.fetch_add(1, Ordering::AcqRel) + 1 == round * u64::from(handle.per_device);
            let arrived = handle.arrived as usize / 8;
            if last && world {
                for device in 0..handle.devices as usize {
                    self.raise(device, arrived + handle.device as usize, &[round])?;
                }
            }
            let came = match (last, world) {
                (true, false) => true,
                (false, _) => self.wait(self.soon(), |rank| {
                    room = rank.take_in()?;
                    Ok(open.load(Ordering::Acquire) >= round)
                })?,
                (true, true) => self.wait(self.soon(), |rank| {
                    room = rank.take_in()?;
                    let mut words = rank.words[arrived..][..handle.devices as usize].iter();
                    Ok(words.all(|word| word.load(Ordering::Acquire) >= round))
                })?,
            };
            match (came, last) {
                (true, true) => open.store(round, Ordering::Release),
                (true, false) => {}
                (false, _) if room => status = WaitStatus::TimedOut,
                (false, _) => status = WaitStatus::NoRoom,
            }
        }
        if status == WaitStatus::Ok {
            return Ok(());
        }
        self.broken = Some(status);
        let ranks = if world { 0..handle.size } else { self.ranks.numbers() };
        let mut missing = None;
        for rank in ranks {
            if self.state_of(rank, counter)? < round {
                missing = Some(rank);
                break;
            }
        }
        Err(Error::Failed(Failure {
            missing: self.unheard(missing, WaitStatus::TimedOut)?,
            wanted: round,
            have: round - 1,
            waited: since.elapsed(),
            ..self.failure(call, status)
        }))
    }
}
