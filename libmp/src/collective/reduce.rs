//! All-reduce: element by element over the ranks' vectors, in rank order, so that a floating-point sum is the same bits
//! on every rank and in every run.

use std::fmt;
use std::sync::Arc;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use crate::control::message::Payload;

/// How a collective combines the ranks' values, in rank order.
///
/// ```
/// use libmp::{ReduceOp, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let mut values = [world.rank() as u64, 7];
/// world.all_reduce(ReduceOp::Max, &mut values)?;
/// assert_eq!(values, [world.size() as u64 - 1, 7]);
/// # world.finish()
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReduceOp {
    /// The sum in rank order. Integers wrap around.
    Sum,
    /// The smallest; NaN if any is NaN; -0 is smaller than +0.
    Min,
    /// The largest; NaN if any is NaN; +0 is larger than -0.
    Max,
    /// The product in rank order. Integers wrap around.
    Prod,
    /// Bit by bit, of integers.
    And,
    /// Bit by bit, of integers.
    Or,
    /// Bit by bit, of integers.
    Xor,
}

impl ReduceOp {
    /// Combines values with as many others, element by element, as a collective does with those of the next rank. Floating-point numbers
    /// stay what they are under operations on bits.
    ///
    /// ```
    /// let mut values = [1.0, f64::NAN, 3.0];
    /// libmp::ReduceOp::Max.combine(&mut values, &[2.0, 2.0, 2.0]);
    /// assert!(values[0] == 2.0 && values[1].is_nan() && values[2] == 3.0);
    /// ```
    pub fn combine<T: Number>(self, values: &mut [T], others: &[T]) {
        T::combine_all(self, values, others);
    }

    /// As kernels know it.
    pub(crate) fn code(self) -> u32 {
        let reduction = match self {
            ReduceOp::Sum => mp_kernels::Reduction::Sum,
            ReduceOp::Min => mp_kernels::Reduction::Min,
            ReduceOp::Max => mp_kernels::Reduction::Max,
            ReduceOp::Prod => mp_kernels::Reduction::Prod,
            ReduceOp::And => mp_kernels::Reduction::And,
            ReduceOp::Or => mp_kernels::Reduction::Or,
            ReduceOp::Xor => mp_kernels::Reduction::Xor,
        };
        reduction as u32
    }

    /// Why values of a type are not combined like this.
    pub(crate) fn refuses(self, element: Element) -> Option<String> {
        let bits = matches!(self, ReduceOp::And | ReduceOp::Or | ReduceOp::Xor);
        (bits && element.is_float()).then(|| format!("`{self}` is of integers, not of {element}"))
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Prod => "prod",
            ReduceOp::And => "and",
            ReduceOp::Or => "or",
            ReduceOp::Xor => "xor",
        })
    }
}

macro_rules! elements {
    ($($element:ident $type:ident),+ $(,)?) => {
        /// The type of the values on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Element {
            $($element),+
        }

        impl Element {
            /// As kernels know it.
            pub(crate) fn code(self) -> u32 {
                let element = match self {
                    $(Element::$element => mp_kernels::Element::$element,)+
                };
                element as u32
            }

            fn is_float(self) -> bool {
                matches!(self, Element::F64 | Element::F32 | Element::F16 | Element::Bf16)
            }
        }

        impl Element {
            /// Whether a number of it has 32 bits.
            pub(crate) fn is_half(self) -> bool {
                match self {
                    $(Element::$element => size_of::<$type>() == 4,)+
                }
            }

            /// What a word behind an atomic operation holds, that held this before.
            pub(crate) fn change(self, kind: mp_kernels::AtomicKind, held: u64, value: u64) -> u64 {
                match self {
                    $(Element::$element => {
                        let (held, value) = ($type::from_bits64(held), $type::from_bits64(value));
                        held.change(kind, value).to_bits64()
                    })+
                }
            }
        }

        impl fmt::Display for Element {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Element::$element => stringify!($type),)+
                })
            }
        }

        $(impl Number for $type {})+

        fn bits(op: ReduceOp, element: Element, a: u64, b: u64) -> u64 {
            match element {
                $(Element::$element => {
                    $type::combine(op, $type::from_bits64(a), $type::from_bits64(b)).to_bits64()
                })+
            }
        }
    };
}
elements!(F64 f64, F32 f32, U64 u64, I64 i64, U32 u32, I32 i32, F16 f16, Bf16 bf16);

