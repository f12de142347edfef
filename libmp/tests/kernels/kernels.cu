// Kernels of the tests: messages and windows by threads, warps, blocks and several blocks. On the host by shim.cpp; for a GPU
// compiled by
//   nvcc -std=c++17 -arch=native -fatbin -I kernels/include -o FOLDER/libmp.fatbin libmp/tests/kernels/kernels.cu
// and found in the folder that TEST_KERNELS names.
#include <mp/mp.cuh>

#include "../../../kernels/tests/cuda/cluster.cu"
#include "../../../kernels/tests/cuda/meeting.cu"
#include "../../../kernels/tests/cuda/memory.cu"

namespace test {

// What element `i` of rank `rank` is in a round.
MP_DEVICE std::uint64_t pattern(std::uint64_t rank, std::uint64_t round, std::uint64_t i) {
    return (rank + 1) * 0x9e3779b97f4a7c15u + round * 1000003u + i;
}

template <class Group>
MP_DEVICE void exchange(Group group, const mp::Send& send, const mp::Recv& recv, std::uint64_t me, std::uint64_t peer,
                        std::uint64_t words, std::uint64_t rounds, std::uint64_t first, std::uint64_t* results) {
    auto* out = mp::buffer_of<std::uint64_t>(send);
    auto* here = mp::buffer_of<std::uint64_t>(recv);
    std::uint64_t wrong = 0, round = first;
    for (; round < first + rounds; ++round) {
        for (std::uint64_t i = group.rank(); i < words; i += group.size()) out[i] = pattern(me, round, i);
        mp::post(group, recv);
        const mp::WaitResult sent = mp::send(group, send);
        if (sent.failed()) {
            if (group.leads()) results[2] = sent.status;
            break;
        }
        const mp::WaitResult received = mp::recv(group, recv);
        if (received.failed()) {
            if (group.leads()) results[2] = received.status;
            break;
        }
        for (std::uint64_t i = group.rank(); i < words; i += group.size()) {
            wrong += here[i] != pattern(peer, round, i);
            here[i] = ~std::uint64_t{0};
        }
    }
    mp::add(results, wrong, mp::relaxed, mp::system);
    if (group.leads()) results[1] = round - first;
}

}  // namespace test

// Exchanges messages of `words` words with a peer that does the same, by the thread, the warp or the block that is first.
// results: words that were wrong; rounds done; the status of the wait that failed.
MP_KERNEL void test_exchange(mp::Send send, mp::Recv recv, std::uint64_t me, std::uint64_t peer, std::uint64_t words,
                             std::uint64_t rounds, std::uint64_t first, std::uint32_t flavour, std::uint64_t* results) {
    if (mp::block_rank() != 0) return;
    switch (flavour) {
    case 0:
        if (mp::thread_rank() == 0)
            test::exchange(mp::thread(), send, recv, me, peer, words, rounds, first, results);
        break;
    case 1:
        if (mp::thread_rank() < 32) test::exchange(mp::warp(), send, recv, me, peer, words, rounds, first, results);
        break;
    default: test::exchange(mp::block(), send, recv, me, peer, words, rounds, first, results);
    }
}

// One message each way by all blocks. results[0] counts failures.
MP_KERNEL void test_parts(mp::Send send, mp::Recv recv, std::uint64_t* results) {
    const mp::Part part = {mp::block_rank(), mp::grid_blocks()};
    if (part.index == 0) mp::post(mp::block(), recv);
    bool failed = mp::send(mp::block(), send, part).failed();
    failed = mp::recv(mp::block(), recv, part).failed() || failed;
    if (failed) mp::add(results, std::uint64_t{1}, mp::relaxed, mp::system);
}

// `count` messages one after another, sent or posted and received by one block.
MP_KERNEL void test_messages(mp::Message end, std::uint32_t sends, std::uint64_t count) {
    for (std::uint64_t message = 0; message < count; ++message) {
        if (sends != 0) {
            if (mp::send(mp::block(), mp::Send{end}).failed()) return;
            continue;
        }
        mp::post(mp::block(), mp::Recv{end});
        if (mp::recv(mp::block(), mp::Recv{end}).failed()) return;
    }
}

