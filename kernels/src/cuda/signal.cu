// Signals raised and awaited by kernels of their own: the stream operations `signal` and `wait`, where a kernel is faster
// than a stream memory operation.
#pragma once

#include <mp/mp.cuh>

// Raises the signal to `value`, with release at system scope: whoever acquires it sees what earlier kernels of the stream
// wrote. One thread is enough; launched with more, thread 0 of block 0 does it.
MP_KERNEL void mp_signal_store(std::uint64_t* word, std::uint64_t value) {
    mp::begin_in_turn();
    if (mp::block_rank() == 0 && mp::thread_rank() == 0) mp::signal(mp::thread(), word, value);
}

// Adds to the signal, to which others may add at the same time. For the rest as mp_signal_store.
MP_KERNEL void mp_signal_add(std::uint64_t* word, std::uint64_t value) {
    mp::begin_in_turn();
    if (mp::block_rank() == 0 && mp::thread_rank() == 0) mp::signal_add(mp::thread(), word, value);
}

namespace mp {

MP_DEVICE WaitResult wait_by(const std::uint64_t* word, std::uint32_t comparison, std::uint64_t value, const WaitBounds& bounds) {
    switch (comparison) {
    case compare_eq: return wait(thread(), word, eq, value, bounds);
    case compare_ne: return wait(thread(), word, ne, value, bounds);
    case compare_gt: return wait(thread(), word, gt, value, bounds);
    case compare_lt: return wait(thread(), word, lt, value, bounds);
    case compare_le: return wait(thread(), word, le, value, bounds);
    case compare_any_bit: return wait(thread(), word, any_bit, value, bounds);
    default: return wait(thread(), word, ge, value, bounds);
    }
}

}  // namespace mp

// Ends when the signal compares so with `value`, an mp::Comparison, with acquire at system scope, so later kernels of the stream
// see what came before it; or when the bounds end it, and then the report (may be null) says so. Thread 0 of every block waits
// by itself: one block of one thread is enough, more blocks occupy the GPU for as long as the wait lasts.
MP_KERNEL void mp_signal_wait(const std::uint64_t* word, std::uint64_t value, std::uint32_t comparison, mp::WaitBounds bounds,
                              mp::WaitReport* report) {
    mp::begin_in_turn();
    if (mp::thread_rank() != 0) return;
    mp::report(report, value, mp::wait_by(word, comparison, value, bounds));
}
