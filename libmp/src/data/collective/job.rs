//! One run of a collective with its memory, checked: what a start works on.

use std::ops::Range;

use bytemuck::Pod;
use gdsync::Buffer;
use mp_kernels::Extent;

use super::blocks::{Kind, Phase, Reduction, all_reduce_in_halves};
use super::host::Task;
use super::shared::Shared;
use crate::data::region::Region;
use crate::error::{Error, Result};

#[derive(Clone)]
pub(super) struct Job {
    pub name: &'static str,
    pub phases: Vec<Phase>,
    pub from: Buffer<u8>,
    pub to: Buffer<u8>,
    pub reduction: Option<Reduction>,
    /// Bytes of the largest block of any rank, as all ranks know it.
    pub most: u64,
    pub is_barrier: bool,
}

impl Job {
    /// `count` elements a block.
    pub fn new<T: Pod>(
        shared: &Shared,
        kind: Kind,
        (from, to): (&Region<T>, &Region<T>),
        count: usize,
        reduction: Option<Reduction>,
    ) -> Result<Job> {
        let name = kind.name();
        let mismatch = |reason| Error::Mismatch { op: shared.name(), reason };
        if let Some(reason) = reduction.and_then(|all| all.op.refuses(all.element)) {
            return Err(mismatch(format!("{name}: {reason}")));
        }
        let bytes = count.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or_else(|| mismatch(format!("{name}: {count} elements")))?;
        let phases = phases_of(shared, &kind, bytes, reduction.is_some());
        if let Kind::Broadcast { root }
        | Kind::Gather { root }
        | Kind::Scatter { root }
        | Kind::Reduce { root } = kind
        {
            shared.has_rank(root)?;
        }
        // A rank knows only its own blocks of all-to-all-v: how they go is decided by the room there is, and through a NIC the ranks
        // agree on how many rows there are.
        let most = phases[0].most();
        let most = if matches!(kind, Kind::AllToAllV { .. }) { most } else { bytes as u64 };
        shared.fits(name, most)?;
        let by_room = matches!(kind, Kind::AllToAllV { .. });
        let most = if by_room { shared.bytes as u64 } else { most };
        for phase in &phases {
            let given = if phase.again { to } else { from };
            for (list, memory, what) in
                [(&phase.gives, given, "gives"), (&phase.takes, to, "takes")]
            {
                let (needed, there) = (list.extent(), memory.buffer().size());
                if needed > there as u64 {
                    let reason = format!("{name}: {what} {needed} bytes of a region of {there}");
                    return Err(mismatch(reason));
                }
            }
        }
        let [from, to] = [from.buffer().bytes(), to.buffer().bytes()];
        let is_barrier = kind == Kind::Barrier;
        let job = Job { name, phases, from, to, reduction, most, is_barrier };
        job.check_reach(shared)?;
        Ok(job)
    }

    /// On the host: the CPU reaches it.
    fn check_reach(&self, shared: &Shared) -> Result<()> {
        if shared.host.is_none() {
            return Ok(());
        }
        for (memory, is_used) in [
            (&self.from, self.phases[0].gives.extent() > 0),
            (&self.to, self.phases[0].takes.extent() > 0),
        ] {
            if is_used && memory.host_address().is_none() {
                let reason = format!("{}: the CPU does not reach its memory", self.name);
                return Err(Error::Mismatch { op: shared.name(), reason });
            }
        }
        Ok(())
    }

    pub fn task(&self) -> Task<'_> {
        let Job { phases, reduction, most, is_barrier, .. } = self;
        Task { phases, reduction: *reduction, most: *most, is_barrier: *is_barrier }
    }
}

/// What this rank does for blocks of so many bytes.
pub(super) fn phases_of(shared: &Shared, kind: &Kind, bytes: usize, combined: bool) -> Vec<Phase> {
    let (rank, ranks) = (shared.rank, shared.world_ranks.len());
    if *kind == Kind::AllReduce && ranks > 2 && shared.is_large(bytes) {
        return all_reduce_in_halves(rank, ranks, bytes).into();
    }
    vec![Phase { combined, ..kind.phase(rank, ranks, bytes) }]
}

/// The parts of a region as a table.
pub(super) fn extents<T>(ranges: &[Range<usize>]) -> Vec<Extent> {
    let of = |range: &Range<usize>| Extent {
        at: (range.start as u64).saturating_mul(size_of::<T>() as u64),
        bytes: (range.len() as u64).saturating_mul(size_of::<T>() as u64),
    };
    ranges.iter().map(of).collect()
}
