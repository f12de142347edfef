//! The wire between hosts: a TCP connection of frames. Both sides say hello first, with the format's version and the
//! secret of the queue pair that is meant.
//!
//! The payload of a large frame is taken in parts: its beginning with the header, once that has come, and the rest is read
//! from the socket to where it goes, in one call with what follows it. Only what goes to memory that the CPU does not reach is read here first.
//! The payload of a larger one is not copied when it is sent either ([`Loan`]), where it stays as it is until the peer has answered.

use std::io::{ErrorKind, IoSlice, Read};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::time::Duration;

use mio::net::TcpStream;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg, sockopt::set_socket_linger};

use super::frame::{Frame, HEADER, MAX_PAYLOAD, VERSION};
use super::greeting::Greeting;
use super::loan::{LENT, Loan, Unlent};
use super::{Cut, Sink, Wire};
use crate::nic::soft::state::{Outgoing, Payload, Piece};

/// Frames up to this payload are gathered in one buffer; larger ones go out from where they lie.
const SMALL: usize = 8 * 1024;
/// Bytes gathered before the socket has to take them.
const GATHERED: usize = 64 * 1024;
/// What is read here at a time: many small frames.
const INBOUND: usize = 128 * 1024;
/// What is read here behind payload that goes elsewhere: the next header, and as much as is taken with it.
const BEHIND: usize = HEADER + SMALL;
/// What is read to elsewhere at a time, and the pieces of memory there.
const PLACED: usize = 512 * 1024;
const PIECES: usize = 32;
/// Pieces of memory that are sent in one call: those of an entry, what is gathered and what is inline.
const PARTS: usize = 34;
/// Reads in one go.
const BATCH: usize = 4;

/// A connection.
pub(crate) struct TcpWire {
    stream: TcpStream,
    readable: bool,
    writable: bool,
    /// The stream is established and this side has said hello.
    greeted: bool,
    /// The peer has said hello.
    heard: bool,
    /// The connection was there, and was closed by the other side.
    closed: bool,
    greeting: Greeting,
    /// What the peer's hello must say; nothing yet on a connection that was accepted.
    expected: Option<Greeting>,
    gathered: Vec<u8>,
    gathered_sent: usize,
    /// A frame whose payload follows what is gathered, and how much of that is sent.
    large: Outgoing,
    large_sent: usize,
    /// Lends the payload of `large` to the socket, if `lends`.
    loan: Loan,
    lends: bool,
    /// Bytes that went out behind the last that were lent.
    behind_lent: Option<usize>,
    inbound: Box<[u8]>,
    from: usize,
    until: usize,
    /// What more of the frame is taken as whose payload has begun, and how much is left of that.
    rest: Option<(Frame, usize)>,
    /// Where the next of it goes.
    places: Vec<Piece>,
    /// Bytes of it that have come since the peer was last heard: fewer than a small frame are no sign of life.
    unheard: usize,
}

impl TcpWire {
    /// A connection that this side dials: `greeting` is said, `expected` must be heard.
    pub fn dial(stream: TcpStream, greeting: Greeting, expected: Greeting) -> TcpWire {
        TcpWire::new(stream, greeting, Some(expected))
    }

    /// A connection that was accepted and whose hello was heard; the peer awaits ours.
    pub fn accept(stream: TcpStream, greeting: Greeting) -> TcpWire {
        let mut wire = TcpWire::new(stream, greeting, None);
        // Both may have happened before anybody listened for events.
        (wire.heard, wire.readable, wire.writable) = (true, true, true);
        wire
    }

