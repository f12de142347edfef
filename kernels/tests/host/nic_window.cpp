// Windows of ranks behind NICs, several queues to each, against the NIC of nic.hpp: what is posted is waited for by flush and quiet
// only, results come by slots of their own, and blocks have queues of their own. Under ThreadSanitizer, too.
#include <algorithm>
#include <deque>
#include <memory>
#include <mp/host/launch.hpp>
#include <mp/mp.cuh>
#include <thread>
#include <vector>

#include "check.hpp"
#include "nic.hpp"

using std::uint32_t;
using std::uint64_t;

namespace {

constexpr uint64_t minute_ns = 60'000'000'000, moment_ns = 30'000'000;

// A rank behind NICs: its memory, its signals, and the queues to it.
struct Rank {
    std::vector<uint64_t> memory, signals;
    std::vector<std::vector<uint64_t>> replies;
    std::vector<std::vector<uint32_t>> taken;
    std::vector<mp::Context> contexts;
    mp::NicPart part{};
    // Ended first: what nobody has waited for they execute, or write the replies of, until then.
    std::deque<Nic> nics;

    Rank(size_t words, unsigned queues, uint32_t blocks) : memory(words), signals(8 * 8) {
        for (unsigned k = 0; k < queues; ++k) {
            mp::Context context{};
            context.queue = nics.emplace_back(blocks).view();
            context.replies = address(replies.emplace_back(blocks * mp::reply_bytes / 8 + 1).data());
            context.taken = address(taken.emplace_back(blocks).data());
            contexts.push_back(context);
        }
        part.queue = address(contexts.data());
        part.contexts = queues;
        part.atomics = 1;
    }
};

// A window of rank 0, whose own share is mapped, as that of the last rank is; the ranks between are behind NICs.
struct World {
    std::vector<uint64_t> own, near;
    std::vector<uint64_t> own_signals = std::vector<uint64_t>(8 * 8), near_signals = std::vector<uint64_t>(8 * 8);
    std::deque<Rank> far;
    std::vector<mp::WindowPart> parts;
    mp::WaitReport report{};
    uint64_t abort = 0;

    World(size_t words, unsigned ranks, unsigned queues, uint32_t blocks) : own(words), near(words) {
        parts.push_back(mapped(address(own.data()), 8 * words, address(own_signals.data())));
        for (unsigned k = 0; k < ranks; ++k) {
            Rank& rank = far.emplace_back(words, queues, blocks);
            rank.part.own = address(own.data());
            rank.part.own_bytes = 8 * words;
            parts.push_back(behind(rank.part, address(rank.memory.data()), 8 * words, address(rank.signals.data())));
        }
        parts.push_back(mapped(address(near.data()), 8 * words, address(near_signals.data())));
    }

    mp::Window window(uint64_t timeout_ns = minute_ns) {
        mp::Window window = window_of(parts);
        window.signals = 8;
        window.abort = address(&abort);
        window.timeout_ns = timeout_ns;
        window.report = address(&report);
        return window;
    }

    mp::WaitStatus reported() {
        const auto status = mp::WaitStatus(report.status);
        report = {};
        return status;
    }
};

uint64_t word(uint64_t seed, uint64_t i) { return (seed + 1) * 0x9e3779b97f4a7c15 + i; }

bool is(const std::vector<uint64_t>& memory, size_t at, const std::vector<uint64_t>& what) {
    return std::equal(what.begin(), what.end(), memory.begin() + ptrdiff_t(at));
}

}  // namespace

CASE(values_go_through_a_nic_like_any_bytes) {
    World world(1024, 1, 2, 64);
    double got = 0;
    CHECK(mp::put_value(world.window(), 1, 8 * 600, 2.5) && mp::put_value(world.window(), 1, 8 * 601 + 3, std::uint8_t{7}));
    CHECK(!mp::quiet(mp::thread(), world.window(), 1).failed());
    CHECK(world.far[0].memory[600] == 0x4004000000000000 && world.far[0].memory[601] == uint64_t{7} << 24);
    CHECK(mp::get_value(world.window(), 1, 8 * 600, got) && got == 2.5);
    CHECK(!mp::put_value(world.window(), 1, 8 * 1024, 2.5) && world.reported() == mp::out_of_range);
    CHECK(mp::part_of(world.window(), 1) == &world.parts[1] && mp::part_of(world.window(), 3) == nullptr);
}

