//! The local launcher `mprun`: starts a program as N ranks on this host, passes signals and output on,
//! and ends the whole job when a part of it fails. It knows nothing of what the ranks do with each
//! other.
//!
//! | file | holds |
//! |---|---|
//! | `options.rs` | the command line |
//! | `contract.rs` | the environment variables that the ranks find |
//! | `course.rs` | when who is ended, and the exit status: a state machine without I/O |
//! | `supervise.rs` | the loop that feeds it |
//! | `job.rs`, `gpus.rs` | identity and addresses of a job; its size and GPUs |
//! | `spawn.rs`, `keeper.rs` | starting a rank; ending all of them when `mprun` is killed |
//! | `processes.rs`, `signals.rs` | what is asked of the kernel |
//! | `relay.rs`, `lines.rs`, `stdin.rs` | output and input |

pub mod contract;
mod course;
mod error;
mod gpus;
mod job;
mod keeper;
mod lines;
mod options;
mod processes;
mod relay;
mod signals;
mod spawn;
mod stdin;
mod supervise;

pub use error::LaunchError;
pub use options::{GpuList, Options};
pub use supervise::run;
