/* Two or more ranks: a ring of messages by the host and on a stream, puts with signals, atomics, a replayed graph, and what
 * the library says of calls that make no sense. Ranks of a launcher, or, with an argument, that many threads. */
#include <mp.h>

#include <pthread.h>
#include <string.h>

#include "check.h"

#define TIMEOUT 20.0
#define COUNT 100

static void raise_flag(void *flag) {
    *(int *)flag += 1;
}

/* A ring of rods of six cells, of which the first and the last are ghosts. */
static void halo(const mp_comm *comm, int right, int left) {
    const mp_neighbour neighbours[3] = {{left, 0, 1}, {-1, 0, 0}, {right, 1, 0}};
    const mp_cells send[3] = {{{1, 0, 0}, {2, 1, 1}}, {{0}, {0}}, {{4, 0, 0}, {5, 1, 1}}};
    const mp_cells receive[3] = {{{0, 0, 0}, {1, 1, 1}}, {{0}, {0}}, {{5, 0, 0}, {6, 1, 1}}};
    mp_field field = {NULL, sizeof(int), 0, 6, 6, send, receive, 0};
    unsigned char handle[2000];
    mp_region *region;
    mp_exchange *exchange;
    mp_stream *stream;
    int *rod, cell;

    CHECK(mp_region_alloc(comm, MP_HOST, 6 * sizeof(int), &region));
    rod = (int *)mp_region_host_address(region);
    for (cell = 1; cell < 5; cell++) rod[cell] = 10 * mp_rank(comm) + cell;
    field.region = region;
    CHECK(mp_exchange_create(comm, MP_HOST, neighbours, 3, &field, 1, &exchange));
    CHECK(mp_stream_create(comm, MP_HOST, &stream));
    CHECK(mp_exchange_start_on_stream(exchange, 0, stream));
    CHECK(mp_exchange_wait_on_stream(exchange, 0, stream));
    CHECK(mp_stream_synchronize(stream, TIMEOUT));
    REQUIRE(rod[0] == 10 * left + 4 && rod[5] == 10 * right + 1 && rod[4] == 10 * mp_rank(comm) + 4);
    REFUSED(mp_exchange_handle(exchange, 0, -1, 1, handle, 56 + 2 * 40), MP_ERR_ARGUMENT, "3 neighbours");
    CHECK(mp_exchange_handle(exchange, 0, -1, 1, handle, 56 + 3 * 40));
    REFUSED(mp_exchange_start_on_stream(exchange, 1, stream), MP_ERR_MISMATCH, "field 1 of 1");
    CHECK(mp_barrier(comm));
    CHECK(mp_stream_free(stream));
    CHECK(mp_exchange_free(exchange));
    CHECK(mp_region_free(region));
}

static void messages(const mp_comm *comm, int right, int left) {
    mp_region *edge, *ghost;
    mp_op *ops[2];
    mp_stream *stream;
    double *out, *in;
    size_t which;
    int complete, step, flag = 0;

    CHECK(mp_region_alloc(comm, MP_HOST, COUNT * sizeof(double), &edge));
    CHECK(mp_region_alloc(comm, MP_HOST, COUNT * sizeof(double), &ghost));
    out = (double *)mp_region_host_address(edge);
    in = (double *)mp_region_host_address(ghost);
    REQUIRE(out != NULL && in != NULL && mp_region_bytes(edge) == COUNT * sizeof(double));
    CHECK(mp_send_prepare(comm, right, edge, 0, COUNT * sizeof(double), 7, &ops[0]));
    CHECK(mp_recv_prepare(comm, left, ghost, 0, COUNT * sizeof(double), 7, &ops[1]));
    CHECK(mp_stream_create(comm, MP_HOST, &stream));
    REQUIRE(mp_stream_cuda(stream) == NULL);
    for (step = 0; step < 10; step++) {
        out[step] = 1000.0 * mp_rank(comm) + step;
        if (step % 2 == 0) {
            CHECK(mp_start_all((const mp_op *const *)ops, 2));
            CHECK(mp_wait_any((const mp_op *const *)ops, 2, TIMEOUT, &which));
            REQUIRE(which < 2);
            CHECK(mp_wait_all((const mp_op *const *)ops, 2, TIMEOUT));
        } else {
            CHECK(mp_start_on_stream(ops[1], stream));
            CHECK(mp_start_on_stream(ops[0], stream));
            CHECK(mp_wait_on_stream(ops[1], stream));
            CHECK(mp_stream_call(stream, raise_flag, &flag));
            CHECK(mp_stream_synchronize(stream, TIMEOUT));
            CHECK(mp_wait(ops[0], TIMEOUT));
        }
        CHECK(mp_test(ops[1], &complete));
        REQUIRE(complete == 1 && in[step] == 1000.0 * left + step);
    }
    REQUIRE(flag == 5);

    REFUSED(mp_start(NULL), MP_ERR_ARGUMENT, "`op`");
    REFUSED(mp_wait_all(NULL, 2, TIMEOUT), MP_ERR_ARGUMENT, "`ops`");
    REFUSED(mp_wait(ops[0], -1.0), MP_ERR_ARGUMENT, "`timeout`");
    REFUSED(mp_wait_any(NULL, 0, TIMEOUT, &which), MP_ERR_ARGUMENT, "no operations");
    CHECK(mp_start(ops[1]));
    REFUSED(mp_start(ops[1]), MP_ERR_STARTED, "still started");
    REFUSED(mp_wait(ops[1], 0.01), MP_ERR_LATE, "not complete");
    CHECK(mp_barrier(comm));
    CHECK(mp_start(ops[0]));
    CHECK(mp_wait_all((const mp_op *const *)ops, 2, TIMEOUT));

    CHECK(mp_stream_free(stream));
    CHECK(mp_op_free(ops[0]));
    CHECK(mp_op_free(ops[1]));
    CHECK(mp_region_free(edge));
    CHECK(mp_region_free(ghost));
}

