//! The opened memory of a rank that is reached through the NIC: what is registered for it, requests of the host's and of streams'
//! links, and what kernels are told, which post by themselves (`mp/impl/nic_window.cuh`).

use std::sync::{Arc, OnceLock, PoisonError};

use gdsync::nic::{Access, MemoryRegion};
use gdsync::wqe::RemoteAddress;
use gdsync::{Buffer, Device, Space, Stream};
use mp_kernels::{BOUNCE_BYTES, NicEnd, NicPart, WindowPart};
use serde::{Deserialize, Serialize};

use super::end::{ForKernels, Requests, close};
use super::{NOWHERE, OpenedLink, Place, Post, refused};
use crate::data::path::Path;
use crate::data::plane::Plane;
use crate::error::Result;
use crate::transport::end::{Line, Met, OneSided, OneSidedKind};
use crate::transport::state::EndState;
use crate::transport::{Atomic, Call, Connection, Reach, STRIDE, Signal, SignalAction, Told};

/// Puts of host memory up to so many bytes travel inside the queue's entry, so that nothing has to be registered.
const INLINE: usize = mp_kernels::INLINE_BYTES as usize;

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
}

/// Another rank's.
pub(in crate::transport) struct Far {
    plane: Arc<Plane>,
    neighbour: usize,
    share: Share,
    bytes: u64,
    /// Of this rank's kernels.
    link: Arc<OpenedLink>,
    /// The local key of this rank's own memory.
    own_key: u32,
    /// Their `mp::NicPart`.
    table: Buffer<NicPart>,
    /// Held, not used.
    _bounce: MemoryRegion,
}

impl Far {
    /// Waits until the rank has connected its side of the link.
    pub fn new(
        own_plane: &Arc<Plane>,
        call: &Call<'_>,
        rank: usize,
        device: &Device,
        link: Arc<OpenedLink>,
        own: &OwnShare,
        told: &Told,
    ) -> Result<Far> {
        let Call { plane, timeout, op } = *call;
        let neighbour = plane.neighbour(rank)?;
        let share = told.nic.clone().ok_or_else(|| plane.no_nic(neighbour))?;
        plane.until(neighbour, timeout, op, || {
            plane.listen(neighbour);
            Ok(plane.is_connected(&link, op)?.then_some(()))
        })?;
        // Behind it the word that nobody reads.
        let bytes = BOUNCE_BYTES as usize + size_of::<u64>();
        let bounce = plane.pieces.cut(device, Space::Pinned, bytes);
        let bounce = bounce.map_err(|source| call.failed(source))?;
        let bounce = plane.register(&bounce, Access::LOCAL_WRITE, op)?;
        let bounce = bounce.ok_or_else(|| plane.no_nic(neighbour))?;
        let queue = link.view.as_ref().and_then(Buffer::device_address).unwrap_or_default();
        let key = |place: Option<Place>| place.map_or(0, |place| place.after(0).rkey);
        let part = NicPart {
            queue,
            own: own.address,
            own_bytes: own.bytes,
            bounce: bounce.address(),
            lock: 0,
            memory_key: key(share.memory),
            signals_key: key(share.signals),
            own_key: own.key,
            bounce_key: bounce.lkey(),
            atomics: share.atomics.into(),
        };
        let table = plane.table(device, &[part], op)?;
        let (plane, bytes, own_key) = (own_plane.clone(), told.bytes, own.key);
        Ok(Far { plane, neighbour, share, bytes, link, own_key, table, _bounce: bounce })
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

    /// By the host, and behind it a signal.
    fn carry_out_with(
        &self,
        call: &Call<'_>,
        put: Option<Post<'_>>,
        signal: Option<Signal>,
    ) -> Result<()> {
        let (mut value, mut result) = ([0; 8], None);
        let mut posts: Vec<Post<'_>> = put.into_iter().collect();
        if let Some(signal) = signal {
            if let (SignalAction::Add(_), Some(link)) =
                (signal.action, call.plane.link(self.neighbour))
            {
                // Nobody else's result is overwritten.
                result = Some(link.atomics.lock().unwrap_or_else(PoisonError::into_inner));
            }
            posts.push(self.raise(signal, &mut value));
        }
        let done = if posts.is_empty() { Ok(()) } else { self.carry_out(call, &posts) };
        drop(result);
        done
    }

    fn carry_out(&self, call: &Call<'_>, posts: &[Post<'_>]) -> Result<()> {
        call.plane.carry_out(self.neighbour, posts, call.timeout, call.op)
    }

    /// Posts to the stream's link. If memory is used, the last post is a flush, and the stream waits for it.
    fn enqueue(
        &self,
        call: &Call<'_>,
        stream: &Stream,
        posts: &[Post<'_>],
        memory: Option<Arc<MemoryRegion>>,
    ) -> Result<()> {
        let Call { plane, timeout, op } = *call;
        let link = plane.stream_link(self.neighbour, stream, timeout, op)?;
        let mut turn = plane.turn_with_room(self.neighbour, &link, posts, timeout, op)?;
        let posted = turn.post(posts, Some(stream)).map_err(refused(op))?;
        let Some(memory) = memory else { return Ok(()) };
        turn.hold(memory);
        let waiting = stream.wait_geq64(link.done(), posted.flushes);
        waiting.map_err(|source| call.failed(source))
    }
}

impl Connection for Far {
    fn put(
        &self,
        call: &Call<'_>,
        at: usize,
        source: &Buffer<u8>,
        signal: Option<Signal>,
    ) -> Result<()> {
        let (len, to) = (source.len() as u64, self.byte(at));
        let small = source.len() <= INLINE && source.host_address().is_some();
        let (mut bytes, mut registered) = (Vec::new(), None);
        match small {
            true => bytes = source.to_vec().map_err(|source| call.failed(source))?,
            false => registered = call.plane.register(source, Access::LOCAL_READ, call.op)?,
        }
        let put = match &registered {
            Some(from) => Some(Post::Write { from, len, to }),
            None if bytes.is_empty() => None,
            None => Some(Post::Inline { bytes: &bytes, to }),
        };
        self.carry_out_with(call, put, signal)
    }

