/* Tagged messages between OpenCL memory of two ranks, threads of this process, with what this needs of OpenCL declared here. Prints "rank R is
 * through". */
#include <mp.h>

#include <pthread.h>
#include <stdint.h>

#include "check.h"

#define RANKS 2
#define TIMEOUT 40.0
#define LEN 700000

typedef void *handle;
int32_t clGetPlatformIDs(uint32_t, handle *, uint32_t *);
int32_t clGetDeviceIDs(handle, uint64_t, uint32_t, handle *, uint32_t *);
handle clCreateContext(const intptr_t *, uint32_t, const handle *, void *, void *, int32_t *);
handle clCreateCommandQueue(handle, handle, uint64_t, int32_t *);
handle clCreateBuffer(handle, uint64_t, size_t, void *, int32_t *);
int32_t clEnqueueWriteBuffer(handle, handle, uint32_t, size_t, size_t, const void *, uint32_t, const handle *, handle *);
int32_t clEnqueueReadBuffer(handle, handle, uint32_t, size_t, size_t, void *, uint32_t, const handle *, handle *);

static handle context, device;

static void *rank(void *argument) {
    mp_world *world = argument;
    const mp_comm *comm = mp_world_comm(world);
    int me = mp_rank(comm), other = 1 - me;
    static unsigned char out[RANKS][LEN], in[RANKS][LEN];
    int32_t status;
    mp_tagged *tagged;
    mp_request *both[2];
    mp_message_status got;
    CHECK(mp_tagged_open(comm, NULL, &tagged));
    handle queue = clCreateCommandQueue(context, device, 0, &status);
    handle from = clCreateBuffer(context, 1, LEN, NULL, &status), to = clCreateBuffer(context, 1, LEN, NULL, &status);
    handle sealed = clCreateBuffer(context, 4, LEN, NULL, &status);
    REQUIRE(queue && from && to && sealed);
    const size_t lengths[] = {0, 1, 8000, 262144, LEN - 3};
    for (int k = 0; k < 5; k++) {
        size_t len = lengths[k];
        mp_memory sent = {MP_MEMORY_OPENCL, 0, from, 3, len, NULL, queue, 0};
        mp_memory received = {MP_MEMORY_OPENCL, 0, to, 1, LEN - 1, NULL, NULL, 0};
        for (size_t i = 0; i < LEN; i++) out[me][i] = (unsigned char)(i * 7 + (size_t)(me + k));
        /* Not waited for: the message is behind it in the queue. */
        REQUIRE(clEnqueueWriteBuffer(queue, from, 0, 0, LEN, out[me], 0, NULL, NULL) == 0);
        CHECK(mp_tagged_isend_memory(tagged, &sent, other, k, &both[0]));
        CHECK(mp_tagged_irecv_memory(tagged, &received, other, k, &both[1]));
        CHECK(mp_request_wait(both[1], TIMEOUT, &got));
        CHECK(mp_request_wait(both[0], TIMEOUT, NULL));
        REQUIRE(got.bytes == len && got.source == other);
        REQUIRE(clEnqueueReadBuffer(queue, to, 1, 0, LEN, in[me], 0, NULL, NULL) == 0);
        for (size_t i = 0; i < len; i++) REQUIRE(in[me][i + 1] == (unsigned char)((i + 3) * 7 + (size_t)(other + k)));
        CHECK(mp_request_free(both[0]));
        CHECK(mp_request_free(both[1]));
    }
    mp_memory wrong = {MP_MEMORY_OPENCL, 0, to, 1, LEN, NULL, NULL, 0};
    REQUIRE(mp_tagged_irecv_memory(tagged, &wrong, other, 9, &both[1]) != MP_OK);
    wrong = (mp_memory){MP_MEMORY_OPENCL, 0, sealed, 0, LEN, NULL, NULL, 0};
    REQUIRE(mp_tagged_irecv_memory(tagged, &wrong, other, 9, &both[1]) == MP_ERR_MISMATCH && both[1] == NULL);
    CHECK(mp_tagged_free(tagged));
    CHECK(mp_finish(world));
    printf("rank %d is through\n", me);
    return NULL;
}

int main(void) {
    mp_world *worlds[RANKS];
    pthread_t threads[RANKS];
    handle platform;
    int32_t status;
    REQUIRE(clGetPlatformIDs(1, &platform, NULL) == 0);
    REQUIRE(clGetDeviceIDs(platform, 0xffffffff, 1, &device, NULL) == 0);
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    REQUIRE(context);
    CHECK(mp_init_threads(RANKS, worlds));
    for (int number = 0; number < RANKS; number++) {
        REQUIRE(pthread_create(&threads[number], NULL, rank, worlds[number]) == 0);
    }
    for (int number = 0; number < RANKS; number++) pthread_join(threads[number], NULL);
    return 0;
}