static void vectors(const mp_comm *comm, int right, int left) {
    mp_region *from, *to;
    mp_piece sent[3], posted[2];
    mp_op *ops[2];
    const char *in;
    size_t i;

    CHECK(mp_region_alloc(comm, MP_HOST, 30, &from));
    CHECK(mp_region_alloc(comm, MP_HOST, 30, &to));
    for (i = 0; i < 3; i++) {
        sent[i].region = from;
        sent[i].offset = 10 * i;
        sent[i].bytes = i == 1 ? 0 : 3 + i;
    }
    posted[0].region = posted[1].region = to;
    posted[0].offset = 20;
    posted[0].bytes = 6;
    posted[1].offset = 0;
    posted[1].bytes = 2;
    CHECK(mp_region_write(from, 0, "abc", 3));
    CHECK(mp_region_write(from, 20, "defgh", 5));
    CHECK(mp_sendv_prepare(comm, right, sent, 3, 9, &ops[0]));
    CHECK(mp_recvv_prepare(comm, left, posted, 2, 9, &ops[1]));
    CHECK(mp_start_all((const mp_op *const *)ops, 2));
    CHECK(mp_wait_all((const mp_op *const *)ops, 2, TIMEOUT));
    in = (const char *)mp_region_host_address(to);
    REQUIRE(memcmp(in + 20, "abcdef", 6) == 0 && memcmp(in, "gh", 2) == 0);
    CHECK(mp_barrier(comm));
    CHECK(mp_op_free(ops[0]));
    CHECK(mp_op_free(ops[1]));
    posted[1].region = NULL;
    REFUSED(mp_recvv_prepare(comm, left, posted, 2, 9, &ops[1]), MP_ERR_ARGUMENT, "`pieces[1].region`");
    sent[2].bytes = 11;
    REFUSED(mp_sendv_prepare(comm, right, sent, 3, 9, &ops[0]), MP_ERR_RANGE, "piece 2");
    CHECK(mp_region_free(from));
    CHECK(mp_region_free(to));
}

