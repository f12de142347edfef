//! What those who add a NIC implement below a queue pair (`docs/nic-provider.md`).

use super::address::Address;
use super::error::{Error, Result};
use super::wire::WireKind;
use crate::wqe::Syndrome;

/// What a NIC does for one queue pair: it finds the peer, and executes what stands in the queues. It is dropped before
/// the memory of the queues, and then leaves them alone.
pub(crate) trait Provider: Send + Sync {
    /// Where peers find the queue pair.
    fn address(&self) -> &Address;

    /// Connects to the queue pair at `peer`, which connects, too; over the wire that both sides choose by themselves, or
    /// a given one. Returns at once.
    fn connect(&self, peer: &Address, wire: Option<WireKind>) -> Result<()>;

    /// Whether the peer has connected, too, as far as can be told. By somebody who waits for that: connections that are
    /// made on demand are then made.
    fn is_connected(&self) -> bool;

    /// Why the peer cannot be reached any more, if so.
    fn lost(&self) -> Option<String>;

    /// Why requests of this queue pair are flushed, where the NIC remembers: the error of the first that failed here. Known
    /// before the first flushed one completes.
    fn cause(&self) -> Option<Syndrome> {
        None
    }

    /// The CPU has rung: a NIC of threads may execute what is quickly done right here, or want to be woken. Without `hurry`
    /// it may leave what it would have to send to the thread that looks next, if one does so now.
    fn rung(&self, hurry: bool);

    /// By a thread that waits for something: as [`Nic::progress`](super::Nic::progress).
    fn progress(&self) {}

    /// An error where requests can never complete any more, though no completion says so.
    fn stopped(&self) -> Option<Error>;
}
