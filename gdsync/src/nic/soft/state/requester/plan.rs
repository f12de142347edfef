//! What one request needs, and carrying it out where the peer's memory is mapped here.

use std::sync::Arc;

use super::super::{Context, Found, INLINE, PIECES};
use crate::nic::memory_region::Access;
use crate::nic::soft::keys::{Atomic, KeyTable, Place, RegionMemory};
use crate::nic::soft::wire::frame::MAX_MESSAGE;
use crate::wqe::{DataSegment, Operation, Payload as Source, RemoteAddress, Syndrome, WorkRequest};

/// How a request is carried out on memory of the peer without its help.
pub(super) enum Direct {
    /// On memory that is mapped here.
    Mapped(Mapped),
    /// By the RDMA device; through the pool if that does not reach this side's memory.
    ByDevice { remote: RemoteAddress, staged: bool },
}

/// Memory of the peer that is mapped here.
pub(super) struct Mapped {
    memory: Arc<RegionMemory>,
    address: u64,
}

impl Mapped {
    /// Whether no GPU's own memory has a part in the request.
    pub fn is_for_the_cpu(&self, request: &WorkRequest<'_>, keys: &KeyTable) -> bool {
        let local = match &request.operation {
            Operation::Write { payload: Source::Gather(segments), .. } => segments,
            Operation::Read { into, .. } => *into,
            Operation::FetchAdd { into, .. } | Operation::CompareSwap { into, .. } => {
                std::slice::from_ref(into)
            }
            _ => &[],
        };
        let on_gpu = |key| keys.find(key).is_some_and(|region| region.is_on_gpu());
        !self.memory.is_on_gpu() && !local.iter().any(|segment| on_gpu(segment.lkey()))
    }
}

/// What an entry needs, besides its place in the order.
pub(super) struct Plan {
    pub total: u64,
    pub role: Role,
}

pub(super) enum Role {
    /// Done by this side alone.
    Local,
    /// Sends or writes.
    Push,
    /// Reads or atomics.
    Pull(Vec<DataSegment>),
}

/// Checks what this side can check of a request.
pub(super) fn plan(request: &WorkRequest<'_>, keys: &KeyTable) -> Result<Plan, Syndrome> {
    let local = |segments: &[DataSegment], need| {
        let total = segments.iter().map(|segment| u64::from(segment.length())).sum();
        if total > MAX_MESSAGE {
            return Err(Syndrome::LocalLength);
        }
        keys.check_segments(segments, need).map_err(|_| Syndrome::LocalProtection)?;
        Ok(total)
    };
    match request.operation {
        Operation::Nop => Ok(Plan { total: 0, role: Role::Local }),
        Operation::Dump { from } => {
            local(&[from], Access::LOCAL_READ)?;
            Ok(Plan { total: 0, role: Role::Local })
        }
        Operation::Send { payload, .. } | Operation::Write { payload, .. } => {
            let total = match payload {
                Source::Inline(data) => data.len() as u64,
                Source::Gather(segments) => local(segments, Access::LOCAL_READ)?,
            };
            Ok(Plan { total, role: Role::Push })
        }
        Operation::Read { into, .. } => {
            let total = local(into, Access::LOCAL_WRITE)?;
            Ok(Plan { total, role: Role::Pull(into.to_vec()) })
        }
        Operation::FetchAdd { into, .. } | Operation::CompareSwap { into, .. } => {
            let total = local(&[into], Access::LOCAL_WRITE)?;
            Ok(Plan { total, role: Role::Pull(vec![into]) })
        }
    }
}

/// The peer's memory of a write, read or atomic, if it is reached from here. Anything that the peer would refuse is left to it.
pub(super) fn find_direct(
    request: &WorkRequest<'_>,
    plan: &Plan,
    cx: &mut Context<'_>,
) -> Option<Direct> {
    let (remote, need) = match request.operation {
        Operation::Write { remote, imm: None, .. } => (remote, Access::REMOTE_WRITE),
        Operation::Read { remote, .. } => (remote, Access::REMOTE_READ),
        Operation::FetchAdd { remote, .. } | Operation::CompareSwap { remote, .. } => {
            (remote, Access::REMOTE_ATOMIC)
        }
        _ => return None,
    };
    let found = cx.direct.find(remote.rkey, remote.address, plan.total, need)?;
    let (memory, pointer) = match found {
        Found::Mapped(memory, pointer) => (memory, pointer),
        // What is not aligned the peer refuses.
        Found::ByDevice(remote) if need == Access::REMOTE_ATOMIC => {
            let aligned = remote.address.is_multiple_of(8);
            let staged = is_staged(request, cx);
            return aligned.then_some(Direct::ByDevice { remote, staged });
        }
        Found::ByDevice(remote) => {
            return Some(Direct::ByDevice { remote, staged: is_staged(request, cx) });
        }
    };
    // What is not aligned the peer refuses, and so it does atomics on a GPU's memory.
    let atomic = need == Access::REMOTE_ATOMIC;
    if atomic && (memory.is_on_gpu() || !(pointer as usize).is_multiple_of(8)) {
        return None;
    }
    Some(Direct::Mapped(Mapped { memory, address: remote.address }))
}

