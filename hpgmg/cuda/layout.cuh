// What Rust and device code share. GENERATED from hpgmg/src/cuda/device.rs, which declares it; to change it, change it there and
// run MP_REGENERATE=1 cargo test -p hpgmg.
#pragma once

#include <cstddef>
#include <cstdint>
#include <types.cuh>

namespace hpgmg {

// Ghost rows and planes around the grid.
constexpr std::int32_t GHOSTS = 2;

// Elements before the first row: room for the ghosts in front of it, and alignment.
constexpr std::int32_t BASE = 16;

// Half a row of a small level is a multiple of so many elements, …
constexpr std::int32_t HALF_ROW = 2;

// … that of a large one, whose rows start on multiples of 128 bytes, of so many; …
constexpr std::int32_t LARGE_HALF_ROW = 16;

// … and large are levels of so many cells a side.
constexpr std::int32_t LARGE = 64;

// Threads of a block of most kernels: along a row, a warp, …
constexpr std::int32_t BLOCK_PAIRS = 32;

// … and rows.
constexpr std::int32_t BLOCK_ROWS = 8;

// Rows and planes of coarse cells of a block that interpolates.
constexpr std::int32_t TILE = 4;

// Blocks of a leg on a level of 24 cells a side, of 32, 48 and 64, …
constexpr std::int32_t LEG_BLOCKS_24 = 36;

constexpr std::int32_t LEG_BLOCKS_32 = 128;

constexpr std::int32_t LEG_BLOCKS_48 = 96;

constexpr std::int32_t LEG_BLOCKS_64 = 128;

// … threads of each …
constexpr std::int32_t LEG_THREADS_24 = 192;

constexpr std::int32_t LEG_THREADS_32 = 128;

constexpr std::int32_t LEG_THREADS_48 = 576;

constexpr std::int32_t LEG_THREADS_64 = 512;

// … and bytes of shared memory.
constexpr std::int32_t LEG_BYTES_24 = 65536;

constexpr std::int32_t LEG_BYTES_32 = 61440;

constexpr std::int32_t LEG_BYTES_48 = 143360;

constexpr std::int32_t LEG_BYTES_64 = 221184;

// Rows of a block that does a whole sweep, …
constexpr std::int32_t SWEEP_ROWS = 8;

// … its threads, …
constexpr std::int32_t SWEEP_THREADS = 640;

// … its shared memory, …
constexpr std::int32_t SWEEP_BYTES = 232256;

// … and what it copies at once of each colour: elements of a row and rows, of x …
constexpr std::int32_t SWEEP_X_PAIRS = 36;

constexpr std::int32_t SWEEP_X_ROWS = 14;

// … and of a coefficient.
constexpr std::int32_t SWEEP_BETA_PAIRS = 38;

constexpr std::int32_t SWEEP_BETA_ROWS = 12;

// Rows of a block that finds residuals by tiles, …
constexpr std::int32_t RESIDUAL_ROWS = 16;

// … its warps, …
constexpr std::int32_t RESIDUAL_WARPS = 10;

// … its shared memory, …
constexpr std::int32_t RESIDUAL_BYTES = 201536;

// … and elements of a row and colour that it copies at once.
constexpr std::int32_t RESIDUAL_PAIRS = 36;

// One-dimensional rules for ghosts of homogeneous Dirichlet boundaries.
enum [[nodiscard]] GhostRule : std::uint32_t {
    // Of one cell.
    LINEAR = 0,
    // Of two.
    QUADRATIC = 1,
    // Of four.
    QUARTIC = 2,
    // Of two, in point values.
    POINT_QUADRATIC = 3,
};

// A level: one grid of n^3 cells, all boxes of the rank merged, and where its values lie.
struct DeviceLevel {
    // Solution.
    Values u;
    // Scratch.
    Values temp;
    // Right-hand side.
    Values f;
    // Right-hand side of the current cycle.
    Values r;
    // Eight work vectors, `volume` apart, on the bottom level.
    Values krylov;
    // Inverse diagonal.
    ReadOnly dinv;
    // L1 weights, or 0.
    ReadOnly l1inv;
    // Face coefficients.
    ReadOnly beta[3];
    // Coefficient of the identity term, or 0 for Poisson.
    ReadOnly alpha;
    // Factor of the sum of fluxes: -b / h^2, in fv4 over 12.
    double scale;
    // Factor of the identity term.
    double a;
    // Weights of the last step, Chebyshev.
    double c1[6];
    // Weights of the residual, Chebyshev.
    double c2[6];
    // Elements of a vector.
    std::int64_t volume;
    // Cells per side.
    std::int32_t n;
    // Elements of half a row, padding and ghosts along i included.
    std::int32_t half;
    // `GhostRule` of the operator.
    std::int32_t boundary;
    // `GhostRule` for interpolating corrections from this level.
    std::int32_t correct;
    // `GhostRule` for interpolating solutions from this level.
    std::int32_t replace;
    // Rows of a plane that are here, without ghosts.
    std::int32_t rows;
};
static_assert(sizeof(DeviceLevel) == 232 && alignof(DeviceLevel) == 8);
static_assert(offsetof(DeviceLevel, u) == 0);
static_assert(offsetof(DeviceLevel, temp) == 8);
static_assert(offsetof(DeviceLevel, f) == 16);
static_assert(offsetof(DeviceLevel, r) == 24);
static_assert(offsetof(DeviceLevel, krylov) == 32);
static_assert(offsetof(DeviceLevel, dinv) == 40);
static_assert(offsetof(DeviceLevel, l1inv) == 48);
static_assert(offsetof(DeviceLevel, beta) == 56);
static_assert(offsetof(DeviceLevel, alpha) == 80);
static_assert(offsetof(DeviceLevel, scale) == 88);
static_assert(offsetof(DeviceLevel, a) == 96);
static_assert(offsetof(DeviceLevel, c1) == 104);
static_assert(offsetof(DeviceLevel, c2) == 152);
static_assert(offsetof(DeviceLevel, volume) == 200);
static_assert(offsetof(DeviceLevel, n) == 208);
static_assert(offsetof(DeviceLevel, half) == 212);
static_assert(offsetof(DeviceLevel, boundary) == 216);
static_assert(offsetof(DeviceLevel, correct) == 220);
static_assert(offsetof(DeviceLevel, replace) == 224);
static_assert(offsetof(DeviceLevel, rows) == 228);

// A pass of the operator. One from zero takes x as zero without reading it.
struct Pass {
    // Vector read.
    ReadOnly x;
    // Vector written.
    Values out;
    // Right-hand side.
    ReadOnly rhs;
    // Weights of a Jacobi step.
    ReadOnly weight;
    // Damping of a Jacobi step; Chebyshev: weight of the residual.
    double scale;
    // Chebyshev: weight of the last step.
    double last;
    // GSRB: half-sweep; Chebyshev: step of the recurrence.
    std::int32_t sweep;
    // Planes that a block marches through.
    std::int32_t planes;
    // Blocks along k; the grid has as many for each band of rows.
    std::int32_t tiles;
    // Where tiles are copied: the plane of the level that lies behind the usual ghosts in what they are copied from.
    std::int32_t before;
};
static_assert(sizeof(Pass) == 64 && alignof(Pass) == 8);
static_assert(offsetof(Pass, x) == 0);
static_assert(offsetof(Pass, out) == 8);
static_assert(offsetof(Pass, rhs) == 16);
static_assert(offsetof(Pass, weight) == 24);
static_assert(offsetof(Pass, scale) == 32);
static_assert(offsetof(Pass, last) == 40);
static_assert(offsetof(Pass, sweep) == 48);
static_assert(offsetof(Pass, planes) == 52);
static_assert(offsetof(Pass, tiles) == 56);
static_assert(offsetof(Pass, before) == 60);

// A leg of a cycle on one level: a correction, a call of the smoother and a residual, which is restricted.
struct Leg {
    // Right-hand side.
    ReadOnly rhs;
    // 1: u of the next level is interpolated and added first.
    std::int32_t correct;
    // 1: what u holds counts as zero.
    std::int32_t zero;
    // 1: r of the next level becomes means of the residual at last.
    std::int32_t restrict;
    // Keeps the size a multiple of 8; ignored.
    std::int32_t reserved;
    // What its blocks meet by, in `cuda/types.cuh` an `mp::BlockSignals`.
    BlockSignals signals;
};
static_assert(sizeof(Leg) == 56 && alignof(Leg) == 8);
static_assert(offsetof(Leg, rhs) == 0);
static_assert(offsetof(Leg, correct) == 8);
static_assert(offsetof(Leg, zero) == 12);
static_assert(offsetof(Leg, restrict) == 16);
static_assert(offsetof(Leg, reserved) == 20);
static_assert(offsetof(Leg, signals) == 24);

// The part of a level that a launch works on: along i in what a thread has of a row.
struct Extent {
    // The first along each axis.
    std::int32_t first[3];
    // Behind the last.
    std::int32_t end[3];
    // Planes that a block marches through.
    std::int32_t each;
    // Keeps the size a multiple of 8; ignored.
    std::int32_t reserved;
};
static_assert(sizeof(Extent) == 32 && alignof(Extent) == 4);
static_assert(offsetof(Extent, first) == 0);
static_assert(offsetof(Extent, end) == 12);
static_assert(offsetof(Extent, each) == 24);
static_assert(offsetof(Extent, reserved) == 28);

// Elements that are copied: rows of so many, so many rows in a plane, and planes.
struct Copy {
    // The first.
    ReadOnly from;
    // Where it goes.
    Values to;
    // Elements from row to row and from plane to plane, where they are.
    std::int64_t from_strides[2];
    // Where they go.
    std::int64_t to_strides[2];
    // Elements of a row.
    std::int64_t row;
    // Rows of a plane.
    std::int64_t rows;
    // Planes.
    std::int64_t planes;
};
static_assert(sizeof(Copy) == 72 && alignof(Copy) == 8);
static_assert(offsetof(Copy, from) == 0);
static_assert(offsetof(Copy, to) == 8);
static_assert(offsetof(Copy, from_strides) == 16);
static_assert(offsetof(Copy, to_strides) == 32);
static_assert(offsetof(Copy, row) == 48);
static_assert(offsetof(Copy, rows) == 56);
static_assert(offsetof(Copy, planes) == 64);

// A rank's planes of a level and its turns with the ranks next to it.
struct Slab {
    // Its field is the vector written; no neighbours where the launch communicates with nobody.
    Turns halo;
    // First plane; of interpolation those of the coarse level.
    std::int32_t first;
    // Behind the last plane.
    std::int32_t end;
    // Planes beyond these in memory: 2, or all of a level that every rank has.
    std::int32_t held;
    // Planes at each border of the level written that are the neighbours' ghosts.
    std::int32_t depth;
};
static_assert(sizeof(Slab) == 152 && alignof(Slab) == 8);
static_assert(offsetof(Slab, halo) == 0);
static_assert(offsetof(Slab, first) == 136);
static_assert(offsetof(Slab, end) == 140);
static_assert(offsetof(Slab, held) == 144);
static_assert(offsetof(Slab, depth) == 148);

// A rank's box of a level and its turns with the ranks around it.
struct Brick {
    // As that of a slab.
    TurnsAround halo;
    // First cell along each axis; of interpolation that of the coarse level.
    std::int32_t first[3];
    // Behind the last.
    std::int32_t end[3];
    // Cells beyond these in memory, along each axis: 2, or all of a level that is not cut along it.
    std::int32_t held[3];
    // Keeps the size a multiple of 8; ignored.
    std::int32_t reserved;
};
static_assert(sizeof(Brick) == 1136 && alignof(Brick) == 8);
static_assert(offsetof(Brick, halo) == 0);
static_assert(offsetof(Brick, first) == 1096);
static_assert(offsetof(Brick, end) == 1108);
static_assert(offsetof(Brick, held) == 1120);
static_assert(offsetof(Brick, reserved) == 1132);

}  // namespace hpgmg
