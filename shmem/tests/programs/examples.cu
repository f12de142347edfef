/* What the ten examples of the draft for GPUs show, one function each, by other means and checked, with any number of PEs. */
#include "kernel.h"

static int me, n, right, left;

/* gc_setup: a kernel knows its PE. */
__global__ void who(int *out) {
    out[0] = shmemg_my_pe();
    out[1] = shmemg_n_pes();
}
static void gc_setup() {
    int *out = (int *)shmemg_calloc(2, sizeof *out);
    LAUNCH(who, 1, 1, out);
    CHECK(held(&out[0]) == me && held(&out[1]) == n);
    shmemg_free(out);
}

/* gpu_aware_put: the host puts what it has to the devices of all. */
static void gpu_aware_put() {
    int *from = (int *)shmemg_calloc(n, sizeof *from);
    const int value = 100 + me;
    for (int pe = 0; pe < n; ++pe) shmem_int_put(from + me, &value, 1, pe);
    shmem_barrier_all();
    for (int pe = 0; pe < n; ++pe) CHECK(held(&from[pe]) == 100 + pe);
    shmemg_free(from);
}

/* gpu_centric_put: a kernel does. */
__global__ void put_to(int *dest, const int *source, int pe) {
    shmemg_putmem(dest, source, 3 * sizeof *dest, pe);
    shmemg_quiet();
}
static void gpu_centric_put() {
    int *dest = (int *)shmemg_calloc(3, sizeof *dest), *source = (int *)shmemg_malloc(3 * sizeof *source);
    for (int i = 0; i < 3; ++i) hold(&source[i], 10 * me + i);
    LAUNCH(put_to, 1, 1, dest, source, right);
    shmem_barrier_all();
    for (int i = 0; i < 3; ++i) CHECK(held(&dest[i]) == 10 * left + i);
    shmemg_free(source);
    shmemg_free(dest);
}

/* gc_rma: puts and gets of threads, blocks and warps, and single values. */
enum { MANY = 1000 };
__global__ void move(long *dest, long *back, const long *source, int pe, int *wrong) {
    const int third = MANY / 3 * (int)sizeof(long);
    shmemg_putmem_tg(dest, source, third, pe);
    if (mp::thread_rank() < 32) shmemg_putmem_nbi_htg(dest + MANY / 3, source + MANY / 3, third, pe);
    if (mp::thread_rank() == 0) {
        shmemg_putmem_nbi(dest + 2 * (MANY / 3), source + 2 * (MANY / 3), third, pe);
        shmemg_long_p(dest + MANY - 1, source[MANY - 1], pe);
    }
    shmemg_quiet_tg();
    shmemg_getmem_nbi_tg(back, dest, 2 * third, pe);
    shmemg_quiet_tg();
    if (mp::thread_rank() < 32) shmemg_getmem_htg(back + 2 * (MANY / 3), dest + 2 * (MANY / 3), third, pe);
    if (mp::thread_rank() == 0) {
        back[MANY - 1] = shmemg_long_g(dest + MANY - 1, pe);
        /* It is there when the call returns. */
        shmemg_getmem(back, dest, MANY * sizeof(long), pe);
        for (int i = 0; i < MANY; ++i)
            if (back[i] != source[i]) *wrong = 1 + i;
    }
}
static void gc_rma() {
    long *dest = (long *)shmemg_calloc(MANY, sizeof *dest), *back = (long *)shmemg_calloc(MANY, sizeof *back);
    long *source = (long *)shmemg_malloc(MANY * sizeof *source);
    int *wrong = (int *)shmemg_calloc(1, sizeof *wrong);
    for (int i = 0; i < MANY; ++i) hold(&source[i], 1000L * me + i);
    LAUNCH(move, 1, 64, dest, back, source, right, wrong);
    CHECK(held(wrong) == 0);
    shmem_barrier_all();
    long came[MANY], returned[MANY];
    shmem_long_get(came, dest, MANY, me);
    shmem_long_get(returned, back, MANY, me);
    for (int i = 0; i < MANY; ++i) CHECK(came[i] == 1000L * left + i && returned[i] == 1000L * me + i);
    shmemg_free(wrong);
    shmemg_free(source);
    shmemg_free(back);
    shmemg_free(dest);
}

