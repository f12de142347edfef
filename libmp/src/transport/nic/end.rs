//! The end of a message whose peer is behind the NIC: what is registered for it, and the way to the other end. The protocol is the one
//! over mapped memory; what changes the peer's memory is a request, which kernels post by themselves (`mp/impl/nic.cuh`), and
//! the host and host streams through the host's link.
//!
//! Signals, and the slots of small messages to a GPU, are in host memory: there one store of the NIC's thread raises them,
//! where GPU memory takes a copy engine.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use gdsync::nic::{Access, Error as NicError, MemoryRegion};
use gdsync::{Buffer, Device, Word64};
use mp_kernels::{Message, NicEnd, PACKET_SLOTS, StepKind};
use serde::{Deserialize, Serialize};

use super::{KernelLinks, Link, NOWHERE, Place, Post};
use crate::data::notice::Notice;
use crate::data::plane::Plane;
use crate::error::Result;
use crate::transport::end::{EndNotice, Handed, Here, Line, Met, Opening, Side};
use crate::transport::state::{EndState, PACKETS_MAX};
use crate::transport::{Call, end};

/// A start of the host with so few bytes takes them along in the entry.
const INLINE: usize = mp_kernels::INLINE_BYTES as usize;
/// Slots begin at multiples of this.
const LINE: u64 = 256;
/// How long what was posted may take when its operation is dropped.
const LAST_POSTS: Duration = Duration::from_secs(1);

/// What the peer is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndOpening {
    /// Of what is kept registered.
    number: u64,
    signal: Place,
    /// Of a receive: where messages go.
    memory: Option<Place>,
    slots: u64,
    stride: u64,
}

pub(crate) struct End {
    /// Of a GPU's end: a state in host memory, whose signal the NIC raises.
    outer: Option<EndState>,
    /// The memory in one piece, if it has several.
    stage: Option<Buffer<u8>>,
    /// Of a send: its memory, registered, if it has bytes.
    source: Option<Arc<MemoryRegion>>,
    opening: EndOpening,
    kernels: Arc<OnceLock<ForKernels>>,
    /// Of the peer's end: what it keeps registered.
    other: OnceLock<u64>,
}

/// What kernels post with.
pub(super) struct ForKernels {
    /// Their links to the peer.
    pub links: Arc<KernelLinks>,
    /// Address of the context that they use: always the same, so that what they post stays in order.
    pub queue: u64,
    pub table: Buffer<NicEnd>,
}

/// Slots of a receiver for messages of up to `len` bytes, and bytes from one to the next: for a GPU, if they are small.
pub(crate) fn slots_of(gpu: bool, side: Side, len: u64) -> (u64, u64) {
    let slotted = gpu && side == Side::Recv && (1..=PACKETS_MAX).contains(&len);
    if slotted { (PACKET_SLOTS, len.next_multiple_of(LINE)) } else { (0, 0) }
}

impl End {
    /// Registers the memory, and the state with the signal in host memory, behind which the slots are.
    pub fn new(
        call: &Call<'_>,
        here: &Here<'_>,
        outer: Option<EndState>,
        (slots, stride): (u64, u64),
    ) -> Result<End> {
        let Call { plane, op, .. } = *call;
        let none = || plane.no_nic(here.neighbour);
        let cut = || plane.pieces.cut_for(here.device(), here.memory.len());
        let stage = match here.memory.whole() {
            Some(_) => None,
            None => Some(cut().map_err(|source| call.failed(source))?),
        };
        let memory = stage.as_ref().or(here.memory.whole()).ok_or_else(none)?;
        let signals = outer.as_ref().unwrap_or(here.state).memory();
        let signals = plane.register(signals, Access::REMOTE_WRITE, op)?.ok_or_else(none)?;
        let signal = Place::of(&signals);
        let mut kept = vec![signals];
        let (mut source, mut target) = (None, None);
        match here.side {
            Side::Send => source = plane.register(memory, Access::LOCAL_READ, op)?.map(Arc::new),
            Side::Recv if slots > 0 => target = Some(Place::at(signal.after(EndState::size(None)))),
            Side::Recv => {
                let region = plane.register(memory, Access::REMOTE_WRITE, op)?;
                target = region.as_ref().map(Place::of);
                kept.extend(region);
            }
        }
        // Its own rank and the peer's drop it.
        let number = plane.keep(kept, 2);
        let signal = Place::at(signal.after(EndState::SIGNAL));
        let opening = EndOpening { number, signal, memory: target, slots, stride };
        let (kernels, other) = (Arc::default(), OnceLock::new());
        let end = End { outer, stage, source, opening, kernels, other };
        if here.is_gpu() {
            // Making memory may wait for kernels, and those of any rank run only later.
            for_kernels(&end.kernels, call, here.neighbour, here.device())?;
        }
        Ok(end)
    }
}

