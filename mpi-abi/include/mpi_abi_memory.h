/* Attributes of a datatype that say where the memory of a message is, as in MPI-ACC (Aji et al., TPDS 2016, section 3). They are set by
 * MPI_Type_set_attr on a datatype that MPI_Type_dup has made, and hold for sends, receives, their non-blocking and persistent forms: not for
 * collectives. A datatype without them is of host memory. */
#ifndef MPI_ABI_MEMORY_H
#define MPI_ABI_MEMORY_H

/* What the buffer argument is: one of the kinds below, as an intptr_t in the pointer. */
#define MPIX_MEMORY_KIND 0x4d01
/* Of CUDA memory: the ordinal of its device, likewise; 0 if it is not set. Memory of another device is an error. */
#define MPIX_MEMORY_DEVICE 0x4d02
/* Of CUDA memory: a CUstream, not the default stream. A message is behind what the stream has been given, and what it is given after a receive waits for that. */
#define MPIX_MEMORY_STREAM 0x4d03
/* Of OpenCL memory: a cl_command_queue. A message is behind what the queue had been given when the call was made that named the datatype: a
 * persistent one always behind that. */
#define MPIX_MEMORY_QUEUE 0x4d04

#define MPIX_MEMORY_HOST 0
#define MPIX_MEMORY_CUDA 1   /* the buffer argument is a device address */
#define MPIX_MEMORY_OPENCL 2 /* the buffer argument is a cl_mem, a sub-buffer for another offset than 0 */

#endif
