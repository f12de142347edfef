// Signals raised and awaited by kernels of their own: the stream operations `signal` and `wait`, where a kernel is faster
// than a stream memory operation.
#pragma once

#include <mp/mp.cuh>

// Raises the signal to `value`, with release at system scope: whoever acquires it sees what earlier kernels of the stream
// wrote. One thread is enough; launched with more, thread 0 of block 0 does it.
MP_KERNEL void mp_signal_store(std::uint64_t* word, std::uint64_t value) {
    if (mp::block_rank() == 0 && mp::thread_rank() == 0) mp::signal(mp::thread(), word, value);
}

// Ends when the signal has reached `expected`, with acquire at system scope, so later kernels of the stream see what came
// before it; or when the bounds end it, and then the report (may be null) says so. Thread 0 of every block waits by
// itself: one block of one thread is enough, more blocks occupy the GPU for as long as the wait lasts.
MP_KERNEL void mp_signal_wait(const std::uint64_t* word, std::uint64_t expected, mp::WaitBounds bounds,
                              mp::WaitReport* report) {
    if (mp::thread_rank() != 0) return;
    mp::report(report, expected, mp::wait(mp::thread(), word, expected, bounds));
}

// The same with every thread of every block taking part, and each writing how its wait ended to
// results[block * threads + thread], so that a test sees that all threads of a block learn the same. Plain stores:
// to be read after the kernel.
MP_KERNEL void mp_signal_wait_block(const std::uint64_t* word, std::uint64_t expected, mp::WaitBounds bounds,
                                    mp::WaitReport* report, std::uint32_t* results) {
    const mp::WaitResult result = mp::wait(mp::block(), word, expected, bounds);
    if (mp::thread_rank() == 0) mp::report(report, expected, result);
    results[std::uint64_t{mp::block_rank()} * mp::block_threads() + mp::thread_rank()] = result.status;
}

// The same for warps; blocks of whole warps only.
MP_KERNEL void mp_signal_wait_warp(const std::uint64_t* word, std::uint64_t expected, mp::WaitBounds bounds,
                                   mp::WaitReport* report, std::uint32_t* results) {
    const mp::WaitResult result = mp::wait(mp::warp(), word, expected, bounds);
    if (mp::lane() == 0) mp::report(report, expected, result);
    results[std::uint64_t{mp::block_rank()} * mp::block_threads() + mp::thread_rank()] = result.status;
}
