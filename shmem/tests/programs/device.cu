/* Every typed function of kernels, and the host's functions on memory of the device: strided, by type, with signals, waited for, combined. */
#include "kernel.h"

static int me, n, right, left;

/* ---- kernels: each PE works on its right neighbour's words ---------------------------------------------------------- */

#define SINGLE(NAME, TYPE)                                                                  \
    __global__ void single_##NAME(TYPE *dest, TYPE *seen, int pe) {                         \
        shmemg_##NAME##_p(dest, (TYPE)(shmemg_my_pe() + 3), pe);                            \
        shmemg_quiet();                                                                     \
        seen[0] = shmemg_##NAME##_g(dest, pe);                                              \
        shmemg_ctx_##NAME##_p(SHMEM_DEVICE_CTX_DEFAULT, dest + 1, (TYPE)9, pe);             \
        shmemg_quiet();                                                                     \
        seen[1] = shmemg_ctx_##NAME##_g(SHMEM_DEVICE_CTX_DEFAULT, dest + 1, pe);            \
    }                                                                                       \
    static void check_single_##NAME() {                                                     \
        TYPE *words = (TYPE *)shmemg_calloc(4, sizeof(TYPE));                               \
        LAUNCH(single_##NAME, 1, 1, words, words + 2, right);                               \
        shmem_barrier_all();                                                                \
        CHECK(held(&words[0]) == (TYPE)(left + 3) && held(&words[1]) == (TYPE)9);           \
        CHECK(held(&words[2]) == (TYPE)(me + 3) && held(&words[3]) == (TYPE)9);             \
        shmemg_free(words);                                                                 \
    }

/* The words before, one for each step. */
#define COUNTING(NAME, TYPE)                                                                \
    __global__ void count_##NAME(TYPE *word, TYPE *seen, int pe) {                          \
        shmemg_##NAME##_atomic_set(word, 10, pe);                                           \
        seen[0] = shmemg_##NAME##_atomic_fetch(word, pe);                                   \
        seen[1] = shmemg_##NAME##_atomic_swap(word, 20, pe);                                \
        seen[2] = shmemg_##NAME##_atomic_compare_swap(word, 7, 99, pe);                     \
        seen[3] = shmemg_##NAME##_atomic_compare_swap(word, 20, 30, pe);                    \
        seen[4] = shmemg_##NAME##_atomic_fetch_inc(word, pe);                               \
        shmemg_##NAME##_atomic_inc(word, pe);                                               \
        shmemg_quiet();                                                                     \
        seen[5] = shmemg_##NAME##_atomic_fetch_add(word, 8, pe);                            \
        shmemg_##NAME##_atomic_add(word, 2, pe);                                            \
        shmemg_quiet();                                                                     \
        shmemg_##NAME##_atomic_fetch_nbi(&seen[6], word, pe);                               \
        shmemg_quiet();                                                                     \
        shmemg_##NAME##_atomic_swap_nbi(&seen[7], word, 50, pe);                            \
        shmemg_quiet();                                                                     \
        shmemg_##NAME##_atomic_compare_swap_nbi(&seen[8], word, 50, 60, pe);                \
        shmemg_quiet();                                                                     \
        shmemg_##NAME##_atomic_fetch_inc_nbi(&seen[9], word, pe);                           \
        shmemg_quiet();                                                                     \
        shmemg_##NAME##_atomic_fetch_add_nbi(&seen[10], word, 4, pe);                       \
        shmemg_quiet();                                                                     \
        seen[11] = shmemg_ctx_##NAME##_atomic_fetch_add(SHMEM_DEVICE_CTX_DEFAULT, word, 1, pe); \
        shmemg_##NAME##_wait_until(seen, SHMEM_CMP_GT, 9);                                  \
        /* A bit for each of the six comparisons. */                                        \
        for (int comparison = SHMEM_CMP_EQ; comparison <= SHMEM_CMP_LE; ++comparison) {     \
            seen[12] += (TYPE)(shmemg_##NAME##_test(seen, comparison, 10) << comparison);   \
            seen[13] += (TYPE)(shmemg_##NAME##_test(seen, comparison, 11) << comparison);   \
        }                                                                                   \
    }                                                                                       \
    static void check_count_##NAME() {                                                      \
        const int equal = 1 << SHMEM_CMP_EQ | 1 << SHMEM_CMP_GE | 1 << SHMEM_CMP_LE;        \
        const int less = 1 << SHMEM_CMP_NE | 1 << SHMEM_CMP_LT | 1 << SHMEM_CMP_LE;         \
        const int expected[] = {10, 10, 20, 20, 30, 32, 42, 42, 50, 60, 61, 65, equal, less}; \
        TYPE *words = (TYPE *)shmemg_calloc(15, sizeof(TYPE));                              \
        LAUNCH(count_##NAME, 1, 1, words + 14, words, right);                               \
        for (int i = 0; i < 14; ++i) CHECK(held(&words[i]) == (TYPE)expected[i]);           \
        shmem_barrier_all();                                                                \
        CHECK(held(&words[14]) == (TYPE)66);                                                \
        shmemg_free(words);                                                                 \
    }

#define BITS(NAME, TYPE)                                                                    \
    __global__ void bits_##NAME(TYPE *word, TYPE *seen, int pe) {                           \
        shmemg_##NAME##_atomic_set(word, 12, pe);                                           \
        seen[0] = shmemg_##NAME##_atomic_fetch_and(word, 10, pe);                           \
        seen[1] = shmemg_##NAME##_atomic_fetch_or(word, 3, pe);                             \
        seen[2] = shmemg_##NAME##_atomic_fetch_xor(word, 1, pe);                            \
        shmemg_##NAME##_atomic_or(word, 5, pe);                                             \
        shmemg_##NAME##_atomic_and(word, 13, pe);                                           \
        shmemg_##NAME##_atomic_xor(word, 4, pe);                                            \
        shmemg_quiet();                                                                     \
        shmemg_##NAME##_atomic_fetch_and_nbi(&seen[3], word, 8, pe);                        \
        shmemg_quiet();                                                                     \
        shmemg_##NAME##_atomic_fetch_or_nbi(&seen[4], word, 1, pe);                         \
        shmemg_quiet();                                                                     \
        shmemg_##NAME##_atomic_fetch_xor_nbi(&seen[5], word, 3, pe);                        \
        shmemg_quiet();                                                                     \
    }                                                                                       \
    static void check_bits_##NAME() {                                                       \
        const int expected[] = {12, 8, 11, 9, 8, 9};                                        \
        TYPE *words = (TYPE *)shmemg_calloc(7, sizeof(TYPE));                               \
        LAUNCH(bits_##NAME, 1, 1, words + 6, words, right);                                 \
        for (int i = 0; i < 6; ++i) CHECK(held(&words[i]) == (TYPE)expected[i]);            \
        shmem_barrier_all();                                                                \
        CHECK(held(&words[6]) == (TYPE)10);                                                 \
        shmemg_free(words);                                                                 \
    }

