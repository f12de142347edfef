// What Rust and device code share. GENERATED from kernels/src/layout.rs, which declares it; to change it, change it there and
// run MP_REGENERATE=1 cargo test -p mp-kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mp {

// Bytes of a packet.
constexpr std::uint64_t packet_size = 16;

// Bytes of a message in one packet; of 32 bits, so that dividing by it is cheap.
constexpr std::uint32_t packet_bytes = 12;

// Packets of a message that a thread takes at most in the quick way, for which a block has threads enough.
constexpr std::uint32_t packets_a_thread = 2;

// Slots for packets of one pair: how many small messages may be on their way or not yet taken.
constexpr std::uint64_t packet_slots = 4;

// Bytes between two signals: a cache line.
constexpr std::uint64_t signal_stride = 64;

// Data up to so many bytes travel inside the entry of a NIC's queue: the source is read once, and is free at once.
constexpr std::uint64_t inline_bytes = 512;

// Ranks whose rows of a window's or collective's table are in its handle, too.
constexpr std::uint64_t near_ranks = 8;

// Bytes of a reply slot, of which a `Context` has one for each block of its queue.
constexpr std::uint64_t reply_bytes = 64;

// Pieces of a large collective on their way to one rank in one lane.
constexpr std::uint32_t lane_slots = 4;

// Bytes of the smallest piece, of which all others are multiples.
constexpr std::uint64_t least_piece = 1024;

// Packets of the smallest ring of a collective, of 16 bytes: so far a rank that only gives may be ahead.
constexpr std::uint64_t least_ring = 64;

// Words of a block that a ring carries at least, where several do: with those of another rank as many as a block of threads has threads.
constexpr std::uint64_t least_share = 256;

// Bytes between two words of lanes: a cache line.
constexpr std::uint64_t lane_stride = 64;

// What `CollectiveRun::reduction` is if blocks are placed, not combined.
constexpr std::uint32_t no_reduction = 4294967295;

// Steps of the longest list in one launch.
constexpr std::uint32_t max_steps = 16;

// Bits of a device rank's number in a notification.
constexpr std::uint32_t rank_bits = 24;

// Bits of a window's number in a notification.
constexpr std::uint32_t window_bits = 16;

// Bits of a tag in a notification.
constexpr std::uint32_t tag_bits = 24;

// Windows that a device rank may have open at once on each of its two communicators.
constexpr std::uint32_t rank_windows = 64;

// Steps of a short list: most lists are, and a launch is the quicker the less it carries.
constexpr std::uint32_t few_steps = 3;

// `SHMEM_DEVICE_CTX_DEFAULT`.
constexpr std::uint64_t shmem_device_context = 2;

// `SHMEM_DEVICE_TEAM_WORLD`.
constexpr std::uint64_t shmem_device_world = 3;

// `SHMEM_DEVICE_TEAM_SHARED`.
constexpr std::uint64_t shmem_device_shared = 4;

// How a call of a kernel ended.
enum [[nodiscard]] WaitStatus : std::uint32_t {
    // The signal reached the expected value.
    ok = 0,
    // The abort word was set first.
    aborted = 1,
    // The deadline passed first.
    timed_out = 2,
    // A request to the peer's NIC failed first: nothing more goes that way.
    path_failed = 3,
    // Refused: the window has no such rank.
    no_such_rank = 4,
    // Refused: a rank has no such signal.
    no_such_signal = 5,
    // Refused: some of the bytes, or elements, lie outside.
    out_of_range = 6,
    // Refused: an atomic operation at no multiple of its size, on a GPU's own memory through a NIC, or by a GPU on memory of the host that
    // is another rank's and that a NIC changes.
    not_atomic = 7,
    // A bounded queue is full, and what it is asked for is not in it.
    no_room = 8,
    // Refused: an argument that no call of this kind takes.
    bad_argument = 9,
    // Refused: no team, and no context, for kernels has this handle.
    no_such_team = 10,
};

// What a device rank was doing when a call of it failed.
enum [[nodiscard]] RankCall : std::uint32_t {
    // `put` or `put_notify`.
    rank_put = 0,
    // `get` or `get_notify`.
    rank_get = 1,
    // Telling the target of a put or a get.
    rank_notify = 2,
    // `wait_notifications` or `test_notifications`.
    rank_wait = 3,
    // `barrier`, also that of another call.
    rank_barrier = 4,
    // `win_create`.
    rank_create = 5,
    // `win_free`.
    rank_free = 6,
};

// How far a device rank has got.
enum [[nodiscard]] RankPhase : std::uint32_t {
    // Its block has not called `join`.
    rank_absent = 0,
    // It has, and runs, or has ended without `finish`.
    rank_joined = 1,
    // It has finished.
    rank_finished = 2,
};

// Words of a device that its ranks meet at, and those of its log.
enum [[nodiscard]] MeetingWord : std::uint32_t {
    // Ranks that have come to barriers of the world.
    world_here = 0,
    // Barriers of the world that are over.
    world_open = 1,
    // Ranks that have come to barriers of the device.
    device_here = 2,
    // Barriers of the device that are over.
    device_open = 3,
    // Lines that have been taken for writing.
    log_head = 4,
    // Lines that were lost.
    log_lost = 5,
};

// How what a word holds is compared with a value.
enum [[nodiscard]] Comparison : std::uint32_t {
    // It is the value.
    compare_eq = 0,
    // It is not.
    compare_ne = 1,
    // It is larger.
    compare_gt = 2,
    // It is the value or larger.
    compare_ge = 3,
    // It is less.
    compare_lt = 4,
    // It is the value or less.
    compare_le = 5,
    // It has one of the value's bits at least.
    compare_any_bit = 6,
};

// How an atomic operation changes a word.
enum [[nodiscard]] AtomicKind : std::uint32_t {
    // Not: it is read.
    atomic_kind_fetch = 0,
    // It becomes the value.
    atomic_kind_swap = 1,
    // It becomes the value if it is what is expected.
    atomic_kind_compare_swap = 2,
    // The value is added.
    atomic_kind_add = 3,
    // Of its bits those stay that the value has.
    atomic_kind_and = 4,
    // It gets the value's bits.
    atomic_kind_or = 5,
    // The value's bits change.
    atomic_kind_xor = 6,
    // It becomes the value if that is less.
    atomic_kind_min = 7,
    // It becomes the value if that is larger.
    atomic_kind_max = 8,
};

// What a step of a stream operation does.
enum [[nodiscard]] StepKind : std::uint32_t {
    // Posts the buffer of a receive.
    step_post = 0,
    // Sends.
    step_send = 1,
    // Takes a message.
    step_recv = 2,
    // Gets from a window.
    step_get = 3,
};

// What the blocks of a launch do before a step.
enum [[nodiscard]] Meeting : std::uint32_t {
    // They go on.
    meet_none = 0,
    // They wait for one another.
    meet_all = 1,
    // They end, and the last one takes the step, which is the last of the list.
    meet_last = 2,
};

