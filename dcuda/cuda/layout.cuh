// What Rust and device code share. GENERATED from dcuda/src/kernels.rs, which declares it; to change it, change it there and
// run MP_REGENERATE=1 cargo test -p mp-dcuda.
#pragma once

#include <cstddef>
#include <cstdint>

namespace programs {

// Doubles of a packet of `Overlap`.
constexpr std::uint64_t packet = 128;

// Bytes ahead of the ranks' memory in that of `Pairs`: messages begin with a cache line, or links carry more packets than they need.
constexpr std::uint64_t pairs_ahead = 128;

// Square roots that a thread computes at once, of each of a packet's doubles.
constexpr std::uint64_t roots_at_once = 4;

// How a halo of the stencil is given.
enum [[nodiscard]] HaloForm : std::uint32_t {
    // By a put of each level, the last with a notification.
    last_level = 0,
    // By a put with a notification of each level.
    each_level = 1,
    // By one put of all levels.
    all_levels = 2,
};

// The stencil, as a device has it.
struct Stencil {
    // Address of the five fields of doubles, each `levels` × (`ranks` × `lines` + 2) × `columns`.
    std::uint64_t fields;
    // Points of a line.
    std::uint64_t columns;
    // Lines of a rank.
    std::uint64_t lines;
    // Levels.
    std::uint64_t levels;
    // Ranks of a device.
    std::uint64_t ranks;
    // Devices.
    std::uint64_t devices;
    // Which of them this is.
    std::uint64_t device;
    // Iterations; of one phase: which iteration.
    std::uint64_t turns;
    // Which phase, of one.
    std::uint64_t phase;
    // A `HaloForm`.
    std::uint64_t halo;
};
static_assert(sizeof(Stencil) == 80 && alignof(Stencil) == 8);
static_assert(offsetof(Stencil, fields) == 0);
static_assert(offsetof(Stencil, columns) == 8);
static_assert(offsetof(Stencil, lines) == 16);
static_assert(offsetof(Stencil, levels) == 24);
static_assert(offsetof(Stencil, ranks) == 32);
static_assert(offsetof(Stencil, devices) == 40);
static_assert(offsetof(Stencil, device) == 48);
static_assert(offsetof(Stencil, turns) == 56);
static_assert(offsetof(Stencil, phase) == 64);
static_assert(offsetof(Stencil, halo) == 72);

// Messages back and forth.
struct Pairs {
    // Address of a word for the nanoseconds and one for the words that were wrong; `PAIRS_AHEAD` bytes from there for each rank what it
    // sends, and what comes to it.
    std::uint64_t memory;
    // Bytes of the room of one message.
    std::uint64_t room;
    // Bytes of a message.
    std::uint64_t bytes;
    // Messages each way.
    std::uint64_t turns;
    // 1: between a device and another one, 0: on each device.
    std::uint64_t across;
    // 1: each word is compared.
    std::uint64_t check;
    // Notifications of another tag that lie in each rank's queue meanwhile.
    std::uint64_t pending;
};
static_assert(sizeof(Pairs) == 56 && alignof(Pairs) == 8);
static_assert(offsetof(Pairs, memory) == 0);
static_assert(offsetof(Pairs, room) == 8);
static_assert(offsetof(Pairs, bytes) == 16);
static_assert(offsetof(Pairs, turns) == 24);
static_assert(offsetof(Pairs, across) == 32);
static_assert(offsetof(Pairs, check) == 40);
static_assert(offsetof(Pairs, pending) == 48);

// Exchange and computation, together or each alone.
struct Overlap {
    // Address of the ranks' memory, `words` each: see overlap.cuh.
    std::uint64_t memory;
    // Words of a rank.
    std::uint64_t words;
    // Iterations; of one stage: which iteration.
    std::uint64_t turns;
    // Which stage, of one: the computation and what is given to neighbours of the same device, or the sum of what came.
    std::uint64_t stage;
    // Units of computation in each: a step of Newton's method for 512 roots, or 1 KiB copied.
    std::uint64_t units;
    // 1: square roots, 0: copies.
    std::uint64_t roots;
    // 1: packets are exchanged.
    std::uint64_t exchanges;
    // 1: the neighbours are the same rank of other devices, 0: the ranks before and behind.
    std::uint64_t across;
    // Doubles that are copied before it begins anew, a multiple of 128.
    std::uint64_t copied;
    // Address of words for nanoseconds, one for each rank: the first rank writes those from the barrier before the first iteration to the one
    // behind the last into the first. Behind them are counts (dcuda_waiting).
    std::uint64_t time;
};
static_assert(sizeof(Overlap) == 80 && alignof(Overlap) == 8);
static_assert(offsetof(Overlap, memory) == 0);
static_assert(offsetof(Overlap, words) == 8);
static_assert(offsetof(Overlap, turns) == 16);
static_assert(offsetof(Overlap, stage) == 24);
static_assert(offsetof(Overlap, units) == 32);
static_assert(offsetof(Overlap, roots) == 40);
static_assert(offsetof(Overlap, exchanges) == 48);
static_assert(offsetof(Overlap, across) == 56);
static_assert(offsetof(Overlap, copied) == 64);
static_assert(offsetof(Overlap, time) == 72);

// Particles in cells, as a device has them.
struct Particles {
    // Address of its memory: see particles.cuh.
    std::uint64_t memory;
    // Cells of a rank.
    std::uint64_t cells;
    // Particles that a cell has room for.
    std::uint64_t room;
    // Ranks of a device.
    std::uint64_t ranks;
    // Devices.
    std::uint64_t devices;
    // Which of them this is.
    std::uint64_t device;
    // Iterations; of one stage: which iteration.
    std::uint64_t turns;
    // Which stage, of one.
    std::uint64_t stage;
    // How far particles push each other away; at most the width of a cell, which is 1.
    double cutoff;
    // Length of an iteration.
    double step;
};
static_assert(sizeof(Particles) == 80 && alignof(Particles) == 8);
static_assert(offsetof(Particles, memory) == 0);
static_assert(offsetof(Particles, cells) == 8);
static_assert(offsetof(Particles, room) == 16);
static_assert(offsetof(Particles, ranks) == 24);
static_assert(offsetof(Particles, devices) == 32);
static_assert(offsetof(Particles, device) == 40);
static_assert(offsetof(Particles, turns) == 48);
static_assert(offsetof(Particles, stage) == 56);
static_assert(offsetof(Particles, cutoff) == 64);
static_assert(offsetof(Particles, step) == 72);

// A sparse matrix, as a device has its part.
struct Matrix {
    // Address of the input vector: doubles, as many as rows.
    std::uint64_t input;
    // Address of the result.
    std::uint64_t result;
    // Address of two vectors that others add to the result.
    std::uint64_t others;
    // Address of 32 doubles a row.
    std::uint64_t sums;
    // Address of the first entry of each row, and the end of the last, words of 64 bits.
    std::uint64_t starts;
    // Address of the entries' columns, words of 32 bits.
    std::uint64_t columns;
    // Address of the entries' values.
    std::uint64_t values;
    // Rows of a rank.
    std::uint64_t rows;
    // Ranks of a device.
    std::uint64_t ranks;
    // Devices in a row of the matrix.
    std::uint64_t across;
    // Devices in a column of it.
    std::uint64_t down;
    // Which device this is, row by row.
    std::uint64_t device;
    // Iterations.
    std::uint64_t turns;
    // Which stage, of one.
    std::uint64_t stage;
};
static_assert(sizeof(Matrix) == 112 && alignof(Matrix) == 8);
static_assert(offsetof(Matrix, input) == 0);
static_assert(offsetof(Matrix, result) == 8);
static_assert(offsetof(Matrix, others) == 16);
static_assert(offsetof(Matrix, sums) == 24);
static_assert(offsetof(Matrix, starts) == 32);
static_assert(offsetof(Matrix, columns) == 40);
static_assert(offsetof(Matrix, values) == 48);
static_assert(offsetof(Matrix, rows) == 56);
static_assert(offsetof(Matrix, ranks) == 64);
static_assert(offsetof(Matrix, across) == 72);
static_assert(offsetof(Matrix, down) == 80);
static_assert(offsetof(Matrix, device) == 88);
static_assert(offsetof(Matrix, turns) == 96);
static_assert(offsetof(Matrix, stage) == 104);

}  // namespace programs
