
/* For every type: by the type of an argument, behind a context if the first is one */
#define SHMEM_ARGUMENT_0(...) SHMEM_FIRST(__VA_ARGS__, 0)
#define SHMEM_ARGUMENT_1(...) SHMEM_SECOND(__VA_ARGS__, 0, 0)
#define SHMEM_FIRST(first, ...) first
#define SHMEM_SECOND(first, second, ...) second
static inline void shmem_no_such_type(void) {}

#define shmem_sync(...) _Generic((SHMEM_ARGUMENT_0(__VA_ARGS__)), shmem_team_t: shmem_team_sync, default: shmem_sync)(__VA_ARGS__)
#define shmem_signal_set(...) SHMEM_FORM(signal_set, __VA_ARGS__)
#define shmem_signal_add(...) SHMEM_FORM(signal_add, __VA_ARGS__)
#define SHMEM_FORM(name, ...) \
    _Generic((SHMEM_ARGUMENT_0(__VA_ARGS__)), shmem_ctx_t: shmem_ctx_##name, default: shmem_##name)(__VA_ARGS__)
