//! The ranks that a rank reaches: how they are introduced to each other, and on which path they are.

use std::ops::Index;
use std::sync::{Arc, Mutex, OnceLock};

use gdsync::PeerHandle;
use gdsync::path::PathChoice;
use serde::{Deserialize, Serialize};

use super::Plane;
use super::post::State;
use crate::data::arena::Arena;
use crate::data::mailbox::Mailbox;
use crate::data::path::Path;
use crate::data::sparse::Sparse;
use crate::error::{Error, Result};
use crate::transport::nic::{Link, LinkAddress, NicIntroduction, RemoteArena, refused};

/// What a rank tells the others of its data plane.
#[derive(Serialize, Deserialize)]
struct Introduction {
    choice: PathChoice,
    arena: PeerHandle,
    nic: Option<NicIntroduction>,
}

/// A rank that this one reaches.
pub(crate) struct Neighbour {
    pub rank: usize,
    pub path: Path,
    pub inbox: Mailbox,
    /// Through the NIC: the host's link, and its arena once it has told.
    pub link: Option<Arc<Link>>,
    pub remote: OnceLock<RemoteArena>,
    pub state: Mutex<State>,
}

impl Neighbour {
    pub fn new((rank, path): (usize, Path), inbox: Mailbox, link: Option<Arc<Link>>) -> Neighbour {
        Neighbour { rank, path, inbox, link, remote: OnceLock::new(), state: Mutex::default() }
    }
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
        let nic = self.nic.as_ref().map(|nic| {
            let links: Vec<Option<LinkAddress>> = self
                .neighbours
                .made()
                .map(|(_, neighbour)| neighbour.link.as_ref().map(|link| link.address()))
                .collect();
            nic.introduction(links)
        });
        let arena = self.arena.as_ref().ok_or_else(|| self.not_introduced(self.rank))?.export()?;
        let introduction = Introduction { choice: self.paths.wish, arena, nic };
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
            let (Some(link), Some(wire)) = (&neighbour.link, neighbour.path.wire()) else {
                continue;
            };
            let nic = introduction.nic.ok_or_else(|| self.not_introduced(rank))?;
            let _ = neighbour.remote.set(nic.arena());
            let address = nic.links.get(self.own_place()?).and_then(Option::as_ref);
            let address = address.ok_or_else(|| self.not_introduced(rank))?;
            let op = || format!("connecting to rank {rank} on {}", self.peer(rank).host);
            if let Err(error) = link.connect(address, wire) {
                self.news_of_leaving()?;
                return Err(refused(op)(error));
            }
        }
        // A second time would bring the same.
        let _ = self.arenas.set(arenas);
        Ok(())
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
            Ok::<_, Error>(Neighbour::new((rank, Path::Direct), inbox, None))
        })?;
        Ok(place)
    }

    fn place(&self, rank: usize) -> Result<usize> {
        self.neighbours.place(rank).ok_or_else(|| {
            self.no_path(rank, "the software NIC connects worlds of at most 256 ranks")
        })
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

    /// The mailbox of a neighbour that is not behind the NIC, for this rank to write to.
    pub fn outbox(&self, neighbour: usize) -> Result<Mailbox> {
        if self.together {
            return self.common.mailbox(self.neighbours[neighbour].rank, self.rank);
        }
        self.peer_arena(neighbour)?.mailbox(self.place(self.rank)?)
    }

    /// Where this rank's mailboxes are at the others.
    pub fn own_place(&self) -> Result<usize> {
        self.place(self.rank)
    }

    fn peer_arena(&self, neighbour: usize) -> Result<Arena> {
        let handle = self.arenas.get().and_then(|arenas| arenas.get(neighbour));
        let rank = self.neighbours[neighbour].rank;
        let handle = handle.ok_or_else(|| self.not_introduced(rank))?;
        let failed = match Arena::map(handle, self.neighbours.len()) {
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
