// What Rust and device code share. GENERATED from dcuda/src/kernels.rs, which declares it; to change it, change it there and
// run MP_REGENERATE=1 cargo test -p mp-dcuda.
#pragma once

#include <cstddef>
#include <cstdint>

namespace programs {

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
    // 1: a notification for each level, 0: one behind the last.
    std::uint64_t each;
};

// Messages back and forth.
struct Pairs {
    // Address of a word for the nanoseconds and one for the words that were wrong; behind them for each rank what it sends, and
    // what comes to it.
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
};

// Exchange and computation, together or each alone.
struct Overlap {
    // Address of the ranks' memory, `words` each: see overlap.cuh.
    std::uint64_t memory;
    // Words of a rank.
    std::uint64_t words;
    // Iterations.
    std::uint64_t turns;
    // Units of computation in each: 128 divisions, or 1 KiB copied.
    std::uint64_t units;
    // 1: square roots, 0: copies.
    std::uint64_t roots;
    // 1: packets are exchanged.
    std::uint64_t exchanges;
    // 1: the neighbours are the same rank of other devices, 0: the ranks before and behind.
    std::uint64_t across;
    // Doubles that are copied before it begins anew, a multiple of 128.
    std::uint64_t copied;
    std::uint64_t time;
};

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
    double cutoff;
    double step;
};

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

}  // namespace programs
