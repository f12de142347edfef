//! The functions of the ABI that are not part of this subset.

/// Declares a function that says its name and ends the program.
macro_rules! trap {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> std::ffi::c_int {
            crate::state::fail(stringify!($name), "is not part of this subset, which is not an MPI")
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/traps.rs"));
