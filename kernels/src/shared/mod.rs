//! How a crate declares structs, enums and constants that its Rust and its device code share: each once, in Rust.
//!
//! [`shared_structs!`](crate::shared_structs), [`shared_enum!`](crate::shared_enum) and
//! [`shared_constants!`](crate::shared_constants) make the Rust items and tables of them; a [`Header`] turns the tables into a
//! C++ header that is committed beside the device code, where `static_assert`s repeat every size and offset. A test of the crate
//! keeps the two equal ([`Header::check`]); with `MP_REGENERATE=1` it rewrites the header. This crate's own declarations are in
//! `layout.rs`, its header is `include/mp/layout.cuh`.
//!
//! ```
//! use mp_kernels::shared::Header;
//! use mp_kernels::{shared_constants, shared_enum, shared_structs};
//!
//! shared_constants! {
//!     /// Rows that a block copies.
//!     pub const ROWS: u32 = 8 as rows_of_a_block;
//! }
//! shared_enum! {
//!     /// What a block does.
//!     pub enum Task {
//!         /// Nothing.
//!         Rest = 0 as rest,
//!         /// Copies.
//!         Copy = 1 as copy,
//!     }
//! }
//! shared_structs! {
//!     /// What a kernel is launched with.
//!     pub struct Job {
//!         /// Address of the first row.
//!         pub from: u64,
//!         /// A `Task`.
//!         pub task: u32,
//!         /// Rows.
//!         pub rows: u32,
//!     }
//! }
//!
//! let job = Job { from: 0x1000, task: Task::Copy as u32, rows: ROWS };
//! assert_eq!(bytemuck::bytes_of(&job).len(), LAYOUTS[0].size); // what the launch copies
//! assert_eq!(Task::from_code(job.task), Some(Task::Copy));
//!
//! const HEADER: Header = Header {
//!     source: "src/layout.rs",
//!     package: "my-kernels",
//!     includes: &[],
//!     namespace: "mine",
//!     constants: CONSTANTS,
//!     enums: &[Task::ENUMERATION],
//!     structs: LAYOUTS,
//! };
//! assert!(HEADER.text().contains("sizeof(Job) == 16")); // and a test: HEADER.check("include/layout.cuh")
//! ```

mod header;

pub use header::Header;

/// A struct that host and device see alike.
///
/// See [`shared`](self) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Name, the same in Rust and in C++.
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
///
/// See [`shared`](self) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name, the same in Rust and in C++.
    pub name: &'static str,
    /// Documentation, one entry a line.
    pub doc: &'static [&'static str],
    /// C++ type, of an array that of its elements.
    pub c_type: &'static str,
    /// Elements of an array; `None`: it is none.
    pub elements: Option<usize>,
    /// Bytes from the start of the struct.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// An enum that host and device see alike; in C++ of type `std::uint32_t`.
///
/// See [`shared`](self) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enumeration {
    /// Name, the same in Rust and in C++.
    pub name: &'static str,
    /// Documentation, one entry a line.
    pub doc: &'static [&'static str],
    /// Its values.
    pub values: &'static [Enumerator],
}

/// A value of an [`Enumeration`].
///
/// See [`shared`](self) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enumerator {
    /// Name in C++.
    pub name: &'static str,
    /// Documentation, one entry a line.
    pub doc: &'static [&'static str],
    /// Its number.
    pub code: u32,
}

/// A number that host and device know alike.
///
/// See [`shared`](self) for an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// Name in C++.
    pub name: &'static str,
    /// Documentation, one entry a line.
    pub doc: &'static [&'static str],
    /// C++ type.
    pub c_type: &'static str,
    /// The number.
    pub value: u64,
}

/// The C++ type of a field, of an array that of its elements.
#[doc(hidden)]
#[macro_export]
macro_rules! c_type {
    (u8) => {
        "std::uint8_t"
    };
    (u32) => {
        "std::uint32_t"
    };
    (u64) => {
        "std::uint64_t"
    };
    (i32) => {
        "std::int32_t"
    };
    (i64) => {
        "std::int64_t"
    };
    (f64) => {
        "double"
    };
    ([$type:ident; $elements:expr]) => {
        $crate::c_type!($type)
    };
    // Another of the shared structs, declared before.
    ($name:ident) => {
        stringify!($name)
    };
}

