//! What Rust and the device code of this crate share, each declared once, here: see `shared/`. `include/mp/layout.cuh` is
//! generated from it. This file knows layouts only: what the fields are for is said in their documentation and acted upon
//! elsewhere.

use crate::shared::Header;
use crate::{shared_constants, shared_enum, shared_structs};

shared_constants! {
    /// Bytes of a packet.
    pub const PACKET: u64 = 16 as packet_size;
    /// Bytes of a message in one packet; of 32 bits, so that dividing by it is cheap.
    pub const PACKET_BYTES: u32 = 12 as packet_bytes;
    /// Packets of a message that a thread takes at most in the quick way, for which a block has threads enough.
    pub const PACKETS_A_THREAD: u32 = 2 as packets_a_thread;
    /// Slots for packets of one pair: how many small messages may be on their way or not yet taken.
    pub const PACKET_SLOTS: u64 = 4 as packet_slots;
    /// Bytes between two signals: a cache line.
    pub const SIGNAL_STRIDE: u64 = 64 as signal_stride;
    /// Data up to so many bytes travel inside the entry of a NIC's queue: the source is read once, and is free at once.
    pub const INLINE_BYTES: u64 = 512 as inline_bytes;
    /// Ranks whose rows of a window's or collective's table are in its handle, too.
    pub const NEAR_RANKS: u64 = 8 as near_ranks;
    /// Bytes of a reply slot, of which a `Context` has one for each block of its queue.
    pub const REPLY_BYTES: u64 = 64 as reply_bytes;
    /// Pieces of a large collective on their way to one rank in one lane.
    pub const LANE_SLOTS: u32 = 4 as lane_slots;
    /// Bytes of the smallest piece, of which all others are multiples.
    pub const LEAST_PIECE: u64 = 1024 as least_piece;
    /// Packets of the smallest ring of a collective, of 16 bytes: so far a rank that only gives may be ahead.
    pub const LEAST_RING: u64 = 64 as least_ring;
    /// Words of a block that a ring carries at least, where several do: with those of another rank as many as a block of threads has threads.
    pub const LEAST_SHARE: u64 = 256 as least_share;
    /// Bytes between two words of lanes: a cache line.
    pub const LANE_STRIDE: u64 = 64 as lane_stride;
    /// What `CollectiveRun::reduction` is if blocks are placed, not combined.
    pub const NO_REDUCTION: u32 = 0xffff_ffff as no_reduction;
    /// Steps of the longest list in one launch.
    pub const MAX_STEPS: u32 = 16 as max_steps;
    /// Bits of a device rank's number in a notification.
    pub const RANK_BITS: u32 = 24 as rank_bits;
    /// Bits of a window's number in a notification.
    pub const WINDOW_BITS: u32 = 16 as window_bits;
    /// Bits of a tag in a notification.
    pub const TAG_BITS: u32 = 24 as tag_bits;
    /// Windows that a device rank may have open at once on each of its two communicators.
    pub const RANK_WINDOWS: u32 = 64 as rank_windows;
    /// Steps of a short list: most lists are, and a launch is the quicker the less it carries.
    pub const FEW_STEPS: u32 = 3 as few_steps;
    /// `SHMEM_DEVICE_CTX_DEFAULT`.
    pub const SHMEM_DEVICE_CONTEXT: u64 = 2 as shmem_device_context;
    /// `SHMEM_DEVICE_TEAM_WORLD`.
    pub const SHMEM_DEVICE_WORLD: u64 = 3 as shmem_device_world;
    /// `SHMEM_DEVICE_TEAM_SHARED`.
    pub const SHMEM_DEVICE_SHARED: u64 = 4 as shmem_device_shared;
}

shared_enum! {
    /// How a call of a kernel ended.
    pub enum WaitStatus {
        /// The signal reached the expected value.
        Ok = 0 as ok,
        /// The abort word was set first.
        Aborted = 1 as aborted,
        /// The deadline passed first.
        TimedOut = 2 as timed_out,
        /// A request to the peer's NIC failed first: nothing more goes that way.
        PathFailed = 3 as path_failed,
        /// Refused: the window has no such rank.
        NoSuchRank = 4 as no_such_rank,
        /// Refused: a rank has no such signal.
        NoSuchSignal = 5 as no_such_signal,
        /// Refused: some of the bytes, or elements, lie outside.
        OutOfRange = 6 as out_of_range,
        /// Refused: an atomic operation at no multiple of its size, on a GPU's own memory through a NIC, or by a GPU on memory of the host that
        /// is another rank's and that a NIC changes.
        NotAtomic = 7 as not_atomic,
        /// A bounded queue is full, and what it is asked for is not in it.
        NoRoom = 8 as no_room,
        /// Refused: an argument that no call of this kind takes.
        BadArgument = 9 as bad_argument,
        /// Refused: no team, and no context, for kernels has this handle.
        NoSuchTeam = 10 as no_such_team,
    }
}

