//! The report of a run: the table that users of the reference program expect, and the JSON file.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::cpu::Cpu;
use crate::known::{Verdict, name};
use crate::options::{Bottom, Boundary, Config, Cycle, Equation, Operator, Smoother};
use crate::run::{LevelRun, Outcome};
use crate::timers::{Phase, Timers};

/// Everything a run found, as the JSON file has it.
///
/// ```
/// use std::time::Duration;
///
/// use hpgmg::comm::Alone;
/// use hpgmg::cpu::Cpu;
/// use hpgmg::known::judge;
/// use hpgmg::options::Config;
/// use hpgmg::report::{Facts, Report};
/// use hpgmg::run::{Effort, run};
///
/// let config = Config { box_dim: 16, ..Config::default() };
/// let mut cpu = Cpu::new(config.clone(), &Alone, 1)?;
/// let outcome = run(&mut cpu, Effort::Solves(1), |_, _, _| {})?;
/// let facts = Facts {
///     ranks: 1,
///     comm: "threads",
///     triad: Some(20e9), // measured, bytes per second
///     gpu: None,
///     first_on_cpu: 0,
///     distribution: None,
/// };
/// let report = Report::new(&cpu, &outcome, &judge(&config, &outcome), &facts);
/// println!("{}", report.text()); // or as JSON, by serde
/// # Ok::<(), hpgmg::error::Error>(())
/// ```
#[derive(Debug, Serialize)]
pub struct Report {
    operator: Operator,
    smoother: Smoother,
    cycle: Cycle,
    boundary: Boundary,
    equation: Equation,
    bottom: Bottom,
    log2_box_dim: u32,
    boxes_per_rank: usize,
    boxes: usize,
    ranks: usize,
    threads: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    distribution: Option<String>,
    device: &'static str,
    comm: &'static str,
    dim: usize,
    levels: Vec<LevelEntry>,
    lambda_max: Vec<f64>,
    solves: Vec<SolveEntry>,
    error_2h_h: f64,
    error_4h_2h: f64,
    order: f64,
    bottom_iterations: usize,
    /// Seconds per solve at h on rank 0.
    phases: Vec<PhaseEntry>,
    bytes_per_cell: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bandwidth: Option<Bandwidth>,
    verdict: VerdictEntry,
    versions: Versions,
}

#[derive(Debug, Serialize)]
struct LevelEntry {
    dim: usize,
    boxes: usize,
    box_dim: usize,
    ranks: usize,
    r#where: &'static str,
}

#[derive(Debug, Serialize)]
struct SolveEntry {
    dim: usize,
    fmax: f64,
    umax: f64,
    cycles: Vec<CycleEntry>,
    solves: usize,
    seconds: f64,
    dof_per_s: f64,
}

#[derive(Debug, Serialize)]
struct CycleEntry {
    kind: &'static str,
    residual: f64,
    relative: f64,
}

#[derive(Debug, Serialize)]
struct PhaseEntry {
    level: usize,
    dim: usize,
    smooth: f64,
    residual: f64,
    exchange: f64,
    restriction: f64,
    interpolation: f64,
    bottom: f64,
    vectors: f64,
}

/// The machine's memory bandwidth and the solver's share of it.
///
/// See [`Report`] for an example.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Bandwidth {
    /// Measured, bytes per second.
    pub triad: f64,
    /// Counted bytes of a solve at h over its time.
    pub solver: f64,
}

#[derive(Debug, Serialize)]
struct VerdictEntry {
    pass: bool,
    text: String,
}

#[derive(Debug, Serialize)]
struct Versions {
    hpgmg: &'static str,
    instructions: String,
    os: &'static str,
    arch: &'static str,
}

/// Facts about a run that are not results.
///
/// See [`Report`] for an example.
pub struct Facts {
    /// Ranks.
    pub ranks: usize,
    /// Name of the messaging library.
    pub comm: &'static str,
    /// Measured memory bandwidth in bytes per second, if it was measured.
    pub triad: Option<f64>,
    /// The GPU that solved, and the bytes it moves in a solve at h; none if the CPU did.
    pub gpu: Option<(String, f64)>,
    /// Levels from this one on the CPU computes; 0 if it computes all.
    pub first_on_cpu: usize,
    /// Which levels the ranks share, where some may be whole on each.
    pub distribution: Option<String>,
}

