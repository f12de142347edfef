/* Kernels of the test programs, which run on GPUs and, as threads, on the host. */
#include <shmemg.h>

#include "check.h"

#if defined(__CUDACC__)
/* Waits until what is on streams has happened. */
inline void finish_streams(void) { CHECK(cudaDeviceSynchronize() == cudaSuccess); }
#define LAUNCH(kernel, blocks, threads, ...)      \
    do {                                          \
        kernel<<<blocks, threads>>>(__VA_ARGS__); \
        finish_streams();                         \
    } while (0)
#else
#include <mp/host/launch.hpp>
inline void finish_streams(void) {}
#define __global__ static
#define LAUNCH(kernel, blocks, threads, ...) mp::host::launch(blocks, threads, kernel, __VA_ARGS__)
#endif

/* Starts with all that there is for devices. */
inline void start_with_device(void) {
    const int support = SHMEM_DEVICE_HOST_INIT | SHMEM_DEVICE_KERNEL_INIT;
    int provided = 0, known = 0;
    CHECK(shmem_init_thread(SHMEM_THREAD_MULTIPLE | support, &provided) == 0);
    CHECK(provided == (SHMEM_THREAD_MULTIPLE | support));
    shmem_query_thread(&known);
    CHECK(known == provided);
}

/* Memory of the device's heap, as the host writes and reads it. */
template <class T>
static T held(const T *at) {
    T value;
    shmem_getmem(&value, at, sizeof value, shmem_my_pe());
    return value;
}
template <class T>
static void hold(T *at, T value) {
    shmem_putmem(at, &value, sizeof value, shmem_my_pe());
}
