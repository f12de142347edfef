/* Extensions of NVSHMEM's, which nvshmem.h has. */
#include <nvshmem.h>