CASE(a_put_returns_before_it_is_executed_and_flush_and_quiet_wait_for_it) {
    World world(1024, 1, 2, 64);
    const mp::Thread one = mp::thread();
    Rank& rank = world.far[0];
    for (auto& nic : rank.nics) nic.paused = true;
    for (uint64_t i = 0; i < 512; ++i) world.own[i] = word(1, i);
    uint64_t few = 17;
    CHECK(mp::put(one, world.window(), 1, 8 * 600, &few, 8));
    few = 18;
    // The word has left; that it has arrived is another matter.
    CHECK(!mp::flush(one, world.window(), 1).failed());
    CHECK(mp::quiet(one, world.window(moment_ns), 1).status == mp::timed_out);
    CHECK(world.reported() == mp::timed_out);
    CHECK(mp::put(one, world.window(), 1, 0, world.own.data(), 4096));
    CHECK(mp::flush(one, world.window(moment_ns)).status == mp::timed_out);
    CHECK(world.reported() == mp::timed_out);
    world.abort = 1;
    CHECK(mp::flush(one, world.window(), 1).status == mp::aborted);
    CHECK(world.reported() == mp::aborted);
    world.abort = 0;
    CHECK_THAT(rank.memory[0], ==, 0u);
    std::jthread later([&rank] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        for (auto& nic : rank.nics) nic.paused = false;
    });
    CHECK(!mp::flush(one, world.window(), 1).failed());
    world.own[0] = 0;
    CHECK(!mp::quiet(one, world.window()).failed());
    CHECK(rank.memory[0] == word(1, 0) && rank.memory[511] == word(1, 511) && rank.memory[600] == 17);
    // Nothing is under way any more: no time at all is enough.
    CHECK(!mp::quiet(one, world.window(0)).failed() && !mp::flush(one, world.window(0), 1).failed());
    CHECK(mp::flush(one, world.window(), 3).status == mp::no_such_rank && world.reported() == mp::no_such_rank);
    CHECK(mp::quiet(one, world.window(), 3).status == mp::no_such_rank && world.reported() == mp::no_such_rank);
}

CASE(atomics_on_a_mapped_share_that_a_nic_changes_go_by_the_nic) {
    const mp::Thread one = mp::thread();
    // The first rank is in the handle, the last in the table alone.
    for (const uint64_t rank : {uint64_t{0}, uint64_t{mp::near_ranks + 1}}) {
        World world(64, mp::near_ranks, 1, 64);
        Rank self(64, 1, 64);
        mp::WindowPart& share = world.parts[rank];
        share.atomic_nic = address(&self.part);
        share.atomic_bytes = 0;
        const auto& memory = rank == 0 ? world.own : world.near;
        const auto& signals = rank == 0 ? world.own_signals : world.near_signals;
        self.nics[0].paused = true;
        // Not loads and stores.
        uint64_t before = 0;
        CHECK(mp::signal(one, world.window(), rank, 0, 5) && mp::put_value(world.window(), rank, 24, uint64_t{9}));
        CHECK(signals[0] == 5 && memory[3] == 9);
        CHECK(mp::atomic_fetch(world.window(), rank, 24, before) && before == 9);
        CHECK(!mp::quiet(one, world.window(0), rank).failed());
        CHECK(mp::signal_add(one, world.window(), rank, 1, 2) && mp::put_signal_add(one, world.window(), rank, 8, &before, 8, 1, 1));
        CHECK(signals[8] == 0 && memory[1] == 9);
        CHECK(mp::quiet(one, world.window(moment_ns), rank).status == mp::timed_out && world.reported() == mp::timed_out);
        self.nics[0].paused = false;
        CHECK(!mp::quiet(one, world.window()).failed());
        CHECK_THAT(signals[8], ==, 3u);
        CHECK(mp::fetch_add(world.window(), rank, 24, 3, before) && before == 9);
        CHECK(mp::compare_swap(world.window(), rank, 24, 12, 20, before) && before == 12);
        CHECK(mp::atomic_or(world.window(), rank, 28, 6u) && mp::signal_add(one, world.window(), rank, mp::word(24), 1));
        CHECK(!mp::quiet(one, world.window(), rank).failed());
        CHECK_THAT(memory[3], ==, uint64_t{6} << 32 | 21);
        // Of a GPU's own memory only the signals are changed by a NIC.
        share.atomic_bytes = share.bytes;
        self.nics[0].paused = true;
        CHECK(mp::fetch_add(world.window(), rank, 0, 4, before) && memory[0] == 4);
        CHECK(mp::signal_add(one, world.window(), rank, mp::word(0), 4) && memory[0] == 8);
        CHECK(mp::signal_add(one, world.window(), rank, 1, 1) && signals[8] == 3);
        self.nics[0].paused = false;
        CHECK(!mp::quiet(one, world.window(), rank).failed() && signals[8] == 4);
        // Where no NIC leads there.
        const mp::NicPart none{};
        share.atomic_nic = address(&none);
        share.atomic_bytes = 0;
        CHECK(!mp::signal_add(one, world.window(), rank, 1, 1) && world.reported() == mp::not_atomic);
        CHECK(!mp::fetch_add(world.window(), rank, 0, 4, before) && world.reported() == mp::not_atomic);
        CHECK(!mp::quiet(one, world.window(), rank).failed() && signals[8] == 4 && memory[0] == 8);
    }
}

