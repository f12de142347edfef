//! `mp-perf`: measures what communication costs here, with the floor beside it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, Parser, Subcommand};
use comfy_table::{Cell, CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use mp_bench::arguments::{bytes, pair, ratio, window};
use mp_bench::perf::latency::Form;
use mp_bench::perf::work::Bound;
use mp_bench::perf::{
    self, Devices, Gpus, Rank, bandwidth, barrier, latency, litmus, message_rate, overlap, waiting,
};
use mp_bench::result::{Figure, Results};
use mp_bench::{compare, model, multigrid, report, signal};
use mp_program::{outln, within};

#[derive(Parser)]
#[command(name = "mp-perf", version, about = "Measures what communication costs on this machine")]
struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// A signal between two kernels, beside the same in bare PTX.
    Signal {
        /// The two GPUs, FIRST:SECOND; may be the same. Default: 0:0, and 0:1 if there are two.
        #[arg(long, value_parser = pair)]
        pair: Vec<(u32, u32)>,
        /// Rounds timed in each repeat.
        #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
        rounds: u64,
        /// Repeats of each player.
        #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        repeats: u32,
        /// Write the figures to this file.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// This library beside NCCL, NVSHMEM, MPI, UCX and the bare machine, on the host and between GPUs: between two
    /// everything, between more the collectives. Starts the ranks under mpirun by itself. Who of the others is not here, or fails on the way, is absent, with its own last
    /// words; the rest goes on.
    Compare {
        /// The ranks' GPUs, FIRST,SECOND[,THIRD…]: 2 to 8, all different or the same for all. Default: the first two, or
        /// host memory.
        #[arg(long)]
        gpus: Option<Gpus>,
        /// Host memory alone, by two ranks, also where there is a GPU.
        #[arg(long, conflicts_with = "gpus")]
        host: bool,
        /// Sizes of messages in bytes.
        #[arg(long, value_delimiter = ',', default_value = "8,64,512,4096,32768,262144,2097152",
            value_parser = clap::value_parser!(u64).range(1..=1 << 26))]
        sizes: Vec<u64>,
        /// Repeats of each point.
        #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
        repeats: u32,
        /// Only figures whose title contains one of these words, such as "kernel" or "All-reduce".
        #[arg(long, value_name = "WORD", value_delimiter = ',')]
        only: Vec<String>,
        /// Write the figures to this file.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// HPGMG-FV in several modes in turn: times, speed, gains.
    Multigrid {
        /// A mode, the base of the gains first: a name and the arguments of hpgmg-fv that make it.
        #[arg(long = "mode", value_name = "NAME=ARGUMENTS", required = true)]
        modes: Vec<multigrid::Mode>,
        /// Sizes, as hpgmg-fv takes them.
        #[arg(
            long,
            value_name = "LOG2_BOX_DIM:BOXES_PER_RANK",
            value_delimiter = ',',
            default_value = "4:8,5:8,6:8"
        )]
        sizes: Vec<multigrid::Size>,
        /// Runs of each mode and size.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
        repeats: u32,
        /// Seconds of solves in a run.
        #[arg(long, default_value_t = 1.0, value_parser = within(1e-3..=1e6_f64))]
        seconds: f64,
        /// GB/s that memory reaches in a plain copy, for the roofline; with --ranks: that of one rank's.
        #[arg(long, value_parser = within(1e-3..=1e6_f64))]
        bandwidth: Option<f64>,
        /// Numbers of ranks that share the boxes. A size is then LOG2_BOX_DIM:BOXES of the whole domain.
        #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=4096))]
        ranks: Vec<u64>,
        /// Arguments of one rank, measured once for all modes; by default each mode's own.
        #[arg(long, value_name = "ARGUMENTS", requires = "ranks", allow_hyphen_values = true)]
        alone: Option<String>,
        /// What starts several ranks, {} being their number ("mpirun -n {}"). Default: threads of one process.
        #[arg(long, value_name = "COMMAND", requires = "ranks")]
        launcher: Option<String>,
        /// The program; default: hpgmg-fv beside this one.
        #[arg(long)]
        program: Option<PathBuf>,
        /// Write the figures to this file.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// HPGMG-FV on more GPUs than there are: a model from measured results, with its error where that was measured.
    Model {
        /// Results of `compare` on two GPUs and of `multigrid --ranks 1,2`.
        #[arg(required = true)]
        results: Vec<PathBuf>,
        /// Cells a side of a GPU's box: powers of two.
        #[arg(long, value_delimiter = ',', default_value = "32,64,128,512",
            value_parser = clap::value_parser!(u64).range(4..=512))]
        boxes: Vec<u64>,
        /// Cells a side of domains that all ranks share: powers of two.
        #[arg(long, value_delimiter = ',', default_value = "1024",
            value_parser = clap::value_parser!(u64).range(64..=4096))]
        domains: Vec<u64>,
        /// Ranks; for boxes of their own only cubes are taken.
        #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,64,512,4096",
            value_parser = clap::value_parser!(u64).range(1..=4096))]
        ranks: Vec<u64>,
        /// GPUs of a node.
        #[arg(long, value_delimiter = ',', default_value = "1,2,4,8",
            value_parser = clap::value_parser!(u64).range(1..=64))]
        gpus_per_node: Vec<u64>,
        /// Microseconds from NIC to NIC through one switch, instead of what is assumed.
        #[arg(long, value_parser = within(1e-3..=1e6_f64))]
        nic_latency: Option<f64>,
        /// GB/s of a NIC, instead of what is assumed.
        #[arg(long, value_parser = within(1e-3..=1e6_f64))]
        nic_bandwidth: Option<f64>,
        /// Cells a side of the largest level that every rank computed in the solves that were measured (`hpgmg-fv --whole`), if
        /// that is not what hpgmg-fv chooses.
        #[arg(long, value_name = "CELLS", value_parser = clap::value_parser!(u64).range(1..=4096))]
        whole: Option<u64>,
        /// Write the figures to this file.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// How long a message takes, in every form: host, streams, graphs, kernels.
    Latency {
        #[command(flatten)]
        common: Common,
        /// Forms to measure. Default: all that the devices can do.
        #[arg(long, value_delimiter = ',')]
        form: Vec<Form>,
        /// Message sizes in bytes (8, 8k, 1M).
        #[arg(long, value_delimiter = ',', default_value = "8,1k,8k,64k,1M", value_parser = bytes)]
        size: Vec<u64>,
        /// Rounds of a repeat.
        #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(20..=10_000_000))]
        rounds: u64,
        /// Threads of the block in the kernel forms. Default: as many as suit the size.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=512))]
        threads: Option<u32>,
    },
    /// How fast one rank writes into the other's memory.
    Bandwidth {
        #[command(flatten)]
        common: Common,
        /// Sizes of a put in bytes (64k, 64M).
        #[arg(long, value_delimiter = ',', default_value = "64k,1M,64M", value_parser = bytes)]
        size: Vec<u64>,
        /// Blocks of the copying kernel; 0: one on each multiprocessor.
        #[arg(long, value_delimiter = ',', default_value = "1,4,16,64,0", value_parser = within(0..=65_535_u32))]
        blocks: Vec<u32>,
        /// Bytes behind the beginning of a cache line where puts begin.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..128))]
        offset: u64,
    },
    /// How many messages a second get across when none is waited for, in every form.
    MessageRate {
        #[command(flatten)]
        common: Common,
        /// Forms to measure. Default: all that the devices can do.
        #[arg(long, value_delimiter = ',')]
        form: Vec<message_rate::Form>,
        /// Message sizes in bytes (8, 8k, 1M).
        #[arg(long, value_delimiter = ',', default_value = "8,1k,8k,64k", value_parser = bytes)]
        size: Vec<u64>,
        /// Messages of a repeat.
        #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
        messages: u64,
    },
    /// How much of an exchange is hidden behind a computation, in every form, for shorter and longer computations.
    Overlap {
        #[command(flatten)]
        common: Common,
        /// Forms to measure. Default: all that the devices can do.
        #[arg(long, value_delimiter = ',')]
        form: Vec<overlap::Form>,
        /// What bounds the computation. Default: both.
        #[arg(long, value_delimiter = ',')]
        bound: Vec<Bound>,
        /// Message sizes in bytes (64k, 1M).
        #[arg(long, value_delimiter = ',', default_value = "64k,1M", value_parser = bytes)]
        size: Vec<u64>,
        /// Lengths of the computation, as multiples of the exchange's.
        #[arg(long, value_delimiter = ',', default_value = "0.25,0.5,1,2,4", value_parser = ratio)]
        ratio: Vec<f64>,
    },
    /// How long a barrier of two ranks takes.
    Barrier {
        #[command(flatten)]
        common: Common,
        /// Barriers of a repeat.
        #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
        rounds: u64,
    },
    /// What seven blocks of each multiprocessor that wait for a signal cost an eighth that computes.
    Waiting {
        /// The GPU.
        #[arg(long, default_value_t = 0)]
        device: u32,
        /// How often the computation goes through its 16 KiB.
        #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        rounds: u64,
        /// Repeats.
        #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
        repeats: u32,
    },
    /// Whether messages, puts and signals between GPUs keep the orders that are documented, checked word by word.
    Litmus {
        /// Sizes in bytes.
        #[arg(long, value_delimiter = ',', default_value = "8,1k,16k", value_parser = bytes)]
        size: Vec<u64>,
        /// Repetitions of each order, each way, of each size: all channels together.
        #[arg(long, default_value_t = 1_000_000, value_parser = within(1..=1_000_000_000_000_u64))]
        rounds: u64,
        /// Channels at once, at most: each is a block on either side.
        #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
        channels: u32,
        #[command(flatten)]
        ranks: Ranks,
    },
    /// One page from the results of runs (files written by --json) and from timelines.
    Report {
        /// The results.
        #[arg(required_unless_present = "trace")]
        results: Vec<PathBuf>,
        /// A timeline in the JSON trace event format, as MP_TRACE writes it.
        #[arg(long)]
        trace: Vec<PathBuf>,
        /// Of each timeline, FROM:TO in microseconds since its first event. Default: all.
        #[arg(long, value_parser = window, requires = "trace")]
        window: Option<(f64, f64)>,
        /// Write the page, one HTML file, here.
        #[arg(short, long, default_value = "report.html")]
        output: PathBuf,
        /// Write each figure into this folder as SVG and PNG, too.
        #[arg(long)]
        images: Option<PathBuf>,
        /// Write the tables into this file as Markdown, too.
        #[arg(long)]
        markdown: Option<PathBuf>,
    },
}

