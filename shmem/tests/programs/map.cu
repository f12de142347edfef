/* Memory of the program made symmetric by shmmap: on the host, at an address that no two PEs have alike, and, compiled for a GPU, of CUDA. */
#include <shmemx.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

enum { MANY = 3000 };

/* `memory` is MANY longs, and zero. */
static void use(void *memory, int type) {
    const int me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
    CHECK(!shmem_addr_accessible(memory, right));
    long *mapped = (long *)shmmap(memory, MANY * sizeof(long), type), *mine = (long *)malloc(MANY * sizeof(long));
    CHECK(mapped != NULL && shmem_addr_accessible(mapped, right) && shmem_addr_accessible(mapped + MANY - 1, right));
    CHECK(!shmem_addr_accessible((char *)(mapped + MANY), right));
    for (int i = 0; i < MANY; ++i) mine[i] = 1000000L * me + i;
    shmem_long_put(mapped, mine, MANY - 10, right);
    shmem_long_put_nbi(mapped + MANY - 10, mine + MANY - 10, 5, right);
    shmem_long_p(mapped + MANY - 5, -1, right);
    if (type == OSHM_MEMTYPE_HOST) shmem_long_atomic_add(mapped + MANY - 4, 7, right);
    shmem_barrier_all();
    CHECK(held(mapped) == 1000000L * left && held(mapped + MANY - 11) == 1000000L * left + MANY - 11);
    CHECK(held(mapped + MANY - 6) == 1000000L * left + MANY - 6 && held(mapped + MANY - 5) == -1);
    if (type == OSHM_MEMTYPE_HOST) CHECK(held(mapped + MANY - 4) == 7 && ((long *)memory)[MANY - 5] == -1);
    shmem_barrier_all();
    /* From there to there, in rows, and a flag behind it. */
    shmem_long_iput(mapped + 1, mapped, 3, 2, 100, right);
    shmem_long_put_signal(mapped + MANY - 3, mine, 1, (uint64_t *)(mapped + MANY - 2), 5, SHMEM_SIGNAL_SET, right);
    shmem_long_wait_until(mapped + MANY - 2, SHMEM_CMP_EQ, 5);
    CHECK(held(mapped + MANY - 3) == 1000000L * left);
    shmem_barrier_all();
    memset(mine, 0, MANY * sizeof(long));
    shmem_long_get(mine, mapped, MANY, right);
    CHECK(mine[1] == 1000000L * ((me + n - 1) % n) && mine[MANY - 2] == 5);
    CHECK(shmem_long_g(mapped + MANY - 5, left) == -1);
    shmem_barrier_all();
    hold(mapped, (long)me);
    CHECK(shmem_long_sum_reduce(SHMEM_TEAM_WORLD, mapped + 1, mapped, 1) == 0);
    CHECK(held(mapped + 1) == (long)n * (n - 1) / 2);
    shmunmap(mapped);
    CHECK(!shmem_addr_accessible(mapped, right));
    free(mine);
}

int main(void) {
    start_with_device();
    const int me = shmem_my_pe();
    char *memory = (char *)calloc(MANY + 1000, sizeof(long));
    char *part = memory + 64 * (me + 1);
    use(part, OSHM_MEMTYPE_HOST);
    CHECK(((long *)part)[0] == me && memory[0] == 0);
    /* Again, and what is there stays. */
    long *mapped = (long *)shmmap(part, 100 * sizeof(long), OSHM_MEMTYPE_HOST);
    CHECK(shmem_long_g(mapped, shmem_n_pes() - 1) == shmem_n_pes() - 1);
    shmem_barrier_all();
#if defined(__CUDACC__)
    void *on_gpu = NULL;
    CHECK(cudaMalloc(&on_gpu, (MANY + 100) * sizeof(long)) == cudaSuccess);
    CHECK(cudaMemset(on_gpu, 0, (MANY + 100) * sizeof(long)) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    use((long *)on_gpu + 4 * me, OSHM_MEMTYPE_CUDA);
    CHECK(cudaFree(on_gpu) == cudaSuccess);
#endif
    printf("PE %d of %d is through\n", me, shmem_n_pes());
    shmem_finalize();
    free(memory);
    return 0;
}