impl Report {
    /// The report of rank 0.
    pub fn new(cpu: &Cpu, outcome: &Outcome, verdict: &Verdict, facts: &Facts) -> Self {
        let config: &Config = cpu.config();
        let finest = cpu.level(0);
        let levels = (0..outcome.timers.levels()).map(|l| cpu.level(l));
        let bytes = facts.gpu.as_ref().map_or_else(|| cpu.bytes_per_solve(), |gpu| gpu.1);
        let bytes_per_cell = bytes / (finest.shape.dim as f64).powi(3);
        let seconds = outcome.runs.first().map_or(f64::NAN, |r| r.mean.as_secs_f64());
        let (pass, text) = match verdict {
            Verdict::Pass(text) => (true, text.clone()),
            Verdict::Fail(text) => (false, text.clone()),
        };
        Self {
            operator: config.operator,
            smoother: config.smoother,
            cycle: config.cycle,
            boundary: config.boundary,
            equation: config.equation,
            bottom: config.bottom,
            log2_box_dim: config.box_dim.ilog2(),
            boxes_per_rank: config.boxes_per_rank,
            boxes: finest.shape.boxes(),
            ranks: facts.ranks,
            threads: cpu.threads(),
            distribution: facts.distribution.clone(),
            device: if facts.gpu.is_some() { "cuda" } else { "cpu" },
            comm: facts.comm,
            dim: finest.shape.dim,
            levels: levels
                .clone()
                .enumerate()
                .map(|(index, l)| LevelEntry {
                    dim: l.shape.dim,
                    boxes: l.shape.boxes(),
                    box_dim: l.shape.box_dim,
                    ranks: l.shape.owners(),
                    r#where: if index < facts.first_on_cpu { "gpu" } else { "cpu" },
                })
                .collect(),
            lambda_max: levels.map(|l| l.lambda_max).collect(),
            solves: outcome.runs.iter().map(solve_entry).collect(),
            error_2h_h: outcome.error_2h_h,
            error_4h_2h: outcome.error_4h_2h,
            order: outcome.order(),
            bottom_iterations: outcome.bottom_iterations,
            // A GPU runs a solve in one piece.
            phases: if facts.gpu.is_some() { Vec::new() } else { phase_entries(cpu, outcome) },
            bytes_per_cell,
            bandwidth: facts.triad.map(|triad| Bandwidth { triad, solver: bytes / seconds }),
            verdict: VerdictEntry { pass, text },
            versions: Versions {
                hpgmg: env!("CARGO_PKG_VERSION"),
                instructions: match &facts.gpu {
                    Some((name, _)) => name.clone(),
                    None => cpu.instructions(),
                },
                os: std::env::consts::OS,
                arch: std::env::consts::ARCH,
            },
        }
    }

    /// True when the verdict is that the results are as they should be.
    pub fn passes(&self) -> bool {
        self.verdict.pass
    }

