//! Bootstrap from `MPI_COMM_WORLD`: rank and size, and MPI carries rank 0's address and a token to the others. MPI is not
//! used for anything else.
//!
//! MPI may have been initialised by the program; otherwise it is initialised here and finalised when the world finishes,
//! after which there can be no other: MPI starts once a process. MPI's own calls know no deadline: a rank that never
//! starts is for MPI to notice.

use std::mem::ManuallyDrop;
use std::net::SocketAddr;

use mpi::Threading;
use mpi::collective::{CommunicatorCollectives, Root};
use mpi::environment::Universe;
use mpi::topology::{Communicator, SimpleCommunicator};

use super::{Meeting, Place, check_size, env, random_token, tcp};
use crate::config::Config;
use crate::error::{Error, Result};

/// Bytes in which rank 0 tells its address and token: an IPv6 address with port is at most 47 characters, a token 64.
const TELL: usize = 128;

/// MPI, if it was initialised here.
pub(crate) struct Session(Option<ManuallyDrop<Universe>>);

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("mpi::Session")
    }
}

impl Session {
    /// Finalises MPI. After a failure it stays as it is: `MPI_Finalize` would wait for the dead.
    pub(super) fn finish(self) {
        self.0.map(ManuallyDrop::into_inner);
    }
}

/// Whether the program has initialised MPI.
pub(super) fn running() -> bool {
    mpi::environment::is_initialized() && !mpi::environment::is_finalized()
}

pub(super) fn place(config: &Config) -> Result<Place> {
    if mpi::environment::is_finalized() {
        let message = "it is finalised already, and cannot start twice in a process: initialise MPI in the program \
                       to start several worlds from it";
        return Err(Error::Mpi { message: message.into() });
    }
    let session = mpi::initialize_with_threading(Threading::Serialized)
        .map(|(universe, _)| ManuallyDrop::new(universe));
    let world = SimpleCommunicator::world();
    let (rank, size) = (world.rank() as u32, world.size() as u32);
    check_size(rank, size, "the size of MPI_COMM_WORLD")?;

    // Whether all are on one host decides where rank 0 listens.
    let node = fingerprint(&config.node.clone().unwrap_or_else(crate::node::identity));
    let mut nodes = vec![0u64; size as usize];
    world.all_gather_into(&node, &mut nodes[..]);
    let one_host = nodes.iter().all(|&other| other == node);

    let mut token = random_token()?;
    let mut told = [0u8; TELL];
    let mut listener = Ok(None);
    if rank == 0 {
        // Everybody waits in the broadcast: tell them, also of a failure.
        listener =
            tcp::listen_anywhere(config.interface.as_deref(), one_host).map(|(socket, address)| {
                let text = format!("{address} {}", env::format_token(&token));
                told[..text.len()].copy_from_slice(text.as_bytes());
                Some(socket)
            });
    }
    world.process_at_rank(0).broadcast_into(&mut told[..]);
    let meeting = match listener? {
        Some(_) if size == 1 => Meeting::Here,
        Some(listener) => Meeting::Listen(listener),
        None => {
            let text = String::from_utf8_lossy(&told);
            let parts =
                text.trim_end_matches('\0').split_once(' ').and_then(|(address, digits)| {
                    Some((address.parse::<SocketAddr>().ok()?, env::parse_token(digits)?))
                });
            let silent =
                || Error::Mpi { message: "rank 0 could not listen, and told no address".into() };
            let (address, theirs) = parts.ok_or_else(silent)?;
            token = theirs;
            Meeting::Connect(address.to_string())
        }
    };
    Ok(Place {
        rank,
        size,
        local: None,
        job: String::new(),
        token,
        gpu: config.variables.get("MP_GPU").map(str::to_owned),
        meeting,
        session: super::Session::Mpi(Session(session)),
    })
}

/// Tells hosts apart well enough to choose an address.
fn fingerprint(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    // Fixed keys: the same on every rank of one build.
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
