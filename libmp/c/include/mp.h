/*
 * libmp for C and C++: messages, puts and signals between ranks, which the host, a CUDA stream or a kernel starts and
 * completes. Kernels include mp/mp.cuh and take the handles that mp_op_handle, mp_window_handle, mp_collective_handle and
 * mp_exchange_handle give.
 *
 * Every function that returns mp_status returns MP_OK or why it failed; mp_last_error() is the text of the calling thread's
 * last failure. A NULL pointer where none is allowed and a value that makes no sense are MP_ERR_ARGUMENT, and the text names
 * the argument. No function ends the process and none waits without an end: calls of the control plane give up after
 * MP_TIMEOUT seconds (environment), others after the `timeout` they are given, in seconds.
 *
 * Everything may be called from any thread. Handles are the caller's, who gives each back once, with mp_*_free; a function
 * that fails leaves NULL where it would have put a handle. Free operations when they are complete, streams when they are
 * idle, and finish the world last.
 *
 * tools/install-c installs this header, those of kernels, and the library: -lmp_c, `pkg-config libmp`, or
 * find_package(libmp) of CMake with the targets libmp::libmp, libmp::static and libmp::cuda.
 */
#ifndef MP_H
#define MP_H

#include <stddef.h>
#include <stdint.h>

/* Of this header; mp_version_number() is that of the library. Before 1.0 they fit if major and minor number are equal. */
#define MP_VERSION_MAJOR 0
#define MP_VERSION_MINOR 1
#define MP_VERSION_PATCH 0
/* A version as a number to compare with: each part is less than 1000. */
#define MP_MAKE_VERSION(major, minor, patch) ((major) * 1000000 + (minor) * 1000 + (patch))
#define MP_VERSION MP_MAKE_VERSION(MP_VERSION_MAJOR, MP_VERSION_MINOR, MP_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Failures ---- */

typedef enum mp_status {
    MP_OK = 0,
    MP_ERR_ARGUMENT = 1,    /* an argument is NULL or makes no sense */
    MP_ERR_ENVIRONMENT = 2, /* an environment variable, or the launcher */
    MP_ERR_START = 3,       /* the ranks did not find each other, or do not fit together */
    MP_ERR_PEER_LOST = 4,   /* a rank died, hangs or left: the world is over */
    MP_ERR_ABORTED = 5,     /* a rank aborted the world */
    MP_ERR_TIMEOUT = 6,     /* a collective did not complete in time: the world is over */
    MP_ERR_LATE = 7,        /* a wait did not complete in time; the world goes on, and the operation stays started */
    MP_ERR_MISMATCH = 8,    /* the ranks' calls do not fit together */
    MP_ERR_NO_PATH = 9,     /* no path leads to that rank, or the NIC on it refused or failed */
    MP_ERR_MEMORY = 10,     /* memory, a stream or a device refused */
    MP_ERR_TRUNCATED = 11,  /* the message is longer than the buffer posted for it; nothing was sent */
    MP_ERR_STARTED = 12,    /* the operation is started and has not been waited for */
    MP_ERR_RANGE = 13,      /* outside of a region, a window or its signals */
    MP_ERR_LIMIT = 14,      /* too many operations, or too large a blob */
    MP_ERR_FINISHED = 15,   /* the world is finished */
    MP_ERR_PROTOCOL = 16,   /* the control plane broke its protocol: the world is over */
    MP_ERR_UNSUPPORTED = 17, /* this build cannot do it */
    MP_ERR_IO = 18,         /* the operating system refused something */
    MP_ERR_INTERNAL = 19    /* a defect of the library */
} mp_status;

/* The text of this thread's last failure, with operation, peer and cause; "" before the first. Valid until the next one. */
const char *mp_last_error(void);

/* "MP_ERR_LATE". */
const char *mp_status_name(int status);

/* The version of the library: "0.1.0", and as MP_MAKE_VERSION makes it. */
const char *mp_version(void);
int mp_version_number(void);

/* ---- Worlds ---- */

/* The ranks that were started together. */
typedef struct mp_world mp_world;
/* A group of them. */
typedef struct mp_comm mp_comm;

/* Starts a world with the ranks that mprun, mpirun, srun or torchrun started, or alone. Waits for all of them, at most
 * MP_INIT_TIMEOUT seconds. */
mp_status mp_init(mp_world **world);
/* A world whose ranks are threads of this process: worlds[i] is rank i's, to be used by its thread. */
mp_status mp_init_threads(int ranks, mp_world **worlds);
/* Ends the world in good order: waits until every rank has called it. The handle is gone in any case. */
mp_status mp_finish(mp_world *world);
/* Ends the world for all ranks. The handle stays. */
mp_status mp_abort(const mp_world *world, const char *reason);
/* Whether the world goes on: MP_OK, or what ended it. Cheap. */
mp_status mp_check(const mp_world *world);