// What is combined, or changed by an atomic operation.
enum [[nodiscard]] Element : std::uint32_t {
    // `double`.
    element_f64 = 0,
    // `float`.
    element_f32 = 1,
    // 64-bit integers without sign.
    element_u64 = 2,
    // 64-bit integers.
    element_i64 = 3,
    // 32-bit integers without sign.
    element_u32 = 4,
    // 32-bit integers.
    element_i32 = 5,
    // Floating point of 16 bits, IEEE 754: `mp::f16`.
    element_f16 = 6,
    // The upper 16 bits of a `float`: `mp::bf16`.
    element_bf16 = 7,
};

// How a collective combines.
enum [[nodiscard]] Reduction : std::uint32_t {
    // The sum; integers wrap around.
    reduction_sum = 0,
    // The smallest.
    reduction_min = 1,
    // The largest.
    reduction_max = 2,
    // The product; integers wrap around.
    reduction_prod = 3,
    // Bit by bit, of integers.
    reduction_and = 4,
    // Bit by bit, of integers.
    reduction_or = 5,
    // Bit by bit, of integers.
    reduction_xor = 6,
};

// What ends the waits of a GPU's kernels, in its own memory. A word of the host takes a GPU a microsecond or two to read, and a
// thousand blocks that wait and read it at once keep those that compute from their work for up to a millisecond: so one of
// those that wait reads it for all, now and then.
struct AbortRelay {
    // Address, as the GPU sees it, of the host's word: any value but 0 aborts.
    std::uint64_t word;
    // When it is read next, by `clock_ns`.
    std::uint64_t next_ns;
    // What it held when it was read last.
    std::uint64_t seen;
};
static_assert(sizeof(AbortRelay) == 24 && alignof(AbortRelay) == 8);
static_assert(offsetof(AbortRelay, word) == 0);
static_assert(offsetof(AbortRelay, next_ns) == 8);
static_assert(offsetof(AbortRelay, seen) == 16);

// What ends a wait in a kernel besides its signal.
struct WaitBounds {
    // Address of what aborts it: on a GPU an `AbortRelay`, on the CPU a word, of which any value but 0 aborts. 0: nothing does.
    std::uint64_t abort;
    // Nanoseconds after which the wait gives up.
    std::uint64_t timeout_ns;
};
static_assert(sizeof(WaitBounds) == 16 && alignof(WaitBounds) == 8);
static_assert(offsetof(WaitBounds, abort) == 0);
static_assert(offsetof(WaitBounds, timeout_ns) == 8);

// Why a call of a kernel failed. The host zeroes the slot before the launch; the first failure stays in it.
struct WaitReport {
    // A `WaitStatus`; 0 (ok): nothing failed. Written last: when it is not 0, the rest is there.
    std::uint32_t status;
    // Not 0 once a failing thread of the GPU has taken the slot.
    std::uint32_t claimed;
    // The value waited for. Of a call that was refused: the first rank, signal, byte or element it was for.
    std::uint64_t expected;
    // The value of the signal when the wait ended. Of a call that was refused: how many there are.
    std::uint64_t seen;
    // Nanoseconds waited, counted from the first look at the clock. Of a call that was refused: how many it was for.
    std::uint64_t waited_ns;
};
static_assert(sizeof(WaitReport) == 32 && alignof(WaitReport) == 8);
static_assert(offsetof(WaitReport, status) == 0);
static_assert(offsetof(WaitReport, claimed) == 4);
static_assert(offsetof(WaitReport, expected) == 8);
static_assert(offsetof(WaitReport, seen) == 16);
static_assert(offsetof(WaitReport, waited_ns) == 24);

// What the blocks of a launch meet by: see `mp/meeting.cuh`.
struct BlockSignals {
    // Address of the signals, in the GPU's memory: of each block how often it has come, zero before the first launch.
    std::uint64_t signals;
    // What ends a wait.
    WaitBounds bounds;
    // Address of the `WaitReport` of meetings that failed.
    std::uint64_t report;
};
static_assert(sizeof(BlockSignals) == 32 && alignof(BlockSignals) == 8);
static_assert(offsetof(BlockSignals, signals) == 0);
static_assert(offsetof(BlockSignals, bounds) == 8);
static_assert(offsetof(BlockSignals, report) == 24);

// One end of a pair of prepared operations, as a kernel works with it: addresses as its GPU sees them. Which end it is
// says the struct around it. Constant between starts.
struct Message {
    // The buffer: what is sent, or where it goes.
    std::uint64_t memory;
    // Length of the message in bytes.
    std::uint64_t len;
    // Of a send in one piece: the receiver's buffer. Of a receive from a CPU: where the message waits to be fetched.
    // Otherwise 0.
    std::uint64_t target;
    // The receiver's slots for packets; 0: the message goes in one piece.
    std::uint64_t inbox;
    // The signal this end waits on: a sender's credit, a receiver's arrivals.
    std::uint64_t mine;
    // The signal this end raises, which the other waits on.
    std::uint64_t theirs;
    // Its `MessageState`, in this GPU's memory.
    std::uint64_t state;
    // What aborts; see `WaitBounds`.
    std::uint64_t abort;
    // Nanoseconds after which a wait gives up.
    std::uint64_t timeout_ns;
    // Its `WaitReport`; 0: there is none.
    std::uint64_t report;
    // Its `NicEnd`, if the way to the other end goes through a NIC; 0: the other's memory is mapped.
    std::uint64_t nic;
};
static_assert(sizeof(Message) == 88 && alignof(Message) == 8);
static_assert(offsetof(Message, memory) == 0);
static_assert(offsetof(Message, len) == 8);
static_assert(offsetof(Message, target) == 16);
static_assert(offsetof(Message, inbox) == 24);
static_assert(offsetof(Message, mine) == 32);
static_assert(offsetof(Message, theirs) == 40);
static_assert(offsetof(Message, state) == 48);
static_assert(offsetof(Message, abort) == 56);
static_assert(offsetof(Message, timeout_ns) == 64);
static_assert(offsetof(Message, report) == 72);
static_assert(offsetof(Message, nic) == 80);

