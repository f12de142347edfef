// A kernel that rings: for queues whose entries the CPU has prepared and a GPU gives to the NIC. It does what kernels that post do, and
// nothing else, so that a self-test can tell whether this GPU reaches that NIC's doorbell.
#pragma once

#include <mp/mp.cuh>
#include <mp/qp.cuh>

// Rings blocks [begin, end) of the send queue, once those before them are rung; what the stream wrote before is visible to the NIC. When
// the bounds end it first, it has not rung, and the report says so. One thread.
MP_KERNEL void mp_ring(mp::QueuePair qp, std::uint64_t begin, std::uint64_t end, mp::WaitBounds bounds, mp::WaitReport* report) {
    mp::begin_in_turn();
    if (mp::block_rank() != 0 || mp::thread_rank() != 0) return;
    const mp::PostStatus status = mp::ring(mp::thread(), qp, begin, end, bounds);
    if (status == mp::PostStatus::ok) return;
    const auto why = status == mp::PostStatus::aborted ? mp::aborted : mp::timed_out;
    mp::report(report, begin, {why, end, bounds.timeout_ns});
}
