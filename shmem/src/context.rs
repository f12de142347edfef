//! Contexts: streams of operations that are completed apart from each other. Here they share all there is, so what one context is
//! waited for, all are. In a context of a team PEs have the team's numbers.

use std::ffi::{c_int, c_long};
use std::sync::Arc;

use mp_kernels::SHMEM_DEVICE_CONTEXT;

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
    /// `SHMEM_DEVICE_CTX_DEFAULT`.
    const DEVICE: Context = Context(std::ptr::without_provenance(SHMEM_DEVICE_CONTEXT as usize));
    /// `SHMEM_CTX_INVALID`.
    pub const INVALID: Context = Context(std::ptr::null());

    /// The PE of the world that a PE of the context is.
    #[inline]
    pub fn pe(self, pe: c_int) -> usize {
        if self == Context::DEFAULT { state().pe(pe) } else { self.member(pe) }
    }

    /// One for kernels.
    fn of_device(self) -> Option<&'static Made> {
        state().device.as_ref().and_then(|device| device.context(self.0 as usize))
    }

    fn member(self, pe: c_int) -> usize {
        if self == Context::DEVICE || self.of_device().is_some() {
            die("a context that was made with SHMEM_DEVICE_CTX is for kernels, not for the host");
        }
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

/// `SHMEM_DEVICE_CTX`.
const OF_DEVICE: c_long = 1 << 8;

pub(crate) unsafe fn create(options: c_long, context: *mut Context) -> c_int {
    let team = if options & OF_DEVICE == 0 { Handle::WORLD } else { Handle::DEVICE };
    // SAFETY: as here.
    unsafe { create_for_team(team, options, context) }
}

pub(crate) unsafe fn create_for_team(
    team: Handle,
    options: c_long,
    context: *mut Context,
) -> c_int {
    let made = team.team().and_then(|of| {
        let made = Made { team, members: of.members.clone() };
        let made = match options & OF_DEVICE {
            0 => Context(Box::into_raw(Box::new(made))),
            _ => {
                let handle = state().device.as_ref()?.add_context(of, made)?;
                Context(std::ptr::without_provenance(handle))
            }
        };
        of.contexts().push(made);
        Some(made)
    });
    // SAFETY: the caller's pointer.
    unsafe { *context = made.unwrap_or(Context::INVALID) };
    made.map_or(-1, |_| 0)
}

pub(crate) unsafe fn get_team(context: Context, team: *mut Handle) -> c_int {
    let of = match context {
        Context::DEFAULT => Handle::WORLD,
        Context::DEVICE => Handle::DEVICE,
        Context(made) => {
            let made = match context.of_device() {
                // SAFETY: made by `create`, and not given back, as C promises.
                None => unsafe { made.as_ref() },
                of_device => of_device,
            };
            made.map_or(Handle::INVALID, |made| made.team)
        }
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
        Context::DEFAULT | Context::DEVICE => {
            die("SHMEM_CTX_DEFAULT, of the device, too, cannot be destroyed")
        }
        Context(made) => {
            // What it has begun is complete behind it.
            order::complete(state());
            // SAFETY: if none for kernels made by `create`, and given back once, as C promises.
            let team =
                context.of_device().map_or_else(|| unsafe { (*made).team }, |made| made.team);
            team.valid().contexts().retain(|of| *of != context);
            // SAFETY: as above.
            unsafe { give_back(context) };
        }
    }
}

/// # Safety
/// A context that was made, for the last time.
pub(crate) unsafe fn give_back(context: Context) {
    let of_device = state().device.as_ref().and_then(|it| it.remove_context(context.0 as usize));
    // SAFETY: the caller's promise.
    drop(of_device.unwrap_or_else(|| unsafe { Box::from_raw(context.0.cast_mut()) }));
}
