//! The door for peers on other hosts: a listening socket, those who have come and not said hello, and those who said it
//! before their queue pair was connected here. What goes on once a peer is known is not here.
//!
//! Whoever reaches the address may knock. So it is open only while a queue pair may be connected to; strangers have few
//! places and little time; and when a place is needed, the one who has most of them gives up his oldest. A peer that was
//! turned away so dials again (`slot`).

use std::collections::HashMap;
use std::io::{ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, bind, listen, shutdown};

use super::wire::greeting::Greeting;
use super::wire::tcp::Stranger;
use crate::cuda::device::lock;

/// Connections that have not said hello, and how long they may take.
const MAX_STRANGERS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(2);
/// Connections for one queue pair that is not connected yet. Its peer is one of them.
const MAX_EARLY: usize = 4;
/// Connections that the system keeps until they are accepted.
const QUEUE: i32 = 128;
/// How long after the system refused to hand over a connection it is asked again.
const AGAIN: Duration = Duration::from_millis(5);

pub(crate) const LISTENER: Token = Token(0);
/// Sockets of queue pairs have their numbers as tokens; those of strangers count from here.
pub(crate) const STRANGERS: usize = 1 << 32;

/// The address at which a NIC can be reached: its own from the beginning to the end, and listened at while somebody is
/// expected.
pub(crate) struct Listener {
    socket: OwnedFd,
    address: SocketAddr,
    expected: Mutex<usize>,
}

/// A queue pair that may be connected to.
pub(crate) struct Expected(Arc<Listener>);

impl Listener {
    /// Takes an address, with any port if it has none.
    pub fn bind(address: SocketAddr) -> Result<Listener> {
        let socket = |address: SocketAddr| -> Result<OwnedFd> {
            let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
            // Connections of an earlier process that are over do not hold the port.
            set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &address)?;
            Ok(socket)
        };
        let any = socket(address)?;
        let address = SocketAddr::try_from(rustix::net::getsockname(&any)?)?;
        // Only a port that was asked for stays the socket's when it listens no more.
        let socket = socket(address)?;
        drop(any);
        let listener = Listener { socket, address, expected: Mutex::new(0) };
        // From the first listening on nobody else gets the port.
        listener.open()?;
        listener.close();
        Ok(listener)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens until that is dropped, and all others.
    pub fn expect(self: &Arc<Listener>) -> Result<Expected> {
        let mut expected = lock(&self.expected);
        if *expected == 0 {
            self.open()?;
        }
        *expected += 1;
        Ok(Expected(self.clone()))
    }

    fn open(&self) -> Result<()> {
        // Connections that were accepted here have the same port.
        set_socket_reuseaddr(&self.socket, true)?;
        Ok(listen(&self.socket, QUEUE)?)
    }

    fn close(&self) {
        // The address stays the socket's, and without the option nobody shares it.
        let closed = shutdown(&self.socket, Shutdown::Read)
            .and_then(|()| set_socket_reuseaddr(&self.socket, false));
        if let Err(error) = closed {
            tracing::warn!("the NIC goes on listening at {}: {error}", self.address);
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        let mut expected = lock(&self.0.expected);
        *expected -= 1;
        if *expected == 0 {
            self.0.close();
        }
    }
}

/// Somebody who has connected and not said hello.
struct Guest {
    stranger: Stranger,
    from: IpAddr,
    since: Instant,
}

/// The engine's side.
pub(crate) struct Door {
    listener: TcpListener,
    strangers: HashMap<Token, Guest>,
    next: usize,
    /// Greeted before their queue pair was connected here.
    early: Vec<(TcpStream, Greeting, Instant)>,
    /// Connections may wait to be accepted: the system says so once.
    backlog: bool,
    /// When the system refused to hand over one that may be there.
    refused: Option<Instant>,
}

impl Door {
    pub fn new(listener: &Listener, registry: &Registry) -> Result<Door> {
        let mut listener = TcpListener::from_std(listener.socket.try_clone()?.into());
        registry.register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Door {
            listener,
            strangers: HashMap::new(),
            next: STRANGERS,
            early: Vec::new(),
            backlog: false,
            refused: None,
        })
    }

    /// Whether somebody stands in it.
    pub fn is_busy(&self) -> bool {
        !self.strangers.is_empty()
    }

    /// The system says that somebody knocks.
    pub fn knock(&mut self) {
        self.backlog = true;
    }

