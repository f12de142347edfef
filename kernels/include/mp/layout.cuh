// Structs shared by Rust and device code. GENERATED from kernels/src/layout.rs, which declares them; to change one,
// change it there and run MP_REGENERATE=1 cargo test -p mp-kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mp {

// How a wait in a kernel ended.
enum WaitStatus : std::uint32_t {
    // The signal reached the expected value.
    ok = 0,
    // The abort word was set first.
    aborted = 1,
    // The deadline passed first.
    timed_out = 2,
};

// What ends a wait in a kernel besides its signal.
struct WaitBounds {
    // Address, as the GPU sees it, of the 64-bit abort word: any value but 0 aborts. 0: there is none.
    std::uint64_t abort;
    // Nanoseconds after which the wait gives up.
    std::uint64_t timeout_ns;
};
static_assert(sizeof(WaitBounds) == 16 && alignof(WaitBounds) == 8);
static_assert(offsetof(WaitBounds, abort) == 0);
static_assert(offsetof(WaitBounds, timeout_ns) == 8);

// Why a wait in a kernel failed. The host zeroes the slot before the launch; the first failure stays in it.
struct WaitReport {
    // A `WaitStatus`; 0 (ok): nothing failed. Written last: when it is not 0, the rest is there.
    std::uint32_t status;
    // Not 0 once a failing thread of the GPU has taken the slot.
    std::uint32_t claimed;
    // The value waited for.
    std::uint64_t expected;
    // The value of the signal when the wait ended.
    std::uint64_t seen;
    // Nanoseconds waited, counted from the first look at the clock.
    std::uint64_t waited_ns;
};
static_assert(sizeof(WaitReport) == 32 && alignof(WaitReport) == 8);
static_assert(offsetof(WaitReport, status) == 0);
static_assert(offsetof(WaitReport, claimed) == 4);
static_assert(offsetof(WaitReport, expected) == 8);
static_assert(offsetof(WaitReport, seen) == 16);
static_assert(offsetof(WaitReport, waited_ns) == 24);

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

// One side of the message-passing test `mp_message_passing`: a writer fills a buffer and raises a signal, a reader
// waits, checks every word and raises a signal back.
struct MessagePassing {
    // Address of the buffer of `words` 64-bit words: the writer's stores, the reader's loads.
    std::uint64_t data;
    // 64-bit words in the buffer.
    std::uint64_t words;
    // Address of the signal this side waits on.
    std::uint64_t mine;
    // Address of the signal this side raises.
    std::uint64_t peer;
    // Value of both signals before the first round; round r raises them to `base + r`, r from 1, and fills with
    // the pattern of seed `base + r`.
    std::uint64_t base;
    // Rounds to play.
    std::uint64_t rounds;
    // 1: this side writes; 0: it reads and checks.
    std::uint32_t writes;
    // Keeps the size a multiple of 8; ignored.
    std::uint32_t reserved;
};
static_assert(sizeof(MessagePassing) == 56 && alignof(MessagePassing) == 8);
static_assert(offsetof(MessagePassing, data) == 0);
static_assert(offsetof(MessagePassing, words) == 8);
static_assert(offsetof(MessagePassing, mine) == 16);
static_assert(offsetof(MessagePassing, peer) == 24);
static_assert(offsetof(MessagePassing, base) == 32);
static_assert(offsetof(MessagePassing, rounds) == 40);
static_assert(offsetof(MessagePassing, writes) == 48);
static_assert(offsetof(MessagePassing, reserved) == 52);

}  // namespace mp
