/* Atomic operations of every type: alone, and by all at once, mixed with those of the processor. */
#include <shmem.h>

#include "check.h"

enum { ROUNDS = 200 };

#define TYPED(name, type)                                                                                    \
    static type name##_word, name##_sum, name##_held;                                                        \
    static void name##_all(int me, int n) {                                                                  \
        const int right = (me + 1) % n;                                                                      \
        shmem_##name##_atomic_set(&name##_word, (type)(me + 1), right);                                      \
        shmem_barrier_all();                                                                                 \
        CHECK(shmem_##name##_atomic_fetch(&name##_word, right) == (type)(me + 1));                           \
        CHECK(shmem_##name##_atomic_swap(&name##_word, (type)70, right) == (type)(me + 1));                  \
        CHECK(shmem_##name##_atomic_compare_swap(&name##_word, (type)1, (type)2, right) == (type)70);        \
        CHECK(shmem_##name##_atomic_compare_swap(&name##_word, (type)70, (type)-3, right) == (type)70);      \
        CHECK(shmem_##name##_atomic_fetch_add(&name##_word, (type)2, right) == (type)-3);                    \
        CHECK(shmem_##name##_atomic_fetch_inc(&name##_word, right) == (type)-1);                             \
        shmem_##name##_atomic_inc(&name##_word, right);                                                      \
        shmem_ctx_##name##_atomic_add(SHMEM_CTX_DEFAULT, &name##_word, (type)5, right);                      \
        shmem_quiet();                                                                                       \
        CHECK(shmem_##name##_atomic_fetch(&name##_word, right) == (type)6);                                  \
        /* All change the words of PE 0, which changes them, too. */                                         \
        for (int i = 0; i < ROUNDS; ++i) {                                                                   \
            shmem_##name##_atomic_add(&name##_sum, (type)(me + 1), 0);                                       \
            shmem_##name##_atomic_fetch_inc(&name##_sum, 0);                                                 \
        }                                                                                                    \
        type before;                                                                                         \
        do before = shmem_##name##_atomic_fetch(&name##_held, 0);                                            \
        while (shmem_##name##_atomic_compare_swap(&name##_held, before, (type)(before + 1), 0) != before);   \
        shmem_barrier_all();                                                                                 \
        if (me == 0) {                                                                                       \
            CHECK(name##_sum == (type)(ROUNDS * (n * (n + 1) / 2 + n)));                                     \
            CHECK(name##_held == (type)n);                                                                   \
        }                                                                                                    \
    }
AMO_TYPES(TYPED)

#define REAL(name, type)                                                                          \
    static type name##_word;                                                                      \
    static void name##_all(int me, int n) {                                                       \
        const int right = (me + 1) % n;                                                           \
        shmem_##name##_atomic_set(&name##_word, (type)(me + 0.5), right);                         \
        shmem_barrier_all();                                                                      \
        CHECK(shmem_##name##_atomic_fetch(&name##_word, right) == (type)(me + 0.5));              \
        CHECK(shmem_##name##_atomic_swap(&name##_word, (type)-0.25, right) == (type)(me + 0.5));  \
        CHECK(shmem_##name##_atomic_fetch(&name##_word, right) == (type)-0.25);                   \
        shmem_barrier_all();                                                                      \
    }
REAL(float, float)
REAL(double, double)

int main(void) {
    shmem_init();
    const int me = shmem_my_pe(), n = shmem_n_pes();
#define CALL(name, type) name##_all(me, n);
    AMO_TYPES(CALL)
    CALL(float, float)
    CALL(double, double)
    printf("PE %d of %d is through\n", me, n);
    shmem_finalize();
    return 0;
}
