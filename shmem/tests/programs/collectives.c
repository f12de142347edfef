/* Collectives of teams and of active sets: every kind, every type that is combined, in place, with one element and with many. */
#include <complex.h>
#include <shmem.h>
#include <string.h>

#include "check.h"

enum { MOST = 5000, PES = 8 };

static long source[MOST], dest[MOST * PES], sync_words[SHMEM_BCAST_SYNC_SIZE + 1];

static void fill(int me, size_t n) {
    for (size_t i = 0; i < n; ++i) source[i] = me * 100000L + (long)i;
    for (size_t i = 0; i < MOST * PES; ++i) dest[i] = -1;
    shmem_barrier_all();
}

/* What a team's PE is in the world. */
static int world(shmem_team_t team, int pe) { return shmem_team_translate_pe(team, pe, SHMEM_TEAM_WORLD); }

static void moves(shmem_team_t team, size_t n) {
    const int me = shmem_team_my_pe(team), size = shmem_team_n_pes(team), self = shmem_my_pe();
    for (int root = 0; root < size; ++root) {
        fill(self, n);
        CHECK(shmem_long_broadcast(team, dest, source, n, root) == 0);
        for (size_t i = 0; i < n; ++i) CHECK(dest[i] == world(team, root) * 100000L + (long)i);
        CHECK(dest[n] == -1);
    }
    fill(self, n);
    CHECK(shmem_long_fcollect(team, dest, source, n) == 0);
    for (int pe = 0; pe < size; ++pe)
        for (size_t i = 0; i < n; ++i) CHECK(dest[(size_t)pe * n + i] == world(team, pe) * 100000L + (long)i);
    CHECK(dest[(size_t)size * n] == -1);
    /* Of each as many as its number. */
    fill(self, (size_t)size);
    CHECK(shmem_long_collect(team, dest, source, (size_t)me) == 0);
    size_t at = 0;
    for (int pe = 0; pe < size; ++pe)
        for (int i = 0; i < pe; ++i) CHECK(dest[at++] == world(team, pe) * 100000L + i);
    CHECK(dest[at] == -1);
    if (n * (size_t)size <= MOST) {
        fill(self, n * (size_t)size);
        CHECK(shmem_alltoallmem(team, dest, source, n * sizeof(long)) == 0);
        for (int pe = 0; pe < size; ++pe)
            for (size_t i = 0; i < n; ++i)
                CHECK(dest[(size_t)pe * n + i] == world(team, pe) * 100000L + me * (long)n + (long)i);
    }
    if (2 * n * (size_t)size <= MOST) {
        fill(self, 2 * n * (size_t)size);
        CHECK(shmem_long_alltoalls(team, dest, source, 3, 2, n) == 0);
        for (int pe = 0; pe < size; ++pe)
            for (size_t i = 0; i < n; ++i) {
                const size_t to = 3 * ((size_t)pe * n + i);
                CHECK(dest[to] == world(team, pe) * 100000L + 2 * (me * (long)n + (long)i));
                CHECK(dest[to + 1] == -1);
            }
    }
    CHECK(shmem_team_sync(team) == 0);
}

