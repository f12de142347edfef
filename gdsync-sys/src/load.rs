//! Finding the libraries at run time. A missing library or symbol is an error value that names it.

use crate::{Mlx5, Mlx5Dmabuf, Verbs, VerbsDmabuf};
use libloading::Library;

/// A library that is not there, or is too old.
///
/// See [the crate](crate) for an example.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The library cannot be loaded.
    #[error("cannot load {library} (Debian: package {package}): {}", said(source))]
    Library {
        /// File name.
        library: &'static str,
        /// Where Debian has it.
        package: &'static str,
        /// What the dynamic loader said.
        source: libloading::Error,
    },
    /// The library lacks a symbol.
    #[error("{library} has no {what}, which rdma-core has since version {since}: {}", said(source))]
    Symbol {
        /// File name.
        library: &'static str,
        /// What is missing, in words.
        what: &'static str,
        /// First version of rdma-core that has all symbols of the table.
        since: &'static str,
        /// What the dynamic loader said; it names the symbol.
        source: libloading::Error,
    },
}

/// What the dynamic loader said. `Display` of the error itself is only which of its functions failed.
fn said(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

const VERBS: (&str, &str) = ("libibverbs.so.1", "libibverbs1");
const MLX5: (&str, &str) = ("libmlx5.so.1", "ibverbs-providers");

fn open((library, package): (&'static str, &'static str)) -> Result<Library, LoadError> {
    // SAFETY: loading runs the initialisers of rdma-core's libraries, which only register their providers.
    unsafe { Library::new(library) }.map_err(|source| LoadError::Library {
        library,
        package,
        source,
    })
}

macro_rules! load {
    ($($(#[$doc:meta])* $table:ident from $library:ident, $what:literal since $since:literal;)*) => {$(
        impl $table {
            $(#[$doc])*
            ///
            /// # Errors
            /// If the library is not installed or lacks one of the symbols.
            pub fn load() -> Result<Self, LoadError> {
                let library = open($library)?;
                // SAFETY: bindgen took the types of the symbols from the library's own header.
                unsafe { Self::from_library(library) }.map_err(|source| LoadError::Symbol {
                    library: $library.0,
                    what: $what,
                    since: $since,
                    source,
                })
            }
        }
    )*};
}

load! {
    /// Loads libibverbs.
    Verbs from VERBS, "verbs with GID tables" since "32";
    /// Looks for the registration of dma-bufs in libibverbs.
    VerbsDmabuf from VERBS, "registration of dma-bufs" since "34";
    /// Loads libmlx5.
    Mlx5 from MLX5, "direct verbs with DEVX" since "32";
    /// Looks for DEVX memory from dma-bufs in libmlx5.
    Mlx5Dmabuf from MLX5, "DEVX memory from dma-bufs" since "36";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_that_says_which_package_has_it() {
        let error = open(("libibverbs-of-no-machine.so.1", "libibverbs1")).unwrap_err();
        let text = error.to_string();
        let start = "cannot load libibverbs-of-no-machine.so.1 (Debian: package libibverbs1): ";
        assert!(text.starts_with(start) && text.contains("No such file"), "{text}");
    }

    #[test]
    fn a_library_without_the_symbols_is_an_error_that_names_one() {
        // The C library is on every machine and has no verbs.
        let library = open(("libc.so.6", "libc6")).unwrap();
        // SAFETY: no symbol is found, so none is called.
        let error = unsafe { VerbsDmabuf::from_library(library) }.err().unwrap();
        assert!(said(&error).contains("ibv_reg_dmabuf_mr"), "{}", said(&error));
    }

    #[test]
    fn loading_ends_in_a_table_or_in_an_error_never_in_a_panic() {
        for error in [
            Verbs::load().err(),
            VerbsDmabuf::load().err(),
            Mlx5::load().err(),
            Mlx5Dmabuf::load().err(),
        ]
        .into_iter()
        .flatten()
        {
            assert!(error.to_string().contains(".so.1"), "{error}");
        }
    }
}
