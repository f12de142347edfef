//! A rank's data plane: its arena, the neighbours it shares memory with, the operations that are not paired yet, and those
//! that wait for help of this rank's calls.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use gdsync::{Deadline, Device, PeerHandle, Space, Stream, Watchdog, Word64};

use super::arena::Arena;
use super::device::{DeviceHalf, DeviceNotice, Report, Watch};
use super::half::{Half, OtherNotice, Side};
use super::mailbox::Mailbox;
use super::notice::{Key, Lane, Notice, WordName};
use super::operation::Name;
use super::pairing::Pairing;
use super::region::Pieces;
use super::word::Words;
use crate::control::Control;
use crate::control::cause::{Cause, Loss};
use crate::control::message::PeerInfo;
use crate::error::{Error, Result};

/// Between two rounds of help while a rank waits for a stream.
const HELP: Duration = Duration::from_millis(1);

/// A rank's data plane.
pub(crate) struct Plane {
    control: Arc<Control>,
    rank: usize,
    peers: Arc<[PeerInfo]>,
    arena: Arena,
    words: Mutex<Words>,
    /// The ranks of this host, in rank order, this one among them.
    neighbours: Vec<Neighbour>,
    /// Their arenas, in the same order, once all ranks have told theirs.
    arenas: OnceLock<Vec<PeerHandle>>,
    /// Started operations that need a call of this rank to go on.
    helpless: Mutex<Vec<Arc<Half>>>,
    helpless_count: AtomicUsize,
    /// Notices that wait for room in a mailbox.
    backlog: AtomicUsize,
    pub pieces: Pieces,
    streams: Mutex<Streams>,
    /// Failures of device operations.
    watch: Watch,
}

/// Streams of the world, and what ends their waits when it fails.
#[derive(Default)]
struct Streams {
    /// For each device (`None`: the host), because its abort word must be one that the device reaches.
    watchdogs: Vec<(Option<u32>, Watchdog)>,
    /// For each device on which messages are moved that the CPU does not reach.
    copies: Vec<Arc<Stream>>,
}

/// A rank that shares memory with this one.
struct Neighbour {
    rank: usize,
    inbox: Mailbox,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    outbox: Option<Mailbox>,
    backlog: VecDeque<Vec<u8>>,
    sends: Pairing<Arc<Half>, OtherNotice>,
    recvs: Pairing<Arc<Half>, OtherNotice>,
    device_sends: Pairing<Arc<DeviceHalf>, DeviceNotice>,
    device_recvs: Pairing<Arc<DeviceHalf>, DeviceNotice>,
}

impl Plane {
    /// The data plane of a rank. Before [`connect`](Self::connect) nothing can be prepared.
    pub fn new(control: Arc<Control>, peers: Arc<[PeerInfo]>) -> Result<Plane> {
        let rank = control.rank();
        let here = peers.get(rank).map(|peer| &peer.node);
        let ranks: Vec<usize> =
            (0..peers.len()).filter(|&peer| Some(&peers[peer].node) == here).collect();
        let arena = Arena::create(ranks.len())?;
        let neighbours = ranks
            .into_iter()
            .enumerate()
            .map(|(place, rank)| {
                Ok(Neighbour { rank, inbox: arena.mailbox(place)?, state: Mutex::default() })
            })
            .collect::<Result<_>>()?;
        Ok(Plane {
            control,
            rank,
            peers,
            arena,
            words: Mutex::default(),
            neighbours,
            arenas: OnceLock::new(),
            helpless: Mutex::default(),
            helpless_count: AtomicUsize::new(0),
            backlog: AtomicUsize::new(0),
            pieces: Pieces::default(),
            streams: Mutex::default(),
            watch: Watch::default(),
        })
    }

    /// What the other ranks need to know of this one.
    pub fn introduction(&self) -> Result<Vec<u8>> {
        let handle = self.arena.export()?;
        postcard::to_stdvec(&handle).map_err(|error| self.nonsense(self.rank, &error.to_string()))
    }

    /// Takes in the introductions of all ranks, in rank order.
    pub fn connect(&self, introductions: &[Vec<u8>]) -> Result<()> {
        let arenas = self
            .neighbours
            .iter()
            .map(|neighbour| {
                let blob = introductions.get(neighbour.rank).map_or(&[][..], |blob| &blob[..]);
                postcard::from_bytes(blob)
                    .map_err(|error| self.nonsense(neighbour.rank, &error.to_string()))
            })
            .collect::<Result<Vec<PeerHandle>>>()?;
        // A second time would bring the same.
        let _ = self.arenas.set(arenas);
        Ok(())
    }