CASE(the_last_entry_of_several_blocks_is_waited_for_like_any) {
    World world(64, 1, 1, 64);
    uint64_t elsewhere[50];
    for (uint64_t round = 0; round < 20; ++round) {
        for (uint64_t i = 0; i < 50; ++i) elsewhere[i] = word(round, i);
        CHECK(mp::put(mp::thread(), world.window(), 1, 8, elsewhere, sizeof elsewhere));
        CHECK(!mp::quiet(mp::thread(), world.window(), 1).failed());
        CHECK(world.far[0].memory[1] == word(round, 0) && world.far[0].memory[50] == word(round, 49));
    }
}

CASE(blocks_put_to_ranks_at_once_and_quiet_means_all_of_it) {
    for (unsigned queues : {1u, 2u, 3u}) {
        // Two blocks, two ranks; many more puts than a queue has room for, of all kinds.
        World world(8192, 2, queues, 64);
        std::vector<uint64_t> wrong(4);
        const auto kernel = [&](mp::Window window) {
            const mp::Block block = mp::block();
            const uint64_t me = mp::block_rank(), base = 2048 * me;
            std::vector<uint64_t>& own = world.own;
            static uint64_t elsewhere[2][100];
            for (uint64_t round = 0; round < 12; ++round) {
                const uint64_t rank = 1 + (round + me) % 2, at = base + 128 * round;
                uint64_t* from = round % 3 == 0 ? elsewhere[me] : &own[at];
                for (uint64_t i = block.rank(); i < 100; i += block.size()) from[i] = word(me, 100 * round + i);
                const uint64_t words = round % 3 == 1 ? 30 : 100;
                if (!mp::put(block, window, rank, 8 * at, from, 8 * words)) wrong[me] += 1;
                // It is written again in three rounds.
                block.sync();
            }
            if (mp::quiet(block, window).failed()) wrong[me] += 100;
            for (uint64_t round = 0; round < 12; ++round) {
                const std::vector<uint64_t>& there = world.far[(round + me) % 2].memory;
                const uint64_t words = round % 3 == 1 ? 30 : 100;
                for (uint64_t i = 0; i < words; ++i)
                    if (block.leads() && there[base + 128 * round + i] != word(me, 100 * round + i)) wrong[me] += 10000;
            }
        };
        mp::host::launch(2, 3, kernel, world.window());
        CHECK(wrong == std::vector<uint64_t>(4));
        CHECK(world.reported() == mp::ok);
        uint64_t rings = 0;
        for (Nic& nic : world.far[0].nics) rings += nic.state[0].rings > 0;
        CHECK_THAT(rings, ==, std::min(queues, 2u));
    }
}