// How one end of a pair reaches the other through a NIC. Constant between starts.
struct NicEnd {
    // The end itself, as its handle has it.
    Message message;
    // Address of the `mp::QueuePair` to the other's rank (`mp/qp.cuh`).
    std::uint64_t queue;
    // The signal this end raises, in the other's memory. 0: none, as of a put without a signal.
    std::uint64_t theirs;
    // Of a send: where messages go, in the other's memory. Of a get: where they come from.
    std::uint64_t target;
    // How many messages may be on their way, each in a slot of its own; 0: one, into the posted buffer.
    std::uint64_t slots;
    // Bytes from slot to slot.
    std::uint64_t stride;
    // The remote key of `theirs`.
    std::uint32_t theirs_key;
    // The remote key of `target`.
    std::uint32_t target_key;
    // The local key of the buffer that is sent, or got into.
    std::uint32_t memory_key;
    // Keeps the size a multiple of 8; ignored.
    std::uint32_t reserved;
};
static_assert(sizeof(NicEnd) == 144 && alignof(NicEnd) == 8);
static_assert(offsetof(NicEnd, message) == 0);
static_assert(offsetof(NicEnd, queue) == 88);
static_assert(offsetof(NicEnd, theirs) == 96);
static_assert(offsetof(NicEnd, target) == 104);
static_assert(offsetof(NicEnd, slots) == 112);
static_assert(offsetof(NicEnd, stride) == 120);
static_assert(offsetof(NicEnd, theirs_key) == 128);
static_assert(offsetof(NicEnd, target_key) == 132);
static_assert(offsetof(NicEnd, memory_key) == 136);
static_assert(offsetof(NicEnd, reserved) == 140);

// The counters of one end. Only the kernels and streams that start it touch them; zero at first.
struct MessageState {
    // Starts of a send, messages taken of a receive.
    std::uint64_t epoch;
    // Of a send: the last epoch that is known to have left its slot. Of a receive: how often the buffer was posted.
    std::uint64_t room;
    // Blocks that have done their part of the current start.
    std::uint64_t arrived;
    // Blocks that have come to the current meeting of a launch.
    std::uint64_t meeting;
    // Meetings so far.
    std::uint64_t meetings;
    // Keeps the size a cache line; ignored.
    std::uint64_t reserved0;
    // As `reserved0`.
    std::uint64_t reserved1;
    // As `reserved0`.
    std::uint64_t reserved2;
};
static_assert(sizeof(MessageState) == 64 && alignof(MessageState) == 8);
static_assert(offsetof(MessageState, epoch) == 0);
static_assert(offsetof(MessageState, room) == 8);
static_assert(offsetof(MessageState, arrived) == 16);
static_assert(offsetof(MessageState, meeting) == 24);
static_assert(offsetof(MessageState, meetings) == 32);
static_assert(offsetof(MessageState, reserved0) == 40);
static_assert(offsetof(MessageState, reserved1) == 48);
static_assert(offsetof(MessageState, reserved2) == 56);

// A prepared send.
struct Send {
    // This end.
    Message message;
};
static_assert(sizeof(Send) == 88 && alignof(Send) == 8);
static_assert(offsetof(Send, message) == 0);

// A prepared receive.
struct Recv {
    // This end.
    Message message;
};
static_assert(sizeof(Recv) == 88 && alignof(Recv) == 8);
static_assert(offsetof(Recv, message) == 0);

// A prepared put into a window.
struct Put {
    // A send that waits for nobody.
    Send send;
};
static_assert(sizeof(Put) == 88 && alignof(Put) == 8);
static_assert(offsetof(Put, send) == 0);

// A prepared get from a window.
struct Get {
    // As that of a put, the other way: its buffer is the rank's share.
    Send send;
};
static_assert(sizeof(Get) == 88 && alignof(Get) == 8);
static_assert(offsetof(Get, send) == 0);

// A prepared wait for a signal of a window.
struct SignalWait {
    // A receive of nothing.
    Recv recv;
};
static_assert(sizeof(SignalWait) == 88 && alignof(SignalWait) == 8);
static_assert(offsetof(SignalWait, recv) == 0);

// One thing that a stream operation does: what the kernel `mp_steps` is launched with.
struct Step {
    // The end it works on.
    Message message;
    // A `StepKind`.
    std::uint32_t kind;
    // A `Meeting`, before it.
    std::uint32_t meet;
};
static_assert(sizeof(Step) == 96 && alignof(Step) == 8);
static_assert(offsetof(Step, message) == 0);
static_assert(offsetof(Step, kind) == 88);
static_assert(offsetof(Step, meet) == 92);

// What the threads of one GPU share about a queue, in that GPU's memory; zero at first. A word for each block of the queue
// follows: its mark. Only `mp/qp.cuh` looks inside.
struct QueuePairState {
    // Held by who rings.
    std::uint32_t lock;
    // Keeps what follows on a cache line of its own; ignored.
    std::uint32_t reserved0[15];
    // As `published` of the `QueuePair`, as far as this GPU knows.
    std::uint64_t published;
    // As its `completed`.
    std::uint64_t completed;
    // 0, or 0x100 | syndrome of the request that failed.
    std::uint64_t failure;
    // Doorbells rung by this GPU.
    std::uint64_t rings;
    // Behind the last entry that `mp::quiet` waits for, …
    std::uint64_t posted;
    // … and behind the last that uses memory of this rank beyond its post, for which `mp::flush` waits.
    std::uint64_t in_use;
    // Keeps the size two cache lines; ignored.
    std::uint64_t reserved1[2];
};
static_assert(sizeof(QueuePairState) == 128 && alignof(QueuePairState) == 8);
static_assert(offsetof(QueuePairState, lock) == 0);
static_assert(offsetof(QueuePairState, reserved0) == 4);
static_assert(offsetof(QueuePairState, published) == 64);
static_assert(offsetof(QueuePairState, completed) == 72);
static_assert(offsetof(QueuePairState, failure) == 80);
static_assert(offsetof(QueuePairState, rings) == 88);
static_assert(offsetof(QueuePairState, posted) == 96);
static_assert(offsetof(QueuePairState, in_use) == 104);
static_assert(offsetof(QueuePairState, reserved1) == 112);

// The send queue of a queue pair as the host hands it to kernels. Addresses are those of the device that the queue pair was
// made for; its send completions are collapsed.
struct QueuePair {
    // First byte of the send queue.
    std::uint64_t send_queue;
    // The one completion.
    std::uint64_t completion;
    // The send word of the doorbell record.
    std::uint64_t send_record;
    // The doorbell register.
    std::uint64_t doorbell;
    // Counter: blocks given to somebody who posts.
    std::uint64_t reserved;
    // Counter: blocks that the doorbell record covers.
    std::uint64_t published;
    // Counter: blocks known to be free again.
    std::uint64_t completed;
    // Its `QueuePairState`, and behind it a word for each block.
    std::uint64_t state;
    // Basic blocks of the send queue, 2^n <= 32768.
    std::uint32_t blocks;
    // Queue pair number.
    std::uint32_t qpn;
};
static_assert(sizeof(QueuePair) == 72 && alignof(QueuePair) == 8);
static_assert(offsetof(QueuePair, send_queue) == 0);
static_assert(offsetof(QueuePair, completion) == 8);
static_assert(offsetof(QueuePair, send_record) == 16);
static_assert(offsetof(QueuePair, doorbell) == 24);
static_assert(offsetof(QueuePair, reserved) == 32);
static_assert(offsetof(QueuePair, published) == 40);
static_assert(offsetof(QueuePair, completed) == 48);
static_assert(offsetof(QueuePair, state) == 56);
static_assert(offsetof(QueuePair, blocks) == 64);
static_assert(offsetof(QueuePair, qpn) == 68);

