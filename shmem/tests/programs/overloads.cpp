// C++ chooses the function by the type of its arguments, with a context and without.
#include <shmem.h>

#include "check.h"

template <typename Type>
Type to[8];

template <typename Type>
static void rma(int me, int n) {
    const int right = (me + 1) % n;
    Type mine[8] = {1, 2, 3, 4, 5, 6, 7, 8}, got[8] = {};
    shmem_put(to<Type>, mine, 2, right);
    shmem_put_nbi(SHMEM_CTX_DEFAULT, to<Type> + 2, mine + 2, 2, right);
    shmem_iput(to<Type> + 4, mine + 4, 1, 1, 1, right);
    shmem_ibput(SHMEM_CTX_DEFAULT, to<Type> + 5, mine + 5, 1, 1, 1, 1, right);
    shmem_p(&to<Type>[6], Type(7), right);
    shmem_p(SHMEM_CTX_DEFAULT, &to<Type>[7], Type(8), right);
    shmem_barrier_all();
    shmem_get(SHMEM_CTX_DEFAULT, got, to<Type>, 6, right);
    shmem_iget(got + 6, to<Type> + 6, 1, 1, 1, right);
    got[7] = shmem_g(&to<Type>[7], right);
    for (int i = 0; i < 8; ++i) CHECK(got[i] == Type(i + 1) && to<Type>[i] == Type(i + 1));
    shmem_barrier_all();
}

template <typename Type>
static void amo(int me, int n) {
    const int right = (me + 1) % n;
    Type *word = &to<Type>[0];
    shmem_barrier_all();
    shmem_atomic_set(word, Type(1), right);
    shmem_atomic_add(SHMEM_CTX_DEFAULT, word, Type(4), right);
    shmem_atomic_inc(word, right);
    shmem_wait_until(word, SHMEM_CMP_EQ, Type(6));
    CHECK(shmem_test(word, SHMEM_CMP_GE, Type(6)));
    shmem_barrier_all();
    CHECK(shmem_atomic_fetch_inc(word, right) == 6);
    CHECK(shmem_atomic_compare_swap(word, Type(7), Type(20), right) == 7);
    CHECK(shmem_atomic_swap(word, Type(0), right) == 20);
    shmem_barrier_all();
}

static std::complex<double> numbers[3];

static void team(int me, int n) {
    const std::complex<double> mine(me, 1);
    numbers[0] = mine;
    CHECK(shmem_sum_reduce(SHMEM_TEAM_WORLD, numbers + 1, numbers, 1) == 0);
    CHECK(numbers[1] == std::complex<double>(n * (n - 1) / 2, n));
    CHECK(shmem_sum_exscan(SHMEM_TEAM_WORLD, numbers + 2, numbers, 1) == 0);
    CHECK(numbers[2] == std::complex<double>(me * (me - 1) / 2, me));
    to<int>[0] = 1 << me;
    CHECK(shmem_sum_inscan(SHMEM_TEAM_WORLD, to<int> + 1, to<int>, 1) == 0 && to<int>[1] == (2 << me) - 1);
    static uint64_t signal;
    shmem_signal_set(SHMEM_CTX_DEFAULT, &signal, 5, (me + 1) % n);
    shmem_signal_wait_until(&signal, SHMEM_CMP_EQ, 5);
    shmem_signal_add(&signal, 2, me);
    shmem_signal_wait_until(&signal, SHMEM_CMP_EQ, 7);
    CHECK(shmem_or_reduce(SHMEM_TEAM_WORLD, to<int> + 1, to<int>, 1) == 0 && to<int>[1] == (1 << n) - 1);
    CHECK(shmem_sync(SHMEM_TEAM_WORLD) == 0);
}

int main() {
    shmem_init();
    const int me = shmem_my_pe(), n = shmem_n_pes();
    rma<float>(me, n), rma<double>(me, n), rma<long double>(me, n), rma<char>(me, n), rma<signed char>(me, n);
    rma<short>(me, n), rma<int>(me, n), rma<long>(me, n), rma<long long>(me, n), rma<unsigned char>(me, n);
    rma<unsigned short>(me, n), rma<unsigned>(me, n), rma<unsigned long>(me, n), rma<unsigned long long>(me, n);
    amo<int>(me, n), amo<long>(me, n), amo<long long>(me, n), amo<unsigned>(me, n), amo<unsigned long>(me, n);
    amo<unsigned long long>(me, n);
    team(me, n);
    printf("PE %d of %d is through\n", me, n);
    shmem_finalize();
}
