/* Three ranks, threads of this process: every function for tagged messages, and what it says of arguments that make no sense. */
#define _POSIX_C_SOURCE 200809L
#include <mp.h>

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "check.h"

#define RANKS 3
#define TIMEOUT 40.0
#define LONG 200000

static void fill(unsigned char *bytes, size_t count, int seed) {
    for (size_t at = 0; at < count; at++) bytes[at] = (unsigned char)(at * 13 + (size_t)seed);
}

static void blocking(const mp_tagged *tagged, int me, int right, int left) {
    int out[4] = {me, 1, 2, 3}, in[6] = {0};
    mp_message_status status;
    CHECK(mp_tagged_send(tagged, out, sizeof out, right, 7, TIMEOUT));
    CHECK(mp_tagged_recv(tagged, in, sizeof in, left, 7, TIMEOUT, &status));
    REQUIRE(in[0] == left && in[3] == 3 && in[4] == 0);
    REQUIRE(status.source == left && status.tag == 7 && status.bytes == sizeof out && status.cancelled == 0);
    CHECK(mp_tagged_send(tagged, NULL, 0, right, 8, TIMEOUT));
    CHECK(mp_tagged_recv(tagged, NULL, 0, MP_ANY, MP_ANY, TIMEOUT, &status));
    REQUIRE(status.source == left && status.tag == 8 && status.bytes == 0);
    /* Too long. */
    CHECK(mp_tagged_send(tagged, out, sizeof out, right, 9, TIMEOUT));
    REFUSED(mp_tagged_recv(tagged, in, 4, left, 9, TIMEOUT, NULL), MP_ERR_TRUNCATED, "16 bytes for a posted buffer of 4 bytes");
    REFUSED(mp_tagged_recv(tagged, in, 4, me, 10, 0.01, NULL), MP_ERR_LATE, "receive of tag 10");
}

static void requests(const mp_tagged *tagged, int me, int right, int left) {
    static unsigned char out[RANKS][LONG], in[RANKS][LONG];
    mp_message_status statuses[2];
    mp_request *both[2];
    int complete = 0, which, cancelled;
    fill(out[me], LONG, me);
    CHECK(mp_tagged_irecv(tagged, in[me], LONG, left, 1, &both[0]));
    CHECK(mp_tagged_isend(tagged, out[me], LONG, right, 1, &both[1]));
    CHECK(mp_request_wait_all(both, 2, TIMEOUT, statuses));
    REQUIRE(statuses[0].bytes == LONG && statuses[0].source == left && statuses[1].source == me);
    fill(out[me], LONG, left);
    REQUIRE(memcmp(in[me], out[me], LONG) == 0);
    CHECK(mp_request_wait_any(both, 2, TIMEOUT, &which, NULL));
    REQUIRE(which == -1);
    REFUSED(mp_request_start(both[0]), MP_ERR_MISMATCH, "send_init");
    CHECK(mp_request_free(both[0]));
    CHECK(mp_request_free(both[1]));
    /* Prepared, to itself. */
    CHECK(mp_tagged_send_init(tagged, out[me], 100, me, 2, &both[0]));
    CHECK(mp_tagged_recv_init(tagged, in[me], 100, me, 2, &both[1]));
    for (int round = 0; round < 50; round++) {
        fill(out[me], 100, round);
        CHECK(mp_request_start(both[1]));
        REFUSED(mp_request_start(both[1]), MP_ERR_STARTED, "tag 2");
        CHECK(mp_request_start(both[0]));
        CHECK(mp_request_wait(both[0], TIMEOUT, NULL));
        for (complete = 0; !complete;) CHECK(mp_request_test(both[1], &complete, statuses));
        REQUIRE(statuses[0].bytes == 100 && memcmp(in[me], out[me], 100) == 0);
    }
    CHECK(mp_request_start(both[1]));
    CHECK(mp_request_cancel(both[1], &cancelled));
    REQUIRE(cancelled == 1);
    CHECK(mp_request_wait(both[1], TIMEOUT, statuses));
    REQUIRE(statuses[0].cancelled == 1);
    CHECK(mp_request_start(both[1]));
    CHECK(mp_request_start(both[0]));
    CHECK(mp_request_wait_any(both + 1, 1, TIMEOUT, &which, statuses));
    REQUIRE(which == 0 && statuses[0].tag == 2);
    CHECK(mp_request_wait(both[0], TIMEOUT, NULL));
    mp_request *twice[2] = {both[0], both[0]};
    REFUSED(mp_request_wait_all(twice, 2, TIMEOUT, NULL), MP_ERR_ARGUMENT, "requests[1]");
    CHECK(mp_request_free(both[0]));
    CHECK(mp_request_free(both[1]));
}