static void windows(const mp_comm *comm, int right, int left) {
    mp_region *region, *source;
    mp_window *window;
    mp_stream *stream;
    uint64_t value = 0, before = 0, expected;
    uint64_t *words;
    const int me = mp_rank(comm);
    const uint32_t numbers[2] = {1, 0};
    const uint64_t values[2] = {1, 1};
    size_t which;
    const mp_rows rows = {4, 2, 8, 4}, back = {4, 2, 4, 8};
    const int32_t low = -5;
    int32_t half = 0;

    CHECK(mp_region_alloc(comm, MP_HOST, 64, &region));
    CHECK(mp_region_alloc(comm, MP_HOST, 16, &source));
    CHECK(mp_window_create(comm, region, 2, &window));
    REQUIRE(mp_window_bytes(window, right) == 64);
    words = (uint64_t *)mp_region_host_address(region);
    value = 40 + (uint64_t)me;
    CHECK(mp_region_write(source, 8, &value, sizeof value));
    CHECK(mp_put_signal(window, right, 16, source, 8, 8, 0, 1));
    CHECK(mp_wait_signal(window, 0, MP_GEQ, 1, TIMEOUT));
    CHECK(mp_wait_any_signal(window, numbers, values, 2, MP_EQ, TIMEOUT, &which));
    REQUIRE(which == 1);
    REFUSED(mp_wait_signal(window, 0, MP_LT, 1, 0.02), MP_ERR_LATE, "");
    REFUSED(mp_wait_signal(window, 0, MP_LT, 0, TIMEOUT), MP_ERR_MEMORY, "no value is < 0");
    REFUSED(mp_wait_signal(window, 0, 7, 0, TIMEOUT), MP_ERR_ARGUMENT, "`compare`");
    REQUIRE(words[2] == 40 + (uint64_t)left);
    CHECK(mp_get(window, right, 16, source, 0, 8));
    CHECK(mp_region_read(source, 0, &value, sizeof value));
    REQUIRE(value == 40 + (uint64_t)me);

    /* Started, then waited for; and rows of four bytes, eight apart there. */
    value = 70 + (uint64_t)me;
    CHECK(mp_region_write(source, 8, &value, sizeof value));
    CHECK(mp_put_start(window, right, 48, source, 8, 8));
    CHECK(mp_flush(window, right));
    CHECK(mp_quiet(window, MP_ALL));
    CHECK(mp_get_start(window, right, 48, source, 0, 8));
    CHECK(mp_flush(window, MP_ALL));
    CHECK(mp_region_read(source, 0, &value, sizeof value));
    REQUIRE(value == 70 + (uint64_t)me);
    CHECK(mp_barrier(comm));
    REQUIRE(words[6] == 70 + (uint64_t)left);
    CHECK(mp_barrier(comm));
    CHECK(mp_stream_create(comm, MP_HOST, &stream));
    CHECK(mp_put_rows(window, right, 48, source, 8, &rows, NULL));
    CHECK(mp_put_rows(window, right, 52, source, 8, &rows, stream));
    CHECK(mp_stream_synchronize(stream, TIMEOUT));
    CHECK(mp_get_rows(window, right, 48, source, 0, &back, stream));
    CHECK(mp_stream_synchronize(stream, TIMEOUT));
    CHECK(mp_region_read(source, 0, &value, sizeof value));
    REQUIRE((value & 0xffffffff) == 70 + (uint64_t)me);
    REFUSED(mp_put_rows(window, right, 56, source, 8, &rows, NULL), MP_ERR_RANGE, "");
    REFUSED(mp_put_rows(window, right, 0, source, 8, NULL, NULL), MP_ERR_ARGUMENT, "`rows`");
    CHECK(mp_barrier(comm));
    REQUIRE((words[6] & 0xffffffff) == 70 + (uint64_t)left && words[6] >> 32 == 70 + (uint64_t)left);
    REQUIRE(words[7] == 0);
    value = 40 + (uint64_t)me;
    CHECK(mp_region_write(source, 8, &value, sizeof value));

    CHECK(mp_put_signal_on_stream(window, right, 24, source, 8, 8, 1, 5, stream));
    CHECK(mp_wait_signal_on_stream(window, 1, MP_GT, 4, stream));
    CHECK(mp_stream_synchronize(stream, TIMEOUT));
    REQUIRE(words[3] == 40 + (uint64_t)left);
    CHECK(mp_read_signal(window, 1, &value));
    REQUIRE(value == 5);

    value = 3;
    CHECK(mp_atomic(window, 0, 0, MP_U64, MP_ATOMIC_ADD, &value, NULL, &before));
    CHECK(mp_barrier(comm));
    if (me == 0) {
        REQUIRE(words[0] == 3 * (uint64_t)mp_size(comm));
        value = 9;
        CHECK(mp_atomic(window, 0, 0, MP_U64, MP_ATOMIC_SWAP, &value, NULL, &before));
        REQUIRE(before == 3 * (uint64_t)mp_size(comm));
        value = 11;
        expected = 9;
        CHECK(mp_atomic(window, 0, 0, MP_U64, MP_ATOMIC_COMPARE_SWAP, &value, &expected, &before));
        REQUIRE(before == 9 && words[0] == 11);
        value = 12;
        CHECK(mp_atomic(window, 0, 0, MP_U64, MP_ATOMIC_COMPARE_SWAP, &value, &expected, NULL));
        REQUIRE(words[0] == 11);
        CHECK(mp_atomic(window, 0, 4, MP_I32, MP_ATOMIC_MIN, &low, NULL, &half));
        REQUIRE(half == 0 && words[0] == (11 | (uint64_t)0xfffffffb << 32));
        CHECK(mp_atomic_on_stream(window, 0, 4, MP_I32, MP_ATOMIC_ADD, &low, NULL, source, 4, stream));
        CHECK(mp_atomic_on_stream(window, 0, 0, MP_U32, MP_ATOMIC_OR, &low, NULL, NULL, 0, stream));
        CHECK(mp_stream_synchronize(stream, TIMEOUT));
        CHECK(mp_region_read(source, 4, &half, sizeof half));
        REQUIRE(half == -5 && words[0] == (0xfffffffb | (uint64_t)0xfffffff6 << 32));
    }
    CHECK(mp_signal_add(window, 0, 1, 1));
    CHECK(mp_put_signal_add(window, 0, 40, source, 0, 8, 1, 2));
    CHECK(mp_signal_add_on_stream(window, 0, 1, 3, stream));
    CHECK(mp_stream_synchronize(stream, TIMEOUT));
    if (me == 0) CHECK(mp_wait_signal(window, 1, MP_GEQ, 5 + 6 * (uint64_t)mp_size(comm), TIMEOUT));
    REFUSED(mp_put(window, right, 60, source, 0, 8), MP_ERR_RANGE, "60..68 of 64");
    REFUSED(mp_put(window, 99, 0, source, 0, 8), MP_ERR_ARGUMENT, "`rank`");
    REFUSED(mp_put(window, right, 0, source, 12, 8), MP_ERR_RANGE, "16");
    REFUSED(mp_signal(window, right, 2, 1), MP_ERR_RANGE, "2..3 of 2");
    REFUSED(mp_signal_add(window, right, 2, 1), MP_ERR_RANGE, "2..3 of 2");
    REFUSED(mp_atomic(window, 0, 4, MP_U64, MP_ATOMIC_ADD, &value, NULL, &before), MP_ERR_MEMORY, "atomic");
    REFUSED(mp_atomic(window, 0, 0, MP_U64, MP_ATOMIC_ADD, NULL, NULL, &before), MP_ERR_ARGUMENT, "`value`");
    REFUSED(mp_atomic(window, 0, 0, MP_U64, MP_ATOMIC_COMPARE_SWAP, &value, NULL, &before), MP_ERR_ARGUMENT, "`expected`");
    REFUSED(mp_atomic(window, 0, 0, MP_F64, MP_ATOMIC_XOR, &value, NULL, &before), MP_ERR_MISMATCH, "Xor of an f64");
    REFUSED(mp_atomic(window, 0, 0, 9, MP_ATOMIC_ADD, &value, NULL, &before), MP_ERR_ARGUMENT, "`type`");
    REFUSED(mp_atomic(window, 0, 0, MP_U64, 9, &value, NULL, &before), MP_ERR_ARGUMENT, "`kind`");
    CHECK(mp_barrier(comm));
    CHECK(mp_stream_free(stream));
    CHECK(mp_window_free(window));
    CHECK(mp_region_free(region));
    CHECK(mp_region_free(source));
}