namespace test {

template <class Group>
MP_DEVICE void windows(Group group, const mp::Window& window, std::uint64_t* elsewhere, std::uint64_t words, std::uint64_t rounds,
                       std::uint32_t atomics, std::uint64_t* results) {
    const std::uint64_t me = window.rank, right = (me + 1) % window.ranks;
    const std::uint64_t left = (me + window.ranks - 1) % window.ranks;
    auto* share = static_cast<std::uint64_t*>(mp::address_in(window, me, 0, 0));
    const std::uint64_t bytes = 8 * words, cells = 3 * bytes;
    std::uint64_t wrong = 0, refused = 0, round = 0;
    // What the table says of the shares, all of them as long as this one, is what the calls find.
    for (std::uint64_t rank = 0; rank < window.ranks; ++rank) {
        const mp::WindowPart* part = mp::part_of(window, rank);
        const auto memory = reinterpret_cast<std::uint64_t>(mp::address_in(window, rank, 0, 0));
        wrong += part->bytes != 8 * (3 * words + 3 + window.ranks + 10) || part->memory == 0;
        wrong += memory != (part->nic == 0 ? part->memory : 0);
    }
    wrong += mp::part_of(window, window.ranks) != nullptr || mp::part_of(window, ~std::uint64_t{0}) != nullptr;
    for (; round < rounds; ++round) {
        // Of odd rounds from memory that no NIC knows.
        std::uint64_t* from = round % 2 == 0 ? share + words : elsewhere;
        for (std::uint64_t i = group.rank(); i < words; i += group.size())
            from[i] = test::pattern(me, round, i);
        if (mp::wait(group, window, 1, round).failed()) break;
        if (round % 3 == 2) {
            // All of the group put a part; one signals.
            group.sync();
            refused += !mp::put(group, window, right, 0, from, bytes);
            refused += !mp::signal(group, window, right, 0, round + 1);
        } else {
            group.sync();
            refused += !mp::put_signal(group, window, right, 0, from, bytes, 0, round + 1);
        }
        if (mp::wait(group, window, 0, round + 1).failed()) break;
        for (std::uint64_t i = group.rank(); i < words; i += group.size())
            wrong += share[i] != test::pattern(left, round, i);
        group.sync();
        refused += !mp::signal(group, window, left, 1, round + 1);
    }
    // Nobody puts any more to what is got into.
    if (!mp::wait(group, window, 1, rounds).failed()) {
        refused += !mp::get(group, window, right, 2 * bytes, share + words, bytes);
        refused += !mp::get(group, window, right, 2 * bytes, elsewhere, bytes);
        refused += mp::flush(group, window, right).failed();
        for (std::uint64_t i = group.rank(); i < words; i += group.size()) {
            wrong += share[words + i] != test::pattern(right, 77, i);
            wrong += elsewhere[i] != test::pattern(right, 77, i);
        }
        // Nor is what was put there still read: one value after another.
        for (std::uint64_t i = group.rank(); i < words; i += group.size())
            refused += !mp::put_value(window, right, 8 * i, test::pattern(me, 99, i));
        refused += mp::quiet(group, window, right).failed();
        for (std::uint64_t i = group.rank(); i < words; i += group.size()) {
            std::uint64_t got = 0;
            refused += !mp::get_value(window, right, 8 * i, got);
            wrong += got != test::pattern(me, 99, i);
        }
    }
    if (atomics != 0) {
        std::uint64_t before = 0;
        refused += !mp::fetch_add(window, right, cells, 1, before);
        wrong += before >= group.size();
        if (group.rank() == 0) {
            refused += !mp::swap(window, right, cells + 8, 42, before);
            wrong += before != 7;
            refused += !mp::compare_swap(window, right, cells + 16, 7, 43, before);
            wrong += before != 7;
            refused += !mp::compare_swap(window, right, cells + 16, 7, 44, before);
            wrong += before != 43;
        }
        // All add to the same word of everybody, the own one too.
        for (int k = 0; k < 8; ++k)
            for (std::uint64_t rank = 0; rank < window.ranks; ++rank)
                refused += !mp::atomic_add(window, rank, cells + 96 + 8 * window.ranks, std::uint64_t{1});
    }
    if (atomics > 1) {
        // Every kind and width, all threads on the same words.
        const std::uint64_t more = cells + 24 + 8 * window.ranks;
        const unsigned thread = group.rank();
        std::uint32_t half = 0;
        double real = 0;
        refused += !mp::fetch_add(window, right, more, 1u, half);
        wrong += half >= group.size();
        refused += !mp::atomic_or(window, right, more + 4, 1u << (thread % 32));
        refused += !mp::atomic_min(window, right, more + 8, -std::int64_t(thread));
        refused += !mp::fetch_add(window, right, more + 16, 0.5, real);
        wrong += real < 0 || real >= 0.5 * group.size();
        refused += !mp::atomic_add(window, right, more + 24, 0.25f);
        refused += !mp::atomic_max(window, right, more + 28, thread, mp::relaxed);
        refused += !mp::atomic_set(window, right, more + 32, std::int32_t(-5));
        // Any word is a signal.
        refused += !mp::signal_add(mp::thread(), window, right, mp::word(more + 40), 2);
        if (mp::wait(mp::thread(), window, mp::word(more + 40), mp::ge, 2 * std::uint64_t{group.size()}).failed()) ++wrong;
        group.sync();
        refused += !mp::put_signal(group, window, right, more + 56, share, 8, mp::word(more + 48), 5 + me);
        wrong += mp::wait(group, window, mp::word(more + 48), mp::eq, 5 + left).failed();
        // What all have added has come when the last part of it is there.
        wrong += mp::wait(mp::thread(), window, mp::word(more), mp::eq, group.size()).failed();
        wrong += mp::wait(mp::thread(), window, mp::word(more + 32), mp::lt, std::int32_t(0)).failed();
        if (group.leads()) {
            // The other kinds, of a word that nobody else changes.
            const std::uint64_t cell = more + 64;
            std::uint64_t held[6] = {};
            refused += !mp::fetch_or(window, right, cell, 0xf0, held[0]);
            refused += !mp::fetch_and(window, right, cell, 0x3c, held[1]);
            refused += !mp::fetch_xor(window, right, cell, 0x11, held[2]);
            refused += !mp::fetch_max(window, right, cell, 0x100, held[3]);
            refused += !mp::fetch_min(window, right, cell, 7, held[4]);
            refused += !mp::atomic_and(window, right, cell, std::uint64_t{3});
            refused += !mp::atomic_xor(window, right, cell, std::uint64_t{1});
            refused += !mp::atomic_fetch(window, right, cell, held[5]);
            constexpr std::uint64_t expected[6] = {0, 0xf0, 0x30, 0x21, 0x100, 2};
            for (int i = 0; i < 6; ++i) wrong += held[i] != expected[i];
        }
    }
    // The sum of what all have added says that all have put, if nobody adds to it for the next time before all have seen that: what
    // somebody who is ahead has added could stand for what somebody else has still to put.
    for (std::uint64_t time = 1; time <= rounds; ++time) {
        group.sync();
        if (group.rank() == 0) elsewhere[0] = time;
        group.sync();
        for (std::uint64_t rank = 0; rank < window.ranks; ++rank)
            refused += !mp::put_signal_add(group, window, rank, cells + 24 + 8 * me, elsewhere, 8, 2, 2);
        refused += !mp::signal_add(group, window, right, 2, 1);
        const std::uint64_t all = time * (2 * window.ranks + 1);
        if (mp::wait(group, window, 2, all).failed()) break;
        wrong += mp::wait_all(group, window, mp::signals_in(window, 2, 1, all), mp::ge).failed();
        wrong += mp::wait_any(group, window, mp::signals_in(window, 0, 3, all), mp::ge, 2).index != 2;
        wrong += mp::signals_in(window, 2, 1, all).word(0) != mp::signal_in(window, me, 2);
        for (std::uint64_t rank = 0; rank < window.ranks; ++rank) wrong += share[3 * words + 3 + rank] != time;
        group.sync();
        for (std::uint64_t rank = 0; rank < window.ranks; ++rank) refused += !mp::signal_add(group, window, rank, 0, 1);
        if (mp::wait(group, window, 0, rounds + time * window.ranks).failed()) break;
    }
    mp::add(results, wrong, mp::relaxed, mp::system);
    mp::add(results + 2, refused, mp::relaxed, mp::system);
    if (group.rank() == 0) results[1] = round;
}

}  // namespace test

