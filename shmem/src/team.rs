//! Teams: PEs in an order. Whoever makes one works out by itself who is in it, so it costs no message; what its collectives need is prepared
//! with the first of them, and used again by later teams of the same PEs.

use std::collections::HashMap;
use std::ffi::{c_int, c_long, c_void};
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use libmp::{Collective, Device, ReduceOp, World};
use mp_kernels::{SHMEM_DEVICE_SHARED, SHMEM_DEVICE_WORLD};

use crate::context::Context;
use crate::device::OfKernels;
use crate::failure::{OrFail, die};
use crate::world::{self, State, state};

/// Blocks of collectives may have any length: what does not go at once goes in pieces.
const ANY: usize = 1 << 48;

/// `shmem_team_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Handle(*const Team);

/// `shmem_team_config_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Config {
    num_contexts: c_int,
}

/// `SHMEM_TEAM_NUM_CONTEXTS`.
const NUM_CONTEXTS: c_long = 1;

// SAFETY: a number for C, whose threads may all use what it stands for.
unsafe impl Send for Handle {}
// SAFETY: as for Send.
unsafe impl Sync for Handle {}

impl Handle {
    pub const INVALID: Handle = Handle(std::ptr::null());
    pub const WORLD: Handle = Handle(std::ptr::without_provenance(1));
    const SHARED: Handle = Handle(std::ptr::without_provenance(2));
    /// `SHMEM_DEVICE_TEAM_WORLD`.
    pub const DEVICE: Handle = Handle(std::ptr::without_provenance(SHMEM_DEVICE_WORLD as usize));
    const DEVICE_SHARED: Handle =
        Handle(std::ptr::without_provenance(SHMEM_DEVICE_SHARED as usize));

    /// What it stands for; `None`: `SHMEM_TEAM_INVALID`.
    pub fn team(self) -> Option<&'static Team> {
        let state = state();
        match self {
            Handle::INVALID => None,
            Handle::WORLD => Some(&state.all),
            Handle::SHARED => Some(&state.shared),
            Handle(made) => {
                let device = state.device.as_ref();
                match device.and_then(|device| device.team(made as usize)) {
                    // SAFETY: made by a split, and not given back, as C promises.
                    None => unsafe { made.as_ref() },
                    of_device => of_device,
                }
            }
        }
    }

    /// The same where a team is needed.
    pub fn valid(self) -> &'static Team {
        self.team().unwrap_or_else(|| die("SHMEM_TEAM_INVALID is no team to communicate in"))
    }
}

/// What the collectives of the same PEs use, by one team at a time.
struct Group {
    in_use: AtomicBool,
    collective: OnceLock<Collective>,
    agreed: OnceLock<Agreed>,
}

/// What all PEs of a team know alike.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreed {
    /// They map the heaps, and the variables, of all.
    pub mapped: [bool; 2],
    /// There are more PEs on a host than cores: whoever waits for another is long about it.
    pub crowded: bool,
}

/// The groups of each list of PEs that there have been teams of. All PEs make and destroy teams of the same PEs in the same order, so each
/// finds the same group for one.
#[derive(Default)]
pub(crate) struct Groups(Mutex<HashMap<Arc<[usize]>, GroupsOf>>);

/// Those of one list.
type GroupsOf = Vec<Arc<Group>>;

impl Groups {
    fn take(&self, members: &Arc<[usize]>) -> Arc<Group> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let groups = groups.entry(members.clone()).or_default();
        let free = groups.iter().find(|group| !group.in_use.swap(true, Ordering::AcqRel));
        free.cloned().unwrap_or_else(|| {
            let (collective, agreed) = (OnceLock::new(), OnceLock::new());
            let group = Arc::new(Group { in_use: AtomicBool::new(true), collective, agreed });
            groups.push(group.clone());
            group
        })
    }
}

pub(crate) struct Team {
    /// PEs of the world, in the team's order.
    pub members: Arc<[usize]>,
    /// This PE's number in it.
    pub me: usize,
    config: Config,
    group: Arc<Group>,
    contexts: Mutex<Vec<Context>>,
    /// Of a team of the device.
    pub of_kernels: Option<OfKernels>,
}

