//! This library: the measurements of `mp-perf latency`, `bandwidth` and `barrier`, one repeat at a time.

use anyhow::{Context, Result};

use super::{IN_KERNELS, ON_STREAMS, Player, Sample, VOLUME};
use crate::perf::{Rank, bandwidth, barrier, latency};
use crate::result::{Figure, Role};

pub use crate::perf::latency::Form;

/// Messages in one form.
pub fn latency(form: Form) -> Box<dyn Player> {
    Box::new(Latency { form, size: 0 })
}

/// Copies by a kernel with as many blocks as asked for.
pub fn bandwidth() -> Box<dyn Player> {
    Box::new(Bandwidth { blocks: 0 })
}

/// One of the barriers of `mp-perf barrier`, by its name there.
pub fn barrier(name: &'static str) -> Box<dyn Player> {
    Box::new(Barrier { name })
}

/// The only sample of the first series of a figure.
fn only(figures: &[Figure], number: usize) -> Option<f64> {
    let series = figures.get(number)?.series.first()?;
    series.points.first()?.samples.first().copied()
}

struct Latency {
    form: Form,
    size: u64,
}

impl Player for Latency {
    fn name(&self) -> String {
        match self.form {
            Form::Fused => "libmp, stream".into(),
            Form::Graph => "libmp, graph".into(),
            Form::Kernel => "libmp, send and receive".into(),
            Form::Put => "libmp, put and signal".into(),
            form => format!("libmp, {form:?}"),
        }
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    fn prepare(&mut self, _: &Rank, size: u64) -> Result<bool> {
        self.size = size;
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let streams = matches!(self.form, Form::Fused | Form::Graph);
        let rounds = if streams { ON_STREAMS } else { IN_KERNELS };
        let (forms, sizes) = (vec![self.form], vec![self.size]);
        let plan = latency::Plan { forms, sizes, rounds, repeats: 1, threads: None };
        let figures = latency::measure(rank, &plan)?;
        let value = only(&figures, 0).context("no latency")?;
        // Of one operation; a round is a wait and a send.
        Ok(Sample { value, cpu: only(&figures, 1).map(|time| 2.0 * time) })
    }
}

struct Bandwidth {
    blocks: u32,
}

impl Player for Bandwidth {
    fn name(&self) -> String {
        "libmp, kernel".into()
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    fn prepare(&mut self, _: &Rank, blocks: u64) -> Result<bool> {
        self.blocks = u32::try_from(blocks)?;
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let plan = bandwidth::Plan {
            sizes: vec![VOLUME],
            blocks: vec![self.blocks],
            offset: 0,
            repeats: 1,
        };
        let figures = bandwidth::measure(rank, &plan)?;
        // Only rank 0 measures.
        let value = only(&figures, 0);
        Ok(Sample::of(if rank.leads() { value.context("no bandwidth")? } else { 0.0 }))
    }
}

struct Barrier {
    name: &'static str,
}

impl Player for Barrier {
    fn name(&self) -> String {
        format!("libmp, {}", self.name)
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    fn prepare(&mut self, _: &Rank, _: u64) -> Result<bool> {
        Ok(true)
    }

    fn sample(&mut self, rank: &Rank) -> Result<Sample> {
        let plan = barrier::Plan { rounds: ON_STREAMS, repeats: 1, only: Some(self.name) };
        let figures = barrier::measure(rank, &plan)?;
        let value = only(&figures, 0);
        Ok(Sample::of(value.with_context(|| format!("no barrier is called {:?}", self.name))?))
    }
}
