//! From a typed request to the bytes of its entry.

use super::segment::{CtrlSegment, INLINE_FLAG, INLINE_LENGTH_MASK, RemoteSegment};
use super::{
    AtomicSegment, DataSegment, Entry, InlineHeader, MAX_ENTRY_OCTOWORDS, MAX_QPN, OCTOWORD_BYTES,
    Operation, Payload, RemoteAddress, WorkRequest, flags,
};
use zerocopy::IntoBytes;

/// A request that does not fit the format.
///
/// ```
/// use gdsync::wqe::{Entry, Operation, WorkRequest};
///
/// let request = WorkRequest { qpn: 1 << 24, ..WorkRequest::new(Operation::Nop) };
/// let refused = Entry::new().encode(&request).unwrap_err();
/// assert_eq!(refused.to_string(), "queue pair number 0x1000000 has more than 24 bits");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The queue pair number has more than 24 bits.
    #[error("queue pair number {qpn:#x} has more than 24 bits")]
    QueuePairNumber {
        /// What was given.
        qpn: u32,
    },
    /// More segments than an entry can hold.
    #[error("{segments} data segments: this operation has room for {room}")]
    TooManySegments {
        /// What was given.
        segments: usize,
        /// What fits.
        room: usize,
    },
    /// More inline data than an entry can hold.
    #[error("{length} bytes of inline data: this operation has room for {room}")]
    InlineTooLong {
        /// What was given.
        length: usize,
        /// What fits.
        room: usize,
    },
    /// The result of an atomic operation is a 64-bit word.
    #[error("the result buffer of an atomic has {length} bytes instead of 8")]
    AtomicResult {
        /// What was given.
        length: u32,
    },
}

impl Entry {
    /// Makes this the entry of `request`, whatever it held before.
    ///
    /// # Errors
    /// If the request does not fit the format; the entry is then empty.
    pub fn encode(&mut self, request: &WorkRequest<'_>) -> Result<(), EncodeError> {
        let encoded = self.try_encode(request);
        if encoded.is_err() {
            self.clear();
        }
        encoded
    }

    fn try_encode(&mut self, request: &WorkRequest<'_>) -> Result<(), EncodeError> {
        if request.qpn > MAX_QPN {
            return Err(EncodeError::QueuePairNumber { qpn: request.qpn });
        }
        self.clear();
        // Room for the control segment, which needs the size and so comes last.
        self.push(&[0u8; OCTOWORD_BYTES]);
        let mut imm = 0;
        match request.operation {
            Operation::Nop => {}
            Operation::Send { payload, imm: immediate } => {
                imm = immediate.unwrap_or(0);
                self.payload(payload)?;
            }
            Operation::Write { remote, payload, imm: immediate } => {
                imm = immediate.unwrap_or(0);
                self.remote(remote);
                self.payload(payload)?;
            }
            Operation::Read { remote, into } => {
                self.remote(remote);
                self.gather(into)?;
            }
            Operation::FetchAdd { remote, add, into } => self.atomic(remote, add, 0, into)?,
            Operation::CompareSwap { remote, compare, swap, into } => {
                self.atomic(remote, swap, compare, into)?;
            }
            Operation::Dump { from } => self.gather(&[from])?,
        }
        // At most 63 octowords fit an entry, so the size has its six bits.
        let size = self.octowords().len() as u32;
        let ctrl = CtrlSegment {
            opmod_idx_opcode: (u32::from(request.index) << 8 | request.operation.opcode() as u32)
                .into(),
            qpn_ds: (request.qpn << 8 | size).into(),
            signature: 0,
            dci_stream_channel_id: 0.into(),
            fm_ce_se: flags::pack(request.fence, request.notify, request.solicited),
            imm: imm.into(),
        };
        self.set_first(zerocopy::transmute!(ctrl));
        Ok(())
    }

    fn room(&self) -> usize {
        MAX_ENTRY_OCTOWORDS - self.octowords().len()
    }

    fn remote(&mut self, remote: RemoteAddress) {
        self.push(&RemoteSegment {
            address: remote.address.into(),
            rkey: remote.rkey.into(),
            reserved: 0.into(),
        });
    }

    fn payload(&mut self, payload: Payload<'_>) -> Result<(), EncodeError> {
        match payload {
            Payload::Gather(segments) => self.gather(segments),
            Payload::Inline(data) => self.inline(data),
        }
    }

    fn gather(&mut self, segments: &[DataSegment]) -> Result<(), EncodeError> {
        let room = self.room();
        if self.append(segments.as_bytes(), &[]) {
            return Ok(());
        }
        Err(EncodeError::TooManySegments { segments: segments.len(), room })
    }

    fn inline(&mut self, data: &[u8]) -> Result<(), EncodeError> {
        let room = (self.room() * OCTOWORD_BYTES - size_of::<InlineHeader>())
            .min(INLINE_LENGTH_MASK as usize);
        if data.len() > room {
            return Err(EncodeError::InlineTooLong { length: data.len(), room });
        }
        // `room` is below 2^10.
        let header = InlineHeader { byte_count: (data.len() as u32 | INLINE_FLAG).into() };
        self.append(header.as_bytes(), data);
        Ok(())
    }

