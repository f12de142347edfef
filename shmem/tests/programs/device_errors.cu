/* Makes the mistake of its first argument with a device on PE 1, while the others wait for it. */
#include <string.h>

#include "kernel.h"

__global__ void put_to(int *dest, const int *source, int pe) { shmemg_putmem(dest, source, sizeof *dest, pe); }
__global__ void put_in(shmem_ctx_t ctx, int *dest, int pe) { shmemg_ctx_int_p(ctx, dest, 1, pe); }
__global__ void wait_for(int *word, int comparison) { shmemg_int_wait_until(word, comparison, 1); }
__global__ void add_to(int *word) { shmemg_int_atomic_add(word, 1, 0); }
/* Nobody writes the word, and what was refused is what would have made somebody do so. */
__global__ void put_to_and_wait(int *dest, int pe) {
    shmemg_putmem(dest + 1, dest, sizeof *dest, pe);
    shmemg_int_wait_until(dest, SHMEM_CMP_EQ, 1);
}
__global__ void meet(shmem_team_t team) { (void)shmemg_team_sync(team); }

int main(int, char **arguments) {
    const char *what = arguments[1];
    const auto is = [what](const char *it) { return strcmp(what, it) == 0; };
    if (is("not-asked")) {
        shmem_init();
        shmemg_malloc(8);
    }
    start_with_device();
    const int me = shmem_my_pe();
    int *memory = (int *)shmemg_malloc(16), own = 0;
    if (is("heap")) CHECK(shmemg_malloc((size_t)1 << 40) == nullptr);
    if (me == 1) {
        if (is("pe")) LAUNCH(put_to, 1, 1, memory, memory + 1, 7);
        if (is("unheard")) LAUNCH(put_to_and_wait, 1, 1, memory, 7);
        if (is("outside")) LAUNCH(put_to, 1, 1, &own, memory, 0);
        if (is("odd")) LAUNCH(add_to, 1, 1, (int *)((char *)memory + 2));
        if (is("comparison")) LAUNCH(wait_for, 1, 1, memory, 17);
        if (is("team")) LAUNCH(meet, 1, 1, SHMEM_TEAM_WORLD);
        if (is("context")) LAUNCH(put_in, 1, 1, SHMEM_CTX_DEFAULT, memory, 0);
        if (is("host")) shmem_ctx_int_p(SHMEM_DEVICE_CTX_DEFAULT, memory, 1, 0);
        if (is("lost")) abort();
    } else if (is("lost") || is("unheard")) {
        LAUNCH(wait_for, 1, 1, memory, SHMEM_CMP_EQ);
    }
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
