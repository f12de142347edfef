/*
 * What libmp has beside OpenSHMEM: memory that a program has allocated by itself, on the host, by CUDA or by OpenCL, made symmetric.
 * Made from api/extensions.txt by the build script of mp-shmem: change that.
 */
#ifndef SHMEMX_H
#define SHMEMX_H

#include <shmem.h>

/* What memory is. */
#define OSHM_MEMTYPE_HOST 0
#define OSHM_MEMTYPE_CUDA 1
#define OSHM_MEMTYPE_OPENCL 2

/*
 * shmmap is called by all PEs, each with as many bytes of its own. The address that it gives stands for the memory in all calls, as
 * one of shmem_malloc; in kernels it does not. Memory of the host is made shared in its place, in whole pages: no other thread uses these
 * meanwhile, and forked processes share them from then on. Memory of CUDA is that of the GPU that the program has started with, which it asks
 * for by SHMEM_DEVICE_HOST_INIT. Of OpenCL obj is a cl_mem, a buffer that kernels may write; the address stands for it in puts, gets, waits and
 * collectives, not in atomic operations, signals and locks, and nothing is there for the program itself. It stays allocated until all PEs have called shmunmap, or the end.
 */
#ifdef __cplusplus
extern "C" {
#endif
