//! The ends of prepared operations. An end of a message opens something to its peer ([`End`]); once the peer's is known there is a way
//! to it ([`Met`]), by which host, streams and kernels bring messages and tell each other ([`Line`]). An operation on a window has
//! the same way, known at once.

use std::sync::Arc;

use gdsync::nic::Error as NicError;
use gdsync::{Buffer, Device, Space, Word64};
use mp_kernels::{Message, StepKind};
use serde::{Deserialize, Serialize};

use super::state::EndState;
use super::{Call, Slots, mapped, nic};
use crate::data::path::Path;
use crate::data::pieces::{Move, Pieces};
use crate::error::{Error, Result};

/// Which side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Send,
    Recv,
}

/// What an operation on a window does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OneSidedKind {
    Put {
        signals: bool,
    },
    Get,
    /// For a signal of this rank.
    Wait,
}

impl OneSidedKind {
    /// As which side of a message it is carried out.
    pub fn side(self) -> Side {
        match self {
            OneSidedKind::Put { .. } | OneSidedKind::Get => Side::Send,
            OneSidedKind::Wait => Side::Recv,
        }
    }
}

/// An operation on the memory of a window and on a signal of it.
pub(crate) struct OneSided {
    pub kind: OneSidedKind,
    /// Byte of the window's memory.
    pub at: usize,
    /// What is put, or got into.
    pub memory: Buffer<u8>,
    pub signal: Option<usize>,
}

impl OneSided {
    /// What kernels take of it, without the other side.
    pub fn message(&self, state: &EndState, mine: &Word64) -> gdsync::Result<Message> {
        Ok(Message {
            memory: self.memory.device_address().unwrap_or_default(),
            len: self.memory.len() as u64,
            mine: mine.device_address()?,
            theirs: state.nobodys()?.device_address()?,
            state: state.state()?,
            ..Message::default()
        })
    }
}

/// What the peer tells of its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndNotice {
    pub len: u64,
    pub gpu: bool,
    pub number: u32,
    pub opening: Opening,
}

/// How the peer gets to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "one for each end, and only on its way")]
pub(crate) enum Opening {
    Mapped(mapped::EndOpening),
    Nic(nic::EndOpening),
}

/// One end of a message, as its own rank prepared it.
pub(crate) struct Here<'a> {
    pub side: Side,
    /// The peer's place among the neighbours, and its rank.
    pub neighbour: usize,
    pub rank: usize,
    pub memory: &'a Pieces,
    pub state: &'a EndState,
}

impl Here<'_> {
    pub fn device(&self) -> &Device {
        self.memory.device()
    }

    pub fn is_gpu(&self) -> bool {
        self.device().as_cuda().is_some()
    }

    /// What is moved between the memory and its stage for a message of so many bytes.
    pub fn stage_moves(&self, stage: Option<&Buffer<u8>>, sent: u64) -> gdsync::Result<Vec<Move>> {
        let Some(stage) = stage else { return Ok(Vec::new()) };
        match self.side {
            Side::Send => self.memory.moves_to(&stage.clone().into()),
            Side::Recv => Pieces::from(stage.slice(0..sent as usize)?).moves_to(self.memory),
        }
    }
}

/// What an end of a message has of the transport.
pub(crate) trait End: Send + Sync {
    /// What the peer is told.
    fn opening(&self) -> Opening;

    /// The way to the peer's end, for messages of `sent` bytes into `posted` ones.
    fn connect(
        &self,
        call: &Call<'_>,
        here: &Here<'_>,
        other: &EndNotice,
        sent: u64,
        posted: u64,
    ) -> Result<Met>;

    /// Whether what kernels go through is connected; asks the peer for that the first time.
    fn is_connected(&self, _: &Call<'_>, _: &Here<'_>) -> Result<bool> {
        Ok(true)
    }

    /// Of a receive on a GPU, a signal that the host has to look at before kernels wait for the message: one that waited could keep
    /// what brings it from the GPU.
    fn looked_at(&self) -> Option<gdsync::Result<Word64>> {
        None
    }

