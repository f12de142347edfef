//! The opened memory of a rank that is reached through the NIC: what is registered for it, requests of the host's and of streams'
//! links, and what kernels are told, which post by themselves (`mp/impl/nic_window.cuh`).

use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use gdsync::nic::{Access, MemoryRegion};
use gdsync::wqe::RemoteAddress;
use gdsync::{Buffer, Device, Rows, Space, Stream};
use mp_kernels::{AtomicKind, NicEnd, NicPart, WindowPart};
use serde::{Deserialize, Serialize};

use super::end::{ForKernels, Requests, close};
use super::link::Ring;
use super::{KernelLinks, Link, NOWHERE, Place, Post, refused};
use crate::collective::Element;
use crate::data::path::Path;
use crate::data::plane::Plane;
use crate::error::Result;
use crate::transport::end::{Line, Met, OneSided, OneSidedKind};
use crate::transport::state::EndState;
use crate::transport::{
    Atomic, Call, Channel, Connection, Local, Reach, Return, STRIDE, Signal, SignalAction, Told,
};

/// Puts of host memory up to so many bytes travel inside the queue's entry, so that nothing has to be registered.
const INLINE: usize = mp_kernels::INLINE_BYTES as usize;
/// Requests that are rung together, for which there has to be room at once.
const BATCH: usize = 64;
/// How long what was written through a channel is waited for when it is closed.
const CLOSING: Duration = Duration::from_secs(5);

/// The neighbour that a rank of the world is, if it is reached through the NIC.
pub(in crate::transport) fn leads_to(plane: &Plane, rank: usize) -> Result<Option<usize>> {
    Ok(if plane.path(rank)? == Path::Direct { None } else { Some(plane.neighbour(rank)?) })
}

/// What a rank tells the others of its memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::transport) struct Share {
    /// Of what is kept registered.
    number: u64,
    memory: Option<Place>,
    signals: Option<Place>,
    /// Whether peers may do atomics on the memory.
    atomics: bool,
}

impl Share {
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// This rank's own: the keys that its kernels use.
pub(in crate::transport) struct OwnShare {
    pub told: Share,
    address: u64,
    bytes: u64,
    key: u32,
}

impl OwnShare {
    /// Registers the memory for `users` ranks.
    pub fn new(
        plane: &Plane,
        memory: &Buffer<u8>,
        signals: &Buffer<u8>,
        users: usize,
        op: &dyn Fn() -> String,
    ) -> Result<OwnShare> {
        let access = plane.access_of_peers(memory);
        let memory = plane.register(memory, access, op)?;
        let signals = plane.register(signals, Access::REMOTE_WRITE | Access::REMOTE_ATOMIC, op)?;
        let [memory_place, signals_place] =
            [&memory, &signals].map(|region| region.as_ref().map(Place::of));
        let (address, bytes, key) = memory
            .as_ref()
            .map_or((0, 0, 0), |region| (region.address(), region.len(), region.lkey()));
        let number = plane.keep(memory.into_iter().chain(signals).collect(), users);
        let atomics = access == Access::ALL;
        let told = Share { number, memory: memory_place, signals: signals_place, atomics };
        Ok(OwnShare { told, address, bytes, key })
    }

    /// How kernels reach a share by these links.
    fn part(&self, links: &KernelLinks, share: &Share) -> NicPart {
        let key = |place: Option<Place>| place.map_or(0, |place| place.after(0).rkey);
        NicPart {
            queue: links.address(),
            own: self.address,
            own_bytes: self.bytes,
            contexts: links.count(),
            memory_key: key(share.memory),
            signals_key: key(share.signals),
            own_key: self.key,
            atomics: share.atomics.into(),
            reserved: 0,
        }
    }
}

/// How kernels do atomic operations on a share that is mapped here, and that others change through their NIC: as those do. Atomic
/// operations of a GPU on memory of the host are not one with the CPU's, nor those of a NIC on any with anybody's.
pub(in crate::transport) struct AtomicsByNic {
    /// The own share; none of somebody else's, where they are refused.
    own: Option<Arc<OwnShare>>,
    device: Device,
    /// Whether that goes for the memory, too, not for the signals alone.
    pub memory: bool,
    ready: OnceLock<Ready>,
}

/// What kernels are told of it.
struct Ready {
    links: Option<Arc<KernelLinks>>,
    table: Buffer<NicPart>,
}

impl AtomicsByNic {
    /// On the own share, once they are [made ready](Self::make_ready).
    pub fn own(device: &Device, own: &Arc<OwnShare>) -> AtomicsByNic {
        let (device, memory) = (device.clone(), own.told.atomics);
        AtomicsByNic { own: Some(own.clone()), device, memory, ready: OnceLock::new() }
    }