static void probes(const mp_tagged *tagged, int me) {
    int value = 5, got = 0, found = 1;
    mp_message_status status;
    mp_message *message;
    CHECK(mp_tagged_iprobe(tagged, me, 3, &found, NULL));
    REQUIRE(found == 0);
    CHECK(mp_tagged_send(tagged, &value, sizeof value, me, 3, TIMEOUT));
    CHECK(mp_tagged_probe(tagged, me, MP_ANY, TIMEOUT, &status));
    REQUIRE(status.tag == 3 && status.bytes == sizeof value);
    CHECK(mp_tagged_iprobe(tagged, me, 3, &found, &status));
    REQUIRE(found == 1);
    CHECK(mp_tagged_mprobe(tagged, me, 3, TIMEOUT, &message, &status));
    CHECK(mp_tagged_iprobe(tagged, me, 3, &found, NULL));
    REQUIRE(found == 0);
    CHECK(mp_message_recv(message, &got, sizeof got, TIMEOUT, &status));
    REQUIRE(got == 5 && status.source == me);
    CHECK(mp_tagged_send(tagged, &value, sizeof value, me, 4, TIMEOUT));
    CHECK(mp_tagged_mprobe(tagged, me, 4, TIMEOUT, &message, NULL));
    CHECK(mp_message_free(message));
}

static void sleeps(void *argument) {
    (void)argument;
    struct timespec time = {0, 20000000};
    nanosleep(&time, NULL);
}

static void writes(void *argument) { *(volatile unsigned char *)argument = 77; }

static void doubles(void *argument) { *(volatile unsigned char *)argument *= 2; }

