/*
 * OpenSHMEM for GPUs on libmp: the draft "OpenSHMEM Auxiliary Specification for GPU Support" 0.1, for C, C++ and CUDA. Functions for the host are
 * in the library. Those for kernels are below, over the device headers of libmp, which are installed beside this one; a CUDA file that
 * includes it tells the library of itself before `main`, and shmem_init_thread then tells its kernels which PE they are of. With
 * SHMEMG_HOST_KERNELS defined, the host's C++20 compiler takes kernels, too, whose threads are then the host's (mp::host::launch).
 * Made from api/device.txt by the build script of mp-shmem: change that.
 */
#ifndef SHMEMG_H
#define SHMEMG_H

#include <shmem.h>

/* What shmem_init_thread is asked for, beside the level of threads: calls of the host on memory of the device, calls of kernels. */
#define SHMEM_DEVICE_HOST_INIT (1 << 8)
#define SHMEM_DEVICE_KERNEL_INIT (1 << 9)

/* A context for kernels. */
#define SHMEM_DEVICE_CTX (1L << 8)

/* Memory of the heap on the device, from shmem_malloc_with_hints. It is as good for either use. */
#define SHMEM_DEVICE_MALLOC_HOST_INIT (1L << 8)
#define SHMEM_DEVICE_MALLOC_KERNEL_INIT (1L << 9)

#define SHMEM_DEVICE_CTX_DEFAULT ((shmem_ctx_t)2)
#define SHMEM_DEVICE_TEAM_WORLD ((shmem_team_t)3)
#define SHMEM_DEVICE_TEAM_SHARED ((shmem_team_t)4)

/* A module with kernels: whether these are threads of the host, and how to write the `bytes` bytes that they know of their PE, which gives
   0 or what is wrong. It stays where it is. */
struct shmemg_module {
    int on_host;
    size_t bytes;
    int (*tell)(const void *world);
};

#ifdef __cplusplus
extern "C" {
#endif
