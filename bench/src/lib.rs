//! Measurements of libmp beside other communication libraries and beside the bare machine. A figure here has a method,
//! a spread, and a peer measured in the same run.

pub mod arguments;
pub mod compare;
pub mod device_ranks;
pub mod kernels;
pub mod model;
pub mod multigrid;
pub mod perf;
pub mod report;
pub mod result;
pub mod signal;
pub mod spread;