/* Numbers that are only read, set and swapped. */
#define REAL(NAME, TYPE)                                                                    \
    __global__ void real_##NAME(TYPE *word, TYPE *seen, int pe) {                           \
        shmemg_##NAME##_atomic_set(word, (TYPE)1.5, pe);                                    \
        seen[0] = shmemg_##NAME##_atomic_swap(word, (TYPE)2.5, pe);                         \
        shmemg_##NAME##_atomic_swap_nbi(&seen[1], word, (TYPE)-0.5, pe);                    \
        shmemg_quiet();                                                                     \
        seen[2] = shmemg_##NAME##_atomic_fetch(word, pe);                                   \
    }                                                                                       \
    static void check_real_##NAME() {                                                       \
        TYPE *words = (TYPE *)shmemg_calloc(4, sizeof(TYPE));                               \
        LAUNCH(real_##NAME, 1, 1, words + 3, words, right);                                 \
        CHECK(held(&words[0]) == (TYPE)1.5 && held(&words[1]) == (TYPE)2.5 && held(&words[2]) == (TYPE)-0.5); \
        shmem_barrier_all();                                                                \
        CHECK(held(&words[3]) == (TYPE)-0.5);                                               \
        shmemg_free(words);                                                                 \
    }

#define SINGLE_TYPES(X)                                                                                                 \
    X(float, float) X(double, double) X(char, char) X(schar, signed char) X(short, short) X(uchar, unsigned char)        \
    X(ushort, unsigned short) X(int8, int8_t) X(int16, int16_t) X(uint8, uint8_t) X(uint16, uint16_t) AMO_TYPES(X)
#define BIT_TYPES(X)                                                                                                    \
    X(uint, unsigned int) X(ulong, unsigned long) X(ulonglong, unsigned long long) X(int32, int32_t) X(int64, int64_t)   \
    X(uint32, uint32_t) X(uint64, uint64_t)