    /// On one that this rank's NIC does not lead to.
    pub fn refused(call: &Call<'_>, device: &Device, memory: bool) -> Result<AtomicsByNic> {
        let refused =
            AtomicsByNic { own: None, device: device.clone(), memory, ready: OnceLock::new() };
        refused.make_ready(call)?;
        Ok(refused)
    }

    /// Before a kernel may do some. Whether that is new.
    pub fn make_ready(&self, call: &Call<'_>) -> Result<bool> {
        if self.ready.get().is_some() {
            return Ok(false);
        }
        let own = self.own.as_ref();
        let links = own.map(|_| call.plane.own_links(&self.device, call.op)).transpose()?;
        let part = own.zip(links.as_ref()).map(|(own, links)| own.part(links, &own.told));
        let table = call.plane.table(&self.device, &[part.unwrap_or_default()], call.op)?;
        // Of two threads one's stays.
        Ok(self.ready.set(Ready { links, table }).is_ok())
    }

    pub fn table(&self) -> Option<&Buffer<NicPart>> {
        self.ready.get().map(|ready| &ready.table)
    }

    /// Waits until what kernels have posted has happened.
    pub fn quiet(&self, call: &Call<'_>) -> Result<()> {
        let Some(links) = self.ready.get().and_then(|ready| ready.links.as_ref()) else {
            return Ok(());
        };
        let Call { plane, timeout, op } = *call;
        let own = plane.neighbour(plane.rank())?;
        plane.until(own, timeout, op, || Ok(links.are_idle().then_some(())))
    }
}

/// Another rank's.
pub(in crate::transport) struct Far {
    plane: Arc<Plane>,
    neighbour: usize,
    share: Share,
    bytes: u64,
    /// Of this rank's kernels.
    links: Arc<KernelLinks>,
    /// The local key of this rank's own memory.
    own_key: u32,
    /// Their `mp::NicPart`.
    table: Buffer<NicPart>,
}

impl Far {
    /// Waits until the rank has connected its side of the links.
    pub fn new(
        own_plane: &Arc<Plane>,
        call: &Call<'_>,
        rank: usize,
        device: &Device,
        links: Arc<KernelLinks>,
        own: &OwnShare,
        told: &Told,
    ) -> Result<Far> {
        let Call { plane, timeout, op } = *call;
        let neighbour = plane.neighbour(rank)?;
        let share = told.nic.clone().ok_or_else(|| plane.no_nic(neighbour))?;
        plane.until(neighbour, timeout, op, || {
            plane.listen(neighbour);
            Ok(plane.are_connected(&links, op)?.then_some(()))
        })?;
        let part = own.part(&links, &share);
        let table = plane.table(device, &[part], op)?;
        let (plane, bytes, own_key) = (own_plane.clone(), told.bytes, own.key);
        Ok(Far { plane, neighbour, share, bytes, links, own_key, table })
    }

    /// Byte `at` of the memory. (No address where there are no bytes; nothing is asked of it then.)
    fn byte(&self, at: usize) -> RemoteAddress {
        self.share.memory.map_or(NOWHERE, |place| place.after(at))
    }

    fn signal_at(&self, number: usize) -> RemoteAddress {
        self.share.signals.map_or(NOWHERE, |place| place.after(number * STRIDE))
    }