/* The communicator of all ranks: the world's, not to be freed. */
const mp_comm *mp_world_comm(const mp_world *world);
/* This rank's number on its host, and how many ranks are there; -1 for NULL. */
int mp_local_rank(const mp_world *world);
int mp_local_size(const mp_world *world);
/* The GPU that the launcher chose for this rank; MP_HOST if it chose none. */
int mp_assigned_gpu(const mp_world *world);

/* -1 for NULL. */
int mp_rank(const mp_comm *comm);
int mp_size(const mp_comm *comm);

/* A communicator of the ranks with the same colour, ordered by key. A collective call; a negative colour gets NULL. */
mp_status mp_comm_split(const mp_comm *comm, int64_t color, int64_t key, mp_comm **split);
/* A communicator of `count` ranks of `comm`, in this order. Each of them calls it, by itself and without a message, the others do not;
 * members that make several teams of the same ranks make them in the same order. Members that name different ranks find out
 * with their first collective, at its deadline. */
mp_status mp_comm_team(const mp_comm *comm, const int *ranks, int count, mp_comm **team);
/* The communicator of the ranks on this rank's host. A collective call. */
mp_status mp_comm_node_local(const mp_comm *comm, mp_comm **local);
/* The same communicator whose calls of the control plane, waits for room and prepared operations give up after `timeout` seconds. */
mp_status mp_comm_with_timeout(const mp_comm *comm, double timeout, mp_comm **same);
mp_status mp_comm_free(mp_comm *comm);

/* How bytes go between two ranks. */
typedef enum mp_path_kind {
    MP_PATH_DIRECT = 0,            /* the other's memory is mapped */
    MP_PATH_NIC_SHARED_MEMORY = 1, /* queue pairs of the software NIC, over shared memory of the host */
    MP_PATH_NIC_TCP = 2,           /* queue pairs of the software NIC, over TCP */
    MP_PATH_NIC_VERBS = 3          /* queue pairs of the software NIC, over RDMA devices */
} mp_path_kind;
/* *path becomes an mp_path_kind. MP_ERR_NO_PATH if there is none. */
mp_status mp_path(const mp_comm *comm, int rank, int *path);

/* What this rank has done with another so far, wherever it was enqueued; what kernels and replayed graphs start is not counted. Bytes
 * of receives are those of their buffers. */
typedef struct mp_counters {
    uint64_t sends, send_bytes;
    uint64_t recvs, recv_bytes;
    uint64_t puts, put_bytes;
    uint64_t gets, get_bytes;
    uint64_t signals;
    uint64_t atomics;
    uint64_t waits;   /* times that the host had to wait for an operation, or made a stream wait */
    uint64_t retries; /* times that a started operation was tried in vain */
} mp_counters;
/* `bytes` is sizeof(mp_counters): later versions may add fields at the end. */
mp_status mp_read_counters(const mp_comm *comm, int rank, mp_counters *counters, size_t bytes);

/* ---- Collectives of the host: for set-up and convergence tests ---- */

/* The type of the values of collectives; the numbers are those of mp::Element of mp/layout.cuh. Numbers of 16 bits are combined as
 * float, and rounded at each step. */
typedef enum mp_type {
    MP_F64 = 0, /* double */
    MP_F32 = 1, /* float */
    MP_U64 = 2, /* uint64_t */
    MP_I64 = 3, /* int64_t */
    MP_U32 = 4, /* uint32_t */
    MP_I32 = 5, /* int32_t */
    MP_F16 = 6, /* _Float16, __half */
    MP_BF16 = 7, /* __nv_bfloat16 */
    MP_BYTE = 8 /* what is moved and not combined, by prepared collectives */
} mp_type;
/* How they are combined, in rank order. Sums and products of integers are modulo 2 to the power of their bits. Of floating-point values
 * a NaN is both smallest and largest, and -0 is smaller than +0. The last three are of integers, bit by bit. */
typedef enum mp_reduce {
    MP_SUM = 0,
    MP_MIN = 1,
    MP_MAX = 2,
    MP_PROD = 3,
    MP_BIT_AND = 4,
    MP_BIT_OR = 5,
    MP_BIT_XOR = 6
} mp_reduce;

mp_status mp_barrier(const mp_comm *comm);
/* `count` bytes of `root` for everyone. */
mp_status mp_broadcast(const mp_comm *comm, int root, void *bytes, size_t count);
/* `count` bytes of every rank, into count * size bytes at `all`, in rank order. */
mp_status mp_all_gather(const mp_comm *comm, const void *mine, size_t count, void *all);
/* Combines `count` values of an mp_type by an mp_reduce, element by element, in place; every rank gets the same bits. All ranks
 * name the same type, operation and count. */
mp_status mp_all_reduce(const mp_comm *comm, int type, int op, void *values, size_t count);

/* ---- Memory ---- */

/* Bytes for communication. While an operation on them is started they are the operation's: what a send reads must not be
 * written, what a receive writes must be neither read nor written, until it is complete. */
typedef struct mp_region mp_region;

/* Where a device is meant: the host, or the number of a GPU as the CUDA driver counts. */
#define MP_HOST (-1)