// A ring of windows, one thread (`flavour` 0), warp (1) or block (2) a rank: signalled puts to the right, acknowledged to the left; then gets and
// atomics. The share of a rank: `words` that the left puts to, `words` to put from, `words` that stay, three words for atomics, one that each rank
// puts to before it adds to signal 2, nine and one for more atomics. results: what was wrong; rounds done; calls that refused.
MP_KERNEL void test_windows(const __grid_constant__ mp::Window window, std::uint64_t* elsewhere, std::uint64_t words, std::uint64_t rounds,
                            std::uint32_t atomics, std::uint32_t flavour, std::uint64_t* results) {
    if (flavour == 0 && mp::thread_rank() == 0) test::windows(mp::thread(), window, elsewhere, words, rounds, atomics, results);
    if (flavour == 1 && mp::thread_rank() < 32) test::windows(mp::warp(), window, elsewhere, words, rounds, atomics, results);
    if (flavour == 2) test::windows(mp::block(), window, elsewhere, words, rounds, atomics, results);
}

// One put by the block, of memory that no NIC knows, and nothing behind it. results[0] counts refusals.
MP_KERNEL void test_put(const __grid_constant__ mp::Window window, std::uint64_t rank, const std::uint64_t* from, std::uint64_t bytes,
                        std::uint64_t* results) {
    if (!mp::put(mp::block(), window, rank, 0, from, bytes)) mp::add(results, std::uint64_t{1}, mp::relaxed, mp::system);
}