mod sealed {
    use half::{bf16, f16};
    use mp_kernels::AtomicKind;

    use super::{Element, ReduceOp};

    pub trait Sealed: bytemuck::Pod + Send + Sync {
        const ELEMENT: Element;
        fn to_bits64(self) -> u64;
        fn from_bits64(bits: u64) -> Self;
        fn combine(op: ReduceOp, a: Self, b: Self) -> Self;
        /// What an atomic operation makes of it.
        fn change(self, kind: AtomicKind, value: Self) -> Self;

        /// Combines values with as many others: a loop for each operation, of which the compiler makes vector instructions.
        fn combine_all(op: ReduceOp, values: &mut [Self], others: &[Self]) {
            let pairs = values.iter_mut().zip(others);
            macro_rules! each {
                ($($op:ident),+) => {
                    match op {
                        $(ReduceOp::$op => {
                            pairs.for_each(|(a, b)| *a = Self::combine(ReduceOp::$op, *a, *b));
                        })+
                    }
                };
            }
            each!(Sum, Min, Max, Prod, And, Or, Xor);
        }

        /// The same of values in words of eight bytes, as they lie in memory.
        fn combine_words(op: ReduceOp, words: &mut [u64], others: &[u64]) {
            let (values, others) = (bytemuck::cast_slice_mut(words), bytemuck::cast_slice(others));
            Self::combine_all(op, values, others);
        }
    }

    macro_rules! integers {
        ($($element:ident $type:ident $unsigned:ident),+ $(,)?) => { $(
            impl Sealed for $type {
                const ELEMENT: Element = Element::$element;

                fn to_bits64(self) -> u64 {
                    self as $unsigned as u64
                }

                fn from_bits64(bits: u64) -> $type {
                    bits as $type
                }

                fn combine(op: ReduceOp, a: $type, b: $type) -> $type {
                    match op {
                        ReduceOp::Sum => a.wrapping_add(b),
                        ReduceOp::Min => a.min(b),
                        ReduceOp::Max => a.max(b),
                        ReduceOp::Prod => a.wrapping_mul(b),
                        ReduceOp::And => a & b,
                        ReduceOp::Or => a | b,
                        ReduceOp::Xor => a ^ b,
                    }
                }

                fn change(self, kind: AtomicKind, value: $type) -> $type {
                    match kind {
                        AtomicKind::Add => self.wrapping_add(value),
                        AtomicKind::And => self & value,
                        AtomicKind::Or => self | value,
                        AtomicKind::Xor => self ^ value,
                        AtomicKind::Min => self.min(value),
                        AtomicKind::Max => self.max(value),
                        AtomicKind::Fetch | AtomicKind::Swap | AtomicKind::CompareSwap => value,
                    }
                }
            }
        )+ };
    }
    integers!(U64 u64 u64, I64 i64 u64, U32 u32 u32, I32 i32 u32);

    macro_rules! floats {
        ($($element:ident $type:ident $unsigned:ident),+ $(,)?) => { $(
            impl Sealed for $type {
                const ELEMENT: Element = Element::$element;

                fn to_bits64(self) -> u64 {
                    self.to_bits() as u64
                }

                fn from_bits64(bits: u64) -> $type {
                    $type::from_bits(bits as $unsigned)
                }

                fn combine(op: ReduceOp, a: $type, b: $type) -> $type {
                    let larger = || a.total_cmp(&b).is_gt();
                    match op {
                        ReduceOp::Sum => a + b,
                        ReduceOp::Prod => a * b,
                        // `min` of the type would drop a NaN, and with it the news that a rank has diverged.
                        _ if a.is_nan() => a,
                        _ if b.is_nan() => b,
                        ReduceOp::Min => if larger() { b } else { a },
                        ReduceOp::Max => if larger() { a } else { b },
                        // Refused before anything is combined.
                        ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => a,
                    }
                }

                fn change(self, kind: AtomicKind, value: $type) -> $type {
                    match kind {
                        AtomicKind::Add => self + value,
                        _ => value,
                    }
                }
            }
        )+ };
    }
    // The arithmetic of `half` is that of `f32`, rounded after each operation, as in kernels.
    floats!(F64 f64 u64, F32 f32 u32, F16 f16 u16, Bf16 bf16 u16);
}

