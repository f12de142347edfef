/*
 * For porting: CUDA programs that use the common part of NVSHMEM's interface compile with this header and run on libmp. Each name is a
 * function of shmem.h or shmemg.h by NVSHMEM's name, or a few of them. It is no implementation of NVSHMEM, whose other names are not here,
 * and claims no conformance to its documentation. No relocatable device code (`-rdc`) is needed.
 *
 * Functions that begin with nvshmem_ may be called by the host and in kernels, where both make sense. The GPU is chosen as by
 * shmem_init_thread. Private memory is good enough as the source of a put and the target of a get. On a stream copies go by the GPU's copy
 * engines where the other PE's memory is mapped, and have happened when the stream comes to what is behind them, for all PEs behind a
 * barrier.
 */
#ifndef NVSHMEM_H
#define NVSHMEM_H

/* Programs count on this one. */
#include <assert.h>
#include <stdlib.h>

#include <shmemg.h>

#if defined(__CUDACC__)
#define NVSHMEM_BOTH static inline __host__ __device__
#define NVSHMEM_KERNEL static inline __device__
#if defined(__CUDA_ARCH__)
#define NVSHMEM_HERE(in_kernel, on_host, ...) in_kernel(__VA_ARGS__)
#else
#define NVSHMEM_HERE(in_kernel, on_host, ...) on_host(__VA_ARGS__)
#endif
#elif defined(SHMEMG_HOST_KERNELS)
#define NVSHMEM_BOTH static inline
#define NVSHMEM_KERNEL static inline
/* A thread of a kernel, or of the host. */
#define NVSHMEM_HERE(in_kernel, on_host, ...) \
    (mp::host::this_thread.block != nullptr ? in_kernel(__VA_ARGS__) : on_host(__VA_ARGS__))
/* Here a stream has done everything when a call returns. */
typedef void *cudaStream_t;
#else
#error "nvshmem.h is for CUDA compilers, or for the host's with SHMEMG_HOST_KERNELS"
#endif

typedef shmem_team_t nvshmem_team_t;
#define NVSHMEM_TEAM_INVALID SHMEM_TEAM_INVALID
#define NVSHMEM_TEAM_WORLD SHMEM_DEVICE_TEAM_WORLD
#define NVSHMEM_TEAM_SHARED SHMEM_DEVICE_TEAM_SHARED
#define NVSHMEMX_TEAM_NODE SHMEM_TEAM_SHARED

#define NVSHMEM_SIGNAL_SET SHMEM_SIGNAL_SET
#define NVSHMEM_SIGNAL_ADD SHMEM_SIGNAL_ADD
#define NVSHMEM_CMP_EQ SHMEM_CMP_EQ
#define NVSHMEM_CMP_NE SHMEM_CMP_NE
#define NVSHMEM_CMP_GT SHMEM_CMP_GT
#define NVSHMEM_CMP_GE SHMEM_CMP_GE
#define NVSHMEM_CMP_LT SHMEM_CMP_LT
#define NVSHMEM_CMP_LE SHMEM_CMP_LE

/* ---- start and end ------------------------------------------------------------------------------------------------ */

/* The launcher says who the PEs are, whatever the communicator: those of MPI_COMM_WORLD. */
#define NVSHMEMX_INIT_WITH_MPI_COMM (1 << 1)
typedef struct {
    void *mpi_comm;
} nvshmemx_init_attr_t;
#define NVSHMEMX_INIT_ATTR_INITIALIZER {nullptr}

static inline void nvshmem_init() {
    const int asked = SHMEM_THREAD_MULTIPLE | SHMEM_DEVICE_HOST_INIT | SHMEM_DEVICE_KERNEL_INIT;
    const char *size = getenv("NVSHMEM_SYMMETRIC_SIZE");
    if (size != nullptr) setenv("SHMEM_DEVICE_SYMMETRIC_SIZE", size, 0);
    int provided = 0;
    if (shmem_init_thread(asked, &provided) != 0 || (provided & asked) != asked) shmem_global_exit(1);
}
static inline int nvshmemx_init_attr(unsigned, nvshmemx_init_attr_t *) {
    nvshmem_init();
    return 0;
}
static inline void nvshmem_finalize() { shmem_finalize(); }
static inline void nvshmem_global_exit(int status) { shmem_global_exit(status); }
NVSHMEM_BOTH int nvshmem_my_pe() { return NVSHMEM_HERE(shmemg_my_pe, shmem_my_pe); }
NVSHMEM_BOTH int nvshmem_n_pes() { return NVSHMEM_HERE(shmemg_n_pes, shmem_n_pes); }
static inline int nvshmem_team_my_pe(nvshmem_team_t team) { return shmem_team_my_pe(team); }
static inline int nvshmem_team_n_pes(nvshmem_team_t team) { return shmem_team_n_pes(team); }

