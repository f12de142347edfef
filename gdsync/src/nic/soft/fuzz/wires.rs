//! The wires under arbitrary bytes: what comes by the ring of a peer, and from a socket.

use std::cell::RefCell;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use super::Tape;
use crate::device::Device;
use crate::memory::copy::copy_bytes;
use crate::memory::{Buffer, Space};
use crate::nic::memory_region::Access;
use crate::nic::soft::keys::RegionMemory;
use crate::nic::soft::state::{Payload, Piece, Violation};
use crate::nic::soft::wire::frame::{Frame, HEADER, MAX_PAYLOAD};
use crate::nic::soft::wire::greeting::Greeting;
use crate::nic::soft::wire::rdma::each_frame;
use crate::nic::soft::wire::shm::{Ring, ShmWire};
use crate::nic::soft::wire::tcp::{Stranger, TcpWire};
use crate::nic::soft::wire::{Each, Sink, Wire};

/// A peer that writes anything into the ring that it shares with us: first the cursor it claims, then the records.
pub fn shared_ring(data: &[u8]) {
    thread_local! {
        static RING: RefCell<Option<[Ring; 2]>> = const { RefCell::new(None) };
    }
    RING.with_borrow_mut(|rings| {
        let ring = || Ring::create().expect("memory for a ring");
        let [inbound, outbound] = rings.get_or_insert_with(|| [ring(), ring()]);
        let mut tape = Tape(data);
        let written = u64::from_le_bytes(tape.bytes());
        inbound.fill(written, tape.0);
        let mut wire = ShmWire::new(inbound.clone(), outbound.clone(), std::process::id());
        let mut total = 0;
        for _ in 0..8 {
            let received = wire.receive(&mut Each(|_, payload: Payload<'_>| {
                total += payload.to_vec().len();
                Ok(())
            }));
            if !matches!(received, Ok(true)) {
                break;
            }
        }
        assert!(total <= data.len().max(1 << 18), "{total} bytes came out of {}", data.len());
    });
}

/// A connection from anybody: the first bytes are a stranger's, the rest a peer's. The same bytes as a message over RDMA, too.
pub fn tcp_stream(data: &[u8]) {
    let mut total = 0;
    let count = Each(|_, payload: Payload<'_>| {
        total += HEADER + payload.to_vec().len();
        Ok(())
    });
    let _ = each_frame(data, &mut { count });
    assert!(total <= data.len());
    let Ok((mut sender, receiver)) = UnixStream::pair() else { return };
    // The socket's buffer takes this much; more would block.
    let data = &data[..data.len().min(32 * 1024)];
    if receiver.set_nonblocking(true).is_err() || sender.write_all(data).is_err() {
        return;
    }
    drop(sender);
    let stream = std::net::TcpStream::from(OwnedFd::from(receiver));
    let mut stranger = Stranger::new(mio::net::TcpStream::from_std(stream));
    // A wrong hello would be the end; here it is so only for half of the inputs, to get further with the others.
    let greeting = match stranger.poll() {
        Ok(Some(greeting)) => greeting,
        _ if data.first().is_some_and(|first| first % 2 == 0) => return,
        _ => Greeting { qpn: 1, to: 2, from: 3 },
    };
    let mut wire = TcpWire::accept(stranger.into_stream(), greeting);
    let mut total = 0;
    let mut sink = Each(|_, payload: Payload<'_>| {
        total += payload.to_vec().len();
        Ok(())
    });
    while let Ok(true) = wire.receive(&mut sink) {}
    assert!(total <= data.len());
}

/// What is sent as payload, by its place in all of it.
fn sent(at: usize) -> u8 {
    (at * 7 + at / 251) as u8
}

/// Names places for the payload of large frames, with a gap behind each, and looks whether what comes is what was sent.
struct Places {
    memory: Arc<RegionMemory>,
    /// How many places a part has; 0: it has none.
    pieces: usize,
    /// The last that were named: offset and length.
    named: Vec<(usize, usize)>,
    taken: usize,
}

impl Places {
    const ADDRESS: u64 = 1 << 40;
    const GAP: usize = 24;
    /// Room for the longest part in the most places.
    const ROOM: usize = 1 << 20;