/* Zeroed memory of a GPU, or host memory that the other ranks of the host can map. */
mp_status mp_region_alloc(const mp_comm *comm, int device, size_t bytes, mp_region **region);
/* Zeroed host memory that the device reaches. */
mp_status mp_region_alloc_pinned(int device, size_t bytes, mp_region **region);
/* Host memory of the caller, which stays valid until the region and the operations on it are freed and the device's streams
 * have been idle once. A message from a rank in another process comes by way of memory that both share. */
mp_status mp_region_register_host(int device, void *address, size_t bytes, mp_region **region);
/* Device memory of the caller, from cudaMalloc or cuMemAlloc; as for mp_region_register_host. */
mp_status mp_region_register_cuda(int device, void *address, size_t bytes, mp_region **region);
/* Bytes [offset, offset + bytes) of a region, as a region that shares its memory. */
mp_status mp_region_part(const mp_region *region, size_t offset, size_t bytes, mp_region **part);
/* Copies now, in order with nothing: for set-up and tests. */
mp_status mp_region_write(const mp_region *region, size_t offset, const void *from, size_t bytes);
mp_status mp_region_read(const mp_region *region, size_t offset, void *to, size_t bytes);
mp_status mp_region_free(mp_region *region);
/* NULL for memory that the CPU does not reach. */
void *mp_region_host_address(const mp_region *region);
/* 0 for memory that kernels of its device do not reach. */
uint64_t mp_region_device_address(const mp_region *region);
size_t mp_region_bytes(const mp_region *region);

/* ---- Streams ---- */

/* A CUDA stream, or a host stream: an ordered thread with the same operations. */
typedef struct mp_stream mp_stream;
/* Captured operations, to be replayed in one piece. */
typedef struct mp_graph mp_graph;

/* Its waits end when the world does; mp_stream_synchronize then says so. */
mp_status mp_stream_create(const mp_comm *comm, int device, mp_stream **stream);
/* The caller's CUstream or cudaStream_t (not the default stream). It is destroyed by the caller, after mp_stream_free;
 * captures of it are begun with mp_stream_begin_capture. */
mp_status mp_stream_adopt(const mp_comm *comm, int device, void *custream, mp_stream **stream);
/* Waits until everything on the stream has run and all of it went well; helps messages of this rank meanwhile. */
mp_status mp_stream_synchronize(const mp_stream *stream, double timeout);
/* Calls call(argument) when the stream gets there, on another thread; it must not call CUDA, nor leave by an exception. */
mp_status mp_stream_call(const mp_stream *stream, void (*call)(void *), void *argument);
mp_status mp_stream_begin_capture(const mp_stream *stream);
mp_status mp_stream_end_capture(const mp_stream *stream, mp_graph **graph);
mp_status mp_stream_launch_graph(const mp_stream *stream, const mp_graph *graph);
mp_status mp_graph_free(mp_graph *graph);
mp_status mp_stream_free(mp_stream *stream);
/* Its CUstream; NULL for a host stream. */
void *mp_stream_cuda(const mp_stream *stream);

/* Signals for kernels whose blocks meet (mp/meeting.cuh): of cooperative launches of `blocks` blocks each, which follow one another on
 * this stream. A meeting fails when the world ends, or when a block has not come after `timeout` seconds: mp_stream_synchronize
 * reports it from then on, and the signals serve no more launches. */
typedef struct mp_block_signals mp_block_signals;
mp_status mp_block_signals_create(const mp_stream *stream, size_t blocks, double timeout, mp_block_signals **signals);
/* Copies the mp::BlockSignals of mp/layout.cuh, whose size is `bytes`, to `handle`. Valid while the signals live. */
mp_status mp_block_signals_handle(const mp_block_signals *signals, void *handle, size_t bytes);
/* When the last launch that uses them has run, in a graph the last replay. */
mp_status mp_block_signals_free(mp_block_signals *signals);

/* ---- Words ---- */

/* What a word must be for a wait to be over: (word - value) >= 0 as a signed number, so that counters may run through zero; equal;
 * (word & value) != 0; not equal; larger, less, and less or equal, without sign. A stream of a GPU waits in the last four ways for
 * words of 64 bits only. Whoever waits looks again and again: what is waited for should stay until somebody who has waited changes
 * it. When the world ends, a stream's wait is ended by making the word what was waited for. */
typedef enum mp_compare {
    MP_GEQ = 0,
    MP_EQ = 1,
    MP_AND = 2,
    MP_NE = 3,
    MP_GT = 4,
    MP_LT = 5,
    MP_LE = 6
} mp_compare;

/* On the word of 32 or 64 bits at byte `offset` of any region, a multiple of its size, whoever writes it: a stream, a kernel, a rank
 * by mp_put or mp_swap, the CPU. Seeing a value is an acquire, writing it a release, at system scope. The CPU does not reach memory
 * of a GPU (MP_ERR_MEMORY): use a stream, or a region of mp_region_alloc_pinned. `compare` is an mp_compare. */
mp_status mp_wait32(const mp_comm *comm, const mp_region *region, size_t offset, int compare, uint32_t value,
                    double timeout);
