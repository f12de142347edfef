//! Waits for words of this PE that others write, and looks at them.

use std::ffi::c_int;
use std::sync::atomic::{self, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::device;
use crate::failure::{OrFail, die};
use crate::world::{State, state};

/// A number that is waited for.
pub(crate) trait Waited: Copy + PartialOrd {
    /// One look.
    ///
    /// # Safety
    /// The word is there, and aligned.
    unsafe fn load(word: *const Self) -> Self;
}

macro_rules! waited {
    ($($type:ident $atomic:ident),+) => {
        $(impl Waited for $type {
            #[inline]
            unsafe fn load(word: *const $type) -> $type {
                // SAFETY: the caller's promise.
                unsafe { $atomic::from_ptr(word.cast_mut().cast()) }.load(Ordering::Acquire) as $type
            }
        })+
    };
}
/// One look at a word of this PE, wherever it is.
///
/// # Safety
/// As [`Waited::load`].
#[inline]
pub(crate) unsafe fn see<T: Waited>(state: &State, word: *const T) -> T {
    match state.away.load(Ordering::Relaxed) {
        // SAFETY: the caller's promise.
        true => unsafe { device::read(state, word) },
        // SAFETY: the caller's promise.
        false => unsafe { T::load(word) },
    }
}

waited!(i16 AtomicU16, u16 AtomicU16, i32 AtomicU32, u32 AtomicU32, i64 AtomicU64, u64 AtomicU64);

/// Looks at once before a wait is a wait: as long as a message between two cores takes.
const LOOKS: u32 = 200;

/// A comparison: `SHMEM_CMP_EQ` and the others.
#[derive(Clone, Copy)]
enum Compare {
    Eq,
    Ne,
    Gt,
    Ge,
    Lt,
    Le,
}

impl Compare {
    fn new(number: c_int) -> Compare {
        match number {
            1 => Compare::Eq,
            2 => Compare::Ne,
            3 => Compare::Gt,
            4 => Compare::Ge,
            5 => Compare::Lt,
            6 => Compare::Le,
            _ => die(format!(
                "{number} is no comparison: expected SHMEM_CMP_EQ, NE, GT, GE, LT or LE, 1 to 6"
            )),
        }
    }

    #[inline]
    fn is_met<T: PartialOrd>(self, seen: T, value: T) -> bool {
        match self {
            Compare::Eq => seen == value,
            Compare::Ne => seen != value,
            Compare::Gt => seen > value,
            Compare::Ge => seen >= value,
            Compare::Lt => seen < value,
            Compare::Le => seen <= value,
        }
    }
}

/// Waits until a look says so, or the world is over.
#[inline]
pub(crate) fn until(state: &State, mut look: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if look() {
            return;
        }
        std::hint::spin_loop();
    }
    state.world.wait_until("a wait for a word of this PE", state.deadline(), look).or_fail();
}

/// What is compared with the words of a list.
#[derive(Clone, Copy)]
enum Values<T> {
    /// The same for all.
    One(T),
    /// One for each.
    Each(*const T),
}

/// Words of this PE, of which some may be left out.
#[derive(Clone, Copy)]
struct Words<T> {
    words: *const T,
    n: usize,
    left_out: *const c_int,
    compare: Compare,
    values: Values<T>,
}

/// Where the next look for any of several begins, so that none is passed over for ever.
static TURN: AtomicUsize = AtomicUsize::new(0);

impl<T: Waited> Words<T> {
    fn new(
        words: *mut T,
        n: usize,
        left_out: *const c_int,
        cmp: c_int,
        values: Values<T>,
    ) -> Words<T> {
        state();
        Words { words, n, left_out, compare: Compare::new(cmp), values }
    }

    /// Whether a word counts.
    ///
    /// # Safety
    /// As C promises, of all functions here: there are `n` of everything.
    unsafe fn counts(&self, i: usize) -> bool {
        // SAFETY: the caller's promise.
        self.left_out.is_null() || unsafe { *self.left_out.add(i) == 0 }
    }

    unsafe fn is_met(&self, i: usize) -> bool {
        // SAFETY: the caller's promise.
        let (seen, value) = unsafe {
            let value = match self.values {
                Values::One(value) => value,
                Values::Each(values) => *values.add(i),
            };
            (see(state(), self.words.add(i)), value)
        };
        self.compare.is_met(seen, value)
    }

    unsafe fn is_empty(&self) -> bool {
        // SAFETY: the caller's promise.
        (0..self.n).all(|i| !unsafe { self.counts(i) })
    }

    unsafe fn all(&self) -> bool {
        // SAFETY: the caller's promise.
        (0..self.n).all(|i| unsafe { !self.counts(i) || self.is_met(i) })
    }