CASE(a_peer_that_fails_ends_flush_and_quiet_with_path_failed) {
    World world(1024, 2, 2, 64);
    world.far[0].nics[0].fails_at = 2;
    const mp::Thread one = mp::thread();
    for (int k = 0; k < 2; ++k) CHECK(mp::put(one, world.window(), 1, 0, world.own.data(), 2048));
    CHECK(!mp::quiet(one, world.window(), 1).failed());
    CHECK(mp::put(one, world.window(), 1, 0, world.own.data(), 2048));
    CHECK(mp::put(one, world.window(), 2, 0, world.own.data(), 2048));
    CHECK(mp::flush(one, world.window(), 1).status == mp::path_failed && world.reported() == mp::path_failed);
    CHECK(mp::quiet(one, world.window(), 1).status == mp::path_failed && world.reported() == mp::path_failed);
    // The other rank is well; all ranks are not.
    CHECK(!mp::quiet(one, world.window(), 2).failed());
    std::vector<mp::WaitStatus> seen(33, mp::ok);
    const auto kernel = [&](mp::Window window) { seen[mp::thread_rank()] = mp::quiet(mp::block(), window).status; };
    mp::host::launch(1, 33, kernel, world.window());
    for (const mp::WaitStatus status : seen) CHECK(status == mp::path_failed);
    uint64_t before = 0;
    CHECK(!mp::fetch_add(world.window(), 1, 0, 1, before));
    CHECK(!mp::get(one, world.window(), 1, 0, &before, 8));
}

CASE(atomics_of_many_threads_at_once_have_results_of_their_own) {
    for (unsigned queues : {1u, 2u}) {
        // Fewer blocks than threads: slots are used again and again.
        World world(2 + 64, 1, queues, 32);
        constexpr unsigned threads = 32, each = 6;
        std::vector<uint64_t> drawn(2 * threads * each);
        std::atomic<unsigned> refused = 0;
        const auto kernel = [&](mp::Window window) {
            const unsigned thread = mp::block_rank() * threads + mp::thread_rank();
            for (unsigned k = 0; k < each; ++k) {
                refused += !mp::fetch_add(window, 1, 8, 1, drawn[thread * each + k]);
                // A word of the thread's own, which holds how often it was there.
                uint64_t before = 0;
                refused += !mp::compare_swap(window, 1, 8 * (2 + thread), k, k + 1, before);
                refused += before != k;
            }
        };
        mp::host::launch(2, threads, kernel, world.window());
        std::sort(drawn.begin(), drawn.end());
        for (uint64_t k = 0; k < drawn.size(); ++k) CHECK_THAT(drawn[k], ==, k);
        CHECK_THAT(refused.load(), ==, 0u);
        CHECK_THAT(world.far[0].memory[1], ==, drawn.size());
        for (unsigned k = 0; k < 2 * threads; ++k) CHECK_THAT(world.far[0].memory[2 + k], ==, each);
    }
}

CASE(gets_bring_what_is_there_to_any_memory_at_once) {
    World world(4096, 2, 2, 64);
    for (Rank& rank : world.far)
        for (uint64_t i = 0; i < 4096; ++i) rank.memory[i] = word(uint64_t(&rank - &world.far[0]), i);
    std::atomic<unsigned> wrong = 0;
    const auto kernel = [&](mp::Window window) {
        // Every thread for itself, to memory that no NIC knows, in lengths of less and more than a slot, and than all slots.
        const uint64_t me = mp::block_rank() * 8 + mp::thread_rank();
        for (const uint64_t bytes : {8u, 63u, 64u, 200u, 1024u, 5000u}) {
            std::vector<unsigned char> here(bytes + 1, 0xee);
            const uint64_t rank = 1 + me % 2, at = 16 * me + 3;
            wrong += !mp::get(mp::thread(), window, rank, at, here.data(), bytes);
            wrong += mp::flush(mp::thread(), window, rank).failed();
            wrong += std::memcmp(here.data(), reinterpret_cast<unsigned char*>(world.far[rank - 1].memory.data()) + at, bytes) != 0;
            wrong += here[bytes] != 0xee;
        }
        // All together, into the own share.
        mp::block().sync();
        const uint64_t block = mp::block_rank(), at = 1000 * block;
        wrong += !mp::get(mp::block(), window, 1, 8 * at, &world.own[at], 8000);
        wrong += mp::flush(mp::block(), window, 1).failed();
        for (uint64_t i = 0; i < 1000; ++i) wrong += world.own[at + i] != word(0, at + i);
    };
    mp::host::launch(2, 8, kernel, world.window());
    CHECK_THAT(wrong.load(), ==, 0u);
    for (const Rank& rank : world.far)
        for (const auto& taken : rank.taken) CHECK(std::count(taken.begin(), taken.end(), 0u) == ptrdiff_t(taken.size()));
}