mp_status mp_wait64(const mp_comm *comm, const mp_region *region, size_t offset, int compare, uint64_t value,
                    double timeout);
mp_status mp_write32(const mp_region *region, size_t offset, uint32_t value);
mp_status mp_write64(const mp_region *region, size_t offset, uint64_t value);
/* The same when the stream gets there: memory operations of the driver, which captures take. */
mp_status mp_wait32_on_stream(const mp_region *region, size_t offset, int compare, uint32_t value,
                              const mp_stream *stream);
mp_status mp_wait64_on_stream(const mp_region *region, size_t offset, int compare, uint64_t value,
                              const mp_stream *stream);
mp_status mp_write32_on_stream(const mp_region *region, size_t offset, uint32_t value, const mp_stream *stream);
mp_status mp_write64_on_stream(const mp_region *region, size_t offset, uint64_t value, const mp_stream *stream);

/* ---- Messages ---- */

/* A prepared operation, which can be started any number of times, by the host, on streams, by replayed graphs and in kernels, in
 * any mixture: its starts are counted in the memory of the device that its region belongs to. They must not overlap. Messages
 * between two ranks are matched by tag, and within a tag in the order of preparing: the n-th start of the one meets the n-th
 * start of the other, whatever starts it. There is no receiving from any source or with any tag. */
typedef struct mp_op mp_op;

/* Neither waits for the peer. A receive may be longer than the message. */
mp_status mp_send_prepare(const mp_comm *comm, int peer, const mp_region *region, size_t offset, size_t bytes,
                          uint64_t tag, mp_op **op);
mp_status mp_recv_prepare(const mp_comm *comm, int peer, const mp_region *region, size_t offset, size_t bytes,
                          uint64_t tag, mp_op **op);

/* Bytes [offset, offset + bytes) of a region. */
typedef struct mp_piece {
    const mp_region *region;
    size_t offset;
    size_t bytes;
} mp_piece;

/* Messages that are gathered from, or scattered into, several pieces, one after the other; they may be empty. The two sides
 * may be split differently, and either may be in one piece. Kernels do not start them. */
mp_status mp_sendv_prepare(const mp_comm *comm, int peer, const mp_piece *pieces, size_t count, uint64_t tag,
                           mp_op **op);
mp_status mp_recvv_prepare(const mp_comm *comm, int peer, const mp_piece *pieces, size_t count, uint64_t tag,
                           mp_op **op);

/* Starts and returns. A send complete means that the bytes are in the peer's buffer; a receive complete, that they are
 * visible here. An operation is started again after it was seen complete. */
mp_status mp_start(const mp_op *op);
mp_status mp_start_all(const mp_op *const *ops, size_t count);
/* *complete becomes 1 or 0. An operation that was not started is complete. */
mp_status mp_test(const mp_op *op, int *complete);
mp_status mp_wait(const mp_op *op, double timeout);
mp_status mp_wait_all(const mp_op *const *ops, size_t count, double timeout);
/* *which becomes the index of one that is complete. */
mp_status mp_wait_any(const mp_op *const *ops, size_t count, double timeout, size_t *which);

/* Starts when the stream, which is one of the region's device, gets there; the calling thread goes on. The first time the call
 * waits until the peer has prepared. A stream that captures a graph replays it. */
mp_status mp_start_on_stream(const mp_op *op, const mp_stream *stream);
mp_status mp_start_all_on_stream(const mp_op *const *ops, size_t count, const mp_stream *stream);
/* Makes the stream wait for the message of a receive, wherever that was started: one start, one wait; or for what the host has
 * started of a send. */
mp_status mp_wait_on_stream(const mp_op *op, const mp_stream *stream);
mp_status mp_wait_all_on_stream(const mp_op *const *ops, size_t count, const mp_stream *stream);

/* What a stream does: start an operation or wait for it. */
typedef enum mp_step_kind { MP_START = 0, MP_WAIT = 1 } mp_step_kind;
typedef struct mp_step {
    const mp_op *op;
    int what; /* an mp_step_kind */
} mp_step;

/* Enqueues the steps in order, as one launch. */
mp_status mp_enqueue(const mp_stream *stream, const mp_step *steps, size_t count);
/* What mp::send, mp::post and mp::recv of mp/message.cuh take: copies the mp::Send or mp::Recv of mp/layout.cuh, whose size
 * is `bytes`, to `handle`. Valid while the operation lives. Waits until the peer has prepared. */
mp_status mp_op_handle(const mp_op *op, void *handle, size_t bytes);
mp_status mp_op_free(mp_op *op);

/* ---- Tagged messages ---- */

/* Send and receive between any two ranks of a communicator, matched when they meet, as in MPI: a receive names a source and
 * a tag, or takes any. It gets the message that came first of those that it matches, a message goes to the receive posted first of those
 * that match it, and messages between two ranks do not overtake each other. A message of at most eager_limit bytes is sent at once, whether it is
 * expected or not, until there is more than `unexpected` of this rank at the receiver; others wait for their receive. Messages move on
 * in every call of this library that waits. Prepared messages (above) are faster, and are for streams and kernels. */