// `count` puts of `bytes` bytes by each block, from its part of the first half of the own share to that of the second half of the
// rank's, and quiet behind them. stamps: when each block began and ended; results[0] counts failures.
MP_KERNEL void test_put_rate(const __grid_constant__ mp::Window window, std::uint64_t rank, std::uint64_t bytes, std::uint64_t count, std::uint64_t* stamps,
                             std::uint64_t* results) {
    const mp::Block block = mp::block();
    const std::uint64_t at = mp::block_rank() * bytes, half = mp::grid_blocks() * bytes;
    const void* from = mp::address_in(window, window.rank, at, bytes);
    std::uint64_t failed = 0;
    if (block.leads()) stamps[2 * mp::block_rank()] = mp::clock_ns();
    for (std::uint64_t put = 0; put < count; ++put) failed += !mp::put(block, window, rank, half + at, from, bytes);
    failed += mp::quiet(block, window, rank).failed();
    if (block.leads()) stamps[2 * mp::block_rank() + 1] = mp::clock_ns();
    mp::add(results, failed, mp::relaxed, mp::system);
}

// Blocks that put to all ranks, each by itself, and a barrier by the first one, which all wait for: what everybody put is there then.
// The share of a rank: `words` for each block of each rank, a word for atomics, then as many as a block puts. `mine`: words that
// a block puts from in every second round, and of which all threads write down what they drew from the atomic word of rank 0;
// the blocks meet by `signals`, and have a thread for each at least. results: what was wrong; rounds done; calls that were refused or failed.
MP_KERNEL void test_contexts(const __grid_constant__ mp::Collective barrier, const __grid_constant__ mp::Window window, std::uint64_t* mine,
                             const mp::BlockSignals signals, std::uint64_t words, std::uint64_t rounds, std::uint64_t* results) {
    const mp::Block block = mp::block();
    mp::Meetings meetings(signals, mp::grid_blocks(), [](std::uint32_t other) { return other; });
    const std::uint64_t me = window.rank, blocks = mp::grid_blocks(), own = mp::block_rank();
    const std::uint64_t cell = window.ranks * blocks * words;
    auto* share = static_cast<std::uint64_t*>(mp::address_in(window, me, 0, 0));
    std::uint64_t wrong = 0, failed = 0, round = 0;
    for (; round < rounds; ++round) {
        std::uint64_t* from = round % 2 == 0 ? share + cell + 1 + own * words : mine + own * words;
        for (std::uint64_t i = block.rank(); i < words; i += block.size()) from[i] = test::pattern(me * blocks + own, round, i);
        block.sync();
        for (std::uint64_t rank = 0; rank < window.ranks; ++rank)
            failed += !mp::put(block, window, rank, 8 * (me * blocks + own) * words, from, 8 * words);
        if (!meetings.meet()) break;
        if (own == 0) failed += mp::barrier(block, barrier).failed();
        if (!meetings.meet()) break;
        for (std::uint64_t i = block.rank(); i < words; i += block.size())
            for (std::uint64_t other = own; other < window.ranks * blocks; other += blocks)
                wrong += share[other * words + i] != test::pattern(other, round, i);
        // Nobody puts again before all have looked; the ordered barrier has been behind the reads from `from`, too.
        if (!meetings.meet()) break;
        if (own == 0) failed += mp::barrier(block, barrier).failed();
        if (!meetings.meet()) break;
    }
    failed += mp::quiet(block, window).failed();
    std::uint64_t drawn = 0;
    failed += !mp::fetch_add(window, 0, 8 * cell, 1, drawn);
    mine[own * block.size() + block.rank()] = drawn;
    mp::add(results, wrong, mp::relaxed, mp::system);
    mp::add(results + 2, failed, mp::relaxed, mp::system);
    if (own == 0 && block.leads()) results[1] = round;
}

