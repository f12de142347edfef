/* Puts with a signal, locks, threads, bitwise and non-blocking atomic operations, old names. */
#include <pthread.h>
#include <shmem.h>

#include "check.h"

enum { N = 1000, TIMES = 50, THREADS = 3 };

static long data[N], locked, under_lock, asking, given_back, counter;
static uint64_t signal_word;
static unsigned bits;
static unsigned long more_bits;
static int found;

static void signals(int me, int n) {
    const int right = (me + 1) % n, left = (me + n - 1) % n;
    for (uint64_t round = 1; round <= 100; ++round) {
        long mine[N];
        for (int i = 0; i < N; ++i) mine[i] = (long)round * 1000 + me;
        if (round % 2) {
            shmem_long_put_signal(data, mine, N, &signal_word, round, SHMEM_SIGNAL_SET, right);
        } else {
            shmem_putmem_signal_nbi(data, mine, sizeof mine, &signal_word, 1, SHMEM_SIGNAL_ADD, right);
            shmem_quiet();
        }
        CHECK(shmem_signal_wait_until(&signal_word, SHMEM_CMP_GE, round) == round);
        CHECK(shmem_signal_fetch(&signal_word) == round);
        for (int i = 0; i < N; ++i) CHECK(data[i] == (long)round * 1000 + left);
        shmem_barrier_all();
    }
}

/* What is read and written under a lock is one step. */
static void locks(int me, int n) {
    for (int i = 0; i < TIMES; ++i) {
        if (i % 3 == 0) {
            while (shmem_test_lock(&locked) != 0) {
            }
        } else {
            shmem_set_lock(&locked);
        }
        const long seen = shmem_long_g(&under_lock, 0);
        shmem_long_p(&under_lock, seen + 1, 0);
        shmem_clear_lock(&locked);
    }
    shmem_barrier_all();
    if (me == 0) CHECK(under_lock == (long)n * TIMES);
    shmem_set_lock(&locked);
    CHECK(shmem_test_lock(&locked) != 0);
    shmem_clear_lock(&locked);
    shmem_barrier_all();
    /* Who asks while another has it comes in behind it. */
    if (me == 0) shmem_set_lock(&locked);
    shmem_barrier_all();
    if (me == 0) {
        shmem_long_wait_until(&asking, SHMEM_CMP_EQ, n - 1);
        for (int i = 0; i < 1000; ++i) sched_yield();
        shmem_long_p(&given_back, 1, 0);
    } else {
        shmem_long_atomic_inc(&asking, 0);
        shmem_set_lock(&locked);
        CHECK(shmem_long_g(&given_back, 0) == 1);
    }
    shmem_clear_lock(&locked);
    shmem_barrier_all();
}

static void *thread(void *nothing) {
    const int n = shmem_n_pes();
    shmem_ctx_t ctx;
    CHECK(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) == 0);
    for (int i = 0; i < TIMES; ++i)
        for (int pe = 0; pe < n; ++pe) {
            long one = 1, seen = 0;
            shmem_ctx_long_atomic_add(ctx, &counter, one, pe);
            shmem_ctx_long_get(ctx, &seen, &counter, 1, pe);
            shmem_ctx_quiet(ctx);
            CHECK(seen > 0);
        }
    shmem_ctx_destroy(ctx);
    return nothing;
}

static void threads(int n) {
    pthread_t all[THREADS];
    for (int i = 0; i < THREADS; ++i) CHECK(pthread_create(&all[i], NULL, thread, NULL) == 0);
    for (int i = 0; i < THREADS; ++i) CHECK(pthread_join(all[i], NULL) == 0);
    shmem_barrier_all();
    CHECK(counter == (long)THREADS * TIMES * n);
    shmem_barrier_all();
}

static void atomics(int me, int n) {
    const int right = (me + 1) % n;
    unsigned before = 9;
    shmem_uint_atomic_or(&bits, 6u, right);
    shmem_quiet();
    CHECK(shmem_uint_atomic_fetch_xor(&bits, 3u, right) == 6u);
    CHECK(shmem_uint_atomic_fetch_and(&bits, 4u, right) == 5u);
    CHECK(shmem_uint_atomic_fetch_or(&bits, 1u, right) == 4u);
    shmem_uint_atomic_xor(&bits, 8u, right);
    shmem_uint_atomic_and(&bits, 12u, right);
    shmem_uint_atomic_fetch_nbi(&before, &bits, right);
    shmem_quiet();
    CHECK(before == 12u);
    shmem_uint_atomic_fetch_add_nbi(&before, &bits, 5u, right);
    shmem_uint_atomic_fetch_inc_nbi(&before, &bits, right);
    shmem_quiet();
    CHECK(before == 17u);
    shmem_uint_atomic_compare_swap_nbi(&before, &bits, 18u, 1u, right);
    shmem_quiet();
    CHECK(before == 18u);
    shmem_uint_atomic_swap_nbi(&before, &bits, 0u, right);
    shmem_quiet();
    CHECK(before == 1u);
    /* Each PE has a bit of one word. */
    shmem_ulong_atomic_or(&more_bits, 1ul << me, 0);
    shmem_barrier_all();
    CHECK(shmem_ulong_atomic_fetch(&more_bits, 0) == (1ul << n) - 1);
}

static void old_names(int me, int n) {
    const int right = (me + 1) % n;
    CHECK(_my_pe() == me && _num_pes() == n);
    int *memory = shmalloc(100);
    memory = shrealloc(memory, 1000);
    CHECK(memory != NULL);
    shfree(memory);
    shmem_int_set(&found, 5, right);
    CHECK(shmem_int_fetch(&found, right) == 5 && shmem_int_fadd(&found, 2, right) == 5 && shmem_int_finc(&found, right) == 7);
    shmem_int_add(&found, 1, right);
    shmem_int_inc(&found, right);
    CHECK(shmem_int_cswap(&found, 10, 11, right) == 10 && shmem_int_swap(&found, 0, right) == 11);
    shmem_barrier_all();
    shmem_int_p(&found, 3, right);
    shmem_int_wait(&found, 0);
    CHECK(found == 3);
}

int main(void) {
    int provided = 0, known = 0;
    CHECK(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) == 0 && provided == SHMEM_THREAD_MULTIPLE);
    shmem_query_thread(&known);
    CHECK(known == provided);
    const int me = shmem_my_pe(), n = shmem_n_pes();
    signals(me, n);
    locks(me, n);
    threads(n);
    atomics(me, n);
    old_names(me, n);
    shmem_pcontrol(1);
    shmem_sync_all();
    void *hinted = shmem_malloc_with_hints(64, SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE);
    void *ignored = shmem_malloc_with_hints(64, ~SHMEM_MALLOC_ATOMICS_REMOTE);
    CHECK(hinted != NULL && ignored != NULL);
    shmem_free(ignored);
    shmem_free(hinted);
    printf("PE %d of %d is through\n", me, n);
    shmem_finalize();
    return 0;
}