    fn new(stream: TcpStream, greeting: Greeting, expected: Option<Greeting>) -> TcpWire {
        TcpWire {
            stream,
            readable: false,
            writable: false,
            greeted: false,
            heard: false,
            closed: false,
            greeting,
            expected,
            gathered: Vec::with_capacity(GATHERED + SMALL + HEADER),
            gathered_sent: 0,
            large: Outgoing::new(),
            large_sent: 0,
            loan: Loan::new(),
            lends: false,
            behind_lent: None,
            inbound: vec![0; INBOUND].into_boxed_slice(),
            from: 0,
            until: 0,
            rest: None,
            places: Vec::new(),
            unheard: 0,
        }
    }

    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Reads what there is to the places, and behind them here. False if there was nothing; else how many bytes are in the places.
    fn fill(&mut self) -> Result<Option<usize>, Cut> {
        if !self.readable {
            return Ok(None);
        }
        if self.from > 0 {
            self.inbound.copy_within(self.from..self.until, 0);
            (self.from, self.until) = (0, self.until - self.from);
        }
        let placed: usize = self.places.iter().map(|place| place.len).sum();
        let here = &mut self.inbound[self.until..];
        // Not what goes on in other places.
        let behind = if self.rest.is_some_and(|(_, len)| len > placed) { 0 } else { BEHIND };
        let here = if placed > 0 { &mut here[..behind] } else { here };
        let room = placed + here.len();
        let read = match self.places.is_empty() {
            true => self.stream.read(here),
            false => read_to(&self.stream, &self.places, here),
        };
        match read {
            Ok(0) => {
                self.closed = true;
                Err(Cut("the peer closed the connection".into()))
            }
            Ok(read) => {
                self.until += read.saturating_sub(placed);
                // Less than there is room for: all that there was (epoll(7)).
                self.readable = read == room;
                Ok(Some(read.min(placed)))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(None)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Some(0)),
            Err(error) => Err(self.cut("reading", &error)),
        }
    }

    /// Hands over what is in the buffer: whole frames, and much of a large one. True if there was some.
    fn hand_over(&mut self, sink: &mut dyn Sink) -> Result<bool, Cut> {
        let mut any = false;
        while let Some((frame, payload)) = self.next()? {
            any = true;
            self.unheard = 0;
            sink.take(frame, Payload::of(&self.inbound[payload]))?;
        }
        Ok(any)
    }

    /// Reads more, the rest of a frame to where it goes. `None` if there was nothing, or else whether it was worth mentioning.
    fn read_on(&mut self, sink: &mut dyn Sink) -> Result<Option<bool>, Cut> {
        if let Some((frame, len)) = self.rest
            && self.readable
            && self.from == self.until
        {
            sink.places(frame, len.min(PLACED), &mut self.places);
            if self.places.len() > PIECES {
                self.places.clear();
            }
        }
        let read = self.fill();
        self.places.clear();
        let Some(read) = read? else { return Ok(None) };
        if let Some((frame, len)) = self.rest.filter(|_| read > 0) {
            self.rest = (read < len).then_some((frame, len - read));
            self.unheard += read;
            sink.take(frame, Payload::there(read))?;
        }
        let heard = self.unheard >= SMALL || self.unheard > 0 && self.rest.is_none();
        if heard {
            self.unheard = 0;
        }
        Ok(Some(heard))
    }

