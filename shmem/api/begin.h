/*
 * OpenSHMEM 1.5 for C and C++ on libmp. Which parts of the specification are there is in docs/openshmem.md of its sources; what is not
 * there is not declared. Made from api/functions.txt by the build script of mp-shmem: change that.
 */
#ifndef SHMEM_H
#define SHMEM_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* The specification that this follows. */
#define SHMEM_MAJOR_VERSION 1
#define SHMEM_MINOR_VERSION 5
#define SHMEM_MAX_NAME_LEN 256
#define SHMEM_VENDOR_STRING "libmp"

/* Comparisons of waits and tests. */
#define SHMEM_CMP_EQ 1
#define SHMEM_CMP_NE 2
#define SHMEM_CMP_GT 3
#define SHMEM_CMP_GE 4
#define SHMEM_CMP_LT 5
#define SHMEM_CMP_LE 6

/* What a context is asked for. It is no faster for any of it. */
#define SHMEM_CTX_SERIALIZED (1L << 0)
#define SHMEM_CTX_PRIVATE (1L << 1)
#define SHMEM_CTX_NOSTORE (1L << 2)

/* A context. Programs have only pointers to it; its name is no other type's. */
struct shmem_context { int number; };
typedef struct shmem_context *shmem_ctx_t;
#define SHMEM_CTX_INVALID ((shmem_ctx_t)0)
#define SHMEM_CTX_DEFAULT ((shmem_ctx_t)1)

#ifdef __cplusplus
extern "C" {
#endif
