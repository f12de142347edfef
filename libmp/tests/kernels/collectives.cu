// Collectives inside kernels, for the tests collectives and collective_kinds; part of kernels.cu.
#pragma once

#include <mp/mp.cuh>

namespace test {

// What element `i` of rank `rank` is in a round: sums of it depend on their order.
MP_DEVICE double fraction(std::uint64_t rank, std::uint64_t round, std::uint64_t i) {
    return 1.0 / double(1 + 7 * rank + 3 * round + i);
}

// Fills `values`, reduces them, and counts those that are not what combining in rank order gives.
template <class Group, class T, class Operation, class Value>
MP_DEVICE mp::WaitResult reduce(Group group, const mp::Collective& collective, T* values, std::uint64_t count, std::uint64_t ranks,
                                std::uint64_t me, Operation operation, const Value& value, std::uint64_t& wrong) {
    for (std::uint64_t i = group.rank(); i < count; i += group.size()) values[i] = value(me, i);
    const mp::WaitResult result = mp::all_reduce(group, collective, values, count, operation);
    for (std::uint64_t i = group.rank(); i < count && !result.failed(); i += group.size()) {
        T expected = value(0, i);
        for (std::uint64_t rank = 1; rank < ranks; ++rank) expected = operation(expected, value(rank, i));
        wrong += values[i] != expected;
    }
    return result;
}

// Rounds of puts to the right behind which a barrier stands, and of sums, maxima and minima. `scratch`: `count` words and one.
template <class Group>
MP_DEVICE void collectives(Group group, const mp::Collective& barrier, const mp::Collective& reduces, const mp::Window& window,
                           std::uint64_t* scratch, std::uint64_t count, std::uint64_t rounds, std::uint64_t* results) {
    const std::uint64_t me = window.rank, ranks = window.ranks, right = (me + 1) % ranks;
    std::uint64_t wrong = 0, round = 0;
    mp::WaitResult result = {mp::ok, 0, 0};
    for (; round < rounds; ++round) {
        if (group.leads()) scratch[count] = 1000 * round + me;
        group.sync();
        wrong += !mp::put(group, window, right, 0, scratch + count, 8);
        result = mp::barrier(group, barrier);
        if (result.failed()) break;
        // Whoever put it where: it is there, however a third rank looks.
        for (std::uint64_t rank = 0; rank < ranks; ++rank) {
            wrong += !mp::get(group, window, rank, 0, scratch + count, 8);
            wrong += mp::flush(group, window, rank).failed();
            wrong += scratch[count] != 1000 * round + (rank + ranks - 1) % ranks;
            group.sync();
        }
        auto* numbers = reinterpret_cast<double*>(scratch);
        const auto part = [round](std::uint64_t rank, std::uint64_t i) { return fraction(rank, round, i); };
        result = reduce(group, reduces, numbers, count, ranks, me, mp::sum_t{}, part, wrong);
        if (result.failed()) break;
        const auto whole = [round](std::uint64_t rank, std::uint64_t i) { return (rank * 5 + round + i) % 11; };
        result = reduce(group, reduces, scratch, count, ranks, me, mp::max_t{}, whole, wrong);
        if (result.failed()) break;
        // Fewer than it was prepared for.
        result = reduce(group, reduces, scratch, count / 2, ranks, me, mp::min_t{}, whole, wrong);
        if (result.failed()) break;
        result = mp::barrier(group, barrier, mp::sync_only);
        if (result.failed()) break;
    }
    mp::add(results, wrong, mp::relaxed, mp::system);
    if (!group.leads()) return;
    results[1] = round;
    results[2] = result.status;
}

MP_DEVICE void collectives_by(std::uint32_t flavour, const mp::Collective& barrier, const mp::Collective& reduces, const mp::Window& window,
                              std::uint64_t* scratch, std::uint64_t count, std::uint64_t rounds, std::uint64_t* results) {
    if (mp::block_rank() != 0) return;
    if (flavour == 0 && mp::thread_rank() == 0)
        collectives(mp::thread(), barrier, reduces, window, scratch, count, rounds, results);
    if (flavour == 1 && mp::thread_rank() < 32)
        collectives(mp::warp(), barrier, reduces, window, scratch, count, rounds, results);
    if (flavour == 2) collectives(mp::block(), barrier, reduces, window, scratch, count, rounds, results);
}

}  // namespace test