typedef struct mp_tagged mp_tagged;
/* A send or a receive that was started or prepared. */
typedef struct mp_request mp_request;
/* A message that mp_tagged_mprobe has taken out. */
typedef struct mp_message mp_message;

/* Any source, any tag. */
#define MP_ANY (-1)

/* The same on every rank; 0 is the library's choice. */
typedef struct mp_tagged_options {
    size_t eager_limit; /* the longest message that is sent before it is wanted, at most 65536 bytes */
    size_t unexpected;  /* bytes, and 64 for each message, of a rank that may lie unexpected at another */
    size_t ring;        /* bytes of the ring through which longer ones go: a power of two from 4096 to 64 Mi */
} mp_tagged_options;

/* What a receive got; of a send this rank, its tag and its length. */
typedef struct mp_message_status {
    int source;
    int cancelled; /* the receive was taken back */
    int64_t tag;
    size_t bytes;
} mp_message_status;

/* The tagged messages of a communicator. A collective call. `options` may be NULL. */
mp_status mp_tagged_open(const mp_comm *comm, const mp_tagged_options *options, mp_tagged **tagged);
mp_status mp_tagged_free(mp_tagged *tagged);

/* A thread that makes calls in this rank's place while it computes: messages and started operations go on that otherwise only its own calls
 * move. It takes a share of a core. Stop it before mp_finish. */
typedef struct mp_progress mp_progress;
mp_status mp_progress_start(const mp_comm *comm, mp_progress **progress);
mp_status mp_progress_stop(mp_progress *progress);

/* Sends, and waits until the memory is the caller's again. Tags are from 0 on. After MP_ERR_LATE the message goes on from a copy. */
mp_status mp_tagged_send(const mp_tagged *tagged, const void *data, size_t bytes, int to, int64_t tag, double timeout);
/* Receives a message of at most `bytes` bytes. MP_ERR_TRUNCATED if it is longer: it is lost, and its sender hears nothing of it. After
 * MP_ERR_LATE the receive is taken back. `status` may be NULL, here and below. */
mp_status mp_tagged_recv(const mp_tagged *tagged, void *data, size_t bytes, int from, int64_t tag, double timeout,
                         mp_message_status *status);
/* Starts to send, or to receive. What is sent stays valid and unchanged until the request is seen complete or the world is over, also if
 * the request is freed before; what is received into is the request's until it is complete or freed. */
mp_status mp_tagged_isend(const mp_tagged *tagged, const void *data, size_t bytes, int to, int64_t tag,
                          mp_request **request);
mp_status mp_tagged_irecv(const mp_tagged *tagged, void *data, size_t bytes, int from, int64_t tag,
                          mp_request **request);
/* The same, not started: mp_request_start does that, again and again. */
mp_status mp_tagged_send_init(const mp_tagged *tagged, const void *data, size_t bytes, int to, int64_t tag,
                              mp_request **request);
mp_status mp_tagged_recv_init(const mp_tagged *tagged, void *data, size_t bytes, int from, int64_t tag,
                              mp_request **request);
mp_status mp_request_start(mp_request *request);

/* Memory of a message that says itself what it is, so that no driver is asked, and what comes before the message. Fields that are not named
 * for a kind are 0. What the CPU does not reach goes through chunks of pinned memory. */
enum {
    MP_MEMORY_HOST = 0,   /* `memory` is an address of the CPU's */
    MP_MEMORY_REGION = 1, /* an mp_region; it may be freed before the request */
    MP_MEMORY_CUDA = 2,   /* an address of GPU `device` */
    MP_MEMORY_OPENCL = 3  /* a cl_mem */
};
typedef struct mp_memory {
    int kind;
    int device;
    void *memory;
    size_t offset; /* bytes, from where `memory` says */
    size_t bytes;
    /* NULL, or: the message is sent or received when the stream has come so far, and what the stream is given after a receive was started comes
     * after the message. It is not being captured, and outlives the request. */
    const mp_stream *stream;
    /* Of OpenCL's, NULL or a cl_command_queue: after what it has been given when the request is *made*. */
    void *queue;
    /* 1: the stream, of the memory's device, does not wait: it is given the copy of a receive when the message has come, and at least one up to the eager
     * limit is complete then. What it is given after a receive was complete comes after the message. */
    int enqueued;
} mp_memory;
/* As mp_tagged_isend and the others, of any memory. */
mp_status mp_tagged_isend_memory(const mp_tagged *tagged, const mp_memory *from, int to, int64_t tag,
                                 mp_request **request);
mp_status mp_tagged_irecv_memory(const mp_tagged *tagged, const mp_memory *into, int from, int64_t tag,
                                 mp_request **request);
mp_status mp_tagged_send_init_memory(const mp_tagged *tagged, const mp_memory *from, int to, int64_t tag,
                                     mp_request **request);
mp_status mp_tagged_recv_init_memory(const mp_tagged *tagged, const mp_memory *into, int from, int64_t tag,
                                     mp_request **request);

