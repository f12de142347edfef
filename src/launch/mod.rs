//! The launcher `mprun`: starts a program as N ranks on this host, or on several, passes signals and output on,
//! and ends the whole job when a part of it fails. It knows nothing of what the ranks do with each
//! other.
//!
//! | file | holds |
//! |---|---|
//! | `options.rs` | the command line |
//! | `contract.rs` | the environment variables that the ranks find |
//! | `course.rs` | when who is ended, and the exit status: a state machine without I/O |
//! | `supervise.rs` | the loop that feeds it |
//! | `gone.rs`, `stopped.rs` | telling ranks that are starting of one that has ended, or is stopped |
//! | `hosts.rs`, `parts.rs` | jobs on several hosts; what a job consists of |
//! | `job.rs`, `gpus.rs` | identity and addresses of a job; its size and GPUs |
//! | `spawn.rs`, `tie.rs` | starting a rank; what ends all of them when `mprun` is killed |
//! | `processes.rs`, `signals.rs` | what is asked of the kernel |
//! | `relay.rs`, `lines.rs`, `stdin.rs` | output and input |

pub mod contract;
mod course;
mod error;
mod gone;
mod gpus;
mod hosts;
mod job;
mod lines;
mod options;
mod parts;
mod processes;
mod relay;
mod signals;
mod spawn;
mod stdin;
mod stopped;
mod supervise;
mod tie;

pub use error::LaunchError;
pub use options::{GpuList, Options};
pub use supervise::run;
