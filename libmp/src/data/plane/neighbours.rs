//! The ranks that a rank reaches: how they are introduced to each other, and on which path they are.

use std::ops::Index;
use std::sync::{Arc, Mutex, OnceLock};

use gdsync::PeerHandle;
use gdsync::path::PathChoice;
use serde::{Deserialize, Serialize};

use super::post::State;
use super::{Plane, lock};
use crate::control::cause::{Cause, Loss};
use crate::data::arena::Arena;
use crate::data::mailbox::Mailbox;
use crate::data::path::Path;
use crate::data::sparse::Sparse;
use crate::error::{Error, Result};
use crate::transport::Outbox;
use crate::transport::nic::{FarOutbox, HostLink, Letter, Link, Place, refused};

/// What a rank tells the others of its data plane.
#[derive(Serialize, Deserialize)]
struct Introduction {
    choice: PathChoice,
    arena: PeerHandle,
}

/// A rank that this one reaches.
pub(crate) struct Neighbour {
    pub rank: usize,
    pub path: Path,
    inbox: OnceLock<Mailbox>,
    /// If it is reached through the NIC.
    pub behind: Option<Behind>,
    pub state: Mutex<State>,
}

impl Neighbour {
    /// With the mailbox that it writes; one behind the NIC gets it with its link.
    pub fn new((rank, path): (usize, Path), inbox: Option<Mailbox>) -> Neighbour {
        let behind = path.wire().map(|_| Behind::default());
        let inbox = inbox.map_or_else(OnceLock::new, OnceLock::from);
        Neighbour { rank, path, inbox, behind, state: Mutex::default() }
    }

    /// The mailbox that it writes, once it may.
    pub fn inbox(&self) -> Option<&Mailbox> {
        self.inbox.get()
    }

    /// The host's link, if it is reached through the NIC and there is one.
    pub fn link(&self) -> Option<&Arc<Link>> {
        self.behind.as_ref()?.host.get().map(|host| &host.link)
    }
}

/// A rank behind the NIC. Two ranks that have nothing to say to each other have no link.
#[derive(Default)]
pub(crate) struct Behind {
    /// The host's link, made when it is first needed, here or there.
    host: OnceLock<HostLink>,
    /// Held while it is made and connected: whether it is.
    connected: Mutex<bool>,
    /// The mailbox that this rank writes there, once it has told.
    pub outbox: OnceLock<Place>,
}

/// The ranks that a rank reaches, in rank order. Those of its own process are made when it first has a message with them.
pub(crate) struct Neighbours {
    list: Sparse<Neighbour>,
    /// Their ranks, in order, unless they are all ranks.
    ranks: Option<Vec<usize>>,
}

impl Neighbours {
    /// All ranks of a world of so many, none of which is made.
    pub fn all(ranks: usize) -> Neighbours {
        Neighbours { list: Sparse::new(ranks), ranks: None }
    }

    /// These, in rank order.
    pub fn of(neighbours: Vec<Neighbour>) -> Result<Neighbours> {
        let ranks = neighbours.iter().map(|neighbour| neighbour.rank).collect();
        let list = Sparse::new(neighbours.len());
        for (place, neighbour) in neighbours.into_iter().enumerate() {
            list.get_or(place, || Ok::<_, Error>(neighbour))?;
        }
        Ok(Neighbours { list, ranks: Some(ranks) })
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// One that is made.
    pub fn get(&self, place: usize) -> Option<&Neighbour> {
        self.list.get(place)
    }

    /// Those that are made, with their places.
    pub fn made(&self) -> impl Iterator<Item = (usize, &Neighbour)> {
        self.list.made()
    }

    /// Where a rank is.
    fn place(&self, rank: usize) -> Option<usize> {
        match &self.ranks {
            None => (rank < self.len()).then_some(rank),
            Some(ranks) => ranks.binary_search(&rank).ok(),
        }
    }
}

/// Of a place that [`Plane::neighbour`] gave: it is made.
impl Index<usize> for Neighbours {
    type Output = Neighbour;

    fn index(&self, place: usize) -> &Neighbour {
        #[allow(
            clippy::expect_used,
            reason = "places come from `Plane::neighbour`, which makes it"
        )]
        self.get(place).expect("a neighbour that is made")
    }
}