static inline void *nvshmem_malloc(size_t bytes) { return shmemg_malloc(bytes); }
static inline void *nvshmem_calloc(size_t count, size_t bytes) { return shmemg_calloc(count, bytes); }
static inline void *nvshmem_align(size_t alignment, size_t bytes) { return shmemg_align(alignment, bytes); }
static inline void nvshmem_free(void *memory) { shmemg_free(memory); }
NVSHMEM_BOTH void *nvshmem_ptr(const void *dest, int pe) { return NVSHMEM_HERE(shmemg_ptr, shmem_ptr, dest, pe); }

/* ---- order -------------------------------------------------------------------------------------------------------- */

NVSHMEM_BOTH void nvshmem_fence() { NVSHMEM_HERE(shmemg_fence, shmem_fence); }
NVSHMEM_BOTH void nvshmem_quiet() { NVSHMEM_HERE(shmemg_quiet, shmem_quiet); }
NVSHMEM_BOTH void nvshmem_sync_all() { NVSHMEM_HERE(shmemg_sync_all, shmem_sync_all); }
NVSHMEM_KERNEL void nvshmem_barrier_of_thread() { mp::shmem::barrier_all(mp::thread(), shmemg_world); }
NVSHMEM_KERNEL void nvshmemx_barrier_all_warp() { mp::shmem::barrier_all(mp::warp(), shmemg_world); }
NVSHMEM_KERNEL void nvshmemx_barrier_all_block() { mp::shmem::barrier_all(mp::block(), shmemg_world); }
NVSHMEM_BOTH void nvshmem_barrier_all() { NVSHMEM_HERE(nvshmem_barrier_of_thread, shmem_barrier_all); }
NVSHMEM_KERNEL void nvshmemx_sync_all_block() { shmemg_sync_all_tg(); }
NVSHMEM_KERNEL void nvshmemx_sync_all_warp() { shmemg_sync_all_htg(); }

/* ---- puts and gets, by bytes -------------------------------------------------------------------------------------- */

/* A kernel's copy within its own PE, whose memory may be any that it reaches: programs compute alone with the kernels that they compute together with. A group
   meets before any copy: programs have its threads write what it then puts. */
template <class Group>
NVSHMEM_KERNEL bool nvshmem_copied_here(Group group, void *dest, const void *source, size_t bytes, int pe) {
    group.sync();
    if (pe != shmemg_my_pe()) return false;
    mp::copy(group, dest, source, bytes);
    group.sync();
    return true;
}

#define NVSHMEM_COPY(name) \
    NVSHMEM_KERNEL void nvshmem_kernel_##name(void *dest, const void *source, size_t bytes, int pe) { \
        if (!nvshmem_copied_here(mp::thread(), dest, source, bytes, pe)) shmemg_##name(dest, source, bytes, pe); \
    } \
    NVSHMEM_BOTH void nvshmem_##name(void *dest, const void *source, size_t bytes, int pe) { \
        NVSHMEM_HERE(nvshmem_kernel_##name, shmem_##name, dest, source, bytes, pe); \
    } \
    NVSHMEM_KERNEL void nvshmemx_##name##_block(void *dest, const void *source, size_t bytes, int pe) { \
        if (!nvshmem_copied_here(mp::block(), dest, source, bytes, pe)) shmemg_##name##_tg(dest, source, bytes, pe); \
    } \
    NVSHMEM_KERNEL void nvshmemx_##name##_warp(void *dest, const void *source, size_t bytes, int pe) { \
        if (!nvshmem_copied_here(mp::warp(), dest, source, bytes, pe)) shmemg_##name##_htg(dest, source, bytes, pe); \
    }
NVSHMEM_COPY(putmem)
NVSHMEM_COPY(putmem_nbi)
NVSHMEM_COPY(getmem)
NVSHMEM_COPY(getmem_nbi)
#undef NVSHMEM_COPY

