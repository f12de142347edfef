//! An endpoint whose peer is behind the NIC: what is registered for it, and the way to the other end. The protocol is the one
//! over mapped memory; what changes the peer's memory is a request, which kernels post by themselves (`mp/impl/nic.cuh`), and
//! the host and host streams through the host's link.
//!
//! Signals, and the slots of small messages to a GPU, are in host memory: there one store of the NIC's thread raises them,
//! where GPU memory takes a copy engine.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use gdsync::Buffer;
use gdsync::nic::{Access, Error as NicError, MemoryRegion};
use mp_kernels::{Message, NicEnd, PACKET_SLOTS, StepKind};
use serde::{Deserialize, Serialize};

use super::Side;
use super::host::Told;
use super::state::{EndState, PACKETS_MAX};
use crate::data::nic::{Link, NOWHERE, OpenedLink, Place, Post};
use crate::data::notice::Notice;
use crate::data::plane::Plane;
use crate::error::Result;
use crate::transport::NicRoute;

/// A start of the host with so few bytes takes them along in the entry.
const INLINE: usize = mp_kernels::INLINE_BYTES as usize;
/// Slots begin at multiples of this.
const LINE: u64 = 256;
/// How long what was posted may take when its operation is dropped.
const LAST_POSTS: Duration = Duration::from_secs(1);

/// What an end has registered.
pub(crate) struct Registered {
    /// Of a send: its memory, if it has bytes.
    source: Option<Arc<MemoryRegion>>,
    opening: NicOpening,
    kernels: OnceLock<ForKernels>,
}

/// What kernels post with.
pub(crate) struct ForKernels {
    /// Their link to the peer.
    pub link: Arc<OpenedLink>,
    /// The `mp::NicEnd`.
    pub table: Buffer<NicEnd>,
}

/// What the peer is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NicOpening {
    /// Of what is kept registered.
    pub number: u64,
    signal: Place,
    /// Of a receive: where messages go.
    memory: Option<Place>,
    slots: u64,
    stride: u64,
}

/// The host's way to the other end.
pub(crate) struct NicWay {
    link: Arc<Link>,
    /// What is raised, if anything is.
    theirs: Option<Place>,
    /// Of a send with bytes: from where to where.
    data: Option<(Arc<MemoryRegion>, Buffer<u8>, Place)>,
    /// Of a window: the other way.
    gets: bool,
    slots: u64,
    stride: u64,
}

/// Slots of a receiver for messages of up to `len` bytes, and bytes from one to the next: for a GPU, if they are small.
pub(crate) fn slots_of(gpu: bool, side: Side, len: u64) -> (u64, u64) {
    let slotted = gpu && side == Side::Recv && (1..=PACKETS_MAX).contains(&len);
    if slotted { (PACKET_SLOTS, len.next_multiple_of(LINE)) } else { (0, 0) }
}