impl What {
    /// The files that a run is to write.
    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let [first, second] = match self {
            What::Signal { json, .. }
            | What::Compare { json, .. }
            | What::Multigrid { json, .. }
            | What::Model { json, .. } => [json.as_ref(), None],
            What::Latency { common, .. }
            | What::Bandwidth { common, .. }
            | What::MessageRate { common, .. }
            | What::Overlap { common, .. }
            | What::Barrier { common, .. } => [common.json.as_ref(), common.csv.as_ref()],
            What::Report { output, markdown, .. } => [Some(output), markdown.as_ref()],
            What::Litmus { .. } | What::Waiting { .. } => [None, None],
        };
        first.into_iter().chain(second)
    }
}

/// Which devices the two ranks use.
#[derive(Args)]
struct Ranks {
    /// The ranks' GPUs, FIRST:SECOND; may be the same. Default: the first two, one for both, or host memory.
    #[arg(long, value_parser = pair)]
    pair: Option<(u32, u32)>,
    /// Host memory and host streams, also where there is a GPU.
    #[arg(long, conflicts_with = "pair")]
    host: bool,
}

impl Ranks {
    fn devices(&self) -> Devices {
        match self.pair {
            _ if self.host => Devices::Host,
            Some((first, second)) => Devices::Gpus(Gpus::two(first, second)),
            None => Devices::Automatic,
        }
    }
}

