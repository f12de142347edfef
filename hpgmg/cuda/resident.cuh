// What Rust and device code share. GENERATED from hpgmg/src/cuda/resident.rs, which declares it; to change it, change it there and
// run MP_REGENERATE=1 cargo test -p hpgmg.
#pragma once

#include <cstddef>
#include <cstdint>
#include <level.cuh>

namespace hpgmg {

// Cells per side of the largest level of the kernel.
constexpr std::int32_t RESIDENT_DIM = 12;

// Its levels at most: 12, 6, 3 or 8, 4, 2, 1; in shared memory 16, too.
constexpr std::int32_t RESIDENT_LEVELS = 5;

// Steps of one launch at most: those of an F-cycle over all its levels.
constexpr std::int32_t RESIDENT_STEPS = 53;

// Threads of its block.
constexpr std::int32_t RESIDENT_THREADS = 512;

// Cells per side of the largest level of the kernel whose levels are in shared memory (`cuda/held.cu`), …
constexpr std::int32_t HELD_DIM = 16;

// … blocks of its cluster, …
constexpr std::int32_t HELD_BLOCKS = 8;

// … bytes of shared memory of each, …
constexpr std::int32_t HELD_BYTES = 217152;

// … and of a block alone, which has the levels of half as many cells a side and fewer.
constexpr std::int32_t HELD_BYTES_ALONE = 112896;

// The same of the kernel for levels of 12, 6 and 3 cells a side.
constexpr std::int32_t HELD_DIM_3 = 12;

constexpr std::int32_t HELD_BLOCKS_3 = 6;

constexpr std::int32_t HELD_BYTES_3 = 123904;

// A smoother.
enum [[nodiscard]] SmootherKind : std::uint32_t {
    // Gauss-Seidel, red and black.
    SMOOTH_GSRB = 0,
    // Chebyshev's recurrence.
    SMOOTH_CHEBYSHEV = 1,
    // Weighted Jacobi.
    SMOOTH_JACOBI = 2,
    // Jacobi with L1 weights.
    SMOOTH_L1_JACOBI = 3,
};

// A solver of the coarsest level.
enum [[nodiscard]] BottomKind : std::uint32_t {
    // BiCGStab.
    BICGSTAB = 0,
    // Conjugate gradients.
    CG = 1,
    // The smoother.
    RELAXATION = 2,
};

// What a step of a cycle does with u of its level; r is the right-hand side of the cycle there.
enum [[nodiscard]] Op : std::uint32_t {
    // One call of the smoother.
    OP_SMOOTH = 0,
    // r of the next level becomes means of the residual.
    OP_RESTRICT_RESIDUAL = 1,
    // r of the next level becomes means of the right-hand side.
    OP_RESTRICT = 2,
    // u of the next level is interpolated and added.
    OP_CORRECT = 3,
    // u of the next level is interpolated and replaces it.
    OP_REPLACE = 4,
    // The coarsest level is solved.
    OP_SOLVE = 5,
};

// A step of a cycle. The right-hand side is its level's r. Few bytes, since a parameter that is not in the constant cache is
// waited for.
struct ResidentStep {
    // `Op`.
    std::uint8_t op;
    // Number of its level among those of the kernel; of a step between two levels the finer.
    std::uint8_t level;
    // 1: what u holds counts as zero.
    std::uint8_t zero;
};
static_assert(sizeof(ResidentStep) == 3 && alignof(ResidentStep) == 1);
static_assert(offsetof(ResidentStep, op) == 0);
static_assert(offsetof(ResidentStep, level) == 1);
static_assert(offsetof(ResidentStep, zero) == 2);

// What the kernel does.
struct Resident {
    // The coarsest levels, the finest of them first. r of the first that is worked on is the right-hand side of all.
    Level levels[5];
    // Iterations of the bottom solver, added up.
    Counter iterations;
    // Factor by which the bottom solver reduces the residual, …
    double reduction;
    // … in so many iterations at most.
    std::int32_t max_iterations;
    // Steps.
    std::int32_t count;
    // The finest level that they work on.
    std::int32_t first;
    // `SmootherKind`.
    std::uint32_t smoother;
    // `BottomKind`.
    std::uint32_t bottom;
    // 1: solutions are interpolated by the quartic rule.
    std::uint32_t quartic;
    // What is done, one after the other.
    ResidentStep steps[53];
    // Makes the size a multiple of 8.
    std::uint8_t reserved;
};
static_assert(sizeof(Resident) == 1360 && alignof(Resident) == 8);
static_assert(offsetof(Resident, levels) == 0);
static_assert(offsetof(Resident, iterations) == 1160);
static_assert(offsetof(Resident, reduction) == 1168);
static_assert(offsetof(Resident, max_iterations) == 1176);
static_assert(offsetof(Resident, count) == 1180);
static_assert(offsetof(Resident, first) == 1184);
static_assert(offsetof(Resident, smoother) == 1188);
static_assert(offsetof(Resident, bottom) == 1192);
static_assert(offsetof(Resident, quartic) == 1196);
static_assert(offsetof(Resident, steps) == 1200);
static_assert(offsetof(Resident, reserved) == 1359);

}  // namespace hpgmg