shared_enum! {
    /// What a device rank was doing when a call of it failed.
    pub enum RankCall {
        /// `put` or `put_notify`.
        Put = 0 as rank_put,
        /// `get` or `get_notify`.
        Get = 1 as rank_get,
        /// Telling the target of a put or a get.
        Notify = 2 as rank_notify,
        /// `wait_notifications` or `test_notifications`.
        Wait = 3 as rank_wait,
        /// `barrier`, also that of another call.
        Barrier = 4 as rank_barrier,
        /// `win_create`.
        Create = 5 as rank_create,
        /// `win_free`.
        Free = 6 as rank_free,
    }
}

shared_enum! {
    /// Words of a device that its ranks meet at, and those of its log.
    pub enum MeetingWord {
        /// Ranks that have come to barriers of the world.
        WorldHere = 0 as world_here,
        /// Barriers of the world that are over.
        WorldOpen = 1 as world_open,
        /// Ranks that have come to barriers of the device.
        DeviceHere = 2 as device_here,
        /// Barriers of the device that are over.
        DeviceOpen = 3 as device_open,
        /// Lines that have been taken for writing.
        LogHead = 4 as log_head,
        /// Lines that were lost.
        LogLost = 5 as log_lost,
    }
}

shared_enum! {
    /// How far a device rank has got.
    pub enum RankPhase {
        /// Its block has not called `join`.
        Absent = 0 as rank_absent,
        /// It has, and runs, or has ended without `finish`.
        Joined = 1 as rank_joined,
        /// It has finished.
        Finished = 2 as rank_finished,
    }
}

shared_enum! {
    /// How what a word holds is compared with a value.
    pub enum Comparison {
        /// It is the value.
        Eq = 0 as compare_eq,
        /// It is not.
        Ne = 1 as compare_ne,
        /// It is larger.
        Gt = 2 as compare_gt,
        /// It is the value or larger.
        Ge = 3 as compare_ge,
        /// It is less.
        Lt = 4 as compare_lt,
        /// It is the value or less.
        Le = 5 as compare_le,
        /// It has one of the value's bits at least.
        AnyBit = 6 as compare_any_bit,
    }
}

shared_enum! {
    /// How an atomic operation changes a word.
    pub enum AtomicKind {
        /// Not: it is read.
        Fetch = 0 as atomic_kind_fetch,
        /// It becomes the value.
        Swap = 1 as atomic_kind_swap,
        /// It becomes the value if it is what is expected.
        CompareSwap = 2 as atomic_kind_compare_swap,
        /// The value is added.
        Add = 3 as atomic_kind_add,
        /// Of its bits those stay that the value has.
        And = 4 as atomic_kind_and,
        /// It gets the value's bits.
        Or = 5 as atomic_kind_or,
        /// The value's bits change.
        Xor = 6 as atomic_kind_xor,
        /// It becomes the value if that is less.
        Min = 7 as atomic_kind_min,
        /// It becomes the value if that is larger.
        Max = 8 as atomic_kind_max,
    }
}

shared_enum! {
    /// What a step of a stream operation does.
    pub enum StepKind {
        /// Posts the buffer of a receive.
        Post = 0 as step_post,
        /// Sends.
        Send = 1 as step_send,
        /// Takes a message.
        Recv = 2 as step_recv,
        /// Gets from a window.
        Get = 3 as step_get,
    }
}

shared_enum! {
    /// What the blocks of a launch do before a step.
    pub enum Meeting {
        /// They go on.
        None = 0 as meet_none,
        /// They wait for one another.
        All = 1 as meet_all,
        /// They end, and the last one takes the step, which is the last of the list.
        Last = 2 as meet_last,
    }
}

shared_enum! {
    /// What is combined, or changed by an atomic operation.
    pub enum Element {
        /// `double`.
        F64 = 0 as element_f64,
        /// `float`.
        F32 = 1 as element_f32,
        /// 64-bit integers without sign.
        U64 = 2 as element_u64,
        /// 64-bit integers.
        I64 = 3 as element_i64,
        /// 32-bit integers without sign.
        U32 = 4 as element_u32,
        /// 32-bit integers.
        I32 = 5 as element_i32,
        /// Floating point of 16 bits, IEEE 754: `mp::f16`.
        F16 = 6 as element_f16,
        /// The upper 16 bits of a `float`: `mp::bf16`.
        Bf16 = 7 as element_bf16,
    }
}

shared_enum! {
    /// How a collective combines.
    pub enum Reduction {
        /// The sum; integers wrap around.
        Sum = 0 as reduction_sum,
        /// The smallest.
        Min = 1 as reduction_min,
        /// The largest.
        Max = 2 as reduction_max,
        /// The product; integers wrap around.
        Prod = 3 as reduction_prod,
        /// Bit by bit, of integers.
        And = 4 as reduction_and,
        /// Bit by bit, of integers.
        Or = 5 as reduction_or,
        /// Bit by bit, of integers.
        Xor = 6 as reduction_xor,
    }
}

