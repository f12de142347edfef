/* A tool that counts what the program puts, and lets the library do it. */
#include <pshmem.h>

#include "check.h"

static int puts_seen, ends_seen;
static long word;

void shmem_long_put(long *dest, const long *source, size_t nelems, int pe) {
    ++puts_seen;
    pshmem_long_put(dest, source, nelems, pe);
}

void shmem_finalize(void) {
    ++ends_seen;
    pshmem_finalize();
}

int main(void) {
    pshmem_init();
    const int me = shmem_my_pe(), n = pshmem_n_pes();
    const long mine = 40 + me;
    shmem_long_put(&word, &mine, 1, (me + 1) % n);
    shmem_barrier_all();
    CHECK(puts_seen == 1 && word == 40 + (me + n - 1) % n);
    printf("PE %d of %d is through\n", me, n);
    shmem_finalize();
    return ends_seen == 1 ? 0 : 1;
}
