//! Overlap: how much of an exchange of messages is hidden behind a computation, in every form. Each point compares the
//! exchange alone, the computation alone, and both together, measured in turn.

use std::time::Instant;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use gdsync::{Arg, Dims, Event, Graph, Stream};
use libmp::{Operation, Recv, Region, Send, Step};

use super::work::{Bound, THREADS, Work};
use super::{Rank, bar, capture, soon};
use crate::result::{Axis, Figure, Plot, Point, Role, Series};

/// Who exchanges, and how the computation lies beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// The host starts the messages, computes (on a GPU: launches and goes on) and waits for them.
    Host,
    /// One stream: messages are started, then the computation, then the wait.
    Stream,
    /// Two streams, joined by events: one exchanges, the other computes.
    TwoStreams,
    /// As `stream`, in a captured graph that is replayed.
    Graph,
    /// One kernel: some blocks exchange, the others compute.
    Kernel,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 5] =
        [Form::Host, Form::Stream, Form::TwoStreams, Form::Graph, Form::Kernel];

    fn name(self) -> &'static str {
        match self {
            Form::Host => "host",
            Form::Stream => "one stream",
            Form::TwoStreams => "two streams",
            Form::Graph => "graph of one stream",
            Form::Kernel => "fused kernel",
        }
    }
}

/// What is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Forms, in this order.
    pub forms: Vec<Form>,
    /// What bounds the computations.
    pub bounds: Vec<Bound>,
    /// Message sizes in bytes.
    pub sizes: Vec<u64>,
    /// Lengths of the computation, as multiples of the exchange's.
    pub ratios: Vec<f64>,
    /// Repeats.
    pub repeats: u32,
}

/// How long a batch of steps takes, about, and how many steps it has.
const BATCH_SECONDS: f64 = 4e-3;
const STEPS: (u64, u64) = (4, 100);
/// A block of the fused kernel exchanges so many bytes, as in stream operations …
const BLOCK_BYTES: u64 = 16 << 10;
/// … and at most so many blocks do.
const BLOCKS: u64 = 16;

/// Measures: for each bound and size a figure of what is hidden, and one of the times.
///
/// # Errors
/// A message that fails.
pub fn measure(rank: &Rank, plan: &Plan) -> Result<Vec<Figure>> {
    let gpu = rank.device.as_cuda().is_some();
    let forms: Vec<Form> =
        plan.forms.iter().copied().filter(|form| gpu || *form != Form::Kernel).collect();
    ensure!(!forms.is_empty(), "a fused kernel needs a GPU, and the ranks have none");
    let bar = bar(rank, plan.bounds.len() * plan.sizes.len() * forms.len() * plan.ratios.len())?;
    let mut figures = Vec::new();
    for &bound in &plan.bounds {
        let work = Work::new(rank, bound)?;
        for &size in &plan.sizes {
            let (mut hidden, mut times) = (Vec::new(), Vec::new());
            for &form in &forms {
                let exchange = Exchange::new(rank, size, form)?;
                // The slower rank's time, so that both take as many steps.
                let alone = |count| -> Result<f64> {
                    Ok(rank.world.max(exchange.seconds(&work, (true, None), count)?)?)
                };
                let step = alone(steps(alone(STEPS.0)?))?;
                let (mut share, mut both, mut longer) = (Vec::new(), Vec::new(), Vec::new());
                for &ratio in &plan.ratios {
                    bar.set_message(format!(
                        "{}, {}, {size} B, x {ratio}",
                        form.name(),
                        bound.name()
                    ));
                    let amount = work.amount(ratio * step);
                    let count = steps(step * (1.0 + ratio));
                    let mut samples = [Vec::new(), Vec::new(), Vec::new()];
                    for repeat in 0..=plan.repeats {
                        let alone = exchange.seconds(&work, (true, None), count)?;
                        let computing = exchange.seconds(&work, (false, Some(amount)), count)?;
                        let together = exchange.seconds(&work, (true, Some(amount)), count)?;
                        // The first warms up.
                        if repeat > 0 {
                            samples[0].push(hidden_share(alone, computing, together));
                            samples[1].push(together * 1e6);
                            samples[2].push(alone.max(computing) * 1e6);
                        }
                    }
                    for (points, samples) in
                        [&mut share, &mut both, &mut longer].into_iter().zip(samples)
                    {
                        points.push(Point { x: ratio, samples, p99: None });
                    }
                    bar.inc(1);
                }
                let name = form.name();
                let ours = |points| Series { name: name.into(), role: Role::Ours, points };
                hidden.push(ours(share));
                times.push(ours(both));
                let name = format!("{name}: the longer of the two alone");
                times.push(Series { name, role: Role::Floor, points: longer });
                rank.world.barrier()?;
            }
            let what = format!("with computation bound by {}, messages of {size} B", bound.name());
            let x = Axis::log("computation / exchange", "");
            figures.push(Figure {
                title: format!("overlap {what}"),
                plot: Plot::Lines,
                x: x.clone(),
                y: Axis::linear("hidden of the shorter", "%"),
                less_is_better: false,
                series: hidden,
            });
            figures.push(Figure {
                title: format!("exchange {what}"),
                plot: Plot::Lines,
                x,
                y: Axis::log("a step", "µs"),
                less_is_better: true,
                series: times,
            });
        }
    }
    bar.finish_and_clear();
    Ok(figures)
}

