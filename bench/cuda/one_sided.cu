// What gets, atomic operations and single words cost inside a kernel, on the memory of a rank that has nothing to do with it.
#pragma once

#include <mp/mp.cuh>

#include "perf.cu"

// Gets of `bytes` bytes of rank 1's share to `to`, each waited for, by one block; each of a place `step` bytes further, in turn
// within `spread` bytes, so that none comes from a cache.
MP_KERNEL void MP_BLOCK_OF(512) mp_perf_gets(const __grid_constant__ mp::Window window, std::uint64_t to, std::uint64_t bytes, std::uint64_t step,
                                              std::uint64_t spread, std::uint64_t untimed, std::uint64_t timed,
                                              std::uint32_t* samples, mp::PingPongTime* time) {
    mp::perf::Watch watch = {samples, time};
    std::uint64_t at = 0;
    for (std::uint64_t round = 0; round < untimed + timed; ++round) {
        if (round == untimed) watch.begin();
        at = at + step < spread ? at + step : 0;
        const bool got = mp::get(mp::block(), window, 1, at, mp::impl::at<void>(to), bytes);
        if (!got || mp::flush(mp::block(), window, 1).failed()) return watch.end(true);
        if (round >= untimed) watch.round(round - untimed);
    }
    watch.end(false);
}

// Adds to the first word of rank 1's share, relaxed or with acquire and release, and waits for what the word held, by one thread.
MP_KERNEL void mp_perf_fetch_adds(const __grid_constant__ mp::Window window, std::uint32_t ordered, std::uint64_t untimed, std::uint64_t timed,
                                  std::uint32_t* samples, mp::PingPongTime* time) {
    mp::perf::Watch watch = {samples, time};
    std::uint64_t before = 0, last = 0;
    for (std::uint64_t round = 0; round < untimed + timed; ++round) {
        if (round == untimed) watch.begin();
        const bool added = ordered != 0 ? mp::fetch_add<std::uint64_t>(window, 1, 0, 1, before)
                                        : mp::fetch_add<std::uint64_t>(window, 1, 0, 1, before, mp::relaxed);
        // What it holds grows by one: nobody else adds.
        if (!added || (round > 0 && before != last + 1)) return watch.end(true);
        last = before;
        if (round >= untimed) watch.round(round - untimed);
    }
    watch.end(false);
}

// Every thread puts `rounds` words, one after another, into rows of all threads' words in rank 1's share in turn; then waits until they are there. Block b writes when it began and ended to stamps[2b] and stamps[2b + 1], in
// nanoseconds; 0 if a put failed.
MP_KERNEL void MP_BLOCK_OF(256) mp_perf_words(const __grid_constant__ mp::Window window, std::uint64_t rounds, std::uint64_t* stamps) {
    constexpr std::uint64_t rows = 64;
    const std::uint64_t began = mp::clock_ns();
    const std::uint64_t row = 8 * std::uint64_t{mp::block_threads()} * mp::grid_blocks();
    const std::uint64_t mine = 8 * (std::uint64_t{mp::block_rank()} * mp::block_threads() + mp::thread_rank());
    bool put = true;
    for (std::uint64_t round = 1; round <= rounds; ++round)
        put &= mp::put_value(window, 1, round % rows * row + mine, round);
    put = !mp::block_any(!put) && !mp::quiet(mp::block(), window, 1).failed();
    if (mp::thread_rank() == 0) {
        stamps[2 * mp::block_rank()] = put ? began : 0;
        stamps[2 * mp::block_rank() + 1] = mp::clock_ns();
    }
}