// One of the queues by which kernels of a GPU reach a rank: blocks that use different ones do not meet. Requests of one are
// executed in order, those of two are in no order. Its first field is a `QueuePair`.
struct Context {
    // The queue.
    QueuePair queue;
    // Memory that the NIC writes for this GPU: `reply_bytes` for each block of the queue, which whoever posts the entry at that
    // block reads, then a word that nobody reads.
    std::uint64_t replies;
    // A 32-bit word for each block, in this GPU's memory: not 0 while the slot is somebody's.
    std::uint64_t taken;
    // The local key of `replies`.
    std::uint32_t replies_key;
    // Keeps the size a multiple of 8; ignored.
    std::uint32_t reserved;
};
static_assert(sizeof(Context) == 96 && alignof(Context) == 8);
static_assert(offsetof(Context, queue) == 0);
static_assert(offsetof(Context, replies) == 72);
static_assert(offsetof(Context, taken) == 80);
static_assert(offsetof(Context, replies_key) == 88);
static_assert(offsetof(Context, reserved) == 92);

// A rank's share of a window, as a kernel of another rank reaches it.
struct WindowPart {
    // The memory.
    std::uint64_t memory;
    // Its length in bytes.
    std::uint64_t bytes;
    // Its signals, 64-bit words 64 bytes apart.
    std::uint64_t signals;
    // Its `NicPart`, if it is reached through a NIC: the addresses above are not this GPU's then. 0: it is mapped.
    std::uint64_t nic;
    // The `NicPart` by which atomic operations, and additions to signals, go: `nic`, and one where the share is mapped but others
    // change it through a NIC, whose operations are one with the NIC's alone. 0: they go as loads and stores do.
    std::uint64_t atomic_nic;
    // `bytes` where atomic operations on the memory go as loads and stores do, else 0.
    std::uint64_t atomic_bytes;
};
static_assert(sizeof(WindowPart) == 48 && alignof(WindowPart) == 8);
static_assert(offsetof(WindowPart, memory) == 0);
static_assert(offsetof(WindowPart, bytes) == 8);
static_assert(offsetof(WindowPart, signals) == 16);
static_assert(offsetof(WindowPart, nic) == 24);
static_assert(offsetof(WindowPart, atomic_nic) == 32);
static_assert(offsetof(WindowPart, atomic_bytes) == 40);

// What loads and stores reach of a rank's share of a window: all zeros if it is behind a NIC.
struct MappedPart {
    // The memory.
    std::uint64_t memory;
    // Its length in bytes.
    std::uint64_t bytes;
    // Its signals, as in `WindowPart`.
    std::uint64_t signals;
    // `bytes` where atomic operations on the memory go as loads and stores do, else 0.
    std::uint64_t atomic_bytes;
    // `signals` where additions to them do, else 0.
    std::uint64_t atomic_signals;
};
static_assert(sizeof(MappedPart) == 40 && alignof(MappedPart) == 8);
static_assert(offsetof(MappedPart, memory) == 0);
static_assert(offsetof(MappedPart, bytes) == 8);
static_assert(offsetof(MappedPart, signals) == 16);
static_assert(offsetof(MappedPart, atomic_bytes) == 24);
static_assert(offsetof(MappedPart, atomic_signals) == 32);

// How a rank's share of a window is reached through a NIC.
struct NicPart {
    // Address of the `Context`s to the rank. What all blocks must keep in one order goes by the first.
    std::uint64_t queue;
    // This rank's own share: what is put from it, or got into it, goes without a copy.
    std::uint64_t own;
    // Its length in bytes.
    std::uint64_t own_bytes;
    // How many contexts there are, at least one.
    std::uint32_t contexts;
    // The remote key of the share's memory.
    std::uint32_t memory_key;
    // The remote key of its signals.
    std::uint32_t signals_key;
    // The local key of the own share.
    std::uint32_t own_key;
    // 1: atomic operations on the share's memory are possible.
    std::uint32_t atomics;
    // Keeps the size a multiple of 8; ignored.
    std::uint32_t reserved;
};
static_assert(sizeof(NicPart) == 48 && alignof(NicPart) == 8);
static_assert(offsetof(NicPart, queue) == 0);
static_assert(offsetof(NicPart, own) == 8);
static_assert(offsetof(NicPart, own_bytes) == 16);
static_assert(offsetof(NicPart, contexts) == 24);
static_assert(offsetof(NicPart, memory_key) == 28);
static_assert(offsetof(NicPart, signals_key) == 32);
static_assert(offsetof(NicPart, own_key) == 36);
static_assert(offsetof(NicPart, atomics) == 40);
static_assert(offsetof(NicPart, reserved) == 44);

// A window as kernels take it.
struct Window {
    // Address of a `WindowPart` for each rank.
    std::uint64_t parts;
    // Ranks of the communicator.
    std::uint64_t ranks;
    // This rank.
    std::uint64_t rank;
    // Signals a rank has.
    std::uint64_t signals;
    // What aborts; see `WaitBounds`.
    std::uint64_t abort;
    // Nanoseconds after which a wait gives up.
    std::uint64_t timeout_ns;
    // Its `WaitReport`; 0: there is none.
    std::uint64_t report;
    // Of the first ranks, of as many as there are, what loads and stores reach: whoever has the window in a kernel's constants
    // finds it there quicker than in memory.
    MappedPart near[8];
};
static_assert(sizeof(Window) == 376 && alignof(Window) == 8);
static_assert(offsetof(Window, parts) == 0);
static_assert(offsetof(Window, ranks) == 8);
static_assert(offsetof(Window, rank) == 16);
static_assert(offsetof(Window, signals) == 24);
static_assert(offsetof(Window, abort) == 32);
static_assert(offsetof(Window, timeout_ns) == 40);
static_assert(offsetof(Window, report) == 48);
static_assert(offsetof(Window, near) == 56);

