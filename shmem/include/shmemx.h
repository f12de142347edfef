/* Extensions to OpenSHMEM: there are none. */
#include <shmem.h>