    /// Sends of what is gathered and of the frame behind it what the socket takes, which copies it.
    fn copy(&mut self) -> rustix::io::Result<usize> {
        let gathered = &self.gathered[self.gathered_sent..];
        let mut parts = [IoSlice::new(gathered); PARTS];
        let mut count = usize::from(!gathered.is_empty());
        if !self.lends {
            let of_frame = self.large.parts_from(self.large_sent);
            for (to, (pointer, len)) in parts[count..].iter_mut().zip(of_frame) {
                // SAFETY: registered memory that the frame holds. Others may write it meanwhile, as they may under any
                // NIC; the kernel copies whatever is there.
                *to = IoSlice::new(unsafe { std::slice::from_raw_parts(pointer, len) });
                count += 1;
            }
        }
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, self.lends);
        let nothing = &mut SendAncillaryBuffer::default();
        let sent = sendmsg(&self.stream, &parts[..count], nothing, flags)?;
        if let Some(behind) = &mut self.behind_lent {
            *behind += sent;
        }
        Ok(sent)
    }

    /// Lends the socket what comes next of the frame. `None` if its memory cannot be lent.
    fn lend(&mut self) -> rustix::io::Result<Option<usize>> {
        let Some((pointer, len)) = self.large.parts_from(self.large_sent).next() else {
            return Ok(None);
        };
        // SAFETY: registered memory that the frame holds.
        let part = unsafe { std::slice::from_raw_parts(pointer, len) };
        // SAFETY: the request that it is of is complete when the peer has answered that it has taken it.
        match unsafe { self.loan.send(&self.stream, part) } {
            Ok(sent) => {
                self.behind_lent = Some(0);
                Ok(Some(sent))
            }
            Err(Unlent::Memory) => Ok(None),
            Err(Unlent::Socket(Errno::INVAL)) => {
                self.loan.refuse();
                Ok(None)
            }
            Err(Unlent::Socket(error)) => Err(error),
        }
    }

    /// Whether the socket may still have to send what was lent to it.
    fn has_lent(&self) -> bool {
        let Some(behind) = self.behind_lent else { return false };
        let mut unsent: libc::c_int = 0;
        // SAFETY: writes the integer: what the peer's system has not acknowledged (SIOCOUTQ, tcp(7)).
        let known =
            unsafe { libc::ioctl(self.stream.as_raw_fd(), libc::TIOCOUTQ, &mut unsent) } == 0;
        !known || usize::try_from(unsent).unwrap_or(0) > behind
    }

    fn cut(&mut self, what: &str, error: &std::io::Error) -> Cut {
        self.closed |= matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
        cut(what, error)
    }

    /// The next frame in the buffer and where its payload is: all of it, or, of a large frame, much of it.
    fn next(&mut self) -> Result<Option<(Frame, std::ops::Range<usize>)>, Cut> {
        let there = &self.inbound[self.from..self.until];
        let (frame, header, len) = match self.rest {
            Some((frame, len)) => (frame, 0, len),
            None => {
                let Some(header) = there.first_chunk() else { return Ok(None) };
                let (frame, len) = Frame::decode(*header)?;
                (frame, HEADER, len as usize)
            }
        };
        let part = len.min(there.len() - header);
        if part < len {
            // The beginning of one; of the rest, which has nowhere else to go, as much as there is room for.
            let much = if self.rest.is_some() { INBOUND } else { SMALL };
            let Some(more) = frame.more().filter(|_| part >= much) else { return Ok(None) };
            self.rest = Some((more, len - part));
        } else {
            self.rest = None;
        }
        let from = self.from + header;
        self.from = from + part;
        Ok(Some((frame, from..from + part)))
    }
}

/// Reads what there is to `places` in turn, then to `here`.
fn read_to(stream: &TcpStream, places: &[Piece], here: &mut [u8]) -> std::io::Result<usize> {
    let part = |base: *mut u8, len| libc::iovec { iov_base: base.cast(), iov_len: len };
    let mut parts = [part(std::ptr::null_mut(), 0); PIECES + 1];
    let count = places.len().min(PIECES);
    for (to, place) in parts.iter_mut().zip(&places[..count]) {
        *to = part(place.pointer.cast_mut(), place.len);
    }
    parts[count] = part(here.as_mut_ptr(), here.len());
    // SAFETY: the places are memory that they hold and that was checked for so many bytes; others may access it meanwhile, as they may
    // under any NIC, and no reference to it is made. `here` is this side's own.
    let read = unsafe { libc::readv(stream.as_raw_fd(), parts.as_ptr(), count as i32 + 1) };
    usize::try_from(read).map_err(|_| std::io::Error::last_os_error())
}

fn cut(what: &str, error: &std::io::Error) -> Cut {
    Cut(format!("{what} failed: {error}"))
}

impl Wire for TcpWire {
    fn poll_up(&mut self, _wanted: bool) -> Result<bool, Cut> {
        if self.greeted && self.heard {
            return Ok(true);
        }
        if !self.greeted && self.writable {
            match self.stream.take_error() {
                Ok(None) => {}
                Ok(Some(error)) | Err(error) => return Err(self.cut("connecting", &error)),
            }
            if let Err(error) = self.stream.peer_addr() {
                // Not there yet, says the system.
                return match error.kind() {
                    ErrorKind::NotConnected => Ok(false),
                    _ => Err(cut("connecting", &error)),
                };
            }
            // Small frames are gathered here already; waiting for more would only delay.
            self.stream.set_nodelay(true).map_err(|error| cut("TCP_NODELAY", &error))?;
            self.gathered.extend_from_slice(&self.greeting.hello());
            self.greeted = true;
            self.flush()?;
        }
        while self.greeted && !self.heard {
            match self.next()? {
                Some((frame, _)) => {
                    self.expected.as_ref().map_or(Ok(()), |expected| expected.hear(frame))?;
                    self.heard = true;
                }
                None if self.fill()?.is_some() => {}
                None => break,
            }
        }
        Ok(self.greeted && self.heard)
    }