    /// Nothing starts the operation any more.
    fn retire(&self, _: &Call<'_>, _: &Here<'_>) {}
}

/// Why a kernel of the user cannot move some messages.
pub(crate) const IN_ONE: &str = "a kernel moves a message in one piece, and one side of this has several or memory that the other cannot map";

/// The way from one end to the other.
pub(crate) struct Met {
    /// For kernels, without what ends their waits, or why they cannot use it.
    pub message: std::result::Result<Message, &'static str>,
    /// Whether what `moves` says has to be moved besides, which a kernel of the user cannot do.
    pub staged: bool,
    /// The signal of this end.
    pub mine: Word64,
    pub line: Arc<dyn Line>,
    /// What this rank moves: of a send before the other end is told, of a receive when the message has come.
    pub moves: Vec<Move>,
    /// Between CPUs, of small messages: the slots through which they go, and then nothing is moved besides.
    pub slots: Option<Slots>,
    /// Messages that may be on their way beyond those that the other end has posted or taken.
    pub ahead: u64,
    /// Memory that is used as long as the end lives.
    pub held: Vec<Buffer<u8>>,
}

/// How far telling the other end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handed {
    /// There is no room now.
    NoRoom,
    /// The entry at this position says it, and tells when it is complete; until then the source may be read unless it was
    /// copied.
    Posted { position: u64, copied: bool },
    /// It knows.
    Done,
}

/// What leads from an end to the other one.
pub(crate) trait Line: Send + Sync {
    /// By the CPU: brings a send's message, unless it was moved, and raises the other end's signal to `epoch`. Release: whoever
    /// sees the signal sees the message.
    fn tell(&self, kind: StepKind, epoch: u64) -> std::result::Result<Handed, NicError>;

    /// A hint that the other end will be told soon.
    fn prefetch(&self) {}

    /// Whether the entry at this position is complete.
    fn is_complete(&self, _: u64) -> std::result::Result<bool, NicError> {
        Ok(true)
    }

    /// Completes what kernels take, which has everything else by now. What they use for it.
    fn for_kernels(&self, _: &Call<'_>, _: &Device, _: &mut Message) -> Result<Option<Buffer<u8>>> {
        Ok(None)
    }
}

/// Memory of a new end: its counters and its signal, and what the path between the two ranks needs besides.
pub(crate) struct NewEnd {
    pub state: EndState,
    pub end: Box<dyn End>,
}

/// Makes an end of a message of `memory` with a rank.
pub(crate) fn open(
    call: &Call<'_>,
    side: Side,
    neighbour: usize,
    rank: usize,
    memory: &Pieces,
) -> Result<NewEnd> {
    let direct = call.plane.path(rank)? == Path::Direct;
    let (device, len) = (memory.device(), memory.len() as u64);
    let gpu = device.as_cuda().is_some();
    // What a CPU or a NIC raises must be host memory.
    let outer = |behind: u64| {
        let size = EndState::size(None) + behind as usize;
        let outer = gpu.then(|| call.plane.pieces.cut(device, Space::Pinned, size));
        outer.transpose().map(|outer| outer.map(EndState::new))
    };
    let failed = |source| call.failed(source);
    let state = |inbox: Option<u64>| {
        let state = call.plane.pieces.cut_for(device, EndState::size(inbox)).map_err(failed)?;
        Ok::<_, Error>(EndState::new(state))
    };
    if direct {
        let inbox = mapped::inbox(side, device, len);
        let state = state(inbox)?;
        let here = Here { side, neighbour, rank, memory, state: &state };
        let end = mapped::End::new(call, &here, outer(0).map_err(failed)?, inbox.is_some())?;
        Ok(NewEnd { end: Box::new(end), state })
    } else {
        let slots = nic::slots_of(gpu, side, len);
        let state = state(None)?;
        let here = Here { side, neighbour, rank, memory, state: &state };
        let end = nic::End::new(call, &here, outer(slots.0 * slots.1).map_err(failed)?, slots)?;
        Ok(NewEnd { end: Box::new(end), state })
    }
}
