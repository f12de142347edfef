// Copies of plain memory and signals in it, by the first thread (`flavour` 0), the first warp (1) or all threads (2) of a block.
#pragma once

#include <mp/mp.cuh>

#include "pattern.cuh"

// Copies `bytes` bytes `rounds` times, each block a part of them, and writes to `stamps` when each block began and ended.
MP_KERNEL void mp_copies(void* to, const void* from, std::uint64_t bytes, std::uint64_t rounds, std::uint32_t flavour,
                         std::uint64_t* stamps) {
    const mp::Part part = {mp::block_rank(), mp::grid_blocks()};
    const std::uint64_t began = mp::clock_ns();
    for (std::uint64_t round = 0; round < rounds; ++round) {
        if (flavour == 0 && mp::thread_rank() == 0) mp::copy(mp::thread(), to, from, bytes, part);
        if (flavour == 1 && mp::thread_rank() < 32) mp::copy(mp::warp(), to, from, bytes, part);
        if (flavour == 2) mp::copy(mp::block(), to, from, bytes, part);
    }
    mp::block_barrier();
    if (mp::thread_rank() != 0) return;
    stamps[2 * part.index] = began;
    stamps[2 * part.index + 1] = mp::clock_ns();
}

namespace test {

// Where the signals of mp_signals are, in words, each in a line of its own: one that is set, one that is added to beside it, the sum
// that answers, three of which one is set in turn. Behind them is what is written before each of these.
constexpr std::uint64_t signal_set = 0, signal_added = 8, signal_answer = 16, signal_turns = 24, signal_data = 48;

// The group of the first block.
template <class Group>
MP_DEVICE mp::WaitStatus raise_signals(Group group, std::uint64_t* words, std::uint64_t count, std::uint64_t round,
                                       const mp::WaitBounds& bounds) {
    std::uint64_t* const data = words + signal_data;
    const auto fill = [&](std::uint64_t part) {
        for (std::uint64_t i = group.rank(); i < count; i += group.size()) data[part * count + i] = mp::pattern(round, part * count + i);
    };
    fill(0);
    mp::signal(group, words + signal_set, round);
    fill(1);
    mp::signal_add(group, words + signal_added, 3);
    fill(2);
    mp::signal(group, words + signal_turns + 8 * (round % 3), round);
    return mp::wait(group, words + signal_answer, 2 * round, bounds).status;
}

// The group of the second block: what is behind each signal is there when the wait for it is over.
template <class Group>
MP_DEVICE mp::WaitStatus hear_signals(Group group, std::uint64_t* words, std::uint64_t count, std::uint64_t round,
                                      const mp::WaitBounds& bounds, std::uint64_t& wrong) {
    const std::uint64_t* const data = words + signal_data;
    const auto look = [&](std::uint64_t part) {
        for (std::uint64_t i = group.rank(); i < count; i += group.size())
            wrong += data[part * count + i] != mp::pattern(round, part * count + i);
    };
    const mp::WaitStatus set = mp::wait(group, words + signal_set, round, bounds).status;
    if (set != mp::ok) return set;
    look(0);
    const std::uint64_t wanted[2] = {round, 3 * round};
    const mp::Words<std::uint64_t> both = {words + signal_set, 2, 0, wanted, mp::signal_stride};
    const mp::WaitStatus all = mp::wait_all(group, both, mp::ge, bounds).status;
    if (all != mp::ok) return all;
    look(1);
    // What the others hold is from rounds before.
    const mp::Words<std::uint64_t> turns = {words + signal_turns, 3, round, nullptr, mp::signal_stride};
    const mp::AnyResult any = mp::wait_any(group, turns, mp::eq, bounds, round + 1);
    if (any.failed()) return any.result.status;
    wrong += any.index != round % 3;
    look(2);
    // Nothing more is raised before the answer: who waits for more gives up.
    const mp::WaitBounds at_once = {0, 0};
    const std::uint64_t more[2] = {round, 3 * round + 1};
    const mp::Words<std::uint64_t> later = {words + signal_set, 2, 0, more, mp::signal_stride};
    wrong += mp::wait(group, words + signal_set, mp::gt, round, at_once).status != mp::timed_out;
    wrong += mp::wait_all(group, later, mp::ge, at_once).status != mp::timed_out;
    const mp::AnyResult none = mp::wait_any(group, turns, mp::gt, at_once);
    wrong += none.result.status != mp::timed_out || none.index != 3;
    mp::signal_add(group, words + signal_answer, 2);
    return mp::ok;
}

template <class Group>
MP_DEVICE void signals(Group group, std::uint64_t* words, std::uint64_t count, std::uint64_t rounds, const mp::WaitBounds& bounds,
                       std::uint64_t* results) {
    std::uint64_t wrong = 0, round = 1;
    mp::WaitStatus status = mp::ok;
    for (; round <= rounds; ++round) {
        status = mp::block_rank() == 0 ? raise_signals(group, words, count, round, bounds)
                                       : hear_signals(group, words, count, round, bounds, wrong);
        if (status != mp::ok) break;
    }
    mp::add(results, wrong, mp::relaxed, mp::system);
    if (!group.leads()) return;
    mp::add(results + 1, round - 1, mp::relaxed, mp::system);
    if (status != mp::ok) mp::add(results + 2, std::uint64_t{1}, mp::relaxed, mp::system);
}

}  // namespace test

// Two blocks, of which one raises signals in every way, `count` words before each, and the other one waits for them in every way and
// answers. `words`: zeros, the signals and three times `count` more. Adds to results: words that were wrong, rounds of both, waits that failed.
MP_KERNEL void mp_signals(std::uint64_t* words, std::uint64_t count, std::uint64_t rounds, mp::WaitBounds bounds, std::uint32_t flavour,
                          std::uint64_t* results) {
    if (flavour == 0 && mp::thread_rank() == 0) test::signals(mp::thread(), words, count, rounds, bounds, results);
    if (flavour == 1 && mp::thread_rank() < 32) test::signals(mp::warp(), words, count, rounds, bounds, results);
    if (flavour == 2) test::signals(mp::block(), words, count, rounds, bounds, results);
}
