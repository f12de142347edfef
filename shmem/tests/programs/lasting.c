/* Says which process each PE is when all have begun, and stays. */
#include <shmem.h>
#include <unistd.h>

#include "check.h"

int main(void) {
    shmem_init();
    long *memory = shmem_malloc(sizeof *memory);
    CHECK(memory != NULL);
    shmem_long_p(memory, shmem_my_pe(), (shmem_my_pe() + 1) % shmem_n_pes());
    shmem_barrier_all();
    printf("PE %d is process %ld\n", shmem_my_pe(), (long)getpid());
    fflush(stdout);
    for (;;) pause();
}
