//! Sockets for the rendezvous: where rank 0 listens, and how the others reach it.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket,
};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use if_addrs::get_if_addrs;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};

use crate::error::{Error, Result};
use crate::patience::{self, Reminder};

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
        return loopback().map_err(Error::io("the ranks of this host cannot meet"));
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

/// The address at which processes of this host reach each other: `127.0.0.1`, or `::1` where there is only that.
///
/// # Errors
/// A sentence, if the loopback interface is down.
pub(crate) fn loopback() -> io::Result<IpAddr> {
    let mut failures = Vec::new();
    for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        // Bound first: an address that is not there at all can still have a route to nowhere.
        let source = UdpSocket::bind((ip, 0)).and_then(|socket| leads(&socket, ip));
        match source {
            Ok(_) => return Ok(ip),
            Err(error) => failures.push(format!("{ip}: {error}")),
        }
    }
    let why = format!("is the loopback interface up? ({})", failures.join("; "));
    Err(io::Error::new(ErrorKind::NetworkUnreachable, why))
}

/// The address from which packets to elsewhere would leave.
fn default_route() -> Option<IpAddr> {
    // Addresses reserved for documentation (RFC 5737, RFC 3849): nobody's, so routed by default.
    let elsewhere: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(203, 0, 113, 1).into()),
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    ];
    elsewhere.into_iter().find_map(|(any, there)| {
        let ip = UdpSocket::bind((any, 0)).and_then(|socket| leads(&socket, there)).ok()?;
        (!ip.is_loopback() && !ip.is_unspecified() && !link_local(ip)).then_some(ip)
    })
}

