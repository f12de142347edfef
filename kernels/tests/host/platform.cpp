// The platform layer by itself: ids, barriers, votes and broadcasts, words, fences, clocks, the test pattern.
#include <algorithm>
#include <atomic>
#include <mp/host/launch.hpp>
#include <mp/mp.cuh>

#include "../cuda/pattern.cuh"
#include "check.hpp"

using std::uint32_t;
using std::uint64_t;

CASE(every_thread_of_a_grid_runs_once_with_its_ids) {
    std::vector<uint32_t> seen(3 * 40, 0);
    mp::host::launch(3, 40, [&] {
        CHECK_THAT(mp::grid_blocks(), ==, 3u);
        CHECK_THAT(mp::block_threads(), ==, 40u);
        CHECK_THAT(mp::lane(), ==, mp::thread_rank() % 32);
        mp::add(&seen[mp::block_rank() * 40 + mp::thread_rank()], uint32_t{1}, mp::relaxed, mp::gpu);
    });
    for (const auto times : seen) CHECK_THAT(times, ==, 1u);
}

CASE(outside_a_launch_a_thread_is_a_grid_of_one) {
    CHECK_THAT(mp::grid_blocks() * mp::block_threads(), ==, 1u);
    CHECK_THAT(mp::block_rank() + mp::thread_rank(), ==, 0u);
    mp::block().sync();
    mp::warp().sync();
    CHECK(mp::block().any(true) && !mp::block().any(false));
    CHECK_THAT(mp::warp().broadcast(uint32_t{4}), ==, 4u);
}

CASE(a_barrier_orders_what_the_threads_of_a_block_wrote) {
    constexpr unsigned threads = 16;
    std::vector<unsigned> cells(threads);
    std::atomic<unsigned> wrong = 0;
    mp::host::launch(1, threads, [&] {
        for (unsigned round = 1; round <= 100; ++round) {
            cells[mp::thread_rank()] = round;
            mp::block_barrier();
            wrong += cells[(mp::thread_rank() + 5) % threads] != round;
            mp::block_barrier();
        }
    });
    CHECK_THAT(wrong.load(), ==, 0u);
}

CASE(a_vote_tells_all_threads_whether_any_said_yes) {
    std::atomic<unsigned> wrong = 0;
    mp::host::launch(2, 64, [&] {
        for (unsigned round = 0; round < 60; ++round) {
            const bool expected = round % 3 != 0;
            const bool mine = expected && mp::thread_rank() == round;
            wrong += mp::block().any(mine) != expected;
            const bool in_my_warp = expected && mp::thread_rank() / 32 == round / 32;
            wrong += mp::warp().any(mine) != in_my_warp;
        }
    });
    CHECK_THAT(wrong.load(), ==, 0u);
}

CASE(broadcasts_carry_the_leaders_value_one_after_another) {
    struct Pair {
        uint64_t first, second;
    };
    std::atomic<unsigned> wrong = 0;
    mp::host::launch(2, 64, [&] {
        for (uint64_t round = 0; round < 50; ++round) {
            const uint64_t rank = mp::thread_rank();
            const Pair of_block = mp::block().broadcast(Pair{round + rank, mp::block_rank()});
            wrong += of_block.first != round || of_block.second != mp::block_rank();
            wrong += mp::warp().broadcast(Pair{round, rank}).second != rank / 32 * 32;
        }
    });
    CHECK_THAT(wrong.load(), ==, 0u);
}

CASE(threads_that_leave_early_are_not_waited_for) {
    std::atomic<unsigned> stayed = 0;
    mp::host::launch(1, 40, [&] {
        if (mp::thread_rank() % 2 == 1) return;
        mp::block_barrier();
        mp::warp_barrier();
        ++stayed;
    });
    CHECK_THAT(stayed.load(), ==, 20u);
}

CASE(words_of_both_widths_load_store_add_and_exchange) {
    uint32_t narrow = 1;
    uint64_t wide = uint64_t{1} << 40;
    mp::store(&narrow, uint32_t{7}, mp::relaxed, mp::gpu);
    mp::store(&wide, wide + 1, mp::release, mp::system);
    CHECK_THAT(mp::load(&narrow, mp::acquire, mp::gpu), ==, 7u);
    CHECK_THAT(mp::load(&wide, mp::relaxed, mp::system), ==, (uint64_t{1} << 40) + 1);
    mp::add(&narrow, uint32_t{0xffffffff}, mp::release, mp::gpu);
    mp::add(&wide, uint64_t{2}, mp::relaxed, mp::system);
    CHECK_THAT(mp::fetch(&narrow, mp::replace, uint32_t{9}, mp::gpu, mp::relaxed), ==, 6u);
    CHECK_THAT(mp::fetch(&wide, mp::replace, uint64_t{5}, mp::system, mp::relaxed), ==, (uint64_t{1} << 40) + 3);
    CHECK_THAT(narrow, ==, 9u);
    CHECK_THAT(wide, ==, 5u);
}

CASE(fences_around_relaxed_words_order_data) {
    for (int repeat = 0; repeat < 100; ++repeat) {
        uint64_t data = 0;
        uint64_t flag = 0;
        mp::host::launch(2, 1, [&] {
            if (mp::block_rank() == 0) {
                data = 42;
                mp::fence(mp::release, mp::system);
                mp::store(&flag, uint64_t{1}, mp::relaxed, mp::system);
            } else {
                while (mp::load(&flag, mp::relaxed, mp::system) == 0) mp::pause();
                mp::fence(mp::acquire, mp::system);
                CHECK_THAT(data, ==, 42u);
            }
        });
    }
}

CASE(clocks_go_forward) {
    const uint64_t ns = mp::clock_ns();
    const uint64_t cycles = mp::clock_cycles();
    while (mp::clock_ns() - ns < 1'000'000) mp::pause();
    CHECK_THAT(mp::clock_cycles() - cycles, >, 0u);
}

CASE(the_pattern_tells_words_and_seeds_apart) {
    // The same numbers are in gdsync/tests/soft_common/kernels.rs.
    CHECK_THAT(mp::pattern(0, 0), ==, 0xe220a8397b1dcdafu);
    CHECK_THAT(mp::pattern(7, 3), ==, 0x475dc5e216a29efcu);
    std::vector<uint64_t> words;
    for (uint64_t seed = 0; seed < 64; ++seed)
        for (uint64_t i = 0; i < 64; ++i) words.push_back(mp::pattern(seed, i));
    std::sort(words.begin(), words.end());
    CHECK(std::unique(words.begin(), words.end()) == words.end());
}
