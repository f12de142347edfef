//! NVSHMEM as a player: the processes of `mp_program::nvshmem`, which rank 0 starts, tells what to measure next, and ends.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, bail, ensure};
use mp_program::nvshmem;

use super::collective::Kind;
use super::one_sided::What;
use super::{
    IN_KERNELS, ON_STREAMS, Player, Sample, VOLUME, collective, one_sided, rounds_in_kernels,
};
use crate::perf::{GRAPHS, IN_GRAPH, Rank};
use crate::result::Role;

/// The processes, where rank 0 is; the version alone elsewhere.
pub struct Nvshmem {
    version: String,
    processes: Option<Mutex<Processes>>,
}

/// The processes, or why they are no more.
type Processes = Result<nvshmem::Processes, String>;

impl Nvshmem {
    /// Starts the processes. Collective; all ranks succeed or all give the reason why not.
    ///
    /// # Errors
    /// The program or the library is not here, two ranks are on one GPU, or NVSHMEM fails.
    pub fn start(rank: &Rank) -> Result<Nvshmem> {
        let cuda = rank.device.as_cuda().context("no GPU")?;
        let gpus = rank.world.all_gather(&cuda.ordinal().to_le_bytes())?;
        let ordinal = |said: &Vec<u8>| -> Result<u32> {
            Ok(u32::from_le_bytes(said.as_slice().try_into().context("no ordinal")?))
        };
        let gpus = gpus.iter().map(ordinal).collect::<Result<Vec<u32>>>()?;
        let started = rank.leads().then(|| nvshmem::Processes::start(&gpus));
        let mine = match &started {
            Some(Ok(processes)) => format!("+{}", processes.version()),
            Some(Err(error)) => format!("-{error:#}"),
            None => String::new(),
        };
        let all = rank.world.all_gather(mine.as_bytes())?;
        let said = String::from_utf8_lossy(&all[0]).into_owned();
        let Some(version) = said.strip_prefix('+') else {
            bail!("{}", said.trim_start_matches('-'))
        };
        let processes = started.transpose()?.map(|processes| Mutex::new(Ok(processes)));
        Ok(Nvshmem { version: version.to_owned(), processes })
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

    /// Put and signal both ways at once, by as many blocks as suit it.
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

    /// The barrier in a "kernel", on a "stream" or in a "graph".
    pub fn barrier(&self, place: &'static str) -> Box<dyn Player + '_> {
        let (what, width, rounds) = match place {
            "kernel" => ("barrier_kernel", 1, IN_KERNELS),
            "graph" => ("barrier_stream", IN_GRAPH as u32, GRAPHS * ON_STREAMS),
            _ => ("barrier_stream", 0, ON_STREAMS),
        };
        self.player(&format!("NVSHMEM, {place}"), what, Width::Fixed(width), rounds)
    }

    /// What one rank does alone, by as many threads or blocks as libmp.
    pub fn one_sided(&self, what: What) -> Box<dyn Player + '_> {
        match what {
            What::Get => self.player("NVSHMEM get", "get", Width::Gets, IN_KERNELS),
            What::FetchAdd | What::FetchAddOrdered => {
                self.player("NVSHMEM fetch and add", "fetch_add", Width::Fixed(1), IN_KERNELS)
            }
            What::Words => self.player("NVSHMEM p", "words", Width::Words, one_sided::WORDS),
        }
    }

    /// A collective on a stream, or captured from it.
    pub fn collective(&self, kind: Kind, captured: bool) -> Box<dyn Player + '_> {
        let what = match kind {
            Kind::Reduce => "reduce",
            Kind::Gather => "gather",
            Kind::Exchange => "all_to_all",
        };
        match captured {
            true => self.player("NVSHMEM, graph", what, Width::Fixed(IN_GRAPH as u32), ON_STREAMS),
            false => self.player("NVSHMEM, stream", what, Width::Fixed(0), ON_STREAMS),
        }
    }

    /// The all-reduce of few values by one block.
    pub fn all_reduce(&self) -> Box<dyn Player + '_> {
        self.player("NVSHMEM, kernel", "reduce_kernel", Width::AllReduce, IN_KERNELS)
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

    /// Ends the processes. One that has failed before has said so.
    ///
    /// # Errors
    /// One of them fails at its end.
    pub fn finish(self) -> Result<()> {
        let Some(processes) = self.processes else { return Ok(()) };
        // Those that have failed have ended.
        let processes = processes.into_inner().unwrap_or_else(PoisonError::into_inner);
        processes.map_or(Ok(()), nvshmem::Processes::finish)
    }
}

/// A measurement by all processes: what the first one answers.
fn measured(processes: &mut Processes, command: &str) -> Result<Sample> {
    let here = processes.as_mut().map_err(|reason| anyhow!("{reason}"))?;
    let sample = ask(here, command).with_context(|| command.to_owned());
    sample.inspect_err(|error| *processes = Err(format!("{error:#}")))
}

