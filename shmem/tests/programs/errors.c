/* A mistake, which the first argument names, and how the program ends of it. PE 1 makes it; the others wait, or compute. */
#include <shmemx.h>
#include <string.h>

#include "check.h"

static long word;
static char bytes[100];

static void mistake(const char *what) {
    long on_stack = 0;
    if (strcmp(what, "pe") == 0) shmem_long_p(&word, 1, 7);
    if (strcmp(what, "negative-pe") == 0) shmem_long_g(&word, -1);
    if (strcmp(what, "private") == 0) shmem_long_p(&on_stack, 1, 0);
    if (strcmp(what, "null") == 0) shmem_putmem(NULL, bytes, 10, 0);
    if (strcmp(what, "past") == 0) shmem_putmem(bytes, bytes, (size_t)1 << 40, 0);
    if (strcmp(what, "comparison") == 0) shmem_long_wait_until(&word, 17, 0);
    if (strcmp(what, "free") == 0) shmem_free(bytes);
    if (strcmp(what, "stride") == 0) shmem_iput64(&word, bytes, 0, 1, 2, 0);
    if (strcmp(what, "block") == 0) shmem_ibput8(bytes, bytes, 3, 2, 3, 2, 0);
    if (strcmp(what, "quiet") == 0) shmem_pe_quiet((const int[]){0, 3}, 2);
    if (strcmp(what, "context") == 0) shmem_ctx_long_p(SHMEM_CTX_INVALID, &word, 1, 0);
    if (strcmp(what, "map-cuda") == 0) shmmap(&on_stack, 8, OSHM_MEMTYPE_CUDA);
    if (strcmp(what, "map-type") == 0) shmmap(&on_stack, 8, 17);
    if (strcmp(what, "map-again") == 0) shmmap(bytes, 8, OSHM_MEMTYPE_HOST);
    if (strcmp(what, "map-null") == 0) shmmap(NULL, 10, OSHM_MEMTYPE_HOST);
    if (strcmp(what, "unmap") == 0) shmunmap(bytes);
    if (strcmp(what, "exit") == 0) exit(5);
    if (strcmp(what, "return") == 0) return;
    if (strcmp(what, "kill") == 0) abort();
    if (strcmp(what, "global-exit") == 0) shmem_global_exit(23);
    if (strcmp(what, "global-exit-0") == 0) shmem_global_exit(0);
}

int main(int arguments, char **argument) {
    if (arguments != 3) return 2;
    if (strcmp(argument[1], "no-start") == 0) shmem_barrier_all();
    shmem_init();
    if (strcmp(argument[1], "heap") == 0) {
        char *memory = shmem_malloc((size_t)1 << 40);
        shmem_putmem(memory, bytes, 10, 0);
        return 0;
    }
    if (shmem_my_pe() == 1) {
        printf("PE 1 has said this\n");
        mistake(argument[1]);
        /* Reached by none but "return". */
        return 0;
    }
    if (strcmp(argument[2], "compute") == 0) {
        for (volatile long i = 0;; ++i) {
        }
    }
    if (strcmp(argument[2], "barrier") == 0) shmem_barrier_all();
    if (strcmp(argument[2], "wait") == 0) shmem_long_wait_until(&word, SHMEM_CMP_EQ, 12345);
    return 0;
}