    /// What raises a signal; `value` is the bytes of what it is set to.
    fn raise<'a>(&self, Signal { number, action }: Signal, value: &'a mut [u8; 8]) -> Post<'a> {
        let to = self.signal_at(number);
        match action {
            SignalAction::Set(set) => {
                *value = set.to_le_bytes();
                Post::Inline { bytes: value, to }
            }
            SignalAction::Add(add) => Post::FetchAdd { word: to, add },
        }
    }

    /// Posts by the host, and behind them a signal. Started puts and gets keep their memory registered.
    fn post(
        &self,
        call: &Call<'_>,
        posts: Vec<Post<'_>>,
        memory: Option<Arc<MemoryRegion>>,
        signal: Option<Signal>,
        when: Return,
    ) -> Result<()> {
        let Call { plane, timeout, op } = *call;
        let (mut posts, mut value, mut result) = (posts, [0; 8], None);
        if let Some(signal) = signal {
            if let SignalAction::Add(_) = signal.action {
                let link = plane.link_to(self.neighbour)?;
                // Nobody else's result is overwritten.
                result = Some(link.atomics.lock().unwrap_or_else(PoisonError::into_inner));
            }
            posts.push(self.raise(signal, &mut value));
        }
        let mut last = None;
        for batch in posts.chunks(BATCH) {
            last = Some(plane.start(self.neighbour, batch, timeout, op)?);
        }
        let Some(last) = last else { return Ok(()) };
        match when {
            Return::Happened => {
                plane.until_host_link(self.neighbour, timeout, op, |link| link.is_complete(last))?
            }
            Return::Started => {
                if let (Some(link), Some(memory)) = (plane.link(self.neighbour), memory) {
                    link.keep_until(last, memory);
                }
            }
        }
        drop(result);
        Ok(())
    }

    /// Writes of registered memory, one for each row.
    fn writes<'a>(&self, at: usize, from: &'a MemoryRegion, rows: Rows) -> Vec<Post<'a>> {
        let write = |(to, from_at): (usize, usize)| Post::Write {
            from,
            at: from_at as u64,
            len: rows.len as u64,
            to: self.byte(at + to),
        };
        rows.starts().map(write).collect()
    }

    /// Reads into registered memory, one for each row.
    fn reads<'a>(&self, at: usize, into: &'a MemoryRegion, rows: Rows) -> Vec<Post<'a>> {
        let read = |(to, from): (usize, usize)| Post::Read {
            from: self.byte(at + from),
            into,
            at: to as u64,
            len: rows.len as u64,
        };
        rows.starts().map(read).collect()
    }

    fn carry_out(&self, call: &Call<'_>, posts: &[Post<'_>]) -> Result<()> {
        call.plane.carry_out(self.neighbour, posts, call.timeout, call.op)
    }

    /// Posts to the stream's link. If memory is used, a flush is posted behind, and the stream waits for it.
    fn enqueue(
        &self,
        call: &Call<'_>,
        stream: &Stream,
        posts: Vec<Post<'_>>,
        memory: Option<Arc<MemoryRegion>>,
    ) -> Result<()> {
        let Call { plane, timeout, op } = *call;
        let mut posts = posts;
        posts.extend(memory.is_some().then_some(Post::Flush));
        let link = plane.stream_link(self.neighbour, stream, timeout, op)?;
        let batches = posts.len().div_ceil(BATCH);
        for (number, batch) in posts.chunks(BATCH).enumerate() {
            let mut turn = plane.turn_with_room(self.neighbour, &link, batch, timeout, op)?;
            let posted = turn.post(batch, Ring::On(stream)).map_err(refused(op))?;
            if let (Some(memory), true) = (&memory, number + 1 == batches) {
                turn.hold(memory.clone());
                let waiting = stream.wait_geq64(link.done(), posted.flushes);
                waiting.map_err(|source| call.failed(source))?;
            }
        }
        Ok(())
    }
}

/// A stretch of memory that requests write, from a mirror of it here: what has been read there has left the mirror long before.
struct Stretch {
    plane: Arc<Plane>,
    neighbour: usize,
    to: Place,
    mirror: Buffer<u8>,
    registered: Option<MemoryRegion>,
    /// Written to the mirror, and to be posted with the next line.
    written: Vec<(usize, usize)>,
}

impl Channel for Stretch {
    unsafe fn write(&mut self, at: usize, from: *const u8, len: usize) -> gdsync::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.mirror.copy_in(at, from, len)? };
        self.written.push((at, len));
        Ok(())
    }

    fn line(&mut self, call: &Call<'_>, at: usize, words: &[u64]) -> Result<()> {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let (first, others) = bytes.split_at(size_of::<u64>().min(bytes.len()));
        let Some(mirror) = &self.registered else { return Ok(()) };
        let mut posts: Vec<Post<'_>> = (self.written.iter())
            .map(|&(at, len)| Post::Write {
                from: mirror,
                at: at as u64,
                len: len as u64,
                to: self.to.after(at),
            })
            .collect();
        if !others.is_empty() {
            posts.push(Post::Inline { bytes: others, to: self.to.after(at + first.len()) });
        }
        posts.push(Post::Inline { bytes: first, to: self.to.after(at) });
        self.plane.start(self.neighbour, &posts, call.timeout, call.op)?;
        self.written.clear();
        Ok(())
    }
}

impl Drop for Stretch {
    /// The mirror stays registered until nothing reads it any more.
    fn drop(&mut self) {
        let op = || "closing a way of tagged messages".to_owned();
        // At the end of a world there is nothing left to wait for.
        let idle = |link: &Link| link.is_idle();
        let _ = self.plane.until_host_link(self.neighbour, CLOSING, &op, idle);
    }
}

