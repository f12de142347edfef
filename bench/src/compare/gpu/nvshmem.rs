//! NVSHMEM as a peer: two processes of `nvshmem-peer` (bench/peers/nvshmem.cu), which rank 0 starts, tells what to measure
//! next, and ends.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::nccl::site_packages;
use super::{IN_KERNELS, ON_STREAMS, Player, Sample, VOLUME, rounds_in_kernels};
use crate::perf::Rank;
use crate::result::Role;

/// How long an answer may take; the first one comes after NVSHMEM has found its way.
const PATIENCE: Duration = Duration::from_secs(40);

/// The library that `nvshmem-peer` loads.
const LIBRARY: &str = "libnvshmem_host.so.3";

/// The two processes, where rank 0 is; the version alone elsewhere.
pub struct Nvshmem {
    version: String,
    pair: Option<Mutex<[Process; 2]>>,
}

impl Nvshmem {
    /// Starts the processes. Collective; both ranks succeed or both give the reason why not.
    ///
    /// # Errors
    /// The program or the library is not here, both ranks are on one GPU, or NVSHMEM fails.
    pub fn start(rank: &Rank) -> Result<Nvshmem> {
        let cuda = rank.device.as_cuda().context("no GPU")?;
        let gpus = rank.world.all_gather(&cuda.ordinal().to_le_bytes())?;
        let started = if rank.leads() {
            Some(beside_this_program().and_then(|program| start(&program, &gpus)))
        } else {
            None
        };
        let mine = match &started {
            Some(Ok((_, version))) => format!("+{version}"),
            Some(Err(error)) => format!("-{error:#}"),
            None => String::new(),
        };
        let all = rank.world.all_gather(mine.as_bytes())?;
        let said = String::from_utf8_lossy(&all[0]).into_owned();
        let Some(version) = said.strip_prefix('+') else {
            bail!("{}", said.trim_start_matches('-'))
        };
        let pair = started.transpose()?.map(|(pair, _)| Mutex::new(pair));
        Ok(Nvshmem { version: version.to_owned(), pair })
    }

    /// As it calls itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Messages enqueued on streams.
    pub fn on_stream(&self) -> Box<dyn Player + '_> {
        self.player("NVSHMEM put and signal, stream", "stream", Width::Fixed(0), ON_STREAMS)
    }

    /// Put and signal of a block, with so many threads, or as many as libmp's kernels have.
    pub fn put(&self, threads: Option<u32>) -> Box<dyn Player + '_> {
        match threads {
            Some(threads) => {
                let name = format!("NVSHMEM put and signal, {threads} threads");
                self.player(&name, "put", Width::Fixed(threads), IN_KERNELS)
            }
            None => self.player("NVSHMEM put and signal", "put", Width::AsOurs, IN_KERNELS),
        }
    }

    /// Put and signal both ways at once, by as many blocks as libmp's kernel.
    pub fn exchange(&self) -> Box<dyn Player + '_> {
        let rounds = super::exchange::ROUNDS;
        self.player("NVSHMEM put and signal, kernel", "exchange", Width::Exchange, rounds)
    }

    /// One word by one thread.
    pub fn p(&self) -> Box<dyn Player + '_> {
        self.player("NVSHMEM p and wait", "p", Width::Fixed(1), IN_KERNELS)
    }

    /// Copies by a kernel of as many blocks as asked for.
    pub fn bandwidth(&self) -> Box<dyn Player + '_> {
        self.player("NVSHMEM put, kernel", "bandwidth", Width::X, 16)
    }

    /// The barrier in a "kernel" or on a "stream".
    pub fn barrier(&self, place: &'static str) -> Box<dyn Player + '_> {
        let (what, rounds) = match place {
            "kernel" => ("barrier_kernel", IN_KERNELS),
            _ => ("barrier_stream", ON_STREAMS),
        };
        self.player(&format!("NVSHMEM, {place}"), what, Width::Fixed(1), rounds)
    }

    fn player(
        &self,
        name: &str,
        what: &'static str,
        width: Width,
        rounds: u64,
    ) -> Box<dyn Player + '_> {
        Box::new(NvshmemPlayer { nvshmem: self, name: name.into(), what, width, rounds, x: 0 })
    }

    /// Ends the processes.
    ///
    /// # Errors
    /// One of them failed at its end.
    pub fn finish(self) -> Result<()> {
        let Some(pair) = self.pair else { return Ok(()) };
        let mut pair = pair.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Both end together: NVSHMEM's last call is collective.
        pair.iter_mut().for_each(|process| process.input = None);
        for process in &mut pair {
            // Its output ends when it does.
            while process.lines.recv_timeout(PATIENCE).is_ok() {}
            ensure!(
                process.child.try_wait()?.is_none_or(|status| status.success()),
                "nvshmem-peer failed at its end"
            );
        }
        Ok(())
    }
}

