//! What this build was built from: version, git revision, compilers. Stamped by `build.rs`; here it
//! gets its types and its one-line spelling. It finds nothing out at run time.

use std::fmt;
use std::sync::LazyLock;

/// What this build was built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildInfo {
    /// The package version, `MAJOR.MINOR.PATCH`.
    pub version: &'static str,
    /// The git revision, 12 hexadecimal digits, `+dirty` behind it where tracked files differed from
    /// it; `unknown` for a build outside a git checkout of this project.
    pub revision: &'static str,
    /// The first line of `rustc --version`, without the word `rustc`.
    pub rustc: &'static str,
    /// The target triple.
    pub target: &'static str,
    /// Which nvcc compiled the GPU code, and for what.
    pub gpu_code: mp_kernels::Build,
}

/// This build.
pub const BUILD: BuildInfo = BuildInfo {
    version: env!("CARGO_PKG_VERSION"),
    revision: env!("MP_BUILD_REVISION"),
    rustc: env!("MP_BUILD_RUSTC"),
    target: env!("MP_BUILD_TARGET"),
    gpu_code: mp_kernels::BUILD,
};

impl fmt::Display for BuildInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (revision {}, rustc {}, {}, ",
            self.version, self.revision, self.rustc, self.target
        )?;
        match self.gpu_code.nvcc {
            Some(nvcc) => write!(f, "nvcc {nvcc} for {})", self.gpu_code.architectures.join(" ")),
            None => f.write_str("no GPU code)"),
        }
    }
}

/// One line for `--version`: package version, git revision, compilers, target, GPU architectures.
pub fn version_string() -> &'static str {
    static LINE: LazyLock<String> = LazyLock::new(|| BUILD.to_string());
    &LINE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_line_names_version_revision_and_compiler() {
        let line = version_string();
        assert!(line.starts_with(env!("CARGO_PKG_VERSION")), "{line}");
        assert!(line.contains(BUILD.revision) && line.contains(BUILD.rustc), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }

    #[test]
    fn the_revision_is_a_hash_or_says_unknown() {
        let hash = BUILD.revision.strip_suffix("+dirty").unwrap_or(BUILD.revision);
        let is_hash = hash.len() == 12 && hash.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(is_hash || BUILD.revision == "unknown", "{:?}", BUILD.revision);
    }
}