    pub fn peer(&self, rank: usize) -> &PeerInfo {
        &self.peers[rank]
    }

    /// The neighbour that is rank `rank` of the world.
    ///
    /// # Errors
    /// [`Error::NoPath`] if it is on another host.
    pub fn neighbour(&self, rank: usize) -> Result<usize> {
        self.neighbours.binary_search_by_key(&rank, |neighbour| neighbour.rank).map_err(|_| {
            Error::NoPath {
                rank,
                from: self.peer(self.rank).host.clone(),
                to: self.peer(rank).host.clone(),
            }
        })
    }

    /// A word for an operation, and its value that stands for epoch 0.
    pub fn take_word(
        &self,
        device: &Device,
        op: impl FnOnce() -> String,
    ) -> Result<(Word64, WordName)> {
        let index = lock(&self.words).take(op)?;
        let word = self.own_arena(device)?.word(index)?;
        let base = word.load().unwrap_or_default();
        Ok((word, WordName { index, base }))
    }

    fn own_arena(&self, device: &Device) -> Result<Arena> {
        match device {
            Device::Host => Ok(self.arena.clone()),
            Device::Cuda(_) => Arena::map(&self.arena.export()?, self.neighbours.len(), device),
        }
    }

    /// A word of a neighbour's arena.
    pub fn peer_word(&self, neighbour: usize, index: u32, device: &Device) -> Result<Word64> {
        self.peer_arena(neighbour, device)?.word(index)
    }

    fn peer_arena(&self, neighbour: usize, device: &Device) -> Result<Arena> {
        let handle = self.arenas.get().and_then(|arenas| arenas.get(neighbour));
        let rank = self.neighbours[neighbour].rank;
        let handle = handle.ok_or_else(|| self.nonsense(rank, "it was not introduced"))?;
        let arena = Arena::map(handle, self.neighbours.len(), device);
        if let Err(Error::Memory { source, .. }) = &arena {
            self.suspect(neighbour, source);
        }
        arena
    }

    /// An operation was prepared: tells the peer, and pairs what can be paired.
    pub fn announce(&self, half: &Arc<Half>, notice: Notice) -> Result<()> {
        let mut state = lock(&self.neighbours[half.neighbour].state);
        self.post(half.neighbour, &mut state, &notice)?;
        let pairing = match half.side {
            Side::Send => &mut state.sends,
            Side::Recv => &mut state.recvs,
        };
        let pair = pairing.here(half.key, half.clone());
        self.pair(half.neighbour, &mut state, pair);
        Ok(())
    }

    /// The same for an end of a device operation.
    pub fn announce_device(&self, half: &Arc<DeviceHalf>, notice: Notice) -> Result<()> {
        let mut state = lock(&self.neighbours[half.neighbour].state);
        self.post(half.neighbour, &mut state, &notice)?;
        let pairing = match half.side {
            Side::Send => &mut state.device_sends,
            Side::Recv => &mut state.device_recvs,
        };
        if let Some((half, other)) = pairing.here(half.key, half.clone()) {
            half.pair(self, other);
        }
        Ok(())
    }

    /// Whether the peer of an end of a device operation has told of an end for the host instead, which waits for its own peer.
    pub fn told_of_host_end(&self, half: &DeviceHalf) -> bool {
        let state = lock(&self.neighbours[half.neighbour].state);
        let key = Key { lane: Lane::Message, ..half.key };
        match half.side {
            Side::Send => state.sends.told(key),
            Side::Recv => state.recvs.told(key),
        }
    }

    /// Takes in what a neighbour has told, if it is of interest.
    pub fn listen_if(&self, interesting: bool, neighbour: usize) {
        if interesting {
            self.listen(neighbour);
        }
    }