impl Plane {
    /// What the other ranks need to know of this one.
    pub fn introduction(&self) -> Result<Vec<u8>> {
        let arena = self.arena.as_ref().ok_or_else(|| self.not_introduced(self.rank))?.export()?;
        let introduction = Introduction { choice: self.paths.wish, arena };
        postcard::to_stdvec(&introduction)
            .map_err(|error| self.nonsense(self.rank, &error.to_string()))
    }

    /// Takes in the introductions of all ranks, in rank order.
    pub fn connect(&self, introductions: &[Vec<u8>]) -> Result<()> {
        let mut arenas = Vec::new();
        for (rank, blob) in introductions.iter().enumerate() {
            let introduction: Introduction = postcard::from_bytes(blob)
                .map_err(|error| self.nonsense(rank, &error.to_string()))?;
            if introduction.choice != self.paths.wish {
                let (mine, theirs) = (self.paths.wish, introduction.choice);
                let me = self.rank;
                return Err(Error::Handshake {
                    reason: format!(
                        "rank {me} was started with MP_PATH={mine} and rank {rank} with MP_PATH={theirs}; they must be equal"
                    ),
                });
            }
            let Ok(place) = self.place(rank) else { continue };
            arenas.push(introduction.arena);
            let neighbour = &self.neighbours[place];
            let not_faster = self.paths.choice(self.rank, rank).not_faster.unwrap_or_default();
            tracing::info!(rank = self.rank, peer = rank, path = %neighbour.path, not_faster, "path");
        }
        // A second time would bring the same.
        let _ = self.arenas.set(arenas);
        if let Some(this) = self.this.get().filter(|_| self.nic.is_some()) {
            let this = this.clone();
            self.control.on_letter(move |rank, letter| {
                if let Some(plane) = this.upgrade() {
                    plane.asked_for_link(rank as usize, letter);
                }
            });
        }
        Ok(())
    }

    /// The host's link to a neighbour behind the NIC. The first time it is made, and the neighbour is asked for its side: what
    /// is posted meanwhile waits for that.
    ///
    /// # Errors
    /// [`Error::NoPath`] if the neighbour is not behind the NIC; what the NIC says.
    pub fn link_to(&self, neighbour: usize) -> Result<&Arc<Link>> {
        let behind = &self.neighbours[neighbour].behind;
        let behind = behind.as_ref().ok_or_else(|| self.no_nic(neighbour))?;
        match behind.host.get() {
            Some(host) => Ok(&host.link),
            None => self.made_link(neighbour, behind, &mut lock(&behind.connected)),
        }
    }

