//! What a call does that finds a stream full.

use std::time::Duration;

/// How long it waits for room, and what it does meanwhile.
pub(crate) struct WhenFull {
    pub patience: Duration,
    /// Called again and again while it waits.
    pub help: Box<dyn Fn() + Send + Sync>,
}
