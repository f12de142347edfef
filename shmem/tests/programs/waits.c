/* Waits for words, and looks at them, of every type and comparison, for one word and for several. */
#include <shmem.h>

#include "check.h"

enum { WORDS = 5 };

#define TYPED(name, type)                                                                                          \
    static type name##_words[WORDS], name##_go;                                                                    \
    static void name##_all(int me, int n) {                                                                        \
        const int right = (me + 1) % n;                                                                            \
        const int left_out[WORDS] = {0, 0, 1, 0, 0}, none[WORDS] = {1, 1, 1, 1, 1};                                \
        type values[WORDS];                                                                                        \
        size_t found[WORDS];                                                                                       \
        for (int i = 0; i < WORDS; ++i) values[i] = (type)(i + 1);                                                 \
        name##_words[2] = 99;                                                                                      \
        CHECK(shmem_##name##_test(&name##_go, SHMEM_CMP_EQ, 0) == 1);                                              \
        CHECK(shmem_##name##_test(&name##_go, SHMEM_CMP_NE, 0) == 0);                                              \
        CHECK(shmem_##name##_test(&name##_go, SHMEM_CMP_GT, 0) == 0 && shmem_##name##_test(&name##_go, SHMEM_CMP_GE, 0));  \
        CHECK(shmem_##name##_test(&name##_go, SHMEM_CMP_LT, 0) == 0 && shmem_##name##_test(&name##_go, SHMEM_CMP_LE, 0));  \
        CHECK(shmem_##name##_test(&name##_go, SHMEM_CMP_LT, 1) == 1);                                              \
        CHECK(shmem_##name##_test_any(name##_words, WORDS, left_out, SHMEM_CMP_GT, 0) == SIZE_MAX);                \
        CHECK(shmem_##name##_test_any(name##_words, WORDS, NULL, SHMEM_CMP_GT, 0) == 2);                           \
        CHECK(shmem_##name##_test_some(name##_words, WORDS, found, left_out, SHMEM_CMP_GT, 0) == 0);               \
        CHECK(shmem_##name##_test_all(name##_words, WORDS, none, SHMEM_CMP_GT, 0) == 1);                           \
        CHECK(shmem_##name##_test_all(name##_words, WORDS, left_out, SHMEM_CMP_GT, 0) == 0);                       \
        CHECK(shmem_##name##_wait_until_any(name##_words, WORDS, none, SHMEM_CMP_GT, 0) == SIZE_MAX);              \
        CHECK(shmem_##name##_wait_until_some(name##_words, 0, found, NULL, SHMEM_CMP_GT, 0) == 0);                 \
        shmem_##name##_wait_until_all(name##_words, WORDS, none, SHMEM_CMP_GT, 0);                                 \
        shmem_barrier_all();                                                                                       \
        shmem_##name##_p(&name##_words[1], 2, right);                                                              \
        CHECK(shmem_##name##_wait_until_any(name##_words, WORDS, left_out, SHMEM_CMP_NE, 0) == 1);                 \
        CHECK(shmem_##name##_wait_until_some(name##_words, WORDS, found, left_out, SHMEM_CMP_GE, 1) == 1);         \
        CHECK(found[0] == 1);                                                                                      \
        CHECK(shmem_##name##_wait_until_any_vector(name##_words, WORDS, left_out, SHMEM_CMP_EQ, values) == 1);     \
        CHECK(shmem_##name##_test_any_vector(name##_words, WORDS, left_out, SHMEM_CMP_EQ, values) == 1);           \
        shmem_barrier_all();                                                                                       \
        for (int i = 0; i < WORDS; ++i)                                                                            \
            if (i != 1) shmem_##name##_p(&name##_words[i], (type)(i + 1), right);                                  \
        shmem_##name##_wait_until_all_vector(name##_words, WORDS, NULL, SHMEM_CMP_EQ, values);                     \
        shmem_##name##_wait_until_all(name##_words, WORDS, NULL, SHMEM_CMP_LE, WORDS);                             \
        CHECK(shmem_##name##_test_all_vector(name##_words, WORDS, NULL, SHMEM_CMP_EQ, values) == 1);               \
        CHECK(shmem_##name##_test_some_vector(name##_words, WORDS, found, NULL, SHMEM_CMP_EQ, values) == WORDS);   \
        CHECK(found[0] == 0 && found[WORDS - 1] == WORDS - 1);                                                     \
        CHECK(shmem_##name##_wait_until_some_vector(name##_words, WORDS, found, NULL, SHMEM_CMP_EQ, values) == WORDS);  \
        /* Whichever is there is found in the end. */                                                              \
        int seen = 0;                                                                                              \
        while (seen != (1 << WORDS) - 1) seen |= 1 << shmem_##name##_test_any(name##_words, WORDS, NULL, SHMEM_CMP_GT, 0);  \
        if (me == 0) shmem_##name##_p(&name##_go, 1, right);                                                       \
        shmem_##name##_wait_until(&name##_go, SHMEM_CMP_EQ, 1);                                                    \
        if (me != 0) shmem_##name##_p(&name##_go, 1, right);                                                       \
        shmem_barrier_all();                                                                                       \
    }
#define WAITED(X) AMO_TYPES(X) X(short, short) X(ushort, unsigned short)
WAITED(TYPED)

int main(void) {
    shmem_init();
    const int me = shmem_my_pe(), n = shmem_n_pes();
#define CALL(name, type) name##_all(me, n);
    WAITED(CALL)
    printf("PE %d of %d is through\n", me, n);
    shmem_finalize();
    return 0;
}
