// Runs a kernel on the host, an OS thread for each GPU thread: for tests of protocols, under ThreadSanitizer too.
// Not an emulator: no shared memory of its own, no device memory, one-dimensional grids, C++20. It is slow, and a grid
// is as large as the machine has threads to give: tens to a few hundred.
//
// A source for both ends with MP_HOST_KERNEL(kernel) for each of its kernels: nvcc makes nothing of it, the host compiler a
// function kernel_on_host, with which libmp launches the kernel on host streams as it launches GPU code on CUDA streams
// (gdsync::Kernel::host).
#pragma once

#if defined(__CUDACC__)
#define MP_HOST_KERNEL(kernel)
#else

#include <atomic>
#include <cstddef>
#include <memory>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "thread.hpp"

namespace mp::host {

// Calls kernel(args...) on blocks × threads OS threads and returns when all have. All blocks run at once, as in
// a cooperative launch. What the caller wrote before is seen by the kernel, and what the kernel wrote by the caller after.
// A thread that returns early no longer counts in the barriers of its block and warp, as on the GPU.
// Throws std::system_error when the machine has no more threads; then the kernel has not run.
template <class Kernel, class... Args>
void launch(unsigned blocks, unsigned threads, Kernel kernel, Args... args) {
    enum Gate { closed, open, cancelled };
    std::atomic<int> gate = closed;
    Cluster cluster(blocks, threads);
    const auto& state = cluster.blocks;
    std::vector<std::jthread> running;
    const auto run = [&](unsigned block, unsigned thread) {
        gate.wait(closed);
        if (gate == cancelled) return;
        this_thread = Thread{
            .rank = thread,
            .block_threads = threads,
            .block_rank = block,
            .grid_blocks = blocks,
            .block = state[block].get(),
        };
        kernel(args...);
        state[block]->warps[thread / 32]->barrier.arrive_and_drop();
        state[block]->all.barrier.arrive_and_drop();
    };
    const auto let_go = [&](Gate how) {
        gate = how;
        gate.notify_all();
    };
    try {
        for (unsigned block = 0; block < blocks; ++block)
            for (unsigned thread = 0; thread < threads; ++thread) running.emplace_back(run, block, thread);
    } catch (...) {
        let_go(cancelled);
        throw;
    }
    let_go(open);
}

// The same with the addresses of the arguments, as cuLaunchKernel has them; without these the arguments' sizes, and how many there
// are. 1: the machine has not so many threads.
template <class... Params, std::size_t... number>
int call(void (*kernel)(Params...), unsigned blocks, unsigned threads, void* const* arguments, std::size_t* sizes,
         std::index_sequence<number...>) {
    static_assert(sizeof...(Params) <= 64 && ((alignof(Params) <= 16) && ...) && (std::is_trivially_copyable_v<Params> && ...));
    if (arguments == nullptr) {
        ((sizes[number] = sizeof(Params)), ...);
        return sizeof...(Params);
    }
    try {
        launch(blocks, threads, kernel, *static_cast<const Params*>(arguments[number])...);
        return 0;
    } catch (const std::system_error&) {
        return 1;
    }
}
template <class... Params>
int call(void (*kernel)(Params...), unsigned blocks, unsigned threads, void* const* arguments, std::size_t* sizes) {
    return call(kernel, blocks, threads, arguments, sizes, std::index_sequence_for<Params...>());
}

}  // namespace mp::host

#define MP_HOST_KERNEL(kernel)                                                                                          \
    extern "C" int kernel##_on_host(unsigned blocks, unsigned threads, void* const* arguments, std::size_t* sizes) {    \
        return mp::host::call(kernel, blocks, threads, arguments, sizes);                                               \
    }

#endif