    /// Lets in who knocks, a bounded number in one go, and returns those who have said hello already.
    pub fn accept(&mut self, registry: &Registry, now: Instant) -> Vec<(TcpStream, Greeting)> {
        let mut greeted = Vec::new();
        if !self.backlog || self.refused.is_some_and(|at| now - at < AGAIN) {
            return greeted;
        }
        for _ in 0..MAX_STRANGERS {
            match self.listener.accept() {
                Ok((stream, from)) => {
                    self.refused = None;
                    greeted.extend(self.admit(stream, from.ip(), registry, now));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Nobody is there, or it does not listen any more. Only then will the system say so again.
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::InvalidInput) =>
                {
                    self.backlog = false;
                    return greeted;
                }
                Err(error) => {
                    if self.refused.replace(now).is_none() {
                        tracing::warn!("accepting a connection: {error}");
                    }
                    return greeted;
                }
            }
        }
        greeted
    }

    fn admit(
        &mut self,
        stream: TcpStream,
        from: IpAddr,
        registry: &Registry,
        now: Instant,
    ) -> Option<(TcpStream, Greeting)> {
        let mut stranger = Stranger::new(stream);
        match stranger.poll() {
            Ok(None) => {}
            Ok(Some(greeting)) => return Some((stranger.into_stream(), greeting)),
            Err(cut) => {
                tracing::warn!("a connection from {from} is refused: {cut}");
                return None;
            }
        }
        if self.strangers.len() >= MAX_STRANGERS {
            let places = self.strangers.iter().map(|(token, guest)| (*token, guest.from));
            self.strangers.remove(&who_leaves(places, from)?);
        }
        let token = Token(self.next);
        self.next += 1;
        if let Err(error) = registry.register(stranger.stream(), token, Interest::READABLE) {
            tracing::warn!("a connection from {from}: {error}");
            return None;
        }
        self.strangers.insert(token, Guest { stranger, from, since: now });
        None
    }

    /// Something arrived from a stranger: his connection, if that makes his hello whole.
    pub fn meet(&mut self, token: Token, registry: &Registry) -> Option<(TcpStream, Greeting)> {
        let guest = self.strangers.get_mut(&token)?;
        match guest.stranger.poll() {
            Ok(None) => None,
            Ok(Some(greeting)) => {
                let mut stranger = self.strangers.remove(&token)?.stranger;
                let _ = registry.deregister(stranger.stream());
                Some((stranger.into_stream(), greeting))
            }
            Err(cut) => {
                tracing::warn!("a connection from {} is refused: {cut}", guest.from);
                self.strangers.remove(&token);
                None
            }
        }
    }

    /// Keeps a connection until its queue pair is connected. Of too many for one the oldest goes.
    pub fn keep(&mut self, stream: TcpStream, heard: Greeting, now: Instant) {
        let of_same = |(_, other, _): &&(_, Greeting, _)| other.qpn == heard.qpn;
        if self.early.iter().filter(of_same).count() >= MAX_EARLY
            && let Some(oldest) = self.early.iter().position(|early| of_same(&early))
        {
            self.early.remove(oldest);
        }
        self.early.push((stream, heard, now));
    }

    /// The connection of a peer that was kept, the latest if there are several.
    pub fn take(&mut self, expected: &Greeting) -> Option<TcpStream> {
        let at = self.early.iter().rposition(|(_, heard, _)| heard == expected)?;
        Some(self.early.remove(at).0)
    }

    /// Hangs up on those who have been here too long.
    pub fn keep_house(&mut self, now: Instant) {
        self.strangers.retain(|_, guest| now - guest.since < PATIENCE);
        self.early.retain(|(_, _, since)| now - *since < PATIENCE);
    }
}

/// Who gives up his place to somebody from `newcomer`: the oldest of the address that has the most. Tokens count up.
fn who_leaves(places: impl Iterator<Item = (Token, IpAddr)>, newcomer: IpAddr) -> Option<Token> {
    let mut sources: HashMap<IpAddr, (usize, Option<Token>)> = HashMap::new();
    sources.insert(newcomer, (1, None));
    for (token, from) in places {
        let (count, oldest) = sources.entry(from).or_default();
        *count += 1;
        *oldest = Some(oldest.map_or(token, |oldest| oldest.min(token)));
    }
    let most = sources.into_values().filter_map(|(count, oldest)| Some((count, oldest?)));
    most.max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(*oldest)))
        .map(|(_, oldest)| oldest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_address_with_most_places_gives_up_his() {
        let address = |last| IpAddr::from([10, 0, 0, last]);
        let places = [(5, 1), (3, 2), (4, 2), (9, 3), (7, 2)];
        let leaves = |newcomer| {
            let places = places.into_iter().map(|(token, from)| (Token(token), address(from)));
            who_leaves(places, address(newcomer))
        };
        assert_eq!(leaves(4), Some(Token(3)));
        assert_eq!(leaves(1), Some(Token(3)));
        // Who comes counts: one each, and the newcomer's second.
        let two = || [(Token(1), address(1)), (Token(2), address(2))].into_iter();
        assert_eq!(who_leaves(two(), address(2)), Some(Token(2)));
        assert_eq!(who_leaves(two(), address(3)), Some(Token(1)));
    }
}
