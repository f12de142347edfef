//! Launchers and process managers: what is installed, and which of them started this process.

use std::env;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::doctor::library;

/// Launchers on this machine, and the variables of one that started this process.
#[derive(Debug, Serialize)]
pub struct Environment {
    /// Who started this process, in words.
    pub started_by: &'static str,
    /// Variables of launchers that are set.
    pub variables: Vec<Variable>,
    /// Launchers and libraries that were looked for.
    pub programs: Vec<Program>,
}

/// A variable that is set.
#[derive(Debug, Serialize)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value; secrets are left out.
    pub value: String,
}

/// A program or library that was looked for.
#[derive(Debug, Serialize)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Where it was found.
    pub path: Option<PathBuf>,
}

/// A variable that tells who started the process, in the order in which a program would believe them.
const LAUNCHERS: [(&str, &str); 5] = [
    ("MP_SIZE", "mprun"),
    ("OMPI_COMM_WORLD_SIZE", "mpirun of Open MPI"),
    ("PMIX_RANK", "a PMIx process manager"),
    ("SLURM_PROCID", "srun of Slurm"),
    ("WORLD_SIZE", "torchrun, or a launcher with its variables"),
];

const PREFIXES: [&str; 6] = ["MP_", "OMPI_COMM_WORLD_", "PMIX_", "SLURM_", "CUDA_", "UCX_"];
const NAMES: [&str; 6] =
    ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];

impl Environment {
    pub(super) fn collect() -> Environment {
        let started_by = LAUNCHERS
            .iter()
            .find(|(name, _)| env::var_os(name).is_some())
            .map_or("a shell", |found| found.1);
        let mut variables: Vec<Variable> = env::vars_os()
            .filter_map(|(name, value)| {
                Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
            })
            .filter(|(name, _)| {
                NAMES.contains(&name.as_str()) || PREFIXES.iter().any(|p| name.starts_with(p))
            })
            .filter(|(name, _)| name != "MP_TOKEN" && !name.starts_with("MP_BUILD_"))
            .map(|(name, value)| Variable { name, value })
            .collect();
        variables.sort_by(|a, b| a.name.cmp(&b.name));
        let path: Vec<PathBuf> =
            env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
        let mut folders: Vec<PathBuf> =
            env::var_os("LD_LIBRARY_PATH").iter().flat_map(env::split_paths).collect();
        folders.push(format!("/usr/lib/{}-linux-gnu/pmix2/lib", env::consts::ARCH).into());
        let program = |name| Program {
            name,
            path: path.iter().map(|folder| folder.join(name)).find(|path| path.is_file()),
        };
        let programs = ["mpirun", "srun", "nvidia-smi"].map(program);
        let found =
            ["libcuda.so.1", "libibverbs.so.1", "libmlx5.so.1", "libmpi.so.40", "libpmix.so.2"]
                .map(|name| Program { name, path: library(Path::new("/"), name, &folders) });
        Environment { started_by, variables, programs: programs.into_iter().chain(found).collect() }
    }
}