    fn get(&self, call: &Call<'_>, at: usize, target: &Buffer<u8>) -> Result<()> {
        let into = call.plane.register(target, Access::LOCAL_WRITE, call.op)?;
        let Some(into) = &into else { return Ok(()) };
        let read = Post::Read { from: self.byte(at), into, at: 0, len: target.len() as u64 };
        self.carry_out(call, &[read])
    }

    fn signal(&self, call: &Call<'_>, signal: Signal) -> Result<()> {
        self.carry_out_with(call, None, Some(signal))
    }

    fn atomic(&self, call: &Call<'_>, at: usize, atomic: Atomic) -> Result<u64> {
        let link = call.plane.link(self.neighbour);
        let link = link.ok_or_else(|| call.plane.no_nic(self.neighbour))?;
        let word = self.byte(at);
        let carry_out = |post| -> Result<u64> {
            let _result = link.atomics.lock().unwrap_or_else(PoisonError::into_inner);
            self.carry_out(call, &[post])?;
            Ok(link.result())
        };
        match atomic {
            Atomic::FetchAdd(add) => carry_out(Post::FetchAdd { word, add }),
            Atomic::CompareSwap { compare, swap } => {
                carry_out(Post::CompareSwap { word, compare, swap })
            }
            Atomic::Swap(swap) => {
                // A NIC has no swap: what it holds is guessed until the guess was right.
                let mut compare = carry_out(Post::FetchAdd { word, add: 0 })?;
                loop {
                    let seen = carry_out(Post::CompareSwap { word, compare, swap })?;
                    if seen == compare {
                        return Ok(seen);
                    }
                    compare = seen;
                }
            }
        }
    }

    fn flush(&self, call: &Call<'_>) -> Result<()> {
        let Call { plane, timeout, op } = *call;
        plane.until(self.neighbour, timeout, op, || {
            Ok(plane.links_are_idle(self.neighbour).then_some(()))
        })
    }

    fn put_on(
        &self,
        call: &Call<'_>,
        stream: &Stream,
        at: usize,
        source: &Buffer<u8>,
    ) -> Result<()> {
        let from = call.plane.register(source, Access::LOCAL_READ, call.op)?.map(Arc::new);
        let Some(from) = from else { return Ok(()) };
        let write = Post::Write { from: &from, len: source.len() as u64, to: self.byte(at) };
        self.enqueue(call, stream, &[write, Post::Flush], Some(from.clone()))
    }

    fn get_on(
        &self,
        call: &Call<'_>,
        stream: &Stream,
        at: usize,
        target: &Buffer<u8>,
    ) -> Result<()> {
        let into = call.plane.register(target, Access::LOCAL_WRITE, call.op)?.map(Arc::new);
        let Some(into) = into else { return Ok(()) };
        let len = target.len() as u64;
        let read = Post::Read { from: self.byte(at), into: &into, at: 0, len };
        self.enqueue(call, stream, &[read, Post::Flush], Some(into.clone()))
    }

    fn signal_on(&self, call: &Call<'_>, stream: &Stream, signal: Signal) -> Result<()> {
        self.enqueue(call, stream, &[self.raise(signal, &mut [0; 8])], None)
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
        }
    }

    fn reach(&self) -> Reach<'_> {
        let (memory, signals) = (self.byte(0), self.signal_at(0));
        Reach::Far { link: &self.link, memory, signals, own_key: self.own_key }
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
            link: self.link.link.clone(),
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

    fn one_sided(&self, call: &Call<'_>, what: &OneSided, state: &EndState) -> Result<Met> {
        let gets = what.kind == OneSidedKind::Get;
        let access = if gets { Access::LOCAL_WRITE } else { Access::LOCAL_READ };
        let here = call.plane.register(&what.memory, access, call.op)?.map(Arc::new);
        let target = here.as_ref().map(|_| Place::at(self.byte(what.at)));
        let host = call.plane.link(self.neighbour).cloned();
        let device = self.table.device();
        let table = call.plane.table(device, &[NicEnd::default()], call.op)?;
        let line = Requests {
            link: host.ok_or_else(|| call.plane.no_nic(self.neighbour))?,
            neighbour: self.neighbour,
            theirs: what.signal.map(|signal| Place::at(self.signal_at(signal))),
            target,
            memory_key: here.as_ref().map_or(0, |region| region.lkey()),
            data: here.zip(target).map(|(region, place)| (region, what.memory.clone(), place)),
            gets,
            // There is always room.
            slots: u64::MAX,
            stride: 0,
            kernels: Arc::new(OnceLock::from(ForKernels { link: self.link.clone(), table })),
        };
        let failed = |source| call.failed(source);
        let mine = state.signal().map_err(failed)?;
        Ok(Met {
            message: Ok(what.message(state, &mine).map_err(failed)?),
            staged: false,
            mine,
            line: Arc::new(line),
            moves: Vec::new(),
            ahead: u64::MAX,
            held: vec![what.memory.clone()],
        })
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        close(&self.plane, self.neighbour, &self.link.link, self.share.number);
    }
}
