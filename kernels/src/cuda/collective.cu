// Collectives as stream operations: one block runs the device function.
#pragma once

#include <mp/mp.cuh>

// A barrier of the ranks' streams: what each stream did before is visible to all streams after.
MP_KERNEL void mp_barrier(mp::Collective collective) {
    if (mp::block_rank() == 0) (void)mp::barrier(mp::block(), collective);
}

namespace mp {

template <class Handle, class T>
MP_DEVICE void all_reduce_by(const Handle& collective, T* values, std::uint64_t count, std::uint32_t operation) {
    if (block_rank() != 0) return;
    switch (operation) {
    case 0: (void)all_reduce(block(), collective, values, count, sum_t{}); break;
    case 1: (void)all_reduce(block(), collective, values, count, min_t{}); break;
    default: (void)all_reduce(block(), collective, values, count, max_t{}); break;
    }
}

}  // namespace mp

// All-reduce in place; operation 0: sum, 1: minimum, 2: maximum. A failed wait goes into the collective's report.
MP_KERNEL void mp_all_reduce_f64(mp::Collective collective, double* values, std::uint64_t count,
                                 std::uint32_t operation) {
    mp::all_reduce_by(collective, values, count, operation);
}
MP_KERNEL void mp_all_reduce_u64(mp::Collective collective, std::uint64_t* values, std::uint64_t count,
                                 std::uint32_t operation) {
    mp::all_reduce_by(collective, values, count, operation);
}

// The same three of ranks some of which are reached through a NIC.
MP_KERNEL void mp_nic_barrier(mp::NicCollective collective) {
    if (mp::block_rank() == 0) (void)mp::barrier(mp::block(), collective);
}
MP_KERNEL void mp_nic_all_reduce_f64(mp::NicCollective collective, double* values, std::uint64_t count,
                                     std::uint32_t operation) {
    mp::all_reduce_by(collective, values, count, operation);
}
MP_KERNEL void mp_nic_all_reduce_u64(mp::NicCollective collective, std::uint64_t* values, std::uint64_t count,
                                     std::uint32_t operation) {
    mp::all_reduce_by(collective, values, count, operation);
}
