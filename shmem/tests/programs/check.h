/* What the test programs have in common. */
#include <stdio.h>
#include <stdlib.h>

/* Ends the program of all PEs if something is not so. */
#define CHECK(what)                                                                                     \
    do {                                                                                                \
        if (!(what)) {                                                                                  \
            fprintf(stderr, "%s:%d: PE %d: not so: %s\n", __FILE__, __LINE__, shmem_my_pe(), #what);    \
            shmem_global_exit(9);                                                                       \
        }                                                                                               \
    } while (0)

/* TYPENAME and type of those that are put and got. */
#define RMA_TYPES(X)                                                                                                   \
    X(float, float) X(double, double) X(longdouble, long double) X(char, char) X(schar, signed char) X(short, short)   \
    X(int, int) X(long, long) X(longlong, long long) X(uchar, unsigned char) X(ushort, unsigned short)                 \
    X(uint, unsigned int) X(ulong, unsigned long) X(ulonglong, unsigned long long) X(int8, int8_t) X(int16, int16_t)   \
    X(int32, int32_t) X(int64, int64_t) X(uint8, uint8_t) X(uint16, uint16_t) X(uint32, uint32_t) X(uint64, uint64_t)  \
    X(size, size_t) X(ptrdiff, ptrdiff_t)

/* Those of atomic operations. */
#define AMO_TYPES(X)                                                                                                   \
    X(int, int) X(long, long) X(longlong, long long) X(uint, unsigned int) X(ulong, unsigned long)                     \
    X(ulonglong, unsigned long long) X(int32, int32_t) X(int64, int64_t) X(uint32, uint32_t) X(uint64, uint64_t)       \
    X(size, size_t) X(ptrdiff, ptrdiff_t)