/// The elements of an array.
#[doc(hidden)]
#[macro_export]
macro_rules! c_elements {
    ([$type:ident; $elements:expr]) => {
        Some($elements)
    };
    ($name:ident) => {
        None
    };
}

/// Declares structs, `repr(C)` and without padding, that can be read and written as bytes, and `pub const LAYOUTS`, the table of
/// them. Fields are integers, `f64`, structs declared before (or in a header that this one includes), and arrays of these.
/// The crate that uses it depends on `bytemuck` with its feature `derive`.
#[macro_export]
macro_rules! shared_structs {
    ($(
        $(#[doc = $doc:literal])*
        pub struct $name:ident {
            $( $(#[doc = $field_doc:literal])* pub $field:ident: $type:tt, )+
        }
    )+) => {
        $(
            $(#[doc = $doc])*
            ///
            /// The same in Rust and in C++; a launch copies its bytes. See [`shared`](mp_kernels::shared) for an example.
            #[repr(C)]
            #[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
            pub struct $name {
                $( $(#[doc = $field_doc])* pub $field: $type, )+
            }

            impl Default for $name {
                fn default() -> Self {
                    bytemuck::Zeroable::zeroed()
                }
            }

            // Padding would hold undefined bytes when the struct goes by value into a kernel.
            const _: () = assert!(
                size_of::<$name>() == 0 $( + size_of::<$type>() )+,
                concat!(stringify!($name), " has padding: order or widen its fields"),
            );
        )+

        /// Every struct shared with device code.
        pub const LAYOUTS: &[$crate::shared::Layout] = &[$(
            $crate::shared::Layout {
                name: stringify!($name),
                doc: &[$($doc),*],
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                fields: &[$(
                    $crate::shared::Field {
                        name: stringify!($field),
                        doc: &[$($field_doc),*],
                        c_type: $crate::c_type!($type),
                        elements: $crate::c_elements!($type),
                        offset: std::mem::offset_of!($name, $field),
                        size: size_of::<$type>(),
                    },
                )+],
            },
        )+];
    };
}

/// Declares an enum, `repr(u32)`, with `from_code` and its table, the associated constant `ENUMERATION`.
#[macro_export]
macro_rules! shared_enum {
    (
        $(#[doc = $doc:literal])*
        pub enum $name:ident {
            $( $(#[doc = $value_doc:literal])* $value:ident = $code:literal as $c_name:ident, )+
        }
    ) => {
        $(#[doc = $doc])*
        ///
        /// The same in Rust and in C++. See [`shared`](mp_kernels::shared) for an example.
        #[repr(u32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $( $(#[doc = $value_doc])* $value = $code, )+
        }

        impl $name {
            /// It and its values as C++ has them.
            pub const ENUMERATION: $crate::shared::Enumeration = $crate::shared::Enumeration {
                name: stringify!($name),
                doc: &[$($doc),*],
                values: &[$(
                    $crate::shared::Enumerator {
                        name: stringify!($c_name),
                        doc: &[$($value_doc),*],
                        code: $code,
                    },
                )+],
            };

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

/// Declares constants, each with its name in C++, and `pub const CONSTANTS`, the table of them.
#[macro_export]
macro_rules! shared_constants {
    ($(
        $(#[doc = $doc:literal])*
        pub const $name:ident: $type:ident = $value:literal as $c_name:ident;
    )+) => {
        $(
            $(#[doc = $doc])*
            pub const $name: $type = $value;
        )+

        /// Every constant shared with device code.
        pub const CONSTANTS: &[$crate::shared::Constant] = &[$(
            $crate::shared::Constant {
                name: stringify!($c_name),
                doc: &[$($doc),*],
                c_type: $crate::c_type!($type),
                value: $value,
            },
        )+];
    };
}