shared_structs! {
    /// What ends the waits of a GPU's kernels, in its own memory. A word of the host takes a GPU a microsecond or two to read, and a
    /// thousand blocks that wait and read it at once keep those that compute from their work for up to a millisecond: so one of
    /// those that wait reads it for all, now and then.
    pub struct AbortRelay {
        /// Address, as the GPU sees it, of the host's word: any value but 0 aborts.
        pub word: u64,
        /// When it is read next, by `clock_ns`.
        pub next_ns: u64,
        /// What it held when it was read last.
        pub seen: u64,
    }

    /// What ends a wait in a kernel besides its signal.
    pub struct WaitBounds {
        /// Address of what aborts it: on a GPU an `AbortRelay`, on the CPU a word, of which any value but 0 aborts. 0: nothing does.
        pub abort: u64,
        /// Nanoseconds after which the wait gives up.
        pub timeout_ns: u64,
    }

    /// Why a call of a kernel failed. The host zeroes the slot before the launch; the first failure stays in it.
    pub struct WaitReport {
        /// A `WaitStatus`; 0 (ok): nothing failed. Written last: when it is not 0, the rest is there.
        pub status: u32,
        /// Not 0 once a failing thread of the GPU has taken the slot.
        pub claimed: u32,
        /// The value waited for. Of a call that was refused: the first rank, signal, byte or element it was for.
        pub expected: u64,
        /// The value of the signal when the wait ended. Of a call that was refused: how many there are.
        pub seen: u64,
        /// Nanoseconds waited, counted from the first look at the clock. Of a call that was refused: how many it was for.
        pub waited_ns: u64,
    }

    /// What the blocks of a launch meet by: see `mp/meeting.cuh`.
    pub struct BlockSignals {
        /// Address of the signals, in the GPU's memory: of each block how often it has come, zero before the first launch.
        pub signals: u64,
        /// What ends a wait.
        pub bounds: WaitBounds,
        /// Address of the `WaitReport` of meetings that failed.
        pub report: u64,
    }

    /// One end of a pair of prepared operations, as a kernel works with it: addresses as its GPU sees them. Which end it is
    /// says the struct around it. Constant between starts.
    pub struct Message {
        /// The buffer: what is sent, or where it goes.
        pub memory: u64,
        /// Length of the message in bytes.
        pub len: u64,
        /// Of a send in one piece: the receiver's buffer. Of a receive from a CPU: where the message waits to be fetched.
        /// Otherwise 0.
        pub target: u64,
        /// The receiver's slots for packets; 0: the message goes in one piece.
        pub inbox: u64,
        /// The signal this end waits on: a sender's credit, a receiver's arrivals.
        pub mine: u64,
        /// The signal this end raises, which the other waits on.
        pub theirs: u64,
        /// Its `MessageState`, in this GPU's memory.
        pub state: u64,
        /// What aborts; see `WaitBounds`.
        pub abort: u64,
        /// Nanoseconds after which a wait gives up.
        pub timeout_ns: u64,
        /// Its `WaitReport`; 0: there is none.
        pub report: u64,
        /// Its `NicEnd`, if the way to the other end goes through a NIC; 0: the other's memory is mapped.
        pub nic: u64,
    }

    /// How one end of a pair reaches the other through a NIC. Constant between starts.
    pub struct NicEnd {
        /// The end itself, as its handle has it.
        pub message: Message,
        /// Address of the `mp::QueuePair` to the other's rank (`mp/qp.cuh`).
        pub queue: u64,
        /// The signal this end raises, in the other's memory. 0: none, as of a put without a signal.
        pub theirs: u64,
        /// Of a send: where messages go, in the other's memory. Of a get: where they come from.
        pub target: u64,
        /// How many messages may be on their way, each in a slot of its own; 0: one, into the posted buffer.
        pub slots: u64,
        /// Bytes from slot to slot.
        pub stride: u64,
        /// The remote key of `theirs`.
        pub theirs_key: u32,
        /// The remote key of `target`.
        pub target_key: u32,
        /// The local key of the buffer that is sent, or got into.
        pub memory_key: u32,
        /// Keeps the size a multiple of 8; ignored.
        pub reserved: u32,
    }

    /// The counters of one end. Only the kernels and streams that start it touch them; zero at first.
    pub struct MessageState {
        /// Starts of a send, messages taken of a receive.
        pub epoch: u64,
        /// Of a send: the last epoch that is known to have left its slot. Of a receive: how often the buffer was posted.
        pub room: u64,
        /// Blocks that have done their part of the current start.
        pub arrived: u64,
        /// Blocks that have come to the current meeting of a launch.
        pub meeting: u64,
        /// Meetings so far.
        pub meetings: u64,
        /// Keeps the size a cache line; ignored.
        pub reserved0: u64,
        /// As `reserved0`.
        pub reserved1: u64,
        /// As `reserved0`.
        pub reserved2: u64,
    }

    /// A prepared send.
    pub struct Send {
        /// This end.
        pub message: Message,
    }

    /// A prepared receive.
    pub struct Recv {
        /// This end.
        pub message: Message,
    }

    /// A prepared put into a window.
    pub struct Put {
        /// A send that waits for nobody.
        pub send: Send,
    }

    /// A prepared get from a window.
    pub struct Get {
        /// As that of a put, the other way: its buffer is the rank's share.
        pub send: Send,
    }

    /// A prepared wait for a signal of a window.
    pub struct SignalWait {
        /// A receive of nothing.
        pub recv: Recv,
    }

    /// One thing that a stream operation does: what the kernel `mp_steps` is launched with.
    pub struct Step {
        /// The end it works on.
        pub message: Message,
        /// A `StepKind`.
        pub kind: u32,
        /// A `Meeting`, before it.
        pub meet: u32,
    }

    /// What the threads of one GPU share about a queue, in that GPU's memory; zero at first. A word for each block of the queue
    /// follows: its mark. Only `mp/qp.cuh` looks inside.
    pub struct QueuePairState {
        /// Held by who rings.
        pub lock: u32,
        /// Keeps what follows on a cache line of its own; ignored.
        pub reserved0: [u32; 15],
        /// As `published` of the `QueuePair`, as far as this GPU knows.
        pub published: u64,
        /// As its `completed`.
        pub completed: u64,
        /// 0, or 0x100 | syndrome of the request that failed.
        pub failure: u64,
        /// Doorbells rung by this GPU.
        pub rings: u64,
        /// Behind the last entry that `mp::quiet` waits for, …
        pub posted: u64,
        /// … and behind the last that uses memory of this rank beyond its post, for which `mp::flush` waits.
        pub in_use: u64,
        /// Keeps the size two cache lines; ignored.
        pub reserved1: [u64; 2],
    }

    /// The send queue of a queue pair as the host hands it to kernels. Addresses are those of the device that the queue pair was
    /// made for; its send completions are collapsed.
    pub struct QueuePair {
        /// First byte of the send queue.
        pub send_queue: u64,
        /// The one completion.
        pub completion: u64,
        /// The send word of the doorbell record.
        pub send_record: u64,
        /// The doorbell register.
        pub doorbell: u64,
        /// Counter: blocks given to somebody who posts.
        pub reserved: u64,
        /// Counter: blocks that the doorbell record covers.
        pub published: u64,
        /// Counter: blocks known to be free again.
        pub completed: u64,
        /// Its `QueuePairState`, and behind it a word for each block.
        pub state: u64,
        /// Basic blocks of the send queue, 2^n <= 32768.
        pub blocks: u32,
        /// Queue pair number.
        pub qpn: u32,
    }

    /// One of the queues by which kernels of a GPU reach a rank: blocks that use different ones do not meet. Requests of one are
    /// executed in order, those of two are in no order. Its first field is a `QueuePair`.
    pub struct Context {
        /// The queue.
        pub queue: QueuePair,
        /// Memory that the NIC writes for this GPU: `reply_bytes` for each block of the queue, which whoever posts the entry at that
        /// block reads, then a word that nobody reads.
        pub replies: u64,
        /// A 32-bit word for each block, in this GPU's memory: not 0 while the slot is somebody's.
        pub taken: u64,
        /// The local key of `replies`.
        pub replies_key: u32,
        /// Keeps the size a multiple of 8; ignored.
        pub reserved: u32,
    }

    /// A rank's share of a window, as a kernel of another rank reaches it.
    pub struct WindowPart {
        /// The memory.
        pub memory: u64,
        /// Its length in bytes.
        pub bytes: u64,
        /// Its signals, 64-bit words 64 bytes apart.
        pub signals: u64,
        /// Its `NicPart`, if it is reached through a NIC: the addresses above are not this GPU's then. 0: it is mapped.
        pub nic: u64,
        /// The `NicPart` by which atomic operations, and additions to signals, go: `nic`, and one where the share is mapped but others
        /// change it through a NIC, whose operations are one with the NIC's alone. 0: they go as loads and stores do.
        pub atomic_nic: u64,
        /// `bytes` where atomic operations on the memory go as loads and stores do, else 0.
        pub atomic_bytes: u64,
    }

    /// What loads and stores reach of a rank's share of a window: all zeros if it is behind a NIC.
    pub struct MappedPart {
        /// The memory.
        pub memory: u64,
        /// Its length in bytes.
        pub bytes: u64,
        /// Its signals, as in `WindowPart`.
        pub signals: u64,
        /// `bytes` where atomic operations on the memory go as loads and stores do, else 0.
        pub atomic_bytes: u64,
        /// `signals` where additions to them do, else 0.
        pub atomic_signals: u64,
    }

    /// How a rank's share of a window is reached through a NIC.
    pub struct NicPart {
        /// Address of the `Context`s to the rank. What all blocks must keep in one order goes by the first.
        pub queue: u64,
        /// This rank's own share: what is put from it, or got into it, goes without a copy.
        pub own: u64,
        /// Its length in bytes.
        pub own_bytes: u64,
        /// How many contexts there are, at least one.
        pub contexts: u32,
        /// The remote key of the share's memory.
        pub memory_key: u32,
        /// The remote key of its signals.
        pub signals_key: u32,
        /// The local key of the own share.
        pub own_key: u32,
        /// 1: atomic operations on the share's memory are possible.
        pub atomics: u32,
        /// Keeps the size a multiple of 8; ignored.
        pub reserved: u32,
    }

    /// A window as kernels take it.
    pub struct Window {
        /// Address of a `WindowPart` for each rank.
        pub parts: u64,
        /// Ranks of the communicator.
        pub ranks: u64,
        /// This rank.
        pub rank: u64,
        /// Signals a rank has.
        pub signals: u64,
        /// What aborts; see `WaitBounds`.
        pub abort: u64,
        /// Nanoseconds after which a wait gives up.
        pub timeout_ns: u64,
        /// Its `WaitReport`; 0: there is none.
        pub report: u64,
        /// Of the first ranks, of as many as there are, what loads and stores reach: whoever has the window in a kernel's constants
        /// finds it there quicker than in memory.
        pub near: [MappedPart; NEAR_RANKS as usize],
    }

    /// The device ranks of one device, as their kernel takes them: `mp/ranks.cuh`. Offsets are from the beginning of a device's
    /// control memory, and the same on all devices.
    pub struct Ranks {
        /// Address of this device's control memory.
        pub control: u64,
        /// Address of a `WindowPart` for each device: its control memory.
        pub controls: u64,
        /// Address of a `WindowPart` for each device: its memory, in which its windows are.
        pub memories: u64,
        /// Address of a number of 32 bits for each device: its first rank; and behind the last, how many ranks the world has.
        pub firsts: u64,
        /// This device's memory.
        pub memory: u64,
        /// Its length in bytes.
        pub bytes: u64,
        /// Offset of the rings of notifications, one for each rank and source device: `slots` packets.
        pub rings: u64,
        /// Offset of a word for each rank of the world: how many notifications it has taken out of the ring from this device.
        pub tails: u64,
        /// Offset of a word for each rank of the world: how many notifications this device has sent to it.
        pub heads: u64,
        /// Offset of a word for each device: barriers of the world to which all its ranks have come.
        pub arrived: u64,
        /// Offset of the words that ranks of one device meet at, a `SIGNAL_STRIDE` apart.
        pub meetings: u64,
        /// Offset of a `RankState` for each rank of the device.
        pub states: u64,
        /// Offset of a `RankPosition` for each rank and source device.
        pub positions: u64,
        /// Offset of the queues, one for each rank: `spill` words.
        pub queues: u64,
        /// Offset of a `RankPart` for each window and each rank of the world.
        pub parts: u64,
        /// Offset of a word for each window: how many ranks of the device have come to its collectives.
        pub calls: u64,
        /// Offset of the `RankReport`.
        pub report: u64,
        /// Address of the `WaitReport` of requests that a NIC did not carry out.
        pub nic_report: u64,
        /// Address of the `LogLine`s in host memory; 0: there is no log.
        pub log: u64,
        /// Address of the word in host memory that says how many lines the host has read.
        pub log_read: u64,
        /// What aborts; see `WaitBounds`.
        pub abort: u64,
        /// Nanoseconds after which a call gives up.
        pub timeout_ns: u64,
        /// Devices of the world.
        pub devices: u32,
        /// This device.
        pub device: u32,
        /// Ranks of the world.
        pub size: u32,
        /// The first rank of this device.
        pub first: u32,
        /// Ranks of this device.
        pub per_device: u32,
        /// Devices that are reached through a NIC.
        pub far: u32,
        /// Packets of a ring, a power of two.
        pub slots: u32,
        /// Words of a queue, a power of two.
        pub spill: u32,
        /// Lines of the log, a power of two.
        pub log_lines: u32,
        /// Zero.
        pub reserved: u32,
    }

    /// What a device rank knows of itself; its block writes it, and others read some of it when something has failed.
    pub struct RankState {
        /// A `RankPhase`.
        pub phase: u64,
        /// Barriers of the world that it has come to.
        pub world_barriers: u64,
        /// The same of its device.
        pub device_barriers: u64,
        /// The number of the first notification in its queue.
        pub first: u64,
        /// How many are in it.
        pub count: u64,
        /// A bit for each window of the world that is open.
        pub world_windows: u64,
        /// The same of its device.
        pub device_windows: u64,
        /// A `WaitStatus`: a barrier has failed so, and there can be no other.
        pub broken: u64,
    }

    /// How far a rank has read the ring from a device.
    pub struct RankPosition {
        /// Notifications taken out of it.
        pub next: u64,
        /// How many of them the device was told.
        pub told: u64,
    }

    /// A rank's share of a window.
    pub struct RankPart {
        /// Where it begins in its device's memory, in bytes, and one more; 0: there is none.
        pub behind: u64,
        /// Its length in bytes.
        pub bytes: u64,
    }

    /// Why a call of a device rank failed; the first failure of a device stays.
    pub struct RankReport {
        /// A `WaitStatus`; 0 (ok): nothing failed. Written last: when it is not 0, the rest is there.
        pub status: u32,
        /// Not 0 once a failing rank has taken the slot.
        pub claimed: u32,
        /// A `RankCall`.
        pub call: u32,
        /// Whose call.
        pub rank: u32,
        /// The other rank: the target, or the source that was waited for. All ones: any, or none.
        pub peer: u32,
        /// The window. All ones: any, or none.
        pub window: u32,
        /// The tag. All ones: any, or none.
        pub tag: u32,
        /// A rank that was missing: which had not come to the barrier, or had not joined, or had finished. All ones: none is known.
        pub missing: u32,
        /// The `RankPhase` of that rank.
        pub phase: u32,
        /// Of an unsent notification: 1 if the rank's own queue was full, too.
        pub full: u32,
        /// Notifications wanted, or the first byte that was asked for.
        pub wanted: u64,
        /// Notifications there were, or the bytes of the window.
        pub have: u64,
        /// Nanoseconds waited; of a call that was refused how many bytes it was for.
        pub waited_ns: u64,
    }

    /// A line of the log of device ranks.
    pub struct LogLine {
        /// Which line it is, from 1; written last.
        pub number: u64,
        /// Whose.
        pub rank: u32,
        /// Values; two bits for each from bit 8 on: unsigned, signed, floating-point.
        pub kinds: u32,
        /// Text with `{}` for each value, ended by a zero.
        pub text: [u64; 8],
        /// The values' bits.
        pub values: [u64; 6],
    }

    /// The collectives of a communicator, as kernels take them.
    pub struct Collective {
        /// Address of 64-bit addresses, one for each rank: of its inbox, as this GPU sees it.
        pub inboxes: u64,
        /// Ranks of the communicator.
        pub ranks: u64,
        /// This rank.
        pub rank: u64,
        /// Packets, of 8 bytes of data, that a rank can send to another at once by one ring. Through a NIC words of a row, an even
        /// number.
        pub len: u64,
        /// Packets of a ring: a power of two, twice `len` or more. Through a NIC 0.
        pub ring: u64,
        /// Rings that each rank has in an inbox. A block of more than they all carry goes in pieces.
        pub rings: u64,
        /// Address of a `RingState` for each ring but the first, in this GPU's memory.
        pub states: u64,
        /// Bytes that there is room for: of the largest block that a rank gives another.
        pub bytes: u64,
        /// Lanes of large blocks, behind the rings in the inbox; 0: there are none.
        pub lanes: u64,
        /// Bytes of a piece of a large block, a multiple of 16.
        pub piece: u64,
        /// Address of a `LaneCounters` for each lane and rank, in this GPU's memory.
        pub counters: u64,
        /// Its `CollectiveState`, in this GPU's memory.
        pub state: u64,
        /// What aborts; see `WaitBounds`.
        pub abort: u64,
        /// Nanoseconds after which a wait gives up.
        pub timeout_ns: u64,
        /// Its `WaitReport`; 0: there is none.
        pub report: u64,
        /// Address of the `Window` that it goes by, where some ranks are reached through a NIC. 0: all ranks map each other's
        /// memory.
        pub nic: u64,
        /// Not 0: additions to words of all inboxes are atomic from here. 0: a link has no native atomics.
        pub adds: u64,
        /// The first of `inboxes`, of as many ranks as there are: found in a kernel's constants quicker than in memory.
        pub near: [u64; NEAR_RANKS as usize],
    }

    /// How far a collective is in a ring, in the memory of its device. The rings of all ranks with one number have one.
    pub struct RingState {
        /// Runs so far.
        pub runs: u64,
        /// Packets that they have had: the same of every rank's ring, as all ranks know how many a run has.
        pub position: u64,
        /// The position up to which all others are known to have taken their packets. Through a NIC the last run in which this
        /// rank has waited for all others; if that is not the last of all, it does so ahead of the next.
        pub heard: u64,
        /// Ignored.
        pub reserved: u64,
    }

    /// What a collective remembers, in the memory of its device.
    pub struct CollectiveState {
        /// Of the first ring, or through a NIC; barriers over mapped memory are not among its runs.
        pub ring: RingState,
        /// Barriers over mapped memory so far.
        pub met: u64,
        /// Keeps what changes on a cache line of its own; ignored.
        pub reserved: [u64; 3],
        /// Itself, as its handle has it: what is out of the way takes it from here, so that the handle stays among the kernel's
        /// parameters.
        pub collective: Collective,
        /// Through a NIC: in whose shares are rows of `len` words, two turns of one for each rank and one more, and a signal for
        /// each rank.
        pub window: Window,
    }

    /// A team of PEs of OpenSHMEM, or a context of one, as kernels use it: `mp/shmem.cuh`. Its address is the program's handle.
    pub struct ShmemTeam {
        /// Address of the number in the world of each PE, of 64 bits; 0: the numbers are those of the world.
        pub members: u64,
        /// PEs. 0: there is no such team.
        pub pes: u64,
        /// Address of the `CollectiveState` that it synchronises by; 0, of a context: it does not.
        pub collective: u64,
    }

    /// What kernels know of their PE, in a variable of their module: `mp/shmem.cuh`.
    pub struct ShmemWorld {
        /// The symmetric heaps of the PEs' devices.
        pub heap: Window,
        /// Where this PE's begins.
        pub base: u64,
        /// `SHMEM_DEVICE_TEAM_WORLD`, and what `SHMEM_DEVICE_CTX_DEFAULT` is a context of.
        pub all: ShmemTeam,
        /// `SHMEM_DEVICE_TEAM_SHARED`.
        pub shared: ShmemTeam,
        /// Address of the first of the teams and contexts that the program has made.
        pub made: u64,
        /// The address behind the last.
        pub made_end: u64,
        /// What `SHMEM_DEVICE_TEAM_WORLD` synchronises by, here as well: a look at memory less.
        pub meeting: Collective,
    }

    /// Pieces of large blocks in one lane between this rank and another, modulo 2^32.
    pub struct LaneCounters {
        /// Sent to it.
        pub sent: u32,
        /// Taken from it.
        pub taken: u32,
    }

    /// Where one of the `Blocks` with a table is.
    pub struct Extent {
        /// Its first byte, from the beginning of the memory.
        pub at: u64,
        /// Its length in bytes.
        pub bytes: u64,
    }

    /// What a rank gives the others in a run of a collective, or takes from them: a block for each rank from `first` to before `end`,
    /// for the others none.
    pub struct Blocks {
        /// Where the memory begins.
        pub memory: u64,
        /// Bytes from block to block; 0: all are the same one.
        pub stride: u64,
        /// Bytes of a block, …
        pub bytes: u64,
        /// … as far as they are before this byte.
        pub total: u64,
        /// Address of an `Extent` for each rank, instead of the last three; 0: there is none.
        pub table: u64,
        /// The first rank.
        pub first: u32,
        /// The rank behind the last.
        pub end: u32,
    }

    /// A run of a collective: what comes is placed, or combined in rank order.
    pub struct CollectiveRun {
        /// What the others get.
        pub gives: Blocks,
        /// Where what they give goes. Of a reduction all in one place.
        pub takes: Blocks,
        /// An `Element`.
        pub element: u32,
        /// A `Reduction`; `NO_REDUCTION`: nothing is combined.
        pub reduction: u32,
    }

    /// A neighbour of a halo exchange, as a launch works with it. All zeros: there is none of this number.
    pub struct ExchangeLink {
        /// Its `ExchangeState`, in this GPU's memory.
        pub state: u64,
        /// This rank's signal, in the neighbour's memory; 0: it is behind a NIC.
        pub theirs: u64,
        /// The neighbour's signal, in this rank's memory.
        pub mine: u64,
        /// Its `WaitReport`.
        pub report: u64,
        /// Where cell (0, 0, 0) of the field written lies for the neighbour, or in what is sent to it. 0: nothing is to be stored.
        pub twin: u64,
    }

    /// What every launch of a halo exchange has, whatever the number of neighbours; behind it come the links.
    pub struct ExchangeHead {
        /// What ends waits.
        pub bounds: WaitBounds,
        /// Address of a 32-bit word that is not 0 once a wait has failed: nothing is waited for or signalled any more.
        pub failed: u64,
        /// Address of an `ExchangeRoute` for each neighbour, of the field written.
        pub sends: u64,
        /// The same of the field whose ghosts are read.
        pub reads: u64,
        /// Neighbours.
        pub count: u32,
        /// 1: blocks at borders wait for the neighbours; 0: something ahead of the launch does.
        pub waits: u32,
        /// 1: blocks at borders copy what has come into receive buffers to the ghosts.
        pub unpacks: u32,
        /// Keeps the size a multiple of 8; ignored.
        pub reserved: u32,
    }

    /// The phases of this rank with one neighbour; zero at first. Only the kernels and streams of the exchange touch it.
    pub struct ExchangeState {
        /// Phases finished.
        pub epoch: u64,
        /// Phases that the neighbour is known to have finished.
        pub seen: u64,
        /// Blocks that have finished the phase under way.
        pub arrived: u64,
        /// Parts of the receive buffer that somebody copies to the ghosts, …
        pub claimed: u64,
        /// … and that have been copied.
        pub unpacked: u64,
        /// Keeps the size a cache line; ignored.
        pub reserved0: u64,
        /// As `reserved0`.
        pub reserved1: u64,
        /// As `reserved0`.
        pub reserved2: u64,
    }

    /// Consecutive bytes of a message that is in several pieces, and where they go.
    pub struct MessagePiece {
        /// The first.
        pub from: u64,
        /// Where that goes.
        pub to: u64,
        /// How many.
        pub bytes: u64,
    }

    /// A copy of a box: rows of consecutive bytes in planes. Nothing if `to` is 0.
    pub struct ExchangeCopy {
        /// Its first byte.
        pub from: u64,
        /// Where that goes.
        pub to: u64,
        /// Bytes of a row.
        pub row: u64,
        /// Rows of a plane.
        pub rows: u64,
        /// Planes.
        pub planes: u64,
        /// Bytes from row to row, and from plane to plane, …
        pub from_row: u64,
        /// … in the source, …
        pub from_plane: u64,
        /// … and in the target.
        pub to_row: u64,
        /// As `to_row`.
        pub to_plane: u64,
    }

    /// The border that one neighbour has of one field, and how it goes there.
    pub struct ExchangeRoute {
        /// The first cell of the box that is sent.
        pub first0: i32,
        /// Along the second axis.
        pub first1: i32,
        /// Along the third.
        pub first2: i32,
        /// The cell behind its last one.
        pub end0: i32,
        /// Along the second axis.
        pub end1: i32,
        /// Along the third.
        pub end2: i32,
        /// Bytes of a cell.
        pub cell: u32,
        /// The remote key of `put_to`.
        pub to_key: u32,
        /// Cell (0, 0, 0) of the field.
        pub cells: u64,
        /// Bytes from row to row of the field, and from plane to plane.
        pub row: u64,
        /// As `row`.
        pub plane: u64,
        /// The same where the cells are stored for the neighbour: see `ExchangeLink::twin`.
        pub twin_row: u64,
        /// As `twin_row`.
        pub twin_plane: u64,
        /// From the field to where its neighbour has it, or to what is sent.
        pub send: ExchangeCopy,
        /// From a receive buffer to the ghosts.
        pub unpack: ExchangeCopy,
        /// Behind a NIC: address of the `mp::QueuePair` to the neighbour (`mp/qp.cuh`).
        pub queue: u64,
        /// What is put, …
        pub put_from: u64,
        /// … how many bytes, …
        pub put_bytes: u64,
        /// … where to.
        pub put_to: u64,
        /// This rank's signal, in the neighbour's memory.
        pub signal: u64,
        /// The remote key of `signal`.
        pub signal_key: u32,
        /// The local key of `put_from`.
        pub from_key: u32,
    }
}

