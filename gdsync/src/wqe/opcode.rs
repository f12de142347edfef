//! The opcodes of work-queue entries and of completions, as numbers and as names.

use std::fmt;

/// A number that is no opcode.
///
/// ```
/// use gdsync::wqe::{CqeOpcode, WqeOpcode};
///
/// assert_eq!(WqeOpcode::try_from(0x08), Ok(WqeOpcode::Write));
/// assert_eq!(CqeOpcode::try_from(0x0d), Ok(CqeOpcode::RequestError));
/// println!("{}", WqeOpcode::try_from(0xee).unwrap_err()); // no opcode of a work-queue entry
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{value:#04x} is not an opcode of a {of}")]
pub struct UnknownOpcode {
    /// What was found.
    pub value: u8,
    /// "work-queue entry" or "completion".
    pub of: &'static str,
}

macro_rules! opcodes {
    ($(#[$doc:meta])* $name:ident of $of:literal {
        $($(#[$vdoc:meta])* $variant:ident = $value:literal as $text:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $value,)* }

        impl $name {
            /// Every opcode, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }

        impl TryFrom<u8> for $name {
            type Error = UnknownOpcode;
            fn try_from(value: u8) -> Result<Self, UnknownOpcode> {
                match value {
                    $($value => Ok(Self::$variant),)*
                    _ => Err(UnknownOpcode { value, of: $of }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)* })
            }
        }
    };
}

opcodes! {
    /// What a work-queue entry asks for (`MLX5_OPCODE_*`). See [`UnknownOpcode`] for an example.
    WqeOpcode of "work-queue entry" {
        /// Does nothing and completes.
        Nop = 0x00 as "NOP",
        /// SEND that invalidates a key at the receiver.
        SendInvalidate = 0x01 as "SEND_INVAL",
        /// RDMA write.
        Write = 0x08 as "RDMA_WRITE",
        /// RDMA write that consumes a receive and hands it an immediate.
        WriteImm = 0x09 as "RDMA_WRITE_IMM",
        /// Send.
        Send = 0x0a as "SEND",
        /// Send with an immediate.
        SendImm = 0x0b as "SEND_IMM",
        /// TCP segmentation.
        Tso = 0x0e as "TSO",
        /// Waits for another completion queue. Not in `mlx5dv.h`; in NVIDIA's device headers (NCCL, `doca_gpunetio`).
        Wait = 0x0f as "WAIT",
        /// RDMA read.
        Read = 0x10 as "RDMA_READ",
        /// 64-bit compare and swap.
        CompareSwap = 0x11 as "ATOMIC_CS",
        /// 64-bit fetch and add.
        FetchAdd = 0x12 as "ATOMIC_FA",
        /// Masked compare and swap.
        MaskedCompareSwap = 0x14 as "ATOMIC_MASKED_CS",
        /// Masked fetch and add.
        MaskedFetchAdd = 0x15 as "ATOMIC_MASKED_FA",
        /// Fast registration (of older devices).
        FastRegister = 0x19 as "FMR",
        /// Invalidates a key of this side.
        LocalInvalidate = 0x1b as "LOCAL_INVAL",
        /// Configuration command.
        ConfigCommand = 0x1f as "CONFIG_CMD",
        /// Sets a protection signature.
        SetPsv = 0x20 as "SET_PSV",
        /// Reads local memory and drops it: a flush of earlier writes. Not in `mlx5dv.h`; `MLX5_OPCODE_DUMP` of the
        /// Linux kernel.
        Dump = 0x23 as "DUMP",
        /// User memory registration.
        Umr = 0x25 as "UMR",
        /// Tag matching.
        TagMatching = 0x28 as "TAG_MATCHING",
        /// Flow table access.
        FlowTableAccess = 0x2c as "FLOW_TBL_ACCESS",
        /// Memory-to-memory operation.
        MemoryOperation = 0x2f as "MMO",
    }
}

opcodes! {
    /// What a completion reports (`MLX5_CQE_*`). See [`UnknownOpcode`] for an example.
    CqeOpcode of "completion" {
        /// A request of the send queue is done.
        Request = 0 as "REQ",
        /// An RDMA write with immediate arrived.
        ReceivedWriteImm = 1 as "RESP_WR_IMM",
        /// A send arrived.
        ReceivedSend = 2 as "RESP_SEND",
        /// A send with immediate arrived.
        ReceivedSendImm = 3 as "RESP_SEND_IMM",
        /// A send arrived that invalidated a key.
        ReceivedSendInvalidate = 4 as "RESP_SEND_INV",
        /// The completion queue was resized.
        Resize = 5 as "RESIZE_CQ",
        /// Tag matching without a packet.
        NoPacket = 6 as "NO_PACKET",
        /// A signature did not match.
        SignatureError = 12 as "SIG_ERR",
        /// A request failed.
        RequestError = 13 as "REQ_ERR",
        /// A receive failed.
        ReceiveError = 14 as "RESP_ERR",
        /// The slot has never held a completion.
        Invalid = 15 as "INVALID",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opcode_survives_its_number_and_every_other_number_is_refused() {
        let known: Vec<u8> = (0..=255).filter(|v| WqeOpcode::try_from(*v).is_ok()).collect();
        assert_eq!(known, WqeOpcode::ALL.iter().map(|o| *o as u8).collect::<Vec<_>>());
        let known: Vec<u8> = (0..=255).filter(|v| CqeOpcode::try_from(*v).is_ok()).collect();
        assert_eq!(known, CqeOpcode::ALL.iter().map(|o| *o as u8).collect::<Vec<_>>());
        assert_eq!(
            WqeOpcode::try_from(0x3c).map_err(|e| e.to_string()),
            Err("0x3c is not an opcode of a work-queue entry".to_string())
        );
    }
}
