// Collectives as stream operations: one block runs the device function.
#pragma once

#include <mp/mp.cuh>

// A barrier of the ranks' streams: what each stream did before is visible to all streams after.
MP_KERNEL void mp_barrier(mp::Collective collective) {
    if (mp::block_rank() == 0) (void)mp::barrier(mp::block(), collective);
}

namespace mp {

template <class T>
MP_DEVICE void all_reduce_by(const Collective& collective, void* memory, std::uint64_t count, std::uint32_t reduction) {
    auto* values = static_cast<T*>(memory);
    switch (reduction) {
    case reduction_sum: (void)all_reduce(block(), collective, values, count, sum_t{}); break;
    case reduction_min: (void)all_reduce(block(), collective, values, count, min_t{}); break;
    default: (void)all_reduce(block(), collective, values, count, max_t{}); break;
    }
}

}  // namespace mp

// All-reduce in place of `count` values, an mp::Element each, by an mp::Reduction. A failed wait goes into the collective's
// report.
MP_KERNEL void mp_all_reduce(mp::Collective collective, void* values, std::uint64_t count, std::uint32_t element,
                             std::uint32_t reduction) {
    if (mp::block_rank() != 0) return;
    switch (element) {
    case mp::element_f64: mp::all_reduce_by<double>(collective, values, count, reduction); break;
    case mp::element_f32: mp::all_reduce_by<float>(collective, values, count, reduction); break;
    case mp::element_u64: mp::all_reduce_by<std::uint64_t>(collective, values, count, reduction); break;
    case mp::element_i64: mp::all_reduce_by<std::int64_t>(collective, values, count, reduction); break;
    case mp::element_u32: mp::all_reduce_by<std::uint32_t>(collective, values, count, reduction); break;
    default: mp::all_reduce_by<std::int32_t>(collective, values, count, reduction); break;
    }
}