// The device ranks of one device, as their kernel takes them: `mp/ranks.cuh`. Offsets are from the beginning of a device's
// control memory, and the same on all devices.
struct Ranks {
    // Address of this device's control memory.
    std::uint64_t control;
    // Address of a `WindowPart` for each device: its control memory.
    std::uint64_t controls;
    // Address of a `WindowPart` for each device: its memory, in which its windows are.
    std::uint64_t memories;
    // Address of a number of 32 bits for each device: its first rank; and behind the last, how many ranks the world has.
    std::uint64_t firsts;
    // This device's memory.
    std::uint64_t memory;
    // Its length in bytes.
    std::uint64_t bytes;
    // Offset of the rings of notifications, one for each rank and source device: `slots` packets.
    std::uint64_t rings;
    // Offset of a word for each rank of the world: how many notifications it has taken out of the ring from this device.
    std::uint64_t tails;
    // Offset of a word for each rank of the world: how many notifications this device has sent to it.
    std::uint64_t heads;
    // Offset of a word for each device: barriers of the world to which all its ranks have come.
    std::uint64_t arrived;
    // Offset of the words that ranks of one device meet at, a `SIGNAL_STRIDE` apart.
    std::uint64_t meetings;
    // Offset of a `RankState` for each rank of the device.
    std::uint64_t states;
    // Offset of a `RankPosition` for each rank and source device.
    std::uint64_t positions;
    // Offset of the queues, one for each rank: `spill` words.
    std::uint64_t queues;
    // Offset of a `RankPart` for each window and each rank of the world.
    std::uint64_t parts;
    // Offset of a word for each window: how many ranks of the device have come to its collectives.
    std::uint64_t calls;
    // Offset of the `RankReport`.
    std::uint64_t report;
    // Address of the `WaitReport` of requests that a NIC did not carry out.
    std::uint64_t nic_report;
    // Address of the `LogLine`s in host memory; 0: there is no log.
    std::uint64_t log;
    // Address of the word in host memory that says how many lines the host has read.
    std::uint64_t log_read;
    // What aborts; see `WaitBounds`.
    std::uint64_t abort;
    // Nanoseconds after which a call gives up.
    std::uint64_t timeout_ns;
    // Devices of the world.
    std::uint32_t devices;
    // This device.
    std::uint32_t device;
    // Ranks of the world.
    std::uint32_t size;
    // The first rank of this device.
    std::uint32_t first;
    // Ranks of this device.
    std::uint32_t per_device;
    // Devices that are reached through a NIC.
    std::uint32_t far;
    // Packets of a ring, a power of two.
    std::uint32_t slots;
    // Words of a queue, a power of two.
    std::uint32_t spill;
    // Lines of the log, a power of two.
    std::uint32_t log_lines;
    // Zero.
    std::uint32_t reserved;
};
static_assert(sizeof(Ranks) == 216 && alignof(Ranks) == 8);
static_assert(offsetof(Ranks, control) == 0);
static_assert(offsetof(Ranks, controls) == 8);
static_assert(offsetof(Ranks, memories) == 16);
static_assert(offsetof(Ranks, firsts) == 24);
static_assert(offsetof(Ranks, memory) == 32);
static_assert(offsetof(Ranks, bytes) == 40);
static_assert(offsetof(Ranks, rings) == 48);
static_assert(offsetof(Ranks, tails) == 56);
static_assert(offsetof(Ranks, heads) == 64);
static_assert(offsetof(Ranks, arrived) == 72);
static_assert(offsetof(Ranks, meetings) == 80);
static_assert(offsetof(Ranks, states) == 88);
static_assert(offsetof(Ranks, positions) == 96);
static_assert(offsetof(Ranks, queues) == 104);
static_assert(offsetof(Ranks, parts) == 112);
static_assert(offsetof(Ranks, calls) == 120);
static_assert(offsetof(Ranks, report) == 128);
static_assert(offsetof(Ranks, nic_report) == 136);
static_assert(offsetof(Ranks, log) == 144);
static_assert(offsetof(Ranks, log_read) == 152);
static_assert(offsetof(Ranks, abort) == 160);
static_assert(offsetof(Ranks, timeout_ns) == 168);
static_assert(offsetof(Ranks, devices) == 176);
static_assert(offsetof(Ranks, device) == 180);
static_assert(offsetof(Ranks, size) == 184);
static_assert(offsetof(Ranks, first) == 188);
static_assert(offsetof(Ranks, per_device) == 192);
static_assert(offsetof(Ranks, far) == 196);
static_assert(offsetof(Ranks, slots) == 200);
static_assert(offsetof(Ranks, spill) == 204);
static_assert(offsetof(Ranks, log_lines) == 208);
static_assert(offsetof(Ranks, reserved) == 212);

// What a device rank knows of itself; its block writes it, and others read some of it when something has failed.
struct RankState {
    // A `RankPhase`.
    std::uint64_t phase;
    // Barriers of the world that it has come to.
    std::uint64_t world_barriers;
    // The same of its device.
    std::uint64_t device_barriers;
    // The number of the first notification in its queue.
    std::uint64_t first;
    // How many are in it.
    std::uint64_t count;
    // A bit for each window of the world that is open.
    std::uint64_t world_windows;
    // The same of its device.
    std::uint64_t device_windows;
    // A `WaitStatus`: a barrier has failed so, and there can be no other.
    std::uint64_t broken;
};
static_assert(sizeof(RankState) == 64 && alignof(RankState) == 8);
static_assert(offsetof(RankState, phase) == 0);
static_assert(offsetof(RankState, world_barriers) == 8);
static_assert(offsetof(RankState, device_barriers) == 16);
static_assert(offsetof(RankState, first) == 24);
static_assert(offsetof(RankState, count) == 32);
static_assert(offsetof(RankState, world_windows) == 40);
static_assert(offsetof(RankState, device_windows) == 48);
static_assert(offsetof(RankState, broken) == 56);

// How far a rank has read the ring from a device.
struct RankPosition {
    // Notifications taken out of it.
    std::uint64_t next;
    // How many of them the device was told.
    std::uint64_t told;
};
static_assert(sizeof(RankPosition) == 16 && alignof(RankPosition) == 8);
static_assert(offsetof(RankPosition, next) == 0);
static_assert(offsetof(RankPosition, told) == 8);

// A rank's share of a window.
struct RankPart {
    // Where it begins in its device's memory, in bytes, and one more; 0: there is none.
    std::uint64_t behind;
    // Its length in bytes.
    std::uint64_t bytes;
};
static_assert(sizeof(RankPart) == 16 && alignof(RankPart) == 8);
static_assert(offsetof(RankPart, behind) == 0);
static_assert(offsetof(RankPart, bytes) == 8);

