/* What OpenSHMEM 1.6 adds: starts and ends that nest and begin again, strided blocks, scans, signals without data, quiet for some PEs,
 * sessions. */
#include <complex.h>
#include <shmem.h>
#include <string.h>

#include "check.h"

enum { BLOCKS = 5, N = 4096 };

static int is_initialized(void) {
    int initialized = -1;
    shmem_query_initialized(&initialized);
    return initialized;
}

/* Blocks of three elements, four apart there and five apart here; what lies between them stays. */
#define BLOCKS_OF(name, type)                                                                                          \
    {                                                                                                                  \
        static type to[4 * BLOCKS], back[5 * BLOCKS];                                                                  \
        type from[5 * BLOCKS];                                                                                         \
        for (int i = 0; i < 5 * BLOCKS; ++i) from[i] = (type)(i + me), back[i] = (type)99;                             \
        for (int i = 0; i < 4 * BLOCKS; ++i) to[i] = (type)99;                                                         \
        shmem_barrier_all();                                                                                           \
        shmem_##name##_ibput(to, from, 4, 5, 3, BLOCKS, right);                                                        \
        shmem_barrier_all();                                                                                           \
        for (int i = 0; i < 4 * BLOCKS; ++i) CHECK(to[i] == (i % 4 == 3 ? (type)99 : (type)(i / 4 * 5 + i % 4 + left))); \
        shmem_ctx_##name##_ibget(SHMEM_CTX_DEFAULT, back, to, 5, 4, 3, BLOCKS, right);                                 \
        for (int i = 0; i < 5 * BLOCKS; ++i) CHECK(back[i] == (i % 5 > 2 ? (type)99 : from[i]));                       \
        shmem_barrier_all();                                                                                           \
    }

#define SIZED_BLOCKS_OF(bits)                                                                                          \
    {                                                                                                                  \
        static unsigned char to[8 * bits / 8 * BLOCKS], back[8 * bits / 8 * BLOCKS];                                   \
        unsigned char from[sizeof to];                                                                                 \
        for (size_t i = 0; i < sizeof to; ++i) from[i] = (unsigned char)(i + (size_t)me), to[i] = back[i] = 0;         \
        shmem_barrier_all();                                                                                           \
        shmem_ibput##bits(to, from, 2, 8, 2, BLOCKS, right);                                                           \
        shmem_ibget##bits(back, to, 8, 2, 2, 0, right);                                                                \
        shmem_barrier_all();                                                                                           \
        for (size_t i = 0; i < 2 * bits / 8 * BLOCKS; ++i) {                                                           \
            const size_t block = i / (2 * bits / 8), byte = i % (2 * bits / 8);                                        \
            CHECK(to[i] == (unsigned char)(block * bits + byte + (size_t)left));                                       \
        }                                                                                                              \
        shmem_ctx_ibget##bits(SHMEM_CTX_DEFAULT, back, to, 8, 2, 2, BLOCKS, right);                                    \
        for (size_t i = 0; i < sizeof back; ++i)                                                                       \
            CHECK(back[i] == (i % bits < 2 * bits / 8 ? (unsigned char)(i + (size_t)me) : 0));                         \
        shmem_barrier_all();                                                                                           \
    }