/* *complete becomes 1 if nothing is under way. */
mp_status mp_request_test(mp_request *request, int *complete, mp_message_status *status);
mp_status mp_request_wait(mp_request *request, double timeout, mp_message_status *status);
/* `statuses` may be NULL, else it has room for `count`. */
mp_status mp_request_wait_all(mp_request *const *requests, size_t count, double timeout, mp_message_status *statuses);
/* *which becomes the number of one that was under way and is complete, -1 if none is under way. */
mp_status mp_request_wait_any(mp_request *const *requests, size_t count, double timeout, int *which,
                              mp_message_status *status);
/* Takes back a receive that has got nothing: *cancelled becomes 1 if it was one. It is complete then. */
mp_status mp_request_cancel(mp_request *request, int *cancelled);
/* What is under way goes on as far as it concerns others: a receive is taken back, or what it gets is lost. */
mp_status mp_request_free(mp_request *request);

/* Waits for a message that such a receive would get. It stays where it is. */
mp_status mp_tagged_probe(const mp_tagged *tagged, int from, int64_t tag, double timeout, mp_message_status *status);
mp_status mp_tagged_iprobe(const mp_tagged *tagged, int from, int64_t tag, int *found, mp_message_status *status);
/* The same, and takes it out: nobody else gets it. mp_message_recv receives it, and gives the handle back. */
mp_status mp_tagged_mprobe(const mp_tagged *tagged, int from, int64_t tag, double timeout, mp_message **message,
                           mp_message_status *status);
mp_status mp_message_recv(mp_message *message, void *data, size_t bytes, double timeout, mp_message_status *status);
/* Drops the message. */
mp_status mp_message_free(mp_message *message);

/* ---- One-sided communication ---- */

/* A region of every rank, opened to the others, with signals: 64-bit counters that only grow, of the rank that waits for
 * them; one rank sets each, or any number of ranks add to it. Host, streams and kernels write the same memory, and raise and
 * wait for the same signals. */
typedef struct mp_window mp_window;

/* A collective call; the regions may have different lengths, the numbers of signals are equal. */
mp_status mp_window_create(const mp_comm *comm, const mp_region *region, uint32_t signals, mp_window **window);
mp_status mp_window_free(mp_window *window);
/* The length of a rank's region in bytes; 0 for arguments that make no sense. */
uint64_t mp_window_bytes(const mp_window *window, int rank);
/* What the functions of mp/window.cuh take: copies the mp::Window of mp/layout.cuh, whose size is `bytes`, to `handle`. Valid
 * while the window lives. */
mp_status mp_window_handle(const mp_window *window, void *handle, size_t bytes);

/* Between bytes [offset, offset + bytes) of the region and the rank's memory from byte `at` on. Done when they return. */
mp_status mp_put(const mp_window *window, int rank, uint64_t at, const mp_region *region, size_t offset, size_t bytes);
mp_status mp_get(const mp_window *window, int rank, uint64_t at, const mp_region *region, size_t offset, size_t bytes);
/* mp_put and then mp_signal: who sees the signal sees the bytes. */
mp_status mp_put_signal(const mp_window *window, int rank, uint64_t at, const mp_region *region, size_t offset,
                        size_t bytes, uint32_t signal, uint64_t value);
/* mp_put and mp_get that are only started: what is put must not be written, and nothing may be done with what is got into, until
 * mp_flush has returned. What is signalled behind a put comes behind it, what is signalled behind a get may come before it. */
mp_status mp_put_start(const mp_window *window, int rank, uint64_t at, const mp_region *region, size_t offset, size_t bytes);
mp_status mp_get_start(const mp_window *window, int rank, uint64_t at, const mp_region *region, size_t offset, size_t bytes);
/* For a rank, or for MP_ALL of them: waits until the memory here of what the host has started is used no more. */
#define MP_ALL (-1)
mp_status mp_flush(const mp_window *window, int rank);
/* Likewise: waits until what the host has started, and streams and kernels of this rank have posted through a NIC, has happened
 * there. */
mp_status mp_quiet(const mp_window *window, int rank);
/* Rows of consecutive bytes: from the beginning of one to that of the next so many bytes in the target and in the source. */
typedef struct {
    size_t bytes; /* of a row */
    size_t count; /* rows */
    size_t to;
    size_t from;
} mp_rows;
/* Strided puts and gets: the first row begins at byte `offset` of the region and at byte `at` of the rank's memory. Done when they
 * return, or, unless `stream` is NULL, when the stream gets there. */
mp_status mp_put_rows(const mp_window *window, int rank, uint64_t at, const mp_region *region, size_t offset,
                      const mp_rows *rows, const mp_stream *stream);
mp_status mp_get_rows(const mp_window *window, int rank, uint64_t at, const mp_region *region, size_t offset,
                      const mp_rows *rows, const mp_stream *stream);
/* mp_put and mp_get without waiting: *request is a put or a get that is started. mp_wait or mp_test says when it is complete, and so the
 * region may be used again; mp_op_free gives it back. What is done again and again is cheaper prepared once (mp_put_prepare). The
 * region is memory of the window's device. */