    fn max_payload(&self) -> usize {
        MAX_PAYLOAD
    }

    fn has_room(&mut self) -> bool {
        self.large.len == 0 && self.gathered.len() - self.gathered_sent < GATHERED
    }

    fn send(&mut self, out: &mut Outgoing) -> Result<(), Cut> {
        self.gathered.extend_from_slice(&out.frame.encode(out.len as u32));
        if out.len > SMALL {
            std::mem::swap(&mut self.large, out);
            self.large_sent = 0;
            // What is inline is memory of this side, for the next frame as well.
            self.lends = self.large.len >= LENT
                && self.large.frame.is_answered()
                && self.large.inline.is_empty()
                && self.loan.is_open();
            self.flush()?;
        } else {
            let at = self.gathered.len();
            self.gathered.resize(at + out.len, 0);
            // SAFETY: the buffer was just made long enough.
            unsafe { out.copy_payload(self.gathered[at..].as_mut_ptr()) };
        }
        Ok(())
    }

    fn gathers(&self) -> bool {
        true
    }

    fn flush(&mut self) -> Result<bool, Cut> {
        let mut moved = false;
        while self.writable && !self.is_flushed() {
            let gathered = self.gathered.len() - self.gathered_sent;
            let sent = match self.lends && gathered == 0 {
                true => self.lend(),
                false => self.copy().map(Some),
            };
            match sent {
                Ok(None) => self.lends = false,
                Ok(Some(sent)) => {
                    moved = true;
                    let of_gathered = sent.min(gathered);
                    self.gathered_sent += of_gathered;
                    self.large_sent += sent - of_gathered;
                }
                Err(Errno::AGAIN) => self.writable = false,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.cut("writing", &error.into())),
            }
            if self.gathered_sent == self.gathered.len() {
                self.gathered.clear();
                self.gathered_sent = 0;
            }
            if self.large_sent == self.large.len {
                self.large.clear();
                self.large_sent = 0;
                self.lends = false;
            }
        }
        Ok(moved)
    }

    fn is_flushed(&self) -> bool {
        self.gathered.is_empty() && self.large.len == 0
    }

    fn receive(&mut self, sink: &mut dyn Sink) -> Result<bool, Cut> {
        let mut progress = self.hand_over(sink)?;
        for _ in 0..BATCH {
            let Some(heard) = self.read_on(sink)? else { break };
            progress |= heard;
            progress |= self.hand_over(sink)?;
        }
        Ok(progress)
    }

    fn was_turned_away(&self) -> bool {
        self.closed && !self.heard
    }

    fn ready(&mut self, readable: bool, writable: bool) {
        self.readable |= readable;
        self.writable |= writable;
    }
}

impl Drop for TcpWire {
    fn drop(&mut self) {
        if self.has_lent() {
            // Its owner may change it from now on, and the peer is not to see that: the connection is reset.
            let _ = set_socket_linger(&self.stream, Some(Duration::ZERO));
            return;
        }
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

/// A connection that was accepted and has not said hello.
pub(crate) struct Stranger {
    stream: TcpStream,
    hello: [u8; HEADER],
    read: usize,
}

impl Stranger {
    pub fn new(stream: TcpStream) -> Stranger {
        Stranger { stream, hello: [0; HEADER], read: 0 }
    }

    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Whom it is for, once it has said so. Reads not a byte more than the hello.
    pub fn poll(&mut self) -> Result<Option<Greeting>, Cut> {
        loop {
            match self.stream.read(&mut self.hello[self.read..]) {
                Ok(0) => return Err(Cut("closed before its hello".into())),
                Ok(read) => self.read += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(cut("reading", &error)),
            }
            if self.read == HEADER {
                break;
            }
        }
        match Frame::decode(self.hello)? {
            (Frame::Hello { version: VERSION, qpn, to, from }, _) => {
                Ok(Some(Greeting { qpn, to, from }))
            }
            (Frame::Hello { version, .. }, _) => Err(Cut(format!(
                "it speaks version {version} of the format, this side version {VERSION}"
            ))),
            _ => Err(Cut("something before its hello".into())),
        }
    }

    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}

#[cfg(test)]
mod tests;
