//! Communicators of some ranks of another one: by a collective call, or by each of their members alone.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Communicator, Inner};
use crate::collective::{Call, nothing};
use crate::control::message::Outcome;
use crate::control::team_number;
use crate::error::{Error, Result};

impl Communicator {
    /// Makes a communicator of the ranks that give the same `color`, ordered by `key`, equal keys by rank. A rank that
    /// gives no colour takes part in the call and gets none.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn split(&self, color: Option<u64>, key: i64) -> Result<Option<Communicator>> {
        let name = color.map(|color| format!("{} / colour {color}", self.inner.name));
        self.split_as(color, key, name.unwrap_or_default())
    }

    /// A communicator of `ranks` of this one, in this order. Each of them makes it, by itself and without a message: a split that
    /// everybody knows the outcome of, for teams that come and go. The others do not call it. Members that make several teams
    /// of the same ranks make these in the same order. Members that name different ranks find out with their first
    /// collective, which waits for those that have another team in mind until its deadline, and names them.
    ///
    /// ```
    /// # fn main() -> libmp::Result<()> {
    /// # let world = libmp::World::init()?;
    /// let pair: Vec<usize> = (0..world.size()).filter(|rank| rank / 2 == world.rank() / 2).collect();
    /// let pair = world.team(&pair)?;
    /// let sum = pair.sum(world.rank() as u64)?; // of two ranks, and of no others
    /// # assert!(sum <= 2 * world.size() as u64);
    /// # world.finish()
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchRank`]; [`Error::Mismatch`] if this rank is not among them, or one of them is twice; what ended the world.
    pub fn team(&self, ranks: &[usize]) -> Result<Communicator> {
        let op = || format!("team of {}", self.inner.name);
        self.inner.control.check("team")?;
        let members = ranks.iter().map(|&rank| self.world_rank(rank).map(|world| world as u32));
        let members = members.collect::<Result<Arc<[u32]>>>()?;
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let reason = format!("rank {} is named twice", twice[0]);
            return Err(Error::Mismatch { op: op(), reason });
        }
        let Some(rank) = ranks.iter().position(|&rank| rank == self.rank()) else {
            let reason = format!("rank {}, which makes it, is not among its ranks", self.rank());
            return Err(Error::Mismatch { op: op(), reason });
        };
        let first = team_number(self.inner.group, 0, &members);
        let number = {
            let mut teams = self.inner.teams.lock().unwrap_or_else(PoisonError::into_inner);
            let founded = teams.entry(first).or_default();
            *founded += 1;
            team_number(self.inner.group, *founded, &members)
        };
        let name = format!("{} / {}", self.inner.name, crate::error::ranks(ranks));
        Ok(self.part((number, true), name, members, rank))
    }

    /// The communicator of the ranks on this rank's host, in rank order: those that share memory with it. A collective
    /// call like [`split`](Self::split). What is a host: the running kernel and its PID namespace, or `MP_NODE`.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn node_local(&self) -> Result<Communicator> {
        let nodes: Vec<&str> = (0..self.size())
            .map(|rank| self.info(rank).map(|peer| &peer.node[..]))
            .collect::<Result<_>>()?;
        // The colour is the first rank on the same host.
        let first =
            nodes.iter().position(|&node| node == nodes[self.rank()]).unwrap_or(self.rank());
        let name = format!("{} / node {}", self.inner.name, self.host(self.rank())?);
        let local = self.split_as(Some(first as u64), self.rank() as i64, name)?;
        local.ok_or_else(|| self.nonsense(Call::Split { color: Some(first as u64), key: 0 }))
    }

    fn split_as(&self, color: Option<u64>, key: i64, name: String) -> Result<Option<Communicator>> {
        let call = Call::Split { color, key };
        let (group, members) = match self.call(call, nothing())?.0 {
            Outcome::Group { id, members } => (id, members),
            Outcome::NoGroup => return Ok(None),
            _ => return Err(self.nonsense(call)),
        };
        let me = self.world_rank(self.rank())?;
        let known = members.iter().all(|&rank| (rank as usize) < self.inner.peers.len());
        let rank = members.iter().position(|&rank| rank as usize == me);
        let (true, Some(rank)) = (known, rank) else { return Err(self.nonsense(call)) };
        Ok(Some(self.part((group, false), name, members, rank)))
    }

    fn part(
        &self,
        (group, is_team): (u64, bool),
        name: String,
        members: Arc<[u32]>,
        rank: usize,
    ) -> Communicator {
        let Inner { control, plane, peers, .. } = &*self.inner;
        let (control, plane, peers) = (control.clone(), plane.clone(), peers.clone());
        let (turn, teams) = (Mutex::new(0), Mutex::default());
        let inner =
            Inner { control, plane, peers, group, name, members, rank, turn, is_team, teams };
        Communicator { inner: Arc::new(inner), timeout: self.timeout }
    }
}
