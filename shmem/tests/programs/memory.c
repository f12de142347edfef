/* The symmetric heap, what is asked about memory, and variables of every kind. */
#include <shmem.h>
#include <string.h>

#include "check.h"

int zeroed[3000];
long set = 0x1234;
static char text[] = "before";
const char constant[] = "read-only";
static long *pointer = &set;

static int *of_function(void) {
    static int local = 17;
    return &local;
}

int main(void) {
    /* What is done before the start stays. */
    char *kept = malloc(100);
    strcpy(kept, "kept");
    zeroed[2999] = 5;
    text[0] = 'B';
    shmem_init();
    const int me = shmem_my_pe(), n = shmem_n_pes(), right = (me + 1) % n;
    CHECK(zeroed[2999] == 5 && set == 0x1234 && strcmp(text, "Before") == 0 && *of_function() == 17);
    CHECK(pointer == &set && *pointer == 0x1234 && strcmp(kept, "kept") == 0);
    set = me;
    *of_function() = 100 + me;
    shmem_barrier_all();
    CHECK(shmem_long_g(&set, right) == right && shmem_int_g(of_function(), right) == 100 + right);

    int major = 0, minor = 0;
    char name[SHMEM_MAX_NAME_LEN];
    shmem_info_get_version(&major, &minor);
    shmem_info_get_name(name);
    CHECK(major == SHMEM_MAJOR_VERSION && minor == SHMEM_MINOR_VERSION && strcmp(name, SHMEM_VENDOR_STRING) == 0);

    int on_stack = 0;
    CHECK(shmem_pe_accessible(right) && !shmem_pe_accessible(n) && !shmem_pe_accessible(-1));
    CHECK(shmem_addr_accessible(&set, right) && !shmem_addr_accessible(&on_stack, right));
    CHECK(!shmem_addr_accessible(kept, right) && !shmem_addr_accessible(&set, n) && !shmem_addr_accessible(constant, right));
    CHECK(shmem_ptr(&on_stack, right) == NULL && shmem_ptr(&set, me) == &set);
    long *theirs = shmem_ptr(&set, right);
    if (theirs != NULL) CHECK(*theirs == right);

    CHECK(shmem_malloc(0) == NULL);
    int *first = shmem_malloc(1000 * sizeof(int));
    int *cleared = shmem_calloc(1000, sizeof(int));
    char *aligned = shmem_align(4096, 5000);
    CHECK(first != NULL && cleared != NULL && aligned != NULL && (size_t)aligned % 4096 == 0);
    CHECK(shmem_addr_accessible(first, right));
    for (int i = 0; i < 1000; ++i) {
        CHECK(cleared[i] == 0);
        first[i] = me * 1000 + i;
    }
    shmem_barrier_all();
    CHECK(shmem_int_g(&first[999], right) == right * 1000 + 999);
    shmem_barrier_all();
    int *larger = shmem_realloc(first, 100000 * sizeof(int));
    CHECK(larger != NULL);
    for (int i = 0; i < 1000; ++i) CHECK(larger[i] == me * 1000 + i);
    CHECK(shmem_realloc(larger, 10) == larger);
    shmem_int_p(&larger[99999 % 2], 3, right);
    shmem_free(NULL);
    shmem_free(larger);
    shmem_free(cleared);
    shmem_free(aligned);
    /* All of it again, and again: nothing is lost, and all PEs have the same place. */
    void *before = NULL;
    for (int i = 0; i < 50; ++i) {
        char *most = shmem_malloc(40u << 20);
        CHECK(most != NULL && (before == NULL || before == most));
        before = most;
        shmem_char_p(most + (40u << 20) - 1, (char)(me + 1), right);
        shmem_barrier_all();
        CHECK(most[(40u << 20) - 1] == (me + n - 1) % n + 1);
        shmem_free(most);
    }
    printf("PE %d of %d is through\n", me, n);
    shmem_finalize();
    /* They are there behind the end, too. */
    if (set != me || strcmp(kept, "kept") != 0) return 1;
    free(kept);
    return 0;
}
