//! One send-queue entry, contiguous and owned.
//!
//! An entry in a ring may wrap, and the GPU or a peer process may write to it at any time; a copy does
//! neither. So requests are encoded into an [`Entry`] and stored, fetched into an [`Entry`] and decoded.

use super::{MAX_ENTRY_OCTOWORDS, OCTOWORD_BYTES, Octoword, blocks};
use zerocopy::IntoBytes;

/// The octowords of one entry. Reusable: `encode` and `SendRing::fetch` overwrite it.
///
/// See [`wqe`](super) for an example.
#[derive(Clone)]
pub struct Entry {
    octowords: [Octoword; MAX_ENTRY_OCTOWORDS],
    len: usize,
}

impl Entry {
    /// An entry of no octowords, to be encoded or fetched into.
    #[must_use]
    pub const fn new() -> Self {
        Self { octowords: [[0; OCTOWORD_BYTES]; MAX_ENTRY_OCTOWORDS], len: 0 }
    }

    /// An entry of these bytes: a copy of what stands in a queue, or anything at all.
    ///
    /// Returns `None` if there are more than 63 octowords.
    #[must_use]
    pub fn from_octowords(octowords: &[Octoword]) -> Option<Self> {
        let mut entry = Self::new();
        entry.octowords.get_mut(..octowords.len())?.copy_from_slice(octowords);
        entry.len = octowords.len();
        Some(entry)
    }

    /// The octowords, in the order of the queue.
    #[must_use]
    pub fn octowords(&self) -> &[Octoword] {
        &self.octowords[..self.len]
    }

    /// The same as bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.octowords().as_flattened()
    }

    /// Basic blocks it takes in the queue.
    #[must_use]
    pub fn blocks(&self) -> usize {
        blocks(self.len)
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends an octoword; false if the entry is full.
    pub(super) fn push(&mut self, octoword: &(impl IntoBytes + zerocopy::Immutable)) -> bool {
        self.append(octoword.as_bytes(), &[])
    }

    /// Appends `head` and `tail` back to back, padded with zeros to whole octowords; false if they do not fit.
    pub(super) fn append(&mut self, head: &[u8], tail: &[u8]) -> bool {
        let bytes = head.len() + tail.len();
        let end = self.len + bytes.div_ceil(OCTOWORD_BYTES);
        let Some(room) = self.octowords.get_mut(self.len..end) else { return false };
        let room = room.as_flattened_mut();
        room[..head.len()].copy_from_slice(head);
        room[head.len()..bytes].copy_from_slice(tail);
        room[bytes..].fill(0);
        self.len = end;
        true
    }

    /// Overwrites the first octoword: the control segment is written last, when the size is known.
    pub(super) fn set_first(&mut self, octoword: Octoword) {
        self.octowords[0] = octoword;
    }
}

impl Default for Entry {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.octowords() == other.octowords()
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.octowords().iter().map(|o| format!("{o:02x?}"))).finish()
    }
}