/// What the measurements between two ranks have in common. The ranks are two threads, or two processes under a launcher.
#[derive(Args)]
struct Common {
    #[command(flatten)]
    ranks: Ranks,
    /// Repeats.
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeats: u32,
    /// Write the results to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the medians to this file.
    #[arg(long)]
    csv: Option<PathBuf>,
}

impl Common {
    /// Measures with two ranks; prints and writes where rank 0 runs.
    fn run(
        &self,
        measure: impl Fn(&Rank) -> Result<(Vec<String>, Vec<Figure>)> + Sync,
    ) -> Result<()> {
        let Some((method, figures)) = perf::on_ranks(&self.ranks.devices(), measure)? else {
            return Ok(());
        };
        let mut results = Results::begin(method);
        results.figures = figures;
        perf::print(&results);
        if let Some(path) = &self.json {
            results.write(path)?;
        }
        match &self.csv {
            Some(path) => write(path, &perf::csv(&results)),
            None => Ok(()),
        }
    }
}

fn main() -> ExitCode {
    let what = Options::parse().what;
    let writable = what.files().try_for_each(|path| mp_program::can_be_written(path));
    match writable.map_err(Into::into).and_then(|()| run(what)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => mp_program::fail("mp-perf", error.as_ref()),
    }
}

