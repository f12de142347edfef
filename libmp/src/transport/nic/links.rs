//! The data plane's side of the nic path: its links, their failures, and calls that wait for them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytemuck::Pod;
use gdsync::nic::{Access, MemoryRegion};
use gdsync::wqe::Syndrome;
use gdsync::{Buffer, Deadline, Device, Space, Stream};
use mp_kernels::{Context, REPLY_BYTES};

use super::link::{Link, LinkAddress, Post, Turn, Use};
use super::{Failing, KernelLinks, Nic, OpenWindow, OpenedLink, OpenedLinks, refused};
use crate::control::cause::{Cause, Loss};
use crate::data::notice::Notice;
use crate::data::plane::Plane;
use crate::data::wait::Backoff;
use crate::error::{Error, Result};

/// From the failure of a link to the report of it: usually the control plane knows more by then.
pub(crate) const GRACE: Duration = Duration::from_millis(200);
/// Calls of `progress` between two looks at mailboxes, and looks between two checks of the links.
const LISTEN: u32 = 8;
const CHECK: u32 = 8;

impl Plane {
    /// The host's link to a neighbour, if it is reached through the NIC and there is one ([`link_to`](Self::link_to) makes it).
    pub fn link(&self, neighbour: usize) -> Option<&Arc<Link>> {
        self.neighbours[neighbour].link()
    }

    /// Registers memory with this rank's NIC. None where there is none, and for no bytes.
    pub fn register<T: Pod>(
        &self,
        memory: &Buffer<T>,
        access: Access,
        op: impl FnOnce() -> String,
    ) -> Result<Option<MemoryRegion>> {
        match &self.nic {
            Some(nic) if memory.size() > 0 => {
                nic.nic.register(&memory.bytes(), access).map(Some).map_err(refused(op))
            }
            _ => Ok(None),
        }
    }

    /// All that the NIC lets peers do with memory, for the memory of a window.
    pub fn access_of_peers(&self, memory: &Buffer<u8>) -> Access {
        let gpus_own = memory.device().as_cuda().is_some() && memory.host_address().is_none();
        match &self.nic {
            Some(nic) if gpus_own && !nic.nic.capabilities().gpu_atomics => {
                Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE
            }
            _ => Access::ALL,
        }
    }

    /// Keeps the memory of a window, or of an end of an operation, until so many ranks have dropped their side. Gives
    /// its number.
    pub fn keep(&self, memory: Vec<MemoryRegion>, users: usize) -> u64 {
        let Some(nic) = &self.nic else { return 0 };
        let mut windows = lock(&nic.windows);
        windows.next += 1;
        let number = windows.next;
        windows.open.insert(number, OpenWindow { _memory: memory, users });
        number
    }

    /// A rank has dropped its side of what is kept under this number.
    pub fn close_window(&self, number: u64) {
        let Some(nic) = &self.nic else { return };
        let mut windows = lock(&nic.windows);
        if let Some(window) = windows.open.get_mut(&number) {
            window.users = window.users.saturating_sub(1);
            if window.users == 0 {
                windows.open.remove(&number);
            }
        }
    }

    /// A request to a neighbour has failed, or its link: the neighbour is lost, if nothing else comes to light.
    pub fn path_failed(&self, neighbour: usize, error: &gdsync::nic::Error) {
        let Some(nic) = &self.nic else { return };
        // Flushed is what did not fail itself: the peer knows the reason, and says it as soon as it runs.
        let flushed =
            matches!(error, gdsync::nic::Error::Failed { syndrome: Syndrome::Flushed, .. });
        let grace = if flushed { nic.patience / 2 } else { GRACE };
        lock(&nic.failing).get_or_insert_with(|| Failing {
            neighbour,
            detail: error.to_string(),
            until: Instant::now() + grace,
            reported: false,
        });
    }

    /// From here on peers go away in good order.
    pub fn finishing(&self) {
        if let Some(nic) = &self.nic {
            nic.finishing.store(true, Ordering::Relaxed);
        }
    }

