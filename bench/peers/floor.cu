// The bare machine between two GPUs: plain loads and stores and one flag, with nothing of our headers or of any library.
// What `mp-perf compare` calls the floor of kernels. The waits have no end but a count of polls, after which they trap.

#include <cstdint>

namespace {

// About ten seconds of polls.
constexpr std::uint64_t patience = 1u << 24;

__device__ void raise(std::uint64_t* word, std::uint64_t value) {
    asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

__device__ void await(const std::uint64_t* word, std::uint64_t expected) {
    std::uint64_t seen;
    for (std::uint64_t polls = 0; polls < patience; ++polls) {
        asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(seen) : "l"(word) : "memory");
        if (seen >= expected) return;
    }
    __trap();
}

__device__ std::uint64_t now() {
    std::uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

// Four vectors in flight a thread; `from` and `to` are aligned to 16 bytes, `bytes` is a multiple of 8.
__device__ void copy(char* to, const char* from, std::uint64_t bytes, std::uint64_t thread, std::uint64_t threads) {
    auto* target = reinterpret_cast<uint4*>(to);
    const auto* source = reinterpret_cast<const uint4*>(from);
    const std::uint64_t vectors = bytes / 16;
    std::uint64_t at = thread;
    for (; at + 3 * threads < vectors; at += 4 * threads) {
        const uint4 a = source[at], b = source[at + threads], c = source[at + 2 * threads], d = source[at + 3 * threads];
        target[at] = a;
        target[at + threads] = b;
        target[at + 2 * threads] = c;
        target[at + 3 * threads] = d;
    }
    for (; at < vectors; at += threads) target[at] = source[at];
    if (bytes % 16 != 0 && thread == 0)
        reinterpret_cast<std::uint64_t*>(to)[bytes / 8 - 1] = reinterpret_cast<const std::uint64_t*>(from)[bytes / 8 - 1];
}

}  // namespace

// A message there and back, `untimed` and then `rounds` times, by one block: its threads store the bytes, then one of them
// releases the flag. The side that serves sends first and writes the nanoseconds of the timed rounds to `time`.
extern "C" __global__ void __launch_bounds__(1024) floor_put(std::uint64_t* mine, std::uint64_t* peer, const char* from, char* to,
                                                             std::uint64_t bytes, std::uint64_t base, std::uint64_t untimed,
                                                             std::uint64_t rounds, std::uint32_t serves, std::uint64_t* time) {
    std::uint64_t began = 0;
    for (std::uint64_t round = 1; round <= untimed + rounds; ++round) {
        if (round == untimed + 1) began = now();
        for (std::uint32_t turn = 0; turn < 2; ++turn) {
            if ((turn == 0) == (serves != 0)) {
                copy(to, from, bytes, threadIdx.x, blockDim.x);
                __syncthreads();
                if (threadIdx.x == 0) raise(peer, base + round);
            } else {
                if (threadIdx.x == 0) await(mine, base + round);
                __syncthreads();
            }
        }
    }
    if (serves != 0 && threadIdx.x == 0) *time = now() - began;
}

// All blocks copy `bytes` together, `rounds` times.
extern "C" __global__ void __launch_bounds__(1024) floor_copy(char* to, const char* from, std::uint64_t bytes, std::uint64_t rounds) {
    const std::uint64_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    const std::uint64_t threads = std::uint64_t(gridDim.x) * blockDim.x;
    for (std::uint64_t round = 0; round < rounds; ++round) copy(to, from, bytes, thread, threads);
}
