//! How a rank writes the mailbox that it has at another.

use crate::data::mailbox::Mailbox;
use crate::data::plane::Plane;
use crate::error::Result;

/// The writer's side of a mailbox.
pub(crate) trait Outbox: Send {
    /// Puts a blob, which fits a slot, in; false if there is no room now, or the way has failed, which the plane knows then.
    fn put(&mut self, plane: &Plane, blob: &[u8]) -> Result<bool>;

    /// Tells the reader how many of the blobs that it has put here were taken, where it does not see that by itself.
    fn echo(&mut self, plane: &Plane, taken: u64);
}

/// Mapped here, with the counts of both sides.
impl Outbox for Mailbox {
    fn put(&mut self, _: &Plane, blob: &[u8]) -> Result<bool> {
        Mailbox::put(self, blob)
    }

    fn echo(&mut self, _: &Plane, _: u64) {}
}
