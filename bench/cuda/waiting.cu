// What blocks that wait cost a block that computes beside them on the same multiprocessor.
#pragma once

#include <mp/mp.cuh>

// The first block of each multiprocessor sums up `words` doubles, which fit into its cache, `rounds` times; the others wait until all
// of those have ended, or, unless `wait`, return at once. tickets: a word for each multiprocessor, 0. state: how many compute,
// how many of these have ended, the signal that is waited for, all 0 before. times: what each computing block took in ns, by
// multiprocessor. sums: there the results go, so that they are worked out.
MP_KERNEL void mp_perf_waiting(const double* table, std::uint64_t words, std::uint64_t rounds, std::uint32_t wait,
                               mp::WaitBounds bounds, std::uint64_t* tickets, std::uint64_t* state, std::uint64_t* times,
                               double* sums) {
    const mp::Block block = mp::block();
    const unsigned place = mp::multiprocessor();
    std::uint64_t ticket = 0;
    if (block.leads()) {
        ticket = mp::fetch_add(tickets + place, std::uint64_t{1}, mp::gpu);
        if (ticket == 0) mp::fetch_add(state, std::uint64_t{1}, mp::gpu);
        mp::fetch_add(state + 3, std::uint64_t{1}, mp::gpu);
        // All are there before anybody computes or waits.
        while (mp::load(state + 3, mp::relaxed, mp::gpu) < mp::grid_blocks()) {
        }
    }
    ticket = block.broadcast(ticket);
    if (ticket != 0) {
        if (wait != 0) (void)mp::wait(block, state + 2, 1, bounds);
        return;
    }
    const std::uint64_t begin = mp::clock_ns();
    double sum = 0;
    for (std::uint64_t round = 0; round < rounds; ++round)
        for (std::uint64_t i = block.rank(); i < words; i += block.size()) sum = sum * 0.5 + table[(i + round) % words];
    sums[std::uint64_t{place} * block.size() + block.rank()] = sum;
    block.sync();
    if (!block.leads()) return;
    times[place] = mp::clock_ns() - begin;
    if (mp::fetch_add(state + 1, std::uint64_t{1}, mp::gpu) + 1 == mp::load(state, mp::relaxed, mp::gpu))
        mp::store(state + 2, std::uint64_t{1}, mp::release, mp::system);
}
