//! What kernels take of a window: its handle for the functions of `mp/window.cuh`, and memory and signals themselves where they are
//! mapped here. What a stream does with it is [`on_stream`](super::on_stream).

use bytemuck::Pod;
use gdsync::{Buffer, Word64};
use mp_kernels::{MappedPart, NEAR_RANKS, WindowPart};

use super::{Window, failed, nanoseconds};
use crate::error::Result;
use crate::transport::Reach;

/// Why a rank's share cannot be accessed in place.
const NOT_MAPPED: &str =
    "its memory is behind the NIC, not mapped here: `put`, `get` and `handle` reach it";

impl<T: Pod> Window<T> {
    /// The memory of rank `rank` (this rank's own too) as this rank's device reaches it, for kernels: loads, stores and
    /// signals of `mp/signal.cuh` at its [`device_address`](Buffer::device_address) are the kernel's own affair, bounds
    /// and order included.
    ///
    /// # Errors
    /// [`Error::NoPath`](crate::Error::NoPath) for a rank that is reached through a NIC,
    /// [`Error::NoSuchRank`](crate::Error::NoSuchRank); what ended the world.
    pub fn memory_of(&self, rank: usize) -> Result<&Buffer<T>> {
        let part = self.reach("access", rank)?;
        let behind = || self.plane.no_path(part.rank, NOT_MAPPED);
        let bytes = part.connection.memory().ok_or_else(behind)?;
        let memory = self.memory.get_or(rank, || bytes.cast().map_err(failed("a rank's share")));
        memory?.ok_or_else(behind)
    }

    /// A signal of rank `rank`, as [`memory_of`](Self::memory_of): for [`Stream::signal`](gdsync::Stream::signal) and, of this rank's own,
    /// [`Stream::wait_signal`](gdsync::Stream::wait_signal).
    ///
    /// # Errors
    /// As [`memory_of`](Self::memory_of); [`Error::OutOfRange`](crate::Error::OutOfRange).
    pub fn signal_of(&self, rank: usize, signal: usize) -> Result<Word64> {
        let part = self.check_signal("access", rank, signal)?;
        let word = part.connection.word(signal);
        let word = word.ok_or_else(|| self.plane.no_path(part.rank, NOT_MAPPED))?;
        word.word(0).map_err(failed("a signal"))
    }

    /// What the functions of `mp/window.cuh` take. Valid while this object lives; a rank drops it when no kernel of any
    /// rank uses the window any more.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) if the device cannot reach its own tables; [`Error::Nic`](crate::Error::Nic) if the NIC
    /// has no queue pair left for atomic operations on the own share.
    pub fn handle(&self) -> Result<mp_kernels::Window> {
        let (place, own) = (self.rank, &self.all.list[self.rank]);
        if self.call("access", own, |call| own.connection.make_atomics_ready(call))? {
            let row = self.all.table.slice(place..place + 1);
            let written = row.and_then(|row| row.write(&[own.connection.view()]));
            written.map_err(failed("the handle of a window"))?;
        }
        self.handle_without_atomics()
    }

    /// For kernels that do no atomic operations, and add to no signals, of this rank.
    pub(crate) fn handle_without_atomics(&self) -> Result<mp_kernels::Window> {
        let failed = failed("the handle of a window");
        let mut near = [MappedPart::default(); NEAR_RANKS as usize];
        for (near, part) in near.iter_mut().zip(&self.all.list) {
            let connection = &part.connection;
            let WindowPart { memory, bytes, signals, nic, atomic_bytes, .. } = connection.view();
            if nic == 0 {
                let atomic_signals = if connection.has_atomics_by_nic() { 0 } else { signals };
                *near = MappedPart { memory, bytes, signals, atomic_bytes, atomic_signals };
            }
        }
        Ok(mp_kernels::Window {
            parts: self.all.table.device_address().unwrap_or_default(),
            ranks: self.all.list.len() as u64,
            rank: self.rank as u64,
            signals: self.own.told().signals,
            abort: self.plane.abort_of(self.own.memory().device())?.address,
            timeout_ns: nanoseconds(self.timeout),
            report: self.report.address().map_err(failed)?,
            near,
        })
    }

    /// How kernels and host streams get to a rank's share by themselves, for what is built on windows.
    pub(crate) fn reach_of(&self, rank: usize) -> Result<Reach<'_>> {
        Ok(self.part(rank)?.connection.reach())
    }

    /// What kernels use of it, for streams and graphs to hold.
    pub(crate) fn memory(&self) -> Vec<Buffer<u8>> {
        let parts = self.all.list.iter().flat_map(|part| part.connection.held());
        [self.all.table.bytes()].into_iter().chain(parts).collect()
    }
}
