/*
 * The experiments S1 and S2 of the paper "Extending OpenSHMEM for GPU Computing" on memory of GPUs: what puts and gets of the host take from the
 * heap on one device to that on the next PE's, beside the naive way (cudaMemcpy to the host's heap, put, barrier, cudaMemcpy); and a get while the
 * other PE computes, in a kernel or on the CPU. PE 0 prints a line for each: what, bytes or microseconds of computation, and microseconds a
 * call, medians; of S1 the naive way's, too, and the ratio. With MP_PATH=nic it is the way through host memory.
 */
#include <shmem.h>
#include <shmemg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 15, LARGEST = 4 << 20 };

static int me, next;
static char *on_device, *from_device, *on_host, *from_host;
static long *stop;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}
static int order(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void put(size_t bytes) {
    if (me == 0) {
        shmem_putmem(on_device, from_device, bytes, next);
        shmem_quiet();
    }
}
static void get(size_t bytes) {
    if (me == 0) shmem_getmem(from_device, on_device, bytes, next);
}
static void naive_put(size_t bytes) {
    if (me == 0) {
        cudaMemcpy(from_host, from_device, bytes, cudaMemcpyDefault);
        shmem_putmem(on_host, from_host, bytes, next);
    }
    shmem_barrier_all();
    if (me == 1) cudaMemcpy(on_device, on_host, bytes, cudaMemcpyDefault);
}
static void naive_get(size_t bytes) {
    if (me == 1) cudaMemcpy(on_host, on_device, bytes, cudaMemcpyDefault);
    shmem_barrier_all();
    if (me == 0) {
        shmem_getmem(from_host, on_host, bytes, next);
        cudaMemcpy(from_device, from_host, bytes, cudaMemcpyDefault);
    }
}

/* The median of PE 0's, or, of the naive put, of the PE that has the bytes last. */
static double measure(void (*call)(size_t), size_t bytes) {
    static double times[ROUNDS], theirs[ROUNDS];
    for (int round = -3; round < ROUNDS; round++) {
        shmem_barrier_all();
        const double begun = now();
        call(bytes);
        if (round >= 0) times[round] = now() - begun;
    }
    shmem_barrier_all();
    shmem_getmem(theirs, times, sizeof times, 1);
    for (int i = 0; i < ROUNDS; i++)
        if (theirs[i] > times[i]) times[i] = theirs[i];
    shmem_barrier_all();
    qsort(times, ROUNDS, sizeof *times, order);
    return times[ROUNDS / 2];
}

#if defined(__CUDACC__)
__global__ void compute(long microseconds) {
    unsigned long long begun, time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    while (time - begun < 1000ull * (unsigned long long)microseconds);
}
#endif

static void skew(const char *where, int in_kernel, size_t bytes) {
    for (long microseconds = 0; microseconds <= 1000; microseconds += 250) {
        double times[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            *stop = 0;
            shmem_barrier_all();
            if (me == 1) {
                const double begun = now();
#if defined(__CUDACC__)
                if (in_kernel) {
                    compute<<<1, 1>>>(microseconds);
                    cudaDeviceSynchronize();
                }
#endif
                while (!in_kernel && now() - begun < microseconds) {
                }
            } else if (me == 0) {
                const double begun = now();
                shmem_getmem(from_device, on_device, bytes, next);
                times[round] = now() - begun;
            }
            shmem_barrier_all();
        }
        qsort(times, ROUNDS, sizeof *times, order);
        if (me == 0) printf("get of %zu bytes, target in %s for %ld us: %.1f us\n", bytes, where, microseconds, times[ROUNDS / 2]);
    }
}

int main(void) {
    int provided;
    shmem_init_thread(SHMEM_THREAD_SINGLE | SHMEM_DEVICE_HOST_INIT | SHMEM_DEVICE_KERNEL_INIT, &provided);
    me = shmem_my_pe();
    next = (me + 1) % shmem_n_pes();
    if (shmem_n_pes() < 2) shmem_global_exit(2);
    on_device = (char *)shmemg_malloc(LARGEST);
    from_device = (char *)shmemg_calloc(LARGEST, 1);
    on_host = (char *)shmem_malloc(LARGEST);
    from_host = (char *)shmem_malloc(LARGEST);
    stop = (long *)shmem_calloc(1, sizeof *stop);
    for (size_t bytes = 1; bytes <= LARGEST; bytes *= 4) {
        const double a = measure(put, bytes), b = measure(naive_put, bytes), c = measure(get, bytes), d = measure(naive_get, bytes);
        if (me == 0) printf("%zu bytes: put %.1f us, naive %.1f, ratio %.2f; get %.1f us, naive %.1f, ratio %.2f\n", bytes, a, b, a / b, c, d, c / d);
    }
    skew("a loop of the CPU", 0, 4096);
    skew("a kernel", 1, 4096);
    /* Columns: many short rows, which are one batch wherever they go. */
    const double begun = now();
    if (me == 0) {
        shmem_double_iput((double *)on_device, (double *)from_device, 66, 66, 66, next);
        shmem_quiet();
        printf("66 elements, 66 apart: %.1f us the first time", now() - begun);
    }
    for (int round = 0; round < 5; round++) {
        shmem_barrier_all();
        const double again = now();
        if (me == 0) {
            shmem_double_iput((double *)on_device, (double *)from_device, 66, 66, 66, next);
            shmem_quiet();
            printf(", %.1f", now() - again);
        }
    }
    if (me == 0) printf("\n");
    fflush(stdout);
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
