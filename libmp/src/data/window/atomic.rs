//! Atomic operations on the words of a window: by the host, and on streams. Kernels have those of `mp/atomic.cuh`, which a stream of a
//! GPU launches, and the host where the CPU does not reach the memory.

use std::iter;

use bytemuck::Pod;
use gdsync::{Arg, Buffer, Dims, Stream};
use mp_kernels::AtomicKind;

use super::{Part, Window, failed};
use crate::collective::{Element, Number};
use crate::data::region::Region;
use crate::error::{Error, Result};
use crate::transport::{Atomic, Call};

mod sealed {
    /// What can be changed as one step.
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
    impl Sealed for i32 {}
    impl Sealed for i64 {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A number that atomic operations take: `u32`, `u64`, `i32`, `i64`, `f32` or `f64`.
///
/// ```
/// use libmp::{AtomicNumber, AtomicOp, Result, Window};
///
/// fn count<V: AtomicNumber>(window: &Window<u8>, rank: usize, one: V) -> Result<V> {
///     window.atomic(rank, 0, AtomicOp::Add(one))
/// }
/// ```
pub trait AtomicNumber: Number + Pod + sealed::Sealed {}
impl<V: Number + Pod + sealed::Sealed> AtomicNumber for V {}

/// How an atomic operation changes a word: [`Window::atomic`]. Integers wrap around; of floating-point numbers there are `Fetch`,
/// `Swap` and `Add`.
///
/// ```
/// use libmp::{AtomicOp, Device, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let share = world.alloc::<u32>(&Device::Host, 2)?;
/// let window = world.window(&share, 0)?;
/// // Rank 0 learns who is there.
/// let before = window.atomic(0, 1, AtomicOp::Or(1u32 << world.rank()))?;
/// assert_eq!(before & 1 << world.rank(), 0);
/// # world.barrier()?;
/// # world.finish()
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOp<V> {
    /// Not: it is read.
    Fetch,
    /// It becomes the value.
    Swap(V),
    /// It becomes `value` if it is `expected`.
    CompareSwap {
        /// What it is compared with.
        expected: V,
        /// What it becomes.
        value: V,
    },
    /// The value is added.
    Add(V),
    /// The bits stay that the value has, too.
    And(V),
    /// It gets the value's bits.
    Or(V),
    /// The value's bits change.
    Xor(V),
    /// It becomes the value if that is less.
    Min(V),
    /// It becomes the value if that is larger.
    Max(V),
}

impl<V: AtomicNumber> AtomicOp<V> {
    fn encode(self) -> Result<Atomic> {
        let zero = V::zeroed();
        let (kind, expected, value) = match self {
            AtomicOp::Fetch => (AtomicKind::Fetch, zero, zero),
            AtomicOp::Swap(value) => (AtomicKind::Swap, zero, value),
            AtomicOp::CompareSwap { expected, value } => (AtomicKind::CompareSwap, expected, value),
            AtomicOp::Add(value) => (AtomicKind::Add, zero, value),
            AtomicOp::And(value) => (AtomicKind::And, zero, value),
            AtomicOp::Or(value) => (AtomicKind::Or, zero, value),
            AtomicOp::Xor(value) => (AtomicKind::Xor, zero, value),
            AtomicOp::Min(value) => (AtomicKind::Min, zero, value),
            AtomicOp::Max(value) => (AtomicKind::Max, zero, value),
        };
        let real = matches!(V::ELEMENT, Element::F32 | Element::F64);
        if real && !matches!(kind, AtomicKind::Fetch | AtomicKind::Swap | AtomicKind::Add) {
            let (op, of) = ("an atomic operation".to_owned(), V::ELEMENT);
            let reason = format!("{kind:?} of an {of}, of which there are Fetch, Swap and Add");
            return Err(Error::Mismatch { op, reason });
        }
        let (value, expected) = (value.to_bits64(), expected.to_bits64());
        Ok(Atomic { kind, element: V::ELEMENT, value, expected })
    }
}

impl<T: Pod> Window<T> {
    /// Changes the word of a `V` that begins at element `at` of rank `rank`, at a multiple of its size, as one step for everybody
    /// who uses these operations or those of kernels; gives what it held. Acquire and release at system scope.
    ///
    /// Host, kernels and the NIC are one in this on memory of the host, where a GPU reaches that over a link with native atomics, or
    /// has the NIC do it for its own rank (`mp/atomic.cuh`); and so are GPUs, and hosts, whose GPU does it for them, on a GPU's own
    /// memory, which no NIC changes.
    ///
    /// # Errors
    /// [`Error::Mismatch`] for an operation that floating-point numbers do not have; as [`put`](Self::put).
    pub fn atomic<V: AtomicNumber>(&self, rank: usize, at: u64, op: AtomicOp<V>) -> Result<V> {
        let (part, at, atomic) = self.word(rank, at, op)?;
        let done = self.call("atomic", part, |call| part.connection.atomic(call, at, atomic))?;
        let bits = match done {
            Some(bits) => bits,
            None => self.call("atomic", part, |call| {
                self.own.by_hand(call, |stream, word| {
                    self.launch(call, stream, rank, at, atomic, word.device_address())
                })
            })?,
        };
        Ok(V::from_bits64(bits))
    }

