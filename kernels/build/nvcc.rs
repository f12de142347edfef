//! Finds a CUDA compiler and says what it can compile for. Runs in build scripts: the standard library only, errors are
//! sentences. It installs nothing and sets no flags.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variables that decide which nvcc is found, besides `PATH`.
pub const VARIABLES: [&str; 4] = ["NVCC", "CUDA_HOME", "CUDA_PATH", "MP_CUDA_WHEELS"];

/// Where nvcc lies in a folder that `tools/get-nvcc` filled.
const IN_WHEELS: &str = "nvidia/cu13/bin/nvcc";

/// A compiler that answered `--version`.
#[derive(Debug)]
pub struct Nvcc {
    /// The program.
    pub path: PathBuf,
    /// Its release, as in `13.0.88`.
    pub version: String,
    /// Numbers of the GPU architectures it compiles for: 80 for sm_80.
    pub architectures: Vec<u32>,
}

/// Looks in the order `NVCC`, `CUDA_HOME`, `CUDA_PATH`, `PATH`, `MP_CUDA_WHEELS`, `wheels` (the default folder of
/// `tools/get-nvcc`). `None`: there is no nvcc in any of them.
///
/// A `CUDA_HOME` or `CUDA_PATH` without a compiler (a runtime only, a module file) is told to `warn` and passed over.
///
/// # Errors
/// `NVCC` names no program, `MP_CUDA_WHEELS` a folder without one, or the compiler found does not run.
pub fn find(
    variable: impl Fn(&str) -> Option<OsString>,
    wheels: &Path,
    warn: impl FnMut(String),
) -> Result<Option<Nvcc>, String> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let Some(path) = locate(variable, wheels, warn)? else { return Ok(None) };
    let version = parse_version(&answer(&path, "--version")?)
        .ok_or_else(|| format!("{} --version names no release", path.display()))?;
    let architectures = parse_architectures(&answer(&path, "--list-gpu-code")?);
    Ok(Some(Nvcc { path, version, architectures }))
}

/// The path part of [`find`], without running what it finds.
fn locate(
    variable: impl Fn(&str) -> Option<OsString>,
    wheels: &Path,
    mut warn: impl FnMut(String),
) -> Result<Option<PathBuf>, String> {
    if let Some(nvcc) = variable("NVCC") {
        let named = Path::new(&nvcc);
        // A bare name is looked up, as with CC and CXX.
        let found = if named.components().count() > 1 {
            Some(named.to_path_buf()).filter(|path| path.is_file())
        } else {
            on_path(variable("PATH").as_deref(), &nvcc)
        };
        return found
            .map(Some)
            .ok_or_else(|| format!("NVCC is {}, which is no program", named.display()));
    }
    for name in ["CUDA_HOME", "CUDA_PATH"] {
        match variable(name).map(|home| named(name, Path::new(&home), "bin/nvcc")) {
            Some(Ok(path)) => return Ok(Some(path)),
            Some(Err(nothing_there)) => warn(nothing_there),
            None => {}
        }
    }
    if let Some(found) = on_path(variable("PATH").as_deref(), OsStr::new("nvcc")) {
        return Ok(Some(found));
    }
    if let Some(folder) = variable("MP_CUDA_WHEELS") {
        return named("MP_CUDA_WHEELS", Path::new(&folder), IN_WHEELS).map(Some);
    }
    Ok(Some(wheels.join(IN_WHEELS)).filter(|path| path.is_file()))
}

fn named(variable: &str, folder: &Path, inside: &str) -> Result<PathBuf, String> {
    let path = folder.join(inside);
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("{variable} is {}, but there is no {}", folder.display(), path.display()))
}

