//! One end of a pair of device operations, as its own rank keeps it: what it was prepared with, and, once the peer has
//! prepared its end, the plain struct that kernels and stream operations work with.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use gdsync::{Buffer, Deadline, PeerHandle, PeerMemory};
use mp_kernels::Message;

use super::host::HostEnd;
use super::report::Report;
use super::station::{Station, packets};
use crate::data::half::{Side, broken};
use crate::data::notice::{Key, Notice};
use crate::data::operation::{Name, Progress, What, pause};
use crate::data::peer::Peer;
use crate::data::plane::Plane;
use crate::data::wait::Backoff;
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
    pub report: Arc<Report>,
    way: OnceLock<Result<Way>>,
}

/// What the peer tells of its end.
pub(crate) struct DeviceNotice {
    pub len: u64,
    pub gpu: bool,
    pub station: PeerHandle,
    pub memory: Option<PeerHandle>,
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
        let neighbour = plane.mapped_neighbour(peer.rank)?;
        plane.listen(neighbour);
        let failed = |source| broken(&name, source);
        let (device, len) = (memory.device(), memory.len() as u64);
        // The peer's kind of device is not known yet; if it is no GPU the slots stay unused.
        let inbox = (side == Side::Recv && packets(device, true, len)).then_some(len);
        let station = plane.pieces.cut_for(device, Station::size(inbox)).map_err(failed)?;
        let handle = station.export().map_err(failed)?;
        let target = match side {
            Side::Recv if len > 0 && inbox.is_none() => Some(memory.export().map_err(failed)?),
            _ => None,
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
            report,
            way: OnceLock::new(),
        });
        let (gpu, station) = (half.memory.device().as_cuda().is_some(), handle);
        let notice = match side {
            Side::Send => Notice::DeviceSend { key, len, gpu, station },
            Side::Recv => Notice::DeviceRecv { key, len, gpu, station, memory: target },
        };
        plane.announce_device(&half, notice)?;
        Ok(half)
    }

    /// The other end is known now.
    pub fn pair(&self, plane: &Plane, other: DeviceNotice) {
        let way = self.way_to(plane, &other);
        if let Err(Error::Memory { source, .. }) = &way {
            plane.suspect(self.neighbour, source);
        }
        // An end is paired once.
        let _ = self.way.set(way);
    }

    fn way_to(&self, plane: &Plane, other: &DeviceNotice) -> Result<Way> {
        let failed = |source| broken(&self.name, source);
        let here = self.memory.len() as u64;
        let (sent, posted) = match self.side {
            Side::Send => (here, other.len),
            Side::Recv => (other.len, here),
        };
        if sent > posted {
            return Err(Error::Truncated { op: self.name.to_string(), sent, posted });
        }
        let device = self.memory.device();
        if device.as_cuda().is_some() != other.gpu {
            let (mine, theirs) =
                if other.gpu { ("the host", "a GPU") } else { ("a GPU", "the host") };
            return Err(Error::Mismatch {
                op: self.name.to_string(),
                reason: format!(
                    "the memory here is {mine}'s and the peer's is {theirs}'s; prepare both ends for the host (`prepare`)"
                ),
            });
        }
        let theirs = PeerMemory::map(&other.station, device).map_err(failed)?.buffer;
        let mut held = vec![theirs.clone()];
        let theirs = Station::new(theirs);
        let as_packets = packets(device, other.gpu, posted);
        let mut target = None;
        if let (Side::Send, false, Some(handle), true) =
            (self.side, as_packets, &other.memory, sent > 0)
        {
            let whole = PeerMemory::map(handle, device).map_err(failed)?.buffer;
            target = Some(whole.slice(0..self.memory.len()).map_err(failed)?);
            held.extend(target.clone());
        }
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
                mine: self.station.signal()?.device_address()?,
                theirs: theirs.signal()?.device_address()?,
                state: self.station.state()?,
                abort,
                timeout_ns: u64::try_from(self.timeout.as_nanos()).unwrap_or(u64::MAX),
                report: self.report.address()?,
            })
        };
        let message = addresses().map_err(failed)?;
        let host = match device {
            gdsync::Device::Cuda(_) => None,
            gdsync::Device::Host => {
                let memory = self.memory.slice(0..sent as usize).map_err(failed)?;
                let end = HostEnd::new(
                    &self.station,
                    &theirs,
                    memory,
                    target,
                    abort_word,
                    self.timeout,
                    self.report.clone(),
                );
                Some(Arc::new(end.map_err(failed)?))
            }
        };
        Ok(Way { message, host, held })
    }

    /// The way to the peer; waits until it has prepared its end.
    pub fn meet(&self, plane: &Plane) -> Result<&Way> {
        plane.check_after(Duration::ZERO, || self.name.to_string())?;
        if self.way.get().is_none() {
            let since = Instant::now();
            let mut backoff = Backoff::new(Deadline::after(self.timeout));
            loop {
                plane.listen(self.neighbour);
                if self.way.get().is_some() {
                    break;
                }
                plane.progress();
                pause(plane, &mut backoff, || {
                    let what = What { name: self.name.clone(), expected: 0, seen: 0 };
                    Progress { what, age: since.elapsed() }
                })?;
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
