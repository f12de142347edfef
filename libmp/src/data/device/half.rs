//! One end of a pair of device operations, as its own rank keeps it: what it was prepared with, and, once the peer has
//! prepared its end, the plain struct that kernels and stream operations work with.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use gdsync::{Buffer, Deadline, Device, PeerHandle, PeerMemory, Space, Stream};
use mp_kernels::Message;
use serde::{Deserialize, Serialize};

use super::far::{FarEnd, FarOpening};
use super::host::{HostEnd, Target, Theirs};
use super::report::Report;
use super::station::{Station, packets};
use super::trigger::Trigger;
use crate::data::half::{Side, broken};
use crate::data::notice::{Key, Lane, Notice};
use crate::data::operation::{Name, Progress, What, pause};
use crate::data::path::Path;
use crate::data::peer::Peer;
use crate::data::plane::Plane;
use crate::data::wait::Backoff;
use crate::data::window::nanoseconds;
use crate::error::{Error, Result};

pub(crate) struct DeviceHalf {
    pub side: Side,
    pub neighbour: usize,
    pub key: Key,
    pub name: Arc<Name>,
    /// What is sent, or received into.
    pub memory: Buffer<u8>,
    timeout: Duration,
    pub station: Station,
    /// Of a GPU's end: a station in host memory, whose signal a peer uses that is no GPU.
    outer: Option<Station>,
    /// Of a send from host memory: where the message waits if a GPU is to fetch it.
    stage: Option<Buffer<u8>>,
    /// If the peer is behind the NIC; the three above are not used then.
    far: Option<FarEnd>,
    /// The peer's side of that.
    far_peer: OnceLock<FarOpening>,
    pub report: Arc<Report>,
    /// For starts by the host.
    pub trigger: Trigger,
    /// Of a put or a wait of a window, which nobody has prepared the other end of: the signals that a start raises.
    pub one_sided: Option<u64>,
    way: OnceLock<Result<Way>>,
}

/// An operation on a window, see [`DeviceHalf::of_window`].
pub(crate) struct OneSided {
    /// A put is a send, a wait for a signal a receive.
    pub side: Side,
    pub verb: &'static str,
    /// The signal's number.
    pub signal: u64,
    /// Whose memory or signal it is, in the world.
    pub rank: usize,
    /// What is put.
    pub memory: Option<Buffer<u8>>,
    pub device: Device,
    /// Where it goes; as long as `memory`.
    pub target: Option<Buffer<u8>>,
    /// The signal that a put raises, or that is waited for.
    pub word: Option<Buffer<u64>>,
    pub timeout: Duration,
}

/// What the peer tells of its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceNotice {
    pub len: u64,
    pub gpu: bool,
    pub opening: Opening,
}

/// How the peer gets to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "one for each end, and only on its way")]
pub(crate) enum Opening {
    Mapped {
        station: PeerHandle,
        /// A GPU's station in host memory.
        outer: Option<PeerHandle>,
        /// Of a receive the buffer, of a send what a GPU fetches the message from.
        memory: Option<PeerHandle>,
    },
    Far(FarOpening),
}

/// The way to the other end.
pub(crate) struct Way {
    pub message: Message,
    /// For streams of the CPU.
    pub host: Option<Arc<HostEnd>>,
    /// The peer's memory, mapped as long as this end lives.
    pub held: Vec<Buffer<u8>>,
}