/* Waits of the host and of a stream for words that a stream, the host and the left rank write. */
static void words(const mp_comm *comm, int right) {
    mp_region *region, *source, *part;
    mp_window *window;
    mp_stream *stream;
    uint64_t wide = (uint64_t)1 << 40;

    CHECK(mp_region_alloc(comm, MP_HOST, 64, &region));
    CHECK(mp_region_alloc(comm, MP_HOST, 8, &source));
    CHECK(mp_window_create(comm, region, 0, &window));
    CHECK(mp_stream_create(comm, MP_HOST, &stream));
    /* The stream passes each word only when it is there, and answers. */
    CHECK(mp_wait32_on_stream(region, 4, MP_EQ, 7, stream));
    CHECK(mp_write32_on_stream(region, 8, 1, stream));
    CHECK(mp_wait32_on_stream(region, 4, MP_AND, 8, stream));
    CHECK(mp_write64_on_stream(region, 16, wide, stream));
    CHECK(mp_wait64_on_stream(region, 24, MP_GEQ, wide, stream));
    CHECK(mp_write32_on_stream(region, 8, 2, stream));
    REFUSED(mp_wait32(comm, region, 8, MP_GEQ, 1, 0.02), MP_ERR_LATE, ">= 1");
    CHECK(mp_write32(region, 4, 9));
    REFUSED(mp_wait32(comm, region, 8, MP_EQ, 1, 0.02), MP_ERR_LATE, "== 1");
    CHECK(mp_write32(region, 4, 7));
    CHECK(mp_wait32(comm, region, 8, MP_EQ, 1, TIMEOUT));
    REFUSED(mp_wait64(comm, region, 16, MP_AND, wide, 0.02), MP_ERR_LATE, "& 0x10000000000");
    CHECK(mp_write32(region, 4, 12));
    CHECK(mp_wait64(comm, region, 16, MP_AND, wide | 1, TIMEOUT));
    CHECK(mp_write64(region, 24, wide + 5));
    CHECK(mp_wait32(comm, region, 8, MP_GEQ, 2, TIMEOUT));
    CHECK(mp_stream_synchronize(stream, TIMEOUT));
    /* Another rank writes one. */
    CHECK(mp_region_write(source, 0, &wide, sizeof wide));
    CHECK(mp_put(window, right, 32, source, 0, 8));
    CHECK(mp_wait64(comm, region, 32, MP_EQ, wide, TIMEOUT));

    REFUSED(mp_wait64(comm, region, 60, MP_EQ, 0, TIMEOUT), MP_ERR_RANGE, "64");
    REFUSED(mp_wait64(comm, region, 4, MP_EQ, 0, TIMEOUT), MP_ERR_ARGUMENT, "");
    REFUSED(mp_wait32(comm, region, 0, 7, 0, TIMEOUT), MP_ERR_ARGUMENT, "`compare`");
    CHECK(mp_wait64(comm, region, 32, MP_NE, 1, TIMEOUT));
    REFUSED(mp_wait32(comm, region, 0, MP_AND, 0, TIMEOUT), MP_ERR_MEMORY, "no value is & 0x0");
    REFUSED(mp_wait32_on_stream(region, 0, MP_AND, 0, stream), MP_ERR_MEMORY, "no value is & 0x0");
    REFUSED(mp_wait32_on_stream(region, 0, MP_EQ, 0, NULL), MP_ERR_ARGUMENT, "`stream`");
    REFUSED(mp_write64(NULL, 0, 0), MP_ERR_ARGUMENT, "`region`");
    CHECK(mp_region_part(region, 2, 8, &part));
    REFUSED(mp_write32(part, 0, 0), MP_ERR_ARGUMENT, "");
    CHECK(mp_region_free(part));
    CHECK(mp_barrier(comm));
    CHECK(mp_stream_free(stream));
    CHECK(mp_window_free(window));
    CHECK(mp_region_free(region));
    CHECK(mp_region_free(source));
}

/* Puts and gets that are begun and waited for later, and what is counted of them. */
static void requests(const mp_comm *comm, int right, int left) {
    mp_region *region, *source;
    mp_window *window;
    mp_op *ops[3];
    mp_counters before, after;
    mp_comm *hasty;
    mp_collective *barrier;
    int i, complete = 0, path = -1;
    const int me = mp_rank(comm);
    int values[3];

    CHECK(mp_region_alloc(comm, MP_HOST, 8 * sizeof(int), &region));
    CHECK(mp_region_alloc(comm, MP_HOST, 4 * sizeof(int), &source));
    CHECK(mp_window_create(comm, region, 0, &window));
    CHECK(mp_read_counters(comm, right, &before, sizeof before));
    for (i = 0; i < 3; i++) values[i] = 100 * me + i;
    CHECK(mp_region_write(source, 0, values, sizeof values));
    for (i = 0; i < 3; i++) {
        CHECK(mp_iput(window, right, (uint64_t)i * sizeof(int), source, (size_t)i * sizeof(int), sizeof(int), &ops[i]));
    }
    CHECK(mp_wait_all((const mp_op *const *)ops, 3, TIMEOUT));
    for (i = 0; i < 3; i++) CHECK(mp_op_free(ops[i]));
    CHECK(mp_barrier(comm));
    CHECK(mp_region_read(region, 0, values, sizeof values));
    for (i = 0; i < 3; i++) REQUIRE(values[i] == 100 * left + i);
    CHECK(mp_iget(window, right, sizeof(int), source, 3 * sizeof(int), sizeof(int), &ops[0]));
    while (!complete) CHECK(mp_test(ops[0], &complete));
    CHECK(mp_op_free(ops[0]));
    CHECK(mp_region_read(source, 3 * sizeof(int), values, sizeof(int)));
    REQUIRE(values[0] == 100 * me + 1);
    CHECK(mp_read_counters(comm, right, &after, sizeof after));
    REQUIRE(after.puts == before.puts + 3 && after.put_bytes == before.put_bytes + 3 * sizeof(int));
    REQUIRE(after.gets == before.gets + 1 && after.get_bytes == before.get_bytes + sizeof(int));
    REFUSED(mp_iput(window, right, 30, source, 0, sizeof(int), &ops[0]), MP_ERR_RANGE, "30..34 of 32");
    REQUIRE(ops[0] == NULL);
    REFUSED(mp_iget(window, 99, 0, source, 0, sizeof(int), &ops[0]), MP_ERR_ARGUMENT, "`rank`");
    REFUSED(mp_read_counters(comm, right, &after, 7), MP_ERR_ARGUMENT, "`bytes`");
    REFUSED(mp_read_counters(comm, -1, &after, sizeof after), MP_ERR_ARGUMENT, "`rank`");

    CHECK(mp_path(comm, right, &path));
    REQUIRE(path == MP_PATH_DIRECT);
    REFUSED(mp_path(comm, 99, &path), MP_ERR_ARGUMENT, "`rank`");
    CHECK(mp_comm_with_timeout(comm, 60.0, &hasty));
    REQUIRE(mp_rank(hasty) == me && mp_size(hasty) == mp_size(comm));
    CHECK(mp_barrier(hasty));
    CHECK(mp_comm_free(hasty));
    REFUSED(mp_comm_with_timeout(comm, -1.0, &hasty), MP_ERR_ARGUMENT, "`timeout`");

    CHECK(mp_collective_prepare(comm, MP_HOST, 0, &barrier));
    CHECK(mp_collective_start(barrier, MP_BARRIER, 0, MP_BYTE, 0, NULL, NULL, 0, NULL));
    for (complete = 0; !complete;) CHECK(mp_collective_test(barrier, &complete));
    CHECK(mp_collective_wait(barrier, 0.0));
    CHECK(mp_barrier(comm));
    CHECK(mp_collective_free(barrier));
    CHECK(mp_window_free(window));
    CHECK(mp_region_free(region));
    CHECK(mp_region_free(source));
}

