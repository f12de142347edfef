/* One source for GPUs and for CPUs: nvcc compiles kernels; the host's C++ compiler (-std=c++20 -DSHMEMG_HOST_KERNELS -x c++) takes them as functions of
   host threads, one thread to a kernel here. */
#ifndef EXAMPLES_DEVICE_H
#define EXAMPLES_DEVICE_H

#include <shmemg.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

/* Ends the job if a call of the program has failed. */
static void need(bool so, const char *what) {
    if (so) return;
    fprintf(stderr, "PE %d: %s\n", shmem_my_pe(), what);
    shmem_global_exit(1);
}

#if defined(__CUDACC__)
#define KERNEL __global__
#define LAUNCH(kernel, ...)                                                                   \
    do {                                                                                      \
        kernel<<<264, 256>>>(__VA_ARGS__);                                                    \
        const cudaError_t error = cudaDeviceSynchronize();                                    \
        need(error == cudaSuccess, cudaGetErrorString(error));                                \
    } while (0)
#else
#include <mp/host/launch.hpp>
#define KERNEL static
#define LAUNCH(kernel, ...) mp::host::launch(1, 1, kernel, __VA_ARGS__)
#endif

/* The number of this thread among all of its kernel, and how many there are. */
MP_DEVICE long first_index() { return (long)mp::block_rank() * mp::block_threads() + mp::thread_rank(); }
MP_DEVICE long index_step() { return (long)mp::grid_blocks() * mp::block_threads(); }

static void start(void) {
    int provided = 0;
    shmem_init_thread(SHMEM_THREAD_SINGLE | SHMEM_DEVICE_HOST_INIT | SHMEM_DEVICE_KERNEL_INIT, &provided);
    need((provided & SHMEM_DEVICE_KERNEL_INIT) != 0, "kernels cannot communicate here");
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A number of the command line from `least` on, or what there is without one. */
static long argument(int count, char **words, int which, long otherwise, long least) {
    if (which >= count) return otherwise;
    char *end = nullptr;
    const long value = strtol(words[which], &end, 10);
    if (*words[which] == 0 || *end != 0 || value < least) {
        fprintf(stderr, "argument %d is '%s', expected a number from %ld on\n", which, words[which], least);
        shmem_global_exit(2);
    }
    return value;
}

/* Symmetric memory of the device, all zero. */
template <class T>
static T *device(long count) {
    T *memory = (T *)shmemg_calloc((size_t)count, sizeof(T));
    need(memory != nullptr, "the heap on the device is too small: set SHMEM_DEVICE_SYMMETRIC_SIZE");
    return memory;
}

#endif