    /// Helps the NIC; and, not every time, listens to the neighbours, since they may want links for streams, and sees whether
    /// the links work.
    pub fn look_after_links(&self, nic: &Nic) {
        nic.nic.progress();
        let tick = nic.ticks.fetch_add(1, Ordering::Relaxed);
        if !tick.is_multiple_of(LISTEN) {
            return;
        }
        for (number, neighbour) in self.neighbours.made() {
            let Some(link) = neighbour.link() else { continue };
            self.listen(number);
            self.echo(number, &mut lock(&neighbour.state));
            if tick.is_multiple_of(LISTEN * CHECK) {
                if let Err(error) = link.check() {
                    self.path_failed(number, &error);
                }
                for opened in &lock(&neighbour.state).links.opened {
                    if let Err(error) = opened.link.check() {
                        self.path_failed(number, &error);
                    }
                }
            }
        }
        if nic.finishing.load(Ordering::Relaxed) {
            return;
        }
        if let Some(Failing { neighbour, detail, until, reported }) = &mut *lock(&nic.failing)
            && !*reported
            && Instant::now() > *until
        {
            *reported = true;
            let rank = self.neighbours[*neighbour].rank;
            let how =
                Loss::Path { detail: format!("the path to it through the NIC failed: {detail}") };
            let host = self.peer(rank).host.clone();
            self.control.report(Cause::Lost { rank: rank as u32, host, how });
        }
    }

    /// Waits until `ready` gives something, and helps meanwhile. Failures of the path are not its affair: they end the
    /// world.
    pub fn until<T>(
        &self,
        neighbour: usize,
        timeout: Duration,
        op: &dyn Fn() -> String,
        mut ready: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let (mut backoff, since) = (Backoff::new(Deadline::after(timeout)), Instant::now());
        loop {
            if let Some(value) = ready()? {
                return Ok(value);
            }
            self.check_after(since.elapsed(), op)?;
            self.progress();
            if !backoff.pause() {
                let rank = self.neighbours[neighbour].rank;
                let host = self.peer(rank).host.clone();
                let age = since.elapsed();
                return Err(Error::Late {
                    op: op(),
                    rank,
                    host,
                    tag: 0,
                    expected: 1,
                    seen: 0,
                    age,
                    why: "".into(),
                });
            }
        }
    }

    /// Posts a batch from the host, once there is room. Gives the position of its last entry.
    pub fn start(
        &self,
        neighbour: usize,
        posts: &[Post<'_>],
        timeout: Duration,
        op: &dyn Fn() -> String,
    ) -> Result<u64> {
        let link = self.link_to(neighbour)?;
        self.until(neighbour, timeout, op, || match link.post(posts) {
            Ok(posted) => Ok(posted.map(|posted| posted.position)),
            Err(error) => {
                self.path_failed(neighbour, &error);
                Ok(None)
            }
        })
    }

    /// Waits until something is so of the host's link.
    pub fn until_host_link(
        &self,
        neighbour: usize,
        timeout: Duration,
        op: &dyn Fn() -> String,
        is: impl Fn(&Link) -> gdsync::nic::Result<bool>,
    ) -> Result<()> {
        let Some(link) = self.link(neighbour) else { return Ok(()) };
        self.until(neighbour, timeout, op, || {
            let is = is(link).unwrap_or_else(|error| {
                self.path_failed(neighbour, &error);
                false
            });
            Ok(is.then_some(()))
        })
    }

    /// Posts a batch from the host and waits until it is complete.
    pub fn carry_out(
        &self,
        neighbour: usize,
        posts: &[Post<'_>],
        timeout: Duration,
        op: &dyn Fn() -> String,
    ) -> Result<()> {
        let position = self.start(neighbour, posts, timeout, op)?;
        self.until_host_link(neighbour, timeout, op, |link| link.is_complete(position))
    }

    /// The right to post so much to a stream's link; waits for room.
    pub fn turn_with_room<'a>(
        &self,
        neighbour: usize,
        link: &'a Link,
        posts: &[Post<'_>],
        timeout: Duration,
        op: &dyn Fn() -> String,
    ) -> Result<Turn<'a>> {
        self.until(neighbour, timeout, op, || {
            let turn = link.turn();
            match turn.has_room(posts) {
                Ok(room) => Ok(room.then_some(turn)),
                Err(error) => {
                    self.path_failed(neighbour, &error);
                    Ok(None)
                }
            }
        })
    }

    /// A stream's link to a neighbour; the first time this waits until the neighbour has connected its side.
    pub fn stream_link(
        &self,
        neighbour: usize,
        stream: &Stream,
        timeout: Duration,
        op: &dyn Fn() -> String,
    ) -> Result<Arc<Link>> {
        let (owner, device) = (stream.name().to_owned(), stream.device());
        let opened = self.open_link(neighbour, owner, device, Use::Stream, op)?;
        if !self.is_connected(&opened, op)? {
            self.until(neighbour, timeout, op, || {
                self.listen(neighbour);
                Ok(self.is_connected(&opened, op)?.then_some(()))
            })?;
        }
        Ok(opened.link.clone())
    }

    /// Whether everything that this rank's host, streams and kernels have posted for a neighbour is complete, or never will be.
    pub fn links_are_idle(&self, neighbour: usize) -> bool {
        let is_idle = |link: &Link| link.is_idle().unwrap_or(true);
        let state = lock(&self.neighbours[neighbour].state);
        state.links.opened.iter().all(|opened| is_idle(&opened.link))
            && self.link(neighbour).is_none_or(|link| is_idle(link))
    }

    /// Whether the neighbour has connected its side of a link.
    ///
    /// # Errors
    /// If it cannot: what ended the world, or [`Error::Mismatch`] with its reason.
    pub fn is_connected(&self, opened: &OpenedLink, op: &dyn Fn() -> String) -> Result<bool> {
        match opened.answer.get() {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(reason)) => {
                self.check_after(Duration::ZERO, op)?;
                Err(Error::Mismatch { op: op(), reason: reason.clone() })
            }
        }
    }