SINGLE_TYPES(SINGLE)
AMO_TYPES(COUNTING)
BIT_TYPES(BITS)
REAL(float, float)
REAL(double, double)

static void kernels() {
#define CALL_SINGLE(NAME, TYPE) check_single_##NAME();
#define CALL_COUNTING(NAME, TYPE) check_count_##NAME();
#define CALL_BITS(NAME, TYPE) check_bits_##NAME();
    SINGLE_TYPES(CALL_SINGLE)
    AMO_TYPES(CALL_COUNTING)
    BIT_TYPES(CALL_BITS)
    check_real_float();
    check_real_double();
}

/* ---- the host ------------------------------------------------------------------------------------------------------- */

enum { N = 40 };

static void strided() {
    int *dest = (int *)shmemg_calloc(N, sizeof *dest), *source = (int *)shmemg_calloc(N, sizeof *source);
    int *on_host = (int *)shmem_calloc(N, sizeof *on_host), mine[N], back[N];
    for (int i = 0; i < N; ++i) mine[i] = 100 * me + i;
    shmem_int_put(source, mine, N, me);
    shmem_barrier_all();
    /* From memory of the device, and of the host, to both. */
    shmem_int_iput(dest, source, 2, 1, N / 2, right);
    shmem_int_ibput(dest + 1, mine + 20, 4, 2, 1, N / 4, right);
    shmem_int_iput(on_host, source, 2, 1, N / 2, right);
    shmem_int_put_nbi(on_host + 1, source + 5, 1, right);
    shmem_barrier_all();
    shmem_int_get(back, dest, N, me);
    for (int i = 0; i < N / 2; ++i) CHECK(back[2 * i] == 100 * left + i && on_host[2 * i] == 100 * left + i);
    for (int i = 0; i < N / 4; ++i) CHECK(back[1 + 4 * i] == 100 * left + 20 + 2 * i);
    CHECK(on_host[1] == 100 * left + 5);
    shmem_barrier_all();
    shmem_int_iget(dest, source, 1, 2, N / 2, left);
    shmem_int_get_nbi(dest + N / 2, on_host, 4, left);
    shmem_quiet();
    shmem_int_iget(back, dest, 1, 1, N / 2 + 4, me);
    for (int i = 0; i < N / 2; ++i) CHECK(back[i] == 100 * left + 2 * i);
    CHECK(back[N / 2 + 2] == 100 * ((left + n - 1) % n) + 1);
    shmem_barrier_all();
    shmem_free(on_host);
    shmemg_free(source);
    shmemg_free(dest);
}

/* Who sees the signal, in whichever heap, sees the data in the other. */
static void across() {
    long *data = (long *)shmemg_calloc(1, sizeof *data), *flag = (long *)shmem_calloc(1, sizeof *flag);
    uint64_t *near_signal = (uint64_t *)shmem_calloc(1, sizeof *near_signal);
    uint64_t *far_signal = (uint64_t *)shmemg_calloc(1, sizeof *far_signal);
    for (long round = 1; round <= 20; ++round) {
        long value = 10 * me + round;
        shmem_long_put_signal(data, &value, 1, near_signal, 1, SHMEM_SIGNAL_ADD, right);
        CHECK(shmem_signal_wait_until(near_signal, SHMEM_CMP_GE, (uint64_t)round) == (uint64_t)round);
        CHECK(shmem_long_g(data, me) == 10 * left + round);
        shmem_barrier_all();
        shmem_long_put_signal_nbi(flag, &value, 1, far_signal, (uint64_t)round, SHMEM_SIGNAL_SET, left);
        shmem_uint64_wait_until(far_signal, SHMEM_CMP_EQ, (uint64_t)round);
        CHECK(shmem_signal_fetch(far_signal) == (uint64_t)round && *flag == 10 * right + round);
        shmem_barrier_all();
        /* The draft's rule: a fence does not order puts to different heaps, quiet does. */
        value = -value;
        shmem_long_p(data, value, right);
        shmem_quiet();
        shmem_long_p(flag, value, right);
        shmem_long_wait_until(flag, SHMEM_CMP_LT, 0);
        CHECK(shmem_long_g(data, me) == -(10 * left + round));
        shmem_barrier_all();
    }
    shmemg_free(far_signal);
    shmem_free(near_signal);
    shmem_free(flag);
    shmemg_free(data);
}

