//! Predefined datatypes and operations.

use crate::abi::Handle;
use crate::state::fail;

/// A datatype: its size, and what it is for operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
    Bool,
    /// A value and an int, for `MPI_MINLOC` and `MPI_MAXLOC`.
    F32Int,
    F64Int,
    I64Int,
    I32Int,
    /// Bytes without arithmetic.
    Plain(usize),
}

/// What a handle is a datatype of. Ends the program for others, and for rows.
pub fn element(datatype: Handle) -> Element {
    let known = predefined(datatype).map(|(element, _)| element);
    known.or_else(|| crate::datatype::made(datatype)).unwrap_or_else(|| {
        fail(
            "a datatype",
            format!(
                "handle {datatype:#x} is no datatype of C that is predefined, and none made of one"
            ),
        )
    })
}

/// What a handle of the ABI is a datatype of, and its name.
pub fn predefined(datatype: Handle) -> Option<(Element, &'static str)> {
    use Element::*;
    Some(match datatype {
        0x201 => (I64, "MPI_AINT"),
        0x202 => (I64, "MPI_COUNT"),
        0x203 => (I64, "MPI_OFFSET"),
        0x207 => (U8, "MPI_PACKED"),
        0x208 => (I16, "MPI_SHORT"),
        0x209 => (I32, "MPI_INT"),
        0x20a => (I64, "MPI_LONG"),
        0x20b => (I64, "MPI_LONG_LONG"),
        0x20c => (U16, "MPI_UNSIGNED_SHORT"),
        0x20d => (U32, "MPI_UNSIGNED"),
        0x20e => (U64, "MPI_UNSIGNED_LONG"),
        0x20f => (U64, "MPI_UNSIGNED_LONG_LONG"),
        0x210 => (F32, "MPI_FLOAT"),
        0x212 => (Plain(8), "MPI_C_FLOAT_COMPLEX"),
        0x213 => (Plain(8), "MPI_CXX_FLOAT_COMPLEX"),
        0x214 => (F64, "MPI_DOUBLE"),
        0x216 => (Plain(16), "MPI_C_DOUBLE_COMPLEX"),
        0x217 => (Plain(16), "MPI_CXX_DOUBLE_COMPLEX"),
        0x220 => (Plain(16), "MPI_LONG_DOUBLE"),
        0x228 => (F32Int, "MPI_FLOAT_INT"),
        0x229 => (F64Int, "MPI_DOUBLE_INT"),
        0x22a => (I64Int, "MPI_LONG_INT"),
        0x22b => (I32Int, "MPI_2INT"),
        0x238 => (Bool, "MPI_C_BOOL"),
        0x239 => (Bool, "MPI_CXX_BOOL"),
        0x23c => (I32, "MPI_WCHAR"),
        0x240 => (I8, "MPI_INT8_T"),
        0x241 => (U8, "MPI_UINT8_T"),
        0x243 => (I8, "MPI_CHAR"),
        0x244 => (I8, "MPI_SIGNED_CHAR"),
        0x245 => (U8, "MPI_UNSIGNED_CHAR"),
        0x247 => (U8, "MPI_BYTE"),
        0x248 => (I16, "MPI_INT16_T"),
        0x249 => (U16, "MPI_UINT16_T"),
        0x250 => (I32, "MPI_INT32_T"),
        0x251 => (U32, "MPI_UINT32_T"),
        0x258 => (I64, "MPI_INT64_T"),
        0x259 => (U64, "MPI_UINT64_T"),
        _ => return None,
    })
}

impl Element {
    /// Bytes from one to the next.
    pub fn size(self) -> usize {
        match self {
            Element::I8 | Element::U8 | Element::Bool => 1,
            Element::I16 | Element::U16 => 2,
            Element::I32 | Element::U32 | Element::F32 => 4,
            Element::I64 | Element::U64 | Element::F64 => 8,
            Element::F32Int | Element::I32Int => 8,
            Element::F64Int | Element::I64Int => 16,
            Element::Plain(size) => size,
        }
    }
}

/// A predefined operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Sum,
    Min,
    Max,
    Prod,
    And,
    Or,
    Xor,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    MinLoc,
    MaxLoc,
}

/// What a handle is an operation of. Ends the program for others.
pub fn op(handle: Handle) -> Op {
    match handle {
        0x21 => Op::Sum,
        0x22 => Op::Min,
        0x23 => Op::Max,
        0x24 => Op::Prod,
        0x28 => Op::And,
        0x29 => Op::Or,
        0x2a => Op::Xor,
        0x30 => Op::LogicalAnd,
        0x31 => Op::LogicalOr,
        0x32 => Op::LogicalXor,
        0x38 => Op::MinLoc,
        0x39 => Op::MaxLoc,
        other => {
            fail("a reduction", format!("handle {other:#x} is no operation that is predefined"))
        }
    }
}