    /// The report for a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "HPGMG-FV  {} {} {}-cycle, {}, {}, bottom {}",
            name(self.operator),
            name(self.smoother),
            name(self.cycle).to_uppercase(),
            name(self.boundary),
            name(self.equation),
            name(self.bottom),
        );
        let box_dim = 1usize << self.log2_box_dim;
        let _ = writeln!(
            out,
            "{}³ cells in {} boxes of {box_dim}³; {} × {} ranks × threads ({}), {}",
            self.dim, self.boxes, self.ranks, self.threads, self.comm, self.versions.instructions,
        );
        if let Some(distribution) = &self.distribution {
            let _ = writeln!(out, "{distribution}");
        }
        let on_cpu = self.levels.iter().find(|level| level.r#where == "cpu");
        if let Some(level) = on_cpu.filter(|_| self.device == "cuda") {
            let _ = writeln!(out, "levels from {}³ on computed by the CPU", level.dim);
        }
        let _ = writeln!(out);
        let mut table = table(&[
            "", "cells", "solves", "seconds", "DOF/s", "cycles", "residual", "relative", "max |u|",
        ]);
        for (label, s) in ["h", "2h", "4h"].iter().zip(&self.solves) {
            let last = s.cycles.last();
            let number = |f: fn(&CycleEntry) -> f64| last.map_or(f64::NAN, f);
            table.add_row([
                (*label).to_owned(),
                format!("{}³", s.dim),
                s.solves.to_string(),
                format!("{:.6}", s.seconds),
                format!("{:.3e}", s.dof_per_s),
                cycles(&s.cycles),
                format!("{:.6e}", number(|c| c.residual)),
                format!("{:.3e}", number(|c| c.relative)),
                format!("{:.9e}", s.umax),
            ]);
        }
        let _ = writeln!(out, "{table}");
        let _ = writeln!(out, "  error  |u_2h - R u_h|  = {:.9e}", self.error_2h_h);
        let _ = writeln!(out, "  error  |u_4h - R u_2h| = {:.9e}", self.error_4h_2h);
        let _ = writeln!(out, "  order  = {:.4}\n", self.order);

        if !self.phases.is_empty() {
            self.write_phases(&mut out);
        }
        if let Some(b) = self.bandwidth {
            let _ = writeln!(
                out,
                "  {:.0} bytes per cell and solve counted: {:.1} GB/s, {:.0} % of the {:.1} GB/s measured",
                self.bytes_per_cell,
                b.solver * 1e-9,
                100.0 * b.solver / b.triad,
                b.triad * 1e-9,
            );
        }
        let word = if self.verdict.pass { "PASS" } else { "FAIL" };
        let _ = writeln!(out, "{word}: {}", self.verdict.text);
        out
    }

    fn write_phases(&self, out: &mut String) {
        let header: Vec<&str> = ["level", "cells", "boxes", "ranks"]
            .into_iter()
            .chain(Phase::ALL.iter().map(|p| p.name()))
            .chain(["total"])
            .collect();
        let _ = writeln!(out, "milliseconds per solve at h, on rank 0:");
        let mut phases = crate::report::table(&header);
        let mut sums = [0.0; 8];
        for (p, l) in self.phases.iter().zip(&self.levels) {
            let mut row = vec![
                p.level.to_string(),
                format!("{}³", l.dim),
                format!("{} × {}³", l.boxes, l.box_dim),
                l.ranks.to_string(),
            ];
            let times = p.times();
            for (sum, t) in sums.iter_mut().zip(times.iter().chain([&times.iter().sum()])) {
                *sum += t;
                row.push(format!("{:.3}", 1e3 * t));
            }
            phases.add_row(row);
        }
        let total = sums.iter().map(|s| format!("{:.3}", 1e3 * s));
        phases.add_row(
            ["all".into(), String::new(), String::new(), String::new()].into_iter().chain(total),
        );
        let _ = writeln!(out, "{phases}");
    }
}

impl PhaseEntry {
    fn times(&self) -> [f64; Phase::ALL.len()] {
        let p = self;
        [p.smooth, p.residual, p.exchange, p.restriction, p.interpolation, p.bottom, p.vectors]
    }
}

fn cycles(cycles: &[CycleEntry]) -> String {
    let v = cycles.iter().filter(|c| c.kind == "v-cycle").count();
    match (cycles.len() - v, v) {
        (f, 0) => format!("{f} F"),
        (0, v) => format!("{v} V"),
        (f, v) => format!("{f} F + {v} V"),
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn solve_entry(run: &LevelRun) -> SolveEntry {
    let seconds = run.mean.as_secs_f64();
    SolveEntry {
        dim: run.dim,
        fmax: run.first.fmax,
        umax: run.umax,
        cycles: run
            .first
            .cycles
            .iter()
            .map(|c| CycleEntry { kind: c.kind, residual: c.residual, relative: c.relative })
            .collect(),
        solves: run.solves,
        seconds,
        dof_per_s: (run.dim as f64).powi(3) / seconds,
    }
}

fn phase_entries(cpu: &Cpu, outcome: &Outcome) -> Vec<PhaseEntry> {
    let timers: &Timers = &outcome.timers;
    let solves = outcome.runs.first().map_or(1, |r| r.solves.max(1)) as f64;
    (0..timers.levels())
        .map(|level| {
            let of = |phase| timers.spent(level, phase).as_secs_f64() / solves;
            PhaseEntry {
                level,
                dim: cpu.level(level).shape.dim,
                smooth: of(Phase::Smooth),
                residual: of(Phase::Residual),
                exchange: of(Phase::Exchange),
                restriction: of(Phase::Restriction),
                interpolation: of(Phase::Interpolation),
                bottom: of(Phase::Bottom),
                vectors: of(Phase::Vectors),
            }
        })
        .collect()
}
