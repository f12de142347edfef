//! What kernels are told about other ranks: the structures of `cuda/slab.cuh` and `cuda/exchange.cu`, field by field.
//! Addresses are those of this rank's GPU.

use mp_kernels::WaitBounds;

/// Ranks besides this one that the kernels take (`MAX_PEERS`).
pub const MAX_PEERS: usize = 7;
/// Values that are agreed on at a time (`AGREED`).
pub const AGREED: usize = 4;
/// Words of a `Pair`.
pub const PAIR_WORDS: usize = 2;

/// The phases of this rank with one peer.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Link {
    /// This rank's count of them; 0: there is no such peer.
    pub pair: u64,
    /// This rank's signal, in the peer's memory.
    pub theirs: u64,
    /// The peer's signal, in this rank's memory.
    pub mine: u64,
    /// A `WaitReport`.
    pub report: u64,
}

/// What ends waits.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bounds {
    /// Abort word and deadline.
    pub wait: WaitBounds,
    /// 32-bit word that is not 0 once a wait has failed.
    pub failed: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { wait: WaitBounds { abort: 0, timeout_ns: 0 }, failed: 0 }
    }
}

/// The planes that a kernel works on, and the neighbours of this rank.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Slab {
    /// With the ranks below and above.
    pub links: [Link; 2],
    /// The vector written, in their memory, or 0.
    pub peers: [u64; 2],
    /// What ends waits.
    pub bounds: Bounds,
    /// First plane.
    pub first: i32,
    /// Behind the last plane.
    pub end: i32,
    /// 1: blocks at the borders wait themselves.
    pub wait: i32,
    /// Planes beyond these in memory.
    pub held: i32,
}

/// Elements for one peer.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Route {
    /// Where they are.
    pub from: u64,
    /// Where they go.
    pub to: u64,
    /// How many pairs of elements.
    pub pairs: i64,
    /// With the peer.
    pub link: Link,
}

/// One launch of `hpgmg_exchange` or `hpgmg_unpack`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Exchange {
    /// One for each row of blocks.
    pub routes: [Route; MAX_PEERS],
    /// What ends waits.
    pub bounds: Bounds,
}

/// One launch of `hpgmg_agree`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Agree {
    /// With every other rank.
    pub links: [Link; MAX_PEERS],
    /// Where this rank's values go.
    pub outbox: [u64; MAX_PEERS],
    /// Where the others' arrive.
    pub inbox: [u64; MAX_PEERS],
    /// This rank's values, and the largest of all.
    pub values: u64,
    /// Where they and the other values go in memory of the host.
    pub results: u64,
    /// Count of agreements.
    pub rounds: u64,
    /// What ends waits.
    pub bounds: Bounds,
    /// Other ranks.
    pub peers: i32,
    /// Values to agree on.
    pub count: i32,
    /// Values behind them that are only told.
    pub others: i32,
    /// Padding.
    pub unused: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_that_the_kernels_assert() {
        assert_eq!(size_of::<Slab>(), 120);
        assert_eq!(size_of::<Exchange>(), 7 * 56 + 24);
        assert_eq!(size_of::<Agree>(), 7 * 48 + 64);
    }
}
