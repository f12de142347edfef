//! The structs and enums that Rust and device code share, each declared once, here.
//!
//! `shared_structs!` makes the `repr(C)` struct and its row in [`LAYOUTS`]; `layout_header.rs` turns the
//! table into `include/mp/layout.cuh`, where `static_assert`s repeat every size and offset. A test keeps the committed header
//! equal to the table; `MP_REGENERATE=1 cargo test -p mp-kernels` rewrites it. This file knows layouts only: what the
//! fields are for is said in their documentation and acted upon elsewhere.

/// A struct that host and device see alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Name, the same in Rust and in C++ (there in namespace `mp`).
    pub name: &'static str,
    /// Documentation, one entry a line.
    pub doc: &'static [&'static str],
    /// Bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Fields in order; together they fill the struct without padding.
    pub fields: &'static [Field],
}

/// One field of a [`Layout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, the same in Rust and in C++.
    pub name: &'static str,
    /// Documentation, one entry a line.
    pub doc: &'static [&'static str],
    /// C++ type.
    pub c_type: &'static str,
    /// Bytes from the start of the struct.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

macro_rules! c_type {
    (u32) => {
        "std::uint32_t"
    };
    (u64) => {
        "std::uint64_t"
    };
    // Another of the shared structs, declared before.
    ($name:ident) => {
        stringify!($name)
    };
}

