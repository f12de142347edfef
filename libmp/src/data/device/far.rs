//! An end of a device operation whose peer is behind the NIC: what is registered for it, and the way to the other end. The
//! protocol is the one over mapped memory; what changes the peer's memory is a request, which kernels post by themselves
//! (`mp/impl/nic.cuh`) and host streams through the host's link.
//!
//! Signals, and the slots of small messages to a GPU, are in pinned memory of the host: there one store of the NIC's thread
//! raises them, where GPU memory takes a copy engine.

use std::mem::offset_of;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gdsync::nic::{Access, MemoryRegion};
use gdsync::wqe::RemoteAddress;
use gdsync::{Buffer, Space, Word64};
use mp_kernels::{Message, NicEnd, StepKind, WaitStatus};
use serde::{Deserialize, Serialize};

use super::host::is_set;
use super::station::{PACKETS_MAX, SLOTS, Station};
use crate::data::half::Side;
use crate::data::nic::{Link, OpenedLink, Place, Post};
use crate::data::notice::Notice;
use crate::data::plane::Plane;
use crate::error::{Error, Result};

/// A start of the host with so few bytes takes them along in the entry: `inline_bytes` of `mp/impl/nic.cuh`.
const INLINE: usize = 512;
/// Slots begin at multiples of this.
const LINE: u64 = 256;
/// How long what was posted may take when its operation is dropped.
const LAST_POSTS: Duration = Duration::from_secs(1);

/// What an end has registered.
pub(crate) struct FarEnd {
    /// The kernels' link to the peer.
    pub link: Arc<OpenedLink>,
    /// Its signal, which the peer's NIC raises, and its slots.
    pub station: Station,
    /// Of a send: its memory, if it has bytes.
    source: Option<Arc<MemoryRegion>>,
    /// For kernels: its `mp::NicEnd`. Made before kernels of any rank run, since making memory may wait for them.
    pub table: Buffer<u64>,
    opening: FarOpening,
}

/// What the peer is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FarOpening {
    /// Of what is kept registered.
    pub number: u64,
    signal: Place,
    /// Of a receive: where messages go.
    memory: Option<Place>,
    slots: u64,
    stride: u64,
}

/// The host's way to the other end.
pub(crate) struct FarWay {
    link: Arc<Link>,
    theirs: Place,
    /// Of a send with bytes: from where to where.
    data: Option<(Arc<MemoryRegion>, Place)>,
    len: u64,
    slots: u64,
    stride: u64,
}

impl FarEnd {
    pub fn new(
        plane: &Plane,
        neighbour: usize,
        side: Side,
        memory: &Buffer<u8>,
        op: &dyn Fn() -> String,
    ) -> Result<FarEnd> {
        let failed = |source| Error::Memory { op: op(), source };
        let (device, len) = (memory.device(), memory.len() as u64);
        let link = plane.kernel_link(neighbour, device, op)?;
        let slotted =
            side == Side::Recv && device.as_cuda().is_some() && (1..=PACKETS_MAX).contains(&len);
        let (slots, stride) = if slotted { (SLOTS, len.next_multiple_of(LINE)) } else { (0, 0) };
        let bytes = Station::size(None) + (slots * stride) as usize;
        let station = plane.pieces.cut(device, Space::Pinned, bytes).map_err(failed)?;
        let signals = plane.register(&station, Access::REMOTE_WRITE, op)?;
        let signal = signals.as_ref().map(Place::of);
        let signal = signal.ok_or_else(|| plane.no_nic(neighbour))?;
        let mut kept: Vec<MemoryRegion> = signals.into_iter().collect();
        let (mut source, mut target) = (None, None);
        match side {
            Side::Send => source = plane.register(memory, Access::LOCAL_READ, op)?.map(Arc::new),
            Side::Recv if slotted => target = Some(Place::at(signal.after(Station::size(None)))),
            Side::Recv => {
                let region = plane.register(memory, Access::REMOTE_WRITE, op)?;
                target = region.as_ref().map(Place::of);
                kept.extend(region);
            }
        }
        // Its own rank and the peer's drop it.
        let number = plane.keep(kept, 2);
        let signal = Place::at(signal.after(Station::SIGNAL));
        let opening = FarOpening { number, signal, memory: target, slots, stride };
        let table = plane.table(device, &[0; NIC_END], op)?;
        Ok(FarEnd { link, station: Station::new(station), source, table, opening })
    }

    pub fn opening(&self) -> &FarOpening {
        &self.opening
    }