fn run(what: What) -> Result<()> {
    match what {
        What::Signal { pair, rounds, repeats, json } => {
            let mut pairs = pair;
            if pairs.is_empty() {
                pairs.push((0, 0));
                if gdsync::CudaDevice::count()? > 1 {
                    pairs.push((0, 1));
                }
            }
            let mut all = Vec::new();
            for (first, second) in pairs {
                all.push(signal::measure(first, second, rounds, repeats as usize)?);
            }
            print_signals(&all);
            if let Some(path) = json {
                mp_program::write(&path, serde_json::to_string_pretty(&all)?)?;
            }
            Ok(())
        }
        What::Compare { gpus, host, sizes, repeats, only, json } => {
            let mut sizes: Vec<usize> = sizes.into_iter().map(|size| size as usize).collect();
            sizes.sort_unstable();
            sizes.dedup();
            let repeats = repeats as usize;
            let devices = match gpus {
                _ if host => Devices::Host,
                Some(gpus) => Devices::Gpus(gpus),
                None => Devices::Automatic,
            };
            let plan = compare::Plan { sizes, repeats, budget: 64 << 20, devices, only };
            let Some(results) = compare::run(&plan)? else { return Ok(()) };
            ensure!(
                !results.figures.is_empty(),
                "no figure here has one of {:?} in its title",
                plan.only
            );
            show(&results, json.as_deref())
        }
        What::Multigrid {
            modes,
            sizes,
            repeats,
            seconds,
            bandwidth,
            ranks,
            alone,
            launcher,
            program,
            json,
        } => {
            let plan = multigrid::Plan {
                program: program.map_or_else(multigrid::beside_this_program, Ok)?,
                modes,
                sizes,
                repeats: repeats as usize,
                seconds,
                bandwidth,
                ranks: ranks.into_iter().map(|ranks| ranks as usize).collect(),
                alone,
                launcher,
            };
            show(&multigrid::measure(&plan)?, json.as_deref())
        }
        What::Model {
            results,
            boxes,
            domains,
            ranks,
            gpus_per_node,
            nic_latency,
            nic_bandwidth,
            whole,
            json,
        } => {
            let runs =
                results.iter().map(|path| Results::read(path)).collect::<Result<Vec<_>>>()?;
            let numbers =
                |values: Vec<u64>| values.into_iter().map(|value| value as usize).collect();
            let plan = model::Plan {
                boxes: numbers(boxes),
                domains: numbers(domains),
                ranks: numbers(ranks),
                gpus_per_node: numbers(gpus_per_node),
                nic_latency,
                nic_bandwidth,
                whole: whole.map(|cells| cells as usize),
            };
            show(&model::run(&runs, &plan)?, json.as_deref())
        }
        What::Latency { common, form, size: sizes, rounds, threads } => {
            let forms = if form.is_empty() { Form::ALL.to_vec() } else { form };
            let plan = latency::Plan { forms, sizes, rounds, repeats: common.repeats, threads };
            common.run(|rank| Ok((latency::method(rank, &plan), latency::measure(rank, &plan)?)))
        }
        What::Bandwidth { common, size: sizes, blocks, offset } => {
            let plan = bandwidth::Plan { sizes, blocks, offset, repeats: common.repeats };
            common
                .run(|rank| Ok((bandwidth::method(rank, &plan), bandwidth::measure(rank, &plan)?)))
        }
        What::MessageRate { common, form, size: sizes, messages } => {
            let forms = if form.is_empty() { message_rate::Form::ALL.to_vec() } else { form };
            let plan = message_rate::Plan { forms, sizes, messages, repeats: common.repeats };
            common.run(|rank| {
                Ok((message_rate::method(rank, &plan), message_rate::measure(rank, &plan)?))
            })
        }
        What::Overlap { common, form, bound, size: sizes, ratio } => {
            let forms = if form.is_empty() { overlap::Form::ALL.to_vec() } else { form };
            let bounds = if bound.is_empty() { Bound::ALL.to_vec() } else { bound };
            let (mut ratios, repeats) = (ratio, common.repeats);
            ratios.sort_by(f64::total_cmp);
            let plan = overlap::Plan { forms, bounds, sizes, ratios, repeats };
            common.run(|rank| Ok((overlap::method(rank, &plan), overlap::measure(rank, &plan)?)))
        }
        What::Barrier { common, rounds } => {
            let plan = barrier::Plan { rounds, repeats: common.repeats, only: None };
            common.run(|rank| Ok((barrier::method(rank, &plan), barrier::measure(rank, &plan)?)))
        }
        What::Waiting { device, rounds, repeats } => {
            waiting::print(&waiting::measure(device, rounds, repeats)?);
            Ok(())
        }
        What::Litmus { size: sizes, rounds, channels, ranks } => {
            let plan = litmus::Plan { sizes, rounds, channels };
            let found = perf::on_ranks(&ranks.devices(), |rank| {
                Ok((litmus::check(rank, &plan)?, rank.ranks.clone()))
            })?;
            if let Some((outcomes, ranks)) = found {
                litmus::print(&outcomes, &ranks);
            }
            Ok(())
        }
        What::Report { results, trace, window, output, images, markdown } => {
            let runs =
                results.iter().map(|path| Results::read(path)).collect::<Result<Vec<_>>>()?;
            let timelines = trace
                .iter()
                .map(|path| report::Timeline::read(path, window))
                .collect::<Result<Vec<_>>>()?;
            write(&output, &report::page(&runs, &timelines)?)?;
            if let Some(folder) = images {
                for name in report::images(&runs, &timelines, &folder)? {
                    outln!("wrote {}.svg and .png", folder.join(name).display());
                }
            }
            if let Some(path) = markdown {
                let files: Vec<_> = results.iter().map(|path| path.display().to_string()).collect();
                let command =
                    format!("mp-perf report {} --markdown {}", files.join(" "), path.display());
                let picture = report::picture(&runs).map(|svg| (path.with_extension("svg"), svg));
                if let Some((path, svg)) = &picture {
                    write(path, svg)?;
                }
                let picture = picture.as_ref().map(|(path, _)| path.as_path());
                write(&path, &report::markdown(&runs, &command, picture))?;
            }
            Ok(())
        }
    }
}