    /// The links that kernels of a device post to, and asks the neighbour for its side of them the first time:
    /// [`are_connected`](Self::are_connected) says when that is there.
    pub fn kernel_links(
        &self,
        neighbour: usize,
        device: &Device,
        op: &dyn Fn() -> String,
    ) -> Result<Arc<KernelLinks>> {
        let owner = format!("kernels of {device}");
        let known =
            |links: &OpenedLinks| links.kernels.iter().find(|it| it.owner == owner).cloned();
        if let Some(links) = known(&lock(&self.neighbours[neighbour].state).links) {
            return Ok(links);
        }
        let rank = self.neighbours[neighbour].rank;
        let nic = self.nic.as_ref().ok_or_else(|| self.not_introduced(rank))?;
        let far =
            self.neighbours.made().filter(|(_, neighbour)| neighbour.behind.is_some()).count();
        let count = nic.contexts(device, far);
        let open = |owner| self.open_link(neighbour, owner, device, Use::Kernels, op);
        let made = self.links_of_kernels(nic, owner.clone(), device, count, op, open)?;
        let links = &mut lock(&self.neighbours[neighbour].state).links;
        // Two threads may come at once: one's stay.
        if let Some(links) = known(links) {
            return Ok(links);
        }
        let made = Arc::new(made);
        links.kernels.push(made.clone());
        Ok(made)
    }

    /// The links by which kernels of a device change this rank's own memory as its peers do, where those do it through the NIC:
    /// one queue, whose requests come back to this rank.
    pub fn own_links(&self, device: &Device, op: &dyn Fn() -> String) -> Result<Arc<KernelLinks>> {
        let owner = format!("kernels of {device}");
        let nic = self.nic.as_ref().ok_or_else(|| self.not_introduced(self.rank()))?;
        let mut own = lock(&nic.own);
        if let Some(links) = own.kernels.iter().find(|it| it.owner == owner) {
            return Ok(links.clone());
        }
        let made = self.links_of_kernels(nic, owner, device, 1, op, |owner| {
            let from = (&*nic.nic, &*self.pieces);
            // Within one NIC, which chooses the wire: the way to no other rank.
            let end = |device, what| Link::new(from, device, what, None, nic.patience);
            let both = || -> gdsync::nic::Result<(Link, Link)> {
                let both = (end(device, Use::Kernels)?, end(&Device::Host, Use::Answer)?);
                both.0.connect(&both.1.address(), None)?;
                both.1.connect(&both.0.address(), None)?;
                Ok(both)
            };
            let (link, answer) = both().map_err(refused(op))?;
            own.answered.push(answer);
            let (link, answer) = (Arc::new(link), OnceLock::from(Ok(())));
            Ok(Arc::new(OpenedLink { owner, link, answer }))
        })?;
        let made = Arc::new(made);
        own.kernels.push(made.clone());
        Ok(made)
    }

