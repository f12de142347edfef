//! The end of a message whose peer maps memory of this rank: it raises the signal here by itself and, on the same kind of device, moves
//! messages into the buffer here. From a CPU to a GPU the receiver fetches the message from a copy that the sender makes.

use std::sync::{Arc, OnceLock};

use gdsync::nic::Error as NicError;
use gdsync::{Buffer, Device, PeerHandle, PeerMemory, Word64};
use mp_kernels::{Message, PACKET_SLOTS, StepKind};
use serde::{Deserialize, Serialize};

use crate::data::pieces::Pieces;
use crate::error::{Error, Result};
use crate::transport::end::{EndNotice, Handed, Here, IN_ONE, Line, Met, Opening, Side};
use crate::transport::state::{EndState, packets};
use crate::transport::{Call, end};

use super::Slots;

/// What the peer maps of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndOpening {
    pub state: PeerHandle,
    /// A GPU's state in host memory.
    pub outer: Option<PeerHandle>,
    /// Of a receive the buffer, of a send what a GPU fetches the message from.
    pub memory: Option<PeerHandle>,
    /// Of a receive in pieces: memory with their handles, for a CPU.
    pub pieces: Option<PeerHandle>,
}

pub(crate) struct End {
    /// Of a GPU's end: a state in host memory, whose signal a CPU raises.
    outer: Option<EndState>,
    /// The memory in one piece, if the peer cannot map it or not all of it.
    stage: Option<Buffer<u8>>,
    /// Of a receive in pieces: their handles, for the sender.
    directory: Option<Buffer<u8>>,
    /// Of a send from host memory: where the message waits if a GPU is to fetch it.
    fetched: Option<Buffer<u8>>,
    opening: EndOpening,
}

/// For messages of how many bytes a receive has slots for packets. (The peer's kind of device is not known yet; if it is another they
/// stay unused.)
pub(crate) fn inbox(side: Side, device: &Device, len: u64) -> Option<u64> {
    (side == Side::Recv && packets(device, device.as_cuda().is_some(), len)).then_some(len)
}

impl End {
    pub fn new(
        call: &Call<'_>,
        here: &Here<'_>,
        outer: Option<EndState>,
        has_inbox: bool,
    ) -> Result<End> {
        let Call { plane, .. } = *call;
        let (memory, device, gpu) = (here.memory, here.device(), here.is_gpu());
        let failed = |source| call.failed(source);
        let in_process = plane.is_this_process(here.rank);
        let handle =
            |memory: &Buffer<u8>| memory.export().ok().filter(|it| in_process || it.travels());
        let cut = || plane.pieces.cut_for(device, memory.len()).map_err(failed);
        let (mut stage, mut directory, mut opened) = (None, None, None);
        match (memory.whole(), here.side) {
            // Nothing has to be mapped: there are no bytes, or they come as packets. (A GPU sends none to a CPU.)
            (Some(_), Side::Recv) if memory.is_empty() || (gpu && has_inbox) => {}
            (Some(whole), Side::Recv) => {
                opened = handle(whole);
                if opened.is_none() {
                    stage = Some(cut()?);
                }
            }
            (None, Side::Recv) if !gpu && memory.iter().all(|it| handle(it).is_some()) => {
                directory = Some(memory.directory(&plane.pieces).map_err(failed)?);
                if a_gpu_may_be_here() {
                    stage = Some(cut()?);
                }
            }
            (Some(_), Side::Send) => {}
            (None, Side::Send) if !gpu => {}
            (None, _) => stage = Some(cut()?),
        }
        let fetches = here.side == Side::Send && !gpu && !memory.is_empty() && a_gpu_may_be_here();
        let fetched = fetches.then(cut).transpose()?;
        let export =
            |buffer: Option<&Buffer<u8>>| buffer.map(Buffer::export).transpose().map_err(failed);
        let memory = match (here.side, opened) {
            (_, Some(opened)) => Some(opened),
            (Side::Recv, None) => export(stage.as_ref().filter(|_| !(gpu && has_inbox)))?,
            (Side::Send, None) => export(fetched.as_ref())?,
        };
        let opening = EndOpening {
            state: here.state.memory().export().map_err(failed)?,
            outer: export(outer.as_ref().map(EndState::memory))?,
            memory,
            pieces: export(directory.as_ref())?,
        };
        Ok(End { outer, stage, directory, fetched, opening })
    }
}

impl end::End for End {
    fn opening(&self) -> Opening {
        Opening::Mapped(self.opening.clone())
    }

