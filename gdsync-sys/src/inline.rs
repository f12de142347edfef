//! The inline functions of `<infiniband/verbs.h>` that the data path needs.
//!
//! In C they are a few lines in the header that call through the context's table of operations; they are in no
//! library, so here they are written again.

use crate::Verbs;
use crate::verbs::{
    ibv_context, ibv_cq, ibv_gid_entry, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc,
};
use core::ffi::c_int;

/// errno for an operation that the provider does not have (`EOPNOTSUPP` of Linux).
const NOT_SUPPORTED: c_int = 95;

/// Posts a list of send requests: 0, or an errno with the first request that was not posted in `bad_wr`.
///
/// # Safety
/// As `ibv_post_send`: `qp` is a queue pair of a provider's making, `wr` a list of valid requests whose buffers stay
/// until they complete, `bad_wr` writable.
#[inline]
pub unsafe fn ibv_post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad_wr: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: a queue pair points to its open context.
    match unsafe { (*(*qp).context).ops.post_send } {
        // SAFETY: the caller's promise.
        Some(post_send) => unsafe { post_send(qp, wr, bad_wr) },
        None => NOT_SUPPORTED,
    }
}

/// Posts a list of receives: 0, or an errno with the first that was not posted in `bad_wr`.
///
/// # Safety
/// As `ibv_post_recv`: `qp` is a queue pair of a provider's making, `wr` a list of valid requests whose buffers stay
/// until they complete, `bad_wr` writable.
#[inline]
pub unsafe fn ibv_post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a queue pair points to its open context.
    match unsafe { (*(*qp).context).ops.post_recv } {
        // SAFETY: the caller's promise.
        Some(post_recv) => unsafe { post_recv(qp, wr, bad_wr) },
        None => NOT_SUPPORTED,
    }
}

/// Posts a list of receives to a shared receive queue: 0, or an errno with the first that was not posted in `bad_wr`.
///
/// # Safety
/// As `ibv_post_srq_recv`: `srq` is a shared receive queue of a provider's making, `wr` a list of valid requests whose
/// buffers stay until they complete, `bad_wr` writable.
#[inline]
pub unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a shared receive queue points to its open context.
    match unsafe { (*(*srq).context).ops.post_srq_recv } {
        // SAFETY: the caller's promise.
        Some(post_srq_recv) => unsafe { post_srq_recv(srq, wr, bad_wr) },
        None => NOT_SUPPORTED,
    }
}

/// Takes up to `num_entries` completions out of a queue: their number, or a negative value.
///
/// # Safety
/// As `ibv_poll_cq`: `cq` is a completion queue of a provider's making, `wc` has room for `num_entries`.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: a completion queue points to its open context.
    match unsafe { (*(*cq).context).ops.poll_cq } {
        // SAFETY: the caller's promise.
        Some(poll_cq) => unsafe { poll_cq(cq, num_entries, wc) },
        None => -NOT_SUPPORTED,
    }
}

/// Asks for an event with the next completion: 0, or an errno.
///
/// # Safety
/// As `ibv_req_notify_cq`: `cq` is a completion queue of a provider's making.
#[inline]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: a completion queue points to its open context.
    match unsafe { (*(*cq).context).ops.req_notify_cq } {
        // SAFETY: the caller's promise.
        Some(req_notify_cq) => unsafe { req_notify_cq(cq, solicited_only) },
        None => NOT_SUPPORTED,
    }
}

/// Reads entry `gid_index` of a port's GID table: 0, or an errno (`ENODATA` for an empty entry).
///
/// # Safety
/// As `ibv_query_gid_ex`: `context` is open, `entry` writable.
#[inline]
pub unsafe fn ibv_query_gid_ex(
    verbs: &Verbs,
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
) -> c_int {
    let size = size_of::<ibv_gid_entry>();
    // SAFETY: the caller's promise; the size tells the library which version of the struct this is.
    unsafe { verbs._ibv_query_gid_ex(context, port_num, gid_index, entry, flags, size) }
}
