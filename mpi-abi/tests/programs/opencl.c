/* Messages between OpenCL memory of all ranks, said by attributes of the datatype, with what this needs of OpenCL declared
 * here. Prints "rank R of N is through". */
#include <stdint.h>

#include "abi.h"
#include "mpi_abi_memory.h"

typedef void *handle;
int32_t clGetPlatformIDs(uint32_t, handle *, uint32_t *);
int32_t clGetDeviceIDs(handle, uint64_t, uint32_t, handle *, uint32_t *);
handle clCreateContext(const intptr_t *, uint32_t, const handle *, void *, void *, int32_t *);
handle clCreateCommandQueue(handle, handle, uint64_t, int32_t *);
handle clCreateBuffer(handle, uint64_t, size_t, void *, int32_t *);
int32_t clEnqueueWriteBuffer(handle, handle, uint32_t, size_t, size_t, const void *, uint32_t, const handle *, handle *);
int32_t clEnqueueReadBuffer(handle, handle, uint32_t, size_t, size_t, void *, uint32_t, const handle *, handle *);

enum { LEN = 700000 };
static unsigned char out[LEN], in[LEN];

int main(int argc, char **argv) {
    int rank, size;
    handle platform, device;
    int32_t status;
    MPI_Datatype type;
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    REQUIRE(clGetPlatformIDs(1, &platform, NULL) == 0);
    REQUIRE(clGetDeviceIDs(platform, 0xffffffff, 1, &device, NULL) == 0);
    handle context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    handle queue = clCreateCommandQueue(context, device, 0, &status);
    handle from = clCreateBuffer(context, 1, LEN, NULL, &status), to = clCreateBuffer(context, 1, LEN, NULL, &status);
    REQUIRE(context && queue && from && to);
    MPI_Type_dup(MPI_BYTE, &type);
    MPI_Type_set_attr(type, MPIX_MEMORY_KIND, (void *)MPIX_MEMORY_OPENCL);
    MPI_Type_set_attr(type, MPIX_MEMORY_QUEUE, queue);
    int lengths[] = {0, 1, 8000, 262144, LEN};
    for (int k = 0; k < 5; k++) {
        int len = lengths[k];
        for (int i = 0; i < LEN; i++) out[i] = (unsigned char)(i * 7 + rank + k);
        /* Not waited for: the message is behind it in the queue. */
        REQUIRE(clEnqueueWriteBuffer(queue, from, 0, 0, LEN, out, 0, NULL, NULL) == 0);
        MPI_Isend(from, len, type, right, k, MPI_COMM_WORLD, &requests[0]);
        MPI_Recv(to, len, type, left, k, MPI_COMM_WORLD, NULL);
        MPI_Wait(&requests[0], NULL);
        REQUIRE(clEnqueueReadBuffer(queue, to, 1, 0, LEN, in, 0, NULL, NULL) == 0);
        for (int i = 0; i < len; i++) REQUIRE(in[i] == (unsigned char)(i * 7 + left + k));
    }
    MPI_Send_init(from, LEN, type, right, 9, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(to, LEN, type, left, 9, MPI_COMM_WORLD, &requests[1]);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < LEN; i++) out[i] = (unsigned char)(i * 3 + rank + round);
        REQUIRE(clEnqueueWriteBuffer(queue, from, 1, 0, LEN, out, 0, NULL, NULL) == 0);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, NULL);
        REQUIRE(clEnqueueReadBuffer(queue, to, 1, 0, LEN, in, 0, NULL, NULL) == 0);
        for (int i = 0; i < LEN; i++) REQUIRE(in[i] == (unsigned char)(i * 3 + left + round));
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Type_free(&type);
    MPI_Finalize();
    printf("rank %d of %d is through\n", rank, size);
    return 0;
}