impl Registered {
    /// Registers the memory, and the state with the signal in host memory, behind which the slots are.
    pub fn new(
        plane: &Plane,
        neighbour: usize,
        side: Side,
        memory: &Buffer<u8>,
        signals: &EndState,
        (slots, stride): (u64, u64),
        op: &dyn Fn() -> String,
    ) -> Result<Registered> {
        let signals = plane.register(signals.memory(), Access::REMOTE_WRITE, op)?;
        let signal = signals.as_ref().map(Place::of);
        let signal = signal.ok_or_else(|| plane.no_nic(neighbour))?;
        let mut kept: Vec<MemoryRegion> = signals.into_iter().collect();
        let (mut source, mut target) = (None, None);
        match side {
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
        let opening = NicOpening { number, signal, memory: target, slots, stride };
        Ok(Registered { source, opening, kernels: OnceLock::new() })
    }

    pub fn opening(&self) -> &NicOpening {
        &self.opening
    }

    /// What kernels need, made the first time. `device` is that of the memory.
    pub fn for_kernels(
        &self,
        plane: &Plane,
        neighbour: usize,
        device: &gdsync::Device,
        op: &dyn Fn() -> String,
    ) -> Result<&ForKernels> {
        if let Some(made) = self.kernels.get() {
            return Ok(made);
        }
        let link = plane.kernel_link(neighbour, device, op)?;
        let table = plane.table(device, &[NicEnd::default()], op)?;
        // Two threads may come at once: one's stays.
        Ok(self.kernels.get_or_init(|| ForKernels { link, table }))
    }

    /// What kernels need of a peer.
    pub fn end(&self, side: Side, message: &Message, other: &NicOpening) -> Option<NicEnd> {
        let queue = self.kernels.get()?.link.view.as_ref()?.device_address()?;
        let to_receiver = if side == Side::Send { other } else { &self.opening };
        let memory_key = self.source.as_ref().map_or(0, |region| region.lkey());
        let slots = (to_receiver.slots, to_receiver.stride);
        Some(end_of(message, queue, (Some(other.signal), other.memory), slots, memory_key))
    }

    /// Whether messages are taken out of slots here.
    pub fn has_slots(&self) -> bool {
        self.opening.slots > 0
    }

    /// The way of the host for messages of `memory`; `link` is the host's.
    pub fn way(&self, link: Arc<Link>, memory: Buffer<u8>, other: &NicOpening) -> NicWay {
        let NicOpening { signal: theirs, memory: target, slots, stride, .. } = *other;
        let data = self.source.clone().zip(target);
        let data = data.map(|(region, place)| (region, memory, place));
        NicWay { link, theirs: Some(theirs), data, gets: false, slots, stride }
    }

    /// Nothing starts it any more, and what the host has posted is complete or in the queue: the peer need not keep its end.
    pub fn retire(&self, plane: &Plane, neighbour: usize, other: Option<&NicOpening>) {
        plane.close_window(self.opening.number);
        let Some(other) = other else { return };
        match self.kernels.get() {
            Some(kernels) => close(plane, neighbour, &kernels.link.link, other.number),
            // The news comes behind what was posted: notices go through the same queue.
            None => tell_closed(plane, neighbour, other.number),
        }
    }
}

/// Tells a neighbour that this rank does not use something of its any more, once what kernels and the host posted is complete.
pub(crate) fn close(plane: &Plane, neighbour: usize, link: &Link, number: u64) {
    let since = Instant::now();
    let host = plane.link(neighbour);
    let is_idle = |link: &Link| link.is_idle().unwrap_or(true);
    while !(is_idle(link) && host.is_none_or(|link| is_idle(link))) {
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

/// What kernels need for a put into a window, or a get from one; there is room for every start.
pub(crate) fn end_of_window(route: &NicRoute, message: &Message) -> Option<NicEnd> {
    let queue = route.link.view.as_ref()?.device_address()?;
    let target = route.data.as_ref().map(|(_, place)| *place);
    let memory_key = route.data.as_ref().map_or(0, |(region, _)| region.lkey());
    Some(end_of(message, queue, (route.word, target), (u64::MAX, 0), memory_key))
}

fn end_of(
    message: &Message,
    queue: u64,
    (theirs, target): (Option<Place>, Option<Place>),
    (slots, stride): (u64, u64),
    memory_key: u32,
) -> NicEnd {
    let [theirs, target] =
        [theirs, target].map(|place| place.map_or(NOWHERE, |place| place.after(0)));
    NicEnd {
        message: Message { theirs: 0, nic: 0, ..*message },
        queue,
        theirs: theirs.address,
        target: target.address,
        slots,
        stride,
        theirs_key: theirs.rkey,
        target_key: target.rkey,
        memory_key,
        reserved: 0,
    }
}

impl NicWay {
    /// The way of the host for a put of `memory` into a window, or a get of it; `link` is the host's.
    pub fn of_window(link: Arc<Link>, route: NicRoute, memory: Buffer<u8>, gets: bool) -> NicWay {
        let data = route.data.map(|(region, place)| (region, memory, place));
        NicWay { link, theirs: route.word, data, gets, slots: u64::MAX, stride: 0 }
    }

    /// Messages that may be on their way beyond those that the receiver has posted or taken.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// Posts what raises the peer's signal, or the message and that.
    ///
    /// # Errors
    /// If the queue has failed.
    pub fn post(&self, kind: StepKind, epoch: u64) -> std::result::Result<Told, NicError> {
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
                    false => Post::Write { from, len: memory.len() as u64, to },
                };
                (Some(post), copied)
            }
        };
        let posted = match (data, signal) {
            (Some(data), Some(signal)) => self.link.post(&[data, signal])?,
            (Some(one), None) | (None, Some(one)) => self.link.post(&[one])?,
            (None, None) => return Ok(Told::Yes),
        };
        Ok(posted.map_or(Told::NoRoom, |posted| Told::Posted { position: posted.position, copied }))
    }

    pub fn is_complete(&self, position: u64) -> std::result::Result<bool, NicError> {
        self.link.is_complete(position)
    }
}