/// The address from which packets to `there` leave. Connecting a datagram socket sends none.
fn leads(socket: &UdpSocket, there: IpAddr) -> io::Result<IpAddr> {
    socket.connect((there, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// Link-local IPv6 addresses mean nothing without a scope that only this host knows.
fn link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Listening sockets that this process inherited and has taken: their descriptors, and where the ranks were told to meet.
static TAKEN: Mutex<BTreeSet<(RawFd, String)>> = Mutex::new(BTreeSet::new());

/// The listening socket that the launcher left open as `descriptor` for the rendezvous at `address`, for the first world of
/// this process. Children of this process will not inherit it. `None` if it has been used for a world: nobody listens at the
/// rendezvous any more.
pub(super) fn inherited(descriptor: RawFd, address: &str) -> Result<Option<TcpListener>> {
    let refuse = |expected: &str| Error::Variable {
        name: "MP_RENDEZVOUS_FD".into(),
        value: descriptor.to_string(),
        expected: expected.into(),
    };
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (descriptor, address.to_owned());
    if taken.contains(&key) {
        return Ok(None);
    }
    if descriptor <= 2 {
        return Err(refuse("a descriptor other than the standard ones"));
    }
    // SAFETY: the borrow lasts for the queries below, which fail with EBADF if it is not open; that it stays open
    // meanwhile is the contract of the variable, whose descriptor belongs to this library.
    let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let flags = fcntl_getfd(socket).map_err(|_| refuse("an open file descriptor"))?;
    let listens = socket_acceptconn(socket).map_err(|_| refuse("a listening socket"))?;
    if !matches!(socket_domain(socket), Ok(AddressFamily::INET | AddressFamily::INET6))
        || socket_type(socket) != Ok(SocketType::STREAM)
    {
        return Err(refuse("a TCP socket that listens"));
    }
    fcntl_setfd(socket, flags | FdFlags::CLOEXEC)
        .map_err(|error| bind_error(format!("descriptor {descriptor}"))(error.into()))?;
    taken.insert(key);
    // SAFETY: it is open, and by the contract of the variable nobody else in this process uses it; it is taken once,
    // because it is looked up in `TAKEN` first.
    let listener = TcpListener::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
    // Of another process that inherited it, too, a world may have come and gone.
    Ok(listens.then_some(listener))
}

/// Connects to rank 0, says `greeting` and waits for the answer, trying again until `deadline`: rank 0 may not be there yet,
/// or have closed the connection for others that came at the same time.
pub(crate) fn join(
    address: &str,
    rank: u32,
    greeting: &[u8],
    deadline: Instant,
) -> Result<TcpStream> {
    let since = Instant::now();
    let mut reminder = Reminder::new(since);
    let mut pause = Duration::from_millis(5);
    let unreachable = |last: &str| Error::Unreachable {
        rank: rank as usize,
        address: address.into(),
        waited: since.elapsed(),
        last: last.into(),
    };
    loop {
        let mut remind = |last: &str| {
            if reminder.is_due(Instant::now()) {
                patience::say(&format!("rank {rank} waits for rank 0 at {address}: {last}"));
            }
        };
        let last = match attempt(address, deadline) {
            Ok(mut stream) => match answer(&mut stream, greeting, deadline, &mut remind) {
                Ok(()) => return Ok(stream),
                Err(error) => error,
            },
            Err(error) => error,
        };
        if since.elapsed() > ATTEMPT && never_up(address, &last) {
            return Err(unreachable(&format!("{last}; is the loopback interface up?")));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(unreachable(&last.to_string()));
        }
        remind(&last.to_string());
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(100));
    }
}

/// Whether this failure to connect will not go away: the network of other hosts may come up, this host's own does not.
fn never_up(address: &str, error: &io::Error) -> bool {
    let here = address.to_socket_addrs().is_ok_and(|mut all| all.all(|at| at.ip().is_loopback()));
    let kinds =
        [ErrorKind::NetworkUnreachable, ErrorKind::HostUnreachable, ErrorKind::AddrNotAvailable];
    here && kinds.contains(&error.kind())
}

/// Says `greeting` and waits until rank 0 begins to answer.
fn answer(
    stream: &mut TcpStream,
    greeting: &[u8],
    deadline: Instant,
    remind: &mut impl FnMut(&str),
) -> io::Result<()> {
    const MUTE: &str = "it accepted the connection and did not answer";
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(ATTEMPT))?;
    stream.write_all(greeting)?;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(ErrorKind::TimedOut, MUTE));
        }
        stream.set_read_timeout(Some(left.min(ATTEMPT / 8)))?;
        match stream.peek(&mut [0]) {
            Ok(0) => {
                let closed = "it closed the connection before it answered";
                return Err(io::Error::new(ErrorKind::ConnectionAborted, closed));
            }
            Ok(_) => break,
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                remind(MUTE);
            }
            Err(error) => return Err(error),
        }
    }
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)
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
    use std::io::Read;
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
    fn an_inherited_socket_is_taken_once_and_not_passed_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let descriptor = listener.into_raw_fd();
        let taken = inherited(descriptor, "here:1").unwrap().expect("it listens");
        assert_eq!(taken.local_addr().unwrap(), address);
        assert!(fcntl_getfd(&taken).unwrap().contains(FdFlags::CLOEXEC));
        drop(taken);
        // Whatever has that number now.
        assert!(inherited(descriptor, "here:1").unwrap().is_none());
    }

    #[test]
    fn a_socket_through_which_a_world_has_met_is_known_as_such() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::shutdown(&listener, rustix::net::Shutdown::Read).unwrap();
        assert!(inherited(listener.into_raw_fd(), "here:2").unwrap().is_none());
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
            (pair.as_raw_fd(), "a TCP socket"),
            (unix.as_raw_fd(), "a TCP socket"),
        ] {
            let text = inherited(descriptor, "here:3").unwrap_err().to_string();
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn nobody_listening_is_reported_after_the_deadline_and_not_before() {
        // Bound, so that nobody else gets the port, and not listening.
        let bound = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&bound, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = SocketAddr::try_from(rustix::net::getsockname(&bound).unwrap()).unwrap();
        let (since, address) = (Instant::now(), address.to_string());
        let error = join(&address, 3, b"hello", since + Duration::from_millis(80)).unwrap_err();
        assert!(since.elapsed() >= Duration::from_millis(80));
        let text = error.to_string();
        assert!(text.contains("rank 3") && text.contains("refused"), "{text}");
    }

    #[test]
    fn who_is_turned_away_without_an_answer_tries_again_until_there_is_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let deadline = Instant::now() + Duration::from_secs(60);
        let rank = std::thread::spawn(move || join(&address, 1, b"hello", deadline));
        for _ in 0..5 {
            drop(listener.accept().unwrap());
        }
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = [0; 5];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
        stream.write_all(b"welcome").unwrap();
        let mut answer = [0; 7];
        rank.join().unwrap().unwrap().read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"welcome", "nothing of the answer is lost");
    }

    #[test]
    fn only_this_hosts_own_network_is_known_not_to_come_up() {
        let down = io::Error::from(ErrorKind::NetworkUnreachable);
        assert!(never_up("127.0.0.1:9", &down) && never_up("[::1]:9", &down));
        assert!(!never_up("203.0.113.1:9", &down), "it may come up");
        assert!(!never_up("127.0.0.1:9", &io::Error::from(ErrorKind::ConnectionRefused)));
    }
}