pub(crate) use sealed::Sealed;

/// A number that collectives combine: `f64`, `f32`, `u64`, `i64`, `u32`, `i32`, or of 16 bits [`f16`](struct@f16) or [`bf16`], whose
/// every step is taken as `f32` and rounded.
///
/// ```
/// use libmp::{Number, Result, World};
///
/// fn total<T: Number>(world: &World, mine: T) -> Result<T> {
///     world.sum(mine)
/// }
/// ```
pub trait Number: Sealed {}

pub(crate) fn to_bytes<T: Number>(values: &[T]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_bits64().to_le_bytes()).collect()
}

/// Writes the result of a reduction over `values`; false if it has another length.
pub(crate) fn from_bytes<T: Number>(bytes: &[u8], values: &mut [T]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    if words.len() != values.len() || !rest.is_empty() {
        return false;
    }
    for (value, word) in values.iter_mut().zip(words) {
        *value = T::from_bits64(u64::from_le_bytes(*word));
    }
    true
}

pub(crate) fn reduce<'a>(
    op: ReduceOp,
    element: Element,
    members: &[u32],
    payloads: impl Iterator<Item = &'a Payload>,
) -> Result<Payload, String> {
    if let Some(reason) = op.refuses(element) {
        return Err(reason);
    }
    let mut result: Vec<u64> = Vec::new();
    for (place, (payload, &rank)) in payloads.zip(members).enumerate() {
        let (words, rest) = payload.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(format!(
                "rank {rank} gave {} bytes, which are no 64-bit values",
                payload.len()
            ));
        }
        let values = words.iter().map(|word| u64::from_le_bytes(*word));
        if place == 0 {
            result.extend(values);
            continue;
        }
        if words.len() != result.len() {
            let (lead, theirs) = (members.first().copied().unwrap_or_default(), words.len());
            return Err(format!(
                "rank {lead} gave {} value(s), rank {rank} gave {theirs}",
                result.len()
            ));
        }
        for (sum, value) in result.iter_mut().zip(values) {
            *sum = bits(op, element, *sum, value);
        }
    }
    Ok(Arc::from(to_bytes(&result)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over<T: Number>(op: ReduceOp, ranks: &[&[T]]) -> Result<Vec<u64>, String> {
        let payloads: Vec<Payload> =
            ranks.iter().map(|values| Arc::from(to_bytes(values))).collect();
        let members: Vec<u32> = (0..ranks.len() as u32).collect();
        let bytes = reduce(op, T::ELEMENT, &members, payloads.iter())?;
        let mut bits = vec![0u64; ranks[0].len()];
        assert!(from_bytes(&bytes, &mut bits));
        Ok(bits)
    }

    #[test]
    fn a_sum_is_taken_in_rank_order() {
        let [a, b, c] = [1e16f64, 1.0, -1e16];
        assert_eq!(over(ReduceOp::Sum, &[&[a], &[b], &[c]]).unwrap(), [((a + b) + c).to_bits()]);
        assert_eq!(over(ReduceOp::Sum, &[&[a], &[c], &[b]]).unwrap(), [1f64.to_bits()]);
    }

    #[test]
    fn integers_wrap_and_compare_unsigned() {
        assert_eq!(over(ReduceOp::Sum, &[&[u64::MAX, 2], &[2, 3]]).unwrap(), [1, 5]);
        assert_eq!(over(ReduceOp::Max, &[&[u64::MAX], &[1u64]]).unwrap(), [u64::MAX]);
        assert_eq!(over(ReduceOp::Min, &[&[u64::MAX], &[1u64]]).unwrap(), [1]);
    }

    #[test]
    fn integers_of_every_kind_wrap_and_compare_as_themselves() {
        assert_eq!(over(ReduceOp::Sum, &[&[u32::MAX], &[2u32]]).unwrap(), [1]);
        assert_eq!(over(ReduceOp::Sum, &[&[i32::MIN], &[-1]]).unwrap(), [i32::MAX as u64]);
        assert_eq!(over(ReduceOp::Min, &[&[-5i64], &[3]]).unwrap(), [(-5i64) as u64]);
        assert_eq!(over(ReduceOp::Max, &[&[-5i32], &[-7]]).unwrap(), [u64::from((-5i32) as u32)]);
        let half = over(ReduceOp::Sum, &[&[0.25f32], &[0.25]]).unwrap();
        assert_eq!(half, [u64::from(0.5f32.to_bits())]);
    }

    #[test]
    fn a_nan_is_not_lost_and_zeros_are_ordered() {
        for op in [ReduceOp::Min, ReduceOp::Max, ReduceOp::Sum] {
            for ranks in [[f64::NAN, 1.0], [1.0, f64::NAN]] {
                let bits = over(op, &[&[ranks[0]], &[ranks[1]]]).unwrap()[0];
                assert!(f64::from_bits(bits).is_nan(), "{op}");
            }
        }
        assert_eq!(over(ReduceOp::Min, &[&[0.0], &[-0.0]]).unwrap(), [(-0f64).to_bits()]);
        assert_eq!(over(ReduceOp::Max, &[&[-0.0], &[0.0]]).unwrap(), [0f64.to_bits()]);
    }

    #[test]
    fn products_and_bits_are_those_of_the_type() {
        assert_eq!(over(ReduceOp::Prod, &[&[-3i32], &[5]]).unwrap(), [u64::from((-15i32) as u32)]);
        assert_eq!(over(ReduceOp::Prod, &[&[u64::MAX], &[2u64]]).unwrap(), [u64::MAX - 1]);
        assert_eq!(over(ReduceOp::And, &[&[6u32], &[3]]).unwrap(), [2]);
        assert_eq!(over(ReduceOp::Or, &[&[6u32], &[3]]).unwrap(), [7]);
        assert_eq!(over(ReduceOp::Xor, &[&[6i64], &[3]]).unwrap(), [5]);
        let refused = over(ReduceOp::Xor, &[&[1.0], &[2.0]]).unwrap_err();
        assert_eq!(refused, "`xor` is of integers, not of f64");
    }

    #[test]
    fn numbers_of_16_bits_are_rounded_at_each_step() {
        let [large, one] = [f16::from_f32(2048.0), f16::from_f32(1.0)];
        // 2049 lies between two of them, and is rounded to the even one; twice.
        let sum = over(ReduceOp::Sum, &[&[large], &[one], &[one]]).unwrap();
        assert_eq!(sum, [u64::from(large.to_bits())]);
        let third = bf16::from_f32(1.0 / 3.0);
        let product = over(ReduceOp::Prod, &[&[third], &[third]]).unwrap();
        let exact = third.to_f32() * third.to_f32();
        assert_eq!(product, [u64::from(bf16::from_f32(exact).to_bits())]);
    }

    #[test]
    fn values_in_words_are_combined_as_themselves() {
        let [a, b] = [[-1i32, 7], [3, i32::MIN]];
        let word =
            |values: [i32; 2]| u64::from(values[0] as u32) | u64::from(values[1] as u32) << 32;
        let combined = |combine: fn(ReduceOp, &mut [u64], &[u64]), op, a, b| {
            let mut words = [a];
            combine(op, &mut words, &[b]);
            words[0]
        };
        let smallest = combined(i32::combine_words, ReduceOp::Min, word(a), word(b));
        assert_eq!(smallest, word([-1, i32::MIN]));
        let [one, half] =
            [f16::from_f32(1.0), f16::from_f32(0.5)].map(|of| u64::from(of.to_bits()));
        let sum = u64::from(f16::from_f32(1.5).to_bits());
        let all = |bits: u64| bits * 0x0001_0001_0001_0001;
        assert_eq!(combined(f16::combine_words, ReduceOp::Sum, all(one), all(half)), all(sum));
    }

    #[test]
    fn vectors_of_different_length_are_refused_with_both_lengths() {
        let error = over(ReduceOp::Sum, &[&[1.0, 2.0], &[1.0]]).unwrap_err();
        assert_eq!(error, "rank 0 gave 2 value(s), rank 1 gave 1");
    }

    #[test]
    fn no_values_reduce_to_no_values() {
        assert_eq!(over::<f64>(ReduceOp::Max, &[&[], &[]]).unwrap(), [0u64; 0]);
    }
}
