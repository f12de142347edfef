/* OpenCL memory of the program made symmetric by shmmap, with what this needs of OpenCL declared here. With an argument: a mistake. */
#include <shmemx.h>
#include <stdint.h>
#include <string.h>

#include "check.h"

typedef void *handle;
int32_t clGetPlatformIDs(uint32_t, handle *, uint32_t *);
int32_t clGetDeviceIDs(handle, uint64_t, uint32_t, handle *, uint32_t *);
handle clCreateContext(const intptr_t *, uint32_t, const handle *, void *, void *, int32_t *);
handle clCreateCommandQueue(handle, handle, uint64_t, int32_t *);
handle clCreateBuffer(handle, uint64_t, size_t, void *, int32_t *);
int32_t clReleaseMemObject(handle);
int32_t clEnqueueWriteBuffer(handle, handle, uint32_t, size_t, size_t, const void *, uint32_t, const handle *, handle *);
int32_t clEnqueueReadBuffer(handle, handle, uint32_t, size_t, size_t, void *, uint32_t, const handle *, handle *);

enum { MANY = 30000, READ_WRITE = 1, READ_ONLY = 4 };

static handle context, queue;
static long flag, on_host[MANY];

static handle buffer(uint64_t kind) {
    int32_t status = 0;
    static const long zeros[MANY];
    handle memory = clCreateBuffer(context, kind, sizeof zeros, NULL, &status);
    CHECK(memory != NULL && status == 0);
    CHECK(clEnqueueWriteBuffer(queue, memory, 1, 0, sizeof zeros, zeros, 0, NULL, NULL) == 0);
    return memory;
}