CASE(strided_puts_and_gets_reach_every_row_and_nothing_between) {
    std::atomic<unsigned> wrong = 0;
    const auto check = [&](bool holds) { wrong += !holds; };
    for (const uint64_t bytes : {4u, 8u, 24u, 56u, 600u, 2000u}) {
        const uint64_t rows = bytes > 100 ? 5 : 70, step = (bytes + 24) / 8 * 8;
        for (const uint64_t target : {1u, 2u}) {
            for (const bool own : {true, false}) {
                World world(2048, 1, 2, 64);
                std::vector<unsigned char> elsewhere(rows * (bytes + 4) + 8), back(elsewhere.size(), 0xaa);
                auto* share = reinterpret_cast<unsigned char*>(world.own.data());
                unsigned char* from = own ? share : elsewhere.data();
                const uint64_t near = own ? step : bytes + 4;
                for (uint64_t row = 0; row < rows; ++row)
                    for (uint64_t i = 0; i < bytes; ++i) from[row * near + i] = static_cast<unsigned char>(1 + (7 * row + i) % 250);
                std::vector<uint64_t>& memory = target == 1 ? world.far[0].memory : world.near;
                auto* there = reinterpret_cast<unsigned char*>(memory.data());
                unsigned char* into = own ? share + rows * near + 8 : back.data();
                const mp::Rows all = {bytes, rows, step, near};
                const auto kernel = [&](mp::Window window) {
                    const mp::Block block = mp::block();
                    const mp::Part part = {mp::block_rank(), mp::grid_blocks()};
                    check(mp::put(block, window, target, 8, from, all, part));
                    check(!mp::quiet(block, window, target).failed());
                };
                mp::host::launch(2, 3, kernel, world.window());
                for (uint64_t i = 0; i < step * rows; ++i) {
                    const uint64_t row = i / step, column = i % step;
                    check(there[8 + i] == (column < bytes ? from[row * near + column] : 0));
                }
                if (own && rows * near + 8 + rows * near > 8 * world.own.size()) continue;
                const auto fetch = [&](mp::Window window) {
                    check(mp::get(mp::block(), window, target, 8, into, all, {mp::block_rank(), mp::grid_blocks()}));
                    check(!mp::flush(mp::block(), window, target).failed());
                };
                mp::host::launch(2, 3, fetch, world.window());
                for (uint64_t row = 0; row < rows; ++row) {
                    check(std::memcmp(into + row * near, from + row * near, bytes) == 0);
                    if (!own) check(into[row * near + bytes] == 0xaa);
                }
            }
        }
    }
    CHECK_THAT(wrong.load(), ==, 0u);
}

