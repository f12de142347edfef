// Who an emulated GPU thread is: its place in the grid and the barriers it shares with its block and warp.
// impl/platform_host.hpp reads it; launch.hpp sets it. A thread that launch() did not start is a grid of one thread,
// so that device functions can also be called straight from host code.
#pragma once

#include <atomic>
#include <barrier>
#include <cstddef>
#include <memory>
#include <vector>

namespace mp::host {

// Threads that meet: a block or a warp. block_any goes through `votes`, block_broadcast through `slot`.
struct Meeting {
    explicit Meeting(unsigned threads) : barrier(threads) {}
    std::barrier<> barrier;
    std::atomic<unsigned> votes = 0;
    alignas(16) unsigned char slot[64] = {};
};

struct Block {
    explicit Block(unsigned threads) : all(threads) {
        for (unsigned first = 0; first < threads; first += 32)
            warps.push_back(std::make_unique<Meeting>(threads - first < 32 ? threads - first : 32));
    }
    Meeting all;
    std::vector<std::unique_ptr<Meeting>> warps;
};

struct Thread {
    unsigned rank = 0;
    unsigned block_threads = 1;
    unsigned block_rank = 0;
    unsigned grid_blocks = 1;
    Block* block = nullptr;  // null: alone, barriers return at once
    unsigned block_votes = 0;  // Meeting::votes as this thread saw it last
    unsigned warp_votes = 0;
};

inline thread_local Thread this_thread;

}  // namespace mp::host
