/* Teams that are made, asked, used and destroyed, their contexts, and many of them. */
#include <shmem.h>

#include "check.h"

static long word, sum, total;

int main(void) {
    shmem_init();
    const int me = shmem_my_pe(), n = shmem_n_pes();
    CHECK(shmem_team_my_pe(SHMEM_TEAM_WORLD) == me && shmem_team_n_pes(SHMEM_TEAM_WORLD) == n);
    CHECK(shmem_team_my_pe(SHMEM_TEAM_INVALID) == -1 && shmem_team_n_pes(SHMEM_TEAM_INVALID) == -1);
    const int sharing = shmem_team_n_pes(SHMEM_TEAM_SHARED);
    int mapped = 0;
    for (int pe = 0; pe < n; ++pe) mapped += shmem_ptr(&word, pe) != NULL;
    CHECK(sharing == mapped);
    CHECK(shmem_team_translate_pe(SHMEM_TEAM_SHARED, shmem_team_my_pe(SHMEM_TEAM_SHARED), SHMEM_TEAM_WORLD) == me);
    CHECK(shmem_team_ptr(SHMEM_TEAM_WORLD, &word, me) == &word && shmem_team_ptr(SHMEM_TEAM_WORLD, &word, n) == NULL);

    /* The PEs of my parity. */
    shmem_team_config_t config = {3}, seen = {0};
    shmem_team_t parity, other, invalid;
    const int mine = (n - me % 2 + 1) / 2, others = n - mine;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, me % 2, 2, mine, &config, SHMEM_TEAM_NUM_CONTEXTS, &parity) == 0);
    CHECK(shmem_team_get_config(parity, SHMEM_TEAM_NUM_CONTEXTS, &seen) == 0 && seen.num_contexts == 3);
    CHECK(shmem_team_get_config(SHMEM_TEAM_INVALID, SHMEM_TEAM_NUM_CONTEXTS, &seen) != 0);
    CHECK(shmem_team_my_pe(parity) == me / 2 && shmem_team_n_pes(parity) == mine);
    CHECK(shmem_team_translate_pe(SHMEM_TEAM_WORLD, me, parity) == me / 2);
    CHECK(shmem_team_translate_pe(SHMEM_TEAM_WORLD, (me + 1) % n, parity) == ((me + 1) % n % 2 == me % 2 ? (me + 1) % n / 2 : -1));
    if (others > 0) {
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 1 - me % 2, 2, others, NULL, 0, &other) == 0);
        CHECK(other == SHMEM_TEAM_INVALID);
    }
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n + 1, NULL, 0, &invalid) != 0 && invalid == SHMEM_TEAM_INVALID);
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, 0, NULL, 0, &invalid) != 0);
    CHECK(shmem_team_split_strided(SHMEM_TEAM_INVALID, 0, 1, 1, NULL, 0, &invalid) != 0);
    shmem_team_destroy(SHMEM_TEAM_INVALID);

    /* In a context of the team its numbers count. */
    shmem_ctx_t ctx, none;
    shmem_team_t of;
    CHECK(shmem_team_create_ctx(parity, SHMEM_CTX_SERIALIZED, &ctx) == 0);
    CHECK(shmem_team_create_ctx(SHMEM_TEAM_INVALID, 0, &none) != 0 && none == SHMEM_CTX_INVALID);
    CHECK(shmem_ctx_get_team(ctx, &of) == 0 && of == parity);
    CHECK(shmem_ctx_get_team(SHMEM_CTX_DEFAULT, &of) == 0 && of == SHMEM_TEAM_WORLD);
    CHECK(shmem_ctx_get_team(SHMEM_CTX_INVALID, &of) != 0 && of == SHMEM_TEAM_INVALID);
    shmem_ctx_long_p(ctx, &word, 1000 + me, (me / 2 + 1) % mine);
    shmem_ctx_quiet(ctx);
    shmem_team_sync(parity);
    CHECK(word == 1000 + (me / 2 + mine - 1) % mine * 2 + me % 2);
    shmem_ctx_long_atomic_add(ctx, &sum, 1, 0);
    shmem_barrier_all();
    CHECK(sum == (me < 2 ? mine : 0));
    shmem_ctx_destroy(ctx);
    CHECK(shmem_team_create_ctx(parity, 0, &ctx) == 0);
    shmem_team_destroy(parity);

    /* A grid. */
    for (int width = 1; width <= n + 1; ++width) {
        shmem_team_t row, column;
        const int w = width < n ? width : n;
        CHECK(shmem_team_split_2d(SHMEM_TEAM_WORLD, width, NULL, 0, &row, NULL, 0, &column) == 0);
        CHECK(shmem_team_my_pe(row) == me % w && shmem_team_my_pe(column) == me / w);
        CHECK(shmem_team_translate_pe(row, 0, SHMEM_TEAM_WORLD) == me / w * w);
        CHECK(shmem_team_translate_pe(column, 0, SHMEM_TEAM_WORLD) == me % w);
        static long one = 1;
        shmem_long_sum_reduce(row, &total, &one, 1);
        CHECK(total == shmem_team_n_pes(row));
        shmem_long_sum_reduce(column, &total, &one, 1);
        CHECK(total == shmem_team_n_pes(column));
        shmem_team_destroy(row);
        shmem_team_destroy(column);
        shmem_barrier_all();
    }

    /* Teams come and go, some of them at once and of the same PEs. */
    for (int round = 0; round < 300; ++round) {
        shmem_team_t teams[3];
        for (int i = 0; i < 3; ++i) CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &teams[i]) == 0);
        for (int i = 2; i >= 0; --i) {
            static long from, to;
            from = round + i;
            CHECK(shmem_long_max_reduce(teams[(round + i) % 3], &to, &from, 1) == 0 && to == round + i);
        }
        for (int i = 0; i < 3; ++i) shmem_team_destroy(teams[i]);
    }
    printf("PE %d of %d is through\n", me, n);
    shmem_finalize();
    return 0;
}
