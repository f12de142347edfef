/*
 * The functions of shmem.h by a second name, for tools that put their own in front of them. They link the shared library. Made from
 * api/functions.txt by the build script of mp-shmem: change that.
 */
#ifndef PSHMEM_H
#define PSHMEM_H

#include <shmem.h>

#ifdef __cplusplus
extern "C" {
#endif

