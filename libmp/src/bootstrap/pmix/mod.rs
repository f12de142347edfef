//! Bootstrap through a PMIx server, which `mpirun` of Open MPI and `srun --mpi=pmix` offer their processes: it knows rank
//! and size, and carries rank 0's address and a token to the others.
//!
//! PMIx stays initialised until the world finishes: a process that ends without finalising has failed, and the launcher
//! should see that.

mod ffi;

use std::ffi::{CString, c_char};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{Meeting, Place, bounded, check_size, env, random_token, tcp};
use crate::config::Config;
use crate::error::{Error, Result};

/// How long the server may take to take its leave.
const GOODBYE: Duration = Duration::from_secs(5);

/// An initialised PMIx.
pub(crate) struct Session {
    pmix: &'static ffi::Pmix,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("pmix::Session")
    }
}

impl Session {
    pub(super) fn finish(self) -> Result<()> {
        let pmix = self.pmix;
        bounded("PMIx_Finalize", GOODBYE, move || pmix.finalize())
    }
}

/// What the server knows of this process.
#[derive(Debug, Clone, Copy)]
struct Facts {
    size: u32,
    local: Option<(u32, u32)>,
}

/// Asked once: OpenPMIx 4.2 has forgotten the local rank when it is initialised a second time.
static FACTS: Mutex<Option<Facts>> = Mutex::new(None);
/// How many worlds have been started: each publishes under a name of its own, since a published value is final.
static WORLDS: AtomicU64 = AtomicU64::new(0);

pub(super) fn place(config: &Config, deadline: Instant) -> Result<Place> {
    let pmix = ffi::load(config.pmix_library.as_deref())?;
    let limit = deadline.saturating_duration_since(Instant::now());
    let interface = config.interface.clone();
    let gpu = config.variables.get("MP_GPU").map(str::to_owned);
    // The fence waits for ranks that may never come, and takes no deadline that servers honour.
    let place = bounded("PMIx", limit, move || {
        let me = pmix.init()?;
        let mut place = exchange(pmix, &me, interface.as_deref())?;
        place.gpu = gpu;
        Ok(place)
    })?;
    check_size(place.rank, place.size, "the PMIx job size")?;
    Ok(place)
}

fn exchange(pmix: &'static ffi::Pmix, me: &ffi::Proc, interface: Option<&str>) -> Result<Place> {
    let Facts { size, local } = facts(pmix, me)?;
    let world = WORLDS.fetch_add(1, Ordering::Relaxed);
    let key = format!("libmp.rendezvous.{world}");
    let key = CString::new(key).map_err(|_| invalid("a key with a zero byte"))?;
    let root = ffi::Proc { rank: 0, ..*me };
    let one_host = local.is_some_and(|(_, local_size)| local_size == size);
    let (mut listener, mut token) = (None, random_token()?);
    if me.rank == 0 {
        let (socket, address) = tcp::listen_anywhere(interface, one_host)?;
        let digits: String = token.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = CString::new(format!("{address} {digits}"))
            .map_err(|_| invalid("a value with a zero byte"))?;
        pmix.put(&key, &text)?;
        listener = Some(socket);
    }
    pmix.fence()?;
    let meeting = match listener {
        Some(_) if size == 1 => Meeting::Here,
        Some(listener) => Meeting::Listen(listener),
        None => {
            let text = pmix.get_string(&root, &key)?;
            let parts = text.split_once(' ').and_then(|(address, digits)| {
                Some((address.parse::<SocketAddr>().ok()?, env::parse_token(digits)?))
            });
            let (address, theirs) =
                parts.ok_or_else(|| invalid("rank 0 published no address and token"))?;
            token = theirs;
            Meeting::Connect(address.to_string())
        }
    };
    let session = super::Session::Pmix(Session { pmix });
    Ok(Place {
        rank: me.rank,
        size,
        local,
        job: name_space(me),
        token,
        gpu: None,
        meeting,
        session,
    })
}

fn facts(pmix: &ffi::Pmix, me: &ffi::Proc) -> Result<Facts> {
    let mut facts = FACTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(facts) = *facts {
        return Ok(facts);
    }
    let job = ffi::Proc { rank: ffi::RANK_WILDCARD, ..*me };
    let size = pmix.get_number(&job, c"pmix.job.size")?;
    // A server need not know these two.
    let local_rank = pmix.get_number(me, c"pmix.lrank").ok();
    let local_size = pmix.get_number(&job, c"pmix.local.size").ok();
    let local = local_rank.zip(local_size).filter(|(rank, size)| rank < size);
    Ok(*facts.insert(Facts { size, local }))
}

fn name_space(me: &ffi::Proc) -> String {
    let bytes = me.nspace.iter().take_while(|&&byte| byte != 0);
    String::from_utf8_lossy(&bytes.map(|&byte: &c_char| byte as u8).collect::<Vec<u8>>())
        .into_owned()
}

fn invalid(message: &str) -> Error {
    Error::Pmix { call: "exchanging addresses".into(), message: message.into() }
}
