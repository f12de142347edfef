//! NVSHMEM as a peer: processes of `nvshmem-peer` (bench/peers/nvshmem.cu, made by tools/build-nvshmem-peer), one for each of several
//! GPUs of this host, which are told what to measure next.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::peer::{Program, patience, site_packages};

/// The library that `nvshmem-peer` loads.
const LIBRARY: &str = "libnvshmem_host.so.3";

/// The processes, PE 0's first, which have met.
///
/// ```no_run
/// use mp_program::nvshmem::Processes;
///
/// # fn main() -> anyhow::Result<()> {
/// let mut processes = Processes::start(&[0, 1])?;
/// let answers = processes.ask("put 8 1000 32")?;
/// println!("{}: {}", processes.version(), answers[0]);
/// processes.finish()
/// # }
/// ```
pub struct Processes {
    programs: Vec<Program>,
    version: String,
}

impl Processes {
    /// Starts the program that lies beside this one, once for each GPU.
    ///
    /// # Errors
    /// The program or the library is not here, a GPU is there twice, or NVSHMEM fails.
    pub fn start(gpus: &[u32]) -> Result<Processes> {
        let program = beside_this_program()?;
        let twice = gpus.iter().enumerate().any(|(at, gpu)| gpus[..at].contains(gpu));
        ensure!(!twice, "it takes no two PEs on one GPU");
        let mut path = vec![library_folder()?];
        path.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
        Processes::of(&program, gpus, &std::env::join_paths(path)?)
    }

    /// Starts this program, which looks for libraries there, once for each GPU.
    ///
    /// # Errors
    /// There is no GPU; it fails, or does not answer in time.
    pub fn of(program: &Path, gpus: &[u32], libraries: &OsStr) -> Result<Processes> {
        let process = |pe: usize, gpu: u32| {
            let mut command = Command::new(program);
            command.args([pe.to_string(), gpus.len().to_string(), gpu.to_string()]);
            command.env("LD_LIBRARY_PATH", libraries);
            // Between GPUs of one host neither a NIC nor NVLink multicast takes part.
            command.env("NVSHMEM_REMOTE_TRANSPORT", "none").env("NVSHMEM_DISABLE_NVLS", "1");
            Program::start(&format!("nvshmem-peer {pe}"), &mut command)
        };
        let (&first, others) = gpus.split_first().context("no GPUs, so no PEs")?;
        let mut programs = vec![process(0, first)?];
        let id = programs[0].answer("id", Instant::now() + patience())?;
        for (gpu, pe) in others.iter().zip(1..) {
            let mut program = process(pe, *gpu)?;
            program.say(&format!("id {id}"))?;
            programs.push(program);
        }
        let mut versions = Program::answers(&mut programs, "ready", Instant::now() + patience())?;
        Ok(Processes { programs, version: versions.swap_remove(0) })
    }

    /// NVSHMEM's version, as it calls itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What each answers to a line, PE 0's answer first.
    ///
    /// # Errors
    /// One of them fails, or does not answer in time.
    pub fn ask(&mut self, line: &str) -> Result<Vec<String>> {
        self.programs.iter_mut().try_for_each(|program| program.say(line))?;
        Program::answers(&mut self.programs, "ok", Instant::now() + patience())
    }

    /// Ends them.
    ///
    /// # Errors
    /// One of them fails at its end.
    pub fn finish(mut self) -> Result<()> {
        // All end together: NVSHMEM's last call is collective.
        self.programs.iter_mut().for_each(Program::close);
        let deadline = Instant::now() + patience();
        self.programs.into_iter().try_for_each(|program| program.end(deadline).map(drop))
    }
}

fn beside_this_program() -> Result<PathBuf> {
    let this = std::env::current_exe().context("finding this program")?;
    let program = this.parent().unwrap_or(Path::new(".")).join("nvshmem-peer");
    ensure!(program.is_file(), "no {}: tools/build-nvshmem-peer makes it", program.display());
    Ok(program)
}