    /// So many links of a device's kernels, each of which is opened for its owner, and what kernels have of them.
    fn links_of_kernels(
        &self,
        nic: &Nic,
        owner: String,
        device: &Device,
        count: u32,
        op: &dyn Fn() -> String,
        mut open: impl FnMut(String) -> Result<Arc<OpenedLink>>,
    ) -> Result<KernelLinks> {
        let (mut contexts, mut rows, mut held) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..count {
            let opened = open(format!("{owner}, context {number}"))?;
            let queue = opened.link.for_kernels().map_err(refused(op))?;
            let blocks = queue.blocks as usize;
            let failed = |source| Error::Memory { op: op(), source };
            // Behind the slots the word that nobody reads.
            let bytes = blocks * REPLY_BYTES as usize + size_of::<u64>();
            let replies = self.pieces.cut(device, Space::Pinned, bytes).map_err(failed)?;
            let replies = nic.nic.register(&replies, Access::LOCAL_WRITE).map_err(refused(op))?;
            let taken = self.pieces.cut_for(device, blocks * size_of::<u32>()).map_err(failed)?;
            rows.push(Context {
                queue,
                replies: replies.address(),
                taken: taken.device_address().unwrap_or_default(),
                replies_key: replies.lkey(),
                reserved: 0,
            });
            contexts.push(opened);
            held.push((replies, taken));
        }
        let view = self.table(device, &rows, op)?;
        Ok(KernelLinks { owner, contexts, view, given: 0.into(), _held: held })
    }

    /// Whether the neighbour has connected its side of all of a device's links.
    ///
    /// # Errors
    /// As [`is_connected`](Self::is_connected).
    pub fn are_connected(&self, links: &KernelLinks, op: &dyn Fn() -> String) -> Result<bool> {
        for context in &links.contexts {
            if !self.is_connected(context, op)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn open_link(
        &self,
        neighbour: usize,
        owner: String,
        device: &Device,
        what: Use,
        op: &dyn Fn() -> String,
    ) -> Result<Arc<OpenedLink>> {
        let mut state = lock(&self.neighbours[neighbour].state);
        if let Some(known) = state.links.opened.iter().find(|link| link.owner == owner) {
            return Ok(known.clone());
        }
        let rank = self.neighbours[neighbour].rank;
        let (nic, wire) = self
            .nic
            .as_ref()
            .zip(self.neighbours[neighbour].path.wire())
            .ok_or_else(|| self.not_introduced(rank))?;
        let from = (&*nic.nic, &*self.pieces);
        let link = Link::new(from, device, what, wire, nic.patience).map_err(refused(op))?;
        // As many as there are streams, and contexts of devices.
        let number = state.links.opened.len() as u32;
        self.post(neighbour, &mut state, &Notice::Link { number, address: link.address() })?;
        let link = Arc::new(link);
        let opened = Arc::new(OpenedLink { owner, link, answer: OnceLock::new() });
        state.links.opened.push(opened.clone());
        Ok(opened)
    }

    /// What kernels of a device read, in its memory.
    pub fn table<T: Pod>(
        &self,
        device: &Device,
        rows: &[T],
        op: &dyn Fn() -> String,
    ) -> Result<Buffer<T>> {
        let table = || -> gdsync::Result<Buffer<T>> {
            let table = self.pieces.cut_for(device, size_of_val(rows))?.cast()?;
            table.write(rows)?;
            Ok(table)
        };
        table().map_err(|source| Error::Memory { op: op(), source })
    }

    /// The neighbour wants a link for one of its streams or devices: what it is told.
    pub fn answer_link(
        &self,
        neighbour: usize,
        links: &mut OpenedLinks,
        address: &LinkAddress,
    ) -> std::result::Result<LinkAddress, String> {
        let (Some(nic), Some(wire)) = (&self.nic, self.neighbours[neighbour].path.wire()) else {
            return Err("this rank has no NIC".into());
        };
        let answer = || -> gdsync::nic::Result<Link> {
            let from = (&*nic.nic, &*self.pieces);
            let link = Link::new(from, &Device::Host, Use::Answer, wire, nic.patience)?;
            link.connect(address, wire)?;
            Ok(link)
        };
        let link = answer().map_err(|error| format!("the peer refuses a queue pair: {error}"))?;
        let own = link.address();
        links.answered.push(link);
        Ok(own)
    }

    /// The neighbour has answered.
    pub fn link_answered(
        &self,
        neighbour: usize,
        links: &OpenedLinks,
        number: u32,
        address: std::result::Result<LinkAddress, String>,
    ) {
        let wire = self.neighbours[neighbour].path.wire();
        let (Some(opened), Some(wire)) = (links.opened.get(number as usize), wire) else { return };
        let answer = address.and_then(|address| {
            opened.link.connect(&address, wire).map_err(|error| {
                // It may have ended since it answered.
                if let gdsync::nic::Error::Connect { process: Some(pid), .. } = &error {
                    self.await_ending(*pid);
                    self.suspect_process(neighbour, *pid, error.to_string());
                }
                error.to_string()
            })
        });
        // It is answered once.
        let _ = opened.answer.set(answer);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