    /// Takes in what a neighbour has told.
    pub fn listen(&self, neighbour: usize) {
        if self.neighbours[neighbour].inbox.is_empty() {
            return;
        }
        let mut state = lock(&self.neighbours[neighbour].state);
        loop {
            let blob = match self.neighbours[neighbour].inbox.take() {
                Ok(Some(blob)) => blob,
                Ok(None) => return,
                Err(error) => return drop(self.breach(neighbour, &error.to_string())),
            };
            let pair = match Notice::decode(&blob) {
                Some(Notice::Send { key, word, len }) => {
                    state.recvs.there(key, OtherNotice { word, len, memory: None })
                }
                Some(Notice::Recv { key, word, len, memory }) => {
                    state.sends.there(key, OtherNotice { word, len, memory })
                }
                Some(Notice::DeviceSend { key, end }) => {
                    if let Some((half, other)) = state.device_recvs.there(key, end) {
                        half.pair(self, other);
                    }
                    None
                }
                Some(Notice::DeviceRecv { key, end }) => {
                    if let Some((half, other)) = state.device_sends.there(key, end) {
                        half.pair(self, other);
                    }
                    None
                }
                Some(Notice::Close { word }) => {
                    lock(&self.words).close(word);
                    None
                }
                None => return drop(self.breach(neighbour, "a notice that is none")),
            };
            self.pair(neighbour, &mut state, pair);
        }
    }

    fn pair(&self, neighbour: usize, state: &mut State, pair: Option<(Arc<Half>, OtherNotice)>) {
        let Some((half, other)) = pair else { return };
        half.pair(self, other);
        self.close(neighbour, state, &half);
    }

    /// The user has dropped an operation with nothing under way.
    pub fn retire(&self, half: &Half) {
        let mut state = lock(&self.neighbours[half.neighbour].state);
        half.mark_dropped();
        self.close(half.neighbour, &mut state, half);
    }

    /// Gives the words of a dropped operation back, and tells the peer, unless its other side is not known yet.
    fn close(&self, neighbour: usize, state: &mut State, half: &Half) {
        let Some((own, theirs)) = half.done_words() else { return };
        lock(&self.words).drop_here(own);
        // At the end of the world nobody needs to know.
        let _ = self.post(neighbour, state, &Notice::Close { word: theirs });
    }

    /// Puts a notice into a neighbour's mailbox, or in line for it.
    fn post(&self, neighbour: usize, state: &mut State, notice: &Notice) -> Result<()> {
        let blob = notice.encode()?;
        if state.outbox.is_none() {
            let place = self.neighbour(self.rank)?;
            state.outbox = Some(self.peer_arena(neighbour, &Device::Host)?.mailbox(place)?);
        }
        state.backlog.push_back(blob);
        self.backlog.fetch_add(1, Ordering::Relaxed);
        self.flush(state)
    }

