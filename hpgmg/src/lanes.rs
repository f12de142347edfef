//! Short vectors of cells: what the inner loops of the operators are written in.
//!
//! The loops of a stencil read some forty rows at once and hand one flux on from vector to vector; the
//! compiler's own vectorisation of that leaves a scalar remainder in every row. [`Lanes`] is the little
//! that the stencils need, for the widths that machines have. All of it rounds as single numbers do,
//! without fused multiply-add, so results do not depend on the width.

use std::ops::{Add, Mul, Sub};

/// A vector of consecutive cells along i.
pub trait Lanes: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {
    /// Number of cells.
    const WIDTH: usize;
    /// Which cells of a vector are of the colour that is updated.
    type Mask: Copy;

    /// Reads consecutive cells.
    ///
    /// # Safety
    /// `WIDTH` elements from `p` on may be read, by instructions that this machine has.
    unsafe fn load(p: *const f64) -> Self;

    /// Writes consecutive cells.
    ///
    /// # Safety
    /// `WIDTH` elements from `p` on may be written, by instructions that this machine has.
    unsafe fn store(self, p: *mut f64);

    /// The same number in all cells.
    fn splat(value: f64) -> Self;

    /// The vector one cell before this one: its first cell is the last of `before`.
    fn shifted(self, before: Self) -> Self;

    /// The last cell.
    fn last(self) -> f64;

    /// Every second cell, from the first if `parity` is even, else from the second.
    fn mask(parity: usize) -> Self::Mask;

    /// `new` in the cells of `mask`, `old` in the others.
    fn select(mask: Self::Mask, new: Self, old: Self) -> Self;
}

/// Asks for the cache line of element `at` of `v`, which need not exist, ahead of its use.
#[inline(always)]
pub fn prefetch(v: *const f64, at: usize) {
    let p = v.wrapping_add(at);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that does not fault, by an instruction of every machine of the architecture.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

impl Lanes for f64 {
    const WIDTH: usize = 1;
    type Mask = bool;

    #[inline(always)]
    unsafe fn load(p: *const f64) -> Self {
        // SAFETY: by the caller's promise.
        unsafe { *p }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f64) {
        // SAFETY: by the caller's promise.
        unsafe { *p = self }
    }

    #[inline(always)]
    fn splat(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn shifted(self, before: Self) -> Self {
        before
    }

    #[inline(always)]
    fn last(self) -> f64 {
        self
    }

    #[inline(always)]
    fn mask(parity: usize) -> bool {
        parity.is_multiple_of(2)
    }

    #[inline(always)]
    fn select(mask: bool, new: Self, old: Self) -> Self {
        if mask { new } else { old }
    }
}

/// Two cells, for machines that none of the other widths is written for; compilers turn it into their
/// 128-bit instructions.
#[derive(Clone, Copy, Debug)]
pub struct Pair(f64, f64);

impl Add for Pair {
    type Output = Self;
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        Self(self.0 + b.0, self.1 + b.1)
    }
}

impl Sub for Pair {
    type Output = Self;
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        Self(self.0 - b.0, self.1 - b.1)
    }
}

impl Mul for Pair {
    type Output = Self;
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        Self(self.0 * b.0, self.1 * b.1)
    }
}

impl Lanes for Pair {
    const WIDTH: usize = 2;
    type Mask = bool;

    #[inline(always)]
    unsafe fn load(p: *const f64) -> Self {
        // SAFETY: by the caller's promise.
        unsafe { Self(*p, *p.add(1)) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f64) {
        // SAFETY: by the caller's promise.
        unsafe { (*p, *p.add(1)) = (self.0, self.1) }
    }

    #[inline(always)]
    fn splat(value: f64) -> Self {
        Self(value, value)
    }

    #[inline(always)]
    fn shifted(self, before: Self) -> Self {
        Self(before.1, self.0)
    }

    #[inline(always)]
    fn last(self) -> f64 {
        self.1
    }

    #[inline(always)]
    fn mask(parity: usize) -> bool {
        parity.is_multiple_of(2)
    }

    #[inline(always)]
    fn select(mask: bool, new: Self, old: Self) -> Self {
        if mask { Self(new.0, old.1) } else { Self(old.0, new.1) }
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Eight, Four};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64::*;
    use std::ops::{Add, Mul, Sub};

    macro_rules! operator {
        ($lanes:ident, $trait:ident, $method:ident, $intrinsic:ident) => {
            impl $trait for $lanes {
                type Output = Self;
                #[inline(always)]
                fn $method(self, b: Self) -> Self {
                    // SAFETY: vectors of this type come from `load`, whose caller has the instructions.
                    Self(unsafe { $intrinsic(self.0, b.0) })
                }
            }
        };
    }

    /// Four cells, with AVX2.
    #[derive(Clone, Copy, Debug)]
    pub struct Four(__m256d);

    operator!(Four, Add, add, _mm256_add_pd);
    operator!(Four, Sub, sub, _mm256_sub_pd);
    operator!(Four, Mul, mul, _mm256_mul_pd);

    impl Lanes for Four {
        const WIDTH: usize = 4;
        type Mask = bool;

        #[inline(always)]
        unsafe fn load(p: *const f64) -> Self {
            // SAFETY: by the caller's promise.
            Self(unsafe { _mm256_loadu_pd(p) })
        }

        #[inline(always)]
        unsafe fn store(self, p: *mut f64) {
            // SAFETY: by the caller's promise.
            unsafe { _mm256_storeu_pd(p, self.0) }
        }

        #[inline(always)]
        fn splat(value: f64) -> Self {
            // SAFETY: only code compiled for these instructions works with this type.
            Self(unsafe { _mm256_set1_pd(value) })
        }

        #[inline(always)]
        fn shifted(self, before: Self) -> Self {
            // SAFETY: as above.
            unsafe {
                // before[2], before[3], self[0], self[1]
                let middle = _mm256_permute2f128_pd::<0x21>(before.0, self.0);
                Self(_mm256_shuffle_pd::<0b0101>(middle, self.0))
            }
        }

        #[inline(always)]
        fn last(self) -> f64 {
            // SAFETY: as above.
            unsafe {
                let high = _mm256_extractf128_pd::<1>(self.0);
                _mm_cvtsd_f64(_mm_unpackhi_pd(high, high))
            }
        }

        #[inline(always)]
        fn mask(parity: usize) -> bool {
            parity.is_multiple_of(2)
        }

        #[inline(always)]
        fn select(mask: bool, new: Self, old: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe {
                if mask {
                    _mm256_blend_pd::<0b0101>(old.0, new.0)
                } else {
                    _mm256_blend_pd::<0b1010>(old.0, new.0)
                }
            })
        }
    }