/* ---- signals ------------------------------------------------------------------------------------------------------ */

#define NVSHMEM_PUT_SIGNAL(name) \
    NVSHMEM_BOTH void nvshmem_##name(void *dest, const void *source, size_t bytes, uint64_t *signal, uint64_t value, int op, int pe) { \
        NVSHMEM_HERE(shmemg_##name, shmem_##name, dest, source, bytes, signal, value, op, pe); \
    } \
    NVSHMEM_KERNEL void nvshmemx_##name##_block(void *dest, const void *source, size_t bytes, uint64_t *signal, uint64_t value, \
                                                int op, int pe) { \
        shmemg_##name##_tg(dest, source, bytes, signal, value, op, pe); \
    } \
    NVSHMEM_KERNEL void nvshmemx_##name##_warp(void *dest, const void *source, size_t bytes, uint64_t *signal, uint64_t value, \
                                               int op, int pe) { \
        shmemg_##name##_htg(dest, source, bytes, signal, value, op, pe); \
    }
NVSHMEM_PUT_SIGNAL(putmem_signal)
NVSHMEM_PUT_SIGNAL(putmem_signal_nbi)
#undef NVSHMEM_PUT_SIGNAL

NVSHMEM_KERNEL void nvshmemx_signal_op(uint64_t *signal, uint64_t value, int op, int pe) {
    mp::shmem::signal_op(mp::thread(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, signal, value, op, pe);
}
NVSHMEM_BOTH uint64_t nvshmem_signal_fetch(const uint64_t *signal) {
    return NVSHMEM_HERE(shmemg_signal_fetch, shmem_signal_fetch, signal);
}
NVSHMEM_BOTH uint64_t nvshmem_signal_wait_until(uint64_t *signal, int comparison, uint64_t value) {
    return NVSHMEM_HERE(shmemg_signal_wait_until, shmem_signal_wait_until, signal, comparison, value);
}

/* ---- by type ------------------------------------------------------------------------------------------------------ */

#define NVSHMEM_GROUPS(NAME, TYPE, name, bytes) \
    NVSHMEM_BOTH void nvshmem_##NAME##_##name(TYPE *dest, const TYPE *source, size_t count, int pe) { \
        nvshmem_##bytes(dest, source, count * sizeof(TYPE), pe); \
    } \
    NVSHMEM_KERNEL void nvshmemx_##NAME##_##name##_block(TYPE *dest, const TYPE *source, size_t count, int pe) { \
        nvshmemx_##bytes##_block(dest, source, count * sizeof(TYPE), pe); \
    } \
    NVSHMEM_KERNEL void nvshmemx_##NAME##_##name##_warp(TYPE *dest, const TYPE *source, size_t count, int pe) { \
        nvshmemx_##bytes##_warp(dest, source, count * sizeof(TYPE), pe); \
    }
#define NVSHMEM_RMA(NAME, TYPE) \
    NVSHMEM_KERNEL void nvshmem_kernel_##NAME##_p(TYPE *dest, TYPE value, int pe) { \
        if (pe == shmemg_my_pe()) \
            *dest = value; \
        else \
            shmemg_##NAME##_p(dest, value, pe); \
    } \
    NVSHMEM_BOTH void nvshmem_##NAME##_p(TYPE *dest, TYPE value, int pe) { \
        NVSHMEM_HERE(nvshmem_kernel_##NAME##_p, shmem_##NAME##_p, dest, value, pe); \
    } \
    NVSHMEM_KERNEL TYPE nvshmem_kernel_##NAME##_g(const TYPE *source, int pe) { \
        return pe == shmemg_my_pe() ? *(const volatile TYPE *)source : shmemg_##NAME##_g(source, pe); \
    } \
    NVSHMEM_BOTH TYPE nvshmem_##NAME##_g(const TYPE *source, int pe) { \
        return NVSHMEM_HERE(nvshmem_kernel_##NAME##_g, shmem_##NAME##_g, source, pe); \
    } \
    NVSHMEM_GROUPS(NAME, TYPE, put, putmem) \
    NVSHMEM_GROUPS(NAME, TYPE, put_nbi, putmem_nbi) \
    NVSHMEM_GROUPS(NAME, TYPE, get, getmem) \
    NVSHMEM_GROUPS(NAME, TYPE, get_nbi, getmem_nbi)
