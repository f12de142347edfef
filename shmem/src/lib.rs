//! OpenSHMEM for C and C++ programs, the functions of `include/shmem.h` on [`libmp`], and a symmetric heap for Rust, [`Heap`]. There is
//! no transport here. A put of C is an address turned into an offset of the symmetric heap or of the program's variables, and a copy to
//! the peer's mapping of these, or a call of a [`libmp::Window`] where a NIC stands between.
//!
//! * `api/functions.txt` is the table of all functions, `api/device.txt` of those for GPUs, `api/extensions.txt` of those beside the specification. The build script makes the entry points and the header of it; each entry
//!   point calls one generic function of the modules here.
//! * A function that cannot go on says why in one sentence on standard error, tells the other PEs, and ends the process: most of
//!   the functions have no other way to say so. When the world fails, for whichever reason, every PE ends, also one that computes.
//! * [`Heap`] and [`Symmetric`] are for Rust, on a world of its own, without these functions; they return errors.
//! * What is there and what is not is in `docs/openshmem.md`.

mod atomic;
mod collective;
mod context;
mod deprecated;
mod device;
mod direct;
mod failure;
mod heap;
mod lock;
mod map;
mod memory;
mod opencl;
mod order;
mod parts;
mod reduce;
mod rma;
mod signal;
mod statics;
mod team;
mod wait;
mod world;

/// The entry points, made from the table.
#[allow(
    missing_docs,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    non_snake_case,
    reason = "documented by the specification"
)]
mod entries {
    use std::ffi::{c_char, c_int, c_long, c_void};

    use crate::context::{Context, SessionConfig};
    use crate::device::Module;
    use crate::rma::LongDouble;
    use crate::team::{Config, Handle};

    include!(concat!(env!("OUT_DIR"), "/entries.rs"));
}

pub use heap::{Heap, Symmetric};

/// The headers as the table makes them, by name.
pub const HEADERS: [(&str, &str); 4] = [
    ("shmem.h", include_str!(concat!(env!("OUT_DIR"), "/shmem.h"))),
    ("pshmem.h", include_str!(concat!(env!("OUT_DIR"), "/pshmem.h"))),
    ("shmemg.h", include_str!(concat!(env!("OUT_DIR"), "/shmemg.h"))),
    ("shmemx.h", include_str!(concat!(env!("OUT_DIR"), "/shmemx.h"))),
];

#[cfg(test)]
mod tests {
    #[test]
    fn the_headers_are_what_the_table_says() {
        for (name, text) in super::HEADERS {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("include").join(name);
            // Written anew, if they are to be.
            if std::env::var_os("MP_WRITE_HEADERS").is_some() {
                std::fs::write(&path, text).unwrap();
            }
            let committed = std::fs::read_to_string(&path).unwrap();
            let how = "MP_WRITE_HEADERS=1 cargo test -p mp-shmem writes it anew";
            assert!(committed == text, "{}: {how}", path.display());
        }
    }
}
