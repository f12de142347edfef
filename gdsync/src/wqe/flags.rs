//! The byte of a control segment that says what an entry waits for, and whom it tells when done.
//!
//! `fm_ce_se`: fence mode in bits 7:5, completion mode in bits 3:2, solicited event in bit 1.

/// What must have finished before the entry starts. The modes are told apart by value: rdma-core calls 4
/// `MLX5_WQE_CTRL_FENCE`, NVIDIA's device headers call 2 a fence and 3 strong ordering.
///
/// See [`wqe`](super) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Fence {
    /// Nothing.
    #[default]
    None = 0,
    /// Local invalidations and registrations before it (`MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE`).
    InitiatorSmall = 1,
    /// Reads and atomics before it.
    ReadsAndAtomics = 2,
    /// Everything before it.
    Strong = 3,
    /// Reads, atomics, invalidations and registrations before it: what `IBV_SEND_FENCE` becomes
    /// (`MLX5_WQE_CTRL_FENCE`).
    Full = 4,
}

/// When the entry writes a completion. Errors always do, unless the queue says otherwise.
///
/// See [`wqe`](super) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Notify {
    /// Only when it fails: an unsignaled request.
    #[default]
    OnError = 0,
    /// Only when it fails, and then once for the queue.
    OnFirstError = 1,
    /// Always: a signaled request (`MLX5_WQE_CTRL_CQ_UPDATE`).
    Always = 2,
    /// Always, with an event.
    AlwaysWithEvent = 3,
}

const SOLICITED: u8 = 1 << 1;
/// Bits without a meaning; an entry that sets one was not written by an encoder.
const RESERVED: u8 = 1 << 4 | 1;

/// The byte of the three flags.
pub(super) const fn pack(fence: Fence, notify: Notify, solicited: bool) -> u8 {
    (fence as u8) << 5 | (notify as u8) << 2 | if solicited { SOLICITED } else { 0 }
}

/// The three flags of the byte, or nothing if it has reserved bits or fence modes.
pub(super) const fn unpack(byte: u8) -> Option<(Fence, Notify, bool)> {
    let fence = match byte >> 5 {
        0 => Fence::None,
        1 => Fence::InitiatorSmall,
        2 => Fence::ReadsAndAtomics,
        3 => Fence::Strong,
        4 => Fence::Full,
        _ => return None,
    };
    let notify = match byte >> 2 & 3 {
        0 => Notify::OnError,
        1 => Notify::OnFirstError,
        2 => Notify::Always,
        _ => Notify::AlwaysWithEvent,
    };
    if byte & RESERVED != 0 {
        return None;
    }
    Some((fence, notify, byte & SOLICITED != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_have_the_values_of_the_header() {
        assert_eq!(pack(Fence::None, Notify::Always, false), 0x08);
        assert_eq!(pack(Fence::None, Notify::OnError, true), 0x02);
        assert_eq!(pack(Fence::Full, Notify::OnError, false), 0x80);
        assert_eq!(pack(Fence::InitiatorSmall, Notify::OnError, false), 0x20);
    }

    #[test]
    fn every_byte_unpacks_to_what_packs_to_it_or_is_refused() {
        let mut good = 0;
        for byte in 0..=255 {
            if let Some((fence, notify, solicited)) = unpack(byte) {
                assert_eq!(pack(fence, notify, solicited), byte);
                good += 1;
            }
        }
        assert_eq!(good, 5 * 4 * 2);
    }
}