/* Integers of 32 and 64 bits. */
#define NVSHMEM_WORD(NAME, TYPE) \
    NVSHMEM_RMA(NAME, TYPE) \
    NVSHMEM_BOTH void nvshmem_##NAME##_wait_until(TYPE *word, int comparison, TYPE value) { \
        NVSHMEM_HERE(shmemg_##NAME##_wait_until, shmem_##NAME##_wait_until, word, comparison, value); \
    } \
    NVSHMEM_KERNEL void nvshmem_##NAME##_wait_until_all(TYPE *words, size_t count, const int *status, int comparison, TYPE value) { \
        mp::shmem::wait_until_all(mp::thread(), shmemg_world, words, count, status, comparison, value); \
    } \
    NVSHMEM_BOTH int nvshmem_##NAME##_test(TYPE *word, int comparison, TYPE value) { \
        return NVSHMEM_HERE(shmemg_##NAME##_test, shmem_##NAME##_test, word, comparison, value); \
    } \
    NVSHMEM_BOTH TYPE nvshmem_##NAME##_atomic_fetch(const TYPE *source, int pe) { \
        return NVSHMEM_HERE(shmemg_##NAME##_atomic_fetch, shmem_##NAME##_atomic_fetch, source, pe); \
    } \
    NVSHMEM_BOTH void nvshmem_##NAME##_atomic_set(TYPE *dest, TYPE value, int pe) { \
        NVSHMEM_HERE(shmemg_##NAME##_atomic_set, shmem_##NAME##_atomic_set, dest, value, pe); \
    } \
    NVSHMEM_BOTH void nvshmem_##NAME##_atomic_add(TYPE *dest, TYPE value, int pe) { \
        NVSHMEM_HERE(shmemg_##NAME##_atomic_add, shmem_##NAME##_atomic_add, dest, value, pe); \
    } \
    NVSHMEM_BOTH void nvshmem_##NAME##_atomic_inc(TYPE *dest, int pe) { \
        NVSHMEM_HERE(shmemg_##NAME##_atomic_inc, shmem_##NAME##_atomic_inc, dest, pe); \
    } \
    NVSHMEM_BOTH TYPE nvshmem_##NAME##_atomic_fetch_add(TYPE *dest, TYPE value, int pe) { \
        return NVSHMEM_HERE(shmemg_##NAME##_atomic_fetch_add, shmem_##NAME##_atomic_fetch_add, dest, value, pe); \
    } \
    NVSHMEM_BOTH TYPE nvshmem_##NAME##_atomic_fetch_inc(TYPE *dest, int pe) { \
        return NVSHMEM_HERE(shmemg_##NAME##_atomic_fetch_inc, shmem_##NAME##_atomic_fetch_inc, dest, pe); \
    } \
    NVSHMEM_BOTH TYPE nvshmem_##NAME##_atomic_swap(TYPE *dest, TYPE value, int pe) { \
        return NVSHMEM_HERE(shmemg_##NAME##_atomic_swap, shmem_##NAME##_atomic_swap, dest, value, pe); \
    } \
    NVSHMEM_BOTH TYPE nvshmem_##NAME##_atomic_compare_swap(TYPE *dest, TYPE expected, TYPE value, int pe) { \
        return NVSHMEM_HERE(shmemg_##NAME##_atomic_compare_swap, shmem_##NAME##_atomic_compare_swap, dest, expected, value, pe); \
    }
#define NVSHMEM_WORDS(X) \
    X(int, int) X(long, long) X(longlong, long long) X(uint, unsigned) X(ulong, unsigned long) X(ulonglong, unsigned long long) \
    X(int32, int32_t) X(int64, int64_t) X(uint32, uint32_t) X(uint64, uint64_t) X(size, size_t)
#define NVSHMEM_OTHERS(X) \
    X(float, float) X(double, double) X(char, char) X(schar, signed char) X(short, short) X(uchar, unsigned char) \
    X(ushort, unsigned short) X(int8, int8_t) X(int16, int16_t) X(uint8, uint8_t) X(uint16, uint16_t)
NVSHMEM_WORDS(NVSHMEM_WORD)
NVSHMEM_OTHERS(NVSHMEM_RMA)

/* ---- collectives of the host, on memory of the host and of the GPU ------------------------------------------------- */