/// A halo exchange as a kernel takes it, `mp::Exchange` of `mp/exchange.cuh`: by value, for at most `N` neighbours.
///
/// See [`shared`](crate::shared) for an example.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange<const N: usize> {
    /// What does not depend on the neighbour.
    pub head: ExchangeHead,
    /// The neighbours; behind the last one zeros.
    pub links: [ExchangeLink; N],
}

impl<const N: usize> Default for Exchange<N> {
    fn default() -> Self {
        Self { head: ExchangeHead::default(), links: [ExchangeLink::default(); N] }
    }
}

// SAFETY: with all zeros it has no neighbours; it is made of such structs, without padding: 56 and `N` times 40 bytes, by 8.
unsafe impl<const N: usize> bytemuck::Zeroable for Exchange<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> bytemuck::Pod for Exchange<N> {}

/// A regular cut of a box of cells into tiles, `mp::Tiles` of `mp/exchange.cuh`.
///
/// ```
/// use mp_kernels::Tiles;
///
/// // The launch of a stencil over 100 × 100 × 50 cells without ghosts: a block for each of 7 × 13 × 13 tiles.
/// let tiles = Tiles { first: [0, 0, 0], end: [100, 100, 50], each: [16, 8, 4] };
/// assert_eq!(tiles.count(), 7 * 13 * 13);
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tiles {
    /// The first cell.
    pub first: [i32; 3],
    /// Behind the last.
    pub end: [i32; 3],
    /// Cells of a tile along each axis.
    pub each: [i32; 3],
}

