// The message-passing litmus test, with a payload: data, then signal; wait, then data. Two blocks play it (of one GPU or
// of two): all threads of one write the buffer and raise the signal together, all threads of the other wait together
// and check every word. A missing release, acquire or barrier shows as stale words.
#pragma once

#include <mp/mp.cuh>

#include "pattern.cuh"

// Plays one side, which writes the `words` words or reads them, waits on `mine` and raises `peer`; block 0 only. Both signals
// are `base` before the first round; round r raises them to `base + r`, r from 1, and fills with the pattern of seed `base + r`.
// Adds the words found wrong to *mismatches (reader; device memory or pinned host memory) and the rounds played to
// *rounds_done, both relaxed at GPU scope, to be read after the kernel. A failed wait ends it and goes into the report.
MP_KERNEL void mp_message_passing(std::uint32_t writes, std::uint64_t* data, std::uint64_t words, const std::uint64_t* mine,
                                  std::uint64_t* peer, std::uint64_t base, std::uint64_t rounds, mp::WaitBounds bounds,
                                  mp::WaitReport* report, std::uint64_t* mismatches, std::uint64_t* rounds_done) {
    if (mp::block_rank() != 0) return;
    std::uint64_t wrong = 0;
    std::uint64_t round = 1;
    for (; round <= rounds; ++round) {
        const std::uint64_t value = base + round;
        if (writes) {
            for (std::uint64_t i = mp::thread_rank(); i < words; i += mp::block_threads())
                data[i] = mp::pattern(value, i);
            mp::signal(mp::block(), peer, value);
        }
        const mp::WaitResult result = mp::wait(mp::block(), mine, value, bounds);
        if (result.failed()) {
            if (mp::thread_rank() == 0) mp::report(report, value, result);
            break;
        }
        if (!writes) {
            for (std::uint64_t i = mp::thread_rank(); i < words; i += mp::block_threads())
                wrong += data[i] != mp::pattern(value, i);
            mp::signal(mp::block(), peer, value);  // its barrier: no thread still reads when the writer may go on
        }
    }
    if (wrong != 0) mp::add(mismatches, wrong, mp::relaxed, mp::gpu);
    if (mp::thread_rank() == 0) mp::add(rounds_done, round - 1, mp::relaxed, mp::gpu);
}