mp_status mp_iput(const mp_window *window, int rank, uint64_t at, const mp_region *region, size_t offset, size_t bytes,
                  mp_op **request);
mp_status mp_iget(const mp_window *window, int rank, uint64_t at, const mp_region *region, size_t offset, size_t bytes,
                  mp_op **request);
/* Raises the rank's signal to `value`. */
mp_status mp_signal(const mp_window *window, int rank, uint32_t signal, uint64_t value);
/* Adds `value` to the rank's signal, as any number of ranks may; nobody sets such a signal. */
mp_status mp_signal_add(const mp_window *window, int rank, uint32_t signal, uint64_t value);
/* mp_put and then mp_signal_add: who sees the sum sees the bytes. */
mp_status mp_put_signal_add(const mp_window *window, int rank, uint64_t at, const mp_region *region, size_t offset,
                            size_t bytes, uint32_t signal, uint64_t value);
/* Waits until this rank's signal compares so with `value`; `compare` is an mp_compare. */
mp_status mp_wait_signal(const mp_window *window, uint32_t signal, int compare, uint64_t value, double timeout);
/* Waits until one of `count` signals compares so with its value; *which becomes the index of one that does. */
mp_status mp_wait_any_signal(const mp_window *window, const uint32_t *signals, const uint64_t *values, size_t count, int compare,
                             double timeout, size_t *which);
mp_status mp_read_signal(const mp_window *window, uint32_t signal, uint64_t *value);

/* The same when the stream gets there. */
mp_status mp_put_on_stream(const mp_window *window, int rank, uint64_t at, const mp_region *region, size_t offset,
                           size_t bytes, const mp_stream *stream);
mp_status mp_get_on_stream(const mp_window *window, int rank, uint64_t at, const mp_region *region, size_t offset,
                           size_t bytes, const mp_stream *stream);
mp_status mp_put_signal_on_stream(const mp_window *window, int rank, uint64_t at, const mp_region *region,
                                  size_t offset, size_t bytes, uint32_t signal, uint64_t value,
                                  const mp_stream *stream);
mp_status mp_signal_on_stream(const mp_window *window, int rank, uint32_t signal, uint64_t value,
                              const mp_stream *stream);
mp_status mp_signal_add_on_stream(const mp_window *window, int rank, uint32_t signal, uint64_t value,
                                  const mp_stream *stream);
mp_status mp_wait_signal_on_stream(const mp_window *window, uint32_t signal, int compare, uint64_t value,
                                   const mp_stream *stream);

/* How an atomic operation changes a word: not, it is read; it becomes the value; it becomes the value if it is what is expected; the
 * value is added, modulo 2 to the power of its bits; and, or, exclusive or; it becomes the value if that is less, or larger. Of
 * floating-point numbers there are the first two and the sum. The numbers are those of mp::AtomicKind of mp/layout.cuh. */
typedef enum mp_atomic_kind {
    MP_ATOMIC_FETCH = 0,
    MP_ATOMIC_SWAP = 1,
    MP_ATOMIC_COMPARE_SWAP = 2,
    MP_ATOMIC_ADD = 3,
    MP_ATOMIC_AND = 4,
    MP_ATOMIC_OR = 5,
    MP_ATOMIC_XOR = 6,
    MP_ATOMIC_MIN = 7,
    MP_ATOMIC_MAX = 8
} mp_atomic_kind;
/* Changes the word of an mp_type at byte `at` of the rank's memory, a multiple of its size, as one step for everybody who uses
 * these operations or those of kernels. `value`, `expected` (NULL but for a compare and swap) and `before` point to numbers of
 * that type; *before, unless it is NULL, becomes what the word held. Through a NIC not in memory of a GPU. */
mp_status mp_atomic(const mp_window *window, int rank, uint64_t at, int type, int kind, const void *value,
                    const void *expected, void *before);
/* The same when the stream gets there. What the word held goes to byte `offset` of `before`, unless that is NULL, memory of the
 * stream's device. */
mp_status mp_atomic_on_stream(const mp_window *window, int rank, uint64_t at, int type, int kind, const void *value,
                              const void *expected, const mp_region *before, size_t offset, const mp_stream *stream);

/* ---- Windows and collectives of streams, graphs and kernels ---- */

/* Prepared operations on a window, which host, streams and kernels start as they do messages. A put of `bytes` bytes of the region to
 * byte `at` of rank `rank`, and then, unless `signal` is -1, its signal, which start number n raises to n and nothing else raises; a
 * get, the other way; and a wait for a signal of this rank, number n of which is through when it is at least n. Kernels take them as
 * mp::Put, mp::Get and mp::SignalWait. */
mp_status mp_put_prepare(const mp_window *window, int rank, uint64_t at, const mp_region *region, size_t offset, size_t bytes,
                         int signal, mp_op **op);
mp_status mp_get_prepare(const mp_window *window, int rank, uint64_t at, const mp_region *region, size_t offset, size_t bytes,
                         mp_op **op);
