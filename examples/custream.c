/* A program in C that brings its CUstream: two ranks, threads of this process, on the first GPU, each with a stream and device memory of its
 * own, as an application of CUDA has them, mix their own work on the stream with messages, puts and a captured graph. The driver is loaded
 * by name: no CUDA is needed to compile this. Ends with 77 where there is no GPU.
 *
 *   tools/install-c prefix
 *   cc -std=c11 -O2 -I prefix/include examples/custream.c -L prefix/lib -Wl,-rpath,$PWD/prefix/lib -lmp_c -o custream */
#include <mp.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIMEOUT 20.0
#define COUNT 3000
#define TURNS 1000
#define BYTES (COUNT * sizeof(uint32_t))

#define CHECK(call)                                                                                          \
    do {                                                                                                     \
        mp_status status = (call);                                                                           \
        if (status != MP_OK) {                                                                               \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, mp_status_name(status), mp_last_error()); \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)

#define REQUIRE(condition)                                                                \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s is not so\n", __FILE__, __LINE__, #condition);     \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

/* Of the driver, what this uses. A CUdeviceptr is 64 bits wide. */
static int (*cuInit)(unsigned);
static int (*cuDeviceGetCount)(int *);
static int (*cuDevicePrimaryCtxRetain)(void **, int);
static int (*cuCtxSetCurrent)(void *);
static int (*cuStreamCreate)(void **, unsigned);
static int (*cuStreamSynchronize)(void *);
static int (*cuStreamDestroy)(void *);
static int (*cuMemAlloc)(uint64_t *, size_t);
static int (*cuMemFree)(uint64_t);
static int (*cuMemsetD32Async)(uint64_t, unsigned, size_t, void *);
static int (*cuMemcpyDtoH)(void *, uint64_t, size_t);

static void *context;

static void load(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        fprintf(stderr, "libcuda has no %s\n", name);
        exit(77);
    }
    memcpy(function, &symbol, sizeof symbol);
}

static void load_driver(void) {
    int devices = 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "no CUDA driver: %s\n", dlerror());
        exit(77);
    }
    load(library, "cuInit", &cuInit);
    load(library, "cuDeviceGetCount", &cuDeviceGetCount);
    load(library, "cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain);
    load(library, "cuCtxSetCurrent", &cuCtxSetCurrent);
    load(library, "cuStreamCreate", &cuStreamCreate);
    load(library, "cuStreamSynchronize", &cuStreamSynchronize);
    load(library, "cuStreamDestroy_v2", &cuStreamDestroy);
    load(library, "cuMemAlloc_v2", &cuMemAlloc);
    load(library, "cuMemFree_v2", &cuMemFree);
    load(library, "cuMemsetD32Async", &cuMemsetD32Async);
    load(library, "cuMemcpyDtoH_v2", &cuMemcpyDtoH);
    if (cuInit(0) != 0 || cuDeviceGetCount(&devices) != 0 || devices == 0) {
        fprintf(stderr, "no GPU\n");
        exit(77);
    }
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == 0);
}

static void holds(uint64_t memory, uint32_t expected) {
    static _Thread_local uint32_t words[COUNT];
    int i;
    REQUIRE(cuMemcpyDtoH(words, memory, BYTES) == 0);
    for (i = 0; i < COUNT; i++) {
        if (words[i] != expected) {
            fprintf(stderr, "word %d is %u, expected %u\n", i, (unsigned)words[i], (unsigned)expected);
            exit(1);
        }
    }
}