// Why a call of a device rank failed; the first failure of a device stays.
struct RankReport {
    // A `WaitStatus`; 0 (ok): nothing failed. Written last: when it is not 0, the rest is there.
    std::uint32_t status;
    // Not 0 once a failing rank has taken the slot.
    std::uint32_t claimed;
    // A `RankCall`.
    std::uint32_t call;
    // Whose call.
    std::uint32_t rank;
    // The other rank: the target, or the source that was waited for. All ones: any, or none.
    std::uint32_t peer;
    // The window. All ones: any, or none.
    std::uint32_t window;
    // The tag. All ones: any, or none.
    std::uint32_t tag;
    // A rank that was missing: which had not come to the barrier, or had not joined, or had finished. All ones: none is known.
    std::uint32_t missing;
    // The `RankPhase` of that rank.
    std::uint32_t phase;
    // Of an unsent notification: 1 if the rank's own queue was full, too.
    std::uint32_t full;
    // Notifications wanted, or the first byte that was asked for.
    std::uint64_t wanted;
    // Notifications there were, or the bytes of the window.
    std::uint64_t have;
    // Nanoseconds waited; of a call that was refused how many bytes it was for.
    std::uint64_t waited_ns;
};
static_assert(sizeof(RankReport) == 64 && alignof(RankReport) == 8);
static_assert(offsetof(RankReport, status) == 0);
static_assert(offsetof(RankReport, claimed) == 4);
static_assert(offsetof(RankReport, call) == 8);
static_assert(offsetof(RankReport, rank) == 12);
static_assert(offsetof(RankReport, peer) == 16);
static_assert(offsetof(RankReport, window) == 20);
static_assert(offsetof(RankReport, tag) == 24);
static_assert(offsetof(RankReport, missing) == 28);
static_assert(offsetof(RankReport, phase) == 32);
static_assert(offsetof(RankReport, full) == 36);
static_assert(offsetof(RankReport, wanted) == 40);
static_assert(offsetof(RankReport, have) == 48);
static_assert(offsetof(RankReport, waited_ns) == 56);

// A line of the log of device ranks.
struct LogLine {
    // Which line it is, from 1; written last.
    std::uint64_t number;
    // Whose.
    std::uint32_t rank;
    // Values; two bits for each from bit 8 on: unsigned, signed, floating-point.
    std::uint32_t kinds;
    // Text with `{}` for each value, ended by a zero.
    std::uint64_t text[8];
    // The values' bits.
    std::uint64_t values[6];
};
static_assert(sizeof(LogLine) == 128 && alignof(LogLine) == 8);
static_assert(offsetof(LogLine, number) == 0);
static_assert(offsetof(LogLine, rank) == 8);
static_assert(offsetof(LogLine, kinds) == 12);
static_assert(offsetof(LogLine, text) == 16);
static_assert(offsetof(LogLine, values) == 80);

// The collectives of a communicator, as kernels take them.
struct Collective {
    // Address of 64-bit addresses, one for each rank: of its inbox, as this GPU sees it.
    std::uint64_t inboxes;
    // Ranks of the communicator.
    std::uint64_t ranks;
    // This rank.
    std::uint64_t rank;
    // Packets, of 8 bytes of data, that a rank can send to another at once by one ring. Through a NIC words of a row, an even
    // number.
    std::uint64_t len;
    // Packets of a ring: a power of two, twice `len` or more. Through a NIC 0.
    std::uint64_t ring;
    // Rings that each rank has in an inbox. A block of more than they all carry goes in pieces.
    std::uint64_t rings;
    // Address of a `RingState` for each ring but the first, in this GPU's memory.
    std::uint64_t states;
    // Bytes that there is room for: of the largest block that a rank gives another.
    std::uint64_t bytes;
    // Lanes of large blocks, behind the rings in the inbox; 0: there are none.
    std::uint64_t lanes;
    // Bytes of a piece of a large block, a multiple of 16.
    std::uint64_t piece;
    // Address of a `LaneCounters` for each lane and rank, in this GPU's memory.
    std::uint64_t counters;
    // Its `CollectiveState`, in this GPU's memory.
    std::uint64_t state;
    // What aborts; see `WaitBounds`.
    std::uint64_t abort;
    // Nanoseconds after which a wait gives up.
    std::uint64_t timeout_ns;
    // Its `WaitReport`; 0: there is none.
    std::uint64_t report;
    // Address of the `Window` that it goes by, where some ranks are reached through a NIC. 0: all ranks map each other's
    // memory.
    std::uint64_t nic;
    // Not 0: additions to words of all inboxes are atomic from here. 0: a link has no native atomics.
    std::uint64_t adds;
    // The first of `inboxes`, of as many ranks as there are: found in a kernel's constants quicker than in memory.
    std::uint64_t near[8];
};
static_assert(sizeof(Collective) == 200 && alignof(Collective) == 8);
static_assert(offsetof(Collective, inboxes) == 0);
static_assert(offsetof(Collective, ranks) == 8);
static_assert(offsetof(Collective, rank) == 16);
static_assert(offsetof(Collective, len) == 24);
static_assert(offsetof(Collective, ring) == 32);
static_assert(offsetof(Collective, rings) == 40);
static_assert(offsetof(Collective, states) == 48);
static_assert(offsetof(Collective, bytes) == 56);
static_assert(offsetof(Collective, lanes) == 64);
static_assert(offsetof(Collective, piece) == 72);
static_assert(offsetof(Collective, counters) == 80);
static_assert(offsetof(Collective, state) == 88);
static_assert(offsetof(Collective, abort) == 96);
static_assert(offsetof(Collective, timeout_ns) == 104);
static_assert(offsetof(Collective, report) == 112);
static_assert(offsetof(Collective, nic) == 120);
static_assert(offsetof(Collective, adds) == 128);
static_assert(offsetof(Collective, near) == 136);

// How far a collective is in a ring, in the memory of its device. The rings of all ranks with one number have one.
struct RingState {
    // Runs so far.
    std::uint64_t runs;
    // Packets that they have had: the same of every rank's ring, as all ranks know how many a run has.
    std::uint64_t position;
    // The position up to which all others are known to have taken their packets. Through a NIC the last run in which this
    // rank has waited for all others; if that is not the last of all, it does so ahead of the next.
    std::uint64_t heard;
    // Ignored.
    std::uint64_t reserved;
};
static_assert(sizeof(RingState) == 32 && alignof(RingState) == 8);
static_assert(offsetof(RingState, runs) == 0);
static_assert(offsetof(RingState, position) == 8);
static_assert(offsetof(RingState, heard) == 16);
static_assert(offsetof(RingState, reserved) == 24);

// What a collective remembers, in the memory of its device.
struct CollectiveState {
    // Of the first ring, or through a NIC; barriers over mapped memory are not among its runs.
    RingState ring;
    // Barriers over mapped memory so far.
    std::uint64_t met;
    // Keeps what changes on a cache line of its own; ignored.
    std::uint64_t reserved[3];
    // Itself, as its handle has it: what is out of the way takes it from here, so that the handle stays among the kernel's
    // parameters.
    Collective collective;
    // Through a NIC: in whose shares are rows of `len` words, two turns of one for each rank and one more, and a signal for
    // each rank.
    Window window;
};
static_assert(sizeof(CollectiveState) == 640 && alignof(CollectiveState) == 8);
static_assert(offsetof(CollectiveState, ring) == 0);
static_assert(offsetof(CollectiveState, met) == 32);
static_assert(offsetof(CollectiveState, reserved) == 40);
static_assert(offsetof(CollectiveState, collective) == 64);
static_assert(offsetof(CollectiveState, window) == 264);

