//! HPGMG-FV: the finite-volume geometric multigrid benchmark.
//!
//! A variable-coefficient elliptic equation on the unit cube, discretised to fourth (or second) order,
//! solved by one full multigrid cycle whose cost is a few hundred operations per unknown. The metric is
//! unknowns solved per second on three grids; the check is the observed order of accuracy.
//!
//! ```
//! use std::time::Duration;
//!
//! use hpgmg::cpu::Cpu;
//! use hpgmg::known::{Verdict, judge};
//! use hpgmg::launch::on_threads;
//! use hpgmg::options::{Config, Operator};
//! use hpgmg::run::{Effort, run};
//!
//! let config = Config { operator: Operator::Fv4, box_dim: 16, ..Config::default() };
//! // Two ranks, each a thread with a box of 16³ cells at most.
//! let outcome = on_threads(2, Duration::from_secs(60), |comm| {
//!     let mut solver = Cpu::new(config.clone(), comm, 1)?;
//!     run(&mut solver, Effort::Solves(1), |dim, done, of| println!("{dim}³: {done} of {of}"))
//! })?;
//! for cycle in &outcome.runs[0].first.cycles {
//!     println!("{}: residual {:e}", cycle.kind, cycle.residual);
//! }
//! match judge(&config, &outcome) {
//!     Verdict::Pass(why) | Verdict::Fail(why) => println!("order {:.2}; {why}", outcome.order()),
//! }
//! # Ok::<(), hpgmg::error::Error>(())
//! ```
//!
//! How a run goes through the crate:
//!
//! 1. [`cli`] and [`launch`] decide what to solve and which ranks this process is; what does not fit is
//!    refused there.
//! 2. [`decomposition`] plans the levels: boxes, and who owns them.
//! 3. [`setup`] builds this rank's levels (`level.rs`): vectors (`field.rs`, `geometry.rs`), the prepared
//!    communication (`halo.rs`, [`transfer`], lists of blocks in `block.rs`), coefficients (`problem.rs`) and the
//!    diagonal of the operator (`diagonal.rs`).
//! 4. [`run`](mod@run) times solves; [`cycle`] holds the multigrid cycles and `krylov/` the bottom
//!    solvers, both written against a [`backend`]; [`cpu`] is the backend of this crate, and [`enqueued`]
//!    makes tasks of it on a stream; [`cuda`] has the levels on GPUs. The parts of a cycle that communicate are
//!    [`work`] in stages. The inner loops are `operators/`, `sweep.rs`, `red_black.rs` and `smoothers.rs`, written in short
//!    vectors (`lanes.rs`) of the width that the machine has (`isa.rs`).
//! 5. [`known`] judges, [`report`](mod@report) prints, [`compare`](mod@compare) sets ways to communicate side by side.
//!
//! Ranks talk through [`comm`], a small trait with one implementation per messaging library. With
//! Dirichlet boundaries results are the same bits for any number of ranks and threads; sums are formed
//! per box so that this holds for periodic ones too.

pub mod backend;
pub mod bandwidth;
mod block;
mod boundary;
pub mod cli;
pub mod comm;
pub mod compare;
pub mod cpu;
pub mod cuda;
pub mod cycle;
pub mod decomposition;
mod diagonal;
pub mod enqueued;
pub mod error;
mod field;
mod geometry;
mod halo;
mod isa;
pub mod known;
mod krylov;
mod lanes;
pub mod launch;
mod level;
#[cfg(test)]
mod mutation;
mod operators;
pub mod options;
mod patch;
mod pencils;
mod problem;
mod red_black;
pub mod report;
mod route;
mod rows;
pub mod run;
pub mod setup;
mod slab;
mod smoothers;
mod sweep;
mod team;
pub mod timers;
pub mod transfer;
mod vectors;
pub mod work;