/// Whether a device cannot take this side's memory of a request as it is.
fn is_staged(request: &WorkRequest<'_>, cx: &Context<'_>) -> bool {
    let local = match &request.operation {
        Operation::Write { payload: Source::Inline(data), .. } => return data.len() > INLINE,
        Operation::Write { payload: Source::Gather(segments), .. } => segments,
        Operation::Read { into, .. } => *into,
        Operation::FetchAdd { into, .. } | Operation::CompareSwap { into, .. } => {
            std::slice::from_ref(into)
        }
        _ => &[],
    };
    let reaches = |segment: &DataSegment| {
        cx.keys.find(segment.lkey()).is_some_and(|region| region.device.is_some())
    };
    cx.device.is_none_or(|device| device.staged)
        || local.len() > PIECES
        || !local.iter().all(reaches)
}

/// Carries out bytes `offset` to `offset + len` of a request on mapped memory.
pub(super) fn transfer(
    request: &WorkRequest<'_>,
    direct: &Mapped,
    offset: u64,
    len: u64,
    cx: &mut Context<'_>,
) -> Result<(), Syndrome> {
    let keys = cx.keys;
    let (need, write) = match request.operation {
        Operation::Write { .. } => (Access::REMOTE_WRITE, true),
        Operation::Read { .. } => (Access::REMOTE_READ, false),
        _ => (Access::REMOTE_ATOMIC, false),
    };
    let checked = direct.memory.check(direct.address + offset, len, need);
    let mut remote = direct.memory.place(checked.map_err(|_| Syndrome::RemoteAccess)?);
    let mut pieces = |segments: &[DataSegment], need| {
        let copied = keys.for_pieces(segments, offset, len, need, |region, local, part| {
            let local = region.place(local);
            let (from, to) = if write { (local, remote) } else { (remote, local) };
            // SAFETY: both ranges were checked for these bytes; the parts add up to `len`.
            unsafe { cx.begun.copy(from, to, part)? };
            remote = remote.after(part);
            Ok(())
        });
        copied.map_err(|_| Syndrome::LocalProtection)
    };
    let (operation, into) = match request.operation {
        Operation::Write { payload: Source::Inline(data), .. } => {
            // SAFETY: `len` bytes at `offset` of the data, and at `remote`, as checked.
            let copied = unsafe {
                let data = Place::host(data.as_ptr().add(offset as usize));
                cx.begun.copy(data, remote, len as usize)
            };
            return copied.map_err(|_| Syndrome::RemoteOperation);
        }
        Operation::Write { payload: Source::Gather(segments), .. } => {
            return pieces(segments, Access::LOCAL_READ);
        }
        Operation::Read { into, .. } => return pieces(into, Access::LOCAL_WRITE),
        Operation::FetchAdd { add, into, .. } => (Atomic::FetchAdd(add), into),
        Operation::CompareSwap { compare, swap, into, .. } => {
            (Atomic::CompareSwap { compare, swap }, into)
        }
        _ => return Err(Syndrome::LocalQpOperation),
    };
    let result = keys.check(into.lkey(), into.address(), 8, Access::LOCAL_WRITE);
    let (region, result) = result.map_err(|_| Syndrome::LocalProtection)?;
    cx.begun.settle().map_err(|_| Syndrome::RemoteOperation)?;
    // SAFETY: `remote` was checked for 8 bytes and is aligned (find_direct); `result` was checked for 8 bytes.
    let copied = unsafe {
        let value = operation.apply(remote.pointer);
        cx.begun.copy(Place::host((&raw const value).cast()), region.place(result), 8)
    };
    copied.map_err(|_| Syndrome::LocalProtection)
}