mp_status mp_signal_wait_prepare(const mp_window *window, uint32_t signal, mp_op **op);

/* Prepared collectives of the ranks' devices, which the host (`stream` is NULL; then mp_collective_wait), streams and kernels start, in
 * any mixture. Preparing is a collective call; all ranks name a GPU or all MP_HOST, and the same room: the bytes of the largest block
 * that one rank gives another. The handle is the mp::Collective of mp/layout.cuh, for the functions of mp/collective.cuh. */
typedef struct mp_collective mp_collective;
mp_status mp_collective_prepare(const mp_comm *comm, int device, size_t bytes, mp_collective **collective);
/* What a run does with `count` values a block: every rank gives every other a block, and what comes is placed or combined in rank
 * order. `size` blocks lie in rank order. */
typedef enum mp_kind {
    MP_BARRIER = 0,        /* orders what all did before and after; no regions */
    MP_BROADCAST = 1,      /* a block of `root`, to -> to */
    MP_ALL_GATHER = 2,     /* a block -> size blocks */
    MP_GATHER = 3,         /* the same at `root` */
    MP_SCATTER = 4,        /* size blocks of `root` -> a block */
    MP_ALL_TO_ALL = 5,     /* size blocks -> size blocks */
    MP_REDUCE = 6,         /* a block -> the combined one at `root` */
    MP_REDUCE_SCATTER = 7, /* size blocks -> a combined one */
    MP_ALL_REDUCE = 8,     /* a block -> the combined one */
    MP_SCAN = 9            /* a block -> the combined one of the ranks up to this one */
} mp_kind;
/* Starts an mp_kind, on values of an mp_type, combined by an mp_reduce where values are combined; all ranks say the same. Regions that
 * the kind or the rank has no use for may be NULL; `from` and `to` may be the same memory if the own block is at the same place. They
 * must not be touched until the run is complete. */
mp_status mp_collective_start(const mp_collective *collective, int kind, int root, int type, int op, const mp_region *from,
                              const mp_region *to, size_t count, const mp_stream *stream);
/* An all-to-all of blocks of any size and place: arrays of first elements and of numbers of elements, of each rank. What a rank
 * gives another is as much as the other takes from it. The arrays are read before it returns. */
mp_status mp_all_to_all_v_start(const mp_collective *collective, int type, const mp_region *from, const size_t *given_at,
                                const size_t *given, const mp_region *to, const size_t *taken_at, const size_t *taken,
                                const mp_stream *stream);
/* *complete becomes 1 or 0; of what the host has started. */
mp_status mp_collective_test(const mp_collective *collective, int *complete);
mp_status mp_collective_wait(const mp_collective *collective, double timeout);
mp_status mp_collective_handle(const mp_collective *collective, void *handle, size_t bytes);
mp_status mp_collective_free(mp_collective *collective);

/* ---- Halo exchanges ---- */

/* A rank and at most 26 neighbours, each of which has the other's border as its ghosts; mp/exchange.cuh says how kernels do it by
 * themselves. Every launch that reads or writes ghosts is a phase; a phase does not write the field whose ghosts it reads. */
typedef struct mp_exchange mp_exchange;
/* The other end of borders, and what both call the way between them; rank -1: there is none of this number. */
typedef struct mp_neighbour {
    int rank;
    uint64_t here;
    uint64_t there;
} mp_neighbour;
/* A box of cells. */
typedef struct mp_cells {
    int first[3];
    int end[3];
} mp_cells;
/* Cells of `cell` bytes in a region: cell (0, 0, 0) is number `origin`, from row to row and from plane to plane there are `row` and
 * `plane`. For each neighbour what it gets, and which ghosts are its. buffered: mapped neighbours store into a buffer. */
typedef struct mp_field {
    const mp_region *region;
    size_t cell;
    ptrdiff_t origin;
    size_t row;
    size_t plane;
    const mp_cells *send;
    const mp_cells *receive;
    int buffered;
} mp_field;

/* A collective call. */
mp_status mp_exchange_create(const mp_comm *comm, int device, const mp_neighbour *neighbours, size_t neighbour_count,
                             const mp_field *fields, size_t field_count, mp_exchange **exchange);
/* The mp::Exchange<N> of a launch that reads the ghosts of field `read` and writes `written`, either -1 for none; waits is 0 where
 * mp_exchange_wait_on_stream is enqueued ahead. `bytes` is its size, for at least as many neighbours as there are. */
mp_status mp_exchange_handle(const mp_exchange *exchange, int read, int written, int waits, void *handle, size_t bytes);
/* A phase by the stream: sends the border of a field; then waits, and has the ghosts of a field, or -1. */
mp_status mp_exchange_start_on_stream(const mp_exchange *exchange, int written, const mp_stream *stream);
mp_status mp_exchange_wait_on_stream(const mp_exchange *exchange, int read, const mp_stream *stream);
mp_status mp_exchange_free(mp_exchange *exchange);

#ifdef __cplusplus
}
#endif

#endif /* MP_H */
