//! One connection of the control plane: bytes in and out of a socket that never blocks, through the decoder, with the times
//! that the heartbeat needs.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::frame::{self, Decoder, FrameError, Item, Preamble};
use super::message::{Message, Payload};

/// Why no more will come from a connection.
#[derive(Debug)]
pub(super) enum Broken {
    /// The other side closed it, or the operating system did.
    Closed(String),
    /// It carries something that is not ours.
    Frame(FrameError),
}

/// A connection.
pub(super) struct Wire {
    stream: TcpStream,
    decoder: Decoder,
    closed: Option<String>,
    /// A write has failed.
    deaf: bool,
    /// Frames: head and payload.
    outbox: VecDeque<(Payload, Payload)>,
    /// How much of the first has gone.
    sent: usize,
    send_limit: usize,
    pub(super) heard: Instant,
    spoke: Instant,
    pub(super) address: String,
}

impl Wire {
    /// Takes over a connected socket.
    pub(super) fn new(
        mut stream: TcpStream,
        registry: &Registry,
        token: Token,
        receive_limit: usize,
        send_limit: usize,
    ) -> io::Result<Wire> {
        stream.set_nodelay(true)?;
        let address = stream.peer_addr()?.to_string();
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        let now = Instant::now();
        Ok(Wire {
            stream,
            decoder: Decoder::new(receive_limit),
            closed: None,
            deaf: false,
            outbox: VecDeque::new(),
            sent: 0,
            send_limit,
            heard: now,
            spoke: now,
            address,
        })
    }

    pub(super) fn set_receive_limit(&mut self, limit: usize) {
        self.decoder.set_limit(limit);
    }

    pub(super) fn deregister(&mut self, registry: &Registry) {
        // It is about to be closed, which deregisters it too; there is nothing to do about a failure.
        let _ = registry.deregister(&mut self.stream);
    }

    pub(super) fn greet(&mut self, preamble: &Preamble) {
        self.outbox.push_back((Arc::from(preamble.encode()), Arc::from([])));
        self.flush();
    }

    /// Queues a message and sends what the socket takes. False if it is larger than the other side accepts.
    pub(super) fn send(&mut self, message: &Message, payload: &Payload) -> bool {
        let Some(head) = frame::encode(message, payload.len(), self.send_limit) else {
            return false;
        };
        if self.deaf {
            return true;
        }
        self.outbox.push_back((Arc::from(head), payload.clone()));
        self.flush();
        true
    }

    /// Drops what has not begun to go: something more urgent is to be said.
    pub(super) fn forget_unsent(&mut self) {
        self.outbox.truncate(usize::from(self.sent > 0));
    }

    /// Sends what the socket takes.
    pub(super) fn flush(&mut self) {
        while let Some((head, payload)) = self.outbox.front() {
            let rest = match head.get(self.sent..) {
                Some(rest) if !rest.is_empty() => rest,
                _ => &payload[self.sent - head.len()..],
            };
            match self.stream.write(rest) {
                Ok(count) => {
                    self.spoke = Instant::now();
                    self.sent += count;
                    if self.sent == head.len() + payload.len() {
                        self.outbox.pop_front();
                        self.sent = 0;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    // The other side is gone; what it said last may still be there to read, and then its end.
                    self.deaf = true;
                    self.outbox.clear();
                    self.sent = 0;
                }
            }
        }
    }

    /// Everything queued has been given to the operating system (or cannot be any more).
    pub(super) fn flushed(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Whether it is time for a sign of life.
    pub(super) fn quiet_for(&self, interval: Duration, now: Instant) -> bool {
        self.outbox.is_empty() && now.duration_since(self.spoke) >= interval
    }

    /// Takes in a piece of what has arrived. True if there may be more: the socket is registered edge-triggered, so ask
    /// until it says false – and take out the items in between, so that no more than a frame and a piece is held.
    pub(super) fn read(&mut self) -> bool {
        if self.closed.is_some() {
            return false;
        }
        let mut piece = [0; 1 << 14];
        match self.stream.read(&mut piece) {
            Ok(0) => self.closed = Some("end of stream".into()),
            Ok(count) => {
                self.heard = Instant::now();
                self.decoder.push(&piece[..count]);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => self.closed = Some(error.to_string()),
        }
        true
    }

    /// Says that no more will be said.
    pub(super) fn shut(&mut self) {
        // A connection that is gone already needs no goodbye.
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// The next item that has arrived. What came before the connection was closed comes before the news of that.
    pub(super) fn next(&mut self) -> Result<Option<Item>, Broken> {
        match self.decoder.next() {
            Ok(None) => self.closed.clone().map_or(Ok(None), |why| Err(Broken::Closed(why))),
            Ok(item) => Ok(item),
            Err(error) => Err(Broken::Frame(error)),
        }
    }
}
