/* C11 chooses the function by the type of its arguments, with a context and without. */
#include <shmem.h>

#include "check.h"

#define TYPES(X)                                                                                                       \
    X(float, float) X(double, double) X(longdouble, long double) X(char, char) X(schar, signed char) X(short, short)   \
    X(int, int) X(long, long) X(longlong, long long) X(uchar, unsigned char) X(ushort, unsigned short)                 \
    X(uint, unsigned int) X(ulong, unsigned long) X(ulonglong, unsigned long long)
#define INTEGERS(X) X(int, int) X(long, long) X(longlong, long long) X(uint, unsigned int) X(ulong, unsigned long) X(ulonglong, unsigned long long)

#define RMA(name, type)                                                                             \
    static type name##_to[8];                                                                       \
    static void name##_rma(int me, int n) {                                                         \
        const int right = (me + 1) % n;                                                             \
        type mine[8] = {1, 2, 3, 4, 5, 6, 7, 8}, got[8] = {0};                                      \
        shmem_put(name##_to, mine, 2, right);                                                       \
        shmem_put_nbi(SHMEM_CTX_DEFAULT, name##_to + 2, mine + 2, 2, right);                        \
        shmem_iput(name##_to + 4, mine + 4, 1, 1, 1, right);                                        \
        shmem_ibput(name##_to + 5, mine + 5, 1, 1, 1, 1, right);                                    \
        shmem_p(&name##_to[6], (type)7, right);                                                     \
        shmem_p(SHMEM_CTX_DEFAULT, &name##_to[7], (type)8, right);                                  \
        shmem_barrier_all();                                                                        \
        const type *there = name##_to;                                                              \
        shmem_get(got, there, 4, right);                                                            \
        shmem_get_nbi(SHMEM_CTX_DEFAULT, got + 4, there + 4, 2, right);                             \
        shmem_iget(got + 6, there + 6, 1, 1, 1, right);                                             \
        shmem_ibget(SHMEM_CTX_DEFAULT, got + 6, there + 6, 1, 1, 1, 1, right);                      \
        got[7] = shmem_g(&there[7], right);                                                         \
        shmem_quiet();                                                                              \
        for (int i = 0; i < 8; ++i) CHECK(got[i] == (type)(i + 1) && name##_to[i] == (type)(i + 1)); \
        CHECK(shmem_g(SHMEM_CTX_DEFAULT, name##_to, right) == 1);                                   \
        shmem_barrier_all();                                                                        \
    }
TYPES(RMA)

#define AMO(name, type)                                                                   \
    static type name##_word;                                                              \
    static void name##_amo(int me, int n) {                                               \
        const int right = (me + 1) % n;                                                   \
        const type *word = &name##_word;                                                  \
        shmem_atomic_set(&name##_word, (type)1, right);                                   \
        shmem_atomic_add(SHMEM_CTX_DEFAULT, &name##_word, (type)4, right);                \
        shmem_atomic_inc(&name##_word, right);                                            \
        shmem_quiet();                                                                    \
        shmem_wait_until(&name##_word, SHMEM_CMP_EQ, (type)6);                            \
        CHECK(shmem_test(&name##_word, SHMEM_CMP_GE, (type)6));                           \
        shmem_barrier_all();                                                              \
        CHECK(shmem_atomic_fetch(word, right) == 6);                                      \
        CHECK(shmem_atomic_fetch(SHMEM_CTX_DEFAULT, word, right) == 6);                   \
        CHECK(shmem_atomic_fetch_inc(&name##_word, right) == 6);                          \
        CHECK(shmem_atomic_fetch_add(&name##_word, (type)3, right) == 7);                 \
        CHECK(shmem_atomic_compare_swap(&name##_word, (type)10, (type)20, right) == 10);  \
        CHECK(shmem_atomic_swap(&name##_word, (type)0, right) == 20);                     \
        shmem_barrier_all();                                                              \
    }
INTEGERS(AMO)

#define TEAM(name, type)                                                                      \
    static type name##_all[64], name##_mine[8];                                               \
    static uint64_t name##_signal;                                                            \
    static void name##_team(int me, int n) {                                                  \
        name##_mine[0] = (type)(me + 1);                                                      \
        CHECK(shmem_fcollect(SHMEM_TEAM_WORLD, name##_all, name##_mine, 1) == 0);             \
        for (int pe = 0; pe < n; ++pe) CHECK(name##_all[pe] == (type)(pe + 1));               \
        CHECK(shmem_broadcast(SHMEM_TEAM_WORLD, name##_all, name##_mine, 1, n - 1) == 0);     \
        CHECK(name##_all[0] == (type)n);                                                      \
        CHECK(shmem_max_reduce(SHMEM_TEAM_WORLD, name##_all, name##_mine, 1) == 0);           \
        CHECK(name##_all[0] == (type)n);                                                      \
        CHECK(shmem_sum_reduce(SHMEM_TEAM_WORLD, name##_all, name##_mine, 1) == 0);           \
        CHECK(name##_all[0] == (type)(n * (n + 1) / 2));                                      \
        CHECK(shmem_sum_inscan(SHMEM_TEAM_WORLD, name##_all, name##_mine, 1) == 0);           \
        CHECK(name##_all[0] == (type)((me + 1) * (me + 2) / 2));                              \
        CHECK(shmem_sum_exscan(SHMEM_TEAM_WORLD, name##_all, name##_mine, 1) == 0);           \
        CHECK(name##_all[0] == (type)(me * (me + 1) / 2));                                    \
        shmem_barrier_all();                                                                  \
        shmem_put_signal(name##_all + 1, name##_mine, 1, &name##_signal, 1, SHMEM_SIGNAL_SET, (me + 1) % n);  \
        shmem_signal_wait_until(&name##_signal, SHMEM_CMP_EQ, 1);                             \
        CHECK(name##_all[1] == (type)((me + n - 1) % n + 1));                                 \
        shmem_sync(SHMEM_TEAM_WORLD);                                                         \
    }
TYPES(TEAM)

int main(void) {
    shmem_init();
    const int me = shmem_my_pe(), n = shmem_n_pes();
#define CALL_TEAM(name, type) name##_team(me, n);
    TYPES(CALL_TEAM)
#define CALL_RMA(name, type) name##_rma(me, n);
#define CALL_AMO(name, type) name##_amo(me, n);
    TYPES(CALL_RMA)
    INTEGERS(CALL_AMO)
    static uint64_t signal;
    shmem_signal_set(&signal, 5, (me + 1) % n);
    shmem_signal_wait_until(&signal, SHMEM_CMP_EQ, 5);
    shmem_signal_add(SHMEM_CTX_DEFAULT, &signal, 2, me);
    shmem_signal_wait_until(&signal, SHMEM_CMP_EQ, 7);
    printf("PE %d of %d is through\n", me, n);
    shmem_finalize();
    return 0;
}