/// How it was measured.
pub fn method(rank: &Rank, plan: &Plan) -> Vec<String> {
    vec![
        format!("A step is one message each way between {}, and a computation; {} repeats; each measures batches of the exchange alone, of the computation alone, and of both, by the CPU's clock of rank 0; batches take about {} ms.", rank.ranks, plan.repeats, BATCH_SECONDS * 1e3),
        "Hidden: (exchange + computation − both) / the shorter of the two; 100 %: it costs nothing; below 0: both together are slower than one after the other.".into(),
        "On a GPU the computation is one block of 512 threads on each multiprocessor, bound by memory over 256 MiB; on the host one thread, over 64 MiB.".into(),
    ]
}

/// How much of the shorter of the two is hidden, in percent.
fn hidden_share(exchange: f64, computation: f64, together: f64) -> f64 {
    100.0 * (exchange + computation - together) / exchange.min(computation)
}

fn steps(seconds: f64) -> u64 {
    ((BATCH_SECONDS / seconds) as u64).clamp(STEPS.0, STEPS.1)
}

/// One message each way, prepared for a form.
struct Exchange<'a> {
    rank: &'a Rank,
    form: Form,
    size: u64,
    send: Send,
    recv: Recv,
    /// The computing stream of two, and the events that join them: the exchange is through, the computation is.
    second: Option<(Stream, [Event; 2])>,
}