impl Team {
    /// A team of these PEs; `None`: this one is not among them.
    pub fn new(
        groups: &Groups,
        members: Arc<[usize]>,
        me: usize,
        num_contexts: c_int,
    ) -> Option<Team> {
        let me = members.iter().position(|&pe| pe == me)?;
        let (group, contexts) = (groups.take(&members), Mutex::default());
        let config = Config { num_contexts };
        Some(Team { members, me, config, group, contexts, of_kernels: None })
    }

    /// What its collectives are started with. The first time it waits for all of its PEs.
    pub fn collective(&self, world: &World) -> &Collective {
        self.group.collective.get_or_init(|| {
            let prepared = match self.members.iter().copied().eq(0..world.size()) {
                true => world.prepare_collective(&Device::Host, ANY),
                false => {
                    let team = world.team(&self.members);
                    team.and_then(|team| team.prepare_collective(&Device::Host, ANY))
                }
            };
            let prepared = prepared.or_fail();
            // Nobody goes on, and perhaps ends, before all have mapped its memory.
            prepared.barrier().run().or_fail();
            prepared
        })
    }

    /// What its PEs agree on. The first time it waits for all of them.
    pub fn agreed(&self, state: &State) -> Agreed {
        *self.group.agreed.get_or_init(|| {
            let [heap, data] = [Some(&state.heap), state.data.as_ref()].map(|segment| {
                segment.is_some_and(|all| self.members.iter().all(|&pe| !all.peers[pe].is_null()))
            });
            let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
            let has_room = state.shared.members.len() <= cores;
            let mut by_all = [heap, data, has_room].map(u64::from);
            self.collective(&state.world).all_reduce_slice(ReduceOp::Min, &mut by_all).or_fail();
            let [heap, data, has_room] = by_all.map(|is_so| is_so != 0);
            Agreed { mapped: [heap, data], crowded: !has_room }
        })
    }

    /// The contexts that were made of it.
    pub fn contexts(&self) -> MutexGuard<'_, Vec<Context>> {
        self.contexts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The PE of the world that is number `pe`.
    fn member(&self, pe: c_int) -> Option<usize> {
        self.members.get(usize::try_from(pe).ok()?).copied()
    }
}

pub(crate) unsafe fn my_pe(team: Handle) -> c_int {
    team.team().map_or(-1, |team| team.me as c_int)
}

pub(crate) unsafe fn n_pes(team: Handle) -> c_int {
    team.team().map_or(-1, |team| team.members.len() as c_int)
}

pub(crate) unsafe fn get_config(team: Handle, mask: c_long, config: *mut Config) -> c_int {
    let Some(team) = team.team() else { return -1 };
    if mask & NUM_CONTEXTS != 0 {
        // SAFETY: C's promise.
        unsafe { *config = team.config };
    }
    0
}

pub(crate) unsafe fn translate_pe(from: Handle, pe: c_int, to: Handle) -> c_int {
    let (Some(from), Some(to)) = (from.team(), to.team()) else { return -1 };
    let Some(pe) = from.member(pe) else { return -1 };
    to.members.iter().position(|&member| member == pe).map_or(-1, |pe| pe as c_int)
}

pub(crate) unsafe fn ptr(team: Handle, address: *const c_void, pe: c_int) -> *mut c_void {
    match team.team().and_then(|team| team.member(pe)) {
        // SAFETY: as here.
        Some(pe) => unsafe { world::ptr(address, pe as c_int) },
        None => std::ptr::null_mut(),
    }
}

/// What a program asks of a new team.
///
/// # Safety
/// The configuration is there if the mask names anything of it.
unsafe fn contexts_of(config: *const Config, mask: c_long) -> c_int {
    match mask & NUM_CONTEXTS != 0 {
        // SAFETY: the caller's promise.
        true => unsafe { config.as_ref() }.map_or(0, |config| config.num_contexts),
        false => 0,
    }
}