CASE(rows_that_do_not_all_lie_in_a_share_are_refused) {
    World world(16, 1, 1, 64);
    uint64_t words[64] = {};
    for (const uint64_t rank : {1u, 2u}) {
        const auto put = [&](mp::Rows rows, uint64_t at) {
            return mp::put(mp::thread(), world.window(), rank, at, words, rows);
        };
        const auto get = [&](mp::Rows rows, uint64_t at) {
            return mp::get(mp::thread(), world.window(), rank, at, words, rows);
        };
        CHECK(put({8, 4, 40, 8}, 0) && get({8, 4, 40, 8}, 0) && world.reported() == mp::ok);
        CHECK(!put({8, 4, 40, 8}, 8) && world.reported() == mp::out_of_range);
        CHECK(!get({8, 5, 40, 8}, 0) && world.reported() == mp::out_of_range);
        CHECK(!put({8, ~uint64_t{0}, 8, 8}, 0) && world.reported() == mp::out_of_range);
        CHECK(!put({8, 3, ~uint64_t{0} / 2 + 1, 8}, 0) && world.reported() == mp::out_of_range);
        CHECK(!get({~uint64_t{0}, 2, 8, 8}, 8) && world.reported() == mp::out_of_range);
        CHECK(put({8, 0, 40, 8}, 128) && put({0, 5, 40, 8}, 0) && world.reported() == mp::ok);
        CHECK(!put({8, 0, 40, 8}, 129) && world.reported() == mp::out_of_range);
        CHECK(!mp::quiet(mp::thread(), world.window(), rank).failed());
    }
}

CASE(a_signal_of_parts_comes_behind_all_of_them_though_blocks_have_queues_of_their_own) {
    constexpr unsigned blocks = 4;
    for (const uint64_t signal : {0u, 1u, 3u}) {
        World world(4096, 1, 2, 64);
        Rank& rank = world.far[0];
        // Were a part to go by the other queue, it would never come.
        rank.nics[(signal + 1) % 2].paused = true;
        for (uint64_t i = 0; i < 4096; ++i) world.own[i] = word(5, i);
        uint64_t arrived = 0;
        std::atomic<unsigned> wrong = 0;
        const auto kernel = [&](mp::Window window) {
            const mp::Part part = {mp::block_rank(), mp::grid_blocks()};
            wrong += !mp::put_signal(mp::block(), window, 1, 0, world.own.data(), 8 * 4096, signal, 7, part, &arrived);
        };
        mp::host::launch(blocks, 2, kernel, world.window());
        const auto* raised = &rank.signals[signal * mp::signal_stride / 8];
        CHECK(!mp::wait(mp::thread(), raised, 7, {.abort = 0, .timeout_ns = minute_ns}).failed());
        CHECK(is(rank.memory, 0, world.own));
        CHECK_THAT(wrong.load(), ==, 0u);
    }
}

CASE(a_put_and_a_signal_of_a_block_are_in_order_and_sums_say_that_all_blocks_have_put) {
    constexpr unsigned blocks = 4, rounds = 25;
    World world(blocks * 128, 1, 3, 64);
    Rank& rank = world.far[0];
    std::atomic<unsigned> wrong = 0;
    const auto kernel = [&](mp::Window window) {
        const mp::Block block = mp::block();
        const uint64_t me = mp::block_rank(), base = 128 * me;
        for (uint64_t round = 1; round <= rounds; ++round) {
            for (uint64_t i = block.rank(); i < 128; i += block.size()) world.own[base + i] = word(round, base + i);
            wrong += !mp::put(block, window, 1, 8 * base, &world.own[base], 1024);
            if (round % 2 == 0)
                wrong += !mp::signal_add(block, window, 1, 1 + me, 2);
            else
                wrong += !mp::signal_add(block, window, 1, 1 + me, 2) || !mp::put_signal_add(block, window, 1, 0, nullptr, 0, 7, 1);
            wrong += mp::flush(block, window, 1).failed();
        }
    };
    std::jthread reader([&] {
        for (uint64_t me = 0; me < blocks; ++me) {
            const auto* raised = &rank.signals[(1 + me) * mp::signal_stride / 8];
            wrong += mp::wait(mp::thread(), raised, 2 * rounds, {.abort = 0, .timeout_ns = minute_ns}).failed();
            for (uint64_t i = 0; i < 128; ++i) wrong += rank.memory[128 * me + i] != word(rounds, 128 * me + i);
        }
    });
    mp::host::launch(blocks, 2, kernel, world.window());
    reader.join();
    CHECK_THAT(wrong.load(), ==, 0u);
}
