//! The opened memory of a rank that is mapped here: loads and stores of the CPU, copies of streams. What the CPU does not reach,
//! memory of a GPU, a stream of this rank does for it.

mod end;
mod slots;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use gdsync::wqe::RemoteAddress;
use gdsync::{Buffer, Rows, Stream};
use mp_kernels::{AtomicKind, WindowPart};

pub(crate) use end::EndOpening;
pub(super) use end::{End, inbox};
pub(crate) use slots::Slots;

use super::end::{Line, Met, OneSided, OneSidedKind, Side};
use super::nic::AtomicsByNic;
use super::state::EndState;
use super::{
    Atomic, Call, Channel, Connection, Hand, Local, Return, Signal, SignalAction, Signals, line,
};
use crate::collective::Element;
use crate::data::pieces::Move;
use crate::error::Result;

pub(super) struct Mapped {
    hand: Option<Arc<Hand>>,
    memory: Buffer<u8>,
    signals: Signals,
    atomics: Option<AtomicsByNic>,
}

impl Mapped {
    /// With atomic operations of kernels by a NIC, if others change it so.
    pub fn new(
        hand: Option<Arc<Hand>>,
        memory: Buffer<u8>,
        signals: &Buffer<u8>,
        atomics: Option<AtomicsByNic>,
    ) -> gdsync::Result<Mapped> {
        Ok(Mapped { hand, memory, signals: Signals::new(signals)?, atomics })
    }

    /// Copies one way, and then raises a signal.
    fn copy(
        &self,
        call: &Call<'_>,
        to: &Buffer<u8>,
        from: &Buffer<u8>,
        rows: Rows,
        signal: Option<Signal>,
    ) -> Result<()> {
        let by_cpu = to.host_address().is_some() && from.host_address().is_some();
        if let (Some(hand), false, false) = (&self.hand, by_cpu, rows.elements() == 0) {
            // What the CPU reaches it raises itself: a NIC may add there, too, see `has_atomics_by_nic`.
            let reaches = |signal: &Signal| self.signals.words[signal.number].atomic().is_some();
            let by_stream = signal.filter(|signal| !reaches(signal));
            hand.does(call, |stream| {
                let copied = stream.copy_rows(to, from, rows);
                let raise = |()| by_stream.map_or(Ok(()), |signal| self.raise_on(stream, signal));
                copied.and_then(raise).map_err(|source| call.failed(source))
            })?;
            return signal.filter(reaches).map_or(Ok(()), |signal| self.signal(call, signal));
        }
        for (to_at, from_at) in rows.starts() {
            let row = to.slice(to_at..to_at + rows.len);
            let copied =
                row.and_then(|row| row.copy_from(&from.slice(from_at..from_at + rows.len)?));
            copied.map_err(|source| call.failed(source))?;
        }
        signal.map_or(Ok(()), |signal| self.signal(call, signal))
    }

    /// By a stream.
    fn raise_on(&self, stream: &Stream, Signal { number, action }: Signal) -> gdsync::Result<()> {
        let word = &self.signals.words[number];
        match action {
            SignalAction::Set(value) => stream.signal(word, value),
            SignalAction::Add(value) => stream.signal_add(word, value),
        }
    }

    fn part(&self, call: &Call<'_>, at: usize, len: usize) -> Result<Buffer<u8>> {
        self.memory.slice(at..at + len).map_err(|source| call.failed(source))
    }
}

/// A stretch of memory that is mapped here, in bytes and in words.
struct Stretch {
    memory: Buffer<u8>,
    words: Buffer<u64>,
}

impl Channel for Stretch {
    unsafe fn write(&mut self, at: usize, from: *const u8, len: usize) -> gdsync::Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.memory.copy_in(at, from, len) }
    }

    fn line(&mut self, call: &Call<'_>, at: usize, words: &[u64]) -> Result<()> {
        let at = at / size_of::<u64>();
        let there = self.words.atomics().and_then(|all| all.get(at..at + words.len()));
        let Some(there) = there else {
            return Err(call.failed(gdsync::Error::NotReachable {
                what: "a line of words",
                memory: format!("{:?}", self.memory),
                place: "the CPU".into(),
                hint: "put the window into host memory",
            }));
        };
        line::store(there, words);
        Ok(())
    }

    fn words(&self) -> Option<Buffer<u64>> {
        self.words.host_address().map(|_| self.words.clone())
    }
}

impl Connection for Mapped {
    fn put(
        &self,
        call: &Call<'_>,
        at: usize,
        Local { memory, rows }: &Local,
        signal: Option<Signal>,
        _: Return,
    ) -> Result<()> {
        self.copy(call, &self.part(call, at, rows.extents().0)?, memory, *rows, signal)
    }

    fn get(&self, call: &Call<'_>, at: usize, target: &Local, _: Return) -> Result<()> {
        let Local { memory, rows } = target;
        self.copy(call, memory, &self.part(call, at, rows.extents().1)?, *rows, None)
    }

    fn signal(&self, call: &Call<'_>, signal: Signal) -> Result<()> {
        let word = &self.signals.words[signal.number];
        let raised = match (&self.hand, word.atomic(), signal.action) {
            (Some(hand), None, _) => {
                return hand.does(call, |stream| {
                    self.raise_on(stream, signal).map_err(|source| call.failed(source))
                });
            }
            (_, _, SignalAction::Set(value)) => word.store(value),
            (_, _, SignalAction::Add(value)) => word.add(value),
        };
        raised.map_err(|source| call.failed(source))
    }

