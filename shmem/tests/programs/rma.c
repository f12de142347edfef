/* Puts and gets of every type and form, to variables, static ones and the heap, from and to private memory. */
#include <shmem.h>
#include <string.h>

#include "check.h"

enum { N = 37 };

#define VARIABLES(name, type) \
    type name##_global[N];    \
    static type name##_static[3 * N];
RMA_TYPES(VARIABLES)

static void reset(void) { shmem_barrier_all(); }

/* What PE `pe` puts at place i: fits into every type. */
#define VALUE(type, pe, i) ((type)(((pe) * 3 + (i)) % 100))

#define TYPED(name, type)                                                                   \
    static void name##_all(int me, int n, shmem_ctx_t ctx) {                                \
        const int right = (me + 1) % n, left = (me + n - 1) % n;                            \
        type mine[3 * N], got[3 * N];                                                       \
        type *heap = shmem_malloc(sizeof(type) * N);                                        \
        for (int i = 0; i < 3 * N; ++i) mine[i] = VALUE(type, me, i);                       \
        shmem_##name##_put(name##_global, mine, N, right);                                  \
        shmem_##name##_put_nbi(heap, mine + 1, N, right);                                   \
        shmem_##name##_p(&name##_static[2], mine[5], right);                                \
        shmem_ctx_##name##_p(ctx, &name##_static[3], mine[6], right);                       \
        shmem_##name##_iput(name##_static + 4, mine, 2, 3, N, right);                       \
        shmem_barrier_all();                                                                \
        for (int i = 0; i < N; ++i) {                                                       \
            CHECK(name##_global[i] == VALUE(type, left, i));                                \
            CHECK(heap[i] == VALUE(type, left, i + 1));                                     \
            CHECK(name##_static[4 + 2 * i] == VALUE(type, left, 3 * i));                    \
            if (i + 1 < N) CHECK(name##_static[5 + 2 * i] == 0);                            \
        }                                                                                   \
        CHECK(name##_static[2] == VALUE(type, left, 5));                                    \
        CHECK(name##_static[3] == VALUE(type, left, 6));                                    \
        reset();                                                                            \
        /* What the right PE has is what this one has put there. */                         \
        memset(got, 0, sizeof got);                                                         \
        shmem_##name##_get(got, name##_global, N, right);                                   \
        shmem_ctx_##name##_get_nbi(ctx, got + N, heap, N, right);                           \
        shmem_ctx_quiet(ctx);                                                               \
        CHECK(shmem_##name##_g(&name##_static[2], right) == mine[5]);                       \
        CHECK(shmem_ctx_##name##_g(ctx, &name##_static[3], right) == mine[6]);              \
        for (int i = 0; i < N; ++i) CHECK(got[i] == mine[i] && got[N + i] == mine[i + 1]);  \
        memset(got, 0, sizeof got);                                                         \
        shmem_##name##_iget(got, name##_static + 4, 3, 2, N, right);                        \
        for (int i = 0; i < N; ++i) {                                                       \
            CHECK(got[3 * i] == mine[3 * i]);                                               \
            if (i + 1 < N) CHECK(got[3 * i + 1] == 0 && got[3 * i + 2] == 0);               \
        }                                                                                   \
        shmem_free(heap);                                                                   \
    }
RMA_TYPES(TYPED)

/* The forms of a size, on bytes. */
#define SIZED(bits)                                                                                              \
    static void sized_##bits(int me, int n) {                                                                    \
        enum { BYTES = (bits) / 8 };                                                                             \
        static unsigned char to[4 * N * BYTES];                                                                  \
        unsigned char from[4 * N * BYTES], got[4 * N * BYTES];                                                   \
        const int right = (me + 1) % n, left = (me + n - 1) % n;                                                 \
        for (int i = 0; i < 4 * N * BYTES; ++i) from[i] = (unsigned char)(me * 7 + i);                           \
        shmem_put##bits(to, from, N, right);                                                                     \
        shmem_put##bits##_nbi(to + N * BYTES, from + BYTES, N, right);                                           \
        shmem_iput##bits(to + 2 * N * BYTES, from, 2, 1, N, right);                                              \
        shmem_barrier_all();                                                                                     \
        for (int i = 0; i < N * BYTES; ++i) {                                                                    \
            CHECK(to[i] == (unsigned char)(left * 7 + i));                                                       \
            CHECK(to[N * BYTES + i] == (unsigned char)(left * 7 + BYTES + i));                                   \
            CHECK(to[2 * N * BYTES + i / BYTES * 2 * BYTES + i % BYTES] == (unsigned char)(left * 7 + i));       \
        }                                                                                                        \
        shmem_get##bits(got, to, N, right);                                                                      \
        shmem_get##bits##_nbi(got + N * BYTES, to + N * BYTES, N, right);                                        \
        shmem_quiet();                                                                                           \
        for (int i = 0; i < N * BYTES; ++i) CHECK(got[i] == from[i] && got[N * BYTES + i] == from[BYTES + i]);   \
        shmem_iget##bits(got, to + 2 * N * BYTES, 1, 2, N, right);                                               \
        for (int i = 0; i < N * BYTES; ++i) CHECK(got[i] == from[i]);                                            \
        shmem_barrier_all();                                                                                     \
    }
SIZED(8) SIZED(16) SIZED(32) SIZED(64) SIZED(128)

/* Large ones, whose memory a NIC takes in place, and that go to oneself. */
static void large(int me, int n) {
    const size_t bytes = 3 * 1000 * 1000;
    unsigned char *heap = shmem_malloc(bytes), *mine = malloc(bytes), *got = malloc(bytes);
    for (size_t i = 0; i < bytes; ++i) mine[i] = (unsigned char)(i * 31 + (size_t)me);
    for (int shift = 0; shift < n; ++shift) {
        const int to = (me + shift) % n, from = (me + n - shift) % n;
        shmem_putmem_nbi(heap, mine, bytes, to);
        shmem_quiet();
        shmem_barrier_all();
        for (size_t i = 0; i < bytes; ++i) CHECK(heap[i] == (unsigned char)(i * 31 + (size_t)from));
        shmem_getmem(got, heap, bytes, to);
        CHECK(memcmp(got, mine, bytes) == 0);
        shmem_barrier_all();
    }
    free(mine);
    free(got);
    shmem_free(heap);
}

/* Data, a fence, a flag: who sees the flag sees the data. */
static void in_order(int me, int n) {
    static long data[64], flag;
    for (long round = 1; round <= 300; ++round) {
        const int right = (me + 1) % n;
        long mine[64];
        for (int i = 0; i < 64; ++i) mine[i] = round;
        shmem_long_put(data, mine, 64, right);
        shmem_fence();
        shmem_long_p(&flag, round, right);
        shmem_long_wait_until(&flag, SHMEM_CMP_GE, round);
        for (int i = 0; i < 64; ++i) CHECK(data[i] == round);
        shmem_barrier_all();
    }
}

int main(void) {
    shmem_init();
    const int me = shmem_my_pe(), n = shmem_n_pes();
    shmem_ctx_t ctx;
    CHECK(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) == 0);
#define CALL(name, type) name##_all(me, n, ctx);
    RMA_TYPES(CALL)
    shmem_ctx_destroy(ctx);
    shmem_ctx_destroy(SHMEM_CTX_INVALID);
    sized_8(me, n), sized_16(me, n), sized_32(me, n), sized_64(me, n), sized_128(me, n);
    large(me, n);
    in_order(me, n);
    /* Nothing is nothing, wherever. */
    shmem_putmem(NULL, NULL, 0, (me + 1) % n);
    shmem_getmem(NULL, NULL, 0, (me + 1) % n);
    printf("PE %d of %d is through\n", me, n);
    shmem_finalize();
    return 0;
}
