// Who an emulated GPU thread is: its place in the grid and the barriers it shares with its block and warp.
// impl/platform_host.hpp reads it; launch.hpp sets it. A thread that launch() did not start is a grid of one thread,
// so that device functions can also be called straight from host code.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

namespace mp::host {

// Where fibers of one thread play the threads of blocks.
struct Fibers {
    void (*meet)();   // waits for the others of the block
    void (*pause)();  // lets other blocks go on
};
inline thread_local const Fibers* fibers = nullptr;

// Not std::barrier: in libstdc++ all of those share one table of atomics, through which threads of different blocks would
// synchronise by accident, and ThreadSanitizer would miss the very races it is here for.
class Barrier {
public:
    explicit Barrier(unsigned threads) : threads_(threads) {}

    void arrive_and_wait() {
        if (fibers != nullptr) return fibers->meet();
        std::unique_lock lock(mutex_);
        const unsigned mine = phase_;
        ++arrived_;
        if (release_if_complete()) return;
        all_here_.wait(lock, [&] { return phase_ != mine; });
    }

    void arrive_and_drop() {
        const std::lock_guard lock(mutex_);
        --threads_;
        release_if_complete();
    }

private:
    bool release_if_complete() {
        if (arrived_ == 0 || arrived_ < threads_) return false;
        arrived_ = 0;
        ++phase_;
        all_here_.notify_all();
        return true;
    }

    std::mutex mutex_;
    std::condition_variable all_here_;
    unsigned threads_;
    unsigned arrived_ = 0;
    unsigned phase_ = 0;
};

// Threads that meet: a block or a warp. block_any goes through `votes`, block_broadcast through `slot`.
struct Meeting {
    explicit Meeting(unsigned threads) : barrier(threads) {}
    Barrier barrier;
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
    alignas(16) unsigned char memory[1024] = {};  // of block_memory
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
