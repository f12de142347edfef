//! Bootstrap through a PMIx server, which `mpirun` of Open MPI and `srun --mpi=pmix` offer their processes: it knows rank
//! and size, and carries rank 0's address and a token to the others.
//!
//! PMIx is initialised with the first world and finalised when the process exits, if all its worlds have finished: a
//! process that ends without finalising has failed, and the launcher should see that. It is not finalised with each world,
//! because OpenPMIx 4.2 then counts the process as gone in the fences of the next (they end in `PARTIAL SUCCESS`), and has
//! forgotten its local rank.

mod ffi;

use std::ffi::{CString, c_char};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Meeting, Place, bounded, check_size, env, random_token, tcp};
use crate::config::Config;
use crate::error::{Error, Result};

/// How long the server may take over a farewell.
const GOODBYE: Duration = Duration::from_secs(5);

/// What this process knows of PMIx.
#[derive(Clone, Copy)]
struct Client {
    pmix: &'static ffi::Pmix,
    me: ffi::Proc,
    size: u32,
    local: Option<(u32, u32)>,
    /// How many worlds have been started: each publishes under a name of its own, since a published value is final.
    started: u64,
    /// How many of them have finished.
    finished: u64,
}

static CLIENT: Mutex<Option<Client>> = Mutex::new(None);

fn client() -> MutexGuard<'static, Option<Client>> {
    CLIENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A world that was started through PMIx.
#[derive(Debug)]
pub(crate) struct Session(());

impl Session {
    pub(super) fn finish(self) {
        if let Some(client) = &mut *client() {
            client.finished += 1;
        }
    }
}

/// Runs when the process exits.
extern "C" fn at_exit() {
    // Held by a start that is being given up: that is a failure.
    let Ok(client) = CLIENT.try_lock() else { return };
    if let Some(Client { pmix, started, finished, .. }) = *client
        && started == finished
    {
        // It is too late to tell anybody.
        let _ = bounded("PMIx_Finalize", GOODBYE, move || pmix.finalize());
    }
}

pub(super) fn place(config: &Config, deadline: Instant) -> Result<Place> {
    let pmix = ffi::load(config.pmix_library.as_deref())?;
    let limit = deadline.saturating_duration_since(Instant::now());
    let interface = config.interface.clone();
    let gpu = config.variables.get("MP_GPU").map(str::to_owned);
    // The fence waits for ranks that may never come, and takes no deadline that servers honour.
    let place = bounded("PMIx", limit, move || {
        let mut place = exchange(start(pmix)?, interface.as_deref())?;
        place.gpu = gpu;
        Ok(place)
    })?;
    check_size(place.rank, place.size, "the PMIx job size")?;
    Ok(place)
}

/// Initialises PMIx, unless it is, and counts a world.
fn start(pmix: &'static ffi::Pmix) -> Result<Client> {
    let mut known = client();
    let client = match &mut *known {
        Some(client) => client,
        None => {
            let me = pmix.init()?;
            let job = ffi::Proc { rank: ffi::RANK_WILDCARD, ..me };
            let size = pmix.get_number(&job, c"pmix.job.size")?;
            // A server need not know these two.
            let local_rank = pmix.get_number(&me, c"pmix.lrank").ok();
            let local_size = pmix.get_number(&job, c"pmix.local.size").ok();
            let local = local_rank.zip(local_size).filter(|(rank, size)| rank < size);
            // SAFETY: the function may be called at any time, and does not unwind. If there is no room for it, PMIx is
            // not finalised, and the launcher says so.
            unsafe { libc::atexit(at_exit) };
            known.insert(Client { pmix, me, size, local, started: 0, finished: 0 })
        }
    };
    let this = *client;
    client.started += 1;
    Ok(this)
}

fn exchange(client: Client, interface: Option<&str>) -> Result<Place> {
    let Client { pmix, me, size, local, started, .. } = client;
    let key = CString::new(format!("libmp.rendezvous.{started}"))
        .map_err(|_| invalid("a key with a zero byte"))?;
    let one_host = local.is_some_and(|(_, local_size)| local_size == size);
    let (mut listener, mut token) = (None, random_token()?);
    if me.rank == 0 {
        let (socket, address) = tcp::listen_anywhere(interface, one_host)?;
        let text = format!("{address} {}", env::format_token(&token));
        let text = CString::new(text).map_err(|_| invalid("a value with a zero byte"))?;
        pmix.put(&key, &text)?;
        listener = Some(socket);
    }
    pmix.fence()?;
    let meeting = match listener {
        Some(_) if size == 1 => Meeting::Here,
        Some(listener) => Meeting::Listen(listener),
        None => {
            let text = pmix.get_string(&ffi::Proc { rank: 0, ..me }, &key)?;
            let parts = text.split_once(' ').and_then(|(address, digits)| {
                Some((address.parse::<SocketAddr>().ok()?, env::parse_token(digits)?))
            });
            let (address, theirs) =
                parts.ok_or_else(|| invalid("rank 0 published no address and token"))?;
            token = theirs;
            Meeting::Connect(address.to_string())
        }
    };
    let session = super::Session::Pmix(Session(()));
    Ok(Place {
        rank: me.rank,
        size,
        local,
        job: name_space(&me),
        token,
        gpu: None,
        meeting,
        session,
    })
}

fn name_space(me: &ffi::Proc) -> String {
    let bytes = me.nspace.iter().take_while(|&&byte| byte != 0);
    String::from_utf8_lossy(&bytes.map(|&byte: &c_char| byte as u8).collect::<Vec<u8>>())
        .into_owned()
}

fn invalid(message: &str) -> Error {
    Error::Pmix { call: "exchanging addresses".into(), message: message.into() }
}
