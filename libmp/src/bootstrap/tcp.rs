//! Sockets for the rendezvous: where rank 0 listens, and how the others reach it.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use if_addrs::get_if_addrs;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::AddressFamily;
use rustix::net::sockopt::{socket_acceptconn, socket_domain};

use crate::error::{Error, Result};

/// Longest wait for one attempt to connect.
const ATTEMPT: Duration = Duration::from_secs(2);

fn bind_error(address: impl ToString) -> impl FnOnce(io::Error) -> Error {
    let address = address.to_string();
    move |source| Error::Bind { address, source: Arc::new(source) }
}

/// Listens on `port` of one address only: that of `interface`, or else the one that `host` stands for.
pub(super) fn listen(
    host: &str,
    port: u16,
    interface: Option<&str>,
    spans_hosts: bool,
) -> Result<TcpListener> {
    let named = || format!("{host}:{port}");
    let address = match interface {
        Some(_) => SocketAddr::new(local_address(interface, false)?, port),
        None => {
            let addresses = (host, port).to_socket_addrs().map_err(bind_error(named()))?;
            let mut addresses: Vec<SocketAddr> = addresses.collect();
            // Others may prefer IPv4: so do we.
            addresses.sort_by_key(SocketAddr::is_ipv6);
            let first = addresses.first().copied();
            let no_address = || io::Error::new(ErrorKind::NotFound, "the name has no address");
            let address = first.ok_or_else(no_address).map_err(bind_error(named()))?;
            // Debian gives a host's own name the address 127.0.1.1, where no other host would find us.
            let literal = host == "localhost" || host.parse::<IpAddr>().is_ok();
            if address.ip().is_loopback() && spans_hosts && !literal {
                SocketAddr::new(local_address(None, false)?, port)
            } else {
                address
            }
        }
    };
    TcpListener::bind(address).map_err(bind_error(address))
}

/// Listens on any port of the address that other ranks can reach.
pub(super) fn listen_anywhere(
    interface: Option<&str>,
    one_host: bool,
) -> Result<(TcpListener, SocketAddr)> {
    let address = SocketAddr::new(local_address(interface, one_host)?, 0);
    let listener = TcpListener::bind(address).map_err(bind_error(address))?;
    let address = listener.local_addr().map_err(bind_error(address))?;
    Ok((listener, address))
}

