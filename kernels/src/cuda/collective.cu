// Collectives as stream operations: the blocks of a launch run the engine of the device functions.
#pragma once

#include <mp/mp.cuh>

// A barrier of the ranks' streams: what each stream did before is visible to all streams after.
MP_KERNEL void mp_barrier(const __grid_constant__ mp::Collective collective) {
    if (mp::block_rank() == 0) (void)mp::barrier(mp::block(), collective);
}

// A run whose blocks have at most `most` bytes, the same on all ranks, which go as packets. A failed wait goes into the collective's
// report.
MP_KERNEL void mp_collective(const __grid_constant__ mp::Collective collective, mp::CollectiveRun run, std::uint64_t most) {
    if (mp::block_rank() != 0) return;
    const std::uint64_t words = most == 0 ? 1 : (most + 7) / 8;
    if (run.reduction == mp::no_reduction) {
        (void)mp::impl::run_by_packets(mp::block(), collective, run.gives, run.takes, words, mp::impl::PlaceBytes{});
        return;
    }
    const mp::impl::AnyCombine combine = {run.element, run.reduction};
    (void)mp::impl::run_by_packets(mp::block(), collective, run.gives, run.takes, words, combine);
}

// Two runs, one after the other, of large blocks or through a NIC; the second without blocks: there is none. `most` is of both.
// By several blocks, or by one.
MP_KERNEL void MP_BLOCK_OF(512) mp_collective_large(const __grid_constant__ mp::Collective collective, mp::CollectiveRun first,
                                                    mp::CollectiveRun second, std::uint64_t most) {
    const mp::Part part = {mp::block_rank(), mp::grid_blocks()};
    const auto run = [&](const mp::CollectiveRun& run) {
        const mp::WaitBounds bounds = mp::impl::bounds_of(collective);
        if (run.reduction == mp::no_reduction)
            return mp::impl::run_otherwise(mp::block(), collective.state, bounds, run.gives, run.takes, most, mp::impl::PlaceBytes{}, part);
        const mp::impl::AnyCombine combine = {run.element, run.reduction};
        return mp::impl::run_otherwise(mp::block(), collective.state, bounds, run.gives, run.takes, most, combine, part);
    };
    if (!run(first).failed() && second.gives.end != 0) (void)run(second);
}
