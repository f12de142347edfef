//! Waits for words of 32 and 64 bits in any region, and writes of them, by the host and on streams.

use std::ffi::c_int;

use libmp::gdsync::{Until, Word32, Word64};

use crate::handle::{api, borrow, deadline};
use crate::region::MpRegion;
use crate::status::{Failure, Result};
use crate::stream::MpStream;
use crate::world::MpComm;

/// `mp_compare` of the header.
pub(crate) fn until<T>(compare: c_int, value: T) -> Result<Until<T>> {
    match compare {
        0 => Ok(Until::Geq(value)),
        1 => Ok(Until::Eq(value)),
        2 => Ok(Until::And(value)),
        3 => Ok(Until::Ne(value)),
        4 => Ok(Until::Gt(value)),
        5 => Ok(Until::Lt(value)),
        6 => Ok(Until::Le(value)),
        _ => {
            let what = format!("{compare}, expected an mp_compare");
            Err(Failure::argument("compare", what))
        }
    }
}

impl MpRegion {
    fn word32(&self, offset: usize) -> Result<Word32> {
        Ok(self.part(offset, 4)?.buffer().cast::<u32>()?.word(0)?)
    }

    fn word64(&self, offset: usize) -> Result<Word64> {
        Ok(self.part(offset, 8)?.buffer().cast::<u64>()?.word(0)?)
    }
}

api! {
    /// Waits for a word of 32 bits.
    fn mp_wait32(
        comm: *const MpComm,
        region: *const MpRegion,
        offset: usize,
        compare: c_int,
        value: u32,
        timeout: f64,
    ) {
        let (comm, word) = (&borrow(comm, "comm")?.0, borrow(region, "region")?.word32(offset)?);
        comm.wait32(&word, until(compare, value)?, deadline(timeout)?)?;
    }

    /// Waits for a word of 64 bits.
    fn mp_wait64(
        comm: *const MpComm,
        region: *const MpRegion,
        offset: usize,
        compare: c_int,
        value: u64,
        timeout: f64,
    ) {
        let (comm, word) = (&borrow(comm, "comm")?.0, borrow(region, "region")?.word64(offset)?);
        comm.wait64(&word, until(compare, value)?, deadline(timeout)?)?;
    }

    /// Writes a word of 32 bits.
    fn mp_write32(region: *const MpRegion, offset: usize, value: u32) {
        borrow(region, "region")?.word32(offset)?.store(value)?;
    }

    /// Writes a word of 64 bits.
    fn mp_write64(region: *const MpRegion, offset: usize, value: u64) {
        borrow(region, "region")?.word64(offset)?.store(value)?;
    }

    /// Makes a stream wait for a word of 32 bits.
    fn mp_wait32_on_stream(
        region: *const MpRegion,
        offset: usize,
        compare: c_int,
        value: u32,
        stream: *const MpStream,
    ) {
        let word = borrow(region, "region")?.word32(offset)?;
        borrow(stream, "stream")?.stream.wait32(&word, until(compare, value)?)?;
    }

    /// Makes a stream wait for a word of 64 bits.
    fn mp_wait64_on_stream(
        region: *const MpRegion,
        offset: usize,
        compare: c_int,
        value: u64,
        stream: *const MpStream,
    ) {
        let word = borrow(region, "region")?.word64(offset)?;
        borrow(stream, "stream")?.stream.wait64(&word, until(compare, value)?)?;
    }

    /// Writes a word of 32 bits when a stream gets there.
    fn mp_write32_on_stream(
        region: *const MpRegion,
        offset: usize,
        value: u32,
        stream: *const MpStream,
    ) {
        let word = borrow(region, "region")?.word32(offset)?;
        borrow(stream, "stream")?.stream.write32(&word, value)?;
    }

    /// Writes a word of 64 bits when a stream gets there.
    fn mp_write64_on_stream(
        region: *const MpRegion,
        offset: usize,
        value: u64,
        stream: *const MpStream,
    ) {
        let word = borrow(region, "region")?.word64(offset)?;
        borrow(stream, "stream")?.stream.write64(&word, value)?;
    }
}