impl DeviceHalf {
    /// Makes an end, tells the peer, and pairs what can be paired.
    pub fn prepare(
        peer: &Peer,
        side: Side,
        memory: Buffer<u8>,
        key: Key,
    ) -> Result<Arc<DeviceHalf>> {
        let plane = &peer.plane;
        let (verb, direction) = match side {
            Side::Send => ("device send", "to"),
            Side::Recv => ("device recv", "from"),
        };
        let name =
            Name { verb, tag: key.tag, direction, rank: peer.rank, host: peer.host().into() };
        plane.check_after(Duration::ZERO, || format!("preparing {name}"))?;
        let neighbour = plane.neighbour(peer.rank)?;
        plane.listen(neighbour);
        let direct = plane.path(peer.rank)? == Path::Direct;
        let failed = |source| broken(&name, source);
        let (device, len) = (memory.device(), memory.len() as u64);
        // The peer's kind of device is not known yet; if it is no GPU the slots stay unused.
        let inbox = (direct && side == Side::Recv && packets(device, true, len)).then_some(len);
        let station = plane.pieces.cut_for(device, Station::size(inbox)).map_err(failed)?;
        let gpu = device.as_cuda().is_some();
        let outer =
            (direct && gpu).then(|| plane.pieces.cut(device, Space::Pinned, Station::size(None)));
        let outer = outer.transpose().map_err(failed)?;
        let stage = (direct && side == Side::Send && !gpu && len > 0 && a_gpu_may_be_here())
            .then(|| plane.pieces.cut_for(device, memory.len()));
        let stage = stage.transpose().map_err(failed)?;
        let op = || name.to_string();
        let far =
            (!direct).then(|| FarEnd::new(plane, neighbour, side, &memory, &op)).transpose()?;
        let opening = match &far {
            Some(far) => Opening::Far(far.opening().clone()),
            None => {
                let open = match side {
                    Side::Recv => Some(&memory).filter(|_| len > 0 && inbox.is_none()),
                    Side::Send => stage.as_ref(),
                };
                let export = |buffer: Option<&Buffer<u8>>| {
                    buffer.map(Buffer::export).transpose().map_err(failed)
                };
                Opening::Mapped {
                    station: station.export().map_err(failed)?,
                    outer: export(outer.as_ref())?,
                    memory: export(open)?,
                }
            }
        };
        let name = Arc::new(name);
        let report = plane.report(device, name.clone())?;
        let half = Arc::new(DeviceHalf {
            side,
            neighbour,
            key,
            name,
            timeout: peer.timeout,
            memory,
            station: Station::new(station),
            outer: outer.map(Station::new),
            stage,
            far,
            far_peer: OnceLock::new(),
            report,
            trigger: Trigger::default(),
            one_sided: None,
            way: OnceLock::new(),
        });
        let end = DeviceNotice { len, gpu, opening };
        let notice = match side {
            Side::Send => Notice::DeviceSend { key, end },
            Side::Recv => Notice::DeviceRecv { key, end },
        };
        plane.announce_device(&half, notice)?;
        Ok(half)
    }

