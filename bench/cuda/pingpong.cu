// Two signals bounced between two threads (of two GPUs, or of two blocks): what the headers cost over the bare machine.
// The same game with three players. `bare` uses nothing of the headers and is the floor; `unbounded` polls through them
// without an end; `bounded` is mp::signal and mp::wait as users call them. The first two hang when the peer never plays:
// for measuring only.
#pragma once

#include <mp/mp.cuh>

#include "layout.cuh"

namespace mp {
namespace pingpong {

#if defined(__CUDACC__)
struct Bare {
    __device__ __forceinline__ void raise(std::uint64_t* word, std::uint64_t value) const {
        asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
    }
    __device__ __forceinline__ bool await(const std::uint64_t* word, std::uint64_t expected) const {
        std::uint64_t seen;
        do {
            asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(seen) : "l"(word) : "memory");
        } while (seen < expected);
        return true;
    }
};
#endif

struct Unbounded {
    MP_DEVICE void raise(std::uint64_t* word, std::uint64_t value) const { signal(thread(), word, value); }
    MP_DEVICE bool await(const std::uint64_t* word, std::uint64_t expected) const {
        while (read_signal(word) < expected) pause();
        return true;
    }
};

struct Bounded {
    WaitBounds bounds;
    WaitReport* slot;
    MP_DEVICE void raise(std::uint64_t* word, std::uint64_t value) const { signal(thread(), word, value); }
    MP_DEVICE bool await(const std::uint64_t* word, std::uint64_t expected) const {
        const WaitResult result = wait(thread(), word, expected, bounds);
        if (!result.failed()) return true;
        report(slot, expected, result);
        return false;
    }
};

// Rounds first + 1 … last. False: a wait failed.
template <class Player>
MP_DEVICE bool play(const Player& player, const PingPong& game, std::uint64_t first, std::uint64_t last) {
    const auto* mine = reinterpret_cast<const std::uint64_t*>(game.mine);
    auto* peer = reinterpret_cast<std::uint64_t*>(game.peer);
    const bool serves = game.serves != 0;
    for (std::uint64_t value = first + 1; value <= last; ++value) {
        if (serves) player.raise(peer, value);
        if (!player.await(mine, value)) return false;
        if (!serves) player.raise(peer, value);
    }
    return true;
}

template <class Player>
MP_DEVICE void timed(const Player& player, const PingPong& game, PingPongTime* time) {
    if (block_rank() != 0 || thread_rank() != 0) return;
    const std::uint64_t start = game.base + game.untimed_rounds;
    if (!play(player, game, game.base, start)) return;
    const std::uint64_t began_ns = clock_ns();
    const std::uint64_t began_cycles = clock_cycles();
    if (!play(player, game, start, start + game.timed_rounds)) return;
    const std::uint64_t cycles = clock_cycles() - began_cycles;
    time->ns = clock_ns() - began_ns;
    time->cycles = cycles;
}

}  // namespace pingpong
}  // namespace mp

// One thread plays `game` and writes its time (plain stores, to be read after the kernel). All three take the same
// arguments; bare and unbounded ignore `bounds` and `report`. `bounded` ends at the first failed wait, reports it and
// writes no time.
#if defined(__CUDACC__)
MP_KERNEL void mp_bare_pingpong(mp::PingPong game, mp::WaitBounds, mp::WaitReport*, mp::PingPongTime* time) {
    mp::pingpong::timed(mp::pingpong::Bare{}, game, time);
}
#endif

MP_KERNEL void mp_pingpong_unbounded(mp::PingPong game, mp::WaitBounds, mp::WaitReport*, mp::PingPongTime* time) {
    mp::pingpong::timed(mp::pingpong::Unbounded{}, game, time);
}

MP_KERNEL void mp_pingpong_bounded(mp::PingPong game, mp::WaitBounds bounds, mp::WaitReport* report,
                                   mp::PingPongTime* time) {
    mp::pingpong::timed(mp::pingpong::Bounded{bounds, report}, game, time);
}
