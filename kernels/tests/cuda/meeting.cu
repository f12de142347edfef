// Blocks of one launch that meet, with a payload: each writes its words, meets others, and checks theirs.
#pragma once

#include <mp/mp.cuh>

#include "pattern.cuh"

// Plays `turns` turns, the first of them number `first`: each block writes its `words` of the `words` x blocks x 2 words of `data`, by
// turns in one half and the other, meets the blocks in front and behind, around the end (`all` 0), or all of them (1), and compares what
// these have written. `absent`: a block that stays away. Adds to results: [0] the words found wrong, [1] turns of blocks that were
// played to their end.
MP_KERNEL void mp_meetings(mp::BlockSignals signals, std::uint32_t all, std::uint32_t absent, std::uint64_t* data, std::uint64_t words,
                           std::uint64_t first, std::uint64_t turns, std::uint64_t* results) {
    const std::uint32_t blocks = mp::grid_blocks(), mine = mp::block_rank();
    if (mine == absent) return;
    const auto whom = [&](std::uint32_t n) { return all ? n : (mine + blocks - 1 + 2 * n) % blocks; };
    const std::uint32_t count = all ? blocks : 2;
    mp::Meetings meetings(signals, count, whom);
    std::uint64_t wrong = 0, turn = first;
    for (; turn < first + turns; ++turn) {
        std::uint64_t* const half = data + turn % 2 * blocks * words;
        for (std::uint64_t i = mp::thread_rank(); i < words; i += mp::block_threads())
            half[mine * words + i] = mp::pattern(turn, mine * words + i);
        if (!meetings.meet()) break;
        for (std::uint32_t n = 0; n < count; ++n)
            for (std::uint64_t i = mp::thread_rank(); i < words; i += mp::block_threads())
                wrong += half[whom(n) * words + i] != mp::pattern(turn, whom(n) * words + i);
    }
    if (wrong != 0) mp::add(results, wrong, mp::relaxed, mp::system);
    if (mp::thread_rank() == 0) mp::add(results + 1, turn - first, mp::relaxed, mp::system);
}