static void graphs(const mp_comm *comm, int right, int left) {
    mp_region *edge, *ghost;
    mp_op *send, *recv, *put, *get, *arrived;
    mp_window *window;
    mp_stream *stream;
    mp_graph *graph;
    mp_step steps[3];
    unsigned char handle[88], window_handle[376];
    int value = 17 + mp_rank(comm), replay;

    CHECK(mp_region_alloc(comm, MP_HOST, sizeof(int), &edge));
    CHECK(mp_region_alloc(comm, MP_HOST, sizeof(int), &ghost));
    CHECK(mp_region_write(edge, 0, &value, sizeof value));
    CHECK(mp_send_prepare(comm, right, edge, 0, sizeof(int), 1, &send));
    CHECK(mp_recv_prepare(comm, left, ghost, 0, sizeof(int), 1, &recv));
    CHECK(mp_stream_create(comm, MP_HOST, &stream));
    steps[0].op = recv;
    steps[0].what = MP_START;
    steps[1].op = send;
    steps[1].what = MP_START;
    steps[2].op = recv;
    steps[2].what = MP_WAIT;
    CHECK(mp_stream_begin_capture(stream));
    CHECK(mp_enqueue(stream, steps, 3));
    CHECK(mp_stream_end_capture(stream, &graph));
    for (replay = 0; replay < 5; replay++) {
        CHECK(mp_stream_launch_graph(stream, graph));
    }
    CHECK(mp_stream_synchronize(stream, TIMEOUT));
    CHECK(mp_region_read(ghost, 0, &value, sizeof value));
    REQUIRE(value == 17 + left);
    CHECK(mp_op_handle(send, handle, sizeof handle));
    REFUSED(mp_op_handle(send, handle, 8), MP_ERR_ARGUMENT, "`bytes`");
    steps[0].op = NULL;
    REFUSED(mp_enqueue(stream, steps, 3), MP_ERR_ARGUMENT, "`steps[0].op`");
    steps[0].op = send;
    steps[0].what = 7;
    REFUSED(mp_enqueue(stream, steps, 1), MP_ERR_ARGUMENT, "`what`");
    CHECK(mp_window_create(comm, ghost, 1, &window));
    CHECK(mp_window_handle(window, window_handle, sizeof window_handle));
    CHECK(mp_put_prepare(window, right, 0, edge, 0, sizeof(int), 0, &put));
    CHECK(mp_signal_wait_prepare(window, 0, &arrived));
    value = 170 + mp_rank(comm);
    CHECK(mp_region_write(edge, 0, &value, sizeof value));
    steps[0].op = put;
    steps[0].what = MP_START;
    steps[1].op = arrived;
    steps[1].what = MP_WAIT;
    CHECK(mp_enqueue(stream, steps, 2));
    CHECK(mp_stream_synchronize(stream, TIMEOUT));
    CHECK(mp_region_read(ghost, 0, &value, sizeof value));
    REQUIRE(value == 170 + left);
    CHECK(mp_op_handle(put, handle, sizeof handle));
    CHECK(mp_barrier(comm));
    value = 1;
    CHECK(mp_region_write(edge, 0, &value, sizeof value));
    CHECK(mp_get_prepare(window, right, 0, edge, 0, sizeof(int), &get));
    CHECK(mp_start(get));
    CHECK(mp_wait(get, TIMEOUT));
    CHECK(mp_region_read(edge, 0, &value, sizeof value));
    REQUIRE(value == 170 + mp_rank(comm));
    CHECK(mp_op_handle(get, handle, sizeof handle));
    CHECK(mp_op_free(get));
    steps[1].what = -1;
    REFUSED(mp_enqueue(stream, steps, 2), MP_ERR_ARGUMENT, "`what`");
    CHECK(mp_barrier(comm));
    CHECK(mp_op_free(put));
    CHECK(mp_op_free(arrived));
    REFUSED(mp_put_prepare(window, right, 1, edge, 0, sizeof(int), 0, &put), MP_ERR_RANGE, "");
    REFUSED(mp_put_prepare(window, right, 0, edge, 0, sizeof(int), -2, &put), MP_ERR_ARGUMENT, "`signal`");
    REFUSED(mp_signal_wait_prepare(window, 1, &arrived), MP_ERR_RANGE, "");
    CHECK(mp_barrier(comm));
    CHECK(mp_window_free(window));
    CHECK(mp_graph_free(graph));
    CHECK(mp_stream_free(stream));
    CHECK(mp_op_free(send));
    CHECK(mp_op_free(recv));
    CHECK(mp_region_free(edge));
    CHECK(mp_region_free(ghost));
}

