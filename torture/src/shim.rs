//! Libraries that are put between a rank and its machine (`shim/*.c`): a wall clock that jumps, a CUDA driver that breaks, and
//! one that cannot be initialised. Compiled by the build script, written where a run needs them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The name of the victim's thread, for the driver that breaks.
pub const DRIVER_THREAD: &str = "MP_TORTURE_DRIVER";

/// What is put between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shim {
    /// `LD_PRELOAD`: the wall clock jumps.
    Clock,
    /// `LD_PRELOAD`: calls of the CUDA driver fail from the moment on.
    Driver,
    /// `LD_LIBRARY_PATH`: a CUDA driver that cannot be initialised.
    NoDriver,
}

impl Shim {
    /// Writes it into a folder, and gives the variable that puts it in place, and its value.
    pub fn write(self, folder: &Path) -> Result<(&'static str, PathBuf)> {
        let (bytes, name): (&[u8], _) = match self {
            Shim::Clock => (include_bytes!(concat!(env!("OUT_DIR"), "/shim-clock")), "clock.so"),
            Shim::Driver => (include_bytes!(concat!(env!("OUT_DIR"), "/shim-driver")), "driver.so"),
            Shim::NoDriver => {
                (include_bytes!(concat!(env!("OUT_DIR"), "/shim-libcuda")), "libcuda.so")
            }
        };
        let path = folder.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
        Ok(match self {
            Shim::Clock | Shim::Driver => ("LD_PRELOAD", path),
            Shim::NoDriver => ("LD_LIBRARY_PATH", folder.to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_jumps_under_its_shim_and_the_monotonic_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let (variable, path) = Shim::Clock.write(folder.path()).unwrap();
        // At uneven distances, so that they do not meet the same jump of the seven again and again.
        let command = "for n in 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9
                       do date +%s; cut -d. -f1 /proc/uptime; sleep 0.0$n; done";
        let output = std::process::Command::new("bash")
            .args(["-c", command])
            .env(variable, path)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers: Vec<i64> = text.lines().map(|line| line.parse().unwrap()).collect();
        let span = |first: usize| {
            let of = || numbers.iter().skip(first).step_by(2);
            of().max().unwrap() - of().min().unwrap()
        };
        assert!(span(0) > 3000, "{text}");
        assert!(span(1) < 60, "{text}");
    }

    #[test]
    fn the_driver_that_cannot_be_initialised_lies_where_libraries_are_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let (variable, path) = Shim::NoDriver.write(folder.path()).unwrap();
        assert_eq!(variable, "LD_LIBRARY_PATH");
        assert!(path.join("libcuda.so").is_file());
    }
}
