// A CUDA driver that breaks: preloaded (LD_PRELOAD), it stands between a program and the real driver, which programs look
// up with dlsym. From the moment on at which the file $MP_TORTURE_FOLDER/struck is there, calls of the threads named
// $MP_TORTURE_DRIVER (as "rank-1") fail, as they do after a kernel has run into an error: with
// CUDA_ERROR_LAUNCH_FAILED (719). Calls of other threads go through.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int breaks(void) {
    const char* who = getenv("MP_TORTURE_DRIVER");
    const char* folder = getenv("MP_TORTURE_FOLDER");
    char name[32] = "", file[4096];
    if (!who || !folder || pthread_getname_np(pthread_self(), name, sizeof name) != 0 || strcmp(name, who) != 0) return 0;
    snprintf(file, sizeof file, "%s/struck", folder);
    return access(file, F_OK) == 0;
}

// A call with arguments of integers and pointers, at most eleven: those that are not there are passed on unread.
typedef long (*Call)(long, long, long, long, long, long, long, long, long, long, long);
#define CALLS(DO) \
    DO(cuMemAlloc_v2) DO(cuMemFree_v2) DO(cuMemHostAlloc) DO(cuMemHostRegister_v2) DO(cuLaunchKernel) DO(cuStreamCreate) \
    DO(cuStreamCreateWithPriority) DO(cuStreamSynchronize) DO(cuStreamQuery) DO(cuEventCreate) DO(cuEventRecord) \
    DO(cuEventQuery) DO(cuMemcpyAsync) DO(cuMemcpyDtoHAsync_v2) DO(cuMemcpyHtoDAsync_v2) DO(cuStreamBatchMemOp_v2) \
    DO(cuModuleLoadFatBinary)
#define WRAP(call) \
    static Call real_##call; \
    static long my_##call(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k) { \
        return breaks() ? 719 : real_##call(a, b, c, d, e, f, g, h, i, j, k); \
    }
CALLS(WRAP)

void* dlsym(void* restrict library, const char* restrict name) {
    static void* (*real)(void*, const char*);
    if (!real) real = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (!real) real = (void* (*)(void*, const char*))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    void* found = real(library, name);
#define TAKE(call) \
    if (found && strcmp(name, #call) == 0) { \
        real_##call = (Call)found; \
        return (void*)my_##call; \
    }
    CALLS(TAKE)
    return found;
}
