/*
 * What calls of OpenSHMEM on the host's memory cost: puts and gets, atomic operations, barriers and collectives, from 8 bytes to 4 MiB.
 * Portable C of OpenSHMEM 1.4, so that any implementation runs it (`tools/shmem-compare` does, in turns). PE 0 prints a line for each:
 * the call, bytes, and microseconds a call, the median of several rounds. Puts and gets go to the next PE; collectives are of all.
 */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 9, LARGEST = 4 << 20 };
/* Microseconds that a round takes, about. */
static const double ROUND = 4000;

static long psync[4][SHMEM_REDUCE_SYNC_SIZE > SHMEM_BCAST_SYNC_SIZE ? SHMEM_REDUCE_SYNC_SIZE : SHMEM_BCAST_SYNC_SIZE];
static long word, calls;
static int pes, next;
static char *here, *there;
static double *work;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static void put(size_t bytes, long i) {
    (void)i;
    shmem_putmem(there, here, bytes, next);
    shmem_quiet();
}
static void put_nbi(size_t bytes, long i) {
    (void)i;
    shmem_putmem_nbi(there, here, bytes, next);
}
static void get(size_t bytes, long i) {
    (void)i;
    shmem_getmem(here, there, bytes, next);
}
static void fetch_add(size_t bytes, long i) {
    (void)bytes, (void)i;
    (void)shmem_long_atomic_fetch_add(&word, 1, next);
}
static void add(size_t bytes, long i) {
    (void)bytes, (void)i;
    shmem_long_atomic_add(&word, 1, next);
}
static void barrier(size_t bytes, long i) {
    (void)bytes, (void)i;
    shmem_barrier_all();
}
static void broadcast(size_t bytes, long i) { shmem_broadcast64(there, here, bytes / 8, 0, 0, 0, pes, psync[i % 2]); }
static void reduce(size_t bytes, long i) {
    shmem_double_sum_to_all((double *)there, (double *)here, (int)(bytes / 8), 0, 0, pes, work + i % 2 * (LARGEST / 8 + 64), psync[2 + i % 2]);
}

static int order(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* `only`: PE 0 calls, the others wait. Collectives are begun by all, and what all have ended is one call; a barrier in between keeps two work arrays enough. */
static void measure(const char *name, void (*call)(size_t, long), size_t bytes, int only) {
    const int me = shmem_my_pe();
    double times[ROUNDS], begun;
    calls = 4;
    for (int round = -3; round < ROUNDS; round++) {
        shmem_barrier_all();
        begun = now();
        if (!only || me == 0) {
            for (long i = 0; i < calls; i++) call(bytes, i);
            if (only) shmem_quiet();
        }
        const double took = (now() - begun) / calls;
        if (round >= 0) times[round] = took;
        shmem_barrier_all();
        if (me == 0 && round < 0) {
            calls = took > 0 ? (long)(ROUND / took) : 100000;
            calls = calls < 4 ? 4 : calls > 200000 ? 200000 : calls;
            for (int pe = 1; pe < pes; pe++) shmem_long_p(&calls, calls, pe);
        }
        shmem_barrier_all();
    }
    qsort(times, ROUNDS, sizeof *times, order);
    if (me == 0) printf("%s %zu %.4f\n", name, bytes, times[ROUNDS / 2]);
}

int main(void) {
    shmem_init();
    pes = shmem_n_pes();
    next = (shmem_my_pe() + 1) % pes;
    for (int i = 0; i < 4; i++)
        for (size_t k = 0; k < sizeof psync[0] / sizeof psync[0][0]; k++) psync[i][k] = SHMEM_SYNC_VALUE;
    here = shmem_malloc(LARGEST);
    there = shmem_malloc(LARGEST);
    work = shmem_malloc(2 * (LARGEST / 8 + 64) * sizeof *work);
    if (shmem_my_pe() == 0) printf("pes %d 0\n", pes);
    if (here == NULL || there == NULL || work == NULL) return 1;
    for (size_t k = 0; k < LARGEST / sizeof(double); k++) ((double *)here)[k] = 1;
    shmem_barrier_all();
    measure("fetch_add", fetch_add, 8, 1);
    measure("add", add, 8, 1);
    measure("barrier", barrier, 0, 0);
    for (size_t bytes = 8;; bytes = bytes * 8 < LARGEST ? bytes * 8 : LARGEST) {
        measure("put", put, bytes, 1);
        measure("put_nbi", put_nbi, bytes, 1);
        measure("get", get, bytes, 1);
        measure("broadcast", broadcast, bytes, 0);
        measure("reduce", reduce, bytes, 0);
        if (bytes == LARGEST) break;
    }
    fflush(stdout);
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