    /// The end of an operation on a window: its way is known. There is always room for a put, and a wait posts nothing, so
    /// what the peer of a message would have done has been done for all time.
    pub fn of_window(plane: &Plane, part: OneSided) -> Result<Arc<DeviceHalf>> {
        let OneSided { side, verb, signal, rank, memory, device, target, word, timeout } = part;
        let (host, direction) =
            (plane.peer(rank).host.clone(), if side == Side::Send { "to" } else { "of" });
        let name = Arc::new(Name { verb, tag: signal, direction, rank, host });
        plane.check_after(Duration::ZERO, || format!("preparing {name}"))?;
        let failed = |source| broken(&name, source);
        let cut = plane.pieces.cut_for(&device, Station::size(None)).map_err(failed)?;
        let station = Station::new(cut);
        station.make_room().map_err(failed)?;
        let memory = match memory {
            Some(memory) if !memory.is_empty() => memory,
            _ => station.memory().slice(0..0).map_err(failed)?,
        };
        let report = plane.report(&device, name.clone())?;
        let (abort, abort_word) = plane.abort_of(&device)?;
        let (full, nobody) =
            (station.signal().map_err(failed)?, station.nobodys().map_err(failed)?);
        let raises = u64::from(side == Side::Send && word.is_some());
        let mut held: Vec<Buffer<u8>> = target.iter().cloned().collect();
        held.extend(word.as_ref().map(Buffer::bytes));
        let word = word.map(|word| word.word(0)).transpose().map_err(failed)?;
        let word = word.unwrap_or_else(|| nobody.clone());
        let (mine, theirs) = match side {
            Side::Send => (full, word),
            Side::Recv => (word, nobody),
        };
        let addresses = || -> gdsync::Result<Message> {
            Ok(Message {
                memory: memory.device_address().unwrap_or_default(),
                len: memory.len() as u64,
                target: target.as_ref().and_then(Buffer::device_address).unwrap_or_default(),
                inbox: 0,
                mine: mine.device_address()?,
                theirs: theirs.device_address()?,
                state: station.state()?,
                abort,
                timeout_ns: u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX),
                report: report.address()?,
                nic: 0,
            })
        };
        let message = addresses().map_err(failed)?;
        let host = match device.as_cuda() {
            Some(_) => None,
            None => {
                let target = target.clone().map_or(Target::None, Target::Posted);
                let (bounds, report) = ((abort_word, timeout), report.clone());
                let (waits, raised) = (mine.clone(), Theirs::Mapped(theirs.clone()));
                let end =
                    HostEnd::new(&station, waits, raised, memory.clone(), target, bounds, report);
                Some(Arc::new(end.map_err(failed)?))
            }
        };
        let half = DeviceHalf {
            side,
            neighbour: usize::MAX,
            key: Key { group: 0, tag: signal, lane: Lane::Device },
            name,
            memory,
            timeout,
            station,
            outer: None,
            stage: None,
            far: None,
            far_peer: OnceLock::new(),
            report,
            trigger: Trigger::default(),
            one_sided: Some(raises),
            way: OnceLock::new(),
        };
        // Nobody else knows it yet.
        let _ = half.way.set(Ok(Way { message, host, held }));
        Ok(Arc::new(half))
    }

    /// The other end is known now.
    pub fn pair(&self, plane: &Plane, other: DeviceNotice) {
        let way = match (&other.opening, &self.far) {
            (Opening::Far(opening), Some(far)) => {
                let _ = self.far_peer.set(opening.clone());
                self.far_way_to(plane, far, other.len, opening)
            }
            (Opening::Mapped { station, outer, memory }, None) => {
                self.way_to(plane, &other, station, outer.as_ref(), memory.as_ref())
            }
            // Both sides know the path between them.
            _ => Err(plane.breach(self.neighbour, "an end of a device operation for another path")),
        };
        if let Err(Error::Memory { source, .. }) = &way {
            plane.suspect(self.neighbour, source);
        }
        // An end is paired once.
        let _ = self.way.set(way);
    }

    /// Length of the message and of the posted buffer.
    fn lengths(&self, other: u64) -> Result<(u64, u64)> {
        let here = self.memory.len() as u64;
        let (sent, posted) = match self.side {
            Side::Send => (here, other),
            Side::Recv => (other, here),
        };
        if sent > posted {
            return Err(Error::Truncated { op: self.name.to_string(), sent, posted });
        }
        Ok((sent, posted))
    }

    /// The way through the NIC.
    fn far_way_to(
        &self,
        plane: &Plane,
        far: &FarEnd,
        other_len: u64,
        other: &FarOpening,
    ) -> Result<Way> {
        let failed = |source| broken(&self.name, source);
        let (sent, _) = self.lengths(other_len)?;
        let device = self.memory.device();
        let (abort, abort_word) = plane.abort_of(device)?;
        let mine = far.station.signal().map_err(failed)?;
        let addresses = || -> gdsync::Result<Message> {
            Ok(Message {
                memory: self.memory.device_address().unwrap_or_default(),
                len: sent,
                target: far.slots()?,
                inbox: 0,
                mine: mine.device_address()?,
                theirs: 0,
                state: self.station.state()?,
                abort,
                timeout_ns: nanoseconds(self.timeout),
                report: self.report.address()?,
                nic: 0,
            })
        };
        let mut message = addresses().map_err(failed)?;
        let words = far.words(self.side, &message, other);
        far.table.write(&words.ok_or_else(|| plane.no_nic(self.neighbour))?).map_err(failed)?;
        message.nic = far.table.device_address().unwrap_or_default();
        let host = match device.as_cuda() {
            Some(_) => None,
            None => {
                let memory = self.memory.slice(0..sent as usize).map_err(failed)?;
                let link = plane.link(self.neighbour).cloned();
                let link = link.ok_or_else(|| plane.no_nic(self.neighbour))?;
                let theirs = Theirs::Far(far.way(link, sent, other));
                let bounds = (abort_word, self.timeout);
                let (report, target) = (self.report.clone(), Target::None);
                let end = HostEnd::new(&self.station, mine, theirs, memory, target, bounds, report);
                Some(Arc::new(end.map_err(failed)?))
            }
        };
        let held = vec![far.table.bytes(), far.station.memory().clone()];
        Ok(Way { message, host, held })
    }

    /// The user has dropped the operation: nothing starts it any more.
    pub fn retire(&self, plane: &Plane) {
        if let Some(far) = &self.far {
            far.retire(plane, self.neighbour, self.far_peer.get());
        }
    }

    fn way_to(
        &self,
        plane: &Plane,
        other: &DeviceNotice,
        other_station: &PeerHandle,
        other_outer: Option<&PeerHandle>,
        other_memory: Option<&PeerHandle>,
    ) -> Result<Way> {
        let failed = |source| broken(&self.name, source);
        let (sent, posted) = self.lengths(other.len)?;
        let device = self.memory.device();
        let gpu = device.as_cuda().is_some();
        let map = |handle: &PeerHandle| Ok(PeerMemory::map(handle, device).map_err(failed)?.buffer);
        // What a CPU is to write must be host memory: a GPU's end then waits on its outer station.
        let theirs = match (other_outer, gpu) {
            (Some(outer), false) => map(outer)?,
            _ => map(other_station)?,
        };
        let waits = match &self.outer {
            Some(outer) if !other.gpu => outer,
            _ => &self.station,
        };
        let mut held = vec![theirs.clone()];
        let theirs = Station::new(theirs);
        let as_packets = packets(device, other.gpu, posted);
        // From a CPU to a GPU; the receiver fetches from the sender's stage. Otherwise the sender writes the receiver's buffer.
        let fetched = gpu != other.gpu && gpu == (self.side == Side::Recv);
        let opens = (self.side == Side::Send) != fetched;
        let stage =
            if self.side == Side::Send { self.stage.is_some() } else { other_memory.is_some() };
        if fetched && !stage && sent > 0 {
            return Err(Error::Mismatch {
                op: self.name.to_string(),
                reason: "it goes from the memory of a host to that of a GPU, and the sending process sees no GPU driver, so it made no place from which a GPU could fetch".into(),
            });
        }
        let target = match other_memory {
            Some(handle) if opens && !as_packets && sent > 0 => {
                Some(map(handle)?.slice(0..sent as usize).map_err(failed)?)
            }
            _ => None,
        };
        held.extend(target.clone());
        let (abort, abort_word) = plane.abort_of(device)?;
        let addresses = || -> gdsync::Result<Message> {
            let inbox = match self.side {
                _ if !as_packets => 0,
                Side::Send => theirs.inbox()?,
                Side::Recv => self.station.inbox()?,
            };
            Ok(Message {
                memory: self.memory.device_address().unwrap_or_default(),
                len: sent,
                target: target.as_ref().and_then(Buffer::device_address).unwrap_or_default(),
                inbox,
                mine: waits.signal()?.device_address()?,
                theirs: theirs.signal()?.device_address()?,
                state: self.station.state()?,
                abort,
                timeout_ns: nanoseconds(self.timeout),
                report: self.report.address()?,
                nic: 0,
            })
        };
        let message = addresses().map_err(failed)?;
        let host = match device.as_cuda() {
            Some(_) => None,
            None => {
                let memory = self.memory.slice(0..sent as usize).map_err(failed)?;
                let target = match (&self.stage, target) {
                    (Some(stage), _) if fetched => Target::Fetched(stage.clone()),
                    (_, Some(target)) => Target::Posted(target),
                    (_, None) => Target::None,
                };
                let bounds = (abort_word, self.timeout);
                let (mine, report) = (waits.signal().map_err(failed)?, self.report.clone());
                let theirs = Theirs::Mapped(theirs.signal().map_err(failed)?);
                let end = HostEnd::new(&self.station, mine, theirs, memory, target, bounds, report);
                Some(Arc::new(end.map_err(failed)?))
            }
        };
        Ok(Way { message, host, held })
    }

    /// Makes sure that a stream is one of the memory's device.
    pub fn check(&self, stream: &Stream) -> Result<()> {
        let ordinal = |device: &Device| device.as_cuda().map(gdsync::CudaDevice::ordinal);
        let device = self.memory.device();
        if ordinal(device) == ordinal(stream.device()) {
            return Ok(());
        }
        Err(Error::Mismatch {
            op: self.name.to_string(),
            reason: format!(
                "its memory belongs to {device}, and {} is a stream of {}",
                stream.name(),
                stream.device()
            ),
        })
    }

    /// Whether the peer has prepared its end and, for kernels that reach it through the NIC, connected its side of their link.
    fn is_met(&self, plane: &Plane, by_kernels: bool) -> Result<bool> {
        let connected = match &self.far {
            Some(far) if by_kernels => plane.is_connected(&far.link, &|| self.name.to_string())?,
            _ => true,
        };
        Ok(connected && self.way.get().is_some())
    }

    /// The way to the peer for streams; waits until it has prepared its end.
    pub fn meet(&self, plane: &Plane) -> Result<&Way> {
        // On a GPU they are kernels.
        self.meet_by(plane, self.memory.device().as_cuda().is_some())
    }

    /// The way to the peer for kernels.
    pub fn meet_by_kernels(&self, plane: &Plane) -> Result<&Way> {
        self.meet_by(plane, true)
    }

    fn meet_by(&self, plane: &Plane, by_kernels: bool) -> Result<&Way> {
        plane.check_after(Duration::ZERO, || self.name.to_string())?;
        if !self.is_met(plane, by_kernels)? {
            let since = Instant::now();
            let mut backoff = Backoff::new(Deadline::after(self.timeout));
            loop {
                plane.listen(self.neighbour);
                if self.is_met(plane, by_kernels)? {
                    break;
                }
                plane.progress();
                let paused = pause(plane, &mut backoff, || {
                    let what = What { name: self.name.clone(), expected: 0, seen: 0 };
                    Progress { what, age: since.elapsed() }
                });
                if matches!(paused, Err(Error::Late { .. })) && plane.told_of_host_end(self) {
                    return Err(Error::Mismatch {
                        op: self.name.to_string(),
                        reason: "prepared with `prepare_device` here and with `prepare` by the peer: prepare both ends alike; a device operation is started by the host, too, with `by_host`".into(),
                    });
                }
                paused?;
            }
        }
        match self.way.get() {
            Some(Ok(way)) => Ok(way),
            Some(Err(error)) => Err(error.clone()),
            // It was waited for.
            None => Err(Error::NoOperations),
        }
    }
}

/// Whether a peer's memory may be a GPU's: whether the machine has a GPU driver, without starting it.
fn a_gpu_may_be_here() -> bool {
    static DRIVER: OnceLock<bool> = OnceLock::new();
    *DRIVER.get_or_init(|| {
        ["/dev/nvidiactl", "/dev/dxg"].iter().any(|file| std::path::Path::new(file).exists())
    })
}
