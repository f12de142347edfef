//! What ranks have in common that are threads of one process, and reach each other directly: memory, mailboxes, and what all of them
//! would make of the same bytes. It is why a world of thousands of threads is not thousands times the tables of a world. A rank
//! that is alone in its process has one of its own.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gdsync::{Buffer, Device, Space};

use super::mailbox::{self, Mailbox};
use super::region::Pieces;
use crate::error::{Error, Result};

/// What ranks of a process have in common.
#[derive(Default)]
pub(crate) struct Common {
    pub pieces: Arc<Pieces>,
    /// The memory of mailboxes between two ranks, by reader and writer.
    mailboxes: Mutex<HashMap<(usize, usize), Buffer<u8>>>,
    made: Mutex<HashMap<Key, Slot>>,
}

/// The result of a collective: the group, and which of its calls.
type Key = (u64, u64);
/// What was made of it, as long as a rank has it.
type Slot = Arc<Mutex<Option<Weak<dyn Any + Send + Sync>>>>;

impl Common {
    /// For a rank that has nothing in common with those whose `pieces` it uses, too.
    pub fn with_pieces(pieces: Arc<Pieces>) -> Common {
        Common { pieces, ..Common::default() }
    }

    /// The mailbox that `writer` writes to and `reader` reads, made for whoever asks first.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn mailbox(&self, reader: usize, writer: usize) -> Result<Mailbox> {
        let mut mailboxes = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = match mailboxes.get(&(reader, writer)) {
            Some(memory) => memory.clone(),
            None => {
                let failed = |source| Error::Memory { op: "making a mailbox".into(), source };
                let memory = Buffer::new(&Device::Host, Space::Host, mailbox::SIZE);
                let memory = memory.map_err(failed)?;
                mailboxes.insert((reader, writer), memory.clone());
                memory
            }
        };
        drop(mailboxes);
        Mailbox::new(&memory)
    }

    /// What `make` makes of the result of a collective, made by the first rank that asks and shared by all that do while one of
    /// them has it. Those who ask meanwhile wait.
    ///
    /// # Errors
    /// What `make` says; the next rank tries again.
    pub fn once<T: Send + Sync + 'static>(
        &self,
        key: Key,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let slot = {
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            if !made.contains_key(&key) && made.len() == made.capacity() {
                // Nobody else asks for a slot meanwhile, so one that nobody holds is of no use if its content is gone.
                made.retain(|_, slot| {
                    Arc::strong_count(slot) > 1
                        || slot
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .as_ref()
                            .is_some_and(|content| content.strong_count() > 0)
                });
            }
            made.entry(key).or_default().clone()
        };
        let mut content = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let known = content.as_ref().and_then(Weak::upgrade);
        if let Some(known) = known.and_then(|known| known.downcast().ok()) {
            return Ok(known);
        }
        let made: Arc<T> = Arc::new(make()?);
        let shared: Arc<dyn Any + Send + Sync> = made.clone();
        *content = Some(Arc::downgrade(&shared));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_mailbox_are_one_and_those_of_two_ranks_are_not() {
        let common = Common::default();
        let (writer, reader) = (common.mailbox(7, 3).unwrap(), common.mailbox(7, 3).unwrap());
        assert!(writer.put(b"hello").unwrap());
        assert_eq!(reader.take().unwrap().unwrap(), b"hello");
        assert!(common.mailbox(3, 7).unwrap().is_empty());
    }

    #[test]
    fn what_was_made_is_shared_while_somebody_has_it_and_forgotten_then() {
        let common = Common::default();
        let one = common.once((1, 2), || Ok(vec![1])).unwrap();
        let two = common.once((1, 2), || Ok(vec![2])).unwrap();
        assert!(Arc::ptr_eq(&one, &two));
        // Of another type it is something else.
        assert_eq!(*common.once((1, 2), || Ok("text")).unwrap(), "text");
        drop((one, two));
        assert_eq!(*common.once((1, 2), || Ok(vec![3])).unwrap(), [3]);
        let error = common.once((1, 3), || Err::<u8, _>(Error::Finished { op: "x".into() }));
        assert!(error.is_err());
        assert_eq!(*common.once((1, 3), || Ok(4u8)).unwrap(), 4);
        for call in 0..10_000 {
            common.once((9, call), || Ok(call)).unwrap();
        }
        assert!(common.made.lock().unwrap().len() < 100);
    }
}
