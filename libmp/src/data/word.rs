//! Which words of an arena are in use. No I/O.

use crate::error::{Error, Result};

/// Words of an arena: how many operations a rank can have prepared at once.
pub(crate) const WORDS: u32 = 8192;

/// The words of this rank's arena.
#[derive(Default)]
pub(crate) struct Words {
    used: Vec<Use>,
    free: Vec<u32>,
}

/// What is known of a word that was given out.
#[derive(Default, Clone, Copy)]
struct Use {
    /// The operation here is gone.
    dropped: bool,
    /// The peer has said that it will not write any more.
    closed: bool,
}

impl Words {
    /// A word for an operation.
    pub fn take(&mut self, op: impl FnOnce() -> String) -> Result<u32> {
        if let Some(index) = self.free.pop() {
            self.used[index as usize] = Use::default();
            return Ok(index);
        }
        let index = self.used.len() as u32;
        if index == WORDS {
            return Err(Error::TooMany { op: op(), limit: WORDS as usize });
        }
        self.used.push(Use::default());
        Ok(index)
    }

    /// The operation here is gone.
    pub fn drop_here(&mut self, index: u32) {
        self.note(index, |word| word.dropped = true);
    }

    /// The peer will not write any more.
    pub fn close(&mut self, index: u32) {
        self.note(index, |word| word.closed = true);
    }

    fn note(&mut self, index: u32, change: impl FnOnce(&mut Use)) {
        // A number out of range comes from a peer that is out of its mind; it cannot be told, and harms only itself.
        let Some(word) = self.used.get_mut(index as usize) else { return };
        let before = word.dropped && word.closed;
        change(word);
        if word.dropped && word.closed && !before {
            self.free.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_given_out_again_when_both_sides_are_done_with_it_and_not_before() {
        let mut words = Words::default();
        let take = |words: &mut Words| words.take(String::new).unwrap();
        assert_eq!((take(&mut words), take(&mut words)), (0, 1));
        words.close(0);
        assert_eq!(take(&mut words), 2);
        words.drop_here(0);
        words.drop_here(0);
        words.close(WORDS);
        assert_eq!((take(&mut words), take(&mut words)), (0, 3));
    }

    #[test]
    fn the_end_of_the_arena_is_an_error_that_names_the_limit() {
        let mut words = Words::default();
        for _ in 0..WORDS {
            words.take(String::new).unwrap();
        }
        let error = words.take(|| "send tag 3".into()).unwrap_err().to_string();
        assert!(error.contains("send tag 3") && error.contains("8192"), "{error}");
    }
}
