//! The host playing a device: streams as ordered executor threads.

pub(crate) mod executor;
pub(crate) mod kernel;
