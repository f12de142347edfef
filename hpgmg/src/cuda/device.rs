//! What Rust and the kernels over levels share, each declared once, here: `cuda/layout.cuh` is generated from it. What the kernel of
//! the coarsest levels has besides is in `resident.rs`.

use mp_kernels::{BlockSignals, Exchange, shared_constants, shared_enum, shared_structs};

use crate::backend::Vector;
use crate::boundary::Extrapolation;

/// Address of values that kernels may write, in `cuda/types.cuh` a `double*`.
pub type Values = u64;
/// Address of values that kernels only read, in `cuda/types.cuh` a `const double*`.
pub type ReadOnly = u64;
/// Address of a number that kernels raise, in `cuda/types.cuh` a `std::uint64_t*`.
pub type Counter = u64;
/// Turns with the ranks below and above, in `cuda/types.cuh` an `mp::Exchange<2>`.
pub type Turns = Exchange<2>;
/// Turns with the ranks around, in `cuda/types.cuh` an `mp::Exchange<26>`.
pub type TurnsAround = Exchange<26>;

shared_constants! {
    /// Ghost rows and planes around the grid.
    pub const GHOSTS: i32 = 2 as GHOSTS;
    /// Elements before the first row: room for the ghosts in front of it, and alignment.
    pub const BASE: i32 = 16 as BASE;
    /// Half a row of a small level is a multiple of so many elements, …
    pub const HALF_ROW: i32 = 2 as HALF_ROW;
    /// … that of a large one, whose rows start on multiples of 128 bytes, of so many; …
    pub const LARGE_HALF_ROW: i32 = 16 as LARGE_HALF_ROW;
    /// … and large are levels of so many cells a side.
    pub const LARGE: i32 = 64 as LARGE;
    /// Threads of a block of most kernels: along a row, a warp, …
    pub const BLOCK_PAIRS: i32 = 32 as BLOCK_PAIRS;
    /// … and rows.
    pub const BLOCK_ROWS: i32 = 8 as BLOCK_ROWS;
    /// Rows and planes of coarse cells of a block that interpolates.
    pub const TILE: i32 = 4 as TILE;
    /// Blocks of a leg on a level of 24 cells a side, of 32, 48 and 64, …
    pub const LEG_BLOCKS_24: i32 = 36 as LEG_BLOCKS_24;
    pub const LEG_BLOCKS_32: i32 = 128 as LEG_BLOCKS_32;
    pub const LEG_BLOCKS_48: i32 = 96 as LEG_BLOCKS_48;
    pub const LEG_BLOCKS_64: i32 = 128 as LEG_BLOCKS_64;
    /// … threads of each …
    pub const LEG_THREADS_24: i32 = 192 as LEG_THREADS_24;
    pub const LEG_THREADS_32: i32 = 128 as LEG_THREADS_32;
    pub const LEG_THREADS_48: i32 = 576 as LEG_THREADS_48;
    pub const LEG_THREADS_64: i32 = 512 as LEG_THREADS_64;
    /// … and bytes of shared memory.
    pub const LEG_BYTES_24: i32 = 65_536 as LEG_BYTES_24;
    pub const LEG_BYTES_32: i32 = 61_440 as LEG_BYTES_32;
    pub const LEG_BYTES_48: i32 = 143_360 as LEG_BYTES_48;
    pub const LEG_BYTES_64: i32 = 221_184 as LEG_BYTES_64;
    /// Rows of a block that does a whole sweep, …
    pub const SWEEP_ROWS: i32 = 8 as SWEEP_ROWS;
    /// … its threads, …
    pub const SWEEP_THREADS: i32 = 640 as SWEEP_THREADS;
    /// … its shared memory, …
    pub const SWEEP_BYTES: i32 = 232_256 as SWEEP_BYTES;
    /// … and what it copies at once of each colour: elements of a row and rows, of x …
    pub const SWEEP_X_PAIRS: i32 = 36 as SWEEP_X_PAIRS;
    pub const SWEEP_X_ROWS: i32 = 14 as SWEEP_X_ROWS;
    /// … and of a coefficient.
    pub const SWEEP_BETA_PAIRS: i32 = 38 as SWEEP_BETA_PAIRS;
    pub const SWEEP_BETA_ROWS: i32 = 12 as SWEEP_BETA_ROWS;
    /// Rows of a block that finds residuals by tiles, …
    pub const RESIDUAL_ROWS: i32 = 16 as RESIDUAL_ROWS;
    /// … its warps, …
    pub const RESIDUAL_WARPS: i32 = 10 as RESIDUAL_WARPS;
    /// … its shared memory, …
    pub const RESIDUAL_BYTES: i32 = 201_536 as RESIDUAL_BYTES;
    /// … and elements of a row and colour that it copies at once.
    pub const RESIDUAL_PAIRS: i32 = 36 as RESIDUAL_PAIRS;
}

