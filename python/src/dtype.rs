//! Types of elements, as NumPy, the buffer protocol, DLPack and libmp call them.

use half::{bf16, f16};
use pyo3::prelude::*;

use crate::error::{Result, argument};

/// A type of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DType {
    /// As NumPy names it.
    pub name: &'static str,
    pub size: usize,
    /// As the array interface of NumPy says it: kind and size, little endian.
    pub typestr: &'static str,
    /// As the buffer protocol says it; none for what it cannot say.
    format: Option<&'static str>,
    /// `DLDataTypeCode`.
    code: u8,
}

macro_rules! dtypes {
    ($($name:ident $size:literal $typestr:literal $format:expr, $code:literal;)+) => {
        const ALL: &[DType] = &[$(DType {
            name: stringify!($name), size: $size, typestr: $typestr, format: $format, code: $code,
        }),+];
    };
}
dtypes! {
    float64 8 "<f8" Some("d"), 2;
    float32 4 "<f4" Some("f"), 2;
    float16 2 "<f2" Some("e"), 2;
    bfloat16 2 "<V2" None, 4;
    int64 8 "<i8" Some("q"), 0;
    int32 4 "<i4" Some("i"), 0;
    int16 2 "<i2" Some("h"), 0;
    int8 1 "|i1" Some("b"), 0;
    uint64 8 "<u8" Some("Q"), 1;
    uint32 4 "<u4" Some("I"), 1;
    uint16 2 "<u2" Some("H"), 1;
    uint8 1 "|u1" Some("B"), 1;
    bool 1 "|b1" Some("?"), 6;
    complex64 8 "<c8" Some("Zf"), 5;
    complex128 16 "<c16" Some("Zd"), 5;
}

/// Bytes.
pub const BYTES: DType = ALL[11];

impl DType {
    fn find(is_it: impl Fn(&DType) -> bool) -> Option<DType> {
        ALL.iter().copied().find(is_it)
    }

    /// From what Python says: a name, or a `dtype` of NumPy, CuPy or PyTorch.
    pub fn of(object: &Bound<'_, PyAny>) -> Result<DType> {
        // `numpy.float64` is a class, `torch.float64` prints as its name, a dtype of NumPy has one.
        let name = match object.getattr("name").or_else(|_| object.getattr("__name__")) {
            Ok(name) => name.to_string(),
            Err(_) => object.to_string(),
        };
        let name = name.trim_start_matches("torch.");
        let name = match name {
            "float" => "float64",
            "int" => "int64",
            "bool_" => "bool",
            name => name,
        };
        let known = || ALL.iter().map(|dtype| dtype.name).collect::<Vec<_>>().join(", ");
        DType::find(|dtype| dtype.name == name)
            .ok_or_else(|| argument("dtype", format!("{name:?}, expected one of {}", known())))
    }

    /// From a format of the buffer protocol; bytes of that size for what is none of the types here.
    pub fn from_format(format: &str, size: usize) -> Option<DType> {
        let native = format.trim_start_matches(['@', '=', '<']);
        // `l` has the size of the machine's long.
        let native = match (native, size) {
            ("l", 8) => "q",
            ("L", 8) => "Q",
            ("c", 1) => "B",
            (other, _) => other,
        };
        DType::find(|dtype| dtype.format == Some(native) && dtype.size == size)
    }

    /// From NumPy's array interface.
    pub fn from_typestr(text: &str) -> Option<DType> {
        DType::find(|dtype| dtype.typestr == text)
    }

    /// From `DLDataType`.
    pub fn from_dlpack(code: u8, bits: u8) -> Option<DType> {
        DType::find(|dtype| dtype.code == code && dtype.size * 8 == usize::from(bits))
    }

    /// `DLDataTypeCode` and bits.
    pub fn dlpack(&self) -> (u8, u8) {
        (self.code, (self.size * 8) as u8)
    }

    /// As the buffer protocol says it: bytes for what it cannot say.
    pub fn format(&self) -> Option<&'static str> {
        self.format
    }
}

/// Calls `$body` with `$T` as the type of numbers that collectives combine; `$otherwise` for other types.
macro_rules! with_number {
    ($dtype:expr, $T:ident => $body:expr, $otherwise:expr) => {
        match $dtype.name {
            "float64" => {
                type $T = f64;
                $body
            }
            "float32" => {
                type $T = f32;
                $body
            }
            "float16" => {
                type $T = $crate::dtype::F16;
                $body
            }
            "bfloat16" => {
                type $T = $crate::dtype::Bf16;
                $body
            }
            "int64" => {
                type $T = i64;
                $body
            }
            "int32" => {
                type $T = i32;
                $body
            }
            "uint64" => {
                type $T = u64;
                $body
            }
            "uint32" => {
                type $T = u32;
                $body
            }
            _ => $otherwise,
        }
    };
}
pub(crate) use with_number;

/// For the macro above.
pub type F16 = f16;
/// For the macro above.
pub type Bf16 = bf16;