#define NVSHMEM_REDUCTIONS(NAME, TYPE) \
    static inline int nvshmem_##NAME##_sum_reduce(nvshmem_team_t team, TYPE *dest, const TYPE *source, size_t count) { \
        return shmem_##NAME##_sum_reduce(team, dest, source, count); \
    } \
    static inline int nvshmem_##NAME##_min_reduce(nvshmem_team_t team, TYPE *dest, const TYPE *source, size_t count) { \
        return shmem_##NAME##_min_reduce(team, dest, source, count); \
    } \
    static inline int nvshmem_##NAME##_max_reduce(nvshmem_team_t team, TYPE *dest, const TYPE *source, size_t count) { \
        return shmem_##NAME##_max_reduce(team, dest, source, count); \
    }
NVSHMEM_WORDS(NVSHMEM_REDUCTIONS)
NVSHMEM_REDUCTIONS(float, float)
NVSHMEM_REDUCTIONS(double, double)
#undef NVSHMEM_REDUCTIONS
static inline int nvshmem_team_sync(nvshmem_team_t team) { return shmem_team_sync(team); }
static inline int nvshmem_broadcastmem(nvshmem_team_t team, void *dest, const void *source, size_t bytes, int root) {
    return shmem_broadcastmem(team, dest, source, bytes, root);
}
static inline int nvshmem_fcollectmem(nvshmem_team_t team, void *dest, const void *source, size_t bytes) {
    return shmem_fcollectmem(team, dest, source, bytes);
}
static inline int nvshmem_alltoallmem(nvshmem_team_t team, void *dest, const void *source, size_t bytes) {
    return shmem_alltoallmem(team, dest, source, bytes);
}

/* ---- on streams --------------------------------------------------------------------------------------------------- */

#if defined(__CUDACC__)
#define NVSHMEM_ON(stream, kernel, ...) kernel<0><<<1, 32, 0, stream>>>(__VA_ARGS__)
#define NVSHMEM_STREAM_KERNEL template <int> __global__
#else
#define NVSHMEM_ON(stream, kernel, ...) ((void)(stream), kernel<0>(__VA_ARGS__))
#define NVSHMEM_STREAM_KERNEL template <int>
#endif

