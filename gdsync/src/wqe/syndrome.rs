//! Why a request or a receive failed, as the hardware reports it in an error completion.

use std::fmt;

/// The syndrome of an error completion (`MLX5_CQE_SYNDROME_*`). `Display` says it in words.
///
/// See [`Cqe`](super::Cqe) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Syndrome {
    /// The message is longer than the receive posted for it, or longer than the transport allows.
    LocalLength,
    /// The entry is malformed or the queue pair cannot do what it asks.
    LocalQpOperation,
    /// A local key does not cover the memory named, or not for this access.
    LocalProtection,
    /// The queue pair was already in the error state; this entry was not executed.
    Flushed,
    /// A memory window could not be bound.
    MemoryWindowBind,
    /// The peer answered with something unexpected.
    BadResponse,
    /// A protection error on a local buffer while a peer's write with immediate was received.
    LocalAccess,
    /// The peer rejects the request: wrong length, or an operation it does not do.
    RemoteInvalidRequest,
    /// The remote key does not cover the memory named, or not for this access.
    RemoteAccess,
    /// The peer could not complete the request.
    RemoteOperation,
    /// The peer did not answer, after every retry.
    TransportRetryExceeded,
    /// The peer had no receive posted, after every retry.
    ReceiverNotReadyRetryExceeded,
    /// The peer aborted the request.
    RemoteAborted,
    /// A number that `mlx5dv.h` does not list.
    Other(u8),
}

/// Number, variant and words of every syndrome of the header.
const KNOWN: [(u8, Syndrome, &str); 13] = [
    (0x01, Syndrome::LocalLength, "local length error"),
    (0x02, Syndrome::LocalQpOperation, "local queue pair operation error"),
    (0x04, Syndrome::LocalProtection, "local protection error"),
    (0x05, Syndrome::Flushed, "work request flushed"),
    (0x06, Syndrome::MemoryWindowBind, "memory window bind error"),
    (0x10, Syndrome::BadResponse, "bad response"),
    (0x11, Syndrome::LocalAccess, "local access error"),
    (0x12, Syndrome::RemoteInvalidRequest, "remote invalid request"),
    (0x13, Syndrome::RemoteAccess, "remote access error"),
    (0x14, Syndrome::RemoteOperation, "remote operation error"),
    (0x15, Syndrome::TransportRetryExceeded, "transport retry exceeded"),
    (0x16, Syndrome::ReceiverNotReadyRetryExceeded, "receiver not ready, retry exceeded"),
    (0x22, Syndrome::RemoteAborted, "remote aborted"),
];

impl From<u8> for Syndrome {
    fn from(value: u8) -> Self {
        KNOWN.iter().find(|(n, ..)| *n == value).map_or(Self::Other(value), |(_, s, _)| *s)
    }
}

impl From<Syndrome> for u8 {
    fn from(syndrome: Syndrome) -> Self {
        match syndrome {
            Syndrome::Other(value) => value,
            // Every variant but `Other` is in the table (tested), so the default is never taken.
            _ => KNOWN.iter().find(|(_, s, _)| *s == syndrome).map_or(0, |(n, ..)| *n),
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match KNOWN.iter().find(|(_, s, _)| s == self) {
            Some((_, _, words)) => f.write_str(words),
            None => write!(f, "unlisted syndrome {:#04x}", u8::from(*self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_survives_the_round_trip() {
        for value in 0..=255 {
            assert_eq!(u8::from(Syndrome::from(value)), value);
        }
    }

    #[test]
    fn a_syndrome_says_what_happened() {
        assert_eq!(Syndrome::from(0x13).to_string(), "remote access error");
        assert_eq!(Syndrome::from(0x7f).to_string(), "unlisted syndrome 0x7f");
    }
}
