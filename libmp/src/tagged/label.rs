//! What messages and receives are called by: whose, which, and what has come.

/// Whose messages a receive takes.
///
/// ```
/// use libmp::tagged::Source;
///
/// assert_eq!(Source::from(3), Source::Rank(3)); // where a source is asked for, `3` will do
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// This rank of the communicator.
    Rank(usize),
    /// Any.
    Any,
}

impl From<usize> for Source {
    fn from(rank: usize) -> Source {
        Source::Rank(rank)
    }
}

/// Which messages a receive takes.
///
/// ```
/// use libmp::tagged::Tag;
///
/// assert_eq!(Tag::from(3), Tag::Is(3)); // where a tag is asked for, `3` will do
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// Those with this tag.
    Is(u64),
    /// Any.
    Any,
}

impl From<u64> for Tag {
    fn from(tag: u64) -> Tag {
        Tag::Is(tag)
    }
}

/// What a receive got. Of a send: this rank, its tag and its length.
///
/// See [`Tagged`](super::Tagged) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// The sender's rank in the communicator.
    pub source: usize,
    /// The message's tag.
    pub tag: u64,
    /// The message's length.
    pub bytes: usize,
}
