//! NVSHMEM as a peer: two processes of `nvshmem-peer` (bench/peers/nvshmem.cu, made by tools/build-nvshmem-peer), one for each of two
//! GPUs, which are told what to measure next.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::peer::{Program, patience, site_packages};

/// The library that `nvshmem-peer` loads.
const LIBRARY: &str = "libnvshmem_host.so.3";

/// Both processes, which have met.
///
/// ```no_run
/// use mp_program::nvshmem::Pair;
///
/// # fn main() -> anyhow::Result<()> {
/// let mut pair = Pair::start([0, 1])?;
/// let [of_first, _] = pair.ask("put 8 1000 32")?;
/// println!("{}: {of_first}", pair.version());
/// pair.finish()
/// # }
/// ```
pub struct Pair {
    programs: [Program; 2],
    version: String,
}

impl Pair {
    /// Starts the program that lies beside this one.
    ///
    /// # Errors
    /// The program or the library is not here, both GPUs are one, or NVSHMEM fails.
    pub fn start(gpus: [u32; 2]) -> Result<Pair> {
        let program = beside_this_program()?;
        ensure!(gpus[0] != gpus[1], "it takes no two PEs on one GPU");
        let mut path = vec![library_folder()?];
        path.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
        Pair::of(&program, gpus, &std::env::join_paths(path)?)
    }

    /// Starts this program, which looks for libraries there.
    ///
    /// # Errors
    /// It fails, or does not answer in time.
    pub fn of(program: &Path, gpus: [u32; 2], libraries: &OsStr) -> Result<Pair> {
        let mut first = process(program, 0, gpus[0], libraries)?;
        let id = first.answer("id", Instant::now() + patience())?;
        let mut second = process(program, 1, gpus[1], libraries)?;
        second.say(&format!("id {id}"))?;
        let mut programs = [first, second];
        let [version, _] = Program::answers(&mut programs, "ready", Instant::now() + patience())?;
        Ok(Pair { programs, version })
    }

    /// NVSHMEM's version, as it calls itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What both answer to a line.
    ///
    /// # Errors
    /// One of them fails, or does not answer in time.
    pub fn ask(&mut self, line: &str) -> Result<[String; 2]> {
        self.programs.iter_mut().try_for_each(|program| program.say(line))?;
        Program::answers(&mut self.programs, "ok", Instant::now() + patience())
    }

    /// Ends them.
    ///
    /// # Errors
    /// One of them fails at its end.
    pub fn finish(mut self) -> Result<()> {
        // Both end together: NVSHMEM's last call is collective.
        self.programs.iter_mut().for_each(Program::close);
        let deadline = Instant::now() + patience();
        self.programs.into_iter().try_for_each(|program| program.end(deadline).map(drop))
    }
}

/// One process.
fn process(program: &Path, pe: usize, gpu: u32, libraries: &OsStr) -> Result<Program> {
    let mut command = Command::new(program);
    command.arg(pe.to_string()).arg(gpu.to_string()).env("LD_LIBRARY_PATH", libraries);
    // Between two GPUs of one host neither a NIC nor NVLink multicast takes part.
    command.env("NVSHMEM_REMOTE_TRANSPORT", "none").env("NVSHMEM_DISABLE_NVLS", "1");
    Program::start(&format!("nvshmem-peer {pe}"), &mut command)
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

    fn pair(body: &str) -> (tempfile::TempDir, Result<Pair>) {
        let folder = tempfile::tempdir().unwrap();
        let program = stand_in(folder.path(), "nvshmem-peer", body);
        let pair = Pair::of(&program, [0, 1], OsStr::new(""));
        (folder, pair)
    }

    #[test]
    fn the_two_processes_meet_and_answer_what_they_are_asked() {
        let (_folder, started) = pair(
            r#"echo "a library's banner"
if [ "$1" = 0 ]; then echo "id 00ff"; else read -r line; [ "$line" = "id 00ff" ] || { echo "error no id"; exit 1; }; fi
echo "ready NVSHMEM 0.0.1"
while read -r line; do echo "ok $1 $2 $line"; done"#,
        );
        let mut pair = started.unwrap();
        assert_eq!(pair.version(), "NVSHMEM 0.0.1");
        assert_eq!(pair.ask("put 64").unwrap(), ["0 0 put 64", "1 1 put 64"]);
        pair.finish().unwrap();
    }

    #[test]
    fn a_process_that_fails_where_it_starts_says_why() {
        let error = |body: &str| format!("{:#}", pair(body).1.err().unwrap());
        assert_eq!(error("exit 1"), "nvshmem-peer 0 exited with status 1 without a word");
        let abort = "echo 'nvshmem_init.cpp:88: unsupported bootstrap version' >&2; kill -ABRT $$";
        let words = "was killed by SIGABRT; its last words: nvshmem_init.cpp:88: unsupported";
        assert_eq!(error(abort), format!("nvshmem-peer 0 {words} bootstrap version"));
        // The second fails while the first waits for it.
        let second =
            r#"if [ "$1" = 1 ]; then echo "no room" >&2; exit 9; fi; echo id 0; exec sleep 1000"#;
        assert_eq!(error(second), "nvshmem-peer 1 exited with status 9; its last words: no room");
    }
}