static double microseconds(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static void *rank(void *argument) {
    mp_world *world = (mp_world *)argument;
    const mp_comm *comm = mp_world_comm(world);
    const uint32_t me = (uint32_t)mp_rank(comm), other = 1 - me;
    uint64_t out = 0, in = 0;
    void *custream = NULL;
    mp_region *from, *to;
    mp_op *ops[2], *put, *arrived;
    mp_op *host_ops[2];
    mp_window *window;
    mp_stream *stream;
    mp_graph *graph;
    mp_step steps[3];
    uint32_t turn;
    double began, enqueued, replayed;

    REQUIRE(cuCtxSetCurrent(context) == 0);
    REQUIRE(cuStreamCreate(&custream, 1) == 0);
    REQUIRE(cuMemAlloc(&out, BYTES) == 0 && cuMemAlloc(&in, BYTES) == 0);
    CHECK(mp_region_register_cuda(0, (void *)(uintptr_t)out, BYTES, &from));
    CHECK(mp_region_register_cuda(0, (void *)(uintptr_t)in, BYTES, &to));
    CHECK(mp_stream_adopt(comm, 0, custream, &stream));
    REQUIRE(mp_stream_cuda(stream) == custream);
    CHECK(mp_send_prepare(comm, (int)other, from, 0, BYTES, 1, &ops[0]));
    CHECK(mp_recv_prepare(comm, (int)other, to, 0, BYTES, 1, &ops[1]));
    CHECK(mp_send_prepare(comm, (int)other, from, 0, BYTES, 2, &host_ops[0]));
    CHECK(mp_recv_prepare(comm, (int)other, to, 0, BYTES, 2, &host_ops[1]));
    CHECK(mp_window_create(comm, to, 1, &window));
    CHECK(mp_put_prepare(window, (int)other, 0, from, 0, BYTES, 0, &put));
    CHECK(mp_signal_wait_prepare(window, 0, &arrived));
    steps[0].op = ops[1];
    steps[0].what = MP_START;
    steps[1].op = ops[0];
    steps[1].what = MP_START;
    steps[2].op = ops[1];
    steps[2].what = MP_WAIT;
    /* The first start waits until the peer has prepared; here nobody's kernel is in the way yet. */
    CHECK(mp_enqueue(stream, steps, 3));
    CHECK(mp_stream_synchronize(stream, TIMEOUT));
    CHECK(mp_barrier(comm));

    /* The application's own work is ordered with the messages, because it is its stream. */
    for (turn = 0; turn < 10; turn++) {
        REQUIRE(cuMemsetD32Async(out, 100 * me + turn, COUNT, custream) == 0);
        CHECK(mp_enqueue(stream, steps, 3));
        REQUIRE(cuStreamSynchronize(custream) == 0);
        holds(in, 100 * other + turn);
        CHECK(mp_barrier(comm));
    }

    /* Prepared for the host, on the same stream. */
    for (turn = 20; turn < 24; turn++) {
        REQUIRE(cuMemsetD32Async(out, 100 * me + turn, COUNT, custream) == 0);
        CHECK(mp_start_on_stream(host_ops[1], stream));
        CHECK(mp_start_on_stream(host_ops[0], stream));
        CHECK(mp_wait_on_stream(host_ops[1], stream));
        CHECK(mp_wait_on_stream(host_ops[0], stream));
        CHECK(mp_stream_synchronize(stream, TIMEOUT));
        holds(in, 100 * other + turn);
        CHECK(mp_barrier(comm));
    }

    /* A put, and the wait for its signal, in one launch. */
    for (turn = 40; turn < 44; turn++) {
        REQUIRE(cuMemsetD32Async(out, 100 * me + turn, COUNT, custream) == 0);
        steps[0].op = put;
        steps[0].what = MP_START;
        steps[1].op = arrived;
        steps[1].what = MP_WAIT;
        CHECK(mp_enqueue(stream, steps, 2));
        CHECK(mp_stream_synchronize(stream, TIMEOUT));
        holds(in, 100 * other + turn);
        CHECK(mp_barrier(comm));
    }

    /* Captured once, with work of the application in it, and replayed. */
    steps[0].op = ops[1];
    steps[1].op = ops[0];
    steps[1].what = MP_START;
    CHECK(mp_stream_begin_capture(stream));
    REQUIRE(cuMemsetD32Async(out, 60 + me, COUNT, custream) == 0);
    CHECK(mp_enqueue(stream, steps, 3));
    CHECK(mp_stream_end_capture(stream, &graph));
    CHECK(mp_barrier(comm));
    began = microseconds();
    for (turn = 0; turn < TURNS; turn++) CHECK(mp_stream_launch_graph(stream, graph));
    CHECK(mp_stream_synchronize(stream, TIMEOUT));
    replayed = (microseconds() - began) / TURNS;
    holds(in, 60 + other);
    CHECK(mp_barrier(comm));

    /* The same, enqueued again and again. */
    began = microseconds();
    for (turn = 0; turn < TURNS; turn++) {
        REQUIRE(cuMemsetD32Async(out, 80 + me, COUNT, custream) == 0);
        CHECK(mp_enqueue(stream, steps, 3));
    }
    CHECK(mp_stream_synchronize(stream, TIMEOUT));
    enqueued = (microseconds() - began) / TURNS;
    holds(in, 80 + other);
    CHECK(mp_barrier(comm));

    CHECK(mp_graph_free(graph));
    CHECK(mp_op_free(put));
    CHECK(mp_op_free(arrived));
    CHECK(mp_window_free(window));
    CHECK(mp_op_free(ops[0]));
    CHECK(mp_op_free(ops[1]));
    CHECK(mp_op_free(host_ops[0]));
    CHECK(mp_op_free(host_ops[1]));
    CHECK(mp_stream_free(stream));
    CHECK(mp_region_free(from));
    CHECK(mp_region_free(to));
    CHECK(mp_finish(world));
    REQUIRE(cuMemFree(out) == 0 && cuMemFree(in) == 0 && cuStreamDestroy(custream) == 0);
    if (me == 0)
        printf("custream: %d bytes between 2 ranks on the caller's streams: %.2f us an exchange, %.2f us from a graph, right\n", (int)BYTES,
               enqueued, replayed);
    return NULL;
}

int main(void) {
    mp_world *worlds[2];
    pthread_t threads[2];
    int i;

    load_driver();
    CHECK(mp_init_threads(2, worlds));
    for (i = 0; i < 2; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, rank, worlds[i]) == 0);
    }
    for (i = 0; i < 2; i++) {
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    }
    return 0;
}