    /// `mp::NicEnd` for kernels, as words.
    pub fn words(
        &self,
        side: Side,
        message: &Message,
        other: &FarOpening,
    ) -> Option<[u64; NIC_END]> {
        let to_receiver = if side == Side::Send { other } else { &self.opening };
        let theirs = other.signal.after(0);
        let target = other.memory.map_or(NOWHERE, |place| place.after(0));
        let memory_key = self.source.as_ref().map_or(0, |region| region.lkey());
        let Message { memory, len, target: slots_here, inbox, mine, theirs: _, .. } = *message;
        let Message { state, abort, timeout_ns, report, .. } = *message;
        Some([
            // The message; a field after the other.
            memory,
            len,
            slots_here,
            inbox,
            mine,
            0,
            state,
            abort,
            timeout_ns,
            report,
            0,
            // The rest of it.
            self.link.view.as_ref()?.device_address()?,
            theirs.address,
            target.address,
            to_receiver.slots,
            to_receiver.stride,
            u64::from(theirs.rkey) | u64::from(target.rkey) << 32,
            u64::from(memory_key),
        ])
    }

    /// Of a GPU's receive with slots: where its kernels find them.
    pub fn slots(&self) -> gdsync::Result<u64> {
        if self.opening.slots == 0 { Ok(0) } else { self.station.inbox() }
    }

    /// The way of the host; `link` is the host's.
    pub fn way(&self, link: Arc<Link>, len: u64, other: &FarOpening) -> FarWay {
        let FarOpening { signal: theirs, memory, slots, stride, .. } = *other;
        let data = self.source.clone().zip(memory);
        FarWay { link, theirs, data, len, slots, stride }
    }

    /// Its operation was dropped: once what it posted is complete, the peer need not keep its end any more.
    pub fn retire(&self, plane: &Plane, neighbour: usize, other: Option<&FarOpening>) {
        plane.close_window(self.opening.number);
        if let Some(other) = other {
            close(plane, neighbour, &self.link.link, other.number);
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
    if !plane.ended() {
        // At the end of the world nobody needs to know.
        let _ = plane.tell(neighbour, &Notice::CloseWindow { number });
    }
}

/// 64-bit words of a `NicEnd`.
const NIC_END: usize = size_of::<NicEnd>() / 8;

// The order of the fields in `FarEnd::words`.
const _: () = assert!(
    NIC_END == 18
        && offset_of!(NicEnd, queue) == 11 * 8
        && offset_of!(NicEnd, theirs_key) == 16 * 8
        && offset_of!(Message, report) == 9 * 8
);

const NOWHERE: RemoteAddress = RemoteAddress { address: 0, rkey: 0 };

impl FarWay {
    /// What the peer must have posted or taken before message `epoch` may go.
    pub fn needed(&self, epoch: u64) -> u64 {
        epoch.saturating_sub(self.slots)
    }

    /// Raises the peer's signal, or sends the message first; returns when the source may be written again.
    ///
    /// # Errors
    /// How the wait for room or for the NIC ended, what was seen, how long it took.
    pub fn carry_out(
        &self,
        kind: StepKind,
        epoch: u64,
        memory: &Buffer<u8>,
        (abort, timeout): (&Word64, Duration),
    ) -> std::result::Result<(), (WaitStatus, u64, Duration)> {
        let value = epoch.to_le_bytes();
        let signal = Post::Inline { bytes: &value, to: self.theirs.after(0) };
        let data = self.data.as_ref().filter(|_| kind == StepKind::Send && self.len > 0);
        let lost = || (WaitStatus::PathFailed, 0, Duration::ZERO);
        let mut must_complete = false;
        let write = match data {
            None => None,
            Some((from, place)) => {
                let slot = if self.slots == 0 { 0 } else { (epoch - 1) % self.slots * self.stride };
                let to = place.after(slot as usize);
                // SAFETY: while a send is under way its region is not written: the contract of `Region`.
                let bytes = unsafe { memory.as_slice() }.map_err(|_| lost())?;
                must_complete = bytes.len() > INLINE;
                Some(match must_complete {
                    true => Post::Write { from, len: self.len, to },
                    false => Post::Inline { bytes, to },
                })
            }
        };
        let posts = match write {
            Some(write) => vec![write, signal],
            None => vec![signal],
        };
        let mut wait = Bounded::new(abort, timeout);
        let posted = loop {
            match self.link.post(&posts) {
                Ok(Some(posted)) => break posted,
                Ok(None) => wait.pause()?,
                Err(_) => return Err(lost()),
            }
        };
        while must_complete && !self.link.is_complete(posted.position).map_err(|_| lost())? {
            wait.pause()?;
        }
        Ok(())
    }
}

/// A wait that the abort word or the deadline ends.
struct Bounded<'a> {
    abort: &'a Word64,
    timeout: Duration,
    since: Instant,
}

impl Bounded<'_> {
    fn new(abort: &Word64, timeout: Duration) -> Bounded<'_> {
        Bounded { abort, timeout, since: Instant::now() }
    }

    fn pause(&mut self) -> std::result::Result<(), (WaitStatus, u64, Duration)> {
        let waited = self.since.elapsed();
        if is_set(self.abort) {
            return Err((WaitStatus::Aborted, 0, waited));
        }
        if waited >= self.timeout {
            return Err((WaitStatus::TimedOut, 0, waited));
        }
        std::thread::yield_now();
        Ok(())
    }
}
