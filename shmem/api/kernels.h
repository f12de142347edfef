
#ifdef __cplusplus
}
#endif

#if defined(__CUDACC__) || defined(SHMEMG_HOST_KERNELS)

#include <cstring>

#include <mp/shmem.cuh>

/* What the kernels of this file know of their PE. */
#if defined(__CUDACC__)
#define SHMEMG_KERNEL static __device__ __forceinline__
static __constant__ __attribute__((unused)) mp::ShmemWorld shmemg_world;
static int shmemg_tell(const void *world) { return (int)cudaMemcpyToSymbol(shmemg_world, world, sizeof(mp::ShmemWorld)); }
#else
#define SHMEMG_KERNEL static inline
static mp::ShmemWorld shmemg_world;
static int shmemg_tell(const void *world) { return std::memcpy(&shmemg_world, world, sizeof shmemg_world) == nullptr; }
#endif
namespace {
struct shmemg_told {
    shmemg_module module;
#if defined(__CUDACC__)
    shmemg_told() : module{0, sizeof(mp::ShmemWorld), shmemg_tell} { shmemg_add_module(&module); }
#else
    shmemg_told() : module{1, sizeof(mp::ShmemWorld), shmemg_tell} { shmemg_add_module(&module); }
#endif
};
__attribute__((unused)) shmemg_told shmemg_this_file;
}  // namespace
