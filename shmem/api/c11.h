
/* For every type: by the type of an argument, behind a context if the first is one */
#define SHMEM_ARGUMENT_0(...) SHMEM_FIRST(__VA_ARGS__, 0)
#define SHMEM_ARGUMENT_1(...) SHMEM_SECOND(__VA_ARGS__, 0, 0)
#define SHMEM_FIRST(first, ...) first
#define SHMEM_SECOND(first, second, ...) second
static inline void shmem_no_such_type(void) {}

