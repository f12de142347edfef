/* Numbers that Rust does not have. */
#include <stddef.h>

void mp_shmem_combine_long_doubles(int op, long double *to, const long double *from, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        switch (op) {
            case 0: to[i] += from[i]; break;
            case 1: to[i] *= from[i]; break;
            case 2: to[i] = from[i] < to[i] || from[i] != from[i] ? from[i] : to[i]; break;
            default: to[i] = from[i] > to[i] || from[i] != from[i] ? from[i] : to[i]; break;
        }
    }
}
