//! What stands behind the doctor `mp-info` and the local launcher `mprun`, and what this build was
//! built from. Programs that communicate use the crate `libmp`; this one only starts and describes
//! them.

mod build_info;
pub mod info;
pub mod launch;

pub use build_info::{BUILD, BuildInfo, version_string};