    fn atomic(
        &mut self,
        remote: RemoteAddress,
        swap_or_add: u64,
        compare: u64,
        into: DataSegment,
    ) -> Result<(), EncodeError> {
        if into.length() != 8 {
            return Err(EncodeError::AtomicResult { length: into.length() });
        }
        self.remote(remote);
        self.push(&AtomicSegment { swap_or_add: swap_or_add.into(), compare: compare.into() });
        self.gather(&[into])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wqe::{Fence, Notify};

    fn encoded(request: &WorkRequest<'_>) -> Vec<u8> {
        let mut entry = Entry::new();
        entry.encode(request).unwrap();
        entry.bytes().to_vec()
    }

    #[test]
    fn a_signaled_write_is_control_remote_data() {
        let data = [DataSegment::new(0x0a0b_0c0d, 0x0102_0304_0506_0708, 0x40).unwrap()];
        let remote = RemoteAddress { address: 0x1112_1314_1516_1718, rkey: 0x2122_2324 };
        let payload = Payload::Gather(&data);
        let bytes = encoded(&WorkRequest {
            qpn: 0x31_3233,
            index: 0x4142,
            notify: Notify::Always,
            ..WorkRequest::new(Operation::Write { remote, payload, imm: None })
        });
        #[rustfmt::skip]
        let expected = [
            0x00, 0x41, 0x42, 0x08,  0x31, 0x32, 0x33, 0x03,  0, 0, 0, 0x08,  0, 0, 0, 0,
            0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,  0x21, 0x22, 0x23, 0x24,  0, 0, 0, 0,
            0, 0, 0, 0x40,  0x0a, 0x0b, 0x0c, 0x0d,  1, 2, 3, 4, 5, 6, 7, 8,
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn an_inline_send_with_immediate_carries_its_data_and_zeros_after_it() {
        let operation =
            Operation::Send { payload: Payload::Inline(b"thirteen more"), imm: Some(0x5152_5354) };
        let bytes = encoded(&WorkRequest {
            qpn: 1,
            index: 2,
            fence: Fence::Full,
            solicited: true,
            ..WorkRequest::new(operation)
        });
        #[rustfmt::skip]
        let expected = [
            0, 0, 2, 0x0b,  0, 0, 1, 3,  0, 0, 0, 0x82,  0x51, 0x52, 0x53, 0x54,
            0x80, 0, 0, 13, b't', b'h', b'i', b'r', b't', b'e', b'e', b'n', b' ', b'm', b'o', b'r',
            b'e', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_compare_swap_puts_the_new_value_before_the_old() {
        let bytes = encoded(&WorkRequest::new(Operation::CompareSwap {
            remote: RemoteAddress { address: 1, rkey: 2 },
            compare: 3,
            swap: 4,
            into: DataSegment::new(5, 6, 8).unwrap(),
        }));
        #[rustfmt::skip]
        let expected = [
            0, 0, 0, 0x11,  0, 0, 0, 4,  0, 0, 0, 0,  0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 1,  0, 0, 0, 2,  0, 0, 0, 0,
            0, 0, 0, 0, 0, 0, 0, 4,  0, 0, 0, 0, 0, 0, 0, 3,
            0, 0, 0, 8,  0, 0, 0, 5,  0, 0, 0, 0, 0, 0, 0, 6,
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_request_that_does_not_fit_says_what_would() {
        let data = [DataSegment::new(1, 2, 3).unwrap(); 63];
        let send = Operation::Send { payload: Payload::Gather(&data), imm: None };
        let mut entry = Entry::new();
        assert_eq!(
            entry.encode(&WorkRequest::new(send)),
            Err(EncodeError::TooManySegments { segments: 63, room: 62 })
        );
        let remote = RemoteAddress { address: 0, rkey: 0 };
        let write = |data| Operation::Write { remote, payload: Payload::Inline(data), imm: None };
        assert_eq!(
            entry.encode(&WorkRequest::new(write(&[7; 973]))),
            Err(EncodeError::InlineTooLong { length: 973, room: 972 })
        );
        assert!(entry.octowords().is_empty());
        entry.encode(&WorkRequest::new(write(&[7; 972]))).unwrap();
        assert_eq!(entry.blocks(), 16);
        let atomic = Operation::FetchAdd { remote, add: 1, into: data[0] };
        assert_eq!(
            entry.encode(&WorkRequest::new(atomic)),
            Err(EncodeError::AtomicResult { length: 3 })
        );
        let nop = WorkRequest { qpn: 1 << 24, ..WorkRequest::new(Operation::Nop) };
        assert_eq!(entry.encode(&nop), Err(EncodeError::QueuePairNumber { qpn: 1 << 24 }));
    }
}