/// The folder of the library: NVSHMEM_HOME, else a folder of LD_LIBRARY_PATH, else Python's site-packages.
fn library_folder() -> Result<PathBuf> {
    let mut folders = Vec::new();
    folders.extend(std::env::var_os("NVSHMEM_HOME").map(|home| PathBuf::from(home).join("lib")));
    folders.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    folders.extend(site_packages().into_iter().map(|folder| folder.join("nvidia/nvshmem/lib")));
    let found = folders.into_iter().find(|folder| folder.join(LIBRARY).is_file());
    found.with_context(|| {
        format!("no {LIBRARY} in NVSHMEM_HOME/lib, LD_LIBRARY_PATH or Python's site-packages")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_in::stand_in;

    const PEER: &str = r#"echo "a library's banner"
if [ "$1" = 0 ]; then echo "id 00ff"; else read -r line; [ "$line" = "id 00ff" ] || { echo "error no id"; exit 1; }; fi
echo "ready NVSHMEM 0.0.$1"
while read -r line; do echo "ok $1 of $2 on $3: $line"; done"#;

    fn started(body: &str, gpus: &[u32]) -> (tempfile::TempDir, Result<Processes>) {
        let folder = tempfile::tempdir().unwrap();
        let program = stand_in(folder.path(), "nvshmem-peer", body);
        let processes = Processes::of(&program, gpus, OsStr::new(""));
        (folder, processes)
    }

    #[test]
    fn two_three_and_four_processes_meet_and_answer_what_they_are_asked() {
        for gpus in [&[0, 1][..], &[5, 0, 2], &[3, 2, 1, 0]] {
            let (_folder, processes) = started(PEER, gpus);
            let mut processes = processes.unwrap();
            assert_eq!(processes.version(), "NVSHMEM 0.0.0");
            let expected: Vec<_> = gpus
                .iter()
                .enumerate()
                .map(|(pe, gpu)| format!("{pe} of {} on {gpu}: reduce 64", gpus.len()))
                .collect();
            assert_eq!(processes.ask("reduce 64").unwrap(), expected);
            processes.finish().unwrap();
        }
    }

    #[test]
    fn a_process_that_fails_where_it_starts_says_why() {
        let of = |body: &str, gpus: &[u32]| format!("{:#}", started(body, gpus).1.err().unwrap());
        let error = |body: &str| of(body, &[0, 1]);
        assert_eq!(error("exit 1"), "nvshmem-peer 0 exited with status 1 without a word");
        let abort = "echo 'nvshmem_init.cpp:88: unsupported bootstrap version' >&2; kill -ABRT $$";
        let words = "was killed by SIGABRT; its last words: nvshmem_init.cpp:88: unsupported";
        assert_eq!(error(abort), format!("nvshmem-peer 0 {words} bootstrap version"));
        // The last fails while the others wait for it.
        for (last, gpus) in [(1, &[0, 1][..]), (2, &[0, 1, 2]), (3, &[0, 1, 2, 3])] {
            let body = format!(
                r#"if [ "$1" = {last} ]; then read -r line; echo "no room" >&2; exit 9; fi; echo id 0; exec sleep 1000"#
            );
            let expected = "exited with status 9; its last words: no room";
            assert_eq!(of(&body, gpus), format!("nvshmem-peer {last} {expected}"));
        }
    }

    #[test]
    fn one_of_four_that_fails_when_it_is_asked_is_named() {
        let body = PEER.replace("while", r#"[ "$1" = 2 ] && read -r line && exit 7; while"#);
        let (_folder, processes) = started(&body, &[0, 1, 2, 3]);
        let error = processes.unwrap().ask("reduce 8").unwrap_err().to_string();
        assert!(error.starts_with("nvshmem-peer 2 exited with status 7"), "{error}");
    }

    #[test]
    fn a_job_without_a_gpu_is_refused() {
        assert_eq!(started("exit 1", &[]).1.err().unwrap().to_string(), "no GPUs, so no PEs");
    }
}