/* Sums of what the PEs before have, with and without this one, in place too. */
#define SCANS_OF(name, type)                                                                                           \
    for (size_t n = 1; n <= N; n *= N) {                                                                               \
        static type source[N], dest[N];                                                                                \
        for (int inclusive = 0; inclusive < 2; ++inclusive)                                                            \
            for (int in_place = 0; in_place < 2; ++in_place) {                                                         \
                type *const to = in_place ? source : dest;                                                             \
                for (size_t i = 0; i < N; ++i) source[i] = (type)(me + 1 + (int)(i % 3)), dest[i] = (type)77;          \
                shmem_barrier_all();                                                                                   \
                if (inclusive) CHECK(shmem_##name##_sum_inscan(SHMEM_TEAM_WORLD, to, source, n) == 0);                 \
                else CHECK(shmem_##name##_sum_exscan(SHMEM_TEAM_WORLD, to, source, n) == 0);                           \
                const int last = me + inclusive;                                                                       \
                for (size_t i = 0; i < n; ++i) CHECK(to[i] == (type)(last * (last + 1) / 2 + last * (int)(i % 3)));    \
                if (!in_place && n < N) CHECK(dest[n] == (type)77);                                                    \
            }                                                                                                          \
    }

static void everything(void) {
    const int me = shmem_my_pe(), pes = shmem_n_pes(), right = (me + 1) % pes, left = (me + pes - 1) % pes;
    RMA_TYPES(BLOCKS_OF)
    SIZED_BLOCKS_OF(8) SIZED_BLOCKS_OF(16) SIZED_BLOCKS_OF(32) SIZED_BLOCKS_OF(64) SIZED_BLOCKS_OF(128)
    RMA_TYPES(SCANS_OF)
    SCANS_OF(complexf, float complex)
    SCANS_OF(complexd, double complex)

    /* Scans of a team in another order than the world's. */
    shmem_team_t odd;
    static long sums[2];
    shmem_team_split_strided(SHMEM_TEAM_WORLD, pes - 1, -1, pes, NULL, 0, &odd);
    if (odd != SHMEM_TEAM_INVALID) {
        const long mine = me;
        sums[0] = mine;
        shmem_long_sum_exscan(odd, sums + 1, sums, 1);
        long expected = 0;
        for (int pe = pes - 1; pe > me; --pe) expected += pe;
        CHECK(sums[1] == expected);
        shmem_team_destroy(odd);
    }

    static uint64_t signal, count;
    static long data[64];
    long values[64];
    for (int i = 0; i < 64; ++i) values[i] = me * 64 + i;
    shmem_ctx_t ctx;
    CHECK(shmem_ctx_create(0, &ctx) == 0);
    const shmem_ctx_session_config_t config = {65};
    shmem_ctx_session_start(ctx, SHMEM_CTX_SESSION_BATCH, &config, SHMEM_CTX_SESSION_TOTAL_OPS);
    shmem_ctx_session_start(SHMEM_CTX_INVALID, 0, NULL, 0);
    for (int i = 0; i < 64; ++i) shmem_ctx_long_put_nbi(ctx, data + i, values + i, 1, right);
    shmem_ctx_pe_quiet(ctx, NULL, 0);
    shmem_ctx_pe_quiet(ctx, &right, 1);
    shmem_ctx_signal_set(ctx, &signal, 7, right);
    shmem_ctx_session_stop(ctx);
    shmem_ctx_session_stop(ctx);
    CHECK(shmem_signal_wait_until(&signal, SHMEM_CMP_EQ, 7) == 7);
    for (int i = 0; i < 64; ++i) CHECK(data[i] == left * 64 + i);
    for (int pe = 0; pe < pes; ++pe) shmem_signal_add(&count, (uint64_t)me + 1, pe);
    shmem_signal_wait_until(&count, SHMEM_CMP_EQ, (uint64_t)(pes * (pes + 1) / 2));
    shmem_barrier_all();
    shmem_signal_set(&count, 0, me);
    shmem_ctx_signal_add(ctx, &signal, -UINT64_C(7), right);
    const int both[] = {right, me};
    shmem_pe_quiet(both, 2);
    shmem_barrier_all();
    CHECK(signal == 0 && count == 0);
    shmem_ctx_destroy(ctx);
}

int main(void) {
    CHECK(!is_initialized());
    int me = 0;
    static int left_here;
    for (int round = 0; round < 3; ++round) {
        shmem_init();
        CHECK(is_initialized());
        int provided = -1;
        CHECK(shmem_init_thread(SHMEM_THREAD_FUNNELED, &provided) == 0 && provided >= SHMEM_THREAD_FUNNELED);
        start_pes(0);
        me = shmem_my_pe();
        everything();
        long *kept = shmem_malloc(sizeof *kept);
        CHECK(kept != NULL);
        *kept = 5;
        shmem_finalize();
        /* Nothing has ended. */
        CHECK(is_initialized() && *kept == 5);
        everything();
        /* A variable is the same one in every round. */
        CHECK(left_here == round);
        shmem_barrier_all();
        shmem_int_atomic_inc(&left_here, (me + 1) % shmem_n_pes());
        shmem_finalize();
        CHECK(!is_initialized() && left_here == round + 1);
    }
    printf("PE %d is through\n", me);
    return 0;
}
