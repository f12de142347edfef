// Runs a kernel on the host, an OS thread for each GPU thread: for tests of protocols, under ThreadSanitizer too.
// Not an emulator: no shared memory of its own, no device memory, one-dimensional grids, C++20. It is slow, and a grid
// is as large as the machine has threads to give: tens to a few hundred.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
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
    std::vector<std::unique_ptr<Block>> state;
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
    for (unsigned block = 0; block < blocks; ++block) state.push_back(std::make_unique<Block>(threads));
    try {
        for (unsigned block = 0; block < blocks; ++block)
            for (unsigned thread = 0; thread < threads; ++thread) running.emplace_back(run, block, thread);
    } catch (...) {
        let_go(cancelled);
        throw;
    }
    let_go(open);
}

}  // namespace mp::host
