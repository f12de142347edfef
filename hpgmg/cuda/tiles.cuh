// Marching through the planes of a large level with tiles of them in shared memory, in rings of planes: one warp has whole tiles copied there
// (cp.async.bulk.tensor, PTX ISA), and warps wait for each other plane by plane, by barriers of their own. What a sweep (sweep.cuh) and
// a residual (residual.cuh) have in common. For GPUs of compute capability 9.0.
#pragma once
#include "pass.cuh"

namespace hpgmg {

// What tiles are copied from: CUtensorMap of the CUDA driver, by x and by the three coefficients.
struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};
struct TileMaps {
    TensorMap x, beta[3];
};

// On the host these are in tests/host/tiles.hpp.
#ifdef __CUDACC__
// Barriers in shared memory (mbarrier), by their addresses there.
__device__ __forceinline__ unsigned shared_at(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void bar_init(unsigned bar, int count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory"); }
// Barriers that have been initialised are seen by who copies.
__device__ __forceinline__ void bars_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void bar_expect(unsigned bar, int bytes) { asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory"); }
__device__ __forceinline__ void bar_arrive(unsigned bar) { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(bar) : "memory"); }
__device__ __forceinline__ void bar_wait(unsigned bar, int parity) {
    // It may be looked at again after so many nanoseconds.
    constexpr int LONG = 10000000;
    asm volatile("{\n.reg .pred p;\nW: mbarrier.try_wait.parity.shared.b64 p, [%0], %1, %2;\n@p bra D;\nbra W;\nD:\n}" ::"r"(bar),
                 "r"(parity), "r"(LONG)
                 : "memory");
}
// Copies the tile at those coordinates.
__device__ __forceinline__ void copy_tile(unsigned to, const TensorMap* map, int x, int y, int z, unsigned bar) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to), "l"(map),
                 "r"(x), "r"(y), "r"(z), "r"(bar) : "memory");
}
__device__ __forceinline__ void copy_tile(unsigned to, const TensorMap* map, int x, int c, int y, int z, unsigned bar) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(to), "l"(map),
                 "r"(x), "r"(c), "r"(y), "r"(z), "r"(bar) : "memory");
}
// What this thread has stored in shared memory comes before copies that are started afterwards.
__device__ __forceinline__ void to_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// What others have stored in this GPU's memory, and this thread knows of, comes before copies that it starts afterwards.
__device__ __forceinline__ void from_others() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// So many threads meet.
template <int ID, int COUNT>
__device__ __forceinline__ void meet() { asm volatile("bar.sync %0, %1;" ::"n"(ID), "n"(COUNT) : "memory"); }
// The shared memory that a launch asks for.
#define HPGMG_TILES_SHARED(name) extern __shared__ __align__(128) double name[]
#endif
// Kernels that copy tiles have a body for the GPUs that can.
#if !defined(__CUDACC__) || __CUDA_ARCH__ >= 900
#define HPGMG_BY_TILES(...) __VA_ARGS__
#else
#define HPGMG_BY_TILES(...)
#endif

// Where plane k lies in what tile maps are of: a rank's planes with those around them.
__device__ __forceinline__ int in_maps(const Pass& pass, int k) { return k + GHOSTS - pass.before; }

template <int PLANES, int SIZE>
__device__ __forceinline__ double* in_ring(double* ring, int k) { return ring + static_cast<unsigned>(k + 4 * PLANES) % PLANES * SIZE; }

// Where planes lie in a ring, in bytes of shared memory: those from k + FROM on.
template <int COUNT, int FROM, int PLANE>
struct Turning {
    int at[COUNT];
    __device__ __forceinline__ Turning(int ring, int planes, int k) {
#pragma unroll
        for (int m = 0; m < COUNT; m++) at[m] = 8 * ring + 8 * PLANE * (static_cast<unsigned>(k + FROM + m + 4 * planes) % planes);
    }
    __device__ __forceinline__ int operator[](int dk) const { return at[dk - FROM]; }
    __device__ __forceinline__ void next(int ring, int planes) {
#pragma unroll
        for (int m = 0; m + 1 < COUNT; m++) at[m] = at[m + 1];
        at[COUNT - 1] += 8 * PLANE;
        if (at[COUNT - 1] == 8 * (ring + planes * PLANE)) at[COUNT - 1] = 8 * ring;
    }
};

// Barriers of planes, eight in turn for each of the things that are waited for, and the plane that has the first one.
struct PlaneBarriers {
    unsigned at;
    int first;
    static constexpr int BYTES = 64;  // for each thing

    __device__ __forceinline__ unsigned of(int which, int k) const { return at + BYTES * which + 8 * ((k - first) & 7); }
    __device__ __forceinline__ void wait(int which, int k) const { bar_wait(of(which, k), (k - first) >> 3 & 1); }
    __device__ __forceinline__ void arrive(int which, int k) const { bar_arrive(of(which, k)); }
    // So many arrive. By one thread, before any waits.
    __device__ __forceinline__ void init(int which, int count) const {
        for (int m = 0; m < 8; m++) bar_init(at + BYTES * which + 8 * m, count);
    }
};
}  // namespace hpgmg
