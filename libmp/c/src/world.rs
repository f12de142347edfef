//! Worlds: started, looked at, ended.

use std::ffi::{c_char, c_int};

use libmp::{Communicator, Path, PeerCounters, World};

use crate::handle::{
    api, array, array_mut, borrow, deadline, getters, give, number, place, put, take, text,
};
use crate::status::Failure;

/// `mp_world`.
pub struct MpWorld {
    world: World,
    comm: MpComm,
}

/// `mp_comm`.
pub struct MpComm(pub(crate) Communicator);

/// `mp_counters` of the header: its fields in order.
#[repr(C)]
pub struct MpCounters([u64; 12]);

impl From<&PeerCounters> for MpCounters {
    fn from(of: &PeerCounters) -> MpCounters {
        let [sends, recvs, puts, gets] =
            [of.sends, of.recvs, of.puts, of.gets].map(|kind| [kind.operations, kind.bytes]);
        let mut fields = [sends, recvs, puts, gets].concat();
        fields.extend([of.signals, of.atomics, of.waits, of.retries]);
        let mut counters = MpCounters([0; 12]);
        counters.0.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        counters
    }
}

/// A rank of a communicator.
fn rank_of(comm: &Communicator, rank: c_int) -> Result<usize, Failure> {
    let number = number(rank, "rank")?;
    comm.world_rank(number).map_err(|error| Failure::argument("rank", error))?;
    Ok(number)
}

impl From<World> for MpWorld {
    fn from(world: World) -> MpWorld {
        let comm = MpComm(world.clone());
        MpWorld { world, comm }
    }
}

api! {
    /// Starts a world with the ranks that the launcher started.
    fn mp_init(world: *mut *mut MpWorld) {
        place(world, "world")?;
        give(world, World::init()?.into(), "world")?;
    }

    /// Starts a world of threads of this process.
    fn mp_init_threads(ranks: c_int, worlds: *mut *mut MpWorld) {
        let ranks = number(ranks, "ranks")?;
        let places = array_mut(worlds, ranks, "worlds")?;
        places.fill(std::ptr::null_mut());
        for (place, world) in places.iter_mut().zip(World::threads(ranks)?) {
            give(place, world.into(), "worlds")?;
        }
    }

    /// Ends a world in good order, and gives it back in any case.
    fn mp_finish(world: *mut MpWorld) {
        take(world, "world")?.world.finish()?;
    }

    /// Ends a world for all ranks, for a reason.
    fn mp_abort(world: *const MpWorld, reason: *const c_char) {
        borrow(world, "world")?.world.abort(text(reason, "reason")?);
    }

    /// Whether the world goes on.
    fn mp_check(world: *const MpWorld) {
        borrow(world, "world")?.world.check()?;
    }

    /// A communicator of the ranks with the same colour.
    fn mp_comm_split(comm: *const MpComm, color: i64, key: i64, split: *mut *mut MpComm) {
        place(split, "split")?;
        let comm = &borrow(comm, "comm")?.0;
        if let Some(part) = comm.split(u64::try_from(color).ok(), key)? {
            give(split, MpComm(part), "split")?;
        }
    }

    /// A communicator of these ranks, which each of them makes by itself.
    fn mp_comm_team(comm: *const MpComm, ranks: *const c_int, count: c_int, team: *mut *mut MpComm) {
        place(team, "team")?;
        let comm = &borrow(comm, "comm")?.0;
        let count = number(count, "count")?;
        let ranks = array(ranks, count, "ranks")?.iter().map(|&rank| rank_of(comm, rank));
        give(team, MpComm(comm.team(&ranks.collect::<Result<Vec<_>, _>>()?)?), "team")?;
    }

    /// The communicator of this rank's host.
    fn mp_comm_node_local(comm: *const MpComm, local: *mut *mut MpComm) {
        place(local, "local")?;
        give(local, MpComm(borrow(comm, "comm")?.0.node_local()?), "local")?;
    }

    /// The same communicator with another timeout.
    fn mp_comm_with_timeout(comm: *const MpComm, timeout: f64, same: *mut *mut MpComm) {
        place(same, "same")?;
        let comm = &borrow(comm, "comm")?.0;
        give(same, MpComm(comm.with_timeout(deadline(timeout)?.timeout())), "same")?;
    }

    /// How bytes go to a rank.
    fn mp_path(comm: *const MpComm, rank: c_int, path: *mut c_int) {
        put(path, -1, "path")?;
        let comm = &borrow(comm, "comm")?.0;
        let kind = match comm.path(rank_of(comm, rank)?)? {
            Path::Direct => 0,
            Path::NicSharedMemory => 1,
            Path::NicTcp => 2,
            Path::NicVerbs => 3,
            other => return Err(Failure::unsupported(format!("path {other} has no number in C"))),
        };
        put(path, kind, "path")?;
    }

    /// What this rank has done with another.
    fn mp_read_counters(
        comm: *const MpComm,
        rank: c_int,
        counters: *mut MpCounters,
        bytes: usize,
    ) {
        let comm = &borrow(comm, "comm")?.0;
        let rank = rank_of(comm, rank)?;
        let of = comm.counters().into_iter().nth(rank);
        let of = of.ok_or_else(|| Failure::unsupported(format!("rank {rank} has no counters")))?;
        // A program made for an earlier version knows fewer fields.
        if !bytes.is_multiple_of(8) || bytes > size_of::<MpCounters>() {
            let most = size_of::<MpCounters>();
            let what = format!("{bytes}, expected sizeof(mp_counters), which is {most}");
            return Err(Failure::argument("bytes", what));
        }
        array_mut(counters.cast::<u64>(), bytes / 8, "counters")?
            .copy_from_slice(&MpCounters::from(&of).0[..bytes / 8]);
    }

    /// Gives a communicator back.
    fn mp_comm_free(comm: *mut MpComm) {
        drop(take(comm, "comm")?);
    }
}

