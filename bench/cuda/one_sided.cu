// What gets, atomic operations and single words cost inside a kernel, on the memory of a rank that has nothing to do with it.
#pragma once

#include <mp/mp.cuh>

#include "perf.cu"

// Gets of `bytes` bytes of rank 1's share to `to`, each waited for, by one block; each of a place `step` bytes further, in turn
// within `spread` bytes, so that none comes from a cache.
MP_KERNEL void MP_BLOCK_OF(512) mp_perf_gets(const __grid_constant__ mp::Window window, std::uint64_t to, std::uint64_t bytes, std::uint64_t step,
                                              std::uint64_t spread, std::uint64_t untimed, std::uint64_t timed,
                                              mp::PingPongTime* time) {
    mp::perf::Watch watch = {nullptr, time};
    std::uint64_t at = 0;
    const auto get = [&] {
        at = at + step < spread ? at + step : 0;
        return mp::get(mp::block(), window, 1, at, mp::impl::at<void>(to), bytes) && !mp::flush(mp::block(), window, 1).failed();
    };
    mp::perf::play_together(get, untimed, timed, watch);
}

namespace mp {
namespace perf {

// Each adds what the last two differ by, which is one, since nobody else adds: so it waits for the last.
template <class Order>
MP_DEVICE void play_fetch_adds(const Window& window, std::uint64_t untimed, std::uint64_t timed, Order order, Watch& watch) {
    std::uint64_t first = 0;
    if (!get_value(window, 1, 0, first)) return watch.end(true);
    std::uint64_t before = first - 1, one = 1;
    const auto add = [&] {
        const std::uint64_t last = before;
        const bool added = fetch_add<std::uint64_t>(window, 1, 0, one, before, order);
        one = before - last;
        return added;
    };
    play_together(add, untimed, timed, watch);
    if (before + one - first != untimed + timed) watch.end(true);
}

}  // namespace perf
}  // namespace mp

// Adds to the first word of rank 1's share, relaxed or with acquire and release, and waits for what the word held, by one thread.
MP_KERNEL void mp_perf_fetch_adds(const __grid_constant__ mp::Window window, std::uint32_t ordered, std::uint64_t untimed, std::uint64_t timed,
                                  mp::PingPongTime* time) {
    mp::perf::Watch watch = {nullptr, time};
    ordered != 0 ? mp::perf::play_fetch_adds(window, untimed, timed, mp::acq_rel, watch)
                 : mp::perf::play_fetch_adds(window, untimed, timed, mp::relaxed, watch);
}

// Every thread puts `rounds` words, a multiple of 4, one after another, into rows of all threads' words in rank 1's share in turn; then waits
// until they are there. Block b writes when it began and ended to stamps[2b] and stamps[2b + 1], in nanoseconds; 0 if a put failed.
MP_KERNEL void MP_BLOCK_OF(256) mp_perf_words(const __grid_constant__ mp::Window window, std::uint64_t rounds, std::uint64_t* stamps) {
    constexpr std::uint64_t rows = 64;
    // Before it is asked whether there are more, as the compiler makes it of a peer's loop.
    constexpr std::uint32_t in_a_row = 4;
    const std::uint64_t began = mp::clock_ns();
    const std::uint64_t row = 8 * std::uint64_t{mp::block_threads()} * mp::grid_blocks();
    const std::uint64_t mine = 8 * (std::uint64_t{mp::block_rank()} * mp::block_threads() + mp::thread_rank());
    bool put = true;
    const auto last = static_cast<std::uint32_t>(rounds);
    for (std::uint32_t first = 1; put && first <= last; first += in_a_row) {
        MP_UNROLL
        for (std::uint32_t k = 0; k < in_a_row; ++k)
            put = mp::put_value<std::uint64_t>(window, 1, (first + k) % rows * row + mine, first + k) && put;
    }
    put = !mp::block_any(!put) && !mp::quiet(mp::block(), window, 1).failed();
    if (mp::thread_rank() == 0) {
        stamps[2 * mp::block_rank()] = put ? began : 0;
        stamps[2 * mp::block_rank() + 1] = mp::clock_ns();
    }
}