static void refusals(const mp_comm *comm) {
    mp_region *region = (mp_region *)&region, *other;
    mp_op *op;
    mp_stream *stream;
    mp_collective *collective;
    double value = 1.0;
    static char mine[100];

    REFUSED(mp_region_alloc(NULL, MP_HOST, 8, &region), MP_ERR_ARGUMENT, "`comm`");
    REQUIRE(region == NULL);
    REFUSED(mp_region_alloc(comm, -2, 8, &region), MP_ERR_ARGUMENT, "`device`");
    REFUSED(mp_region_alloc(comm, MP_HOST, 8, NULL), MP_ERR_ARGUMENT, "`region`");
    REFUSED(mp_region_alloc(comm, MP_HOST, (size_t)-1, &region), MP_ERR_MEMORY, "region");
    REFUSED(mp_region_register_host(MP_HOST, NULL, 8, &region), MP_ERR_ARGUMENT, "`address`");
    REFUSED(mp_region_register_cuda(MP_HOST, mine, 8, &region), MP_ERR_MEMORY, "CUDA");
    REFUSED(mp_stream_adopt(comm, MP_HOST, mine, &stream), MP_ERR_MEMORY, "adopt");
    REFUSED(mp_all_reduce(comm, MP_F64, 9, &value, 1), MP_ERR_ARGUMENT, "`op`");
    REFUSED(mp_all_reduce(comm, 8, MP_SUM, &value, 1), MP_ERR_ARGUMENT, "`type`: 8, expected MP_F64");
    REFUSED(mp_all_reduce(comm, MP_F64, MP_SUM, (char *)&value + 1, 1), MP_ERR_ARGUMENT, "`values`");
    REFUSED(mp_all_reduce(comm, MP_F64, MP_SUM, NULL, 1), MP_ERR_ARGUMENT, "`values`: is NULL");
    REFUSED(mp_collective_prepare(comm, -2, 1, &collective), MP_ERR_ARGUMENT, "`device`");
    REQUIRE(collective == NULL);
    REFUSED(mp_abort(NULL, "x"), MP_ERR_ARGUMENT, "`world`");
    REFUSED(mp_finish(NULL), MP_ERR_ARGUMENT, "`world`");
    REFUSED(mp_comm_free(NULL), MP_ERR_ARGUMENT, "`comm`");
    REQUIRE(mp_rank(NULL) == -1 && strstr(mp_last_error(), "mp_rank: argument `comm`") != NULL);
    REQUIRE(mp_world_comm(NULL) == NULL && mp_region_host_address(NULL) == NULL);
    REQUIRE(strcmp(mp_status_name(77), "MP_ERR_UNKNOWN") == 0);

    CHECK(mp_region_register_host(MP_HOST, mine, sizeof mine, &region));
    REQUIRE(mp_region_host_address(region) == (void *)mine);
    CHECK(mp_region_part(region, 10, 20, &other));
    REQUIRE(mp_region_host_address(other) == (void *)(mine + 10) && mp_region_bytes(other) == 20);
    REFUSED(mp_region_part(region, 90, 20, &other), MP_ERR_RANGE, "100");
    REFUSED(mp_send_prepare(comm, mp_size(comm), region, 0, 1, 0, &op), MP_ERR_ARGUMENT, "`peer`");
    REFUSED(mp_send_prepare(comm, -3, region, 0, 1, 0, &op), MP_ERR_ARGUMENT, "`peer`");
    REFUSED(mp_send_prepare(comm, 0, region, 99, 2, 0, &op), MP_ERR_RANGE, "100");
    CHECK(mp_region_free(region));
}

/* Every operation on values of a type, by rank 0, by the host and on a stream. Rank r gives r - 1 and 3 * r: of a type without sign
 * rank 0 gives the largest that there is, and sums wrap around. */
#define ALL_REDUCES(type, of)                                                                                          \
    do {                                                                                                               \
        const int reduces[3] = {MP_SUM, MP_MIN, MP_MAX};                                                               \
        mp_collective *prepared;                                                                                       \
        mp_region *region, *apart;                                                                                     \
        mp_stream *stream;                                                                                             \
        type *shared, given[2], combined[2] = {0, 0}, value;                                                             \
        int which, rank, i, way;                                                                                       \
        CHECK(mp_collective_prepare(comm, MP_HOST, 2 * sizeof(type), &prepared));                                      \
        CHECK(mp_region_alloc(comm, MP_HOST, 2 * sizeof(type), &region));                                              \
        CHECK(mp_stream_create(comm, MP_HOST, &stream));                                                               \
        shared = (type *)mp_region_host_address(region);                                                               \
        given[0] = (type)(mp_rank(comm) - 1);                                                                          \
        given[1] = (type)(3 * mp_rank(comm));                                                                          \
        for (which = 0; which < 3; which++) {                                                                          \
            for (rank = 0; rank < mp_size(comm); rank++) {                                                             \
                for (i = 0; i < 2; i++) {                                                                              \
                    value = i == 0 ? (type)(rank - 1) : (type)(3 * rank);                                              \
                    if (rank == 0) combined[i] = value;                                                                \
                    else if (reduces[which] == MP_SUM) combined[i] = (type)(combined[i] + value);                      \
                    else if ((reduces[which] == MP_MIN) == (value < combined[i])) combined[i] = value;                 \
                }                                                                                                      \
            }                                                                                                          \
            for (way = 0; way < 3; way++) {                                                                            \
                memcpy(shared, given, sizeof given);                                                                   \
                if (way == 0) CHECK(mp_all_reduce(comm, of, reduces[which], shared, 2));                               \
                if (way == 1) CHECK(mp_collective_start(prepared, MP_ALL_REDUCE, 0, of, reduces[which], region, region, 2, NULL));   \
                if (way == 1) CHECK(mp_collective_wait(prepared, TIMEOUT));                                            \
                if (way == 2) CHECK(mp_collective_start(prepared, MP_ALL_REDUCE, 0, of, reduces[which], region, region, 2, stream)); \
                if (way == 2) CHECK(mp_stream_synchronize(stream, TIMEOUT));                                           \
                REQUIRE(shared[0] == combined[0] && shared[1] == combined[1]);                                         \
            }                                                                                                          \
        }                                                                                                              \
        REFUSED(mp_collective_start(prepared, MP_ALL_REDUCE, 0, of, MP_SUM, region, region, 3, NULL), MP_ERR_RANGE, ""); \
        CHECK(mp_region_part(region, 1, sizeof(type), &apart));                                                        \
        REFUSED(mp_collective_start(prepared, MP_ALL_REDUCE, 0, of, MP_SUM, apart, apart, 1, NULL), MP_ERR_ARGUMENT,   \
                "a multiple of");                                                                                      \
        CHECK(mp_region_free(apart));                                                                                  \
        CHECK(mp_collective_free(prepared));                                                                           \
        CHECK(mp_stream_free(stream));                                                                                 \
        CHECK(mp_region_free(region));                                                                                 \
    } while (0)

