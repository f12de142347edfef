//! Contexts: streams of operations that are completed apart from each other. Here they share all there is, so what one context is
//! waited for, all are. In a context of a team PEs have the team's numbers.

use std::ffi::{c_int, c_long};
use std::sync::Arc;

use crate::failure::die;
use crate::order;
use crate::team::Handle;
use crate::world::state;

/// `shmem_ctx_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Context(*const Made);

/// What a program has made. Its options promise how it is used, which changes nothing here.
pub(crate) struct Made {
    team: Handle,
    members: Arc<[usize]>,
}

// SAFETY: a number for C, whose threads may all use what it stands for.
unsafe impl Send for Context {}
// SAFETY: as for Send.
unsafe impl Sync for Context {}

impl Context {
    /// `SHMEM_CTX_DEFAULT`.
    pub const DEFAULT: Context = Context(std::ptr::without_provenance(1));
    /// `SHMEM_CTX_INVALID`.
    pub const INVALID: Context = Context(std::ptr::null());

    /// The PE of the world that a PE of the context is.
    #[inline]
    pub fn pe(self, pe: c_int) -> usize {
        if self == Context::DEFAULT { state().pe(pe) } else { self.member(pe) }
    }

    fn member(self, pe: c_int) -> usize {
        // SAFETY: made by `create`, and not given back, as C promises.
        let made = unsafe { self.0.as_ref() };
        let made = made.unwrap_or_else(|| die("SHMEM_CTX_INVALID is no context to communicate in"));
        let member = usize::try_from(pe).ok().and_then(|pe| made.members.get(pe));
        *member.unwrap_or_else(|| {
            die(format!(
                "there is no PE {pe} in the context's team: its PEs are 0 to {}",
                made.members.len() - 1
            ))
        })
    }
}

pub(crate) unsafe fn create(options: c_long, context: *mut Context) -> c_int {
    // SAFETY: as here.
    unsafe { create_for_team(Handle::WORLD, options, context) }
}

pub(crate) unsafe fn create_for_team(team: Handle, _: c_long, context: *mut Context) -> c_int {
    let made = team.team().map(|of| {
        let made = Box::into_raw(Box::new(Made { team, members: of.members.clone() }));
        of.contexts().push(Context(made));
        Context(made)
    });
    // SAFETY: the caller's pointer.
    unsafe { *context = made.unwrap_or(Context::INVALID) };
    made.map_or(-1, |_| 0)
}

pub(crate) unsafe fn get_team(context: Context, team: *mut Handle) -> c_int {
    let of = match context {
        Context::DEFAULT => Handle::WORLD,
        // SAFETY: made by `create`, and not given back, as C promises.
        Context(made) => unsafe { made.as_ref() }.map_or(Handle::INVALID, |made| made.team),
    };
    // SAFETY: the caller's pointer.
    unsafe { *team = of };
    if of == Handle::INVALID { -1 } else { 0 }
}

/// `shmem_ctx_session_config_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct SessionConfig {
    _total_ops: usize,
}

/// What a session promises changes nothing here; a context that there is not is no mistake.
pub(crate) unsafe fn session_start(_: Context, _: c_long, _: *const SessionConfig, _: c_long) {
    state();
}

pub(crate) unsafe fn session_stop(_: Context) {
    state();
}

pub(crate) unsafe fn destroy(context: Context) {
    match context {
        Context::INVALID => {}
        Context::DEFAULT => die("SHMEM_CTX_DEFAULT cannot be destroyed"),
        Context(made) => {
            // What it has begun is complete behind it.
            order::complete(state());
            // SAFETY: made by `create`, and given back once, as C promises.
            let team = unsafe { (*made).team };
            team.valid().contexts().retain(|of| *of != context);
            // SAFETY: as above.
            unsafe { give_back(context) };
        }
    }
}

/// # Safety
/// A context that was made, for the last time.
pub(crate) unsafe fn give_back(context: Context) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(context.0.cast_mut()) });
}