/* gc_ptr: stores into the memory of others where it is mapped, a put from the heap where it is not. */
__global__ void store_to(long *dest, const long *source, int *mapped, int pe) {
    long *there = (long *)shmemg_ptr(dest, pe);
    *mapped = there != nullptr;
    if (there != nullptr) {
        *there = *source;
    } else {
        shmemg_putmem(dest, source, sizeof *dest, pe);
        shmemg_quiet();
    }
}
static void gc_ptr() {
    long *dest = (long *)shmemg_calloc(1, sizeof *dest), *source = (long *)shmemg_malloc(sizeof *source);
    int *mapped = (int *)shmemg_calloc(1, sizeof *mapped);
    hold(source, 7L + me);
    LAUNCH(store_to, 1, 1, dest, source, mapped, right);
    shmem_barrier_all();
    CHECK(held(dest) == 7L + left);
    /* The host and the kernel are told the same, and the team of those that map each other's memory. */
    CHECK(held(mapped) == (shmem_ptr(dest, right) != nullptr));
    CHECK(held(mapped) == (shmem_team_translate_pe(SHMEM_DEVICE_TEAM_WORLD, right, SHMEM_DEVICE_TEAM_SHARED) >= 0));
    shmemg_free(mapped);
    shmemg_free(source);
    shmemg_free(dest);
}

/* gc_amo: every thread of every PE draws a number of its own. */
enum { THREADS = 8 };
__global__ void draw(long *counter, long *drawn, unsigned *bits) {
    drawn[mp::thread_rank()] = shmemg_long_atomic_fetch_add(counter, 1, 0);
    shmemg_uint_atomic_or(bits, 1u << mp::thread_rank(), 0);
    shmemg_long_atomic_inc(counter + 1, 0);
    shmemg_quiet();
}
static void gc_amo() {
    long *counter = (long *)shmemg_calloc(2, sizeof *counter), *drawn = (long *)shmemg_malloc(THREADS * sizeof *drawn);
    unsigned *bits = (unsigned *)shmemg_calloc(1, sizeof *bits);
    LAUNCH(draw, 1, THREADS, counter, drawn, bits);
    shmem_barrier_all();
    long mine[THREADS];
    shmem_long_get(mine, drawn, THREADS, me);
    static long all[64 * THREADS];
    shmem_long_fcollect(SHMEM_TEAM_WORLD, all, drawn, THREADS);
    for (int number = 0; number < n * THREADS; ++number) {
        int times = 0;
        for (int i = 0; i < n * THREADS; ++i) times += all[i] == number;
        CHECK(times == 1);
    }
    CHECK(shmem_long_g(counter, 0) == n * THREADS && shmem_long_g(counter + 1, 0) == n * THREADS);
    CHECK(shmem_uint_g(bits, 0) == (1u << THREADS) - 1);
    shmemg_free(bits);
    shmemg_free(drawn);
    shmemg_free(counter);
}