// A team of PEs of OpenSHMEM, or a context of one, as kernels use it: `mp/shmem.cuh`. Its address is the program's handle.
struct ShmemTeam {
    // Address of the number in the world of each PE, of 64 bits; 0: the numbers are those of the world.
    std::uint64_t members;
    // PEs. 0: there is no such team.
    std::uint64_t pes;
    // Address of the `CollectiveState` that it synchronises by; 0, of a context: it does not.
    std::uint64_t collective;
};
static_assert(sizeof(ShmemTeam) == 24 && alignof(ShmemTeam) == 8);
static_assert(offsetof(ShmemTeam, members) == 0);
static_assert(offsetof(ShmemTeam, pes) == 8);
static_assert(offsetof(ShmemTeam, collective) == 16);

// What kernels know of their PE, in a variable of their module: `mp/shmem.cuh`.
struct ShmemWorld {
    // The symmetric heaps of the PEs' devices.
    Window heap;
    // Where this PE's begins.
    std::uint64_t base;
    // `SHMEM_DEVICE_TEAM_WORLD`, and what `SHMEM_DEVICE_CTX_DEFAULT` is a context of.
    ShmemTeam all;
    // `SHMEM_DEVICE_TEAM_SHARED`.
    ShmemTeam shared;
    // Address of the first of the teams and contexts that the program has made.
    std::uint64_t made;
    // The address behind the last.
    std::uint64_t made_end;
    // What `SHMEM_DEVICE_TEAM_WORLD` synchronises by, here as well: a look at memory less.
    Collective meeting;
};
static_assert(sizeof(ShmemWorld) == 648 && alignof(ShmemWorld) == 8);
static_assert(offsetof(ShmemWorld, heap) == 0);
static_assert(offsetof(ShmemWorld, base) == 376);
static_assert(offsetof(ShmemWorld, all) == 384);
static_assert(offsetof(ShmemWorld, shared) == 408);
static_assert(offsetof(ShmemWorld, made) == 432);
static_assert(offsetof(ShmemWorld, made_end) == 440);
static_assert(offsetof(ShmemWorld, meeting) == 448);

// Pieces of large blocks in one lane between this rank and another, modulo 2^32.
struct LaneCounters {
    // Sent to it.
    std::uint32_t sent;
    // Taken from it.
    std::uint32_t taken;
};
static_assert(sizeof(LaneCounters) == 8 && alignof(LaneCounters) == 4);
static_assert(offsetof(LaneCounters, sent) == 0);
static_assert(offsetof(LaneCounters, taken) == 4);

// Where one of the `Blocks` with a table is.
struct Extent {
    // Its first byte, from the beginning of the memory.
    std::uint64_t at;
    // Its length in bytes.
    std::uint64_t bytes;
};
static_assert(sizeof(Extent) == 16 && alignof(Extent) == 8);
static_assert(offsetof(Extent, at) == 0);
static_assert(offsetof(Extent, bytes) == 8);

// What a rank gives the others in a run of a collective, or takes from them: a block for each rank from `first` to before `end`,
// for the others none.
struct Blocks {
    // Where the memory begins.
    std::uint64_t memory;
    // Bytes from block to block; 0: all are the same one.
    std::uint64_t stride;
    // Bytes of a block, …
    std::uint64_t bytes;
    // … as far as they are before this byte.
    std::uint64_t total;
    // Address of an `Extent` for each rank, instead of the last three; 0: there is none.
    std::uint64_t table;
    // The first rank.
    std::uint32_t first;
    // The rank behind the last.
    std::uint32_t end;
};
static_assert(sizeof(Blocks) == 48 && alignof(Blocks) == 8);
static_assert(offsetof(Blocks, memory) == 0);
static_assert(offsetof(Blocks, stride) == 8);
static_assert(offsetof(Blocks, bytes) == 16);
static_assert(offsetof(Blocks, total) == 24);
static_assert(offsetof(Blocks, table) == 32);
static_assert(offsetof(Blocks, first) == 40);
static_assert(offsetof(Blocks, end) == 44);

// A run of a collective: what comes is placed, or combined in rank order.
struct CollectiveRun {
    // What the others get.
    Blocks gives;
    // Where what they give goes. Of a reduction all in one place.
    Blocks takes;
    // An `Element`.
    std::uint32_t element;
    // A `Reduction`; `NO_REDUCTION`: nothing is combined.
    std::uint32_t reduction;
};
static_assert(sizeof(CollectiveRun) == 104 && alignof(CollectiveRun) == 8);
static_assert(offsetof(CollectiveRun, gives) == 0);
static_assert(offsetof(CollectiveRun, takes) == 48);
static_assert(offsetof(CollectiveRun, element) == 96);
static_assert(offsetof(CollectiveRun, reduction) == 100);

// A neighbour of a halo exchange, as a launch works with it. All zeros: there is none of this number.
struct ExchangeLink {
    // Its `ExchangeState`, in this GPU's memory.
    std::uint64_t state;
    // This rank's signal, in the neighbour's memory; 0: it is behind a NIC.
    std::uint64_t theirs;
    // The neighbour's signal, in this rank's memory.
    std::uint64_t mine;
    // Its `WaitReport`.
    std::uint64_t report;
    // Where cell (0, 0, 0) of the field written lies for the neighbour, or in what is sent to it. 0: nothing is to be stored.
    std::uint64_t twin;
};
static_assert(sizeof(ExchangeLink) == 40 && alignof(ExchangeLink) == 8);
static_assert(offsetof(ExchangeLink, state) == 0);
static_assert(offsetof(ExchangeLink, theirs) == 8);
static_assert(offsetof(ExchangeLink, mine) == 16);
static_assert(offsetof(ExchangeLink, report) == 24);
static_assert(offsetof(ExchangeLink, twin) == 32);

// What every launch of a halo exchange has, whatever the number of neighbours; behind it come the links.
struct ExchangeHead {
    // What ends waits.
    WaitBounds bounds;
    // Address of a 32-bit word that is not 0 once a wait has failed: nothing is waited for or signalled any more.
    std::uint64_t failed;
    // Address of an `ExchangeRoute` for each neighbour, of the field written.
    std::uint64_t sends;
    // The same of the field whose ghosts are read.
    std::uint64_t reads;
    // Neighbours.
    std::uint32_t count;
    // 1: blocks at borders wait for the neighbours; 0: something ahead of the launch does.
    std::uint32_t waits;
    // 1: blocks at borders copy what has come into receive buffers to the ghosts.
    std::uint32_t unpacks;
    // Keeps the size a multiple of 8; ignored.
    std::uint32_t reserved;
};
static_assert(sizeof(ExchangeHead) == 56 && alignof(ExchangeHead) == 8);
static_assert(offsetof(ExchangeHead, bounds) == 0);
static_assert(offsetof(ExchangeHead, failed) == 16);
static_assert(offsetof(ExchangeHead, sends) == 24);
static_assert(offsetof(ExchangeHead, reads) == 32);
static_assert(offsetof(ExchangeHead, count) == 40);
static_assert(offsetof(ExchangeHead, waits) == 44);
static_assert(offsetof(ExchangeHead, unpacks) == 48);
static_assert(offsetof(ExchangeHead, reserved) == 52);

