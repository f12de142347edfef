// Read-modify-writes that only the queue pair needs. Not to be included by itself; qp.cuh does.
#pragma once

#include "../platform.cuh"

namespace mp {
namespace impl {

#if defined(__CUDACC__)

// A lock that is never waited for. Both are read-modify-writes with acquire and release at GPU scope: a thread that
// finds the lock taken has its earlier writes seen by the holder's next look after unlocking.
MP_DEVICE bool try_lock(std::uint32_t* lock) {
    std::uint32_t before;
    asm volatile("atom.acq_rel.gpu.exch.b32 %0, [%1], %2;" : "=r"(before) : "l"(lock), "r"(1) : "memory");
    return before == 0;
}
MP_DEVICE void unlock(std::uint32_t* lock) {
    asm volatile("{ .reg .b32 %%held; atom.acq_rel.gpu.exch.b32 %%held, [%0], 0; }" ::"l"(lock) : "memory");
}

MP_DEVICE std::uint64_t fetch_add(std::uint64_t* word, std::uint64_t value) {
    std::uint64_t before;
    asm volatile("atom.relaxed.gpu.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(word), "l"(value) : "memory");
    return before;
}

// Raises the word to `value` unless it holds more. Relaxed at GPU scope.
MP_DEVICE void raise_to(std::uint64_t* word, std::uint64_t value) {
    asm volatile("red.relaxed.gpu.max.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// `count` of a counter in host memory, where an atomic is a round trip over PCIe: threads of a warp that happen to ask
// together for as many blocks of the same queue make one.
MP_DEVICE std::uint64_t reserve(std::uint64_t* counter, std::uint64_t count) {
#if defined(__CUDA_ARCH__)
    const std::uint64_t what = reinterpret_cast<std::uint64_t>(counter) ^ count << 48;
    const unsigned together = __match_any_sync(__activemask(), what);
    const unsigned leader = __ffs(int(together)) - 1;
    std::uint64_t begin = 0;
    if (lane() == leader) begin = fetch_add(counter, count * unsigned(__popc(together)));
    begin = __shfl_sync(together, begin, int(leader));
    return begin + count * unsigned(__popc(together & ((1u << lane()) - 1)));
#else
    return fetch_add(counter, count);
#endif
}

#else

inline bool try_lock(std::uint32_t* lock) { return __atomic_exchange_n(lock, 1u, __ATOMIC_ACQ_REL) == 0; }
inline void unlock(std::uint32_t* lock) { __atomic_exchange_n(lock, 0u, __ATOMIC_ACQ_REL); }
inline void raise_to(std::uint64_t* word, std::uint64_t value) {
    std::uint64_t held = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (held < value && !__atomic_compare_exchange_n(word, &held, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}
inline std::uint64_t reserve(std::uint64_t* counter, std::uint64_t count) {
    return __atomic_fetch_add(counter, count, __ATOMIC_RELAXED);
}

#endif

}  // namespace impl
}  // namespace mp
