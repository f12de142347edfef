/* Messages between memory of a GPU of all ranks, said by attributes of the datatype, behind what its stream is given and before what that is given
 * next, with what this needs of the driver declared here. Prints "rank R of N is through". */
#include <stdint.h>

#include "abi.h"
#include "mpi_abi_memory.h"

typedef void *handle;
int cuInit(unsigned);
int cuDeviceGet(int *, int);
int cuDevicePrimaryCtxRetain(handle *, int);
int cuCtxSetCurrent(handle);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemAllocHost_v2(void **, size_t);
int cuStreamCreate(handle *, unsigned);
int cuStreamSynchronize(handle);
int cuMemcpyHtoDAsync_v2(uint64_t, const void *, size_t, handle);
int cuMemcpyDtoHAsync_v2(void *, uint64_t, size_t, handle);
int cuMemsetD8Async(uint64_t, unsigned char, size_t, handle);

enum { LEN = 700000 };

/* The first byte of a message of this round and rank. */
static unsigned char seed(int round, int rank) { return (unsigned char)(round * 5 + rank * 3 + 1); }

int main(int argc, char **argv) {
    int rank, size, device;
    handle context, stream, other;
    uint64_t from, to;
    unsigned char *out, *in;
    MPI_Datatype type, received;
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    REQUIRE(cuInit(0) == 0 && cuDeviceGet(&device, 0) == 0);
    REQUIRE(cuDevicePrimaryCtxRetain(&context, device) == 0 && cuCtxSetCurrent(context) == 0);
    REQUIRE(cuMemAlloc_v2(&from, LEN) == 0 && cuMemAlloc_v2(&to, LEN) == 0);
    /* Pinned: a copy from a stream that waits to memory that is not would be waited for. */
    REQUIRE(cuMemAllocHost_v2((void **)&out, LEN) == 0 && cuMemAllocHost_v2((void **)&in, LEN) == 0);
    REQUIRE(cuStreamCreate(&stream, 1) == 0 && cuStreamCreate(&other, 1) == 0);
    MPI_Type_dup(MPI_BYTE, &type);
    MPI_Type_set_attr(type, MPIX_MEMORY_KIND, (void *)MPIX_MEMORY_CUDA);
    MPI_Type_set_attr(type, MPIX_MEMORY_DEVICE, (void *)0);
    MPI_Type_dup(type, &received);
    MPI_Type_set_attr(type, MPIX_MEMORY_STREAM, stream);
    MPI_Type_set_attr(received, MPIX_MEMORY_STREAM, other);
    int lengths[] = {0, 1, 8000, 262144, LEN};
    for (int k = 0; k < 5; k++) {
        int len = lengths[k];
        for (int i = 0; i < LEN; i++) out[i] = (unsigned char)(i * 7 + seed(k, rank));
        /* Nobody waits for the streams: what they are given has its order by the messages. */
        REQUIRE(cuMemsetD8Async(to, 0, LEN, other) == 0);
        REQUIRE(cuMemcpyHtoDAsync_v2(from, out, LEN, stream) == 0);
        MPI_Irecv((void *)to, len, received, left, k, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend((void *)from, len, type, right, k, MPI_COMM_WORLD, &requests[1]);
        REQUIRE(cuMemcpyDtoHAsync_v2(in, to, LEN, other) == 0);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        REQUIRE(cuStreamSynchronize(other) == 0);
        for (int i = 0; i < LEN; i++) REQUIRE(in[i] == (i < len ? (unsigned char)(i * 7 + seed(k, left)) : 0));
    }
    MPI_Send_init((void *)from, LEN, type, right, 9, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init((void *)to, LEN, received, left, 9, MPI_COMM_WORLD, &requests[1]);
    for (int round = 0; round < 3; round++) {
        REQUIRE(cuMemsetD8Async(from, seed(round, rank), LEN, stream) == 0);
        MPI_Startall(2, requests);
        REQUIRE(cuMemcpyDtoHAsync_v2(in, to, LEN, other) == 0);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        REQUIRE(cuStreamSynchronize(other) == 0);
        for (int i = 0; i < LEN; i++) REQUIRE(in[i] == seed(round, left));
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Type_free(&type);
    MPI_Type_free(&received);
    MPI_Finalize();
    printf("rank %d of %d is through\n", rank, size);
    return 0;
}