/* Memory that says what it is, and what comes before the message. */
static void memories(const mp_comm *comm, const mp_tagged *tagged, int me) {
    static unsigned char host[RANKS][LONG];
    mp_request *both[2];
    mp_region *region;
    mp_stream *stream;
    CHECK(mp_region_alloc(comm, MP_HOST, LONG + 8, &region));
    CHECK(mp_stream_create(comm, MP_HOST, &stream));
    unsigned char *there = mp_region_host_address(region);
    mp_memory from = {MP_MEMORY_HOST, 0, host[me], 1, LONG - 1, NULL, NULL, 0};
    mp_memory into = {MP_MEMORY_REGION, 0, region, 8, LONG, NULL, NULL, 0};
    fill(host[me], LONG, me);
    CHECK(mp_tagged_irecv_memory(tagged, &into, me, 5, &both[0]));
    CHECK(mp_tagged_isend_memory(tagged, &from, me, 5, &both[1]));
    mp_message_status statuses[2];
    CHECK(mp_request_wait_all(both, 2, TIMEOUT, statuses));
    REQUIRE(statuses[0].bytes == LONG - 1 && memcmp(there + 8, host[me] + 1, LONG - 1) == 0);
    CHECK(mp_request_free(both[0]));
    CHECK(mp_request_free(both[1]));
    /* Behind a stream, prepared: each start waits for what the stream was given before it, and holds back what it is given after a receive. */
    from.stream = into.stream = stream;
    CHECK(mp_tagged_recv_init_memory(tagged, &into, me, 6, &both[0]));
    CHECK(mp_tagged_send_init_memory(tagged, &from, me, 6, &both[1]));
    for (int round = 0; round < 3; round++) {
        unsigned char after = 0;
        host[me][1] = 0;
        CHECK(mp_stream_call(stream, sleeps, NULL));
        CHECK(mp_stream_call(stream, writes, &host[me][1]));
        CHECK(mp_request_start(both[1]));
        CHECK(mp_request_start(both[0]));
        CHECK(mp_stream_call(stream, writes, &after));
        CHECK(mp_request_wait_all(both, 2, TIMEOUT, statuses));
        REQUIRE(there[8] == 77 && statuses[0].bytes == LONG - 1);
        CHECK(mp_stream_synchronize(stream, TIMEOUT));
        REQUIRE(after == 77);
    }
    CHECK(mp_request_free(both[0]));
    CHECK(mp_request_free(both[1]));
    /* Enqueued on it when it has come: complete while the stream still does something else, and before what it is given then. */
    into.enqueued = 1;
    into.bytes = 8;
    CHECK(mp_tagged_recv_init_memory(tagged, &into, me, 7, &both[0]));
    for (int round = 0; round < 3; round++) {
        unsigned char sent[8] = {0};
        sent[0] = (unsigned char)(round + 1);
        there[8] = 0;
        CHECK(mp_stream_call(stream, sleeps, NULL));
        CHECK(mp_request_start(both[0]));
        CHECK(mp_tagged_send(tagged, sent, sizeof sent, me, 7, TIMEOUT));
        CHECK(mp_request_wait(both[0], TIMEOUT, statuses));
        REQUIRE(statuses[0].bytes == 8);
        CHECK(mp_stream_call(stream, doubles, there + 8));
        CHECK(mp_stream_synchronize(stream, TIMEOUT));
        REQUIRE(there[8] == 2 * (round + 1));
    }
    CHECK(mp_request_free(both[0]));
    into.stream = NULL;
    REFUSED(mp_tagged_irecv_memory(tagged, &into, me, 7, &both[0]), MP_ERR_ARGUMENT, "enqueued");
    into.enqueued = 0;
    into.bytes = LONG;
    into.offset = LONG;
    REFUSED(mp_tagged_irecv_memory(tagged, &into, me, 5, &both[0]), MP_ERR_RANGE, "200000..400000");
    REQUIRE(both[0] == NULL);
    from.queue = stream;
    REFUSED(mp_tagged_isend_memory(tagged, &from, me, 5, &both[0]), MP_ERR_ARGUMENT, "queue");
    from = (mp_memory){7, 0, host, 0, 1, NULL, NULL, 0};
    REFUSED(mp_tagged_isend_memory(tagged, &from, me, 5, &both[0]), MP_ERR_ARGUMENT, "kind");
    from = (mp_memory){MP_MEMORY_OPENCL, 0, NULL, 0, 1, NULL, NULL, 0};
    REFUSED(mp_tagged_isend_memory(tagged, &from, me, 5, &both[0]), MP_ERR_ARGUMENT, "memory");
    from = (mp_memory){MP_MEMORY_CUDA, -2, host, 0, 1, NULL, NULL, 0};
    REFUSED(mp_tagged_isend_memory(tagged, &from, me, 5, &both[0]), MP_ERR_ARGUMENT, "device");
    REFUSED(mp_tagged_irecv_memory(tagged, NULL, me, 5, &both[0]), MP_ERR_ARGUMENT, "into");
    CHECK(mp_stream_free(stream));
    CHECK(mp_region_free(region));
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int is_sent;

/* Rank 1 posts a receive and makes no call until rank 0 knows its message taken: only a thread for progress can have done it. */
static void progress(const mp_comm *comm, const mp_tagged *tagged, int me) {
    static unsigned char out[LONG], in[LONG];
    mp_progress *thread;
    mp_request *request;
    mp_message_status status;
    if (me == 0) {
        fill(out, LONG, 3);
        CHECK(mp_tagged_isend(tagged, out, LONG, 1, 12, &request));
        CHECK(mp_request_wait(request, TIMEOUT, NULL));
        CHECK(mp_request_free(request));
        pthread_mutex_lock(&lock);
        is_sent = 1;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    } else if (me == 1) {
        CHECK(mp_progress_start(comm, &thread));
        CHECK(mp_tagged_irecv(tagged, in, LONG, 0, 12, &request));
        pthread_mutex_lock(&lock);
        while (!is_sent) pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        CHECK(mp_request_wait(request, TIMEOUT, &status));
        CHECK(mp_request_free(request));
        REQUIRE(status.bytes == LONG && memcmp(in, out, LONG) == 0);
        CHECK(mp_progress_stop(thread));
    }
    REFUSED(mp_progress_start(NULL, &thread), MP_ERR_ARGUMENT, "comm");
    REFUSED(mp_progress_start(comm, NULL), MP_ERR_ARGUMENT, "progress");
    REFUSED(mp_progress_stop(NULL), MP_ERR_ARGUMENT, "progress");
}

static void nonsense(const mp_tagged *tagged) {
    int value = 0;
    mp_request *request;
    REFUSED(mp_tagged_send(NULL, &value, 4, 0, 0, TIMEOUT), MP_ERR_ARGUMENT, "tagged");
    REFUSED(mp_tagged_send(tagged, NULL, 4, 0, 0, TIMEOUT), MP_ERR_ARGUMENT, "data");
    REFUSED(mp_tagged_send(tagged, &value, 4, 3, 0, TIMEOUT), MP_ERR_ARGUMENT, "rank 3 does not exist");
    REFUSED(mp_tagged_send(tagged, &value, 4, 0, -1, TIMEOUT), MP_ERR_ARGUMENT, "tag");
    REFUSED(mp_tagged_recv(tagged, &value, 4, -2, 0, TIMEOUT, NULL), MP_ERR_ARGUMENT, "from");
    REFUSED(mp_tagged_recv(tagged, &value, 4, 0, 0, -1.0, NULL), MP_ERR_ARGUMENT, "timeout");
    REFUSED(mp_tagged_irecv(tagged, NULL, 4, 0, 0, &request), MP_ERR_ARGUMENT, "memory");
    REQUIRE(request == NULL);
    REFUSED(mp_request_wait(NULL, TIMEOUT, NULL), MP_ERR_ARGUMENT, "request");
    REFUSED(mp_request_wait_any(NULL, 1, TIMEOUT, NULL, NULL), MP_ERR_ARGUMENT, "which");
}

static void *rank(void *argument) {
    mp_world *world = argument;
    const mp_comm *comm = mp_world_comm(world);
    int me = mp_rank(comm), right = (me + 1) % RANKS, left = (me + RANKS - 1) % RANKS;
    mp_tagged *tagged;
    mp_tagged_options options = {1000, 0, 65536};
    CHECK(mp_tagged_open(comm, NULL, &tagged));
    CHECK(mp_tagged_free(tagged));
    CHECK(mp_tagged_open(comm, &options, &tagged));
    blocking(tagged, me, right, left);
    requests(tagged, me, right, left);
    probes(tagged, me);
    memories(comm, tagged, me);
    progress(comm, tagged, me);
    nonsense(tagged);
    CHECK(mp_tagged_free(tagged));
    CHECK(mp_finish(world));
    printf("rank %d is through\n", me);
    return NULL;
}

int main(void) {
    mp_world *worlds[RANKS];
    pthread_t threads[RANKS];
    CHECK(mp_init_threads(RANKS, worlds));
    for (int number = 0; number < RANKS; number++) {
        REQUIRE(pthread_create(&threads[number], NULL, rank, worlds[number]) == 0);
    }
    for (int number = 0; number < RANKS; number++) pthread_join(threads[number], NULL);
    return 0;
}