    fn made_link<'a>(
        &self,
        neighbour: usize,
        behind: &'a Behind,
        _making: &mut bool,
    ) -> Result<&'a Arc<Link>> {
        if let Some(host) = behind.host.get() {
            return Ok(&host.link);
        }
        let rank = self.neighbours[neighbour].rank;
        let nic = self.nic.as_ref().zip(self.neighbours[neighbour].path.wire());
        let (nic, wire) = nic.ok_or_else(|| self.no_nic(neighbour))?;
        let op = || format!("making a queue pair for rank {rank}");
        let host = nic.host_link(&self.pieces, wire).map_err(refused(op))?;
        let _ = self.neighbours[neighbour].inbox.set(Mailbox::new(&host.memory)?);
        let letter = postcard::to_stdvec(&host.letter());
        let letter = letter.map_err(|error| self.nonsense(self.rank, &error.to_string()))?;
        self.control.write_to(rank, &letter);
        Ok(&behind.host.get_or_init(|| host).link)
    }

    /// A rank has made its side of the link of the two hosts, which may be the answer to this side's letter.
    fn asked_for_link(&self, rank: usize, letter: &[u8]) {
        let Ok(place) = self.place(rank) else { return };
        let neighbour = &self.neighbours[place];
        let (Some(behind), Some(wire)) = (&neighbour.behind, neighbour.path.wire()) else {
            drop(self.breach(place, "a letter, and it is not behind a NIC"));
            return;
        };
        let Ok(Letter { link: address, mailbox }) = postcard::from_bytes(letter) else {
            drop(self.breach(place, "a letter that is none"));
            return;
        };
        let mut connected = lock(&behind.connected);
        if std::mem::replace(&mut *connected, true) {
            drop(self.breach(place, "a second letter"));
            return;
        }
        let link = match self.made_link(place, behind, &mut connected) {
            Ok(link) => link,
            Err(error) => {
                let (rank, host) = (self.rank as u32, self.peer(self.rank).host.clone());
                let how = Loss::Path { detail: error.to_string() };
                return self.control.report(Cause::Lost { rank, host, how });
            }
        };
        let _ = behind.outbox.set(mailbox);
        if let Err(error) = link.connect(&address, wire) {
            // Told and not waited for: by this thread the news of the world come.
            self.path_failed(place, &error);
        }
        drop(connected);
        // What it is to hear has waited, perhaps for nothing but this.
        self.flush_one(place);
    }

    /// The neighbour that is rank `rank` of the world.
    ///
    /// # Errors
    /// [`Error::NoPath`] if it is on another host and there is no NIC; [`Error::Memory`].
    pub fn neighbour(&self, rank: usize) -> Result<usize> {
        let place = self.place(rank)?;
        // The others are all there from the beginning.
        self.neighbours.list.get_or(place, || {
            let inbox = self.common.mailbox(self.rank, rank)?;
            Ok::<_, Error>(Neighbour::new((rank, Path::Direct), Some(inbox)))
        })?;
        Ok(place)
    }

    fn place(&self, rank: usize) -> Result<usize> {
        self.neighbours
            .place(rank)
            .ok_or_else(|| self.no_path(rank, "there is no rank of that number"))
    }

    /// A neighbour behind a NIC that this rank does not have.
    pub fn no_nic(&self, neighbour: usize) -> Error {
        self.no_path(self.neighbours[neighbour].rank, "this rank has no NIC")
    }

    pub fn no_path(&self, rank: usize, reason: &'static str) -> Error {
        let (from, to) = (self.peer(self.rank).host.clone(), self.peer(rank).host.clone());
        Error::NoPath { rank, from, to, reason }
    }

    /// How bytes go to rank `rank` of the world.
    ///
    /// # Errors
    /// As [`neighbour`](Self::neighbour).
    pub fn path(&self, rank: usize) -> Result<Path> {
        let made = self.neighbours.get(self.place(rank)?);
        Ok(made.map_or(Path::Direct, |neighbour| neighbour.path))
    }

    /// The mailbox of a neighbour, for this rank to write to; `None` until one behind the NIC has told where it is.
    pub fn outbox(&self, neighbour: usize) -> Result<Option<Box<dyn Outbox>>> {
        let there = &self.neighbours[neighbour];
        if let Some(behind) = &there.behind {
            let link = self.link_to(neighbour)?;
            let (Some(mailbox), Some(inbox)) = (behind.outbox.get(), there.inbox()) else {
                return Ok(None);
            };
            let (link, taken) = (link.clone(), inbox.echo().clone());
            return Ok(Some(Box::new(FarOutbox::new(neighbour, link, *mailbox, taken))));
        }
        Ok(Some(Box::new(match self.together {
            true => self.common.mailbox(there.rank, self.rank)?,
            false => self.peer_arena(neighbour)?.mailbox(self.directly(neighbour, self.rank))?,
        })))
    }

    /// How many of the ranks below `end` a neighbour reaches directly: each has a mailbox in its arena, in rank order.
    fn directly(&self, neighbour: usize, end: usize) -> usize {
        let rank = self.neighbours[neighbour].rank;
        (0..end).filter(|&other| self.paths.between(rank, other) == Path::Direct).count()
    }

    fn peer_arena(&self, neighbour: usize) -> Result<Arena> {
        let handle = self.arenas.get().and_then(|arenas| arenas.get(neighbour));
        let rank = self.neighbours[neighbour].rank;
        let handle = handle.ok_or_else(|| self.not_introduced(rank))?;
        let failed = match Arena::map(handle, self.directly(neighbour, self.neighbours.len())) {
            Ok(arena) => return Ok(arena),
            Err(error) => error,
        };
        if let Error::Memory { source, .. } = &failed {
            self.suspect(neighbour, source);
        }
        self.news_of_leaving()?;
        Err(failed)
    }
}