/// Combines elements of two ranks, the lower's first, into the second.
pub fn combine(op: Op, element: Element, lower: &[u8], into: &mut [u8]) {
    macro_rules! integers {
        ($type:ty) => {
            each::<{ size_of::<$type>() }>(lower, into, |a, b| {
                let (a, b) = (<$type>::from_ne_bytes(a), <$type>::from_ne_bytes(b));
                let both: $type = match op {
                    Op::Sum => a.wrapping_add(b),
                    Op::Prod => a.wrapping_mul(b),
                    Op::Min => a.min(b),
                    Op::Max => a.max(b),
                    Op::And => a & b,
                    Op::Or => a | b,
                    Op::Xor => a ^ b,
                    Op::LogicalAnd => (a != 0 && b != 0).into(),
                    Op::LogicalOr => (a != 0 || b != 0).into(),
                    Op::LogicalXor => ((a != 0) != (b != 0)).into(),
                    Op::MinLoc | Op::MaxLoc => unfit(op, element),
                };
                both.to_ne_bytes()
            })
        };
    }
    macro_rules! floats {
        ($type:ty) => {
            each::<{ size_of::<$type>() }>(lower, into, |a, b| {
                let (a, b) = (<$type>::from_ne_bytes(a), <$type>::from_ne_bytes(b));
                let both: $type = match op {
                    Op::Sum => a + b,
                    Op::Prod => a * b,
                    Op::Min => {
                        if b < a {
                            b
                        } else {
                            a
                        }
                    }
                    Op::Max => {
                        if b > a {
                            b
                        } else {
                            a
                        }
                    }
                    _ => unfit(op, element),
                };
                both.to_ne_bytes()
            })
        };
    }
    // A value, and behind it an int; the smaller int of equal values.
    macro_rules! located {
        ($type:ty) => {{
            const VALUE: usize = size_of::<$type>();
            const BOTH: usize = 2 * VALUE;
            each::<BOTH>(lower, into, |a, b| {
                let value = |it: &[u8; BOTH]| <$type>::from_ne_bytes(part(it, 0));
                let place = |it: &[u8; BOTH]| i32::from_ne_bytes(part(it, VALUE));
                let (x, y) = (value(&a), value(&b));
                let first = match op {
                    Op::MinLoc => x < y || (x == y && place(&a) <= place(&b)),
                    Op::MaxLoc => x > y || (x == y && place(&a) <= place(&b)),
                    _ => unfit(op, element),
                };
                if first { a } else { b }
            })
        }};
    }
    match element {
        Element::I8 => integers!(i8),
        Element::U8 | Element::Bool => integers!(u8),
        Element::I16 => integers!(i16),
        Element::U16 => integers!(u16),
        Element::I32 => integers!(i32),
        Element::U32 => integers!(u32),
        Element::I64 => integers!(i64),
        Element::U64 => integers!(u64),
        Element::F32 => floats!(f32),
        Element::F64 => floats!(f64),
        Element::F32Int => located!(f32),
        Element::I32Int => located!(i32),
        Element::F64Int => located!(f64),
        Element::I64Int => located!(i64),
        Element::Plain(_) => unfit(op, element),
    }
}

fn unfit(op: Op, element: Element) -> ! {
    fail("a reduction", format!("{op:?} of {element:?} is not part of this subset"))
}

/// Some bytes of a value, which has them.
fn part<const WHOLE: usize, const PART: usize>(whole: &[u8; WHOLE], at: usize) -> [u8; PART] {
    let mut bytes = [0; PART];
    bytes.copy_from_slice(&whole[at..at + PART]);
    bytes
}

fn each<const SIZE: usize>(
    lower: &[u8],
    into: &mut [u8],
    both: impl Fn([u8; SIZE], [u8; SIZE]) -> [u8; SIZE],
) {
    for (a, b) in lower.as_chunks::<SIZE>().0.iter().zip(into.as_chunks_mut::<SIZE>().0) {
        *b = both(*a, *b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_place_of_equal_values_is_kept() {
        let pair = |value: f64, place: i32| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&value.to_ne_bytes());
            bytes[8..12].copy_from_slice(&place.to_ne_bytes());
            bytes
        };
        for (op, lower, upper, kept) in [
            (Op::MinLoc, (1.0, 5), (1.0, 3), (1.0, 3)),
            (Op::MinLoc, (1.0, 5), (2.0, 3), (1.0, 5)),
            (Op::MaxLoc, (1.0, 5), (2.0, 3), (2.0, 3)),
            (Op::MaxLoc, (2.0, 0), (2.0, 3), (2.0, 0)),
        ] {
            let mut into = pair(upper.0, upper.1);
            combine(op, Element::F64Int, &pair(lower.0, lower.1), &mut into);
            assert_eq!(into, pair(kept.0, kept.1), "{op:?}");
        }
    }

    #[test]
    fn elements_are_combined_one_by_one() {
        let bytes =
            |values: &[i32]| values.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>();
        for (op, expected) in [
            (Op::Sum, [11, -3]),
            (Op::Prod, [30, -10]),
            (Op::Min, [5, -5]),
            (Op::Xor, [5 ^ 6, -5 ^ 2]),
            (Op::LogicalAnd, [1, 1]),
        ] {
            let mut into = bytes(&[6, 2]);
            combine(op, Element::I32, &bytes(&[5, -5]), &mut into);
            assert_eq!(into, bytes(&expected), "{op:?}");
        }
    }
}
