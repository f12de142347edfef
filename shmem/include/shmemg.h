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

/* The symmetric heap on the device */
void *shmemg_malloc(size_t size);
void *shmemg_calloc(size_t count, size_t size);
void *shmemg_align(size_t alignment, size_t size);
void shmemg_free(void *ptr);

/* Modules with kernels, which tell of themselves */
void shmemg_add_module(struct shmemg_module *module);

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

/* Who this is */
SHMEMG_KERNEL int shmemg_my_pe(void) { return mp::shmem::my_pe(shmemg_world); }
SHMEMG_KERNEL int shmemg_n_pes(void) { return mp::shmem::n_pes(shmemg_world); }
SHMEMG_KERNEL void *shmemg_ptr(const void *dest, int pe) { return mp::shmem::ptr(shmemg_world, dest, pe); }

/* Puts and gets */
SHMEMG_KERNEL void shmemg_putmem(void *dest, const void *source, size_t nelems, int pe) { mp::shmem::put(mp::thread(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_putmem_tg(void *dest, const void *source, size_t nelems, int pe) { mp::shmem::put(mp::block(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_putmem_htg(void *dest, const void *source, size_t nelems, int pe) { mp::shmem::put(mp::warp(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_ctx_putmem(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, int pe) { mp::shmem::put(mp::thread(), shmemg_world, ctx, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_ctx_putmem_tg(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, int pe) { mp::shmem::put(mp::block(), shmemg_world, ctx, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_ctx_putmem_htg(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, int pe) { mp::shmem::put(mp::warp(), shmemg_world, ctx, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_putmem_nbi(void *dest, const void *source, size_t nelems, int pe) { mp::shmem::put_nbi(mp::thread(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_putmem_nbi_tg(void *dest, const void *source, size_t nelems, int pe) { mp::shmem::put_nbi(mp::block(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_putmem_nbi_htg(void *dest, const void *source, size_t nelems, int pe) { mp::shmem::put_nbi(mp::warp(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_ctx_putmem_nbi(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, int pe) { mp::shmem::put_nbi(mp::thread(), shmemg_world, ctx, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_ctx_putmem_nbi_tg(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, int pe) { mp::shmem::put_nbi(mp::block(), shmemg_world, ctx, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_ctx_putmem_nbi_htg(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, int pe) { mp::shmem::put_nbi(mp::warp(), shmemg_world, ctx, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_getmem(void *dest, const void *source, size_t nelems, int pe) { mp::shmem::get(mp::thread(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_getmem_tg(void *dest, const void *source, size_t nelems, int pe) { mp::shmem::get(mp::block(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_getmem_htg(void *dest, const void *source, size_t nelems, int pe) { mp::shmem::get(mp::warp(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_ctx_getmem(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, int pe) { mp::shmem::get(mp::thread(), shmemg_world, ctx, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_ctx_getmem_tg(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, int pe) { mp::shmem::get(mp::block(), shmemg_world, ctx, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_ctx_getmem_htg(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, int pe) { mp::shmem::get(mp::warp(), shmemg_world, ctx, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_getmem_nbi(void *dest, const void *source, size_t nelems, int pe) { mp::shmem::get_nbi(mp::thread(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_getmem_nbi_tg(void *dest, const void *source, size_t nelems, int pe) { mp::shmem::get_nbi(mp::block(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_getmem_nbi_htg(void *dest, const void *source, size_t nelems, int pe) { mp::shmem::get_nbi(mp::warp(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_ctx_getmem_nbi(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, int pe) { mp::shmem::get_nbi(mp::thread(), shmemg_world, ctx, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_ctx_getmem_nbi_tg(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, int pe) { mp::shmem::get_nbi(mp::block(), shmemg_world, ctx, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_ctx_getmem_nbi_htg(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, int pe) { mp::shmem::get_nbi(mp::warp(), shmemg_world, ctx, dest, source, nelems, pe); }
SHMEMG_KERNEL void shmemg_float_p(float *dest, float value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_double_p(double *dest, double value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_char_p(char *dest, char value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_schar_p(signed char *dest, signed char value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_short_p(short *dest, short value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int_p(int *dest, int value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_long_p(long *dest, long value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_longlong_p(long long *dest, long long value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uchar_p(unsigned char *dest, unsigned char value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ushort_p(unsigned short *dest, unsigned short value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint_p(unsigned int *dest, unsigned int value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulong_p(unsigned long *dest, unsigned long value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_p(unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int8_p(int8_t *dest, int8_t value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int16_p(int16_t *dest, int16_t value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int32_p(int32_t *dest, int32_t value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int64_p(int64_t *dest, int64_t value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint8_p(uint8_t *dest, uint8_t value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint16_p(uint16_t *dest, uint16_t value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint32_p(uint32_t *dest, uint32_t value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint64_p(uint64_t *dest, uint64_t value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_size_p(size_t *dest, size_t value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ptrdiff_p(ptrdiff_t *dest, ptrdiff_t value, int pe) { mp::shmem::p(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_float_p(shmem_ctx_t ctx, float *dest, float value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_double_p(shmem_ctx_t ctx, double *dest, double value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_char_p(shmem_ctx_t ctx, char *dest, char value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_schar_p(shmem_ctx_t ctx, signed char *dest, signed char value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_short_p(shmem_ctx_t ctx, short *dest, short value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int_p(shmem_ctx_t ctx, int *dest, int value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_long_p(shmem_ctx_t ctx, long *dest, long value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_longlong_p(shmem_ctx_t ctx, long long *dest, long long value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uchar_p(shmem_ctx_t ctx, unsigned char *dest, unsigned char value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ushort_p(shmem_ctx_t ctx, unsigned short *dest, unsigned short value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_p(shmem_ctx_t ctx, unsigned int *dest, unsigned int value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_p(shmem_ctx_t ctx, unsigned long *dest, unsigned long value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_p(shmem_ctx_t ctx, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int8_p(shmem_ctx_t ctx, int8_t *dest, int8_t value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int16_p(shmem_ctx_t ctx, int16_t *dest, int16_t value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_p(shmem_ctx_t ctx, int32_t *dest, int32_t value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_p(shmem_ctx_t ctx, int64_t *dest, int64_t value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint8_p(shmem_ctx_t ctx, uint8_t *dest, uint8_t value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint16_p(shmem_ctx_t ctx, uint16_t *dest, uint16_t value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_p(shmem_ctx_t ctx, uint32_t *dest, uint32_t value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_p(shmem_ctx_t ctx, uint64_t *dest, uint64_t value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_size_p(shmem_ctx_t ctx, size_t *dest, size_t value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ptrdiff_p(shmem_ctx_t ctx, ptrdiff_t *dest, ptrdiff_t value, int pe) { mp::shmem::p(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL float shmemg_float_g(const float *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL double shmemg_double_g(const double *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL char shmemg_char_g(const char *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL signed char shmemg_schar_g(const signed char *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL short shmemg_short_g(const short *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL int shmemg_int_g(const int *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL long shmemg_long_g(const long *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL long long shmemg_longlong_g(const long long *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL unsigned char shmemg_uchar_g(const unsigned char *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL unsigned short shmemg_ushort_g(const unsigned short *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL unsigned int shmemg_uint_g(const unsigned int *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL unsigned long shmemg_ulong_g(const unsigned long *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ulonglong_g(const unsigned long long *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL int8_t shmemg_int8_g(const int8_t *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL int16_t shmemg_int16_g(const int16_t *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL int32_t shmemg_int32_g(const int32_t *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL int64_t shmemg_int64_g(const int64_t *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL uint8_t shmemg_uint8_g(const uint8_t *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL uint16_t shmemg_uint16_g(const uint16_t *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL uint32_t shmemg_uint32_g(const uint32_t *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL uint64_t shmemg_uint64_g(const uint64_t *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL size_t shmemg_size_g(const size_t *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL ptrdiff_t shmemg_ptrdiff_g(const ptrdiff_t *source, int pe) { return mp::shmem::g(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL float shmemg_ctx_float_g(shmem_ctx_t ctx, const float *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL double shmemg_ctx_double_g(shmem_ctx_t ctx, const double *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL char shmemg_ctx_char_g(shmem_ctx_t ctx, const char *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL signed char shmemg_ctx_schar_g(shmem_ctx_t ctx, const signed char *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL short shmemg_ctx_short_g(shmem_ctx_t ctx, const short *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL int shmemg_ctx_int_g(shmem_ctx_t ctx, const int *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL long shmemg_ctx_long_g(shmem_ctx_t ctx, const long *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL long long shmemg_ctx_longlong_g(shmem_ctx_t ctx, const long long *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL unsigned char shmemg_ctx_uchar_g(shmem_ctx_t ctx, const unsigned char *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL unsigned short shmemg_ctx_ushort_g(shmem_ctx_t ctx, const unsigned short *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL unsigned int shmemg_ctx_uint_g(shmem_ctx_t ctx, const unsigned int *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL unsigned long shmemg_ctx_ulong_g(shmem_ctx_t ctx, const unsigned long *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ctx_ulonglong_g(shmem_ctx_t ctx, const unsigned long long *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL int8_t shmemg_ctx_int8_g(shmem_ctx_t ctx, const int8_t *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL int16_t shmemg_ctx_int16_g(shmem_ctx_t ctx, const int16_t *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL int32_t shmemg_ctx_int32_g(shmem_ctx_t ctx, const int32_t *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL int64_t shmemg_ctx_int64_g(shmem_ctx_t ctx, const int64_t *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL uint8_t shmemg_ctx_uint8_g(shmem_ctx_t ctx, const uint8_t *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL uint16_t shmemg_ctx_uint16_g(shmem_ctx_t ctx, const uint16_t *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL uint32_t shmemg_ctx_uint32_g(shmem_ctx_t ctx, const uint32_t *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL uint64_t shmemg_ctx_uint64_g(shmem_ctx_t ctx, const uint64_t *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL size_t shmemg_ctx_size_g(shmem_ctx_t ctx, const size_t *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL ptrdiff_t shmemg_ctx_ptrdiff_g(shmem_ctx_t ctx, const ptrdiff_t *source, int pe) { return mp::shmem::g(shmemg_world, ctx, source, pe); }

/* Atomic operations */
SHMEMG_KERNEL float shmemg_float_atomic_fetch(const float *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL double shmemg_double_atomic_fetch(const double *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL int shmemg_int_atomic_fetch(const int *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL long shmemg_long_atomic_fetch(const long *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL long long shmemg_longlong_atomic_fetch(const long long *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL unsigned int shmemg_uint_atomic_fetch(const unsigned int *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL unsigned long shmemg_ulong_atomic_fetch(const unsigned long *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ulonglong_atomic_fetch(const unsigned long long *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL int32_t shmemg_int32_atomic_fetch(const int32_t *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL int64_t shmemg_int64_atomic_fetch(const int64_t *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL uint32_t shmemg_uint32_atomic_fetch(const uint32_t *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL uint64_t shmemg_uint64_atomic_fetch(const uint64_t *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL size_t shmemg_size_atomic_fetch(const size_t *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL ptrdiff_t shmemg_ptrdiff_atomic_fetch(const ptrdiff_t *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, source, pe); }
SHMEMG_KERNEL float shmemg_ctx_float_atomic_fetch(shmem_ctx_t ctx, const float *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL double shmemg_ctx_double_atomic_fetch(shmem_ctx_t ctx, const double *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL int shmemg_ctx_int_atomic_fetch(shmem_ctx_t ctx, const int *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL long shmemg_ctx_long_atomic_fetch(shmem_ctx_t ctx, const long *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL long long shmemg_ctx_longlong_atomic_fetch(shmem_ctx_t ctx, const long long *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL unsigned int shmemg_ctx_uint_atomic_fetch(shmem_ctx_t ctx, const unsigned int *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL unsigned long shmemg_ctx_ulong_atomic_fetch(shmem_ctx_t ctx, const unsigned long *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ctx_ulonglong_atomic_fetch(shmem_ctx_t ctx, const unsigned long long *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL int32_t shmemg_ctx_int32_atomic_fetch(shmem_ctx_t ctx, const int32_t *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL int64_t shmemg_ctx_int64_atomic_fetch(shmem_ctx_t ctx, const int64_t *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL uint32_t shmemg_ctx_uint32_atomic_fetch(shmem_ctx_t ctx, const uint32_t *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL uint64_t shmemg_ctx_uint64_atomic_fetch(shmem_ctx_t ctx, const uint64_t *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL size_t shmemg_ctx_size_atomic_fetch(shmem_ctx_t ctx, const size_t *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL ptrdiff_t shmemg_ctx_ptrdiff_atomic_fetch(shmem_ctx_t ctx, const ptrdiff_t *source, int pe) { return mp::shmem::atomic_fetch(shmemg_world, ctx, source, pe); }
SHMEMG_KERNEL void shmemg_float_atomic_set(float *dest, float value, int pe) { mp::shmem::atomic_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_double_atomic_set(double *dest, double value, int pe) { mp::shmem::atomic_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int_atomic_set(int *dest, int value, int pe) { mp::shmem::atomic_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_long_atomic_set(long *dest, long value, int pe) { mp::shmem::atomic_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_longlong_atomic_set(long long *dest, long long value, int pe) { mp::shmem::atomic_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint_atomic_set(unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulong_atomic_set(unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_atomic_set(unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int32_atomic_set(int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int64_atomic_set(int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint32_atomic_set(uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint64_atomic_set(uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_size_atomic_set(size_t *dest, size_t value, int pe) { mp::shmem::atomic_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ptrdiff_atomic_set(ptrdiff_t *dest, ptrdiff_t value, int pe) { mp::shmem::atomic_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_float_atomic_set(shmem_ctx_t ctx, float *dest, float value, int pe) { mp::shmem::atomic_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_double_atomic_set(shmem_ctx_t ctx, double *dest, double value, int pe) { mp::shmem::atomic_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int_atomic_set(shmem_ctx_t ctx, int *dest, int value, int pe) { mp::shmem::atomic_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_long_atomic_set(shmem_ctx_t ctx, long *dest, long value, int pe) { mp::shmem::atomic_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_longlong_atomic_set(shmem_ctx_t ctx, long long *dest, long long value, int pe) { mp::shmem::atomic_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_atomic_set(shmem_ctx_t ctx, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_atomic_set(shmem_ctx_t ctx, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_atomic_set(shmem_ctx_t ctx, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_atomic_set(shmem_ctx_t ctx, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_atomic_set(shmem_ctx_t ctx, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_atomic_set(shmem_ctx_t ctx, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_atomic_set(shmem_ctx_t ctx, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_size_atomic_set(shmem_ctx_t ctx, size_t *dest, size_t value, int pe) { mp::shmem::atomic_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ptrdiff_atomic_set(shmem_ctx_t ctx, ptrdiff_t *dest, ptrdiff_t value, int pe) { mp::shmem::atomic_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL float shmemg_float_atomic_swap(float *dest, float value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL double shmemg_double_atomic_swap(double *dest, double value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL int shmemg_int_atomic_swap(int *dest, int value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL long shmemg_long_atomic_swap(long *dest, long value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL long long shmemg_longlong_atomic_swap(long long *dest, long long value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned int shmemg_uint_atomic_swap(unsigned int *dest, unsigned int value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned long shmemg_ulong_atomic_swap(unsigned long *dest, unsigned long value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ulonglong_atomic_swap(unsigned long long *dest, unsigned long long value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL int32_t shmemg_int32_atomic_swap(int32_t *dest, int32_t value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL int64_t shmemg_int64_atomic_swap(int64_t *dest, int64_t value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL uint32_t shmemg_uint32_atomic_swap(uint32_t *dest, uint32_t value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL uint64_t shmemg_uint64_atomic_swap(uint64_t *dest, uint64_t value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL size_t shmemg_size_atomic_swap(size_t *dest, size_t value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL ptrdiff_t shmemg_ptrdiff_atomic_swap(ptrdiff_t *dest, ptrdiff_t value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL float shmemg_ctx_float_atomic_swap(shmem_ctx_t ctx, float *dest, float value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL double shmemg_ctx_double_atomic_swap(shmem_ctx_t ctx, double *dest, double value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL int shmemg_ctx_int_atomic_swap(shmem_ctx_t ctx, int *dest, int value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL long shmemg_ctx_long_atomic_swap(shmem_ctx_t ctx, long *dest, long value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL long long shmemg_ctx_longlong_atomic_swap(shmem_ctx_t ctx, long long *dest, long long value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned int shmemg_ctx_uint_atomic_swap(shmem_ctx_t ctx, unsigned int *dest, unsigned int value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned long shmemg_ctx_ulong_atomic_swap(shmem_ctx_t ctx, unsigned long *dest, unsigned long value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ctx_ulonglong_atomic_swap(shmem_ctx_t ctx, unsigned long long *dest, unsigned long long value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL int32_t shmemg_ctx_int32_atomic_swap(shmem_ctx_t ctx, int32_t *dest, int32_t value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL int64_t shmemg_ctx_int64_atomic_swap(shmem_ctx_t ctx, int64_t *dest, int64_t value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL uint32_t shmemg_ctx_uint32_atomic_swap(shmem_ctx_t ctx, uint32_t *dest, uint32_t value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL uint64_t shmemg_ctx_uint64_atomic_swap(shmem_ctx_t ctx, uint64_t *dest, uint64_t value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL size_t shmemg_ctx_size_atomic_swap(shmem_ctx_t ctx, size_t *dest, size_t value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL ptrdiff_t shmemg_ctx_ptrdiff_atomic_swap(shmem_ctx_t ctx, ptrdiff_t *dest, ptrdiff_t value, int pe) { return mp::shmem::atomic_fetch_set(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL int shmemg_int_atomic_compare_swap(int *dest, int cond, int value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, cond, value, pe); }
SHMEMG_KERNEL long shmemg_long_atomic_compare_swap(long *dest, long cond, long value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, cond, value, pe); }
SHMEMG_KERNEL long long shmemg_longlong_atomic_compare_swap(long long *dest, long long cond, long long value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, cond, value, pe); }
SHMEMG_KERNEL unsigned int shmemg_uint_atomic_compare_swap(unsigned int *dest, unsigned int cond, unsigned int value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, cond, value, pe); }
SHMEMG_KERNEL unsigned long shmemg_ulong_atomic_compare_swap(unsigned long *dest, unsigned long cond, unsigned long value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, cond, value, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ulonglong_atomic_compare_swap(unsigned long long *dest, unsigned long long cond, unsigned long long value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, cond, value, pe); }
SHMEMG_KERNEL int32_t shmemg_int32_atomic_compare_swap(int32_t *dest, int32_t cond, int32_t value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, cond, value, pe); }
SHMEMG_KERNEL int64_t shmemg_int64_atomic_compare_swap(int64_t *dest, int64_t cond, int64_t value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, cond, value, pe); }
SHMEMG_KERNEL uint32_t shmemg_uint32_atomic_compare_swap(uint32_t *dest, uint32_t cond, uint32_t value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, cond, value, pe); }
SHMEMG_KERNEL uint64_t shmemg_uint64_atomic_compare_swap(uint64_t *dest, uint64_t cond, uint64_t value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, cond, value, pe); }
SHMEMG_KERNEL size_t shmemg_size_atomic_compare_swap(size_t *dest, size_t cond, size_t value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, cond, value, pe); }
SHMEMG_KERNEL ptrdiff_t shmemg_ptrdiff_atomic_compare_swap(ptrdiff_t *dest, ptrdiff_t cond, ptrdiff_t value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, cond, value, pe); }
SHMEMG_KERNEL int shmemg_ctx_int_atomic_compare_swap(shmem_ctx_t ctx, int *dest, int cond, int value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, ctx, dest, cond, value, pe); }
SHMEMG_KERNEL long shmemg_ctx_long_atomic_compare_swap(shmem_ctx_t ctx, long *dest, long cond, long value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, ctx, dest, cond, value, pe); }
SHMEMG_KERNEL long long shmemg_ctx_longlong_atomic_compare_swap(shmem_ctx_t ctx, long long *dest, long long cond, long long value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, ctx, dest, cond, value, pe); }
SHMEMG_KERNEL unsigned int shmemg_ctx_uint_atomic_compare_swap(shmem_ctx_t ctx, unsigned int *dest, unsigned int cond, unsigned int value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, ctx, dest, cond, value, pe); }
SHMEMG_KERNEL unsigned long shmemg_ctx_ulong_atomic_compare_swap(shmem_ctx_t ctx, unsigned long *dest, unsigned long cond, unsigned long value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, ctx, dest, cond, value, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ctx_ulonglong_atomic_compare_swap(shmem_ctx_t ctx, unsigned long long *dest, unsigned long long cond, unsigned long long value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, ctx, dest, cond, value, pe); }
SHMEMG_KERNEL int32_t shmemg_ctx_int32_atomic_compare_swap(shmem_ctx_t ctx, int32_t *dest, int32_t cond, int32_t value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, ctx, dest, cond, value, pe); }
SHMEMG_KERNEL int64_t shmemg_ctx_int64_atomic_compare_swap(shmem_ctx_t ctx, int64_t *dest, int64_t cond, int64_t value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, ctx, dest, cond, value, pe); }
SHMEMG_KERNEL uint32_t shmemg_ctx_uint32_atomic_compare_swap(shmem_ctx_t ctx, uint32_t *dest, uint32_t cond, uint32_t value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, ctx, dest, cond, value, pe); }
SHMEMG_KERNEL uint64_t shmemg_ctx_uint64_atomic_compare_swap(shmem_ctx_t ctx, uint64_t *dest, uint64_t cond, uint64_t value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, ctx, dest, cond, value, pe); }
SHMEMG_KERNEL size_t shmemg_ctx_size_atomic_compare_swap(shmem_ctx_t ctx, size_t *dest, size_t cond, size_t value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, ctx, dest, cond, value, pe); }
SHMEMG_KERNEL ptrdiff_t shmemg_ctx_ptrdiff_atomic_compare_swap(shmem_ctx_t ctx, ptrdiff_t *dest, ptrdiff_t cond, ptrdiff_t value, int pe) { return mp::shmem::atomic_compare_swap(shmemg_world, ctx, dest, cond, value, pe); }
SHMEMG_KERNEL int shmemg_int_atomic_fetch_inc(int *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL long shmemg_long_atomic_fetch_inc(long *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL long long shmemg_longlong_atomic_fetch_inc(long long *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL unsigned int shmemg_uint_atomic_fetch_inc(unsigned int *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL unsigned long shmemg_ulong_atomic_fetch_inc(unsigned long *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ulonglong_atomic_fetch_inc(unsigned long long *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL int32_t shmemg_int32_atomic_fetch_inc(int32_t *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL int64_t shmemg_int64_atomic_fetch_inc(int64_t *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL uint32_t shmemg_uint32_atomic_fetch_inc(uint32_t *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL uint64_t shmemg_uint64_atomic_fetch_inc(uint64_t *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL size_t shmemg_size_atomic_fetch_inc(size_t *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL ptrdiff_t shmemg_ptrdiff_atomic_fetch_inc(ptrdiff_t *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL int shmemg_ctx_int_atomic_fetch_inc(shmem_ctx_t ctx, int *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL long shmemg_ctx_long_atomic_fetch_inc(shmem_ctx_t ctx, long *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL long long shmemg_ctx_longlong_atomic_fetch_inc(shmem_ctx_t ctx, long long *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL unsigned int shmemg_ctx_uint_atomic_fetch_inc(shmem_ctx_t ctx, unsigned int *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL unsigned long shmemg_ctx_ulong_atomic_fetch_inc(shmem_ctx_t ctx, unsigned long *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ctx_ulonglong_atomic_fetch_inc(shmem_ctx_t ctx, unsigned long long *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL int32_t shmemg_ctx_int32_atomic_fetch_inc(shmem_ctx_t ctx, int32_t *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL int64_t shmemg_ctx_int64_atomic_fetch_inc(shmem_ctx_t ctx, int64_t *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL uint32_t shmemg_ctx_uint32_atomic_fetch_inc(shmem_ctx_t ctx, uint32_t *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL uint64_t shmemg_ctx_uint64_atomic_fetch_inc(shmem_ctx_t ctx, uint64_t *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL size_t shmemg_ctx_size_atomic_fetch_inc(shmem_ctx_t ctx, size_t *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL ptrdiff_t shmemg_ctx_ptrdiff_atomic_fetch_inc(shmem_ctx_t ctx, ptrdiff_t *dest, int pe) { return mp::shmem::atomic_fetch_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL void shmemg_int_atomic_inc(int *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL void shmemg_long_atomic_inc(long *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL void shmemg_longlong_atomic_inc(long long *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL void shmemg_uint_atomic_inc(unsigned int *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL void shmemg_ulong_atomic_inc(unsigned long *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_atomic_inc(unsigned long long *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL void shmemg_int32_atomic_inc(int32_t *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL void shmemg_int64_atomic_inc(int64_t *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL void shmemg_uint32_atomic_inc(uint32_t *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL void shmemg_uint64_atomic_inc(uint64_t *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL void shmemg_size_atomic_inc(size_t *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL void shmemg_ptrdiff_atomic_inc(ptrdiff_t *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_int_atomic_inc(shmem_ctx_t ctx, int *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_long_atomic_inc(shmem_ctx_t ctx, long *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_longlong_atomic_inc(shmem_ctx_t ctx, long long *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_atomic_inc(shmem_ctx_t ctx, unsigned int *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_atomic_inc(shmem_ctx_t ctx, unsigned long *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_atomic_inc(shmem_ctx_t ctx, unsigned long long *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_atomic_inc(shmem_ctx_t ctx, int32_t *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_atomic_inc(shmem_ctx_t ctx, int64_t *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_atomic_inc(shmem_ctx_t ctx, uint32_t *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_atomic_inc(shmem_ctx_t ctx, uint64_t *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_size_atomic_inc(shmem_ctx_t ctx, size_t *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_ptrdiff_atomic_inc(shmem_ctx_t ctx, ptrdiff_t *dest, int pe) { mp::shmem::atomic_inc(shmemg_world, ctx, dest, pe); }
SHMEMG_KERNEL int shmemg_int_atomic_fetch_add(int *dest, int value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL long shmemg_long_atomic_fetch_add(long *dest, long value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL long long shmemg_longlong_atomic_fetch_add(long long *dest, long long value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned int shmemg_uint_atomic_fetch_add(unsigned int *dest, unsigned int value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned long shmemg_ulong_atomic_fetch_add(unsigned long *dest, unsigned long value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ulonglong_atomic_fetch_add(unsigned long long *dest, unsigned long long value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL int32_t shmemg_int32_atomic_fetch_add(int32_t *dest, int32_t value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL int64_t shmemg_int64_atomic_fetch_add(int64_t *dest, int64_t value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL uint32_t shmemg_uint32_atomic_fetch_add(uint32_t *dest, uint32_t value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL uint64_t shmemg_uint64_atomic_fetch_add(uint64_t *dest, uint64_t value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL size_t shmemg_size_atomic_fetch_add(size_t *dest, size_t value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL ptrdiff_t shmemg_ptrdiff_atomic_fetch_add(ptrdiff_t *dest, ptrdiff_t value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL int shmemg_ctx_int_atomic_fetch_add(shmem_ctx_t ctx, int *dest, int value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL long shmemg_ctx_long_atomic_fetch_add(shmem_ctx_t ctx, long *dest, long value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL long long shmemg_ctx_longlong_atomic_fetch_add(shmem_ctx_t ctx, long long *dest, long long value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned int shmemg_ctx_uint_atomic_fetch_add(shmem_ctx_t ctx, unsigned int *dest, unsigned int value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned long shmemg_ctx_ulong_atomic_fetch_add(shmem_ctx_t ctx, unsigned long *dest, unsigned long value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ctx_ulonglong_atomic_fetch_add(shmem_ctx_t ctx, unsigned long long *dest, unsigned long long value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL int32_t shmemg_ctx_int32_atomic_fetch_add(shmem_ctx_t ctx, int32_t *dest, int32_t value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL int64_t shmemg_ctx_int64_atomic_fetch_add(shmem_ctx_t ctx, int64_t *dest, int64_t value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL uint32_t shmemg_ctx_uint32_atomic_fetch_add(shmem_ctx_t ctx, uint32_t *dest, uint32_t value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL uint64_t shmemg_ctx_uint64_atomic_fetch_add(shmem_ctx_t ctx, uint64_t *dest, uint64_t value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL size_t shmemg_ctx_size_atomic_fetch_add(shmem_ctx_t ctx, size_t *dest, size_t value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL ptrdiff_t shmemg_ctx_ptrdiff_atomic_fetch_add(shmem_ctx_t ctx, ptrdiff_t *dest, ptrdiff_t value, int pe) { return mp::shmem::atomic_fetch_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int_atomic_add(int *dest, int value, int pe) { mp::shmem::atomic_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_long_atomic_add(long *dest, long value, int pe) { mp::shmem::atomic_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_longlong_atomic_add(long long *dest, long long value, int pe) { mp::shmem::atomic_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint_atomic_add(unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulong_atomic_add(unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_atomic_add(unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int32_atomic_add(int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int64_atomic_add(int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint32_atomic_add(uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint64_atomic_add(uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_size_atomic_add(size_t *dest, size_t value, int pe) { mp::shmem::atomic_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ptrdiff_atomic_add(ptrdiff_t *dest, ptrdiff_t value, int pe) { mp::shmem::atomic_add(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int_atomic_add(shmem_ctx_t ctx, int *dest, int value, int pe) { mp::shmem::atomic_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_long_atomic_add(shmem_ctx_t ctx, long *dest, long value, int pe) { mp::shmem::atomic_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_longlong_atomic_add(shmem_ctx_t ctx, long long *dest, long long value, int pe) { mp::shmem::atomic_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_atomic_add(shmem_ctx_t ctx, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_atomic_add(shmem_ctx_t ctx, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_atomic_add(shmem_ctx_t ctx, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_atomic_add(shmem_ctx_t ctx, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_atomic_add(shmem_ctx_t ctx, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_atomic_add(shmem_ctx_t ctx, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_atomic_add(shmem_ctx_t ctx, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_size_atomic_add(shmem_ctx_t ctx, size_t *dest, size_t value, int pe) { mp::shmem::atomic_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ptrdiff_atomic_add(shmem_ctx_t ctx, ptrdiff_t *dest, ptrdiff_t value, int pe) { mp::shmem::atomic_add(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned int shmemg_uint_atomic_fetch_and(unsigned int *dest, unsigned int value, int pe) { return mp::shmem::atomic_fetch_and(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned long shmemg_ulong_atomic_fetch_and(unsigned long *dest, unsigned long value, int pe) { return mp::shmem::atomic_fetch_and(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ulonglong_atomic_fetch_and(unsigned long long *dest, unsigned long long value, int pe) { return mp::shmem::atomic_fetch_and(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL int32_t shmemg_int32_atomic_fetch_and(int32_t *dest, int32_t value, int pe) { return mp::shmem::atomic_fetch_and(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL int64_t shmemg_int64_atomic_fetch_and(int64_t *dest, int64_t value, int pe) { return mp::shmem::atomic_fetch_and(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL uint32_t shmemg_uint32_atomic_fetch_and(uint32_t *dest, uint32_t value, int pe) { return mp::shmem::atomic_fetch_and(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL uint64_t shmemg_uint64_atomic_fetch_and(uint64_t *dest, uint64_t value, int pe) { return mp::shmem::atomic_fetch_and(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned int shmemg_ctx_uint_atomic_fetch_and(shmem_ctx_t ctx, unsigned int *dest, unsigned int value, int pe) { return mp::shmem::atomic_fetch_and(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned long shmemg_ctx_ulong_atomic_fetch_and(shmem_ctx_t ctx, unsigned long *dest, unsigned long value, int pe) { return mp::shmem::atomic_fetch_and(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ctx_ulonglong_atomic_fetch_and(shmem_ctx_t ctx, unsigned long long *dest, unsigned long long value, int pe) { return mp::shmem::atomic_fetch_and(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL int32_t shmemg_ctx_int32_atomic_fetch_and(shmem_ctx_t ctx, int32_t *dest, int32_t value, int pe) { return mp::shmem::atomic_fetch_and(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL int64_t shmemg_ctx_int64_atomic_fetch_and(shmem_ctx_t ctx, int64_t *dest, int64_t value, int pe) { return mp::shmem::atomic_fetch_and(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL uint32_t shmemg_ctx_uint32_atomic_fetch_and(shmem_ctx_t ctx, uint32_t *dest, uint32_t value, int pe) { return mp::shmem::atomic_fetch_and(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL uint64_t shmemg_ctx_uint64_atomic_fetch_and(shmem_ctx_t ctx, uint64_t *dest, uint64_t value, int pe) { return mp::shmem::atomic_fetch_and(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint_atomic_and(unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_and(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulong_atomic_and(unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_and(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_atomic_and(unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_and(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int32_atomic_and(int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_and(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int64_atomic_and(int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_and(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint32_atomic_and(uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_and(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint64_atomic_and(uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_and(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_atomic_and(shmem_ctx_t ctx, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_and(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_atomic_and(shmem_ctx_t ctx, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_and(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_atomic_and(shmem_ctx_t ctx, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_and(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_atomic_and(shmem_ctx_t ctx, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_and(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_atomic_and(shmem_ctx_t ctx, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_and(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_atomic_and(shmem_ctx_t ctx, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_and(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_atomic_and(shmem_ctx_t ctx, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_and(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned int shmemg_uint_atomic_fetch_or(unsigned int *dest, unsigned int value, int pe) { return mp::shmem::atomic_fetch_or(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned long shmemg_ulong_atomic_fetch_or(unsigned long *dest, unsigned long value, int pe) { return mp::shmem::atomic_fetch_or(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ulonglong_atomic_fetch_or(unsigned long long *dest, unsigned long long value, int pe) { return mp::shmem::atomic_fetch_or(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL int32_t shmemg_int32_atomic_fetch_or(int32_t *dest, int32_t value, int pe) { return mp::shmem::atomic_fetch_or(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL int64_t shmemg_int64_atomic_fetch_or(int64_t *dest, int64_t value, int pe) { return mp::shmem::atomic_fetch_or(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL uint32_t shmemg_uint32_atomic_fetch_or(uint32_t *dest, uint32_t value, int pe) { return mp::shmem::atomic_fetch_or(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL uint64_t shmemg_uint64_atomic_fetch_or(uint64_t *dest, uint64_t value, int pe) { return mp::shmem::atomic_fetch_or(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned int shmemg_ctx_uint_atomic_fetch_or(shmem_ctx_t ctx, unsigned int *dest, unsigned int value, int pe) { return mp::shmem::atomic_fetch_or(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned long shmemg_ctx_ulong_atomic_fetch_or(shmem_ctx_t ctx, unsigned long *dest, unsigned long value, int pe) { return mp::shmem::atomic_fetch_or(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ctx_ulonglong_atomic_fetch_or(shmem_ctx_t ctx, unsigned long long *dest, unsigned long long value, int pe) { return mp::shmem::atomic_fetch_or(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL int32_t shmemg_ctx_int32_atomic_fetch_or(shmem_ctx_t ctx, int32_t *dest, int32_t value, int pe) { return mp::shmem::atomic_fetch_or(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL int64_t shmemg_ctx_int64_atomic_fetch_or(shmem_ctx_t ctx, int64_t *dest, int64_t value, int pe) { return mp::shmem::atomic_fetch_or(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL uint32_t shmemg_ctx_uint32_atomic_fetch_or(shmem_ctx_t ctx, uint32_t *dest, uint32_t value, int pe) { return mp::shmem::atomic_fetch_or(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL uint64_t shmemg_ctx_uint64_atomic_fetch_or(shmem_ctx_t ctx, uint64_t *dest, uint64_t value, int pe) { return mp::shmem::atomic_fetch_or(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint_atomic_or(unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_or(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulong_atomic_or(unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_or(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_atomic_or(unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_or(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int32_atomic_or(int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_or(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int64_atomic_or(int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_or(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint32_atomic_or(uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_or(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint64_atomic_or(uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_or(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_atomic_or(shmem_ctx_t ctx, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_or(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_atomic_or(shmem_ctx_t ctx, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_or(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_atomic_or(shmem_ctx_t ctx, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_or(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_atomic_or(shmem_ctx_t ctx, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_or(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_atomic_or(shmem_ctx_t ctx, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_or(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_atomic_or(shmem_ctx_t ctx, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_or(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_atomic_or(shmem_ctx_t ctx, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_or(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned int shmemg_uint_atomic_fetch_xor(unsigned int *dest, unsigned int value, int pe) { return mp::shmem::atomic_fetch_xor(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned long shmemg_ulong_atomic_fetch_xor(unsigned long *dest, unsigned long value, int pe) { return mp::shmem::atomic_fetch_xor(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ulonglong_atomic_fetch_xor(unsigned long long *dest, unsigned long long value, int pe) { return mp::shmem::atomic_fetch_xor(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL int32_t shmemg_int32_atomic_fetch_xor(int32_t *dest, int32_t value, int pe) { return mp::shmem::atomic_fetch_xor(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL int64_t shmemg_int64_atomic_fetch_xor(int64_t *dest, int64_t value, int pe) { return mp::shmem::atomic_fetch_xor(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL uint32_t shmemg_uint32_atomic_fetch_xor(uint32_t *dest, uint32_t value, int pe) { return mp::shmem::atomic_fetch_xor(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL uint64_t shmemg_uint64_atomic_fetch_xor(uint64_t *dest, uint64_t value, int pe) { return mp::shmem::atomic_fetch_xor(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL unsigned int shmemg_ctx_uint_atomic_fetch_xor(shmem_ctx_t ctx, unsigned int *dest, unsigned int value, int pe) { return mp::shmem::atomic_fetch_xor(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned long shmemg_ctx_ulong_atomic_fetch_xor(shmem_ctx_t ctx, unsigned long *dest, unsigned long value, int pe) { return mp::shmem::atomic_fetch_xor(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL unsigned long long shmemg_ctx_ulonglong_atomic_fetch_xor(shmem_ctx_t ctx, unsigned long long *dest, unsigned long long value, int pe) { return mp::shmem::atomic_fetch_xor(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL int32_t shmemg_ctx_int32_atomic_fetch_xor(shmem_ctx_t ctx, int32_t *dest, int32_t value, int pe) { return mp::shmem::atomic_fetch_xor(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL int64_t shmemg_ctx_int64_atomic_fetch_xor(shmem_ctx_t ctx, int64_t *dest, int64_t value, int pe) { return mp::shmem::atomic_fetch_xor(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL uint32_t shmemg_ctx_uint32_atomic_fetch_xor(shmem_ctx_t ctx, uint32_t *dest, uint32_t value, int pe) { return mp::shmem::atomic_fetch_xor(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL uint64_t shmemg_ctx_uint64_atomic_fetch_xor(shmem_ctx_t ctx, uint64_t *dest, uint64_t value, int pe) { return mp::shmem::atomic_fetch_xor(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint_atomic_xor(unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_xor(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulong_atomic_xor(unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_xor(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_atomic_xor(unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_xor(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int32_atomic_xor(int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_xor(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int64_atomic_xor(int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_xor(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint32_atomic_xor(uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_xor(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint64_atomic_xor(uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_xor(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_atomic_xor(shmem_ctx_t ctx, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_xor(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_atomic_xor(shmem_ctx_t ctx, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_xor(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_atomic_xor(shmem_ctx_t ctx, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_xor(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_atomic_xor(shmem_ctx_t ctx, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_xor(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_atomic_xor(shmem_ctx_t ctx, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_xor(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_atomic_xor(shmem_ctx_t ctx, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_xor(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_atomic_xor(shmem_ctx_t ctx, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_xor(shmemg_world, ctx, dest, value, pe); }
SHMEMG_KERNEL void shmemg_float_atomic_fetch_nbi(float *fetch, const float *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_double_atomic_fetch_nbi(double *fetch, const double *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_int_atomic_fetch_nbi(int *fetch, const int *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_long_atomic_fetch_nbi(long *fetch, const long *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_longlong_atomic_fetch_nbi(long long *fetch, const long long *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_uint_atomic_fetch_nbi(unsigned int *fetch, const unsigned int *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ulong_atomic_fetch_nbi(unsigned long *fetch, const unsigned long *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_atomic_fetch_nbi(unsigned long long *fetch, const unsigned long long *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_int32_atomic_fetch_nbi(int32_t *fetch, const int32_t *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_int64_atomic_fetch_nbi(int64_t *fetch, const int64_t *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_uint32_atomic_fetch_nbi(uint32_t *fetch, const uint32_t *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_uint64_atomic_fetch_nbi(uint64_t *fetch, const uint64_t *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_size_atomic_fetch_nbi(size_t *fetch, const size_t *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ptrdiff_atomic_fetch_nbi(ptrdiff_t *fetch, const ptrdiff_t *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ctx_float_atomic_fetch_nbi(shmem_ctx_t ctx, float *fetch, const float *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, ctx, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ctx_double_atomic_fetch_nbi(shmem_ctx_t ctx, double *fetch, const double *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, ctx, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ctx_int_atomic_fetch_nbi(shmem_ctx_t ctx, int *fetch, const int *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, ctx, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ctx_long_atomic_fetch_nbi(shmem_ctx_t ctx, long *fetch, const long *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, ctx, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ctx_longlong_atomic_fetch_nbi(shmem_ctx_t ctx, long long *fetch, const long long *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, ctx, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_atomic_fetch_nbi(shmem_ctx_t ctx, unsigned int *fetch, const unsigned int *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, ctx, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_atomic_fetch_nbi(shmem_ctx_t ctx, unsigned long *fetch, const unsigned long *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, ctx, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_atomic_fetch_nbi(shmem_ctx_t ctx, unsigned long long *fetch, const unsigned long long *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, ctx, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_atomic_fetch_nbi(shmem_ctx_t ctx, int32_t *fetch, const int32_t *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, ctx, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_atomic_fetch_nbi(shmem_ctx_t ctx, int64_t *fetch, const int64_t *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, ctx, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_atomic_fetch_nbi(shmem_ctx_t ctx, uint32_t *fetch, const uint32_t *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, ctx, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_atomic_fetch_nbi(shmem_ctx_t ctx, uint64_t *fetch, const uint64_t *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, ctx, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ctx_size_atomic_fetch_nbi(shmem_ctx_t ctx, size_t *fetch, const size_t *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, ctx, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_ctx_ptrdiff_atomic_fetch_nbi(shmem_ctx_t ctx, ptrdiff_t *fetch, const ptrdiff_t *source, int pe) { mp::shmem::atomic_fetch_nbi(shmemg_world, ctx, fetch, source, pe); }
SHMEMG_KERNEL void shmemg_float_atomic_swap_nbi(float *fetch, float *dest, float value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_double_atomic_swap_nbi(double *fetch, double *dest, double value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int_atomic_swap_nbi(int *fetch, int *dest, int value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_long_atomic_swap_nbi(long *fetch, long *dest, long value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_longlong_atomic_swap_nbi(long long *fetch, long long *dest, long long value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint_atomic_swap_nbi(unsigned int *fetch, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulong_atomic_swap_nbi(unsigned long *fetch, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_atomic_swap_nbi(unsigned long long *fetch, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int32_atomic_swap_nbi(int32_t *fetch, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int64_atomic_swap_nbi(int64_t *fetch, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint32_atomic_swap_nbi(uint32_t *fetch, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint64_atomic_swap_nbi(uint64_t *fetch, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_size_atomic_swap_nbi(size_t *fetch, size_t *dest, size_t value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ptrdiff_atomic_swap_nbi(ptrdiff_t *fetch, ptrdiff_t *dest, ptrdiff_t value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_float_atomic_swap_nbi(shmem_ctx_t ctx, float *fetch, float *dest, float value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_double_atomic_swap_nbi(shmem_ctx_t ctx, double *fetch, double *dest, double value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int_atomic_swap_nbi(shmem_ctx_t ctx, int *fetch, int *dest, int value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_long_atomic_swap_nbi(shmem_ctx_t ctx, long *fetch, long *dest, long value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_longlong_atomic_swap_nbi(shmem_ctx_t ctx, long long *fetch, long long *dest, long long value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_atomic_swap_nbi(shmem_ctx_t ctx, unsigned int *fetch, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_atomic_swap_nbi(shmem_ctx_t ctx, unsigned long *fetch, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_atomic_swap_nbi(shmem_ctx_t ctx, unsigned long long *fetch, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_atomic_swap_nbi(shmem_ctx_t ctx, int32_t *fetch, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_atomic_swap_nbi(shmem_ctx_t ctx, int64_t *fetch, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_atomic_swap_nbi(shmem_ctx_t ctx, uint32_t *fetch, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_atomic_swap_nbi(shmem_ctx_t ctx, uint64_t *fetch, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_size_atomic_swap_nbi(shmem_ctx_t ctx, size_t *fetch, size_t *dest, size_t value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ptrdiff_atomic_swap_nbi(shmem_ctx_t ctx, ptrdiff_t *fetch, ptrdiff_t *dest, ptrdiff_t value, int pe) { mp::shmem::atomic_fetch_set_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int_atomic_compare_swap_nbi(int *fetch, int *dest, int cond, int value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_long_atomic_compare_swap_nbi(long *fetch, long *dest, long cond, long value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_longlong_atomic_compare_swap_nbi(long long *fetch, long long *dest, long long cond, long long value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_uint_atomic_compare_swap_nbi(unsigned int *fetch, unsigned int *dest, unsigned int cond, unsigned int value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ulong_atomic_compare_swap_nbi(unsigned long *fetch, unsigned long *dest, unsigned long cond, unsigned long value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_atomic_compare_swap_nbi(unsigned long long *fetch, unsigned long long *dest, unsigned long long cond, unsigned long long value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_int32_atomic_compare_swap_nbi(int32_t *fetch, int32_t *dest, int32_t cond, int32_t value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_int64_atomic_compare_swap_nbi(int64_t *fetch, int64_t *dest, int64_t cond, int64_t value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_uint32_atomic_compare_swap_nbi(uint32_t *fetch, uint32_t *dest, uint32_t cond, uint32_t value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_uint64_atomic_compare_swap_nbi(uint64_t *fetch, uint64_t *dest, uint64_t cond, uint64_t value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_size_atomic_compare_swap_nbi(size_t *fetch, size_t *dest, size_t cond, size_t value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ptrdiff_atomic_compare_swap_nbi(ptrdiff_t *fetch, ptrdiff_t *dest, ptrdiff_t cond, ptrdiff_t value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int_atomic_compare_swap_nbi(shmem_ctx_t ctx, int *fetch, int *dest, int cond, int value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, ctx, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_long_atomic_compare_swap_nbi(shmem_ctx_t ctx, long *fetch, long *dest, long cond, long value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, ctx, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_longlong_atomic_compare_swap_nbi(shmem_ctx_t ctx, long long *fetch, long long *dest, long long cond, long long value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, ctx, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_atomic_compare_swap_nbi(shmem_ctx_t ctx, unsigned int *fetch, unsigned int *dest, unsigned int cond, unsigned int value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, ctx, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_atomic_compare_swap_nbi(shmem_ctx_t ctx, unsigned long *fetch, unsigned long *dest, unsigned long cond, unsigned long value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, ctx, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_atomic_compare_swap_nbi(shmem_ctx_t ctx, unsigned long long *fetch, unsigned long long *dest, unsigned long long cond, unsigned long long value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, ctx, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_atomic_compare_swap_nbi(shmem_ctx_t ctx, int32_t *fetch, int32_t *dest, int32_t cond, int32_t value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, ctx, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_atomic_compare_swap_nbi(shmem_ctx_t ctx, int64_t *fetch, int64_t *dest, int64_t cond, int64_t value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, ctx, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_atomic_compare_swap_nbi(shmem_ctx_t ctx, uint32_t *fetch, uint32_t *dest, uint32_t cond, uint32_t value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, ctx, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_atomic_compare_swap_nbi(shmem_ctx_t ctx, uint64_t *fetch, uint64_t *dest, uint64_t cond, uint64_t value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, ctx, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_size_atomic_compare_swap_nbi(shmem_ctx_t ctx, size_t *fetch, size_t *dest, size_t cond, size_t value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, ctx, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ptrdiff_atomic_compare_swap_nbi(shmem_ctx_t ctx, ptrdiff_t *fetch, ptrdiff_t *dest, ptrdiff_t cond, ptrdiff_t value, int pe) { mp::shmem::atomic_compare_swap_nbi(shmemg_world, ctx, fetch, dest, cond, value, pe); }
SHMEMG_KERNEL void shmemg_int_atomic_fetch_inc_nbi(int *fetch, int *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_long_atomic_fetch_inc_nbi(long *fetch, long *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_longlong_atomic_fetch_inc_nbi(long long *fetch, long long *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_uint_atomic_fetch_inc_nbi(unsigned int *fetch, unsigned int *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ulong_atomic_fetch_inc_nbi(unsigned long *fetch, unsigned long *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_atomic_fetch_inc_nbi(unsigned long long *fetch, unsigned long long *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_int32_atomic_fetch_inc_nbi(int32_t *fetch, int32_t *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_int64_atomic_fetch_inc_nbi(int64_t *fetch, int64_t *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_uint32_atomic_fetch_inc_nbi(uint32_t *fetch, uint32_t *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_uint64_atomic_fetch_inc_nbi(uint64_t *fetch, uint64_t *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_size_atomic_fetch_inc_nbi(size_t *fetch, size_t *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ptrdiff_atomic_fetch_inc_nbi(ptrdiff_t *fetch, ptrdiff_t *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_int_atomic_fetch_inc_nbi(shmem_ctx_t ctx, int *fetch, int *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, ctx, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_long_atomic_fetch_inc_nbi(shmem_ctx_t ctx, long *fetch, long *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, ctx, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_longlong_atomic_fetch_inc_nbi(shmem_ctx_t ctx, long long *fetch, long long *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, ctx, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_atomic_fetch_inc_nbi(shmem_ctx_t ctx, unsigned int *fetch, unsigned int *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, ctx, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_atomic_fetch_inc_nbi(shmem_ctx_t ctx, unsigned long *fetch, unsigned long *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, ctx, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_atomic_fetch_inc_nbi(shmem_ctx_t ctx, unsigned long long *fetch, unsigned long long *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, ctx, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_atomic_fetch_inc_nbi(shmem_ctx_t ctx, int32_t *fetch, int32_t *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, ctx, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_atomic_fetch_inc_nbi(shmem_ctx_t ctx, int64_t *fetch, int64_t *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, ctx, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_atomic_fetch_inc_nbi(shmem_ctx_t ctx, uint32_t *fetch, uint32_t *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, ctx, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_atomic_fetch_inc_nbi(shmem_ctx_t ctx, uint64_t *fetch, uint64_t *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, ctx, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_size_atomic_fetch_inc_nbi(shmem_ctx_t ctx, size_t *fetch, size_t *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, ctx, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_ctx_ptrdiff_atomic_fetch_inc_nbi(shmem_ctx_t ctx, ptrdiff_t *fetch, ptrdiff_t *dest, int pe) { mp::shmem::atomic_fetch_inc_nbi(shmemg_world, ctx, fetch, dest, pe); }
SHMEMG_KERNEL void shmemg_int_atomic_fetch_add_nbi(int *fetch, int *dest, int value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_long_atomic_fetch_add_nbi(long *fetch, long *dest, long value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_longlong_atomic_fetch_add_nbi(long long *fetch, long long *dest, long long value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint_atomic_fetch_add_nbi(unsigned int *fetch, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulong_atomic_fetch_add_nbi(unsigned long *fetch, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_atomic_fetch_add_nbi(unsigned long long *fetch, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int32_atomic_fetch_add_nbi(int32_t *fetch, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int64_atomic_fetch_add_nbi(int64_t *fetch, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint32_atomic_fetch_add_nbi(uint32_t *fetch, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint64_atomic_fetch_add_nbi(uint64_t *fetch, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_size_atomic_fetch_add_nbi(size_t *fetch, size_t *dest, size_t value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ptrdiff_atomic_fetch_add_nbi(ptrdiff_t *fetch, ptrdiff_t *dest, ptrdiff_t value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int_atomic_fetch_add_nbi(shmem_ctx_t ctx, int *fetch, int *dest, int value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_long_atomic_fetch_add_nbi(shmem_ctx_t ctx, long *fetch, long *dest, long value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_longlong_atomic_fetch_add_nbi(shmem_ctx_t ctx, long long *fetch, long long *dest, long long value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_atomic_fetch_add_nbi(shmem_ctx_t ctx, unsigned int *fetch, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_atomic_fetch_add_nbi(shmem_ctx_t ctx, unsigned long *fetch, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_atomic_fetch_add_nbi(shmem_ctx_t ctx, unsigned long long *fetch, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_atomic_fetch_add_nbi(shmem_ctx_t ctx, int32_t *fetch, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_atomic_fetch_add_nbi(shmem_ctx_t ctx, int64_t *fetch, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_atomic_fetch_add_nbi(shmem_ctx_t ctx, uint32_t *fetch, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_atomic_fetch_add_nbi(shmem_ctx_t ctx, uint64_t *fetch, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_size_atomic_fetch_add_nbi(shmem_ctx_t ctx, size_t *fetch, size_t *dest, size_t value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ptrdiff_atomic_fetch_add_nbi(shmem_ctx_t ctx, ptrdiff_t *fetch, ptrdiff_t *dest, ptrdiff_t value, int pe) { mp::shmem::atomic_fetch_add_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint_atomic_fetch_and_nbi(unsigned int *fetch, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_fetch_and_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulong_atomic_fetch_and_nbi(unsigned long *fetch, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_fetch_and_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_atomic_fetch_and_nbi(unsigned long long *fetch, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_fetch_and_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int32_atomic_fetch_and_nbi(int32_t *fetch, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_fetch_and_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int64_atomic_fetch_and_nbi(int64_t *fetch, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_fetch_and_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint32_atomic_fetch_and_nbi(uint32_t *fetch, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_fetch_and_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint64_atomic_fetch_and_nbi(uint64_t *fetch, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_fetch_and_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_atomic_fetch_and_nbi(shmem_ctx_t ctx, unsigned int *fetch, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_fetch_and_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_atomic_fetch_and_nbi(shmem_ctx_t ctx, unsigned long *fetch, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_fetch_and_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_atomic_fetch_and_nbi(shmem_ctx_t ctx, unsigned long long *fetch, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_fetch_and_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_atomic_fetch_and_nbi(shmem_ctx_t ctx, int32_t *fetch, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_fetch_and_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_atomic_fetch_and_nbi(shmem_ctx_t ctx, int64_t *fetch, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_fetch_and_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_atomic_fetch_and_nbi(shmem_ctx_t ctx, uint32_t *fetch, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_fetch_and_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_atomic_fetch_and_nbi(shmem_ctx_t ctx, uint64_t *fetch, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_fetch_and_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint_atomic_fetch_or_nbi(unsigned int *fetch, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_fetch_or_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulong_atomic_fetch_or_nbi(unsigned long *fetch, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_fetch_or_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_atomic_fetch_or_nbi(unsigned long long *fetch, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_fetch_or_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int32_atomic_fetch_or_nbi(int32_t *fetch, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_fetch_or_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int64_atomic_fetch_or_nbi(int64_t *fetch, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_fetch_or_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint32_atomic_fetch_or_nbi(uint32_t *fetch, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_fetch_or_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint64_atomic_fetch_or_nbi(uint64_t *fetch, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_fetch_or_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_atomic_fetch_or_nbi(shmem_ctx_t ctx, unsigned int *fetch, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_fetch_or_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_atomic_fetch_or_nbi(shmem_ctx_t ctx, unsigned long *fetch, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_fetch_or_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_atomic_fetch_or_nbi(shmem_ctx_t ctx, unsigned long long *fetch, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_fetch_or_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_atomic_fetch_or_nbi(shmem_ctx_t ctx, int32_t *fetch, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_fetch_or_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_atomic_fetch_or_nbi(shmem_ctx_t ctx, int64_t *fetch, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_fetch_or_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_atomic_fetch_or_nbi(shmem_ctx_t ctx, uint32_t *fetch, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_fetch_or_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_atomic_fetch_or_nbi(shmem_ctx_t ctx, uint64_t *fetch, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_fetch_or_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint_atomic_fetch_xor_nbi(unsigned int *fetch, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_fetch_xor_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulong_atomic_fetch_xor_nbi(unsigned long *fetch, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_fetch_xor_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ulonglong_atomic_fetch_xor_nbi(unsigned long long *fetch, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_fetch_xor_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int32_atomic_fetch_xor_nbi(int32_t *fetch, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_fetch_xor_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_int64_atomic_fetch_xor_nbi(int64_t *fetch, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_fetch_xor_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint32_atomic_fetch_xor_nbi(uint32_t *fetch, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_fetch_xor_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_uint64_atomic_fetch_xor_nbi(uint64_t *fetch, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_fetch_xor_nbi(shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint_atomic_fetch_xor_nbi(shmem_ctx_t ctx, unsigned int *fetch, unsigned int *dest, unsigned int value, int pe) { mp::shmem::atomic_fetch_xor_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulong_atomic_fetch_xor_nbi(shmem_ctx_t ctx, unsigned long *fetch, unsigned long *dest, unsigned long value, int pe) { mp::shmem::atomic_fetch_xor_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_ulonglong_atomic_fetch_xor_nbi(shmem_ctx_t ctx, unsigned long long *fetch, unsigned long long *dest, unsigned long long value, int pe) { mp::shmem::atomic_fetch_xor_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int32_atomic_fetch_xor_nbi(shmem_ctx_t ctx, int32_t *fetch, int32_t *dest, int32_t value, int pe) { mp::shmem::atomic_fetch_xor_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_int64_atomic_fetch_xor_nbi(shmem_ctx_t ctx, int64_t *fetch, int64_t *dest, int64_t value, int pe) { mp::shmem::atomic_fetch_xor_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint32_atomic_fetch_xor_nbi(shmem_ctx_t ctx, uint32_t *fetch, uint32_t *dest, uint32_t value, int pe) { mp::shmem::atomic_fetch_xor_nbi(shmemg_world, ctx, fetch, dest, value, pe); }
SHMEMG_KERNEL void shmemg_ctx_uint64_atomic_fetch_xor_nbi(shmem_ctx_t ctx, uint64_t *fetch, uint64_t *dest, uint64_t value, int pe) { mp::shmem::atomic_fetch_xor_nbi(shmemg_world, ctx, fetch, dest, value, pe); }

/* Puts with a signal, and signals */
SHMEMG_KERNEL void shmemg_putmem_signal(void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) { mp::shmem::put_signal(mp::thread(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, sig_addr, signal, sig_op, pe); }
SHMEMG_KERNEL void shmemg_putmem_signal_tg(void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) { mp::shmem::put_signal(mp::block(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, sig_addr, signal, sig_op, pe); }
SHMEMG_KERNEL void shmemg_putmem_signal_htg(void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) { mp::shmem::put_signal(mp::warp(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, sig_addr, signal, sig_op, pe); }
SHMEMG_KERNEL void shmemg_ctx_putmem_signal(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) { mp::shmem::put_signal(mp::thread(), shmemg_world, ctx, dest, source, nelems, sig_addr, signal, sig_op, pe); }
SHMEMG_KERNEL void shmemg_ctx_putmem_signal_tg(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) { mp::shmem::put_signal(mp::block(), shmemg_world, ctx, dest, source, nelems, sig_addr, signal, sig_op, pe); }
SHMEMG_KERNEL void shmemg_ctx_putmem_signal_htg(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) { mp::shmem::put_signal(mp::warp(), shmemg_world, ctx, dest, source, nelems, sig_addr, signal, sig_op, pe); }
SHMEMG_KERNEL void shmemg_putmem_signal_nbi(void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) { mp::shmem::put_signal_nbi(mp::thread(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, sig_addr, signal, sig_op, pe); }
SHMEMG_KERNEL void shmemg_putmem_signal_nbi_tg(void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) { mp::shmem::put_signal_nbi(mp::block(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, sig_addr, signal, sig_op, pe); }
SHMEMG_KERNEL void shmemg_putmem_signal_nbi_htg(void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) { mp::shmem::put_signal_nbi(mp::warp(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT, dest, source, nelems, sig_addr, signal, sig_op, pe); }
SHMEMG_KERNEL void shmemg_ctx_putmem_signal_nbi(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) { mp::shmem::put_signal_nbi(mp::thread(), shmemg_world, ctx, dest, source, nelems, sig_addr, signal, sig_op, pe); }
SHMEMG_KERNEL void shmemg_ctx_putmem_signal_nbi_tg(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) { mp::shmem::put_signal_nbi(mp::block(), shmemg_world, ctx, dest, source, nelems, sig_addr, signal, sig_op, pe); }
SHMEMG_KERNEL void shmemg_ctx_putmem_signal_nbi_htg(shmem_ctx_t ctx, void *dest, const void *source, size_t nelems, uint64_t *sig_addr, uint64_t signal, int sig_op, int pe) { mp::shmem::put_signal_nbi(mp::warp(), shmemg_world, ctx, dest, source, nelems, sig_addr, signal, sig_op, pe); }
SHMEMG_KERNEL uint64_t shmemg_signal_fetch(const uint64_t *sig_addr) { return mp::shmem::signal_fetch(shmemg_world, sig_addr); }
SHMEMG_KERNEL uint64_t shmemg_signal_wait_until(uint64_t *sig_addr, int cmp, uint64_t cmp_value) { return mp::shmem::wait_and_see(mp::thread(), shmemg_world, sig_addr, cmp, cmp_value); }
SHMEMG_KERNEL uint64_t shmemg_signal_wait_until_tg(uint64_t *sig_addr, int cmp, uint64_t cmp_value) { return mp::shmem::wait_and_see(mp::block(), shmemg_world, sig_addr, cmp, cmp_value); }
SHMEMG_KERNEL uint64_t shmemg_signal_wait_until_htg(uint64_t *sig_addr, int cmp, uint64_t cmp_value) { return mp::shmem::wait_and_see(mp::warp(), shmemg_world, sig_addr, cmp, cmp_value); }

/* Waits for words of this PE, and looks at them */
SHMEMG_KERNEL void shmemg_short_wait_until(short *ivar, int cmp, short cmp_value) { mp::shmem::wait_until(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_short_wait_until_tg(short *ivar, int cmp, short cmp_value) { mp::shmem::wait_until(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_short_wait_until_htg(short *ivar, int cmp, short cmp_value) { mp::shmem::wait_until(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_int_wait_until(int *ivar, int cmp, int cmp_value) { mp::shmem::wait_until(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_int_wait_until_tg(int *ivar, int cmp, int cmp_value) { mp::shmem::wait_until(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_int_wait_until_htg(int *ivar, int cmp, int cmp_value) { mp::shmem::wait_until(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_long_wait_until(long *ivar, int cmp, long cmp_value) { mp::shmem::wait_until(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_long_wait_until_tg(long *ivar, int cmp, long cmp_value) { mp::shmem::wait_until(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_long_wait_until_htg(long *ivar, int cmp, long cmp_value) { mp::shmem::wait_until(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_longlong_wait_until(long long *ivar, int cmp, long long cmp_value) { mp::shmem::wait_until(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_longlong_wait_until_tg(long long *ivar, int cmp, long long cmp_value) { mp::shmem::wait_until(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_longlong_wait_until_htg(long long *ivar, int cmp, long long cmp_value) { mp::shmem::wait_until(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_ushort_wait_until(unsigned short *ivar, int cmp, unsigned short cmp_value) { mp::shmem::wait_until(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_ushort_wait_until_tg(unsigned short *ivar, int cmp, unsigned short cmp_value) { mp::shmem::wait_until(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_ushort_wait_until_htg(unsigned short *ivar, int cmp, unsigned short cmp_value) { mp::shmem::wait_until(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_uint_wait_until(unsigned int *ivar, int cmp, unsigned int cmp_value) { mp::shmem::wait_until(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_uint_wait_until_tg(unsigned int *ivar, int cmp, unsigned int cmp_value) { mp::shmem::wait_until(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_uint_wait_until_htg(unsigned int *ivar, int cmp, unsigned int cmp_value) { mp::shmem::wait_until(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_ulong_wait_until(unsigned long *ivar, int cmp, unsigned long cmp_value) { mp::shmem::wait_until(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_ulong_wait_until_tg(unsigned long *ivar, int cmp, unsigned long cmp_value) { mp::shmem::wait_until(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_ulong_wait_until_htg(unsigned long *ivar, int cmp, unsigned long cmp_value) { mp::shmem::wait_until(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_ulonglong_wait_until(unsigned long long *ivar, int cmp, unsigned long long cmp_value) { mp::shmem::wait_until(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_ulonglong_wait_until_tg(unsigned long long *ivar, int cmp, unsigned long long cmp_value) { mp::shmem::wait_until(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_ulonglong_wait_until_htg(unsigned long long *ivar, int cmp, unsigned long long cmp_value) { mp::shmem::wait_until(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_int32_wait_until(int32_t *ivar, int cmp, int32_t cmp_value) { mp::shmem::wait_until(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_int32_wait_until_tg(int32_t *ivar, int cmp, int32_t cmp_value) { mp::shmem::wait_until(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_int32_wait_until_htg(int32_t *ivar, int cmp, int32_t cmp_value) { mp::shmem::wait_until(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_int64_wait_until(int64_t *ivar, int cmp, int64_t cmp_value) { mp::shmem::wait_until(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_int64_wait_until_tg(int64_t *ivar, int cmp, int64_t cmp_value) { mp::shmem::wait_until(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_int64_wait_until_htg(int64_t *ivar, int cmp, int64_t cmp_value) { mp::shmem::wait_until(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_uint32_wait_until(uint32_t *ivar, int cmp, uint32_t cmp_value) { mp::shmem::wait_until(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_uint32_wait_until_tg(uint32_t *ivar, int cmp, uint32_t cmp_value) { mp::shmem::wait_until(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_uint32_wait_until_htg(uint32_t *ivar, int cmp, uint32_t cmp_value) { mp::shmem::wait_until(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_uint64_wait_until(uint64_t *ivar, int cmp, uint64_t cmp_value) { mp::shmem::wait_until(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_uint64_wait_until_tg(uint64_t *ivar, int cmp, uint64_t cmp_value) { mp::shmem::wait_until(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_uint64_wait_until_htg(uint64_t *ivar, int cmp, uint64_t cmp_value) { mp::shmem::wait_until(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_size_wait_until(size_t *ivar, int cmp, size_t cmp_value) { mp::shmem::wait_until(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_size_wait_until_tg(size_t *ivar, int cmp, size_t cmp_value) { mp::shmem::wait_until(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_size_wait_until_htg(size_t *ivar, int cmp, size_t cmp_value) { mp::shmem::wait_until(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_ptrdiff_wait_until(ptrdiff_t *ivar, int cmp, ptrdiff_t cmp_value) { mp::shmem::wait_until(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_ptrdiff_wait_until_tg(ptrdiff_t *ivar, int cmp, ptrdiff_t cmp_value) { mp::shmem::wait_until(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL void shmemg_ptrdiff_wait_until_htg(ptrdiff_t *ivar, int cmp, ptrdiff_t cmp_value) { mp::shmem::wait_until(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_short_test(short *ivar, int cmp, short cmp_value) { return mp::shmem::test(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_short_test_tg(short *ivar, int cmp, short cmp_value) { return mp::shmem::test(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_short_test_htg(short *ivar, int cmp, short cmp_value) { return mp::shmem::test(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_int_test(int *ivar, int cmp, int cmp_value) { return mp::shmem::test(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_int_test_tg(int *ivar, int cmp, int cmp_value) { return mp::shmem::test(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_int_test_htg(int *ivar, int cmp, int cmp_value) { return mp::shmem::test(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_long_test(long *ivar, int cmp, long cmp_value) { return mp::shmem::test(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_long_test_tg(long *ivar, int cmp, long cmp_value) { return mp::shmem::test(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_long_test_htg(long *ivar, int cmp, long cmp_value) { return mp::shmem::test(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_longlong_test(long long *ivar, int cmp, long long cmp_value) { return mp::shmem::test(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_longlong_test_tg(long long *ivar, int cmp, long long cmp_value) { return mp::shmem::test(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_longlong_test_htg(long long *ivar, int cmp, long long cmp_value) { return mp::shmem::test(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_ushort_test(unsigned short *ivar, int cmp, unsigned short cmp_value) { return mp::shmem::test(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_ushort_test_tg(unsigned short *ivar, int cmp, unsigned short cmp_value) { return mp::shmem::test(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_ushort_test_htg(unsigned short *ivar, int cmp, unsigned short cmp_value) { return mp::shmem::test(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_uint_test(unsigned int *ivar, int cmp, unsigned int cmp_value) { return mp::shmem::test(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_uint_test_tg(unsigned int *ivar, int cmp, unsigned int cmp_value) { return mp::shmem::test(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_uint_test_htg(unsigned int *ivar, int cmp, unsigned int cmp_value) { return mp::shmem::test(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_ulong_test(unsigned long *ivar, int cmp, unsigned long cmp_value) { return mp::shmem::test(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_ulong_test_tg(unsigned long *ivar, int cmp, unsigned long cmp_value) { return mp::shmem::test(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_ulong_test_htg(unsigned long *ivar, int cmp, unsigned long cmp_value) { return mp::shmem::test(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_ulonglong_test(unsigned long long *ivar, int cmp, unsigned long long cmp_value) { return mp::shmem::test(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_ulonglong_test_tg(unsigned long long *ivar, int cmp, unsigned long long cmp_value) { return mp::shmem::test(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_ulonglong_test_htg(unsigned long long *ivar, int cmp, unsigned long long cmp_value) { return mp::shmem::test(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_int32_test(int32_t *ivar, int cmp, int32_t cmp_value) { return mp::shmem::test(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_int32_test_tg(int32_t *ivar, int cmp, int32_t cmp_value) { return mp::shmem::test(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_int32_test_htg(int32_t *ivar, int cmp, int32_t cmp_value) { return mp::shmem::test(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_int64_test(int64_t *ivar, int cmp, int64_t cmp_value) { return mp::shmem::test(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_int64_test_tg(int64_t *ivar, int cmp, int64_t cmp_value) { return mp::shmem::test(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_int64_test_htg(int64_t *ivar, int cmp, int64_t cmp_value) { return mp::shmem::test(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_uint32_test(uint32_t *ivar, int cmp, uint32_t cmp_value) { return mp::shmem::test(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_uint32_test_tg(uint32_t *ivar, int cmp, uint32_t cmp_value) { return mp::shmem::test(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_uint32_test_htg(uint32_t *ivar, int cmp, uint32_t cmp_value) { return mp::shmem::test(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_uint64_test(uint64_t *ivar, int cmp, uint64_t cmp_value) { return mp::shmem::test(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_uint64_test_tg(uint64_t *ivar, int cmp, uint64_t cmp_value) { return mp::shmem::test(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_uint64_test_htg(uint64_t *ivar, int cmp, uint64_t cmp_value) { return mp::shmem::test(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_size_test(size_t *ivar, int cmp, size_t cmp_value) { return mp::shmem::test(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_size_test_tg(size_t *ivar, int cmp, size_t cmp_value) { return mp::shmem::test(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_size_test_htg(size_t *ivar, int cmp, size_t cmp_value) { return mp::shmem::test(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_ptrdiff_test(ptrdiff_t *ivar, int cmp, ptrdiff_t cmp_value) { return mp::shmem::test(mp::thread(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_ptrdiff_test_tg(ptrdiff_t *ivar, int cmp, ptrdiff_t cmp_value) { return mp::shmem::test(mp::block(), shmemg_world, ivar, cmp, cmp_value); }
SHMEMG_KERNEL int shmemg_ptrdiff_test_htg(ptrdiff_t *ivar, int cmp, ptrdiff_t cmp_value) { return mp::shmem::test(mp::warp(), shmemg_world, ivar, cmp, cmp_value); }

/* Order */
SHMEMG_KERNEL void shmemg_fence(void) { mp::shmem::fence(mp::thread(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT); }
SHMEMG_KERNEL void shmemg_fence_tg(void) { mp::shmem::fence(mp::block(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT); }
SHMEMG_KERNEL void shmemg_fence_htg(void) { mp::shmem::fence(mp::warp(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT); }
SHMEMG_KERNEL void shmemg_ctx_fence(shmem_ctx_t ctx) { mp::shmem::fence(mp::thread(), shmemg_world, ctx); }
SHMEMG_KERNEL void shmemg_ctx_fence_tg(shmem_ctx_t ctx) { mp::shmem::fence(mp::block(), shmemg_world, ctx); }
SHMEMG_KERNEL void shmemg_ctx_fence_htg(shmem_ctx_t ctx) { mp::shmem::fence(mp::warp(), shmemg_world, ctx); }
SHMEMG_KERNEL void shmemg_quiet(void) { mp::shmem::quiet(mp::thread(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT); }
SHMEMG_KERNEL void shmemg_quiet_tg(void) { mp::shmem::quiet(mp::block(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT); }
SHMEMG_KERNEL void shmemg_quiet_htg(void) { mp::shmem::quiet(mp::warp(), shmemg_world, SHMEM_DEVICE_CTX_DEFAULT); }
SHMEMG_KERNEL void shmemg_ctx_quiet(shmem_ctx_t ctx) { mp::shmem::quiet(mp::thread(), shmemg_world, ctx); }
SHMEMG_KERNEL void shmemg_ctx_quiet_tg(shmem_ctx_t ctx) { mp::shmem::quiet(mp::block(), shmemg_world, ctx); }
SHMEMG_KERNEL void shmemg_ctx_quiet_htg(shmem_ctx_t ctx) { mp::shmem::quiet(mp::warp(), shmemg_world, ctx); }
SHMEMG_KERNEL void shmemg_sync_all(void) { mp::shmem::sync_all(mp::thread(), shmemg_world); }
SHMEMG_KERNEL void shmemg_sync_all_tg(void) { mp::shmem::sync_all(mp::block(), shmemg_world); }
SHMEMG_KERNEL void shmemg_sync_all_htg(void) { mp::shmem::sync_all(mp::warp(), shmemg_world); }
SHMEMG_KERNEL int shmemg_team_sync(shmem_team_t team) { return mp::shmem::team_sync(mp::thread(), shmemg_world, team); }
SHMEMG_KERNEL int shmemg_team_sync_tg(shmem_team_t team) { return mp::shmem::team_sync(mp::block(), shmemg_world, team); }
SHMEMG_KERNEL int shmemg_team_sync_htg(shmem_team_t team) { return mp::shmem::team_sync(mp::warp(), shmemg_world, team); }

#endif
#endif /* SHMEMG_H */
