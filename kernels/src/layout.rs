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
    /// Slots for packets of one pair: how many small messages may be on their way or not yet taken.
    pub const PACKET_SLOTS: u64 = 4 as packet_slots;
    /// Bytes between two signals: a cache line.
    pub const SIGNAL_STRIDE: u64 = 64 as signal_stride;
    /// Data up to so many bytes travel inside the entry of a NIC's queue: the source is read once, and is free at once.
    pub const INLINE_BYTES: u64 = 512 as inline_bytes;
    /// Bytes of the memory that what a NIC brings passes through, see `NicPart`.
    pub const BOUNCE_BYTES: u64 = 4096 as bounce_bytes;
    /// Steps of the longest list in one launch.
    pub const MAX_STEPS: u32 = 16 as max_steps;
    /// Steps of a short list: most lists are, and a launch is the quicker the less it carries.
    pub const FEW_STEPS: u32 = 3 as few_steps;
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
        /// Refused: an atomic operation at no multiple of 8 bytes, or on a GPU's own memory through a NIC.
        NotAtomic = 7 as not_atomic,
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
    /// What an all-reduce combines.
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
    }
}

shared_enum! {
    /// How an all-reduce combines.
    pub enum Reduction {
        /// The sum; integers wrap around.
        Sum = 0 as reduction_sum,
        /// The smallest.
        Min = 1 as reduction_min,
        /// The largest.
        Max = 2 as reduction_max,
    }
}

shared_structs! {
    /// What ends a wait in a kernel besides its signal.
    pub struct WaitBounds {
        /// Address, as the GPU sees it, of the 64-bit abort word: any value but 0 aborts. 0: there is none.
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
        /// Address of the abort word; see `WaitBounds`.
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
        /// Keeps the size two cache lines; ignored.
        pub reserved1: [u64; 4],
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
    }

    /// How a rank's share of a window is reached through a NIC.
    pub struct NicPart {
        /// Address of the `mp::QueuePair` to the rank (`mp/qp.cuh`).
        pub queue: u64,
        /// This rank's own share: what is put from it, or got into it, goes without a copy.
        pub own: u64,
        /// Its length in bytes.
        pub own_bytes: u64,
        /// `bounce_bytes` of memory that the NIC writes for this GPU: what comes from the peer and does not go into the own share.
        /// A word that nobody reads follows.
        pub bounce: u64,
        /// Taken while `bounce` is somebody's.
        pub lock: u32,
        /// The remote key of the share's memory.
        pub memory_key: u32,
        /// The remote key of its signals.
        pub signals_key: u32,
        /// The local key of the own share.
        pub own_key: u32,
        /// The local key of `bounce`.
        pub bounce_key: u32,
        /// 1: atomic operations on the share's memory are possible.
        pub atomics: u32,
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
        /// Address of the abort word; see `WaitBounds`.
        pub abort: u64,
        /// Nanoseconds after which a wait gives up.
        pub timeout_ns: u64,
        /// Its `WaitReport`; 0: there is none.
        pub report: u64,
    }

    /// A barrier or an all-reduce, as kernels take it.
    pub struct Collective {
        /// Address of 64-bit addresses, one for each rank: of its inbox, as this GPU sees it. 0: it goes by `nic`.
        pub inboxes: u64,
        /// Ranks of the communicator.
        pub ranks: u64,
        /// This rank.
        pub rank: u64,
        /// Packets a rank can send at once: elements of an all-reduce. 0: a barrier.
        pub len: u64,
        /// Address of a word that counts the runs.
        pub state: u64,
        /// Address of the abort word; see `WaitBounds`.
        pub abort: u64,
        /// Nanoseconds after which a wait gives up.
        pub timeout_ns: u64,
        /// Its `WaitReport`; 0: there is none.
        pub report: u64,
        /// Its `NicCollective`, where some ranks are reached through a NIC. 0: all ranks map each other's memory.
        pub nic: u64,
    }

    /// A barrier or an all-reduce of ranks some of which are reached through a NIC.
    pub struct NicCollective {
        /// In whose shares are places for two turns of `len` words of each rank, and a signal for each rank.
        pub window: Window,
        /// Itself, as its handle has it.
        pub collective: Collective,
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