// The phases of this rank with one neighbour; zero at first. Only the kernels and streams of the exchange touch it.
struct ExchangeState {
    // Phases finished.
    std::uint64_t epoch;
    // Phases that the neighbour is known to have finished.
    std::uint64_t seen;
    // Blocks that have finished the phase under way.
    std::uint64_t arrived;
    // Parts of the receive buffer that somebody copies to the ghosts, …
    std::uint64_t claimed;
    // … and that have been copied.
    std::uint64_t unpacked;
    // Keeps the size a cache line; ignored.
    std::uint64_t reserved0;
    // As `reserved0`.
    std::uint64_t reserved1;
    // As `reserved0`.
    std::uint64_t reserved2;
};
static_assert(sizeof(ExchangeState) == 64 && alignof(ExchangeState) == 8);
static_assert(offsetof(ExchangeState, epoch) == 0);
static_assert(offsetof(ExchangeState, seen) == 8);
static_assert(offsetof(ExchangeState, arrived) == 16);
static_assert(offsetof(ExchangeState, claimed) == 24);
static_assert(offsetof(ExchangeState, unpacked) == 32);
static_assert(offsetof(ExchangeState, reserved0) == 40);
static_assert(offsetof(ExchangeState, reserved1) == 48);
static_assert(offsetof(ExchangeState, reserved2) == 56);

// Consecutive bytes of a message that is in several pieces, and where they go.
struct MessagePiece {
    // The first.
    std::uint64_t from;
    // Where that goes.
    std::uint64_t to;
    // How many.
    std::uint64_t bytes;
};
static_assert(sizeof(MessagePiece) == 24 && alignof(MessagePiece) == 8);
static_assert(offsetof(MessagePiece, from) == 0);
static_assert(offsetof(MessagePiece, to) == 8);
static_assert(offsetof(MessagePiece, bytes) == 16);

// A copy of a box: rows of consecutive bytes in planes. Nothing if `to` is 0.
struct ExchangeCopy {
    // Its first byte.
    std::uint64_t from;
    // Where that goes.
    std::uint64_t to;
    // Bytes of a row.
    std::uint64_t row;
    // Rows of a plane.
    std::uint64_t rows;
    // Planes.
    std::uint64_t planes;
    // Bytes from row to row, and from plane to plane, …
    std::uint64_t from_row;
    // … in the source, …
    std::uint64_t from_plane;
    // … and in the target.
    std::uint64_t to_row;
    // As `to_row`.
    std::uint64_t to_plane;
};
static_assert(sizeof(ExchangeCopy) == 72 && alignof(ExchangeCopy) == 8);
static_assert(offsetof(ExchangeCopy, from) == 0);
static_assert(offsetof(ExchangeCopy, to) == 8);
static_assert(offsetof(ExchangeCopy, row) == 16);
static_assert(offsetof(ExchangeCopy, rows) == 24);
static_assert(offsetof(ExchangeCopy, planes) == 32);
static_assert(offsetof(ExchangeCopy, from_row) == 40);
static_assert(offsetof(ExchangeCopy, from_plane) == 48);
static_assert(offsetof(ExchangeCopy, to_row) == 56);
static_assert(offsetof(ExchangeCopy, to_plane) == 64);

// The border that one neighbour has of one field, and how it goes there.
struct ExchangeRoute {
    // The first cell of the box that is sent.
    std::int32_t first0;
    // Along the second axis.
    std::int32_t first1;
    // Along the third.
    std::int32_t first2;
    // The cell behind its last one.
    std::int32_t end0;
    // Along the second axis.
    std::int32_t end1;
    // Along the third.
    std::int32_t end2;
    // Bytes of a cell.
    std::uint32_t cell;
    // The remote key of `put_to`.
    std::uint32_t to_key;
    // Cell (0, 0, 0) of the field.
    std::uint64_t cells;
    // Bytes from row to row of the field, and from plane to plane.
    std::uint64_t row;
    // As `row`.
    std::uint64_t plane;
    // The same where the cells are stored for the neighbour: see `ExchangeLink::twin`.
    std::uint64_t twin_row;
    // As `twin_row`.
    std::uint64_t twin_plane;
    // From the field to where its neighbour has it, or to what is sent.
    ExchangeCopy send;
    // From a receive buffer to the ghosts.
    ExchangeCopy unpack;
    // Behind a NIC: address of the `mp::QueuePair` to the neighbour (`mp/qp.cuh`).
    std::uint64_t queue;
    // What is put, …
    std::uint64_t put_from;
    // … how many bytes, …
    std::uint64_t put_bytes;
    // … where to.
    std::uint64_t put_to;
    // This rank's signal, in the neighbour's memory.
    std::uint64_t signal;
    // The remote key of `signal`.
    std::uint32_t signal_key;
    // The local key of `put_from`.
    std::uint32_t from_key;
};
static_assert(sizeof(ExchangeRoute) == 264 && alignof(ExchangeRoute) == 8);
static_assert(offsetof(ExchangeRoute, first0) == 0);
static_assert(offsetof(ExchangeRoute, first1) == 4);
static_assert(offsetof(ExchangeRoute, first2) == 8);
static_assert(offsetof(ExchangeRoute, end0) == 12);
static_assert(offsetof(ExchangeRoute, end1) == 16);
static_assert(offsetof(ExchangeRoute, end2) == 20);
static_assert(offsetof(ExchangeRoute, cell) == 24);
static_assert(offsetof(ExchangeRoute, to_key) == 28);
static_assert(offsetof(ExchangeRoute, cells) == 32);
static_assert(offsetof(ExchangeRoute, row) == 40);
static_assert(offsetof(ExchangeRoute, plane) == 48);
static_assert(offsetof(ExchangeRoute, twin_row) == 56);
static_assert(offsetof(ExchangeRoute, twin_plane) == 64);
static_assert(offsetof(ExchangeRoute, send) == 72);
static_assert(offsetof(ExchangeRoute, unpack) == 144);
static_assert(offsetof(ExchangeRoute, queue) == 216);
static_assert(offsetof(ExchangeRoute, put_from) == 224);
static_assert(offsetof(ExchangeRoute, put_bytes) == 232);
static_assert(offsetof(ExchangeRoute, put_to) == 240);
static_assert(offsetof(ExchangeRoute, signal) == 248);
static_assert(offsetof(ExchangeRoute, signal_key) == 256);
static_assert(offsetof(ExchangeRoute, from_key) == 260);

}  // namespace mp