int main(int argc, char **argv) {
    shmem_init();
    const int me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
    handle platform = NULL, device = NULL;
    int32_t status = 0;
    CHECK(clGetPlatformIDs(1, &platform, NULL) == 0 && clGetDeviceIDs(platform, 0xffffffff, 1, &device, NULL) == 0);
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    queue = clCreateCommandQueue(context, device, 0, &status);
    CHECK(context != NULL && queue != NULL);
    const char *mistake = argc > 1 ? argv[1] : "";
    handle memory = buffer(strcmp(mistake, "read-only") == 0 ? READ_ONLY : READ_WRITE), own = buffer(READ_WRITE);
    const size_t bytes = MANY * sizeof(long);
    /* All PEs make the same mistake, but for the length, the operation and the place, of which one is enough. */
    if (strcmp(mistake, "length") == 0) shmmap(memory, bytes - 8 * (size_t)(me == 1), OSHM_MEMTYPE_OPENCL);
    long *mapped = (long *)shmmap(memory, bytes + 8 * (size_t)(strcmp(mistake, "past") == 0), OSHM_MEMTYPE_OPENCL);
    long *source = (long *)shmmap(own, bytes, OSHM_MEMTYPE_OPENCL);
    CHECK(mapped != NULL && shmem_addr_accessible(mapped, right) && shmem_addr_accessible(mapped + MANY - 1, right));
    CHECK(!shmem_addr_accessible(mapped + MANY, right) && shmem_ptr(mapped, right) == NULL && shmem_ptr(mapped, me) == NULL);
    if (me == 1 && strcmp(mistake, "atomic") == 0) shmem_long_atomic_add(mapped, 1, 0);
    if (me == 1 && strcmp(mistake, "put-past") == 0) shmem_long_put(mapped + 1, on_host, MANY, 0);
    if (*mistake != '\0') shmem_barrier_all();

    /* From the host there, of several lengths, and what follows is ordered behind it. */
    for (int i = 0; i < MANY; ++i) on_host[i] = 1000000L * me + i;
    shmem_long_put(mapped, on_host, MANY - 10, right);
    shmem_long_put_nbi(mapped + MANY - 10, on_host + MANY - 10, 5, right);
    shmem_long_p(mapped + MANY - 5, -1 - me, right);
    shmem_fence();
    shmem_long_atomic_inc(&flag, right);
    shmem_long_wait_until(&flag, SHMEM_CMP_EQ, 1);
    static long seen[MANY];
    CHECK(clEnqueueReadBuffer(queue, memory, 1, 0, bytes, seen, 0, NULL, NULL) == 0);
    for (int i = 0; i < MANY - 5; ++i) CHECK(seen[i] == 1000000L * left + i);
    CHECK(seen[MANY - 5] == -1 - left && seen[MANY - 4] == 0);
    shmem_barrier_all();
    /* Back, whole and single, and a wait that looks at it. */
    memset(on_host, 0, sizeof on_host);
    shmem_long_get(on_host, mapped, MANY, right);
    CHECK(on_host[0] == 1000000L * me && on_host[MANY - 6] == 1000000L * me + MANY - 6 && on_host[MANY - 5] == -1 - me);
    CHECK(shmem_long_g(mapped + 7, left) == 1000000L * ((left + n - 1) % n) + 7);
    shmem_barrier_all();
    shmem_long_put_signal(mapped + MANY - 3, on_host, 1, (uint64_t *)&flag, 9, SHMEM_SIGNAL_SET, right);
    shmem_signal_wait_until((uint64_t *)&flag, SHMEM_CMP_EQ, 9);
    CHECK(shmem_long_g(mapped + MANY - 3, me) == 1000000L * left);
    shmem_barrier_all();
    shmem_long_p(mapped + MANY - 2, 77, right);
    shmem_long_wait_until(mapped + MANY - 2, SHMEM_CMP_EQ, 77);
    shmem_barrier_all();

    /* OpenCL memory to OpenCL memory, and to the host there; rows; reductions. */
    for (int i = 0; i < MANY; ++i) on_host[i] = 5 * i + me;
    CHECK(clEnqueueWriteBuffer(queue, own, 1, 0, bytes, on_host, 0, NULL, NULL) == 0);
    shmem_long_put(mapped, source, MANY, right);
    shmem_barrier_all();
    CHECK(shmem_long_g(mapped + MANY - 1, me) == 5 * (MANY - 1) + left);
    memset(on_host, 0, sizeof on_host);
    shmem_barrier_all();
    shmem_long_put(on_host, source, 100, right);
    shmem_barrier_all();
    for (int i = 0; i < 100; ++i) CHECK(on_host[i] == 5 * i + left);
    shmem_barrier_all();
    shmem_long_get(source, on_host, 100, right);
    CHECK(shmem_long_g(source + 99, me) == 5 * 99 + me);
    shmem_long_iput(mapped + 1, source, 3, 2, 1000, right);
    shmem_barrier_all();
    shmem_long_get(seen, mapped, MANY, me);
    for (int i = 0; i < 1000; ++i) {
        CHECK(seen[1 + 3 * i] == 5 * 2 * i + left && seen[2 + 3 * i] == 5 * (2 + 3 * i) + left);
    }
    memset(seen, 0, sizeof seen);
    shmem_barrier_all();
    shmem_long_iget(seen, mapped + 1, 2, 3, 1000, left);
    for (int i = 0; i < 1000; ++i) CHECK(seen[2 * i] == 5 * 2 * i + (left + n - 1) % n && seen[2 * i + 1] == 0);
    shmem_barrier_all();
    shmem_long_p(mapped, me + 1, me);
    shmem_long_p(mapped + 1, 10 * me, me);
    CHECK(shmem_long_sum_reduce(SHMEM_TEAM_WORLD, source, mapped, 2) == 0);
    CHECK(shmem_long_g(source, me) == (long)n * (n + 1) / 2 && shmem_long_g(source + 1, me) == 5L * n * (n - 1));
    CHECK(shmem_long_broadcast(SHMEM_TEAM_WORLD, source, mapped, 1, 0) == 0 && shmem_long_g(source, me) == 1);

    shmunmap(source);
    shmunmap(mapped);
    CHECK(!shmem_addr_accessible(mapped, right));
    CHECK(clReleaseMemObject(memory) == 0 && clReleaseMemObject(own) == 0);
    printf("PE %d of %d is through\n", me, n);
    shmem_finalize();
    return 0;
}