    unsafe fn any(&self) -> usize {
        let first = TURN.fetch_add(1, Ordering::Relaxed) % self.n.max(1);
        let mut turn = (first..self.n).chain(0..first);
        // SAFETY: the caller's promise.
        turn.find(|&i| unsafe { self.counts(i) && self.is_met(i) }).unwrap_or(usize::MAX)
    }

    unsafe fn some(&self, indices: *mut usize) -> usize {
        let mut found = 0;
        for i in 0..self.n {
            // SAFETY: the caller's promise; there is room for all.
            unsafe {
                if self.counts(i) && self.is_met(i) {
                    *indices.add(found) = i;
                    found += 1;
                }
            }
        }
        found
    }

    unsafe fn wait_all(&self) {
        // SAFETY: the caller's promise.
        until(state(), || unsafe { self.all() });
    }

    unsafe fn wait_any(&self) -> usize {
        let mut found = usize::MAX;
        // SAFETY: the caller's promise.
        unsafe {
            if !self.is_empty() {
                until(state(), || {
                    found = self.any();
                    found != usize::MAX
                });
            }
        }
        found
    }

    unsafe fn wait_some(&self, indices: *mut usize) -> usize {
        let mut found = 0;
        // SAFETY: the caller's promise.
        unsafe {
            if !self.is_empty() {
                until(state(), || {
                    found = self.some(indices);
                    found > 0
                });
            }
        }
        found
    }
}

pub(crate) unsafe fn wait_until<T: Waited>(word: *mut T, cmp: c_int, value: T) {
    // SAFETY: as here.
    unsafe { wait_and_see(word, cmp, value) };
}

/// The same; gives what the word held then.
pub(crate) unsafe fn wait_and_see<T: Waited>(word: *mut T, cmp: c_int, value: T) -> T {
    let (state, compare, mut seen) = (state(), Compare::new(cmp), value);
    until(state, || {
        // SAFETY: C's promise.
        seen = unsafe { see(state, word) };
        compare.is_met(seen, value)
    });
    seen
}

pub(crate) unsafe fn test<T: Waited>(word: *mut T, cmp: c_int, value: T) -> c_int {
    let (state, compare) = (state(), Compare::new(cmp));
    // SAFETY: C's promise.
    let met = compare.is_met(unsafe { see(state, word) }, value);
    if !met {
        yield_now_and_then();
    }
    met.into()
}

/// A program that tests in a loop must not keep the core from the PE that it waits for.
pub(crate) fn yield_now_and_then() {
    static LOOKED: AtomicUsize = AtomicUsize::new(0);
    atomic::fence(Ordering::Acquire);
    if LOOKED.fetch_add(1, Ordering::Relaxed) % LOOKS as usize == LOOKS as usize - 1 {
        std::thread::yield_now();
    }
}

/// The functions of C for lists of words, with one value and with one for each.
macro_rules! lists {
    ($($one:ident, $each:ident: $method:ident($($indices:ident)?) -> $result:ty;)+) => {
        $(
            pub(crate) unsafe fn $one<T: Waited>(
                words: *mut T, n: usize, $($indices: *mut usize,)? left_out: *const c_int, cmp: c_int, value: T,
            ) -> $result {
                // SAFETY: C's promise.
                unsafe { Words::new(words, n, left_out, cmp, Values::One(value)).$method($($indices)?) }
            }

            pub(crate) unsafe fn $each<T: Waited>(
                words: *mut T, n: usize, $($indices: *mut usize,)? left_out: *const c_int, cmp: c_int, values: *const T,
            ) -> $result {
                // SAFETY: C's promise.
                unsafe { Words::new(words, n, left_out, cmp, Values::Each(values)).$method($($indices)?) }
            }
        )+
    };
}

impl<T: Waited> Words<T> {
    unsafe fn test_all(&self) -> c_int {
        // SAFETY: the caller's promise.
        let met = unsafe { self.all() };
        if !met {
            yield_now_and_then();
        }
        met.into()
    }

    unsafe fn test_any(&self) -> usize {
        // SAFETY: the caller's promise.
        let found = unsafe { self.any() };
        if found == usize::MAX {
            yield_now_and_then();
        }
        found
    }

    unsafe fn test_some(&self, indices: *mut usize) -> usize {
        // SAFETY: the caller's promise.
        let found = unsafe { self.some(indices) };
        if found == 0 {
            yield_now_and_then();
        }
        found
    }
}

lists! {
    wait_until_all, wait_until_all_vector: wait_all() -> ();
    wait_until_any, wait_until_any_vector: wait_any() -> usize;
    wait_until_some, wait_until_some_vector: wait_some(indices) -> usize;
    test_all, test_all_vector: test_all() -> c_int;
    test_any, test_any_vector: test_any() -> usize;
    test_some, test_some_vector: test_some(indices) -> usize;
}
