//! HPGMG-FV: the finite-volume geometric multigrid benchmark.

pub mod backend;
pub mod block;
pub mod boundary;
pub mod comm;
pub mod cpu;
pub mod cycle;
pub mod decomposition;
pub mod diagonal;
pub mod error;
pub mod geometry;
pub mod halo;
pub mod krylov;
pub mod level;
pub mod operators;
pub mod options;
pub mod problem;
pub mod rows;
pub mod run;
pub mod setup;
pub mod smoothers;
pub mod sweep;
pub mod team;
pub mod timers;
pub mod transfer;
pub mod vectors;