impl Connection for Far {
    fn put(
        &self,
        call: &Call<'_>,
        at: usize,
        Local { memory, rows }: &Local,
        signal: Option<Signal>,
        when: Return,
    ) -> Result<()> {
        let small = memory.len() <= INLINE && memory.host_address().is_some();
        if small {
            let bytes = memory.to_vec().map_err(|source| call.failed(source))?;
            let inline = |(to, from): (usize, usize)| Post::Inline {
                bytes: &bytes[from..from + rows.len],
                to: self.byte(at + to),
            };
            return self.post(call, rows.starts().map(inline).collect(), None, signal, when);
        }
        let from = call.plane.register(memory, Access::LOCAL_READ, call.op)?.map(Arc::new);
        let posts = from.as_ref().map_or_else(Vec::new, |from| self.writes(at, from, *rows));
        self.post(call, posts, from.clone(), signal, when)
    }

    fn get(&self, call: &Call<'_>, at: usize, target: &Local, when: Return) -> Result<()> {
        let into = call.plane.register(&target.memory, Access::LOCAL_WRITE, call.op)?.map(Arc::new);
        let posts = into.as_ref().map_or_else(Vec::new, |into| self.reads(at, into, target.rows));
        self.post(call, posts, into.clone(), None, when)
    }

    fn signal(&self, call: &Call<'_>, signal: Signal) -> Result<()> {
        self.post(call, Vec::new(), None, Some(signal), Return::Happened)
    }

    fn atomic(&self, call: &Call<'_>, at: usize, atomic: Atomic) -> Result<Option<u64>> {
        let link = call.plane.link_to(self.neighbour)?;
        if !self.share.atomics {
            return Err(call.failed(gdsync::Error::NotReachable {
                what: "an atomic operation",
                memory: "a GPU's own memory".into(),
                place: "a NIC".into(),
                hint: "put the window into pinned memory",
            }));
        }
        // The NIC changes eight aligned bytes.
        let (whole, shift) = (at & !7, (at & 7) * 8);
        if (whole + 8) as u64 > self.bytes {
            return Err(call.failed(gdsync::Error::Misaligned {
                what: "the end of a window whose last word a NIC is to change",
                offset: self.bytes as usize,
                align: 8,
            }));
        }
        let word = self.byte(whole);
        let carry_out = |post| -> Result<u64> {
            let _result = link.atomics.lock().unwrap_or_else(PoisonError::into_inner);
            self.carry_out(call, &[post])?;
            Ok(link.result())
        };
        let Atomic { kind, element, value, expected } = atomic;
        if !atomic.is_half() && kind == AtomicKind::CompareSwap {
            let (compare, swap) = (expected, value);
            return carry_out(Post::CompareSwap { word, compare, swap }).map(Some);
        }
        if matches!(element, Element::U64 | Element::I64) && kind == AtomicKind::Add {
            return carry_out(Post::FetchAdd { word, add: value }).map(Some);
        }
        // There is nothing else: what the word holds is guessed until the guess was right.
        let mask = if atomic.is_half() { u64::from(u32::MAX) } else { u64::MAX };
        let mut compare = carry_out(Post::FetchAdd { word, add: 0 })?;
        loop {
            let held = compare >> shift & mask;
            let next = atomic.next(held) & mask;
            if next == held {
                return Ok(Some(held));
            }
            let swap = compare & !(mask << shift) | next << shift;
            let seen = carry_out(Post::CompareSwap { word, compare, swap })?;
            if seen == compare {
                return Ok(Some(held));
            }
            compare = seen;
        }
    }

    fn flush(&self, call: &Call<'_>) -> Result<()> {
        let Call { plane, timeout, op } = *call;
        plane.until_host_link(self.neighbour, timeout, op, |link| link.uses_nothing())
    }

    fn quiet(&self, call: &Call<'_>) -> Result<()> {
        let Call { plane, timeout, op } = *call;
        plane.until(self.neighbour, timeout, op, || {
            Ok(plane.links_are_idle(self.neighbour).then_some(()))
        })?;
        self.flush(call)
    }

    fn put_on(&self, call: &Call<'_>, stream: &Stream, at: usize, source: &Local) -> Result<()> {
        let from = call.plane.register(&source.memory, Access::LOCAL_READ, call.op)?;
        let Some(from) = from.map(Arc::new) else { return Ok(()) };
        self.enqueue(call, stream, self.writes(at, &from, source.rows), Some(from.clone()))
    }

