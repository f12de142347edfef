//! The identity of a job and the addresses at which its ranks meet. The sockets are bound here, before
//! any rank runs, so that nobody else can take their ports in between.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use super::error::{Doing, LaunchError};

/// A job that is about to start.
pub(super) struct Job {
    pub identity: Identity,
    /// Rank 0 inherits it and accepts there. To be taken when rank 0 starts.
    pub listener: Option<TcpListener>,
    /// Its number, here and in rank 0, if that is started here.
    pub descriptor: Option<RawFd>,
    pub meeting: Meeting,
    /// Keep the ports from everybody who lets the system choose one: that of `master`, and that of `rendezvous` between
    /// the worlds of a job. Linux lets a second socket bind and listen there while these do not listen and both have
    /// `SO_REUSEADDR`, which servers set (Rust's `TcpListener`, PyTorch's store).
    _ports: Option<[OwnedFd; 2]>,
}

/// What all processes of a job know, and nobody else.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Identity {
    /// Unique on the host where it was drawn: letters, digits and dashes, fit for the name of a shared-memory object.
    pub id: String,
    /// 128 random bits in hexadecimal.
    pub token: String,
}

impl Identity {
    /// A new one.
    pub fn new() -> Result<Identity, LaunchError> {
        let unique = hex(&random::<4>()?);
        Ok(Identity {
            id: format!("mp-{}-{unique}", std::process::id()),
            token: hex(&random::<16>()?),
        })
    }
}

/// Where the ranks of a job meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Meeting {
    /// Where rank 0 listens.
    pub rendezvous: SocketAddr,
    /// What torchrun-style programs get as the address of rank 0.
    pub master: SocketAddr,
}

impl Job {
    /// One whose ranks meet at the address `here` of this host: both ports are bound.
    pub fn here(identity: Identity, here: IpAddr) -> Result<Job, LaunchError> {
        let (rendezvous_port, rendezvous) = reserve_port(here).doing("reserve a port")?;
        let listener =
            TcpListener::bind(rendezvous).doing("listen for the rendezvous of the ranks")?;
        let (master_port, master) = reserve_port(here).doing("reserve a port")?;
        Ok(Job {
            identity,
            descriptor: Some(listener.as_raw_fd()),
            listener: Some(listener),
            meeting: Meeting { rendezvous, master },
            _ports: Some([rendezvous_port, master_port]),
        })
    }

    /// One whose rank 0 is on another host.
    pub fn elsewhere(identity: Identity, meeting: Meeting) -> Job {
        Job { identity, meeting, descriptor: None, listener: None, _ports: None }
    }
}

fn reserve_port(here: IpAddr) -> rustix::io::Result<(OwnedFd, SocketAddr)> {
    let family = if here.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::from((here, 0)))?;
    let address = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, address))
}

fn random<const N: usize>() -> Result<[u8; N], LaunchError> {
    let mut bytes = [0; N];
    // Requests of up to 256 bytes are never cut short: getrandom(2).
    getrandom(&mut bytes[..], GetRandomFlags::empty()).doing("draw random numbers")?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_have_secrets_and_ids_of_their_own() {
        let (one, two) = (Identity::new().unwrap(), Identity::new().unwrap());
        assert_eq!(one.token.len(), 32);
        assert!(one.token.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one.token, two.token);
        assert_ne!(one.id, two.id);
    }

    #[test]
    fn the_reserved_ports_can_be_bound_by_a_server_and_by_nobody_by_chance() {
        let here = libmp::launcher::loopback().unwrap();
        let mut job = Job::here(Identity::new().unwrap(), here).unwrap();
        let Meeting { rendezvous, master } = job.meeting;
        assert_ne!(master, rendezvous);
        let by_chance = TcpListener::bind((master.ip(), 0)).unwrap();
        assert_ne!(by_chance.local_addr().unwrap(), master);
        let server = TcpListener::bind(master).unwrap();
        std::net::TcpStream::connect(master).unwrap();
        drop(server);
        // Rank 0 listens for one world after the other.
        drop(job.listener.take());
        // A process that another test is starting holds the closed socket until it runs its program.
        let since = std::time::Instant::now();
        while let Err(error) = TcpListener::bind(rendezvous) {
            assert!(since.elapsed().as_secs() < 60, "{error}");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