    /// [`atomic`](Self::atomic), enqueued on a stream. What the word held goes to `before`, if there is one, a region of one
    /// number of the stream's device.
    ///
    /// # Errors
    /// As [`atomic`](Self::atomic); [`Error::Mismatch`] for a region of another length; [`Error::Memory`] if the stream cannot
    /// reach the memory.
    pub fn atomic_on<V: AtomicNumber>(
        &self,
        stream: &Stream,
        rank: usize,
        at: u64,
        op: AtomicOp<V>,
        before: Option<&Region<V>>,
    ) -> Result<()> {
        let (part, at, atomic) = self.word(rank, at, op)?;
        if let Some(before) = before.filter(|before| before.len() != 1) {
            let reason = format!("a region of {} numbers for the one before", before.len());
            return Err(Error::Mismatch {
                op: format!("an atomic operation of rank {rank}"),
                reason,
            });
        }
        self.enqueue(stream, "atomic", part, size_of::<V>(), |call| {
            if stream.device().as_cuda().is_some() {
                if let Some(before) = before {
                    stream.hold(before.buffer());
                }
                let into =
                    before.map(|before| before.buffer().device_address().unwrap_or_default());
                return self.launch(call, stream, rank, at, atomic, into);
            }
            let (plane, timeout, report) = (self.plane.clone(), self.timeout, self.report.clone());
            let (connection, before) = (part.connection.clone(), before.cloned());
            let run = move || {
                let op = || "an atomic operation on a stream".to_owned();
                let call = Call { plane: &plane, timeout, op: &op };
                let done = connection.atomic(&call, at, atomic);
                let done = done.and_then(|bits| bits.ok_or_else(|| not_reached(&call)));
                let written = done.and_then(|bits| match &before {
                    Some(before) => before.write(&[V::from_bits64(bits)]),
                    None => Ok(()),
                });
                if let Err(error) = written {
                    report.refuse(error);
                }
            };
            stream.call(run).map_err(|source| call.failed(source))
        })
    }

    /// The rank's share, where the word is in it in bytes, and what is done.
    fn word<V: AtomicNumber>(
        &self,
        rank: usize,
        at: u64,
        op: AtomicOp<V>,
    ) -> Result<(&Part, usize, Atomic)> {
        let atomic = op.encode()?;
        let elements = size_of::<V>().div_ceil(size_of::<T>().max(1));
        let (part, at) = self.range("atomic", rank, at, elements)?;
        if !at.is_multiple_of(size_of::<V>()) {
            let (what, align) = ("an atomic operation", size_of::<V>());
            return Err(failed("atomic")(gdsync::Error::Misaligned { what, offset: at, align }));
        }
        self.counters(part).atomics.add(1);
        Ok((part, at, atomic))
    }

    /// By a kernel; what the word held goes to `into`.
    fn launch(
        &self,
        call: &Call<'_>,
        stream: &Stream,
        rank: usize,
        at: usize,
        atomic: Atomic,
        into: Option<u64>,
    ) -> Result<()> {
        let (rank, at) = (rank as u64, at as u64);
        let (kind, element) = (atomic.kind as u32, atomic.element.code());
        let into = into.unwrap_or_default();
        let args = [
            Arg::new(&rank),
            Arg::new(&at),
            Arg::new(&kind),
            Arg::new(&element),
            Arg::new(&atomic.value),
            Arg::new(&atomic.expected),
            Arg::new(&into),
        ];
        // SAFETY: the kernel's parameters.
        unsafe { self.launch_one(call, stream, "mp_atomic", &args) }
    }

    /// Adds to a signal of a rank by a kernel.
    pub(super) fn add_by_kernel(
        &self,
        call: &Call<'_>,
        stream: &Stream,
        rank: usize,
        signal: usize,
        value: u64,
    ) -> Result<()> {
        let (rank, signal) = (rank as u64, signal as u64);
        let args = [Arg::new(&rank), Arg::new(&signal), Arg::new(&value)];
        // SAFETY: the kernel's parameters.
        unsafe { self.launch_one(call, stream, "mp_window_signal_add", &args) }
    }

    /// Launches a kernel of one thread that takes the window, and then `args`.
    ///
    /// # Safety
    /// These are the kernel's parameters.
    unsafe fn launch_one(
        &self,
        call: &Call<'_>,
        stream: &Stream,
        kernel: &'static str,
        args: &[Arg<'_>],
    ) -> Result<()> {
        let failed = |source| call.failed(source);
        let Some(cuda) = stream.device().as_cuda() else { return Err(not_reached(call)) };
        let kernel = cuda.kernel(kernel).map_err(failed)?;
        self.memory().iter().for_each(|memory: &Buffer<u8>| stream.hold(memory));
        stream.hold(self.report.memory());
        let window = self.handle()?;
        let args: Vec<Arg<'_>> =
            iter::once(Arg::new(&window)).chain(args.iter().copied()).collect();
        // SAFETY: the caller's promise; its memory is held here, or by the graph being captured.
        unsafe { stream.launch(&kernel, Dims::one(), &args) }.map_err(failed)
    }
}

/// Whole elements.
impl<T: AtomicNumber> Window<T> {
    /// Adds to element `at` of rank `rank`, as one step for everybody; gives the value before.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn fetch_add(&self, rank: usize, at: u64, value: T) -> Result<T> {
        self.atomic(rank, at, AtomicOp::Add(value))
    }

    /// Replaces element `at` of rank `rank`, as one step for everybody; gives the value before.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn swap(&self, rank: usize, at: u64, value: T) -> Result<T> {
        self.atomic(rank, at, AtomicOp::Swap(value))
    }

    /// Replaces element `at` of rank `rank` by `value` if it is `expected`, as one step for everybody; gives the value
    /// before.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Mismatch`] for floating-point numbers.
    pub fn compare_swap(&self, rank: usize, at: u64, expected: T, value: T) -> Result<T> {
        self.atomic(rank, at, AtomicOp::CompareSwap { expected, value })
    }
}

fn not_reached(call: &Call<'_>) -> Error {
    call.failed(gdsync::Error::NotReachable {
        what: "an atomic operation of the host",
        memory: "the window".into(),
        place: "the CPU".into(),
        hint: "put the window into host memory, or use a stream of its GPU",
    })
}
