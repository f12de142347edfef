// The message-passing litmus test, with a payload: data, then signal; wait, then data. Two blocks play it (of one GPU or
// of two): all threads of one write the buffer and raise the signal together, all threads of the other wait together
// and check every word. A missing release, acquire or barrier shows as stale words.
#pragma once

#include <mp/mp.cuh>

#include "pattern.cuh"

// Plays one side; block 0 only. Adds the words found wrong to *mismatches (reader; device memory or pinned host memory)
// and the rounds played to *rounds_done, both relaxed at GPU scope, to be read after the kernel. A failed wait ends it
// and goes into the report.
MP_KERNEL void mp_message_passing(mp::MessagePassing side, mp::WaitBounds bounds, mp::WaitReport* report,
                                  std::uint64_t* mismatches, std::uint64_t* rounds_done) {
    if (mp::block_rank() != 0) return;
    auto* data = reinterpret_cast<std::uint64_t*>(side.data);
    const auto* mine = reinterpret_cast<const std::uint64_t*>(side.mine);
    auto* peer = reinterpret_cast<std::uint64_t*>(side.peer);
    std::uint64_t wrong = 0;
    std::uint64_t round = 1;
    for (; round <= side.rounds; ++round) {
        const std::uint64_t value = side.base + round;
        if (side.writes) {
            for (std::uint64_t i = mp::thread_rank(); i < side.words; i += mp::block_threads())
                data[i] = mp::pattern(value, i);
            mp::signal(mp::block(), peer, value);
        }
        const mp::WaitResult result = mp::wait(mp::block(), mine, value, bounds);
        if (result.failed()) {
            if (mp::thread_rank() == 0) mp::report(report, value, result);
            break;
        }
        if (!side.writes) {
            for (std::uint64_t i = mp::thread_rank(); i < side.words; i += mp::block_threads())
                wrong += data[i] != mp::pattern(value, i);
            mp::signal(mp::block(), peer, value);  // its barrier: no thread still reads when the writer may go on
        }
    }
    if (wrong != 0) mp::add(mismatches, wrong, mp::relaxed, mp::gpu);
    if (mp::thread_rank() == 0) mp::add(rounds_done, round - 1, mp::relaxed, mp::gpu);
}