/* Small enough for every type. */
#define TYPED(name, type)                                                                                 \
    static type name##_in[MOST], name##_out[MOST];                                                        \
    static void name##_reduce(shmem_team_t team, size_t n) {                                              \
        const int me = shmem_team_my_pe(team), size = shmem_team_n_pes(team);                             \
        type product = 1;                                                                                 \
        for (int pe = 0; pe < size; ++pe) product = (type)(product * (type)(1 + pe % 2));                 \
        for (size_t i = 0; i < n; ++i) name##_in[i] = (type)(me + (int)(i % 7));                          \
        CHECK(shmem_##name##_sum_reduce(team, name##_out, name##_in, n) == 0);                            \
        for (size_t i = 0; i < n; ++i) CHECK(name##_out[i] == (type)(size * (size - 1) / 2 + size * (int)(i % 7)));  \
        CHECK(shmem_##name##_min_reduce(team, name##_out, name##_in, n) == 0);                            \
        for (size_t i = 0; i < n; ++i) CHECK(name##_out[i] == (type)(i % 7));                             \
        CHECK(shmem_##name##_max_reduce(team, name##_out, name##_in, n) == 0);                            \
        for (size_t i = 0; i < n; ++i) CHECK(name##_out[i] == (type)(size - 1 + (int)(i % 7)));           \
        for (size_t i = 0; i < n; ++i) name##_in[i] = (type)(1 + me % 2);                                 \
        /* In place. */                                                                                   \
        CHECK(shmem_##name##_prod_reduce(team, name##_in, name##_in, n) == 0);                            \
        for (size_t i = 0; i < n; ++i) CHECK(name##_in[i] == product);                                    \
        shmem_barrier_all();                                                                              \
    }
RMA_TYPES(TYPED)

#define INTEGERS(X)                                                                                                    \
    X(schar, signed char) X(short, short) X(int, int) X(long, long) X(longlong, long long) X(uchar, unsigned char)     \
    X(ushort, unsigned short) X(uint, unsigned int) X(ulong, unsigned long) X(ulonglong, unsigned long long)           \
    X(int8, int8_t) X(int16, int16_t) X(int32, int32_t) X(int64, int64_t) X(uint8, uint8_t) X(uint16, uint16_t)        \
    X(uint32, uint32_t) X(uint64, uint64_t) X(size, size_t)
#define BITS(name, type)                                                                                               \
    static void name##_bits(shmem_team_t team) {                                                                       \
        const int me = shmem_team_my_pe(team), size = shmem_team_n_pes(team);                                          \
        const type all = (type)((1 << size) - 1);                                                                      \
        volatile type rest = (type)-1; /* the bits that are not in it, which no compiler sees */                      \
        rest = (type)(rest - all);                                                                                     \
        name##_in[0] = (type)(1 << me);                                                                                \
        name##_in[1] = (type)((type)-1 - (1 << me));                                                                   \
        name##_in[2] = (type)(me == 0 ? 96 : 32);                                                                      \
        shmem_##name##_or_reduce(team, name##_out, name##_in, 1);                                                      \
        shmem_##name##_and_reduce(team, name##_out + 1, name##_in + 1, 1);                                             \
        shmem_##name##_xor_reduce(team, name##_out + 2, name##_in + 2, 1);                                             \
        CHECK(name##_out[0] == all && name##_out[1] == rest && name##_out[2] == (type)(size % 2 ? 96 : 64));     \
        shmem_barrier_all();                                                                                           \
    }
INTEGERS(BITS)

static float complex cf[40];
static double complex cd[40];

static void complex_numbers(shmem_team_t team) {
    const int me = shmem_team_my_pe(team), size = shmem_team_n_pes(team);
    double complex product = 1;
    for (int pe = 0; pe < size; ++pe) product *= pe + 2.0 * I;
    for (int i = 0; i < 40; ++i) cf[i] = me + i * I, cd[i] = me + 2.0 * I;
    CHECK(shmem_complexf_sum_reduce(team, cf, cf, 40) == 0 && shmem_complexd_prod_reduce(team, cd, cd, 40) == 0);
    for (int i = 0; i < 40; ++i) CHECK(cf[i] == size * (size - 1) / 2 + size * i * I && cd[i] == product);
    shmem_barrier_all();
}

/* The deprecated forms: of every 2^log th PE from `start` on. */
static void active_set(int start, int log_stride, int size) {
    const int me = shmem_my_pe(), index = (me - start) >> log_stride;
    static long words[PES * 10], work[20], results[20];
    fill(me, 30);
    if (me < start || index >= size || start + (index << log_stride) != me) {
        shmem_barrier_all();
        return;
    }
    shmem_broadcast64(dest, source, 30, size - 1, start, log_stride, size, sync_words);
    for (int i = 0; i < 30; ++i)
        CHECK(dest[i] == (index == size - 1 ? -1 : (start + ((size - 1) << log_stride)) * 100000L + i));
    shmem_fcollect64(dest, source, 3, start, log_stride, size, sync_words);
    for (int pe = 0; pe < size; ++pe) CHECK(dest[3 * pe + 2] == (start + (pe << log_stride)) * 100000L + 2);
    shmem_collect32(dest, source, (size_t)(2 * (index + 1)), start, log_stride, size, sync_words);
    CHECK(dest[0] == start * 100000L && dest[size * (size + 1) / 2 - 1] == (start + ((size - 1) << log_stride)) * 100000L + size - 1);
    shmem_alltoall64(words, source, 2, start, log_stride, size, sync_words);
    for (int pe = 0; pe < size; ++pe) CHECK(words[2 * pe + 1] == (start + (pe << log_stride)) * 100000L + 2 * index + 1);
    shmem_alltoalls64(words, source, 2, 1, 1, start, log_stride, size, sync_words);
    for (int pe = 0; pe < size; ++pe) CHECK(words[2 * pe] == (start + (pe << log_stride)) * 100000L + index);
    work[0] = index;
    shmem_long_max_to_all(results, work, 1, start, log_stride, size, work + 10, sync_words);
    CHECK(results[0] == size - 1);
    shmem_long_sum_to_all(results, work, 1, start, log_stride, size, work + 10, sync_words);
    CHECK(results[0] == size * (size - 1) / 2);
    shmem_long_p(&words[70], 5, start);
    shmem_barrier(start, log_stride, size, sync_words);
    CHECK(shmem_long_g(&words[70], start) == 5);
    shmem_sync(start, log_stride, size, sync_words);
    shmem_barrier_all();
}

/* Who has returned from a broadcast may write again: many rounds without a barrier, each of other values. */
static void in_a_row(size_t n) {
    const int me = shmem_my_pe(), size = shmem_n_pes();
    fill(me, n);
    for (int round = 0; round < 300; ++round) {
        const int root = round / 100 % size;
        for (size_t i = 0; i < n; ++i) source[i] = me * 100000L + round;
        CHECK(shmem_long_broadcast(SHMEM_TEAM_WORLD, dest, source, n, root) == 0);
        for (size_t i = 0; i < n; ++i) CHECK(dest[i] == root * 100000L + round);
    }
    shmem_barrier_all();
}

int main(void) {
    shmem_init();
    const int me = shmem_my_pe(), n = shmem_n_pes();
    const size_t lengths[] = {1, 7, MOST / PES, 3000};
    shmem_team_t back;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n, NULL, 0, &back) == 0);
    for (int i = 0; i < 4; ++i) {
        moves(SHMEM_TEAM_WORLD, lengths[i]);
        moves(back, lengths[i]);
    }
#define CALL(name, type) name##_reduce(SHMEM_TEAM_WORLD, 1), name##_reduce(back, MOST);
    RMA_TYPES(CALL)
#define CALL_BITS(name, type) name##_bits(SHMEM_TEAM_WORLD);
    INTEGERS(CALL_BITS)
    complex_numbers(SHMEM_TEAM_WORLD);
    complex_numbers(back);
    shmem_team_destroy(back);
    for (int i = 0; i < 4; ++i) in_a_row(lengths[i]);
    for (int start = 0; start < n; ++start)
        for (int log_stride = 0; log_stride < 3; ++log_stride)
            for (int size = 1; start + ((size - 1) << log_stride) < n; ++size) active_set(start, log_stride, size);
    printf("PE %d of %d is through\n", me, n);
    shmem_finalize();
    return 0;
}