fn ask(processes: &mut nvshmem::Processes, command: &str) -> Result<Sample> {
    let answers = processes.ask(command)?;
    let answer = answers.first().context("no process to ask")?;
    let numbers: Vec<f64> =
        answer.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let &[value, cpu] = numbers.as_slice() else { bail!("nvshmem-peer answered {answer:?}") };
    ensure!(value.is_finite() && value > 0.0, "nvshmem-peer measured {value}");
    Ok(Sample { value, cpu: (cpu > 0.0 && cpu.is_finite()).then_some(cpu) })
}

/// The last number of a command.
#[derive(Clone, Copy)]
enum Width {
    Fixed(u32),
    /// The threads of libmp's kernels.
    AsOurs,
    /// The threads of libmp's gets.
    Gets,
    /// The blocks of an exchange.
    Exchange,
    /// Blocks: the figure's x.
    X,
    /// Blocks, likewise, of libmp's threads, each with a word.
    Words,
    /// The threads of libmp's all-reduce, and its bound.
    AllReduce,
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
            Width::Gets => (self.x, one_sided::get_threads(self.x)),
            Width::Exchange => (self.x, super::exchange::blocks_of_puts(self.x)),
            Width::X => (VOLUME, self.x as u32),
            Width::Words => (u64::from(one_sided::THREADS), self.x as u32),
            Width::AllReduce => (self.x, collective::threads(self.x)),
        };
        let rounds = match self.what {
            "put" | "get" => rounds_in_kernels(size),
            "reduce" | "gather" | "all_to_all" if width == 0 => collective::rounds(size),
            "reduce" | "gather" | "all_to_all" => GRAPHS * collective::rounds(size),
            _ => self.rounds,
        };
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
        if let Some(processes) = &self.nvshmem.processes
            && let Err(reason) = &*processes.lock().unwrap_or_else(PoisonError::into_inner)
        {
            bail!("{reason}");
        }
        self.x = x;
        Ok(match self.what {
            // One word, whatever the size.
            "p" => x == 8,
            "reduce_kernel" => x <= collective::MOST_IN_KERNEL,
            _ => true,
        })
    }

    fn sample(&mut self, _: &Rank) -> Result<Sample> {
        let Some(processes) = &self.nvshmem.processes else { return Ok(Sample::of(0.0)) };
        measured(&mut processes.lock().unwrap_or_else(PoisonError::into_inner), &self.command())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use mp_program::stand_in::stand_in;

    use super::*;

    const PEER: &str = r#"echo "a library's banner"
if [ "$1" = 0 ]; then echo "id 00ff"; else read -r line; [ "$line" = "id 00ff" ] || { echo "error no id"; exit 1; }; fi
echo "ready NVSHMEM 0.0.1"
while read -r what size rounds width; do
  case $what in put) echo "ok $size 0";; stream) echo "ok 7 3";; *) echo "error no $what"; exit 1;; esac
done"#;

    fn started(body: &str, gpus: &[u32]) -> (tempfile::TempDir, Processes) {
        let folder = tempfile::tempdir().unwrap();
        let program = stand_in(folder.path(), "nvshmem-peer", body);
        let processes = nvshmem::Processes::of(&program, gpus, OsStr::new("")).unwrap();
        (folder, Ok(processes))
    }

    fn ended(processes: Processes) {
        let processes = Some(Mutex::new(processes));
        Nvshmem { version: String::new(), processes }.finish().unwrap();
    }

    #[test]
    fn measurements_are_what_the_first_of_two_to_four_processes_answers() {
        for gpus in [&[0, 1][..], &[0, 1, 2], &[0, 1, 2, 3]] {
            // The others have zeros to say.
            let body = PEER.replace("read -r what", r#"[ "$1" = 0 ] || ZERO=0; read -r what"#);
            let body = body.replace("ok $size 0", "ok ${ZERO:-$size} 0");
            let (_folder, mut processes) = started(&body, gpus);
            let sample = measured(&mut processes, "put 64 10 32").unwrap();
            assert_eq!((sample.value, sample.cpu), (64.0, None));
            let sample = measured(&mut processes, "stream 64 10 0").unwrap();
            assert_eq!((sample.value, sample.cpu), (7.0, Some(3.0)));
            ended(processes);
        }
    }

    #[test]
    fn a_process_that_fails_on_the_way_is_asked_no_more_and_the_reason_stays() {
        for gpus in [&[0, 1][..], &[0, 1, 2, 3]] {
            let (_folder, mut processes) = started(PEER, gpus);
            assert_eq!(measured(&mut processes, "put 8 10 32").unwrap().value, 8.0);
            let error = format!("{:#}", measured(&mut processes, "reduce 8 10 32").unwrap_err());
            assert!(
                error.starts_with("reduce 8 10 32: nvshmem-peer ")
                    && error.ends_with(": no reduce")
            );
            assert_eq!(measured(&mut processes, "put 8 10 32").unwrap_err().to_string(), error);
            ended(processes);
        }
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        for answer in ["ok fast 0", "ok 1", "ok 0 0", "ok inf 0", "ok nan 0", "ok 1 2 3"] {
            let body = PEER.replace("ok $size 0", answer);
            let (_folder, mut processes) = started(&body, &[0, 1]);
            let error = format!("{:#}", measured(&mut processes, "put 8 1 1").unwrap_err());
            assert!(error.starts_with("put 8 1 1: nvshmem-peer "), "{answer}: {error}");
        }
    }
}