static void words() {
    long *word = (long *)shmemg_calloc(3, sizeof *word), fetched = 0;
    for (int pe = 0; pe < n; ++pe) shmem_long_atomic_add(word, 2, pe);
    shmem_barrier_all();
    CHECK(shmem_long_atomic_fetch(word, right) == 2 * n);
    shmem_barrier_all();
    CHECK(shmem_long_atomic_swap(word, 5, right) == 2 * n);
    shmem_long_atomic_fetch_add_nbi(word + 1, word, 1, right);
    shmem_long_atomic_compare_swap_nbi(&fetched, word, 6, 7, right);
    shmem_quiet();
    CHECK(shmem_long_g(word + 1, me) == 5 && fetched == 6);
    shmem_barrier_all();
    CHECK(shmem_long_test(word, SHMEM_CMP_EQ, 7) == 1 && shmem_long_test(word, SHMEM_CMP_GT, 7) == 0);
    shmem_long_p(word + 2, 1, right);
    const int left_out[3] = {1, 1, 0};
    CHECK(shmem_long_wait_until_any(word, 3, left_out, SHMEM_CMP_EQ, 1) == 2);
    CHECK(shmem_addr_accessible(word, right) == 1 && shmem_addr_accessible(&fetched, right) == 0);
    shmem_barrier_all();
    shmemg_free(word);
}

static void collectives() {
    int *from = (int *)shmemg_calloc(n, sizeof *from), *to = (int *)shmemg_calloc(2 * n, sizeof *to);
    for (int pe = 0; pe < n; ++pe) hold(&from[pe], 10 * me + pe);
    const shmem_team_t team = SHMEM_DEVICE_TEAM_WORLD;
    CHECK(shmem_int_alltoall(team, to, from, 1) == 0);
    for (int pe = 0; pe < n; ++pe) CHECK(held(&to[pe]) == 10 * pe + me);
    CHECK(shmem_int_alltoalls(team, to, from, 2, 1, 1) == 0);
    for (int pe = 0; pe < n; ++pe) CHECK(held(&to[2 * pe]) == 10 * pe + me);
    CHECK(shmem_int_fcollect(SHMEM_TEAM_WORLD, to, from + me, 1) == 0);
    for (int pe = 0; pe < n; ++pe) CHECK(held(&to[pe]) == 11 * pe);
    CHECK(shmem_int_collect(team, to, from, me == 0 ? 2 : 1) == 0);
    for (int pe = 1; pe < n; ++pe) CHECK(held(&to[pe + 1]) == 10 * pe);
    CHECK(shmem_int_broadcast(team, to, from, 1, n - 1) == 0 && held(to) == 10 * (n - 1));
    CHECK(shmem_int_sum_reduce(team, to, from, n) == 0);
    for (int pe = 0; pe < n; ++pe) CHECK(held(&to[pe]) == 10 * n * (n - 1) / 2 + n * pe);
    CHECK(shmem_int_sum_inscan(team, to, from, 1) == 0 && held(to) == 10 * me * (me + 1) / 2);
    CHECK(shmem_int_sum_exscan(team, to, from, 1) == 0 && held(to) == 10 * me * (me - 1) / 2);
    shmemg_free(to);
    shmemg_free(from);
}

static void memory() {
    char *aligned = (char *)shmemg_align(4096, 100);
    CHECK(aligned != nullptr && (uintptr_t)aligned % 4096 == 0);
    char *hinted = (char *)shmem_malloc_with_hints(64, SHMEM_DEVICE_MALLOC_KERNEL_INIT);
    /* Of the device's heap: in the same piece, and given back there. */
    CHECK(hinted != nullptr && shmem_addr_accessible(hinted, right));
    shmem_free(hinted);
    shmemg_free(aligned);
    CHECK(shmemg_malloc(0) == nullptr && shmemg_calloc(0, 8) == nullptr);
    shmemg_free(nullptr);
    /* What was used is zero again, if it is asked for so. */
    long *used = (long *)shmemg_malloc(N * sizeof *used);
    for (int i = 0; i < N; ++i) hold(&used[i], 77L);
    shmemg_free(used);
    used = (long *)shmemg_calloc(N, sizeof *used);
    for (int i = 0; i < N; ++i) CHECK(held(&used[i]) == 0);
    shmemg_free(used);
}

int main() {
    start_with_device();
    me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
    memory();
    strided();
    across();
    words();
    collectives();
    kernels();
    printf("PE %d of %d is through\n", me, n);
    shmem_finalize();
    return 0;
}