/* gc_signaling: who sees the signal sees the message, in every round. */
enum { MESSAGE = 256, ROUNDS = 20 };
__global__ void send(char *dest, const char *source, uint64_t *signal, int round, int pe) {
    if (round % 2)
        shmemg_putmem_signal_tg(dest, source, MESSAGE, signal, 2, SHMEM_SIGNAL_ADD, pe);
    else if (mp::thread_rank() == 0)
        shmemg_putmem_signal_nbi(dest, source, MESSAGE, signal, 2 * (uint64_t)round, SHMEM_SIGNAL_SET, pe);
    shmemg_quiet_tg();
}
__global__ void receive(const char *dest, uint64_t *signal, int round, int expected, int *wrong) {
    if (mp::thread_rank() == 0)
        while (shmemg_signal_fetch(signal) < 2 * (uint64_t)round) {
        }
    const uint64_t seen = shmemg_signal_wait_until_tg(signal, SHMEM_CMP_GE, 2 * (uint64_t)round);
    for (unsigned i = mp::thread_rank(); i < MESSAGE; i += mp::block_threads())
        if (dest[i] != (char)(expected + i)) *wrong = 1;
    if (seen != 2 * (uint64_t)round) *wrong = 2;
}
static void gc_signaling() {
    char *dest = (char *)shmemg_malloc(MESSAGE), *source = (char *)shmemg_malloc(MESSAGE);
    uint64_t *signal = (uint64_t *)shmemg_calloc(1, sizeof *signal);
    int *wrong = (int *)shmemg_calloc(1, sizeof *wrong);
    for (int round = 1; round <= ROUNDS; ++round) {
        char message[MESSAGE];
        for (int i = 0; i < MESSAGE; ++i) message[i] = (char)(me + round + i);
        shmem_putmem(source, message, MESSAGE, me);
        LAUNCH(send, 1, 32, dest, source, signal, round, right);
        LAUNCH(receive, 1, 32, dest, signal, round, left + round, wrong);
        CHECK(held(wrong) == 0);
        shmem_barrier_all();
    }
    shmemg_free(wrong);
    shmemg_free(signal);
    shmemg_free(source);
    shmemg_free(dest);
}

/* gc_p2p: a kernel waits for a word that another PE puts; words of 16 bits, and looks without waiting, too. */
__global__ void notify(long *flag, const long *value, short *half, int pe) {
    shmemg_putmem(flag, value, sizeof *flag, pe);
    shmemg_quiet();
    shmemg_short_p(half, -3, pe);
    shmemg_quiet();
}
__global__ void wait_for(long *flag, short *half, int *passed) {
    shmemg_long_wait_until_tg(flag, SHMEM_CMP_EQ, 1);
    shmemg_short_wait_until_htg(half, SHMEM_CMP_LT, 0);
    const int tests = shmemg_long_test(flag, SHMEM_CMP_NE, 0) + shmemg_short_test(half, SHMEM_CMP_GT, 0) +
                      shmemg_long_test_tg(flag, SHMEM_CMP_LE, 1);
    if (mp::thread_rank() == 0) *passed = tests;
}
static void gc_p2p() {
    long *flag = (long *)shmemg_calloc(1, sizeof *flag), *value = (long *)shmemg_malloc(sizeof *value);
    short *half = (short *)shmemg_calloc(2, sizeof *half);
    int *passed = (int *)shmemg_calloc(1, sizeof *passed);
    hold(value, 1L);
    hold(half, (short)5);
    shmem_barrier_all();
    /* An odd half of a word. */
    LAUNCH(notify, 1, 1, flag, value, half + 1, right);
    LAUNCH(wait_for, 1, 32, flag, half + 1, passed);
    CHECK(held(passed) == 2 && held(half) == 5);
    shmemg_free(passed);
    shmemg_free(half);
    shmemg_free(value);
    shmemg_free(flag);
}

/* gc_collectives: what all have put before they met is there behind it, again and again. */
__global__ void put_and_meet(long *dest, long *source, int *wrong, int pe, int from, int n) {
    for (int round = 0; round < ROUNDS; ++round) {
        if (mp::thread_rank() == 0) {
            *source = 100L * from + round;
            shmemg_putmem(dest, source, sizeof *dest, pe);
            shmemg_quiet();
        }
        if (round % 3 == 0) {
            shmemg_sync_all_tg();
        } else {
            if (mp::thread_rank() < 32 && shmemg_team_sync_htg(SHMEM_DEVICE_TEAM_WORLD) != 0) *wrong = 1;
            mp::block().sync();
        }
        if (mp::thread_rank() == 0) {
            if (shmemg_long_atomic_fetch(dest, shmemg_my_pe()) != 100L * ((from + n - 1) % n) + round) *wrong = 2;
            shmemg_sync_all();
        }
        mp::block().sync();
    }
}
static void gc_collectives() {
    long *dest = (long *)shmemg_calloc(1, sizeof *dest), *source = (long *)shmemg_malloc(sizeof *source);
    int *wrong = (int *)shmemg_calloc(1, sizeof *wrong);
    LAUNCH(put_and_meet, 1, 64, dest, source, wrong, right, me, n);
    CHECK(held(wrong) == 0);
    shmem_barrier_all();
    shmemg_free(wrong);
    shmemg_free(source);
    shmemg_free(dest);
}