static void all_reduces(const mp_comm *comm) {
    ALL_REDUCES(double, MP_F64);
    ALL_REDUCES(float, MP_F32);
    ALL_REDUCES(uint64_t, MP_U64);
    ALL_REDUCES(int64_t, MP_I64);
    ALL_REDUCES(uint32_t, MP_U32);
    ALL_REDUCES(int32_t, MP_I32);
}

/* Each kind once, the odd ones on a stream: block b of rank r is 100 r + b. */
static void every_kind(const mp_comm *comm) {
    const int me = mp_rank(comm), size = mp_size(comm), root = size - 1, first = 100 * me;
    int kind, rank, lower = 0;
    int32_t *given, *taken;
    size_t at[64], back[64], one[64];
    mp_collective *all;
    mp_region *from, *to;
    mp_stream *stream;

    REQUIRE(size <= 64);
    CHECK(mp_collective_prepare(comm, MP_HOST, sizeof(int32_t), &all));
    CHECK(mp_region_alloc(comm, MP_HOST, (size_t)size * sizeof(int32_t), &from));
    CHECK(mp_region_alloc(comm, MP_HOST, (size_t)size * sizeof(int32_t), &to));
    CHECK(mp_stream_create(comm, MP_HOST, &stream));
    given = (int32_t *)mp_region_host_address(from);
    taken = (int32_t *)mp_region_host_address(to);
    for (rank = 0; rank < size; rank++) {
        given[rank] = first + rank;
        at[rank] = (size_t)rank;
        back[rank] = (size_t)(size - 1 - rank);
        one[rank] = 1;
        if (rank < me) lower += 100 * rank;
    }
    for (kind = MP_BROADCAST; kind <= MP_SCAN + 1; kind++) {
        const mp_stream *where = kind % 2 == 1 ? stream : NULL;
        const int all_of_zero = 50 * size * (size - 1);
        memset(taken, 0, (size_t)size * sizeof(int32_t));
        if (kind == MP_BROADCAST) taken[0] = given[0];
        if (kind > MP_SCAN)
            CHECK(mp_all_to_all_v_start(all, MP_I32, from, at, one, to, back, one, where));
        else
            CHECK(mp_collective_start(all, kind, root, MP_I32, MP_SUM, from, to, 1, where));
        if (where == NULL) CHECK(mp_collective_wait(all, TIMEOUT));
        if (where != NULL) CHECK(mp_stream_synchronize(stream, TIMEOUT));
        for (rank = 0; rank < size; rank++) {
            int expected = 0;
            if (kind == MP_BROADCAST && rank == 0) expected = 100 * root;
            if (kind == MP_ALL_GATHER || (kind == MP_GATHER && me == root)) expected = 100 * rank;
            if (kind == MP_SCATTER && rank == 0) expected = 100 * root + me;
            if (kind == MP_ALL_TO_ALL) expected = 100 * rank + me;
            if (kind == MP_REDUCE && rank == 0 && me == root) expected = all_of_zero;
            if (kind == MP_REDUCE_SCATTER && rank == 0) expected = all_of_zero + size * me;
            if (kind == MP_ALL_REDUCE && rank == 0) expected = all_of_zero;
            if (kind == MP_SCAN && rank == 0) expected = lower + first;
            if (kind > MP_SCAN) expected = 100 * (size - 1 - rank) + me;
            REQUIRE(taken[rank] == expected);
        }
    }
    CHECK(mp_collective_free(all));
    CHECK(mp_stream_free(stream));
    CHECK(mp_region_free(from));
    CHECK(mp_region_free(to));
}

