//! Messages that a matched probe has taken out.

use std::fmt;

use bytemuck::Pod;
use gdsync::Deadline;

use super::engine::Arrival;
use super::memory::lent;
use super::shared::Kept;
use super::{Source, Status, Tag};
use crate::error::Result;
use crate::matching::Label;

/// A message that a matched probe has taken out: nobody else gets it. One that is dropped is lost.
///
/// ```
/// use std::time::Duration;
///
/// use libmp::tagged::{Options, Source, Tag};
/// use libmp::{Deadline, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// # let messages = world.tagged(&Options::default())?;
/// # let soon = Deadline::after(Duration::from_secs(10));
/// messages.send(&[1u8, 2, 3], world.rank(), 7, soon)?;
/// let message = messages.mprobe(Source::Any, Tag::Any, soon)?;
/// let mut bytes = vec![0u8; message.status().bytes];
/// message.recv(&mut bytes, soon)?;
/// assert_eq!(bytes, [1, 2, 3]);
/// # world.finish()
/// # }
/// ```
pub struct Taken {
    shared: Kept,
    status: Status,
    message: Option<(Label, Arrival)>,
}

impl Taken {
    pub(super) fn new(shared: &Kept, message: (Label, Arrival)) -> Taken {
        let (label, arrival) = &message;
        let (source, bytes) = (label.source as usize, arrival.len() as usize);
        let status = Status { source, tag: label.tag, bytes };
        Taken { shared: shared.clone(), status, message: Some(message) }
    }

    /// Where it comes from, its tag and its length.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Receives it, as [`Tagged::recv`](super::Tagged::recv).
    ///
    /// # Errors
    /// As [`Tagged::recv`](super::Tagged::recv).
    pub fn recv<T: Pod>(mut self, data: &mut [T], deadline: Deadline) -> Result<Status> {
        let len = size_of_val(data);
        let memory = lent(bytemuck::cast_slice_mut::<T, u8>(data).as_mut_ptr(), len);
        let Some(message) = self.message.take() else { return Ok(self.status) };
        let (from, tag) = (Source::Rank(self.status.source), Tag::Is(self.status.tag));
        let what = || self.shared.of_receive(from, tag);
        let ticket =
            self.shared.with(&what, |engine, way| engine.receive_taken(way, message, memory))?;
        let outcome = self.shared.wait_or_abandon(ticket, &what, deadline)?;
        self.shared.status(outcome, &what)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            // In a world that is over nobody waits for it.
            let what = || "dropping a message".to_owned();
            let _ = self.shared.with(&what, |engine, way| engine.discard(way, message));
        }
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a message, {:?}", self.status)
    }
}