    /// Eight cells, with AVX-512.
    #[derive(Clone, Copy, Debug)]
    pub struct Eight(__m512d);

    operator!(Eight, Add, add, _mm512_add_pd);
    operator!(Eight, Sub, sub, _mm512_sub_pd);
    operator!(Eight, Mul, mul, _mm512_mul_pd);

    impl Lanes for Eight {
        const WIDTH: usize = 8;
        type Mask = __mmask8;

        #[inline(always)]
        unsafe fn load(p: *const f64) -> Self {
            // SAFETY: by the caller's promise.
            Self(unsafe { _mm512_loadu_pd(p) })
        }

        #[inline(always)]
        unsafe fn store(self, p: *mut f64) {
            // SAFETY: by the caller's promise.
            unsafe { _mm512_storeu_pd(p, self.0) }
        }

        #[inline(always)]
        fn splat(value: f64) -> Self {
            // SAFETY: only code compiled for these instructions works with this type.
            Self(unsafe { _mm512_set1_pd(value) })
        }

        #[inline(always)]
        fn shifted(self, before: Self) -> Self {
            // SAFETY: as above.
            unsafe {
                let (this, before) = (_mm512_castpd_si512(self.0), _mm512_castpd_si512(before.0));
                Self(_mm512_castsi512_pd(_mm512_alignr_epi64::<7>(this, before)))
            }
        }

        #[inline(always)]
        fn last(self) -> f64 {
            // SAFETY: as above.
            unsafe {
                let high = _mm256_extractf128_pd::<1>(_mm512_extractf64x4_pd::<1>(self.0));
                _mm_cvtsd_f64(_mm_unpackhi_pd(high, high))
            }
        }

        #[inline(always)]
        fn mask(parity: usize) -> __mmask8 {
            if parity.is_multiple_of(2) { 0b0101_0101 } else { 0b1010_1010 }
        }

        #[inline(always)]
        fn select(mask: __mmask8, new: Self, old: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { _mm512_mask_mov_pd(old.0, mask, new.0) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "x86_64")]
    use crate::isa::Isa;

    /// What the operations give on two vectors of numbers, in a form that does not depend on the width.
    #[inline(always)]
    fn check<V: Lanes>() {
        let input: Vec<f64> = (0..2 * V::WIDTH).map(|i| 0.1 + i as f64).collect();
        // SAFETY: both vectors lie within `input`; the callers are compiled for the instructions.
        let (a, b) = unsafe { (V::load(&input[0]), V::load(&input[V::WIDTH])) };
        let of = |v: V| {
            let mut out = vec![0.0; V::WIDTH];
            // SAFETY: `out` has the length.
            unsafe { v.store(out.as_mut_ptr()) };
            out
        };
        for i in 0..V::WIDTH {
            let (x, y) = (input[i], input[i + V::WIDTH]);
            assert_eq!(of(a + b)[i], x + y);
            assert_eq!(of(a - b)[i], x - y);
            assert_eq!(of(a * b)[i], x * y);
            assert_eq!(of(V::splat(7.5))[i], 7.5);
            assert_eq!(of(b.shifted(a))[i], input[i + V::WIDTH - 1]);
            for parity in 0..2 {
                let new = (i + parity).is_multiple_of(2);
                let picked = of(V::select(V::mask(parity), a, b))[i];
                assert_eq!(picked, if new { x } else { y });
            }
        }
        assert_eq!(a.last(), input[V::WIDTH - 1]);
    }

    #[test]
    fn every_width_this_machine_has_computes_what_single_numbers_do() {
        check::<f64>();
        check::<Pair>();
        #[cfg(target_arch = "x86_64")]
        {
            if Isa::detect() >= Isa::Avx2 {
                Isa::Avx2.call(check::<Four>);
            }
            if Isa::detect() >= Isa::Avx512 {
                Isa::Avx512.call(check::<Eight>);
            }
        }
    }
}
