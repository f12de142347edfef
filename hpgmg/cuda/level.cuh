// A level on the GPU, and where its values lie.
//
// Every row is stored as two halves, one per colour (i + j + k) % 2: cell i lies in the half of its colour at i / 2. A
// thread that updates one colour therefore reads and writes whole 32-byte sectors, its neighbours the next elements, and
// right-hand side and diagonal of the other colour are not read at all.
#pragma once
#include "layout.cuh"

namespace hpgmg {

struct Level : DeviceLevel {
    __device__ __forceinline__ int pitch() const { return 2 * half; }
    __device__ __forceinline__ int plane() const { return 2 * half * (rows + 2 * GHOSTS); }
    __device__ __forceinline__ int row(int j, int k) const {
        return BASE + (j + GHOSTS) * pitch() + (k + GHOSTS) * plane();
    }
    __device__ __forceinline__ int at(int i, int j, int k) const {
        return row(j, k) + ((i + j + k) & 1) * half + (i >> 1);
    }
    __device__ __forceinline__ bool has(int i) const { return static_cast<unsigned>(i) < static_cast<unsigned>(n); }
};

static_assert(sizeof(Level) == sizeof(DeviceLevel), "a kernel's parameter");

// A level whose size the compiler knows: offsets become constants, and a copy that no store can change.
template <int N>
struct Sized : Level {
    static constexpr int n = N;
    // As in layout.rs.
    static constexpr int ALIGN = N < LARGE ? HALF_ROW : LARGE_HALF_ROW;
    static constexpr int half = (N / 2 + 3 + ALIGN - 1) / ALIGN * ALIGN;

    __device__ __forceinline__ explicit Sized(const Level& level) : Level(level) {}
    __device__ __forceinline__ int pitch() const { return 2 * half; }
    __device__ __forceinline__ int plane() const { return 2 * half * (n + 2 * GHOSTS); }
    __device__ __forceinline__ int row(int j, int k) const {
        return BASE + (j + GHOSTS) * pitch() + (k + GHOSTS) * plane();
    }
    __device__ __forceinline__ int at(int i, int j, int k) const {
        return row(j, k) + ((i + j + k) & 1) * half + (i >> 1);
    }
    __device__ __forceinline__ bool has(int i) const { return static_cast<unsigned>(i) < static_cast<unsigned>(n); }
};

template <class L>
struct As {
    using Type = L;
};

// Calls f with the type for a level of n cells a side: a Sized one where that pays and is SPECIAL.
template <bool SPECIAL = true, class F>
__device__ __forceinline__ void sized(int n, F f) {
    switch (SPECIAL ? n : 0) {
        case 8: return f(As<Sized<8>>());
        case 4: return f(As<Sized<4>>());
        case 2: return f(As<Sized<2>>());
        default: return f(As<Level>());
    }
}

// READ_ONLY: nothing writes the vector while the kernel runs.
template <bool READ_ONLY>
__device__ __forceinline__ double load(const double* at) {
    return READ_ONLY ? __ldg(at) : *at;
}

// Starts a copy into shared memory of one element, or of two, both at multiples of 16 bytes; `copied` waits for all that the thread has started.
// On the host these are in tests/host/cuda.hpp.
#ifdef __CUDACC__
__device__ __forceinline__ void copy_one(double* shared, const double* global) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void copy_two(double* shared, const double* global) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void copied() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// What is started after this is told apart: `copied_before_last` waits only for what was started before.
__device__ __forceinline__ void started() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ void copied_before_last() {
    asm volatile("cp.async.commit_group;\n\tcp.async.wait_group 1;" ::: "memory");
}
#endif

}  // namespace hpgmg