// By the thread, the warp or the block that is first. results: what was wrong; rounds done; the status of the call that failed.
MP_KERNEL void test_collectives(const __grid_constant__ mp::Collective barrier, const __grid_constant__ mp::Collective reduces,
                                const __grid_constant__ mp::Window window, std::uint64_t* scratch, std::uint64_t count,
                                std::uint64_t rounds, std::uint32_t flavour, std::uint64_t* results) {
    test::collectives_by(flavour, barrier, reduces, window, scratch, count, rounds, results);
}

// A barrier and a sum by the first block. results[2]: the status of the call that failed.
MP_KERNEL void test_reduce(const __grid_constant__ mp::Collective barrier, const __grid_constant__ mp::Collective reduces, double* values,
                           std::uint64_t count, std::uint64_t* results) {
    if (mp::block_rank() != 0) return;
    mp::WaitResult result = mp::barrier(mp::block(), barrier);
    if (!result.failed()) result = mp::all_reduce(mp::block(), reduces, values, count, mp::sum_t{});
    if (mp::thread_rank() == 0) results[2] = result.status;
}

namespace test {

template <class Group>
MP_DEVICE void kind_by(Group group, const mp::Collective& all, std::uint32_t kind, std::uint64_t root, const double* from, double* to,
                       std::uint64_t count, const mp::Extent* given, const mp::Extent* taken, std::uint64_t* results) {
    const mp::Part part = {mp::block_rank(), mp::grid_blocks()};
    const std::uint64_t bytes = 8 * count;
    mp::WaitResult result = {mp::ok, 0, 0};
    switch (kind) {
    case 0: result = mp::broadcast(group, all, root, to, bytes, part); break;
    case 1: result = mp::all_gather(group, all, from, to, bytes, part); break;
    case 2: result = mp::gather(group, all, root, from, to, bytes, part); break;
    case 3: result = mp::scatter(group, all, root, from, to, bytes, part); break;
    case 4: result = mp::all_to_all(group, all, from, to, bytes, part); break;
    case 5: result = mp::all_to_all_v(group, all, from, given, to, taken, part); break;
    case 6: result = mp::reduce(group, all, root, from, to, count, mp::sum_t{}, part); break;
    case 7: result = mp::reduce_scatter(group, all, from, to, count, mp::sum_t{}, part); break;
    case 8: result = mp::all_reduce(group, all, from, to, count, mp::sum_t{}, part); break;
    case 9: result = mp::scan(group, all, from, to, count, mp::sum_t{}, part); break;
    default: if (part.index == 0) result = mp::barrier(group, all); break;
    }
    if (group.leads()) mp::add(results + 2, std::uint64_t{result.status}, mp::relaxed, mp::system);
}

}  // namespace test

// A run of f64 by all blocks, each its part: the kind's number, and blocks of `count` values; sums. Of blocks of 1 thread or 32 the thread or
// the warp calls.
MP_KERNEL void test_kind(const __grid_constant__ mp::Collective all, std::uint32_t kind, std::uint64_t root, const double* from, double* to,
                         std::uint64_t count, const mp::Extent* given, const mp::Extent* taken, std::uint64_t* results) {
    switch (mp::block_threads()) {
    case 1: return test::kind_by(mp::thread(), all, kind, root, from, to, count, given, taken, results);
    case 32: return test::kind_by(mp::warp(), all, kind, root, from, to, count, given, taken, results);
    default: return test::kind_by(mp::block(), all, kind, root, from, to, count, given, taken, results);
    }
}