/* gc_context: contexts for kernels of the world and of a team, whose PEs have numbers of their own. */
__global__ void put_in(shmem_ctx_t ctx, shmem_team_t team, int *dest, const int *source, int pe, int *failed) {
    shmemg_ctx_putmem(ctx, dest, source, sizeof *dest, pe);
    shmemg_ctx_fence(ctx);
    shmemg_ctx_int_atomic_add(ctx, dest + 1, 5, pe);
    shmemg_ctx_quiet(ctx);
    if (shmemg_team_sync(team) != 0) *failed = 1;
}
static void gc_context() {
    int *dest = (int *)shmemg_calloc(2, sizeof *dest), *source = (int *)shmemg_malloc(sizeof *source);
    int *failed = (int *)shmemg_calloc(1, sizeof *failed);
    hold(source, 30 + me);
    /* The PEs the other way round; over and over, as contexts and teams are given back. */
    for (int time = 0; time < 3; ++time) {
        shmem_team_t team, odd;
        shmem_ctx_t ctx;
        CHECK(shmem_team_split_strided(SHMEM_DEVICE_TEAM_WORLD, n - 1, -1, n, NULL, 0, &team) == 0);
        CHECK(shmem_team_my_pe(team) == n - 1 - me && shmem_team_n_pes(team) == n);
        CHECK(shmem_team_create_ctx(team, SHMEM_DEVICE_CTX, &ctx) == 0);
        CHECK(shmem_ctx_get_team(ctx, &odd) == 0 && odd == team);
        LAUNCH(put_in, 1, 1, ctx, team, dest, source, n - 1 - right, failed);
        CHECK(held(dest) == 30 + left && held(dest + 1) == 5 * (time + 1) && held(failed) == 0);
        shmem_ctx_destroy(ctx);
        shmem_team_destroy(team);
        shmem_barrier_all();
    }
    shmem_ctx_t ctx;
    CHECK(shmem_ctx_create(SHMEM_DEVICE_CTX | SHMEM_CTX_PRIVATE, &ctx) == 0);
    LAUNCH(put_in, 1, 1, ctx, SHMEM_DEVICE_TEAM_WORLD, dest, source, left, failed);
    CHECK(held(dest) == 30 + right && held(dest + 1) == 20 && held(failed) == 0);
    shmem_ctx_destroy(ctx);
    /* One for the host, of the device's team. */
    CHECK(shmem_team_create_ctx(SHMEM_TEAM_WORLD, SHMEM_DEVICE_CTX, &ctx) != 0 && ctx == SHMEM_CTX_INVALID);
    CHECK(shmem_team_create_ctx(SHMEM_DEVICE_TEAM_WORLD, 0, &ctx) == 0);
    shmem_ctx_int_p(ctx, dest, 1, me);
    shmem_ctx_destroy(ctx);
    CHECK(shmem_team_sync(SHMEM_DEVICE_TEAM_WORLD) == 0);
    shmemg_free(failed);
    shmemg_free(source);
    shmemg_free(dest);
}

int main() {
    start_with_device();
    me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
    gc_setup();
    gpu_aware_put();
    gpu_centric_put();
    gc_rma();
    gc_ptr();
    gc_amo();
    gc_signaling();
    gc_p2p();
    gc_collectives();
    gc_context();
    printf("PE %d of %d is through\n", me, n);
    shmem_finalize();
    return 0;
}