impl Exchange<'_> {
    fn new(rank: &Rank, size: u64, form: Form) -> Result<Exchange<'_>> {
        let peer = rank.peer()?;
        let region =
            || -> Result<Region<u8>> { Ok(rank.world.alloc(&rank.device, size as usize)?) };
        let (send, recv) = (peer.send(&region()?, size), peer.recv(&region()?, size));
        let (send, recv) = (send.prepare()?, recv.prepare()?);
        if form != Form::Host {
            // The other side is known before anything is enqueued.
            send.handle()?;
            recv.handle()?;
        }
        let second = match form {
            Form::TwoStreams => {
                let events = [Event::new(&rank.device)?, Event::new(&rank.device)?];
                Some((rank.world.stream(&rank.device)?, events))
            }
            _ => None,
        };
        Ok(Exchange { rank, form, size, send, recv, second })
    }

    /// Seconds of a step, of `count` steps: with the exchange or not, with a computation of some length or none.
    fn seconds(&self, work: &Work, what: (bool, Option<u64>), count: u64) -> Result<f64> {
        let (world, stream) = (&self.rank.world, &self.rank.stream);
        let graph: Option<Graph> = match self.form {
            Form::Graph => Some(capture(self.rank, 1, |_| self.enqueue(work, what))?),
            _ => None,
        };
        world.barrier()?;
        let since = Instant::now();
        for _ in 0..count {
            match &graph {
                Some(graph) => stream.launch_graph(graph)?,
                None => self.enqueue(work, what)?,
            }
        }
        world.synchronize(stream, soon())?;
        Ok(since.elapsed().as_secs_f64() / count as f64)
    }

    fn enqueue(&self, work: &Work, (exchanges, amount): (bool, Option<u64>)) -> Result<()> {
        let Rank { world, stream, .. } = self.rank;
        let compute = |on: &Stream| amount.map_or(Ok(()), |amount| work.enqueue(on, amount));
        let Exchange { send, recv, .. } = self;
        match (self.form, &self.second) {
            (Form::Host, _) => {
                if exchanges {
                    recv.start()?;
                    send.start()?;
                }
                amount.map_or(Ok(()), |amount| work.run(stream, amount))?;
                if exchanges {
                    recv.wait(soon())?;
                    send.wait(soon())?;
                }
                world.synchronize(stream, soon())?;
            }
            (_, Some((second, [exchanged, computed]))) => {
                if exchanges {
                    world.enqueue(
                        stream,
                        &[Step::start(recv), Step::start(send), Step::wait(recv)],
                    )?;
                }
                compute(second)?;
                // A step begins when both parts of the one before are through.
                stream.record(exchanged)?;
                second.wait_event(exchanged)?;
                second.record(computed)?;
                stream.wait_event(computed)?;
            }
            (Form::Kernel, None) => {
                self.fused(work, exchanges.then_some((send, recv)), amount)?;
            }
            (_, None) => {
                if exchanges {
                    world.enqueue(stream, &[Step::start(recv), Step::start(send)])?;
                }
                compute(stream)?;
                if exchanges {
                    recv.wait_on(stream)?;
                }
            }
        }
        Ok(())
    }

    /// The fused kernel; a part that is not wanted has no blocks.
    fn fused(&self, work: &Work, ends: Option<(&Send, &Recv)>, amount: Option<u64>) -> Result<()> {
        let (send, recv, exchanging) = match ends {
            Some((send, recv)) => {
                let blocks = self.size.div_ceil(BLOCK_BYTES).clamp(1, BLOCKS) as u32;
                (send.handle()?, recv.handle()?, blocks)
            }
            None => Default::default(),
        };
        let computing = amount.map_or(0, |_| work.blocks().saturating_sub(exchanging).max(1));
        let (bound, words, count) = work.arguments()?;
        // As long as in all blocks.
        let amount = amount.unwrap_or(0) * u64::from(work.blocks()) / u64::from(computing.max(1));
        let args = [
            Arg::new(&send),
            Arg::new(&recv),
            Arg::new(&exchanging),
            Arg::new(&bound),
            Arg::new(&amount),
            Arg::new(&words),
            Arg::new(&count),
        ];
        let kernel = self.rank.kernel("mp_perf_fused")?;
        let dims = Dims::linear(exchanging + computing, THREADS);
        // SAFETY: the kernel's signature; ends and work outlive the launch, which `seconds` waits for.
        unsafe { self.rank.stream.launch(&kernel, dims, &args)? };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_nothing_beside_the_longer_is_hidden_wholly() {
        assert_eq!(hidden_share(2.0, 10.0, 10.0), 100.0);
        assert_eq!(hidden_share(2.0, 10.0, 12.0), 0.0);
        assert_eq!(hidden_share(10.0, 2.0, 11.0), 50.0);
        assert!(hidden_share(2.0, 10.0, 13.0) < 0.0);
    }
}