    fn get_on(&self, call: &Call<'_>, stream: &Stream, at: usize, target: &Local) -> Result<()> {
        let into = call.plane.register(&target.memory, Access::LOCAL_WRITE, call.op)?;
        let Some(into) = into.map(Arc::new) else { return Ok(()) };
        self.enqueue(call, stream, self.reads(at, &into, target.rows), Some(into.clone()))
    }

    fn signal_on(&self, call: &Call<'_>, stream: &Stream, signal: Signal) -> Result<()> {
        self.enqueue(call, stream, vec![self.raise(signal, &mut [0; 8])], None)
    }

    fn memory(&self) -> Option<&Buffer<u8>> {
        None
    }

    fn word(&self, _: usize) -> Option<Buffer<u64>> {
        None
    }

    fn view(&self) -> WindowPart {
        let address = |place: Option<Place>| place.map_or(0, |place| place.after(0).address);
        WindowPart {
            memory: address(self.share.memory),
            bytes: self.bytes,
            signals: address(self.share.signals),
            nic: self.table.device_address().unwrap_or_default(),
            atomic_nic: self.table.device_address().unwrap_or_default(),
            atomic_bytes: 0,
        }
    }

    fn reach(&self) -> Reach<'_> {
        let (memory, signals) = (self.byte(0), self.signal_at(0));
        Reach::Far { link: &self.links, memory, signals, own_key: self.own_key }
    }

    fn held(&self) -> Vec<Buffer<u8>> {
        vec![self.table.bytes()]
    }

    fn line(
        &self,
        call: &Call<'_>,
        put: Option<(Buffer<u8>, RemoteAddress)>,
        signal: usize,
    ) -> Result<Arc<dyn Line>> {
        let mut data = None;
        if let Some((memory, to)) = put {
            let region = call.plane.register(&memory, Access::LOCAL_READ, call.op)?;
            data = region.map(|region| (Arc::new(region), memory, Place::at(to)));
        }
        Ok(Arc::new(Requests {
            link: self.links.first().clone(),
            neighbour: self.neighbour,
            theirs: Some(Place::at(self.signal_at(signal))),
            target: None,
            memory_key: 0,
            data,
            gets: false,
            slots: u64::MAX,
            stride: 0,
            kernels: Arc::default(),
        }))
    }

    fn channel(&self, call: &Call<'_>, at: usize, len: usize) -> Result<Box<dyn Channel>> {
        let mirror = self.plane.pieces.cut(&Device::Host, Space::Pinned, len);
        let mirror = mirror.map_err(|source| call.failed(source))?;
        let registered = self.plane.register(&mirror, Access::LOCAL_READ, call.op)?;
        let (plane, neighbour) = (self.plane.clone(), self.neighbour);
        let to = Place::at(self.byte(at));
        Ok(Box::new(Stretch { plane, neighbour, to, mirror, registered, written: Vec::new() }))
    }

    fn one_sided(&self, call: &Call<'_>, what: &OneSided, state: &EndState) -> Result<Met> {
        let gets = what.kind == OneSidedKind::Get;
        let access = if gets { Access::LOCAL_WRITE } else { Access::LOCAL_READ };
        let here = call.plane.register(&what.memory, access, call.op)?.map(Arc::new);
        let target = here.as_ref().map(|_| Place::at(self.byte(what.at)));
        let host = call.plane.link_to(self.neighbour)?.clone();
        let device = self.table.device();
        let table = call.plane.table(device, &[NicEnd::default()], call.op)?;
        let line = Requests {
            link: host,
            neighbour: self.neighbour,
            theirs: what.signal.map(|signal| Place::at(self.signal_at(signal))),
            target,
            memory_key: here.as_ref().map_or(0, |region| region.lkey()),
            data: here.zip(target).map(|(region, place)| (region, what.memory.clone(), place)),
            gets,
            // There is always room.
            slots: u64::MAX,
            stride: 0,
            kernels: Arc::new(OnceLock::from(ForKernels {
                queue: self.links.address(),
                links: self.links.clone(),
                table,
            })),
        };
        let failed = |source| call.failed(source);
        let mine = state.signal().map_err(failed)?;
        Ok(Met {
            message: Ok(what.message(state, &mine).map_err(failed)?),
            staged: false,
            mine,
            line: Arc::new(line),
            moves: Vec::new(),
            slots: None,
            ahead: u64::MAX,
            held: vec![what.memory.clone()],
        })
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        close(&self.plane, self.neighbour, &self.links, self.share.number);
    }
}
