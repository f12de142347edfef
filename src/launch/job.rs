//! The identity of a job and the addresses at which its ranks meet. The sockets are bound here, before
//! any rank runs, so that nobody else can take their ports in between.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};
use rustix::rand::{GetRandomFlags, getrandom};

use super::error::{Doing, LaunchError};

/// A job that is about to start.
pub(super) struct Job {
    /// Unique on this host: letters, digits and dashes, fit for the name of a shared-memory object.
    pub id: String,
    /// 128 random bits in hexadecimal.
    pub token: String,
    /// Rank 0 inherits it and accepts there. To be taken when rank 0 starts.
    pub listener: Option<TcpListener>,
    /// Where `listener` listens.
    pub rendezvous: SocketAddr,
    /// What torchrun-style programs get as the address of rank 0.
    pub master: SocketAddr,
    /// Keeps the port of `master` from everybody who lets the system choose one. Linux lets a second
    /// socket bind and listen there while this one does not listen and both have `SO_REUSEADDR`,
    /// which servers set (Rust's `TcpListener`, PyTorch's store).
    _master_port: OwnedFd,
}

impl Job {
    /// A new identity, and both ports bound on the loopback address.
    pub fn new() -> Result<Job, LaunchError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .doing("listen on 127.0.0.1 for the rendezvous of the ranks")?;
        let rendezvous = listener.local_addr().doing("read the address of a socket")?;
        let (master_port, master) = reserve_port().doing("reserve a port on 127.0.0.1")?;
        let unique = hex(&random::<4>()?);
        Ok(Job {
            id: format!("mp-{}-{unique}", std::process::id()),
            token: hex(&random::<16>()?),
            listener: Some(listener),
            rendezvous,
            master,
            _master_port: master_port,
        })
    }
}

fn reserve_port() -> rustix::io::Result<(OwnedFd, SocketAddr)> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
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
        let (one, two) = (Job::new().unwrap(), Job::new().unwrap());
        assert_eq!(one.token.len(), 32);
        assert!(one.token.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one.token, two.token);
        assert_ne!(one.id, two.id);
    }

    #[test]
    fn the_reserved_port_can_be_bound_by_a_server_and_by_nobody_by_chance() {
        let job = Job::new().unwrap();
        assert_ne!(job.master, job.rendezvous);
        let by_chance = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert_ne!(by_chance.local_addr().unwrap(), job.master);
        let server = TcpListener::bind(job.master).unwrap();
        std::net::TcpStream::connect(job.master).unwrap();
        drop(server);
    }
}