    fn atomic(&self, call: &Call<'_>, at: usize, atomic: Atomic) -> Result<Option<u64>> {
        let failed = |source| call.failed(source);
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        if atomic.is_half() {
            let word = self.part(call, at, size_of::<u32>())?.cast::<u32>();
            let word = word.and_then(|word| word.word(0)).map_err(failed)?;
            let next = |held: u32| Some(atomic.next(held.into()) as u32);
            let change = |word: &AtomicU32| word.fetch_update(set, fetch, next).unwrap_or_default();
            return Ok(word.atomic().map(change).map(u64::from));
        }
        let word = self.part(call, at, size_of::<u64>())?.cast::<u64>();
        let word = word.and_then(|word| word.word(0)).map_err(failed)?;
        let add =
            matches!(atomic.element, Element::U64 | Element::I64) && atomic.kind == AtomicKind::Add;
        let change = |word: &AtomicU64| match add {
            true => word.fetch_add(atomic.value, set),
            false => {
                let next = |held| Some(atomic.next(held));
                word.fetch_update(set, fetch, next).unwrap_or_default()
            }
        };
        Ok(word.atomic().map(change))
    }

    fn flush(&self, _: &Call<'_>) -> Result<()> {
        // What the host starts it has copied.
        Ok(())
    }

    fn quiet(&self, call: &Call<'_>) -> Result<()> {
        // Stores are on no way that could be waited for; what streams have been given, they order.
        self.atomics.as_ref().map_or(Ok(()), |atomics| atomics.quiet(call))
    }

    fn put_on(&self, call: &Call<'_>, stream: &Stream, at: usize, source: &Local) -> Result<()> {
        let Local { memory, rows } = source;
        let target = self.part(call, at, rows.extents().0)?;
        stream.copy_rows(&target, memory, *rows).map_err(|source| call.failed(source))
    }

    fn get_on(&self, call: &Call<'_>, stream: &Stream, at: usize, target: &Local) -> Result<()> {
        let Local { memory, rows } = target;
        let source = self.part(call, at, rows.extents().1)?;
        stream.copy_rows(memory, &source, *rows).map_err(|source| call.failed(source))
    }

    fn signal_on(&self, call: &Call<'_>, stream: &Stream, signal: Signal) -> Result<()> {
        self.raise_on(stream, signal).map_err(|source| call.failed(source))
    }

    fn memory(&self) -> Option<&Buffer<u8>> {
        Some(&self.memory)
    }

    fn word(&self, signal: usize) -> Option<Buffer<u64>> {
        self.signals.word(signal)
    }

    fn view(&self) -> WindowPart {
        let memory = self.memory.device_address().filter(|_| !self.memory.is_empty());
        let (bytes, atomics) = (self.memory.len() as u64, self.atomics.as_ref());
        WindowPart {
            memory: memory.unwrap_or_default(),
            bytes,
            signals: self.signals.device_address(),
            nic: 0,
            atomic_nic: atomics.and_then(|by| by.table()?.device_address()).unwrap_or_default(),
            atomic_bytes: if atomics.is_some_and(|by| by.memory) { 0 } else { bytes },
        }
    }

    fn make_atomics_ready(&self, call: &Call<'_>) -> Result<bool> {
        self.atomics.as_ref().map_or(Ok(false), |atomics| atomics.make_ready(call))
    }

    fn has_atomics_by_nic(&self) -> bool {
        self.atomics.is_some()
    }

    fn held(&self) -> Vec<Buffer<u8>> {
        let table = self.atomics.iter().filter_map(|atomics| Some(atomics.table()?.bytes()));
        [self.memory.clone(), self.signals.memory.bytes()].into_iter().chain(table).collect()
    }

    fn line(
        &self,
        _: &Call<'_>,
        _: Option<(Buffer<u8>, RemoteAddress)>,
        signal: usize,
    ) -> Result<Arc<dyn Line>> {
        Ok(Arc::new(self.signals.words[signal].clone()))
    }

    fn channel(&self, call: &Call<'_>, at: usize, len: usize) -> Result<Box<dyn Channel>> {
        let memory = self.part(call, at, len)?;
        let words = memory.cast().map_err(|source| call.failed(source))?;
        Ok(Box::new(Stretch { memory, words }))
    }

    fn one_sided(&self, call: &Call<'_>, what: &OneSided, state: &EndState) -> Result<Met> {
        let failed = |source| call.failed(source);
        let word = |number: usize| self.signals.words.get(number).cloned();
        let nobodys = state.nobodys().map_err(failed)?;
        let word = what.signal.and_then(word).unwrap_or_else(|| nobodys.clone());
        let full = state.signal().map_err(failed)?;
        let (mine, theirs) = match what.kind.side() {
            Side::Send => (full, word),
            Side::Recv => (word, nobodys),
        };
        let mut message = what.message(state, &mine).map_err(failed)?;
        message.theirs = theirs.device_address().map_err(failed)?;
        let mut held = self.held();
        let mut moves = Vec::new();
        if !what.memory.is_empty() {
            let there = self.part(call, what.at, what.memory.len())?;
            message.target = there.device_address().unwrap_or_default();
            let (mut from, mut to) = (what.memory.clone(), there);
            if what.kind == OneSidedKind::Get {
                // As a put the other way.
                std::mem::swap(&mut message.memory, &mut message.target);
                std::mem::swap(&mut from, &mut to);
            }
            held.push(what.memory.clone());
            // On a GPU a kernel moves it.
            if from.device().as_cuda().is_none() {
                moves.push(Move { from, to });
            }
        }
        let (message, line) = (Ok(message), Arc::new(theirs));
        Ok(Met { message, staged: false, mine, line, moves, slots: None, ahead: 0, held })
    }
}