namespace {

/* Of one block. */
NVSHMEM_STREAM_KERNEL void nvshmem_meet(nvshmem_team_t team, bool quiet) {
    if (quiet) shmemg_quiet_tg();
    shmemg_team_sync_tg(team);
}
NVSHMEM_STREAM_KERNEL void nvshmem_be_quiet(int) { shmemg_quiet_tg(); }
NVSHMEM_STREAM_KERNEL void nvshmem_put_far(void *dest, const void *source, size_t bytes, int pe) {
    shmemg_putmem_tg(dest, source, bytes, pe);
    shmemg_quiet_tg();
}
NVSHMEM_STREAM_KERNEL void nvshmem_get_far(void *dest, const void *source, size_t bytes, int pe) {
    shmemg_getmem_tg(dest, source, bytes, pe);
}
NVSHMEM_STREAM_KERNEL void nvshmem_raise(uint64_t *signal, uint64_t value, int op, int pe) {
    mp::shmem::signal_op(mp::block(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, signal, value, op, pe);
}
NVSHMEM_STREAM_KERNEL void nvshmem_await(uint64_t *signal, int comparison, uint64_t value) {
    (void)shmemg_signal_wait_until_tg(signal, comparison, value);
}

/* Between memory that is mapped here. */
inline void nvshmem_copy_on(void *to, const void *from, size_t bytes, cudaStream_t stream) {
#if defined(__CUDACC__)
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
#else
    (void)stream;
    std::memmove(to, from, bytes);
#endif
}

}  // namespace

static inline void nvshmemx_barrier_on_stream(nvshmem_team_t team, cudaStream_t stream) { NVSHMEM_ON(stream, nvshmem_meet, team, true); }
static inline void nvshmemx_barrier_all_on_stream(cudaStream_t stream) { nvshmemx_barrier_on_stream(NVSHMEM_TEAM_WORLD, stream); }
static inline int nvshmemx_team_sync_on_stream(nvshmem_team_t team, cudaStream_t stream) {
    NVSHMEM_ON(stream, nvshmem_meet, team, false);
    return 0;
}
static inline void nvshmemx_sync_all_on_stream(cudaStream_t stream) { (void)nvshmemx_team_sync_on_stream(NVSHMEM_TEAM_WORLD, stream); }
static inline void nvshmemx_quiet_on_stream(cudaStream_t stream) { NVSHMEM_ON(stream, nvshmem_be_quiet, 0); }
static inline void nvshmemx_putmem_on_stream(void *dest, const void *source, size_t bytes, int pe, cudaStream_t stream) {
    void *there = shmem_ptr(dest, pe);
    if (there != nullptr)
        nvshmem_copy_on(there, source, bytes, stream);
    else
        NVSHMEM_ON(stream, nvshmem_put_far, dest, source, bytes, pe);
}
static inline void nvshmemx_getmem_on_stream(void *dest, const void *source, size_t bytes, int pe, cudaStream_t stream) {
    const void *there = shmem_ptr(source, pe);
    if (there != nullptr)
        nvshmem_copy_on(dest, there, bytes, stream);
    else
        NVSHMEM_ON(stream, nvshmem_get_far, dest, source, bytes, pe);
}
static inline void nvshmemx_signal_op_on_stream(uint64_t *signal, uint64_t value, int op, int pe, cudaStream_t stream) {
    NVSHMEM_ON(stream, nvshmem_raise, signal, value, op, pe);
}
static inline void nvshmemx_signal_wait_until_on_stream(uint64_t *signal, int comparison, uint64_t value, cudaStream_t stream) {
    NVSHMEM_ON(stream, nvshmem_await, signal, comparison, value);
}
static inline void nvshmemx_putmem_signal_on_stream(void *dest, const void *source, size_t bytes, uint64_t *signal, uint64_t value, int op,
                                                    int pe, cudaStream_t stream) {
    nvshmemx_putmem_on_stream(dest, source, bytes, pe, stream);
    nvshmemx_signal_op_on_stream(signal, value, op, pe, stream);
}
/* What a PE gets is there when its stream comes to what is behind it. */
static inline int nvshmemx_alltoallmem_on_stream(nvshmem_team_t team, void *dest, const void *source, size_t bytes, cudaStream_t stream) {
    const int me = shmem_team_my_pe(team), pes = shmem_team_n_pes(team);
    if (me < 0) return -1;
    for (int turn = 0; turn < pes; ++turn) {
        const int pe = (me + turn) % pes;
        nvshmemx_putmem_on_stream((char *)dest + me * bytes, (const char *)source + pe * bytes, bytes,
                                  shmem_team_translate_pe(team, pe, SHMEM_TEAM_WORLD), stream);
    }
    nvshmemx_barrier_on_stream(team, stream);
    return 0;
}
#define NVSHMEM_STREAM(NAME, TYPE) \
    static inline void nvshmemx_##NAME##_put_on_stream(TYPE *dest, const TYPE *source, size_t count, int pe, cudaStream_t stream) { \
        nvshmemx_putmem_on_stream(dest, source, count * sizeof(TYPE), pe, stream); \
    } \
    static inline void nvshmemx_##NAME##_get_on_stream(TYPE *dest, const TYPE *source, size_t count, int pe, cudaStream_t stream) { \
        nvshmemx_getmem_on_stream(dest, source, count * sizeof(TYPE), pe, stream); \
    }
NVSHMEM_WORDS(NVSHMEM_STREAM)
NVSHMEM_OTHERS(NVSHMEM_STREAM)
#undef NVSHMEM_STREAM

/* ---- launches ----------------------------------------------------------------------------------------------------- */

#if defined(__CUDACC__)
/* Kernels in which PEs wait for each other: all blocks run at once. Gives what CUDA does. */
static inline int nvshmemx_collective_launch_query_gridsize(const void *kernel, dim3 block, void **, size_t shared, int *grid) {
    int device = 0, multiprocessors = 0, each = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, (int)(block.x * block.y * block.z), shared);
    *grid = multiprocessors * each;
    return (int)error;
}
static inline int nvshmemx_collective_launch(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    return (int)cudaLaunchCooperativeKernel(kernel, grid, block, arguments, shared, stream);
}
#endif

#undef NVSHMEM_ON
#undef NVSHMEM_STREAM_KERNEL
#undef NVSHMEM_RMA
#undef NVSHMEM_WORD
#undef NVSHMEM_GROUPS
#undef NVSHMEM_WORDS
#undef NVSHMEM_OTHERS
#undef NVSHMEM_KERNEL
#undef NVSHMEM_BOTH
#undef NVSHMEM_HERE
#endif /* NVSHMEM_H */
