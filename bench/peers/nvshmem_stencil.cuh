// The stencil of `dcuda stencil` as one kernel of NVSHMEM: the same computation, by a block for each rank, and its lines in the same places.
// A block tells its neighbours by signals, a word for each side, which nobody has to match: on its own device by a store, on the other
// one behind puts of its lines.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>
#include <nvshmem.h>
#include <nvshmemx.h>

#include "../../dcuda/cuda/patch.cuh"

namespace stencil {

using programs::Patch;
using programs::Stencil;

// Bytes from one signal to the next, and how many a block has: from the one before, and from the one behind.
constexpr unsigned apart = 128, sides = 2;

__device__ inline uint64_t* signal_at(uint64_t* signals, uint64_t rank, unsigned side) {
    return signals + (rank * sides + side) * (apart / sizeof(uint64_t));
}

// Waits until a signal has reached `value`, by the first thread for all.
__device__ inline void await(const uint64_t* word, uint64_t value) {
    if (threadIdx.x != 0) return;
    uint64_t seen;
    do {
        asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(seen) : "l"(__cvta_generic_to_global(word)) : "memory");
    } while (seen < value);
}

struct Block {
    const Stencil& all;
    const Patch& patch;
    uint64_t* signals;
    // How often each side was given lines, and gave.
    uint64_t given[sides], taken[sides];

    // The lines that a side has as halo, and the signal that they are there. Side 0 is the one before.
    __device__ void give(uint32_t field, unsigned side) {
        const uint64_t value = ++given[side];
        const bool last = blockIdx.x + 1 == all.ranks, leaves = side == 0 ? blockIdx.x == 0 : last;
        if (!leaves) {
            __syncthreads();
            uint64_t* word = signal_at(signals, side == 0 ? blockIdx.x - 1 : blockIdx.x + 1, 1 - side);
            if (threadIdx.x == 0)
                asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(word)), "l"(value) : "memory");
            return;
        }
        // The other device's last block, whose halo is behind its own lines, or its first.
        const int pe = int(side == 0 ? all.device - 1 : all.device + 1);
        const uint64_t there = side == 0 ? all.ranks - 1 : 0;
        const int64_t line = side == 0 ? int64_t(all.lines) : -1, from = side == 0 ? 0 : int64_t(all.lines) - 1;
        const size_t bytes = all.columns * sizeof(double);
        const Patch peer(all, there);
        uint64_t* word = signal_at(signals, there, 1 - side);
        const unsigned warp = threadIdx.x / 32, warps = blockDim.x / 32;
        __syncthreads();
        for (uint64_t level = warp; level + 1 < all.levels; level += warps)
            nvshmemx_putmem_nbi_warp(peer.line(field, level, line), patch.line(field, level, from), bytes, pe);
        nvshmem_fence();
        __syncthreads();
        nvshmemx_putmem_signal_nbi_block(peer.line(field, all.levels - 1, line), patch.line(field, all.levels - 1, from), bytes, word,
                                         value, NVSHMEM_SIGNAL_SET, pe);
    }

    __device__ void exchange(uint32_t field, bool down, bool up) {
        const bool has_before = all.device > 0 || blockIdx.x > 0;
        const bool has_behind = all.device + 1 < all.devices || blockIdx.x + 1 < all.ranks;
        if (down && has_before) give(field, 0);
        if (up && has_behind) give(field, 1);
        if (down && has_behind) await(signal_at(signals, blockIdx.x, 1), ++taken[1]);
        if (up && has_before) await(signal_at(signals, blockIdx.x, 0), ++taken[0]);
        __syncthreads();
    }
};

// `before`: how often each side was given lines in earlier launches.
__global__ void __launch_bounds__(128, 8) play(Stencil all, uint64_t* signals, uint64_t before) {
    const Patch patch(all, blockIdx.x);
    Block block = {all, patch, signals, {before, before}, {before, before}};
    for (uint64_t turn = 0; turn < all.turns; ++turn) {
        patch.compute(0, turn);
        block.exchange(Patch::laplace, true, false);
        patch.compute(1, turn);
        block.exchange(Patch::flux_j, false, true);
        patch.compute(2, turn);
        block.exchange(Patch::result(turn), true, true);
    }
}

// As at the beginning, with the halos; everything else is no number.
__global__ void begin(Stencil all) {
    const uint64_t lines = all.ranks * all.lines, height = all.devices * lines, plane = (lines + 2) * all.columns;
    auto* words = reinterpret_cast<double*>(all.fields);
    const uint64_t first = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x, stride = uint64_t(gridDim.x) * blockDim.x;
    for (uint64_t at = first; at < 5 * all.levels * plane; at += stride) {
        const uint64_t level = at / plane, column = at % all.columns;
        const uint64_t line = all.device * lines + at % plane / all.columns - 1;
        const uint64_t hash = (level * 7919 + line) * 1000003 + column;
        words[at] = level < all.levels && line < height ? double(hash * 0x9e3779b97f4a7c15ull >> 40) / 65536.0 : __longlong_as_double(-1);
    }
}

// The number that tells one result from another: of the bits of the device's own lines, each in its place.
__global__ void sum(Stencil all, unsigned long long* sum) {
    const uint64_t lines = all.ranks * all.lines, plane = (lines + 2) * all.columns;
    const uint32_t field = all.turns % 2 == 0 ? Patch::one : Patch::other;
    const auto* words = reinterpret_cast<const uint64_t*>(all.fields) + field * all.levels * plane;
    unsigned long long mine = 0;
    const uint64_t first = blockIdx.x * uint64_t(blockDim.x) + threadIdx.x, stride = uint64_t(gridDim.x) * blockDim.x;
    for (uint64_t at = first; at < all.levels * lines * all.columns; at += stride) {
        const uint64_t level = at / (lines * all.columns), place = at % (lines * all.columns);
        mine += words[level * plane + all.columns + place] * (2 * at + 1);
    }
    atomicAdd(sum, mine);
}

}  // namespace stencil