    fn flush(&self, state: &mut State) -> Result<()> {
        let State { outbox: Some(outbox), backlog, .. } = state else { return Ok(()) };
        while let Some(blob) = backlog.front() {
            if !outbox.put(blob)? {
                break;
            }
            backlog.pop_front();
            self.backlog.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// A stream whose waits end when the world does.
    pub fn stream(&self, device: &Device) -> Result<Stream> {
        self.stream_of(&mut lock(&self.streams), device)
    }

    fn stream_of(&self, streams: &mut Streams, device: &Device) -> Result<Stream> {
        let watchdog = self.watchdog(streams, device)?;
        let failed = |source| Error::Memory { op: format!("a stream on {device}"), source };
        device.watched_stream(&watchdog).map_err(failed)
    }

    fn watchdog(&self, streams: &mut Streams, device: &Device) -> Result<Watchdog> {
        let ordinal = device.as_cuda().map(gdsync::CudaDevice::ordinal);
        if let Some((_, watchdog)) = streams.watchdogs.iter().find(|(of, _)| *of == ordinal) {
            return Ok(watchdog.clone());
        }
        let failed = |source| Error::Memory { op: format!("a watchdog on {device}"), source };
        let watchdog = Watchdog::new(device).map_err(failed)?;
        let released = watchdog.clone();
        self.control.on_failure(move |cause| released.abort(cause));
        streams.watchdogs.push((ordinal, watchdog.clone()));
        Ok(watchdog)
    }

    /// The word that is not 0 any more when the world has failed, and its address for the device.
    pub fn abort_of(&self, device: &Device) -> Result<(u64, Word64)> {
        let word = self.watchdog(&mut lock(&self.streams), device)?.abort_word().clone();
        let failed = |source| Error::Memory { op: format!("the abort word on {device}"), source };
        Ok((word.device_address().map_err(failed)?, word))
    }

    /// A report for a device operation, which [`synchronize`](Self::synchronize) looks at.
    pub fn report(&self, device: &Device, name: Arc<Name>) -> Result<Arc<Report>> {
        let failed = |source| Error::Memory { op: name.to_string(), source };
        let slot = self.pieces.cut(device, Space::Pinned, 8 * Report::WORDS);
        let slot = slot.and_then(|slot| slot.cast()).map_err(failed)?;
        let report = Arc::new(Report::new(name.clone(), slot));
        self.watch.add(&report);
        Ok(report)
    }

    /// Waits for a stream, and helps meanwhile.
    pub fn synchronize(&self, stream: &Stream, deadline: Deadline) -> Result<()> {
        let op = || format!("synchronising {}", stream.name());
        loop {
            let helping = self.progress();
            let slice = if helping { HELP.min(deadline.remaining()) } else { deadline.remaining() };
            let result = stream.synchronize(Deadline::after(slice));
            if matches!(result, Err(gdsync::Error::Timeout { .. })) && !deadline.expired() {
                continue;
            }
            self.check_after(deadline.elapsed(), op)?;
            if let Some(failure) = self.watch.failure() {
                return Err(failure);
            }
            return result.map_err(|source| Error::Memory { op: op(), source });
        }
    }

    /// The stream that moves messages of a device's memory which the host starts.
    pub fn copy_stream(&self, device: &Device) -> Result<Arc<Stream>> {
        let mut streams = lock(&self.streams);
        let ordinal = |device: &Device| device.as_cuda().map(gdsync::CudaDevice::ordinal);
        let known = streams.copies.iter().find(|s| ordinal(s.device()) == ordinal(device));
        if let Some(stream) = known {
            return Ok(stream.clone());
        }
        let stream = Arc::new(self.stream_of(&mut streams, device)?);
        streams.copies.push(stream.clone());
        Ok(stream)
    }

    /// Notes something that cannot go on by itself.
    pub fn adopt(&self, operation: Arc<Half>) {
        let mut helpless = lock(&self.helpless);
        helpless.push(operation);
        self.helpless_count.store(helpless.len(), Ordering::Relaxed);
    }

    /// Helps what cannot go on by itself. Every waiting call does this while it waits. True if something still needs help.
    pub fn progress(&self) -> bool {
        if self.backlog.load(Ordering::Relaxed) > 0 {
            for (number, neighbour) in self.neighbours.iter().enumerate() {
                if let Err(error) = self.flush(&mut lock(&neighbour.state)) {
                    self.breach(number, &error.to_string());
                }
            }
        }
        if self.helpless_count.load(Ordering::Relaxed) > 0
            && let Ok(mut helpless) = self.helpless.try_lock()
        {
            helpless.retain(|operation| !operation.help(self));
            self.helpless_count.store(helpless.len(), Ordering::Relaxed);
        }
        self.backlog.load(Ordering::Relaxed) > 0 || self.helpless_count.load(Ordering::Relaxed) > 0
    }

    /// Whether the world is over. Cheap.
    pub fn ended(&self) -> bool {
        self.control.abort_word().load(Ordering::Acquire) != 0 || self.control.finished()
    }

    /// An error if the world is over, for an operation that has been going on for `age`.
    pub fn check_after(&self, age: Duration, op: impl FnOnce() -> String) -> Result<()> {
        if self.ended() { self.control.check_after(&op(), age) } else { Ok(()) }
    }

    /// A neighbour's memory could not be mapped: if that is because its process has ended, the world is over, and what
    /// waits says so.
    pub fn suspect(&self, neighbour: usize, error: &gdsync::Error) {
        let gdsync::Error::PeerUnreachable { pid, .. } = error else { return };
        if !has_ended(*pid) {
            return;
        }
        let rank = self.neighbours[neighbour].rank;
        let (host, detail) = (self.peer(rank).host.clone(), error.to_string());
        let how = Loss::Path { detail };
        self.control.fail(Cause::Lost { rank: rank as u32, host, how });
    }

    /// A neighbour breaks the protocol: the world is over.
    fn breach(&self, neighbour: usize, what: &str) -> Error {
        self.nonsense(self.neighbours[neighbour].rank, what)
    }

    fn nonsense(&self, rank: usize, what: &str) -> Error {
        let host = &self.peer(rank).host;
        self.control.breach(format!("the data plane of rank {rank} on {host}: {what}"))
    }
}

/// Whether there is no such process any more, or only its remains.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state is the first field after the command in parentheses: proc(5).
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, None | Some('Z' | 'X'))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_ended_when_it_is_gone_or_only_its_remains_are_there() {
        assert!(!has_ended(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        for _ in 0..1000 {
            if has_ended(child.id()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // It has not been waited for.
        assert!(has_ended(child.id()));
        child.wait().unwrap();
        assert!(has_ended(child.id()));
    }
}