impl Tiles {
    /// How many there are: a block of a launch for each.
    pub fn count(&self) -> u32 {
        let along = |axis: usize| (self.end[axis] - self.first[axis]).max(0) as u32;
        (0..3).map(|axis| along(axis).div_ceil(self.each[axis].max(1) as u32)).product()
    }
}

// As mp/exchange.cuh asserts.
const _: () = assert!(size_of::<Exchange<26>>() == 56 + 26 * 40 && size_of::<Tiles>() == 36);

/// `include/mp/layout.cuh`.
pub const HEADER: Header = Header {
    source: "kernels/src/layout.rs",
    package: "mp-kernels",
    includes: &[],
    namespace: "mp",
    constants: CONSTANTS,
    enums: &[
        WaitStatus::ENUMERATION,
        RankCall::ENUMERATION,
        RankPhase::ENUMERATION,
        MeetingWord::ENUMERATION,
        Comparison::ENUMERATION,
        AtomicKind::ENUMERATION,
        StepKind::ENUMERATION,
        Meeting::ENUMERATION,
        Element::ENUMERATION,
        Reduction::ENUMERATION,
    ],
    structs: LAYOUTS,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_header_is_the_one_generated_from_the_declarations() {
        HEADER.check(concat!(env!("CARGO_MANIFEST_DIR"), "/include/mp/layout.cuh")).unwrap();
    }

    #[test]
    fn fields_follow_each_other_without_gaps() {
        for layout in LAYOUTS {
            let mut end = 0;
            for field in layout.fields {
                assert_eq!(field.offset, end, "{}.{}", layout.name, field.name);
                end += field.size;
            }
            assert_eq!(end, layout.size, "{}", layout.name);
        }
    }

    #[test]
    fn the_header_asserts_every_size_and_offset() {
        let text = HEADER.text();
        for layout in LAYOUTS {
            assert!(text.contains(&format!("sizeof({}) == {}", layout.name, layout.size)));
            for field in layout.fields {
                let offset =
                    format!("offsetof({}, {}) == {}", layout.name, field.name, field.offset);
                assert!(text.contains(&offset), "{offset}");
            }
        }
    }

    #[test]
    fn a_status_read_from_a_report_is_the_one_written() {
        for value in WaitStatus::ENUMERATION.values {
            let status = WaitStatus::from_code(value.code).unwrap();
            assert_eq!(status as u32, value.code, "{}", value.name);
        }
        assert_eq!(WaitStatus::from_code(WaitStatus::ENUMERATION.values.len() as u32), None);
        assert_eq!(
            WaitStatus::from_code(0),
            Some(WaitStatus::Ok),
            "a zeroed report says that nothing failed"
        );
    }
}
