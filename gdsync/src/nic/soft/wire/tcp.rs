//! The wire between hosts: a TCP connection of frames. Both sides say hello first, with the format's version and the
//! secret of the queue pair that is meant.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;

use mio::net::TcpStream;

use super::frame::{Frame, HEADER, MAX_PAYLOAD, VERSION};
use super::greeting::Greeting;
use super::{Cut, Sink, Wire};
use crate::nic::soft::state::{Outgoing, Payload};

/// Payload of a frame on this wire.
const PAYLOAD: usize = MAX_PAYLOAD;
/// Frames up to this payload are gathered in one buffer; larger ones go out from where they lie.
const SMALL: usize = 8 * 1024;
/// Bytes gathered before the socket has to take them.
const GATHERED: usize = 64 * 1024;
/// What is read at a time: a few of the largest frames.
const INBOUND: usize = 4 * (HEADER + MAX_PAYLOAD);
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
    inbound: Box<[u8]>,
    from: usize,
    until: usize,
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
            inbound: vec![0; INBOUND].into_boxed_slice(),
            from: 0,
            until: 0,
        }
    }

    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Reads what there is, up to the buffer's end. False if there was nothing.
    fn fill(&mut self) -> Result<bool, Cut> {
        if !self.readable {
            return Ok(false);
        }
        if self.from > 0 {
            self.inbound.copy_within(self.from..self.until, 0);
            (self.from, self.until) = (0, self.until - self.from);
        }
        match self.stream.read(&mut self.inbound[self.until..]) {
            Ok(0) => {
                self.closed = true;
                Err(Cut("the peer closed the connection".into()))
            }
            Ok(read) => {
                self.until += read;
                // Less than there is room for: all that there was (epoll(7)).
                self.readable = self.until == self.inbound.len();
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(false)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(self.cut("reading", &error)),
        }
    }

    fn cut(&mut self, what: &str, error: &std::io::Error) -> Cut {
        self.closed |= matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
        cut(what, error)
    }

    /// The next whole frame in the buffer, and where its payload is.
    fn next(&mut self) -> Result<Option<(Frame, std::ops::Range<usize>)>, Cut> {
        let there = &self.inbound[self.from..self.until];
        let Some((frame, end)) = Frame::first(there)? else { return Ok(None) };
        let range = self.from + HEADER..self.from + end;
        self.from += end;
        Ok(Some((frame, range)))
    }
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
                None if self.fill()? => {}
                None => break,
            }
        }
        Ok(self.greeted && self.heard)
    }

    fn max_payload(&self) -> usize {
        PAYLOAD
    }

    fn has_room(&mut self) -> bool {
        self.large.len == 0 && self.gathered.len() - self.gathered_sent < GATHERED
    }

    fn send(&mut self, out: &mut Outgoing) -> Result<(), Cut> {
        self.gathered.extend_from_slice(&out.frame.encode(out.len as u32));
        if out.len > SMALL {
            std::mem::swap(&mut self.large, out);
            self.large_sent = 0;
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
            const PARTS: usize = 34;
            let mut parts = [IoSlice::new(&[]); PARTS];
            let mut count = 0;
            let mut skip = self.large_sent;
            let rest = &self.gathered[self.gathered_sent..];
            if !rest.is_empty() {
                parts[0] = IoSlice::new(rest);
                count = 1;
            }
            for (pointer, len) in self.large.parts() {
                let skipped = skip.min(len);
                skip -= skipped;
                if skipped < len && count < PARTS {
                    // SAFETY: registered memory that the frame holds. Others may write it meanwhile, as they may
                    // under any NIC; the kernel copies whatever is there.
                    let part =
                        unsafe { std::slice::from_raw_parts(pointer.add(skipped), len - skipped) };
                    parts[count] = IoSlice::new(part);
                    count += 1;
                }
            }
            match self.stream.write_vectored(&parts[..count]) {
                Ok(written) => {
                    moved = true;
                    let of_gathered = written.min(rest.len());
                    self.gathered_sent += of_gathered;
                    self.large_sent += written - of_gathered;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.cut("writing", &error)),
            }
            if self.gathered_sent == self.gathered.len() {
                self.gathered.clear();
                self.gathered_sent = 0;
            }
            if self.large_sent == self.large.len {
                self.large.clear();
                self.large_sent = 0;
            }
        }
        Ok(moved)
    }

    fn is_flushed(&self) -> bool {
        self.gathered.is_empty() && self.large.len == 0
    }

    fn receive(&mut self, sink: &mut Sink<'_>) -> Result<bool, Cut> {
        let mut progress = false;
        for _ in 0..BATCH {
            while let Some((frame, payload)) = self.next()? {
                progress = true;
                sink(frame, Payload::of(&self.inbound[payload]))?;
            }
            if !self.fill()? {
                break;
            }
        }
        while let Some((frame, payload)) = self.next()? {
            progress = true;
            sink(frame, Payload::of(&self.inbound[payload]))?;
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
