// Who an emulated GPU thread is: its place in the grid and the barriers it shares with its block and warp.
// impl/platform_host.hpp reads it; launch.hpp sets it. A thread that launch() did not start is a grid of one thread,
// so that device functions can also be called straight from host code.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
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

// Turns in which other blocks store to this one (mp/cluster.cuh).
class Arriving {
public:
    // So many bytes have come, or will come in this turn.
    void come(std::int64_t bytes) { change(-bytes, false); }
    void expect(std::int64_t bytes) { change(bytes, true); }
    // Turns that are over.
    std::uint64_t over() const { return over_.load(std::memory_order_acquire); }

private:
    void change(std::int64_t bytes, bool expects) {
        const std::lock_guard lock(mutex_);
        missing_ += bytes;
        expected_ = expected_ || expects;
        if (!expected_ || missing_ != 0) return;
        expected_ = false;
        over_.fetch_add(1, std::memory_order_release);
    }

    std::mutex mutex_;
    std::int64_t missing_ = 0;
    bool expected_ = false;
    std::atomic<std::uint64_t> over_ = 0;
};

struct Cluster;

struct Block {
    explicit Block(unsigned threads) : all(threads) {
        for (unsigned first = 0; first < threads; first += 32)
            warps.push_back(std::make_unique<Meeting>(threads - first < 32 ? threads - first : 32));
    }
    Meeting all;
    std::vector<std::unique_ptr<Meeting>> warps;
    // What the GPU has as shared memory; at first for block_memory only.
    std::vector<unsigned char> memory = std::vector<unsigned char>(1024);
    Cluster* cluster = nullptr;
    Arriving arriving[2];  // of turns with even and with odd numbers
};

// The blocks of a launch, how many of them have come to a barrier of all, and how many barriers are over.
struct Cluster {
    Cluster(unsigned count, unsigned threads) {
        for (unsigned block = 0; block < count; ++block) {
            blocks.push_back(std::make_unique<Block>(threads));
            blocks.back()->cluster = this;
        }
    }
    std::vector<std::unique_ptr<Block>> blocks;
    std::uint64_t here = 0, met = 0;
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