shared_enum! {
    /// One-dimensional rules for ghosts of homogeneous Dirichlet boundaries.
    pub enum GhostRule {
        /// Of one cell.
        Linear = 0 as LINEAR,
        /// Of two.
        Quadratic = 1 as QUADRATIC,
        /// Of four.
        Quartic = 2 as QUARTIC,
        /// Of two, in point values.
        PointQuadratic = 3 as POINT_QUADRATIC,
    }
}

impl GhostRule {
    /// The number of a rule.
    pub fn number(rule: Extrapolation) -> i32 {
        let rule = match rule {
            Extrapolation::Linear => Self::Linear,
            Extrapolation::PointQuadratic => Self::PointQuadratic,
            Extrapolation::Quadratic => Self::Quadratic,
            Extrapolation::Quartic => Self::Quartic,
        };
        rule as i32
    }
}

shared_structs! {
    /// A level: one grid of n^3 cells, all boxes of the rank merged, and where its values lie.
    pub struct DeviceLevel {
        /// Solution.
        pub u: Values,
        /// Scratch.
        pub temp: Values,
        /// Right-hand side.
        pub f: Values,
        /// Right-hand side of the current cycle.
        pub r: Values,
        /// Eight work vectors, `volume` apart, on the bottom level.
        pub krylov: Values,
        /// Inverse diagonal.
        pub dinv: ReadOnly,
        /// L1 weights, or 0.
        pub l1inv: ReadOnly,
        /// Face coefficients.
        pub beta: [ReadOnly; 3],
        /// Coefficient of the identity term, or 0 for Poisson.
        pub alpha: ReadOnly,
        /// Factor of the sum of fluxes: -b / h^2, in fv4 over 12.
        pub scale: f64,
        /// Factor of the identity term.
        pub a: f64,
        /// Weights of the last step, Chebyshev.
        pub c1: [f64; 6],
        /// Weights of the residual, Chebyshev.
        pub c2: [f64; 6],
        /// Elements of a vector.
        pub volume: i64,
        /// Cells per side.
        pub n: i32,
        /// Elements of half a row, padding and ghosts along i included.
        pub half: i32,
        /// `GhostRule` of the operator.
        pub boundary: i32,
        /// `GhostRule` for interpolating corrections from this level.
        pub correct: i32,
        /// `GhostRule` for interpolating solutions from this level.
        pub replace: i32,
        /// Rows of a plane that are here, without ghosts.
        pub rows: i32,
    }

    /// A pass of the operator. One from zero takes x as zero without reading it.
    pub struct Pass {
        /// Vector read.
        pub x: ReadOnly,
        /// Vector written.
        pub out: Values,
        /// Right-hand side.
        pub rhs: ReadOnly,
        /// Weights of a Jacobi step.
        pub weight: ReadOnly,
        /// Damping of a Jacobi step; Chebyshev: weight of the residual.
        pub scale: f64,
        /// Chebyshev: weight of the last step.
        pub last: f64,
        /// GSRB: half-sweep; Chebyshev: step of the recurrence.
        pub sweep: i32,
        /// Planes that a block marches through.
        pub planes: i32,
        /// Blocks along k; the grid has as many for each band of rows.
        pub tiles: i32,
        /// Where tiles are copied: the plane of the level that lies behind the usual ghosts in what they are copied from.
        pub before: i32,
    }

    /// A leg of a cycle on one level: a correction, a call of the smoother and a residual, which is restricted.
    pub struct Leg {
        /// Right-hand side.
        pub rhs: ReadOnly,
        /// 1: u of the next level is interpolated and added first.
        pub correct: i32,
        /// 1: what u holds counts as zero.
        pub zero: i32,
        /// 1: r of the next level becomes means of the residual at last.
        pub restrict: i32,
        /// Keeps the size a multiple of 8; ignored.
        pub reserved: i32,
        /// What its blocks meet by, in `cuda/types.cuh` an `mp::BlockSignals`.
        pub signals: BlockSignals,
    }

    /// The part of a level that a launch works on: along i in what a thread has of a row.
    pub struct Extent {
        /// The first along each axis.
        pub first: [i32; 3],
        /// Behind the last.
        pub end: [i32; 3],
        /// Planes that a block marches through.
        pub each: i32,
        /// Keeps the size a multiple of 8; ignored.
        pub reserved: i32,
    }

    /// Elements that are copied: rows of so many, so many rows in a plane, and planes.
    pub struct Copy {
        /// The first.
        pub from: ReadOnly,
        /// Where it goes.
        pub to: Values,
        /// Elements from row to row and from plane to plane, where they are.
        pub from_strides: [i64; 2],
        /// Where they go.
        pub to_strides: [i64; 2],
        /// Elements of a row.
        pub row: i64,
        /// Rows of a plane.
        pub rows: i64,
        /// Planes.
        pub planes: i64,
    }

    /// A rank's planes of a level and its turns with the ranks next to it.
    pub struct Slab {
        /// Its field is the vector written; no neighbours where the launch communicates with nobody.
        pub halo: Turns,
        /// First plane; of interpolation those of the coarse level.
        pub first: i32,
        /// Behind the last plane.
        pub end: i32,
        /// Planes beyond these in memory: 2, or all of a level that every rank has.
        pub held: i32,
        /// Planes at each border of the level written that are the neighbours' ghosts.
        pub depth: i32,
    }

    /// A rank's box of a level and its turns with the ranks around it.
    pub struct Brick {
        /// As that of a slab.
        pub halo: TurnsAround,
        /// First cell along each axis; of interpolation that of the coarse level.
        pub first: [i32; 3],
        /// Behind the last.
        pub end: [i32; 3],
        /// Cells beyond these in memory, along each axis: 2, or all of a level that is not cut along it.
        pub held: [i32; 3],
        /// Keeps the size a multiple of 8; ignored.
        pub reserved: i32,
    }
}

/// `cuda/layout.cuh`.
#[cfg(test)]
const HEADER: mp_kernels::shared::Header = mp_kernels::shared::Header {
    source: "hpgmg/src/cuda/device.rs",
    package: "hpgmg",
    includes: &["types.cuh"],
    namespace: "hpgmg",
    constants: CONSTANTS,
    enums: &[GhostRule::ENUMERATION],
    structs: LAYOUTS,
};

impl DeviceLevel {
    /// The address of a vector; 0 if the level has none.
    pub fn vector(&self, v: Vector) -> u64 {
        match v {
            Vector::Temp => self.temp,
            Vector::U => self.u,
            Vector::F => self.f,
            Vector::R => self.r,
            Vector::Dinv => self.dinv,
            Vector::Beta(axis) => self.beta[usize::from(axis)],
            Vector::Alpha => self.alpha,
            Vector::L1Inv => self.l1inv,
            Vector::Krylov(number) => self.krylov + 8 * u64::from(number) * self.volume as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_the_kernels_is_what_is_declared_here() {
        HEADER.check(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/layout.cuh")).unwrap();
    }
}