/// What kernels of a device need, made the first time.
fn for_kernels<'a>(
    kernels: &'a OnceLock<ForKernels>,
    call: &Call<'_>,
    neighbour: usize,
    device: &Device,
) -> Result<&'a ForKernels> {
    if let Some(made) = kernels.get() {
        return Ok(made);
    }
    let links = call.plane.kernel_links(neighbour, device, call.op)?;
    let table = call.plane.table(device, &[NicEnd::default()], call.op)?;
    // Two threads may come at once: one's stays.
    Ok(kernels.get_or_init(|| ForKernels { queue: links.next_address(), links, table }))
}

impl end::End for End {
    fn opening(&self) -> Opening {
        Opening::Nic(self.opening.clone())
    }

    fn connect(
        &self,
        call: &Call<'_>,
        here: &Here<'_>,
        other: &EndNotice,
        sent: u64,
        _: u64,
    ) -> Result<Met> {
        let Opening::Nic(other) = &other.opening else {
            // Both sides know the path between them.
            return Err(call.plane.breach(here.neighbour, "an end of a message for another path"));
        };
        let none = || call.plane.no_nic(here.neighbour);
        let failed = |source| call.failed(source);
        let _ = self.other.set(other.number);
        let signals = self.outer.as_ref().unwrap_or(here.state);
        let mine = signals.signal().map_err(failed)?;
        let whole = self.stage.as_ref().or(here.memory.whole()).ok_or_else(none)?;
        let message = || -> gdsync::Result<Message> {
            Ok(Message {
                memory: whole.device_address().unwrap_or_default(),
                len: sent,
                target: if self.opening.slots > 0 { signals.inbox()? } else { 0 },
                mine: mine.device_address()?,
                state: here.state.state()?,
                ..Message::default()
            })
        };
        let data = match (self.source.clone(), other.memory) {
            (Some(region), Some(place)) => {
                Some((region, whole.slice(0..sent as usize).map_err(failed)?, place))
            }
            _ => None,
        };
        let receiver = if here.side == Side::Send { other } else { &self.opening };
        let line = Requests {
            link: call.plane.link_to(here.neighbour)?.clone(),
            neighbour: here.neighbour,
            theirs: Some(other.signal),
            target: other.memory,
            memory_key: self.source.as_ref().map_or(0, |region| region.lkey()),
            data,
            gets: false,
            slots: receiver.slots,
            stride: receiver.stride,
            kernels: self.kernels.clone(),
        };
        Ok(Met {
            message: Ok(message().map_err(failed)?),
            staged: self.stage.is_some(),
            mine,
            line: Arc::new(line),
            moves: here.stage_moves(self.stage.as_ref(), sent).map_err(failed)?,
            slots: None,
            ahead: other.slots,
            held: vec![signals.memory().clone(), whole.clone()],
        })
    }

    fn is_connected(&self, call: &Call<'_>, here: &Here<'_>) -> Result<bool> {
        let kernels = for_kernels(&self.kernels, call, here.neighbour, here.device())?;
        call.plane.are_connected(&kernels.links, call.op)
    }

    fn looked_at(&self) -> Option<gdsync::Result<Word64>> {
        self.outer.as_ref().map(EndState::signal)
    }

    /// What the host has posted is complete or in the queue: the peer need not keep its end.
    fn retire(&self, call: &Call<'_>, here: &Here<'_>) {
        call.plane.close_window(self.opening.number);
        let Some(&other) = self.other.get() else { return };
        match self.kernels.get() {
            Some(kernels) => close(call.plane, here.neighbour, &kernels.links, other),
            // The news comes behind what was posted: notices go through the same queue.
            None => tell_closed(call.plane, here.neighbour, other),
        }
    }
}