macro_rules! shared_structs {
    ($(
        $(#[doc = $doc:literal])*
        pub struct $name:ident {
            $( $(#[doc = $field_doc:literal])* pub $field:ident: $type:ident, )+
        }
    )+) => {
        $(
            $(#[doc = $doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $name {
                $( $(#[doc = $field_doc])* pub $field: $type, )+
            }

            // Padding would hold undefined bytes when the struct goes by value into a kernel.
            const _: () = assert!(
                size_of::<$name>() == 0 $( + size_of::<$type>() )+,
                concat!(stringify!($name), " has padding: order or widen its fields"),
            );
        )+

        /// Every struct shared with device code.
        pub const LAYOUTS: &[Layout] = &[$(
            Layout {
                name: stringify!($name),
                doc: &[$($doc),*],
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                fields: &[$(
                    Field {
                        name: stringify!($field),
                        doc: &[$($field_doc),*],
                        c_type: c_type!($type),
                        offset: std::mem::offset_of!($name, $field),
                        size: size_of::<$type>(),
                    },
                )+],
            },
        )+];
    };
}

/// A value of a shared enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enumerator {
    /// Name in C++, in namespace `mp`.
    pub name: &'static str,
    /// Documentation, one entry a line.
    pub doc: &'static [&'static str],
    /// Its number.
    pub code: u32,
}

macro_rules! shared_enum {
    (
        $(#[doc = $doc:literal])*
        pub enum $name:ident {
            $( $(#[doc = $value_doc:literal])* $value:ident = $code:literal as $c_name:ident, )+
        }
    ) => {
        $(#[doc = $doc])*
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $( $(#[doc = $value_doc])* $value = $code, )+
        }

        impl $name {
            /// Name, the same in Rust and in C++.
            pub const NAME: &str = stringify!($name);
            /// Documentation, one entry a line.
            pub const DOC: &[&str] = &[$($doc),*];
            /// Its values as C++ has them.
            pub const ENUMERATORS: &[Enumerator] = &[$(
                Enumerator { name: stringify!($c_name), doc: &[$($value_doc),*], code: $code },
            )+];

            /// The value with this number; `None` if there is none.
            pub const fn from_code(code: u32) -> Option<Self> {
                match code {
                    $( $code => Some(Self::$value), )+
                    _ => None,
                }
            }
        }
    };
}

shared_enum! {
    /// How a wait in a kernel ended.
    pub enum WaitStatus {
        /// The signal reached the expected value.
        Ok = 0 as ok,
        /// The abort word was set first.
        Aborted = 1 as aborted,
        /// The deadline passed first.
        TimedOut = 2 as timed_out,
        /// A request to the peer's NIC failed first: nothing more goes that way.
        PathFailed = 3 as path_failed,
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

    /// Why a wait in a kernel failed. The host zeroes the slot before the launch; the first failure stays in it.
    pub struct WaitReport {
        /// A `WaitStatus`; 0 (ok): nothing failed. Written last: when it is not 0, the rest is there.
        pub status: u32,
        /// Not 0 once a failing thread of the GPU has taken the slot.
        pub claimed: u32,
        /// The value waited for.
        pub expected: u64,
        /// The value of the signal when the wait ended.
        pub seen: u64,
        /// Nanoseconds waited, counted from the first look at the clock.
        pub waited_ns: u64,
    }

    /// One side of a ping-pong of two signals, see `mp_pingpong_bounded`.
    pub struct PingPong {
        /// Address of the signal this side polls.
        pub mine: u64,
        /// Address of the signal this side raises, which the other side polls.
        pub peer: u64,
        /// Value of both signals before the first round; round r raises them to `base + r`, r from 1.
        pub base: u64,
        /// Rounds played before the clock starts, so that the later of the two launches is not timed.
        pub untimed_rounds: u64,
        /// Rounds played while the clock runs.
        pub timed_rounds: u64,
        /// 1: this side raises first in each round; 0: it answers.
        pub serves: u32,
        /// Keeps the size a multiple of 8; ignored.
        pub reserved: u32,
    }

    /// What a ping-pong kernel measured. Left alone when a wait failed.
    pub struct PingPongTime {
        /// Nanoseconds of the timed rounds by the machine's clock.
        pub ns: u64,
        /// The same in cycles of the multiprocessor.
        pub cycles: u64,
    }

    /// One side of the message-passing test `mp_message_passing`: a writer fills a buffer and raises a signal, a reader
    /// waits, checks every word and raises a signal back.
    pub struct MessagePassing {
        /// Address of the buffer of `words` 64-bit words: the writer's stores, the reader's loads.
        pub data: u64,
        /// 64-bit words in the buffer.
        pub words: u64,
        /// Address of the signal this side waits on.
        pub mine: u64,
        /// Address of the signal this side raises.
        pub peer: u64,
        /// Value of both signals before the first round; round r raises them to `base + r`, r from 1, and fills with
        /// the pattern of seed `base + r`.
        pub base: u64,
        /// Rounds to play.
        pub rounds: u64,
        /// 1: this side writes; 0: it reads and checks.
        pub writes: u32,
        /// Keeps the size a multiple of 8; ignored.
        pub reserved: u32,
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
        /// The signal this end raises, in the other's memory.
        pub theirs: u64,
        /// Of a send: where messages go, in the other's memory.
        pub target: u64,
        /// How many messages may be on their way, each in a slot of its own; 0: one, into the posted buffer.
        pub slots: u64,
        /// Bytes from slot to slot.
        pub stride: u64,
        /// The remote key of `theirs`.
        pub theirs_key: u32,
        /// The remote key of `target`.
        pub target_key: u32,
        /// The local key of the buffer that is sent.
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

    /// One thing that a stream operation does: what the kernel `mp_steps` is launched with.
    pub struct Step {
        /// The end it works on.
        pub message: Message,
        /// A `StepKind`.
        pub kind: u32,
        /// 1: all blocks meet before it.
        pub meet: u32,
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

    /// A barrier or an all-reduce of kernels.
    pub struct Collective {
        /// Address of 64-bit addresses, one for each rank: of its inbox, as this GPU sees it.
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
    }

    /// The same where a rank is reached through a NIC; ranks that are mapped may be among them.
    pub struct NicCollective {
        /// A rank's share has places for two turns of `len` words of each rank, and a signal for each rank.
        pub window: Window,
        /// Elements of an all-reduce. 0: a barrier.
        pub len: u64,
        /// Address of a word that counts the runs.
        pub state: u64,
    }
}

impl Message {
    /// Words of 64 bits of it.
    pub const WORDS: usize = size_of::<Message>() / 8;

    /// As it lies in memory, for tables of handles in a GPU's memory.
    pub fn words(&self) -> [u64; Self::WORDS] {
        let Message {
            memory,
            len,
            target,
            inbox,
            mine,
            theirs,
            state,
            abort,
            timeout_ns,
            report,
            nic,
        } = *self;
        [memory, len, target, inbox, mine, theirs, state, abort, timeout_ns, report, nic]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_message_are_in_the_order_of_its_fields() {
        let message = Message { memory: 1, theirs: 6, report: 10, nic: 11, ..Message::default() };
        let words = message.words();
        assert_eq!((words[0], words[9], words[10]), (1, 10, 11));
        assert_eq!(words[std::mem::offset_of!(Message, theirs) / 8], 6);
    }
}
