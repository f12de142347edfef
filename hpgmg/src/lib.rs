//! HPGMG-FV: the finite-volume geometric multigrid benchmark.
//!
//! A variable-coefficient elliptic equation on the unit cube, discretised to fourth (or second) order,
//! solved by one full multigrid cycle whose cost is a few hundred operations per unknown. The metric is
//! unknowns solved per second on three grids; the check is the observed order of accuracy.
//!
//! How a run goes through the crate:
//!
//! 1. [`cli`] and [`launch`] decide what to solve and which ranks this process is; what does not fit is
//!    refused there.
//! 2. [`decomposition`] plans the levels: boxes, and who owns them.
//! 3. [`setup`] builds this rank's [`level`]s: vectors ([`field`], [`geometry`]), the prepared
//!    communication ([`halo`], [`transfer`], lists of [`block`]s), coefficients ([`problem`]) and the
//!    [`diagonal`].
//! 4. [`run`](mod@run) times solves; [`cycle`] holds the multigrid cycles and [`krylov`] the bottom
//!    solvers, both written against a [`backend`]; [`cpu`] is the backend of this crate, and [`enqueued`]
//!    makes tasks of it on a stream. The parts of a cycle that communicate are [`work`] in stages. The inner loops
//!    are [`operators`], [`sweep`], [`red_black`] and [`smoothers`], written in short vectors ([`lanes`])
//!    of the width that the machine has ([`isa`]).
//! 5. [`known`] judges, [`report`](mod@report) prints.
//!
//! Ranks talk through [`comm`], a small trait with one implementation per messaging library. With
//! Dirichlet boundaries results are the same bits for any number of ranks and threads; sums are formed
//! per box so that this holds for periodic ones too.

pub mod backend;
pub mod bandwidth;
pub mod block;
pub mod boundary;
pub mod cli;
pub mod comm;
pub mod compare;
pub mod cpu;
pub mod cuda;
pub mod cycle;
pub mod decomposition;
pub mod diagonal;
pub mod enqueued;
pub mod error;
pub mod field;
pub mod geometry;
pub mod halo;
pub mod isa;
pub mod known;
pub mod krylov;
pub mod lanes;
pub mod launch;
pub mod level;
#[cfg(test)]
mod mutation;
pub mod operators;
pub mod options;
pub mod patch;
pub mod pencils;
pub mod problem;
pub mod red_black;
pub mod report;
pub mod route;
pub mod rows;
pub mod run;
pub mod setup;
pub mod slab;
pub mod smoothers;
pub mod sweep;
pub mod team;
pub mod timers;
pub mod transfer;
pub mod vectors;
pub mod work;