    fn connect(
        &self,
        call: &Call<'_>,
        here: &Here<'_>,
        other: &EndNotice,
        sent: u64,
        posted: u64,
    ) -> Result<Met> {
        let Opening::Mapped(EndOpening { state, outer, memory: other_memory, pieces }) =
            &other.opening
        else {
            // Both sides know the path between them.
            return Err(call.plane.breach(here.neighbour, "an end of a message for another path"));
        };
        let failed = |source| call.failed(source);
        let mismatch = |reason: String| Error::Mismatch { op: (call.op)(), reason };
        let (device, gpu) = (here.device(), here.is_gpu());
        let map = |handle: &PeerHandle| Ok(PeerMemory::map(handle, device).map_err(failed)?.buffer);
        // What a CPU is to write must be host memory: a GPU's end then waits on its outer state.
        let theirs = match (outer, gpu) {
            (Some(outer), false) => map(outer)?,
            _ => map(state)?,
        };
        let waits = match &self.outer {
            Some(outer) if !other.gpu => outer,
            _ => here.state,
        };
        let mut held = vec![theirs.clone()];
        let theirs = EndState::new(theirs);
        let as_packets = packets(device, other.gpu, posted);
        // From a CPU to a GPU; the receiver fetches from the sender. Otherwise the sender writes the receiver's buffer.
        let fetched = gpu != other.gpu && gpu == (here.side == Side::Recv);
        let offered = match here.side {
            Side::Send => self.fetched.is_some(),
            Side::Recv => other_memory.is_some(),
        };
        if fetched && !offered && sent > 0 {
            return Err(mismatch("it goes from the memory of a host to that of a GPU, and the sending process sees no GPU driver, so it made no place from which a GPU could fetch".into()));
        }
        let opens = (here.side == Side::Send) != fetched && !as_packets && sent > 0;
        // A CPU moves straight into the pieces of a receiver.
        let target: Option<Pieces> = match (pieces, other_memory) {
            (Some(directory), _) if opens && !gpu => {
                Pieces::map(directory, device).map_err(failed)?
            }
            (_, Some(memory)) if opens => Some(map(memory)?.into()),
            _ => None,
        };
        if opens && target.as_ref().is_none_or(|target| (target.len() as u64) < sent) {
            return Err(mismatch(format!(
                "the receiver has not opened the {sent} bytes that it has posted"
            )));
        }
        // A receiver with a stage and a directory is sent to the one by GPUs, to the other by CPUs.
        let stage = self.stage.as_ref().filter(|_| other.gpu || self.directory.is_none());
        let whole = stage.or(here.memory.whole());
        let in_one = target.as_ref().is_none_or(|target| target.whole().is_some());
        let target_in_one = target.as_ref().and_then(Pieces::whole);
        held.extend(target_in_one.cloned().into_iter().chain(stage.cloned()));
        let message = || -> gdsync::Result<Message> {
            let inbox = match here.side {
                _ if !as_packets => 0,
                Side::Send => theirs.inbox()?,
                Side::Recv => here.state.inbox()?,
            };
            Ok(Message {
                memory: whole.and_then(Buffer::device_address).unwrap_or_default(),
                len: sent,
                target: target_in_one.and_then(Buffer::device_address).unwrap_or_default(),
                inbox,
                mine: waits.signal()?.device_address()?,
                theirs: theirs.signal()?.device_address()?,
                state: here.state.state()?,
                ..Message::default()
            })
        };
        let message = message().map_err(failed)?;
        let slots = match here.side {
            _ if !as_packets || gpu => None,
            Side::Send => Some(&theirs),
            Side::Recv => Some(here.state),
        };
        let receives = here.side == Side::Recv;
        let slots =
            slots.map(|state| Slots::new(state.slots()?, here.memory, sent as usize, receives));
        let slots = slots.transpose().map_err(failed)?;
        let (moves, ahead) = match (&self.fetched, &target, here.side) {
            _ if slots.is_some() => (Ok(Vec::new()), PACKET_SLOTS),
            (Some(place), _, _) if fetched => (here.memory.moves_to(&place.clone().into()), 1),
            (_, Some(target), Side::Send) if !gpu => (here.memory.moves_to(target), 0),
            _ => (here.stage_moves(stage, sent), 0),
        };
        Ok(Met {
            message: if in_one && whole.is_some() { Ok(message) } else { Err(IN_ONE) },
            staged: self.stage.is_some(),
            mine: waits.signal().map_err(failed)?,
            line: Arc::new(theirs.signal().map_err(failed)?),
            moves: moves.map_err(failed)?,
            slots,
            ahead,
            held,
        })
    }
}

/// The other end's signal, mapped here.
impl Line for Word64 {
    fn tell(&self, _: StepKind, epoch: u64) -> std::result::Result<Handed, NicError> {
        Ok(self.store(epoch).map(|()| Handed::Done)?)
    }

    fn prefetch(&self) {
        self.prefetch_for_write();
    }
}

/// Whether a peer's memory may be a GPU's: whether the machine has a GPU driver, without starting it.
fn a_gpu_may_be_here() -> bool {
    static DRIVER: OnceLock<bool> = OnceLock::new();
    *DRIVER.get_or_init(|| {
        ["/dev/nvidiactl", "/dev/dxg"].iter().any(|file| std::path::Path::new(file).exists())
    })
}