/// The address of this host: that of `interface` (a name or the address itself); loopback if all ranks are on one host;
/// otherwise the one that leads out.
pub(crate) fn local_address(interface: Option<&str>, one_host: bool) -> Result<IpAddr> {
    if interface.is_none() && one_host {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    let mut all = get_if_addrs().map_err(Error::io("the network interfaces cannot be listed"))?;
    all.sort_by_key(|entry| entry.ip().is_ipv6());
    let describe = |entry: &if_addrs::Interface| format!("{} ({})", entry.name, entry.ip());
    let available = || all.iter().map(describe).collect::<Vec<_>>().join(", ");
    let missing = |name: &str| Error::Interface { name: name.into(), available: available() };
    if let Some(name) = interface {
        let address = name.parse::<IpAddr>().ok();
        let entry = all.iter().find(|entry| match address {
            Some(address) => entry.ip() == address,
            None => entry.name == name && !link_local(entry.ip()),
        });
        return entry.map(if_addrs::Interface::ip).ok_or_else(|| missing(name));
    }
    if let Some(address) = default_route() {
        return Ok(address);
    }
    let outward =
        all.iter().map(if_addrs::Interface::ip).find(|&ip| !ip.is_loopback() && !link_local(ip));
    outward.ok_or_else(|| missing("(any that other hosts could reach)"))
}

/// The address from which packets to elsewhere would leave. Connecting a datagram socket sends none.
fn default_route() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address reserved for documentation (RFC 5737): nobody's, so routed by default.
    socket.connect((Ipv4Addr::new(203, 0, 113, 1), 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// Link-local IPv6 addresses mean nothing without a scope that only this host knows.
fn link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Listening sockets that this process inherited and has taken, for its next worlds.
static TAKEN: Mutex<BTreeMap<RawFd, TcpListener>> = Mutex::new(BTreeMap::new());

/// The listening socket that the launcher left open as `descriptor`. Children of this process will not inherit it.
pub(super) fn inherited(descriptor: RawFd) -> Result<TcpListener> {
    let refuse = |expected: &str| Error::Variable {
        name: "MP_RENDEZVOUS_FD".into(),
        value: descriptor.to_string(),
        expected: expected.into(),
    };
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(listener) = taken.get(&descriptor) {
        return listener.try_clone().map_err(bind_error(format!("descriptor {descriptor}")));
    }
    if descriptor <= 2 {
        return Err(refuse("a descriptor other than the standard ones"));
    }
    // SAFETY: the borrow lasts for the three queries below, which fail with EBADF if it is not open; that it stays open
    // meanwhile is the contract of the variable, whose descriptor belongs to this library.
    let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let flags = fcntl_getfd(socket).map_err(|_| refuse("an open file descriptor"))?;
    if socket_acceptconn(socket) != Ok(true) {
        return Err(refuse("a listening socket"));
    }
    if !matches!(socket_domain(socket), Ok(AddressFamily::INET | AddressFamily::INET6)) {
        return Err(refuse("a TCP socket"));
    }
    fcntl_setfd(socket, flags | FdFlags::CLOEXEC)
        .map_err(|error| bind_error(format!("descriptor {descriptor}"))(error.into()))?;
    // SAFETY: it is open, and by the contract of the variable nobody else in this process uses it; it is taken once,
    // because it is looked up in `TAKEN` first.
    let listener = TcpListener::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
    let clone = listener.try_clone().map_err(bind_error(format!("descriptor {descriptor}")))?;
    taken.insert(descriptor, listener);
    Ok(clone)
}

/// Connects to rank 0, trying again until it is there.
pub(crate) fn connect(address: &str, rank: u32, deadline: Instant) -> Result<TcpStream> {
    let since = Instant::now();
    let mut pause = Duration::from_millis(5);
    loop {
        let last = match attempt(address, deadline) {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::Unreachable {
                rank: rank as usize,
                address: address.into(),
                waited: since.elapsed(),
                last: last.to_string(),
            });
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

fn attempt(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        let limit = deadline
            .saturating_duration_since(Instant::now())
            .clamp(Duration::from_millis(1), ATTEMPT);
        match TcpStream::connect_timeout(&address, limit) {
            // With nobody listening, TCP may connect a socket to itself if it happens to get the port it looks for.
            Ok(stream) if stream.local_addr()? == stream.peer_addr()? => {
                last = io::Error::new(ErrorKind::ConnectionRefused, "nobody is listening");
            }
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::linux::net::SocketAddrExt;

    #[test]
    fn a_port_that_is_taken_is_named() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let text = listen("127.0.0.1", port, None, false).unwrap_err().to_string();
        assert!(text.contains(&format!("127.0.0.1:{port}")) && text.contains("in use"), "{text}");
    }

    #[test]
    fn only_the_chosen_interface_is_listened_on() {
        for interface in ["lo", "127.0.0.1"] {
            let (listener, address) = listen_anywhere(Some(interface), false).unwrap();
            assert_eq!(listener.local_addr().unwrap(), address);
            assert!(address.ip().is_loopback());
        }
        assert!(listen_anywhere(None, true).unwrap().1.ip().is_loopback());
        let text = listen_anywhere(Some("nosuch0"), false).unwrap_err().to_string();
        assert!(text.contains("nosuch0") && text.contains("lo (127.0.0.1)"), "{text}");
    }

    #[test]
    fn an_inherited_socket_is_taken_for_good_and_not_passed_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let descriptor = listener.into_raw_fd();
        for _ in 0..2 {
            let taken = inherited(descriptor).unwrap();
            assert_eq!(taken.local_addr().unwrap(), address);
            assert!(fcntl_getfd(&taken).unwrap().contains(FdFlags::CLOEXEC));
        }
    }

    #[test]
    fn a_descriptor_that_is_no_listening_socket_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let pair = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let name = format!("libmp-test-{}", std::process::id());
        let name = <std::os::unix::net::SocketAddr as SocketAddrExt>::from_abstract_name(name);
        let unix = std::os::unix::net::UnixListener::bind_addr(&name.unwrap()).unwrap();
        for (descriptor, expected) in [
            (1, "other than the standard"),
            (100_000, "an open file descriptor"),
            (file.as_raw_fd(), "a listening socket"),
            (pair.as_raw_fd(), "a listening socket"),
            (unix.as_raw_fd(), "a TCP socket"),
        ] {
            let text = inherited(descriptor).unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn nobody_listening_is_reported_after_the_deadline_and_not_before() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let since = Instant::now();
        let error = connect(&format!("127.0.0.1:{port}"), 3, since + Duration::from_millis(80))
            .unwrap_err();
        assert!(since.elapsed() >= Duration::from_millis(80));
        let text = error.to_string();
        assert!(text.contains("rank 3") && text.contains("refused"), "{text}");
    }
}
