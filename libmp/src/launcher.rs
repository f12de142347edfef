//! For launchers: telling the ranks that are still starting that one of them has ended, or is stopped, and will not come.
//! Without it they would wait for it until `MP_INIT_TIMEOUT`. Once a world is complete its ranks notice by themselves, and
//! nobody listens.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use subtle::ConstantTimeEq;

use crate::bootstrap::{parse_token, tcp};
use crate::build_info::PROTOCOL;
use crate::collective::nothing;
use crate::control::Control;
use crate::control::cause::{Cause, Loss};
use crate::control::frame::{self, FROM_ROOT, PREAMBLE, Preamble};
use crate::control::message::Message;
use crate::node;

/// How long the other side may take over each step: it is on the same host.
const STEP: Duration = Duration::from_millis(200);

/// The address at which the processes of this host can meet: `127.0.0.1`, or `::1` where there is only that.
///
/// # Errors
/// A sentence, if the loopback interface is down.
pub fn loopback() -> io::Result<IpAddr> {
    tcp::loopback()
}

/// The address of this host at which processes of other hosts reach it: that of `interface`, a name or the address itself; or
/// the one that leads out.
///
/// # Errors
/// If there is no such interface, or none that leads out; the error lists what there is.
pub fn address(interface: Option<&str>) -> crate::Result<IpAddr> {
    tcp::local_address(interface, false)
}

/// A job whose ranks a launcher on the same host has started with `MP_RENDEZVOUS` and `MP_TOKEN`.
///
/// ```
/// use libmp::launcher::Job;
///
/// let job = Job::new("127.0.0.1:29500".parse().unwrap(), "0123456789abcdef").expect("hexadecimal digits");
/// assert!(Job::new("127.0.0.1:29500".parse().unwrap(), "no digits").is_none());
/// // When rank 3 has ended before the world was complete: job.gone(3, "it was killed by SIGKILL")
/// ```
#[derive(Debug, Clone)]
pub struct Job {
    rendezvous: SocketAddr,
    preamble: Preamble,
}

impl Job {
    /// The job whose ranks meet at `rendezvous` and know `token`. `None` if that is not 2 to 64 hexadecimal digits.
    pub fn new(rendezvous: SocketAddr, token: &str) -> Option<Job> {
        let preamble = Preamble { protocol: PROTOCOL, token: parse_token(token)? };
        Some(Job { rendezvous, preamble })
    }

    /// Tells rank 0, and through it the others, that `rank` ended as `how` says ("it was killed by SIGKILL"), or will not come
    /// otherwise ("it is stopped"). Does not wait for them.
    ///
    /// # Errors
    /// If nobody could be told now: rank 0 does not listen. Trying again is for the caller, as long as ranks run.
    pub fn gone(&self, rank: u32, how: &str) -> io::Result<()> {
        self.call()?.gone(rank, how)
    }

    /// Calls rank 0 and tells it nothing yet: it answers once it is starting.
    ///
    /// # Errors
    /// As [`Job::gone`].
    pub fn call(&self) -> io::Result<Call> {
        let mut stream = TcpStream::connect_timeout(&self.rendezvous, STEP)?;
        stream.set_write_timeout(Some(STEP))?;
        stream.write_all(&self.preamble.encode())?;
        Ok(Call { stream })
    }

    /// Once rank 0 itself has ended, or is stopped: tells those who look for it, in a thread that ends with the process, that
    /// `rank` ended as `how` says, be it rank 0 or another on whose account rank 0 ended. `listener` is the socket of a rank 0
    /// that is stopped; without it one is made in its place.
    ///
    /// # Errors
    /// If somebody still listens there, and no `listener` is given. Trying again is for the caller.
    pub fn in_place_of_rank_0(
        &self,
        listener: Option<TcpListener>,
        rank: u32,
        how: &str,
    ) -> io::Result<()> {
        let (host, how) = (node::host_name(), how.to_owned());
        let cause = Cause::Lost { rank, host, how: Loss::Ended { how } };
        let listener = listener.map_or_else(|| TcpListener::bind(self.rendezvous), Ok)?;
        let preamble = self.preamble;
        let serve = move || {
            loop {
                // Rank 0 may have made its socket one that does not wait.
                let readable = poll(&mut [PollFd::new(&listener, PollFlags::IN)], None);
                match listener.accept() {
                    // Who is not answered tries again.
                    Ok((stream, _)) => drop(answer(stream, &preamble, &cause)),
                    // It listens no more.
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
                    Err(_) if readable.is_err() => return,
                    Err(_) => {}
                }
            }
        };
        std::thread::Builder::new().name("rank-0-is-gone".into()).spawn(serve)?;
        Ok(())
    }
}

/// A connection to rank 0, for news that may be out of date when rank 0 starts: that a rank is stopped.
///
/// ```no_run
/// use libmp::launcher::Job;
///
/// # fn main() -> std::io::Result<()> {
/// let job = Job::new("127.0.0.1:29500".parse().unwrap(), "0123456789abcdef").expect("hexadecimal digits");
/// let call = job.call()?;
/// // From time to time, while rank 3 is stopped:
/// if call.is_answered()? {
///     call.gone(3, "it is stopped")?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Call {
    stream: TcpStream,
}

impl Call {
    /// Whether rank 0 has answered. Does not wait. From then on it gives the caller 5 s.
    ///
    /// # Errors
    /// If it has hung up.
    pub fn is_answered(&self) -> io::Result<bool> {
        self.stream.set_nonblocking(true)?;
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false)?;
        match peeked {
            Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Tells rank 0 as [`Job::gone`] does.
    ///
    /// # Errors
    /// If it has hung up.
    pub fn gone(mut self, rank: u32, how: &str) -> io::Result<()> {
        let (host, how) = (node::host_name(), how.to_owned());
        self.stream.write_all(&Control::from_stranger(&Message::Gone { rank, host, how }))
    }
}

/// Tells a rank, and nobody else, why there is no world.
fn answer(mut stream: TcpStream, ours: &Preamble, cause: &Cause) -> io::Result<()> {
    stream.set_read_timeout(Some(STEP))?;
    stream.set_write_timeout(Some(STEP))?;
    let mut theirs = [0; PREAMBLE];
    stream.read_exact(&mut theirs)?;
    if !bool::from(theirs[..].ct_eq(&ours.encode()[..])) {
        return Ok(());
    }
    let mut bytes = ours.without_token().encode().to_vec();
    let message = Message::Ended { cause: cause.clone() };
    bytes.extend(frame::encode(&message, nothing().len(), FROM_ROOT).unwrap_or_default());
    stream.write_all(&bytes)?;
    stream.shutdown(Shutdown::Write)?;
    // Closed with something unread, the answer would be lost.
    io::copy(&mut stream.take(1 << 16), &mut io::sink())?;
    Ok(())
}