/// One process of `nvshmem-peer`; killed when dropped.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    fn start(program: &Path, pe: usize, gpu: u32, libraries: &OsString) -> Result<Process> {
        let mut command = Command::new(program);
        command.arg(pe.to_string()).arg(gpu.to_string()).env("LD_LIBRARY_PATH", libraries);
        // Between two GPUs of one host neither a NIC nor NVLink multicast takes part.
        command.env("NVSHMEM_REMOTE_TRANSPORT", "none").env("NVSHMEM_DISABLE_NVLS", "1");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child =
            command.spawn().with_context(|| format!("starting {}", program.display()))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("no output")?;
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process { child, input, lines })
    }

    fn say(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().context("the input of nvshmem-peer is closed")?;
        writeln!(input, "{line}").and_then(|()| input.flush()).context("writing to nvshmem-peer")
    }

    /// What follows `word` in the next line that begins with it; libraries may print others before.
    fn answer(&mut self, word: &str) -> Result<String> {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.with_context(|| {
                format!("nvshmem-peer ended, or gave no {word:?} within {PATIENCE:?}")
            })?;
            match line.split_once(' ') {
                Some((first, rest)) if first == word => return Ok(rest.to_owned()),
                Some(("error", rest)) => bail!("nvshmem-peer: {rest}"),
                _ => {}
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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

fn start(program: &Path, gpus: &[Vec<u8>]) -> Result<([Process; 2], String)> {
    let gpu = |rank: usize| -> Result<u32> {
        Ok(u32::from_le_bytes(gpus[rank].as_slice().try_into().context("no ordinal")?))
    };
    let gpus = [gpu(0)?, gpu(1)?];
    ensure!(gpus[0] != gpus[1], "it takes no two PEs on one GPU");
    let folder = library_folder()?;
    let mut path = vec![folder];
    path.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    let libraries = std::env::join_paths(path)?;
    let mut first = Process::start(program, 0, gpus[0], &libraries)?;
    let id = first.answer("id")?;
    let mut second = Process::start(program, 1, gpus[1], &libraries)?;
    second.say(&format!("id {id}"))?;
    let version = first.answer("ready")?;
    second.answer("ready")?;
    Ok(([first, second], version))
}

/// The last number of a command.
#[derive(Clone, Copy)]
enum Width {
    Fixed(u32),
    /// The threads of libmp's kernels.
    AsOurs,
    /// The blocks of libmp's exchange.
    Exchange,
    /// Blocks: the figure's x.
    X,
}

struct NvshmemPlayer<'a> {
    nvshmem: &'a Nvshmem,
    name: String,
    what: &'static str,
    width: Width,
    rounds: u64,
    x: u64,
}

impl NvshmemPlayer<'_> {
    fn command(&self) -> String {
        let (size, width) = match self.width {
            Width::Fixed(width) => (self.x, width),
            Width::AsOurs => (self.x, crate::perf::latency::suitable_threads(self.x)),
            Width::Exchange => (self.x, super::exchange::blocks(self.x)),
            Width::X => (VOLUME, self.x as u32),
        };
        let rounds = if self.what == "put" { rounds_in_kernels(size) } else { self.rounds };
        format!("{} {size} {rounds} {width}", self.what)
    }
}

impl Player for NvshmemPlayer<'_> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn role(&self) -> Role {
        Role::Peer
    }

    fn prepare(&mut self, _: &Rank, x: u64) -> Result<bool> {
        self.x = x;
        // One word, whatever the size.
        Ok(self.what != "p" || x == 8)
    }

    fn sample(&mut self, _: &Rank) -> Result<Sample> {
        let Some(pair) = &self.nvshmem.pair else { return Ok(Sample::of(0.0)) };
        let mut pair = pair.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let command = self.command();
        pair.iter_mut().try_for_each(|process| process.say(&command))?;
        let answer = pair[0].answer("ok").with_context(|| command.clone())?;
        pair[1].answer("ok").with_context(|| command.clone())?;
        let numbers: Vec<f64> =
            answer.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let &[value, cpu] = numbers.as_slice() else {
            bail!("{command}: nvshmem-peer answered {answer:?}")
        };
        ensure!(value > 0.0, "{command}: nvshmem-peer measured {value}");
        Ok(Sample { value, cpu: (cpu > 0.0).then_some(cpu) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_in::stand_in;

    const PEER: &str = r#"echo "a library's banner"
if [ "$1" = 0 ]; then echo "id 00ff"; else read -r line; [ "$line" = "id 00ff" ] || { echo "error no id"; exit 1; }; fi
echo "ready NVSHMEM 0.0.1"
while read -r what size rounds width; do
  case $what in put) echo "ok $size 0";; stream) echo "ok 7 3";; *) echo "error no $what"; exit 1;; esac
done"#;

    fn pair(folder: &Path, body: &str) -> Result<([Process; 2], String)> {
        let program = stand_in(folder, "nvshmem-peer", body);
        let none = OsString::new();
        let mut first = Process::start(&program, 0, 0, &none)?;
        let id = first.answer("id")?;
        let mut second = Process::start(&program, 1, 1, &none)?;
        second.say(&format!("id {id}"))?;
        let version = first.answer("ready")?;
        second.answer("ready")?;
        Ok(([first, second], version))
    }

    #[test]
    fn the_two_processes_meet_and_answer_what_they_are_asked() {
        let folder = tempfile::tempdir().unwrap();
        let (mut pair, version) = pair(folder.path(), PEER).unwrap();
        assert_eq!(version, "NVSHMEM 0.0.1");
        pair[0].say("put 64 10 32").unwrap();
        assert_eq!(pair[0].answer("ok").unwrap(), "64 0");
        pair[1].say("reduce 64 10 32").unwrap();
        let error = pair[1].answer("ok").unwrap_err().to_string();
        assert!(error.contains("no reduce"), "{error}");
    }

    #[test]
    fn a_process_that_ends_is_an_error_not_a_wait() {
        let folder = tempfile::tempdir().unwrap();
        let error = format!("{:#}", pair(folder.path(), "exit 1").err().unwrap());
        assert!(error.contains("nvshmem-peer ended"), "{error}");
    }
}
