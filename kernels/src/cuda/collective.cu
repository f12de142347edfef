// Collectives as stream operations: the blocks of a launch run the engine of the device functions.
#pragma once

#include <mp/mp.cuh>

// A barrier of the ranks' streams: what each stream did before is visible to all streams after.
MP_KERNEL void mp_barrier(const __grid_constant__ mp::Collective collective) {
    mp::begin_in_turn();
    if (mp::block_rank() == 0) (void)mp::barrier(mp::block(), collective);
}

// One run by `way`, which is told what to do with what comes.
template <class Way>
MP_DEVICE mp::WaitResult run_one(const mp::CollectiveRun& run, const Way& way) {
    if (run.reduction == mp::no_reduction) return way(run, mp::impl::PlaceBytes{});
    return way(run, mp::impl::AnyCombine{run.element, run.reduction});
}
// One run, or two one after the other; the second without blocks: there is none. Whoever serves rings or lanes in turn has
// served all of the first run then, as kernels do: others wait for it there.
template <class Way>
MP_DEVICE void run_both(const mp::CollectiveRun& first, const mp::CollectiveRun& second, const Way& way) {
    MP_NO_UNROLL
    for (int i = 0; i < 2; ++i) {
        const mp::CollectiveRun& run = i == 0 ? first : second;
        if (i != 0 && run.gives.end == 0) return;
        if (run_one(run, way).failed()) return;
    }
}
MP_DEVICE mp::Part part_of_block() { return {mp::block_rank(), mp::grid_blocks()}; }

// A run whose blocks have at most `most` bytes, the same on all ranks, which go by the first rings. A failed wait goes into the
// collective's report.
MP_KERNEL void mp_collective(const __grid_constant__ mp::Collective collective, const __grid_constant__ mp::CollectiveRun run,
                             std::uint64_t most) {
    mp::begin_in_turn();
    if (mp::block_rank() != 0) return;
    const mp::impl::RingShare all = {0, 0, mp::impl::words_of(most)};
    (void)run_one(run, [&](const mp::CollectiveRun& run, const auto& take) {
        return mp::impl::run_by_packets(mp::block(), collective, run.gives, run.takes, all, take);
    });
}

// The same by several, which blocks of threads serve in turn; `most` is of both runs.
MP_KERNEL void MP_BLOCK_OF(512) mp_collective_rings(const __grid_constant__ mp::Collective collective, const __grid_constant__ mp::CollectiveRun first,
                                                    const __grid_constant__ mp::CollectiveRun second, std::uint64_t most) {
    mp::begin_in_turn();
    run_both(first, second, [&](const mp::CollectiveRun& run, const auto& take) {
        return mp::impl::run_by_rings(mp::block(), collective, run.gives, run.takes, most, take, part_of_block());
    });
}

// By lanes, which blocks of threads serve in turn.
MP_KERNEL void MP_BLOCK_OF(512) mp_collective_lanes(const __grid_constant__ mp::Collective collective, const __grid_constant__ mp::CollectiveRun first,
                                                    const __grid_constant__ mp::CollectiveRun second, std::uint64_t most) {
    mp::begin_in_turn();
    run_both(first, second, [&](const mp::CollectiveRun& run, const auto& take) {
        return mp::impl::run_by_lanes(mp::block(), collective.state, mp::impl::bounds_of(collective), run.gives, run.takes, most, take,
                                      part_of_block());
    });
}

// Through a NIC, by one block of threads.
MP_KERNEL void MP_BLOCK_OF(256) mp_collective_nic(const __grid_constant__ mp::Collective collective,
                                                  const __grid_constant__ mp::CollectiveRun run, std::uint64_t most) {
    mp::begin_in_turn();
    if (mp::block_rank() != 0) return;
    (void)run_one(run, [&](const mp::CollectiveRun& run, const auto& take) {
        return mp::impl::run_by_nic(mp::block(), collective.state, mp::impl::bounds_of(collective), run.gives, run.takes, most, take);
    });
}