fn on_path(path: Option<&OsStr>, program: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path?).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn answer(nvcc: &Path, question: &str) -> Result<String, String> {
    let output = Command::new(nvcc)
        .arg(question)
        .output()
        .map_err(|error| format!("cannot run {}: {error}", nvcc.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} {question} ended with {}: {said}", nvcc.display(), output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The release from `Cuda compilation tools, release 13.0, V13.0.88`.
fn parse_version(text: &str) -> Option<String> {
    let version = text.split_once(", V")?.1.split_whitespace().next()?;
    Some(version.to_owned())
}

/// The numbers from lines `sm_80`; architecture-specific ones (`sm_90a`) are not ours.
fn parse_architectures(text: &str) -> Vec<u32> {
    text.split_whitespace().filter_map(|word| word.strip_prefix("sm_")?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// A folder with an nvcc in each place of the search, and variables that name some of them.
    struct Machine {
        root: tempfile::TempDir,
        variables: HashMap<&'static str, OsString>,
    }

    impl Machine {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            for file in [
                "named/my-nvcc",
                "home/bin/nvcc",
                "toolkit/bin/nvcc",
                "bin/nvcc",
                "other/nvidia/cu13/bin/nvcc",
                "wheels/nvidia/cu13/bin/nvcc",
            ] {
                let file = root.path().join(file);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, "").unwrap();
            }
            Self { root, variables: HashMap::new() }
        }

        fn set(mut self, name: &'static str, path: &str) -> Self {
            self.variables.insert(name, self.root.path().join(path).into());
            self
        }

        fn locate(&self) -> Result<Option<String>, String> {
            self.locate_and_warn(|warning| panic!("{warning}"))
        }

        fn locate_and_warn(&self, warn: impl FnMut(String)) -> Result<Option<String>, String> {
            let wheels = self.root.path().join("wheels");
            let found = locate(|name| self.variables.get(name).cloned(), &wheels, warn)?;
            Ok(found.map(|path| {
                path.strip_prefix(self.root.path()).unwrap().to_str().unwrap().to_owned()
            }))
        }
    }

    #[test]
    fn the_first_place_of_the_search_that_is_set_wins() {
        let machine = Machine::new();
        assert_eq!(machine.locate().unwrap().unwrap(), "wheels/nvidia/cu13/bin/nvcc");
        let machine = machine.set("MP_CUDA_WHEELS", "other");
        assert_eq!(machine.locate().unwrap().unwrap(), "other/nvidia/cu13/bin/nvcc");
        let machine = machine.set("PATH", "bin");
        assert_eq!(machine.locate().unwrap().unwrap(), "bin/nvcc");
        let machine = machine.set("CUDA_PATH", "toolkit");
        assert_eq!(machine.locate().unwrap().unwrap(), "toolkit/bin/nvcc");
        let machine = machine.set("CUDA_HOME", "home");
        assert_eq!(machine.locate().unwrap().unwrap(), "home/bin/nvcc");
        let machine = machine.set("NVCC", "named/my-nvcc");
        assert_eq!(machine.locate().unwrap().unwrap(), "named/my-nvcc");
    }

    #[test]
    fn nvcc_by_bare_name_is_looked_up_on_the_path() {
        let mut machine = Machine::new().set("PATH", "named");
        machine.variables.insert("NVCC", "my-nvcc".into());
        assert_eq!(machine.locate().unwrap().unwrap(), "named/my-nvcc");
    }

    #[test]
    fn a_machine_without_nvcc_is_no_error() {
        let machine = Machine::new().set("PATH", "empty");
        let none = locate(|name| machine.variables.get(name).cloned(), Path::new("nowhere"), drop);
        assert_eq!(none.unwrap(), None);
    }

    #[test]
    fn a_variable_that_leads_nowhere_is_an_error_that_names_it() {
        for name in ["NVCC", "MP_CUDA_WHEELS"] {
            let error = Machine::new().set(name, "missing/place").locate().unwrap_err();
            assert!(error.contains(name) && error.contains("missing/place"), "{error}");
        }
    }

    #[test]
    fn a_cuda_home_without_a_compiler_is_warned_of_and_passed_over() {
        for name in ["CUDA_HOME", "CUDA_PATH"] {
            let mut warnings = Vec::new();
            let machine = Machine::new().set(name, "runtime/only").set("PATH", "bin");
            let found = machine.locate_and_warn(|warning| warnings.push(warning));
            assert_eq!(found.unwrap().unwrap(), "bin/nvcc");
            assert!(warnings[0].contains(name) && warnings[0].contains("runtime/only"));
        }
    }

    #[test]
    fn release_and_architectures_are_read_from_what_nvcc_prints() {
        let text = "Cuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/x";
        assert_eq!(parse_version(text).unwrap(), "13.0.88");
        assert_eq!(parse_version("something else"), None);
        assert_eq!(parse_architectures("sm_75\nsm_80\nsm_90a\nsm_100\n"), [75, 80, 100]);
    }

    #[test]
    fn a_compiler_that_does_not_run_is_an_error() {
        let machine = Machine::new().set("NVCC", "named/my-nvcc");
        let wheels = machine.root.path().join("wheels");
        let error = find(|name| machine.variables.get(name).cloned(), &wheels, drop).unwrap_err();
        assert!(error.contains("my-nvcc"), "{error}");
    }
}