    fn pointer(&self, at: usize, len: usize) -> *mut u8 {
        let (address, len) = (Places::ADDRESS + at as u64, len as u64);
        self.memory.check(address, len, Access::ALL).expect("inside")
    }
}

impl Sink for Places {
    fn take(&mut self, _: Frame, payload: Payload<'_>) -> Result<(), Violation> {
        let mut bytes = payload.to_vec();
        if payload.len > 0 && payload.place().is_none() {
            for &(at, len) in &self.named {
                let len = len.min(payload.len - bytes.len());
                let mut part = vec![0; len];
                // SAFETY: inside the memory, which nobody writes now.
                unsafe { copy_bytes(self.pointer(at, len), part.as_mut_ptr(), len) };
                bytes.extend(part);
            }
        }
        assert_eq!(bytes.len(), payload.len, "bytes in {} places", self.named.len());
        for (at, byte) in (self.taken..).zip(bytes) {
            assert_eq!(byte, sent(at), "byte {at}");
        }
        self.taken += payload.len;
        Ok(())
    }

    fn places(&mut self, _: Frame, len: usize, places: &mut Vec<Piece>) {
        self.named.clear();
        let most = len.div_ceil(self.pieces.max(1));
        let mut left = if self.pieces == 0 { 0 } else { len };
        let mut at = 0;
        while left > 0 {
            let len = most.min(left);
            places.push(Piece::new(&self.memory, self.pointer(at, len), len));
            self.named.push((at, len));
            (at, left) = (at + len + Places::GAP, left - len);
        }
    }
}

/// A peer whose frames are large and come in any parts, some of which go straight to where they belong. A frame is five bytes: its length in two, in
/// steps of 17 bytes, up to more than there may be; how many places its payload has; and in two how much comes at a time. What was sent comes out.
pub fn tcp_parts(data: &[u8]) {
    const MOST: usize = 4 << 20;
    thread_local! {
        static MEMORY: Option<Arc<RegionMemory>> = {
            let buffer = Buffer::<u8>::new(&Device::Host, Space::Host, Places::ROOM).expect("memory");
            RegionMemory::new(buffer, Places::ADDRESS, Access::ALL, None).map(Arc::new)
        };
    }
    let Ok((mut sender, receiver)) = UnixStream::pair() else { return };
    if receiver.set_nonblocking(true).is_err() || sender.set_nonblocking(true).is_err() {
        return;
    }
    let stream = std::net::TcpStream::from(OwnedFd::from(receiver));
    let greeting = Greeting { qpn: 1, to: 2, from: 3 };
    let mut wire = TcpWire::accept(mio::net::TcpStream::from_std(stream), greeting);
    let memory = MEMORY.with(|memory| memory.clone().expect("host memory"));
    let mut sink = Places { memory, pieces: 0, named: Vec::new(), taken: 0 };
    let (mut total, mut psn) = (0, 0);
    for [low, high, places, at_once @ ..] in data.as_chunks::<5>().0 {
        let len = 17 * usize::from(u16::from_le_bytes([*low, *high]));
        let at_once = 1 + 4 * usize::from(u16::from_le_bytes(*at_once));
        if total + len > MOST {
            break;
        }
        let mut bytes = Frame::More { psn }.encode(len as u32).to_vec();
        bytes.extend((total..total + len).map(sent));
        (total, psn) = (total + len, psn + 1);
        // Some more than are read to at once.
        sink.pieces = usize::from(*places) % 36;
        // Few bytes at a time of a long frame would take long and show nothing new.
        let at_once = at_once.max(len / 64);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let written = sender.write(&rest[..at_once.min(rest.len())]);
            rest = &rest[written.unwrap_or_default()..];
            wire.ready(true, true);
            if wire.receive(&mut sink).is_err() {
                assert!(len > MAX_PAYLOAD, "a frame of {len} bytes is refused");
                return;
            }
        }
        for _ in 0..64 {
            wire.ready(true, true);
            if sink.taken == total || wire.receive(&mut sink).is_err() {
                break;
            }
        }
        assert_eq!(sink.taken, total, "behind a frame of {len} bytes");
    }
}