/// A team of every `stride`th PE of another one, from `start` on. `None`: there are no such PEs.
fn strided(parent: &Team, start: c_int, stride: c_int, size: c_int) -> Option<Arc<[usize]>> {
    let last = (size - 1).checked_mul(stride).and_then(|way| start.checked_add(way));
    if size < 1 || (stride == 0 && size > 1) || last.and_then(|pe| parent.member(pe)).is_none() {
        return None;
    }
    (0..size).map(|i| parent.member(start + i * stride)).collect()
}

/// A team of the device if the parent is one. `None`: there is no room for another.
fn make(state: &State, parent: &Team, members: Arc<[usize]>, contexts: c_int) -> Option<Handle> {
    let Some(team) = Team::new(&state.groups, members, state.me, contexts) else {
        return Some(Handle::INVALID);
    };
    match &state.device {
        Some(device) if parent.of_kernels.is_some() => {
            let handle = device.add_team(state, team)?;
            Some(Handle(std::ptr::without_provenance(handle)))
        }
        _ => Some(Handle(Box::into_raw(Box::new(team)))),
    }
}

pub(crate) unsafe fn split_strided(
    parent: Handle,
    start: c_int,
    stride: c_int,
    size: c_int,
    config: *const Config,
    mask: c_long,
    new: *mut Handle,
) -> c_int {
    let state = state();
    let parent = parent.team();
    let members = parent.and_then(|parent| Some((parent, strided(parent, start, stride, size)?)));
    // SAFETY: C's promise.
    let contexts = unsafe { contexts_of(config, mask) };
    let made = members.and_then(|(parent, members)| make(state, parent, members, contexts));
    // SAFETY: C's promise.
    unsafe { *new = made.unwrap_or(Handle::INVALID) };
    made.map_or(-1, |_| 0)
}

#[allow(clippy::too_many_arguments, reason = "the specification's")]
pub(crate) unsafe fn split_2d(
    parent: Handle,
    width: c_int,
    x_config: *const Config,
    x_mask: c_long,
    x_team: *mut Handle,
    y_config: *const Config,
    y_mask: c_long,
    y_team: *mut Handle,
) -> c_int {
    let state = state();
    let mut made = None;
    if let Some(parent) = parent.team().filter(|_| width > 0) {
        let (n, me) = (parent.members.len() as c_int, parent.me as c_int);
        let width = width.min(n);
        let (x, y) = (me % width, me / width);
        let row = strided(parent, y * width, 1, width.min(n - y * width));
        let column = strided(parent, x, width, (n - x + width - 1) / width);
        // SAFETY: C's promise.
        let contexts = unsafe { (contexts_of(x_config, x_mask), contexts_of(y_config, y_mask)) };
        made = row.zip(column).and_then(|(row, column)| {
            let row = make(state, parent, row, contexts.0)?;
            Some((row, make(state, parent, column, contexts.1)?))
        });
        let (row, column) = made.unwrap_or((Handle::INVALID, Handle::INVALID));
        // SAFETY: C's promise.
        unsafe { (*x_team, *y_team) = (row, column) };
    } else {
        // SAFETY: C's promise.
        unsafe { (*x_team, *y_team) = (Handle::INVALID, Handle::INVALID) };
    }
    made.map_or(-1, |_| 0)
}

pub(crate) unsafe fn destroy(team: Handle) {
    if team == Handle::INVALID {
        return;
    }
    if [Handle::WORLD, Handle::SHARED, Handle::DEVICE, Handle::DEVICE_SHARED].contains(&team) {
        die("SHMEM_TEAM_WORLD and SHMEM_TEAM_SHARED, of the device, too, cannot be destroyed");
    }
    let of_device = state().device.as_ref().and_then(|it| it.remove_team(team.0 as usize));
    // SAFETY: made by a split, and given back once, as C promises.
    let made = of_device.unwrap_or_else(|| unsafe { Box::from_raw(team.0.cast_mut()) });
    let contexts = std::mem::take(&mut *made.contexts());
    for context in contexts {
        // SAFETY: made of it, and gone with it.
        unsafe { crate::context::give_back(context) };
    }
    made.group.in_use.store(false, Ordering::Release);
}
