/* Where older programs look for it. */
#include <shmemx.h>
