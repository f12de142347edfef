//! What the ranks of an exchange tell each other, and whether it fits together. Nothing here reaches any memory.

use gdsync::{Buffer, Device};
use serde::{Deserialize, Serialize};

use super::field::{Field, Placed};
use super::{NEIGHBOURS_MAX, Neighbour};
use crate::communicator::Communicator;
use crate::data::Path;
use crate::data::plane::Plane;

/// Buffers begin at multiples of this.
const ALIGN: u64 = 256;

/// What a rank tells the others; the reason if it cannot take part.
pub(super) type Told = std::result::Result<Opening, String>;

#[derive(Serialize, Deserialize)]
pub(super) struct Opening {
    pub gpu: bool,
    pub regions: usize,
    pub neighbours: Vec<Neighbour>,
    pub fields: Vec<Vec<Border>>,
}

/// One border of a field, as its owner sees it.
#[derive(Serialize, Deserialize)]
pub(super) struct Border {
    /// Which of the owner's regions it is in.
    pub region: usize,
    pub send: Placed,
    pub receive: Placed,
    /// Where in the owner's buffers it is received, if not in the ghosts.
    pub inbox: Option<u64>,
}

/// Memory in the order in which it is asked for.
#[derive(Default)]
struct Layout(u64);

impl Layout {
    fn take(&mut self, bytes: u64) -> u64 {
        let at = self.0;
        self.0 = (at + bytes).next_multiple_of(ALIGN);
        at
    }
}

/// A rank's own side before anybody has heard of it.
pub(super) struct Own {
    pub opening: Opening,
    pub regions: Vec<Buffer<u8>>,
    /// For each field and neighbour, where in the own buffers it is collected for the NIC.
    pub outboxes: Vec<Vec<Option<u64>>>,
    pub buffers: u64,
}

impl Own {
    pub fn new(
        communicator: &Communicator,
        plane: &Plane,
        device: &Device,
        neighbours: &[Neighbour],
        fields: &[Field],
    ) -> std::result::Result<Own, String> {
        if neighbours.len() > NEIGHBOURS_MAX {
            let neighbours = neighbours.len();
            return Err(format!("{neighbours} neighbours; at most {NEIGHBOURS_MAX} are possible"));
        }
        let mut far = Vec::new();
        for (number, neighbour) in neighbours.iter().enumerate() {
            if neighbours[..number].contains(neighbour) {
                return Err(format!("{neighbour:?} twice: ways to it have different numbers"));
            }
            let rank =
                communicator.world_rank(neighbour.rank).map_err(|error| error.to_string())?;
            far.push(plane.path(rank).map_err(|error| error.to_string())? != Path::Direct);
        }
        let mut regions: Vec<Buffer<u8>> = Vec::new();
        let (mut told, mut outboxes, mut layout) = (Vec::new(), Vec::new(), Layout::default());
        for (number, field) in fields.iter().enumerate() {
            let of_field = |reason: String| format!("field {number}: {reason}");
            if field.borders.len() != neighbours.len() {
                let (borders, neighbours) = (field.borders.len(), neighbours.len());
                return Err(of_field(format!("{borders} borders with {neighbours} neighbours")));
            }
            if field.memory.device().ordinal() != device.ordinal() {
                return Err(of_field(format!(
                    "it belongs to {}, and the exchange to {device}",
                    field.memory.device()
                )));
            }
            let same = |region: &Buffer<u8>| {
                region.device_address() == field.memory.device_address()
                    && region.len() == field.memory.len()
            };
            let region = regions.iter().position(same).unwrap_or_else(|| {
                regions.push(field.memory.clone());
                regions.len() - 1
            });
            let (mut borders, mut collected) = (Vec::new(), Vec::new());
            for ((send, receive), far) in field.borders.iter().zip(&far) {
                let send = field.place(send).map_err(of_field)?;
                let receive = field.place(receive).map_err(of_field)?;
                let buffered = if *far { !receive.is_compact() } else { field.buffered };
                let inbox = buffered.then(|| layout.take(receive.bytes()));
                let collect = *far && !send.is_compact();
                collected.push(collect.then(|| layout.take(send.bytes())));
                borders.push(Border { region, send, receive, inbox });
            }
            told.push(borders);
            outboxes.push(collected);
        }
        let opening = Opening {
            gpu: device.as_cuda().is_some(),
            regions: regions.len(),
            neighbours: neighbours.to_vec(),
            fields: told,
        };
        Ok(Own { opening, regions, outboxes, buffers: layout.0 })
    }
}

/// For each neighbour of this rank which neighbour of that rank it is, if all agree on who they are and what goes between them.
pub(super) fn agree(all: &[Opening], rank: usize) -> std::result::Result<Vec<usize>, String> {
    let mut found = Vec::new();
    // All ranks find the same, so that none goes on alone.
    for (here, told) in all.iter().enumerate() {
        let kind = |told: &Opening| (told.gpu, told.regions, told.fields.len());
        if kind(told) != kind(&all[0]) {
            let of = |(gpu, regions, fields)| {
                let device = if gpu { "a GPU" } else { "the host" };
                format!("{fields} fields in {regions} regions of {device}")
            };
            let (first, here_has) = (of(kind(&all[0])), of(kind(told)));
            return Err(format!("rank 0 has {first}, rank {here} has {here_has}"));
        }
        for (number, neighbour) in told.neighbours.iter().enumerate() {
            let there = neighbour.rank;
            let other = Neighbour { rank: here, here: neighbour.there, there: neighbour.here };
            let peer = all.get(there).ok_or_else(|| format!("there is no rank {there}"))?;
            let Some(back) = peer.neighbours.iter().position(|known| *known == other) else {
                return Err(format!(
                    "rank {here} has rank {there} as a neighbour ({neighbour:?}), which has no {other:?}"
                ));
            };
            for (field, (mine, theirs)) in told.fields.iter().zip(&peer.fields).enumerate() {
                let sent = mine[number].send.extents();
                let expected = theirs[back].receive.extents();
                if sent != expected {
                    return Err(format!(
                        "field {field}: rank {here} sends rank {there} rows of {} bytes, {} and {} of them, and that \
                         expects rows of {}, {} and {}",
                        sent[0], sent[1], sent[2], expected[0], expected[1], expected[2]
                    ));
                }
            }
            if here == rank {
                found.push(back);
            }
        }
    }
    Ok(found)
}