/// Tells a neighbour that this rank does not use something of its any more, once what kernels and the host posted is complete.
pub(super) fn close(plane: &Plane, neighbour: usize, links: &KernelLinks, number: u64) {
    let since = Instant::now();
    let host = plane.link(neighbour);
    while !(links.are_idle() && host.is_none_or(|link| link.is_idle().unwrap_or(true))) {
        if since.elapsed() > LAST_POSTS || plane.ended() {
            // The peer keeps it until the world ends.
            return;
        }
        std::thread::yield_now();
    }
    tell_closed(plane, neighbour, number);
}

fn tell_closed(plane: &Plane, neighbour: usize, number: u64) {
    if !plane.ended() {
        // At the end of the world nobody needs to know.
        let _ = plane.tell(neighbour, &Notice::CloseWindow { number });
    }
}

/// Requests that bring a message, put or get, and raise a signal.
pub(super) struct Requests {
    /// That the CPU posts to.
    pub link: Arc<Link>,
    pub neighbour: usize,
    /// What is raised, if anything is.
    pub theirs: Option<Place>,
    /// The other side's memory, for kernels.
    pub target: Option<Place>,
    /// Of the memory here.
    pub memory_key: u32,
    /// For the CPU, of a send with bytes: from where to where.
    pub data: Option<(Arc<MemoryRegion>, Buffer<u8>, Place)>,
    /// Of a window: the other way.
    pub gets: bool,
    /// The receiver's.
    pub slots: u64,
    pub stride: u64,
    pub kernels: Arc<OnceLock<ForKernels>>,
}

impl Line for Requests {
    /// # Errors
    /// If the queue has failed.
    fn tell(&self, kind: StepKind, epoch: u64) -> std::result::Result<Handed, NicError> {
        let value = epoch.to_le_bytes();
        let signal = self.theirs.map(|theirs| Post::Inline { bytes: &value, to: theirs.after(0) });
        let data = self
            .data
            .as_ref()
            .filter(|(_, memory, _)| kind == StepKind::Send && !memory.is_empty());
        let mut inline = [0; INLINE];
        let (data, copied) = match data {
            None => (None, true),
            Some((into, memory, place)) if self.gets => {
                let (from, len) = (place.after(0), memory.len() as u64);
                (Some(Post::Read { from, into, at: 0, len }), false)
            }
            Some((from, memory, place)) => {
                let slot = if self.slots == 0 { 0 } else { (epoch - 1) % self.slots * self.stride };
                let to = place.after(slot as usize);
                let copied = memory.len() <= INLINE;
                let post = match copied {
                    true => {
                        let bytes = &mut inline[..memory.len()];
                        memory.read(bytes)?;
                        Post::Inline { bytes, to }
                    }
                    false => Post::Write { from, at: 0, len: memory.len() as u64, to },
                };
                (Some(post), copied)
            }
        };
        let posted = match (data, signal) {
            (Some(data), Some(signal)) => self.link.post(&[data, signal])?,
            // That there is a buffer: who waits for that sends, and a rank that gives one mostly sends itself in a moment.
            (None, Some(credit)) if kind == StepKind::Post => self.link.post_along(&[credit])?,
            (Some(one), None) | (None, Some(one)) => self.link.post(&[one])?,
            (None, None) => return Ok(Handed::Done),
        };
        Ok(posted
            .map_or(Handed::NoRoom, |posted| Handed::Posted { position: posted.position, copied }))
    }

    fn is_complete(&self, position: u64) -> std::result::Result<bool, NicError> {
        self.link.is_complete(position)
    }

    fn for_kernels(
        &self,
        call: &Call<'_>,
        device: &Device,
        message: &mut Message,
    ) -> Result<Option<Buffer<u8>>> {
        let made = for_kernels(&self.kernels, call, self.neighbour, device)?;
        let [theirs, target] =
            [self.theirs, self.target].map(|place| place.map_or(NOWHERE, |place| place.after(0)));
        let end = NicEnd {
            message: Message { theirs: 0, nic: 0, ..*message },
            queue: made.queue,
            theirs: theirs.address,
            target: target.address,
            slots: self.slots,
            stride: self.stride,
            theirs_key: theirs.rkey,
            target_key: target.rkey,
            memory_key: self.memory_key,
            reserved: 0,
        };
        made.table.write(&[end]).map_err(|source| call.failed(source))?;
        message.nic = made.table.device_address().unwrap_or_default();
        Ok(Some(made.table.bytes()))
    }
}