getters! {
    /// The communicator of all ranks, which is the world's.
    fn mp_world_comm(world: *const MpWorld) -> *const MpComm, std::ptr::null(), {
        &borrow(world, "world")?.comm
    }

    /// This rank's number on its host.
    fn mp_local_rank(world: *const MpWorld) -> c_int, -1, {
        count(borrow(world, "world")?.world.local_rank())?
    }

    /// How many ranks are on this rank's host.
    fn mp_local_size(world: *const MpWorld) -> c_int, -1, {
        count(borrow(world, "world")?.world.local_size())?
    }

    /// The GPU that the launcher chose for this rank; `MP_HOST` if it chose none.
    fn mp_assigned_gpu(world: *const MpWorld) -> c_int, -1, {
        match borrow(world, "world")?.world.assigned_gpu() {
            None => -1,
            Some(gpu) => gpu.parse().map_err(|_| {
                Failure::unsupported(format!("MP_GPU={gpu:?} is no number of a GPU"))
            })?,
        }
    }

    /// This rank's number.
    fn mp_rank(comm: *const MpComm) -> c_int, -1, {
        count(borrow(comm, "comm")?.0.rank())?
    }

    /// How many ranks there are.
    fn mp_size(comm: *const MpComm) -> c_int, -1, {
        count(borrow(comm, "comm")?.0.size())?
    }
}

/// A number of ranks, of which there are fewer than an `int` counts.
fn count(number: usize) -> Result<c_int, Failure> {
    c_int::try_from(number).map_err(|_| Failure::unsupported(format!("{number} ranks")))
}

/// The version of the library, as in `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn mp_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The version of the library as a number: `MP_MAKE_VERSION` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn mp_version_number() -> c_int {
    const PARTS: [&str; 3] = [
        env!("CARGO_PKG_VERSION_MAJOR"),
        env!("CARGO_PKG_VERSION_MINOR"),
        env!("CARGO_PKG_VERSION_PATCH"),
    ];
    PARTS.iter().flat_map(|part| part.parse::<c_int>()).fold(0, |all, part| all * 1000 + part)
}
