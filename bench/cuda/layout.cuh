// What Rust and device code share. GENERATED from bench/src/kernels.rs, which declares it; to change it, change it there and
// run MP_REGENERATE=1 cargo test -p mp-bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mp/layout.cuh>

namespace mp {

// One side of a ping-pong of two signals, see `mp_pingpong_bounded`.
struct PingPong {
    // Address of the signal this side polls.
    std::uint64_t mine;
    // Address of the signal this side raises, which the other side polls.
    std::uint64_t peer;
    // Value of both signals before the first round; round r raises them to `base + r`, r from 1.
    std::uint64_t base;
    // Rounds played before the clock starts, so that the later of the two launches is not timed.
    std::uint64_t untimed_rounds;
    // Rounds played while the clock runs.
    std::uint64_t timed_rounds;
    // 1: this side raises first in each round; 0: it answers.
    std::uint32_t serves;
    // Keeps the size a multiple of 8; ignored.
    std::uint32_t reserved;
};
static_assert(sizeof(PingPong) == 48 && alignof(PingPong) == 8);
static_assert(offsetof(PingPong, mine) == 0);
static_assert(offsetof(PingPong, peer) == 8);
static_assert(offsetof(PingPong, base) == 16);
static_assert(offsetof(PingPong, untimed_rounds) == 24);
static_assert(offsetof(PingPong, timed_rounds) == 32);
static_assert(offsetof(PingPong, serves) == 40);
static_assert(offsetof(PingPong, reserved) == 44);

// What a ping-pong kernel measured. Left alone when a wait failed.
struct PingPongTime {
    // Nanoseconds of the timed rounds by the machine's clock.
    std::uint64_t ns;
    // The same in cycles of the multiprocessor.
    std::uint64_t cycles;
};
static_assert(sizeof(PingPongTime) == 16 && alignof(PingPongTime) == 8);
static_assert(offsetof(PingPongTime, ns) == 0);
static_assert(offsetof(PingPongTime, cycles) == 8);

// The pairs of one side. Two pairs used in turn, so that posting a buffer again is off the way of a message.
struct PerfPairs {
    // What it sends by.
    Send sends[2];
    // What it receives by.
    Recv recvs[2];
};
static_assert(sizeof(PerfPairs) == 352 && alignof(PerfPairs) == 8);
static_assert(offsetof(PerfPairs, sends) == 0);
static_assert(offsetof(PerfPairs, recvs) == 176);

}  // namespace mp