/// Prints a run's tables and method; writes it to `json`.
fn show(results: &Results, json: Option<&Path>) -> Result<()> {
    for figure in &results.figures {
        outln!("{}", report::terminal(results, figure));
    }
    for sentence in &results.method {
        outln!("{sentence}");
    }
    let verdict = report::verdict(results);
    if !verdict.is_empty() {
        outln!("\n{}", verdict.trim_end());
    }
    json.map_or(Ok(()), |path| results.write(path))
}

fn write(path: &Path, text: &str) -> Result<()> {
    mp_program::write(path, text)?;
    outln!("wrote {}", path.display());
    Ok(())
}

fn print_signals(all: &[signal::Figures]) {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    table.set_header(["pair", "link", "player", "one way, µs (median)", "min", "max", "over bare"]);
    for figures in all {
        for player in &figures.players {
            let spread = player.one_way_us;
            let number =
                |value: f64| Cell::new(format!("{value:.3}")).set_alignment(CellAlignment::Right);
            table.add_row([
                Cell::new(&figures.pair),
                Cell::new(&figures.link),
                Cell::new(player.name),
                number(spread.median),
                number(spread.min),
                number(spread.max),
                number(player.over_bare),
            ]);
        }
    }
    outln!("{table}");
    if let Some(figures) = all.first() {
        let repeats = figures.players.first().map_or(0, |player| player.one_way_us.count);
        outln!(
            "one thread a side; {} rounds a repeat, {repeats} repeats, players interleaved; GPU clock of the serving side",
            figures.rounds
        );
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn no_option_takes_what_nobody_means() {
        let (accepted, tried) = mp_program::absurd::accepted(&Options::command());
        assert!(accepted.is_empty() && tried > 200, "{tried} tried, accepted: {accepted:#?}");
    }

    #[test]
    fn numbers_that_lie_outside_of_what_they_mean_are_refused() {
        for line in [
            &["model", "a.json", "--nic-bandwidth", "0"][..],
            &["multigrid", "--mode", "a=", "--sizes", "99:1"],
            &["multigrid", "--mode", "a=", "--sizes", "5:0"],
            &["report", "--trace", "t", "--window", "5:nan"],
            &["report", "--trace", "t", "--window", "5:1"],
            &["latency", "--size", "0"],
            &["compare", "--gpus", "0"],
            &["compare", "--gpus", "0,1,2,3,4,5,6,7,8"],
            &["compare", "--gpus", "0:1"],
            &["compare", "--gpus", "0,0,1"],
            &["compare", "--gpus", "0,1", "--host"],
            &["compare", "--pair", "0:1"],
        ] {
            let error = Options::try_parse_from([&["mp-perf"], line].concat());
            assert_eq!(error.err().map(|error| error.exit_code()), Some(2), "{line:?}");
        }
    }
}
