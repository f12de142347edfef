// Fills buffers with a pattern and checks them: for tests of copies.
#pragma once

#include <mp/platform.cuh>

#include "pattern.cuh"

// words[i] = pattern(seed, i) for i < count, by any grid. Plain stores: ordered by the end of the kernel.
MP_KERNEL void mp_fill(std::uint64_t* words, std::uint64_t count, std::uint64_t seed) {
    const std::uint64_t stride = std::uint64_t{mp::grid_blocks()} * mp::block_threads();
    std::uint64_t index = std::uint64_t{mp::block_rank()} * mp::block_threads() + mp::thread_rank();
    for (; index < count; index += stride) words[index] = mp::pattern(seed, index);
}

// Adds to *mismatches (device memory, or pinned host memory of which the CPU only reads) the number of words that are
// not the pattern. Plain loads and relaxed adds at GPU scope: *mismatches is to be read after the kernel.
MP_KERNEL void mp_check_pattern(const std::uint64_t* words, std::uint64_t count, std::uint64_t seed,
                                std::uint64_t* mismatches) {
    const std::uint64_t stride = std::uint64_t{mp::grid_blocks()} * mp::block_threads();
    std::uint64_t index = std::uint64_t{mp::block_rank()} * mp::block_threads() + mp::thread_rank();
    std::uint64_t wrong = 0;
    for (; index < count; index += stride) wrong += words[index] != mp::pattern(seed, index);
    if (wrong != 0) mp::add(mismatches, wrong, mp::relaxed, mp::gpu);
}
