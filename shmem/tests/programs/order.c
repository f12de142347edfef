/* Order, with so many bytes that whoever does not wait for them is found out: quiet before a third PE hears of a put, a signal behind its put, a store
   behind the one before, and the end of collectives, behind which the source is written again. */
#include <shmem.h>
#include <string.h>

#include "check.h"

enum { MANY = 3 << 20, NUMBERS = 100003, ROUNDS = 4, TURNS = 6 };

static char from[MANY], to[MANY], taken[MANY];
static double values[NUMBERS], sums[NUMBERS];
static long flag, word, after;
static uint64_t arrived;

int main(void) {
    shmem_init();
    const int me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n, left = (me + n - 1) % n, last = n - 1;
    for (int round = 1; round <= ROUNDS; ++round) {
        /* PE 0 puts to PE 1, and tells the last, who looks at PE 1's. */
        memset(from, round, MANY);
        shmem_barrier_all();
        if (me == 0) {
            shmem_putmem_nbi(to, from, MANY, 1 % n);
            shmem_quiet();
            shmem_long_p(&flag, round, last);
        }
        if (me == last) {
            shmem_long_wait_until(&flag, SHMEM_CMP_EQ, round);
            CHECK(shmem_char_g(to + MANY - 1, 1 % n) == round && shmem_char_g(to + MANY / 2, 1 % n) == round);
        }
        shmem_barrier_all();
        /* The signal is behind the bytes: who is told does nothing but wait for it, and looks at the last of them at once. */
        for (int turn = 0; turn < TURNS; ++turn) {
            const int value = 16 + (TURNS * round + turn) % 100;
            memset(from, value, MANY);
            shmem_barrier_all();
            if (me % 2 == turn % 2) shmem_putmem_signal(taken, from, MANY, &arrived, (uint64_t)value, SHMEM_SIGNAL_SET, right);
            if (left % 2 == turn % 2) {
                shmem_signal_wait_until(&arrived, SHMEM_CMP_EQ, (uint64_t)value);
                CHECK(taken[MANY - 1] == value && taken[0] == value);
            }
            shmem_barrier_all();
        }
        for (long i = 1; i <= 1000; ++i) {
            shmem_long_p(&word, 1000 * round + i, right);
            shmem_fence();
            shmem_long_p(&after, 1000 * round + i, right);
            const long seen = *(volatile long *)&after;
            CHECK(*(volatile long *)&word >= seen);
        }
        shmem_long_wait_until(&after, SHMEM_CMP_EQ, 1000 * round + 1000);
        shmem_barrier_all();
        /* Who returns writes again. */
        memset(from, 32 + round, MANY);
        CHECK(shmem_broadcastmem(SHMEM_TEAM_WORLD, to, from, MANY, round % n) == 0);
        memset(from, 0, MANY);
        CHECK(to[0] == 32 + round && to[MANY - 1] == 32 + round);
        for (int i = 0; i < NUMBERS; ++i) values[i] = me + i;
        CHECK(shmem_double_sum_reduce(SHMEM_TEAM_WORLD, sums, values, NUMBERS) == 0);
        memset(values, 0, sizeof values);
        for (int i = 0; i < NUMBERS; ++i) CHECK(sums[i] == (double)n * i + n * (n - 1) / 2);
        memset(sums, 0, sizeof sums);
        shmem_barrier_all();
    }
    printf("PE %d of %d is through\n", me, n);
    shmem_finalize();
    return 0;
}