namespace test {

template <class Group>
MP_DEVICE void prepared(Group group, const mp::Put& put, const mp::SignalWait& arrived, const mp::Put& take, const mp::SignalWait& taken,
                        const mp::Get& get, std::uint64_t* out, const std::uint64_t* share, const std::uint64_t* back, std::uint64_t me,
                        std::uint64_t words, std::uint64_t rounds, std::uint64_t* results) {
    std::uint64_t wrong = 0, round = 0;
    mp::WaitResult result = {mp::ok, 0, 0};
    for (; round < rounds; ++round) {
        for (std::uint64_t i = group.rank(); i < words; i += group.size()) out[i] = test::pattern(me, round, i);
        result = mp::put(group, put);
        if (result.failed()) break;
        result = mp::wait(group, arrived);
        if (result.failed()) break;
        result = mp::get(group, get);
        if (result.failed()) break;
        group.sync();
        for (std::uint64_t i = group.rank(); i < words; i += group.size()) {
            wrong += share[i] != test::pattern(1 - me, round, i);
            wrong += back[i] != test::pattern(me, round, i);
        }
        result = mp::put(group, take);
        if (result.failed()) break;
        result = mp::wait(group, taken);
        if (result.failed()) break;
    }
    mp::add(results, wrong, mp::relaxed, mp::system);
    if (!group.leads()) return;
    results[1] = round;
    results[2] = result.status;
}

}  // namespace test

// Prepared puts, gets and waits between two ranks, by a thread (`flavour` 0), a warp (1) or a block (2): what each puts to the other it
// gets back from there. results: words that were wrong; rounds done; the status of the call that failed.
MP_KERNEL void test_prepared(mp::Put put, mp::SignalWait arrived, mp::Put take, mp::SignalWait taken, mp::Get get,
                             std::uint64_t* out, const std::uint64_t* share, const std::uint64_t* back, std::uint64_t me,
                             std::uint64_t words, std::uint64_t rounds, std::uint32_t flavour, std::uint64_t* results) {
    if (flavour == 0 && mp::thread_rank() == 0)
        test::prepared(mp::thread(), put, arrived, take, taken, get, out, share, back, me, words, rounds, results);
    if (flavour == 1 && mp::thread_rank() < 32)
        test::prepared(mp::warp(), put, arrived, take, taken, get, out, share, back, me, words, rounds, results);
    if (flavour == 2) test::prepared(mp::block(), put, arrived, take, taken, get, out, share, back, me, words, rounds, results);
}

// A call that is refused, whatever the path, by a block. results: the status of a wait; calls that were not refused.
MP_KERNEL void test_refusals(const __grid_constant__ mp::Window window, std::uint64_t bytes, std::uint32_t which, std::uint64_t* results) {
    const mp::Block block = mp::block();
    const std::uint64_t other = window.ranks - 1 - window.rank;
    std::uint64_t word = 0;
    bool done = false;
    switch (which) {
    case 0: done = mp::put(block, window, other, bytes - 8, &word, 16); break;
    case 1: done = mp::get(block, window, window.ranks, 0, &word, 8); break;
    case 2: done = mp::signal(block, window, other, window.signals, 1); break;
    case 3: done = mp::put_signal(block, window, other, 0, &word, 8, window.signals + 4, 1); break;
    case 4: done = mp::fetch_add(window, other, 4, 1, word); break;
    default: {
        const mp::WaitResult result = mp::wait(block, window, window.signals, 0);
        done = !result.failed();
        if (block.leads()) results[0] = result.status;
    }
    }
    mp::add(results + 1, std::uint64_t{done}, mp::relaxed, mp::system);
}

// Arithmetic of every thread, and nothing in memory but a word of each at its end.
MP_KERNEL void test_on_chip(std::uint64_t rounds, std::uint64_t* words) {
    std::uint64_t value = mp::thread_rank();
    for (std::uint64_t round = 0; round < rounds; ++round) value = (value ^ value >> 31) * 0x9e3779b97f4a7c15u + round;
    words[std::uint64_t{mp::block_rank()} * mp::block_threads() + mp::thread_rank()] = value;
}

#include "collectives.cu"