static void collectives(const mp_comm *comm) {
    const int me = mp_rank(comm), size = mp_size(comm);
    int *all = (int *)calloc((size_t)size, sizeof(int));
    int rank, mine = me * me;
    double values[2];
    uint64_t largest = (uint64_t)me;
    mp_collective *barrier, *sum;
    mp_comm *part;
    mp_region *region;
    mp_stream *stream;
    char handle[200];
    double *both;

    REQUIRE(all != NULL);
    CHECK(mp_all_gather(comm, &mine, sizeof mine, all));
    for (rank = 0; rank < size; rank++) {
        REQUIRE(all[rank] == rank * rank);
    }
    mine = me;
    CHECK(mp_broadcast(comm, size - 1, &mine, sizeof mine));
    REQUIRE(mine == size - 1);
    values[0] = me;
    values[1] = 0.5;
    CHECK(mp_all_reduce(comm, MP_F64, MP_SUM, values, 2));
    REQUIRE(values[0] == size * (size - 1) / 2 && values[1] == 0.5 * size);
    CHECK(mp_all_reduce(comm, MP_U64, MP_MAX, &largest, 1));
    REQUIRE(largest == (uint64_t)size - 1);
    CHECK(mp_collective_prepare(comm, MP_HOST, 0, &barrier));
    all_reduces(comm);
    every_kind(comm);
    CHECK(mp_collective_prepare(comm, MP_HOST, 2 * sizeof(double), &sum));
    CHECK(mp_region_alloc(comm, MP_HOST, 2 * sizeof(double), &region));
    CHECK(mp_stream_create(comm, MP_HOST, &stream));
    both = (double *)mp_region_host_address(region);
    both[0] = me;
    both[1] = 0.5;
    /* On a stream behind a barrier, then by the host. */
    CHECK(mp_collective_start(barrier, MP_BARRIER, 0, MP_BYTE, 0, NULL, NULL, 0, stream));
    CHECK(mp_collective_start(sum, MP_ALL_REDUCE, 0, MP_F64, MP_SUM, region, region, 2, stream));
    CHECK(mp_stream_synchronize(stream, TIMEOUT));
    REQUIRE(both[0] == size * (size - 1) / 2 && both[1] == 0.5 * size);
    CHECK(mp_collective_start(sum, MP_ALL_REDUCE, 0, MP_F64, MP_MAX, region, region, 1, NULL));
    REFUSED(mp_collective_start(sum, MP_ALL_REDUCE, 0, MP_F64, MP_MAX, region, region, 1, NULL), MP_ERR_STARTED, "collective");
    CHECK(mp_collective_wait(sum, TIMEOUT));
    REQUIRE(both[1] == 0.5 * size);
    CHECK(mp_collective_start(barrier, MP_BARRIER, 0, MP_BYTE, 0, NULL, NULL, 0, NULL));
    CHECK(mp_collective_wait(barrier, TIMEOUT));
    REFUSED(mp_collective_start(sum, 10, 0, MP_F64, 0, region, region, 1, NULL), MP_ERR_ARGUMENT, "expected MP_BARRIER to MP_SCAN");
    REFUSED(mp_collective_start(sum, MP_SCAN, 0, MP_BYTE, 0, region, region, 1, NULL), MP_ERR_ARGUMENT, "moved and not combined");
    REFUSED(mp_collective_start(sum, MP_SCAN, 0, MP_F64, MP_BIT_OR, region, region, 1, NULL), MP_ERR_MISMATCH, "`or` is of integers");
    REFUSED(mp_collective_start(sum, MP_SCAN, 0, MP_F64, 7, region, region, 1, NULL), MP_ERR_ARGUMENT, "MP_SUM to MP_BIT_XOR");
    REFUSED(mp_collective_start(sum, MP_REDUCE, size, MP_F64, 0, region, region, 1, NULL), MP_ERR_ARGUMENT, "does not exist");
    CHECK(mp_collective_handle(barrier, handle, sizeof handle));
    REFUSED(mp_collective_handle(barrier, handle, 8), MP_ERR_ARGUMENT, "200 bytes");
    CHECK(mp_collective_free(barrier));
    CHECK(mp_collective_free(sum));
    CHECK(mp_stream_free(stream));
    CHECK(mp_region_free(region));
    CHECK(mp_comm_split(comm, me == 0 ? -1 : 4, -me, &part));
    REQUIRE((part == NULL) == (me == 0));
    if (part != NULL) {
        REQUIRE(mp_size(part) == size - 1 && mp_rank(part) == size - 1 - me);
        CHECK(mp_comm_free(part));
    }
    const int pair[2] = {me ^ 1, me}, twice[2] = {me, me};
    if ((me ^ 1) < size) {
        CHECK(mp_comm_team(comm, pair, 2, &part));
        REQUIRE(mp_size(part) == 2 && mp_rank(part) == 1);
        CHECK(mp_comm_free(part));
    }
    REFUSED(mp_comm_team(comm, twice, 2, &part), MP_ERR_MISMATCH, "is named twice");
    REFUSED(mp_comm_team(comm, NULL, 2, &part), MP_ERR_ARGUMENT, "ranks");
    CHECK(mp_comm_node_local(comm, &part));
    REQUIRE(mp_size(part) == size);
    CHECK(mp_comm_free(part));
    free(all);
}

static void *rank(void *argument) {
    mp_world *world = (mp_world *)argument;
    const mp_comm *comm = mp_world_comm(world);
    const int me = mp_rank(comm), size = mp_size(comm);
    const int right = (me + 1) % size, left = (me + size - 1) % size;

    REQUIRE(mp_version_number() == MP_VERSION && MP_VERSION < MP_MAKE_VERSION(MP_VERSION_MAJOR, MP_VERSION_MINOR + 1, 0));
    REQUIRE(me >= 0 && size >= 2 && mp_local_rank(world) == me && mp_local_size(world) == size);
    REQUIRE(mp_assigned_gpu(world) == MP_HOST);
    CHECK(mp_check(world));
    collectives(comm);
    messages(comm, right, left);
    halo(comm, right, left);
    vectors(comm, right, left);
    windows(comm, right, left);
    words(comm, right);
    requests(comm, right, left);
    graphs(comm, right, left);
    refusals(comm);
    CHECK(mp_finish(world));
    printf("rank %d of %d is through\n", me, size);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        mp_world *world;
        CHECK(mp_init(&world));
        rank(world);
    } else {
        mp_world *worlds[8];
        pthread_t threads[8];
        const int ranks = atoi(argv[1]);
        int i;
        REQUIRE(ranks >= 2 && ranks <= 8);
        CHECK(mp_init_threads(ranks, worlds));
        for (i = 0; i < ranks; i++) {
            REQUIRE(pthread_create(&threads[i], NULL, rank, worlds[i]) == 0);
        }
        for (i = 0; i < ranks; i++) {
            REQUIRE(pthread_join(threads[i], NULL) == 0);
        }
    }
    return 0;
}
