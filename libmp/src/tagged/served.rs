//! Memory that has no address, as OpenCL's, which other ranks put into and get from: each call is a few tagged messages, which a thread of the
//! memory's owner answers. It is one-sided for who calls, and for the owner's other threads. What others may be told of it, signals and atomic
//! operations, is not here: they are a window's.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gdsync::{Deadline, Device, Rows, opencl};

use super::{Options, Place, Request, Source, Tagged, wait_all};
use crate::communicator::Communicator;
use crate::data::Region;
use crate::error::{Error, Result};

/// The tag of what is asked; behind it each call has two of its own, of the answer and of the bytes.
const ASK: u64 = 0;
/// Bytes of an answer: none, or why the owner could not do it.
const ANSWER: usize = 512;
/// The owner's thread looks without a pause for so long after it has been asked something …
const EAGER: Duration = Duration::from_micros(200);
/// … and this often then.
const NAP: Duration = Duration::from_micros(50);

/// Memory of every rank of a communicator that the others put into and get from although it has no address: [`Communicator::serve`].
/// `Send` and `Sync`. Bytes that a call has put are there when it returns. It is dropped when no rank calls it any more, as behind a barrier.
///
/// ```no_run
/// use libmp::World;
/// use libmp::gdsync::{Rows, opencl};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let world = World::init()?;
/// let memory = opencl::Context::open()?.alloc(1000)?;
/// let all = world.serve(&memory)?; // a collective call
/// let right = (world.rank() + 1) % world.size();
/// all.put(right, 8, &[7; 100], Rows::one(100))?;
/// world.barrier()?;
/// assert_eq!(memory.slice(8..108)?.to_vec()?, [7; 100]);
/// world.barrier()?;
/// drop(all);
/// # Ok(world.finish()?)
/// # }
/// ```
pub struct Served {
    messages: Tagged,
    lens: Vec<u64>,
    timeout: Duration,
    calls: AtomicU64,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What is asked of an owner, as it is sent.
#[derive(Clone, Copy)]
struct Ask {
    /// The call's number, which its tags are of.
    call: u64,
    is_put: bool,
    /// Where the rows begin in the memory, and how many bytes lie from one to the next there.
    at: u64,
    step: u64,
    len: u64,
    count: u64,
}

impl Ask {
    const WORDS: usize = 6;

    fn words(self) -> [u64; Self::WORDS] {
        [self.call, self.is_put.into(), self.at, self.step, self.len, self.count]
    }

    fn of([call, is_put, at, step, len, count]: [u64; Self::WORDS]) -> Ask {
        Ask { call, is_put: is_put != 0, at, step, len, count }
    }

    fn answer(self) -> u64 {
        2 * self.call + 1
    }

    fn bytes(self) -> u64 {
        2 * self.call + 2
    }

    /// The rows in the memory.
    fn rows(self, memory: &opencl::Memory) -> Result<Vec<opencl::Memory>> {
        let row = |row: u64| {
            let first = (self.at + row * self.step) as usize;
            memory.slice(first..first + self.len as usize).map_err(failed)
        };
        (0..self.count).map(row).collect()
    }
}

fn failed(source: gdsync::Error) -> Error {
    Error::Memory { op: "memory that is served".into(), source }
}

impl Communicator {
    /// Lets all ranks put into and get from OpenCL memory of each: a thread of its owner does it. A collective call; the memories may have
    /// different lengths. Nobody gets bytes that a kernel is writing: the program orders what its queues do.
    ///
    /// # Errors
    /// As [`tagged`](Self::tagged); [`Error::Mismatch`] on every rank for memory that was made with `CL_MEM_READ_ONLY`; [`Error::Io`] if the system
    /// starts no thread.
    pub fn serve(&self, memory: &opencl::Memory) -> Result<Served> {
        let mismatch = |reason| Error::Mismatch { op: "serving OpenCL memory".into(), reason };
        let mine = (memory.len() as u64, memory.is_writable());
        let blob = postcard::to_stdvec(&mine).map_err(|error| mismatch(error.to_string()))?;
        let told = self.all_gather(&blob)?.into_iter().enumerate().map(|(rank, blob)| {
            match postcard::from_bytes::<(u64, bool)>(&blob) {
                Ok((len, true)) => Ok(len),
                Ok(_) => Err(mismatch(format!("rank {rank}'s was made with CL_MEM_READ_ONLY"))),
                Err(error) => Err(mismatch(format!("rank {rank}: {error}"))),
            }
        });
        let lens = told.collect::<Result<Vec<_>>>()?;
        let messages = self.tagged(&Options::default())?;
        let timeout = self.timeout();
        let asked = self.alloc(&Device::Host, Ask::WORDS)?;
        let stop = Arc::new(AtomicBool::new(false));
        let owner = Owner {
            messages: messages.clone(),
            memory: memory.clone(),
            timeout,
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new().name("mp-served".into());
        // What ends it early has ended the world, of which every call speaks.
        let thread = thread.spawn(move || drop(owner.answer_all(&asked)));
        let thread = thread.map_err(Error::io("starting a thread that serves memory"))?;
        let calls = AtomicU64::default();
        Ok(Served { messages, lens, timeout, calls, stop, thread: Some(thread) })
    }
}

/// What the owner's thread has.
struct Owner {
    messages: Tagged,
    memory: opencl::Memory,
    timeout: Duration,
    stop: Arc<AtomicBool>,
}

impl Owner {
    /// Until it is to stop, or the world is over.
    fn answer_all(&self, asked: &Region<u64>) -> Result<()> {
        loop {
            let mut request = self.messages.irecv(asked, Source::Any, ASK)?;
            let since = Instant::now();
            let from = loop {
                if let Some(status) = request.test()? {
                    break status.source;
                }
                if self.stop.load(Ordering::Acquire) {
                    return Ok(());
                }
                match since.elapsed() < EAGER {
                    true => std::thread::yield_now(),
                    false => std::thread::sleep(NAP),
                }
            };
            let mut words = [0; Ask::WORDS];
            words.copy_from_slice(&asked.to_vec()?);
            let ask = Ask::of(words);
            let why = match self.moved(ask, from) {
                Ok(()) => String::new(),
                Err(error) => error.to_string(),
            };
            let why = &why.as_bytes()[..why.len().min(ANSWER)];
            self.messages.send(why, from, ask.answer(), Deadline::after(self.timeout))?;
        }
    }

    fn moved(&self, ask: Ask, from: usize) -> Result<()> {
        let tag = ask.bytes();
        let start = |row: opencl::Memory| match ask.is_put {
            true => self.messages.irecv(Place::from(&row), from, tag),
            false => self.messages.isend(Place::from(&row), from, tag),
        };
        let rows = ask.rows(&self.memory)?.into_iter().map(start);
        let mut rows = rows.collect::<Result<Vec<Request<'_>>>>()?;
        wait_all(&mut rows, Deadline::after(self.timeout)).map(drop)
    }
}

impl Served {
    /// Bytes of rank `rank`'s memory; `None` if there is no such rank.
    pub fn len(&self, rank: usize) -> Option<u64> {
        self.lens.get(rank).copied()
    }

    /// Copies rows of `from`, in bytes, to rank `rank`, the first to its byte `at`; they are there when it returns.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`]; [`Error::OutOfRange`], of either side; [`Error::Mismatch`] with what the owner says if its OpenCL fails; [`Error::Waits`] after the world's timeout; what ended the world.
    pub fn put(&self, rank: usize, at: u64, from: &[u8], rows: Rows) -> Result<()> {
        let ask = self.ask(true, rank, at, rows, from.len())?;
        let Some(ask) = ask else { return Ok(()) };
        let deadline = Deadline::after(self.timeout);
        self.messages.scope(|scope| {
            let start = |(_, first): (usize, usize)| {
                scope.isend(&from[first..first + rows.len], rank, ask.bytes())
            };
            let mut sends = rows.starts().map(start).collect::<Result<Vec<_>>>()?;
            self.heard(ask, rank, deadline)?;
            wait_all(&mut sends, deadline).map(drop)
        })
    }

    /// Copies rows from rank `rank`, the first from its byte `at`, to rows of `to` that do not overlap.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn get(&self, rank: usize, at: u64, to: &mut [u8], rows: Rows) -> Result<()> {
        let ask = self.ask(false, rank, at, rows, to.len())?;
        let Some(ask) = ask else { return Ok(()) };
        let deadline = Deadline::after(self.timeout);
        let step = if rows.count > 1 { rows.to } else { rows.len };
        if step < rows.len {
            let reason = format!("rows of {} bytes, {step} apart: they overlap", rows.len);
            return Err(Error::Mismatch { op: "a get of memory that is served".into(), reason });
        }
        self.messages.scope(|scope| {
            let start = |row| scope.irecv(row, rank, ask.bytes());
            let places = to.chunks_mut(step).take(rows.count).map(|row| &mut row[..rows.len]);
            let mut receives = places.map(start).collect::<Result<Vec<_>>>()?;
            self.heard(ask, rank, deadline)?;
            wait_all(&mut receives, deadline).map(drop)
        })
    }

    /// Asks the owner; `None`: there is nothing to be done. `here`: bytes of the memory here.
    fn ask(
        &self,
        is_put: bool,
        rank: usize,
        at: u64,
        rows: Rows,
        here: usize,
    ) -> Result<Option<Ask>> {
        let what = if is_put { "putting into" } else { "getting from" };
        let size = self.len(rank).ok_or_else(|| Error::NoSuchRank {
            rank,
            communicator: self.messages.shared.name.clone(),
            size: self.lens.len(),
        })?;
        if rows.elements() == 0 {
            return Ok(None);
        }
        let (to, from) = rows.extents();
        let (there, own) = if is_put { (to, from) } else { (from, to) };
        let op = || format!("{what} memory that rank {rank} serves");
        let outside = |at, len, size| Err(Error::OutOfRange { op: op(), at, len, size });
        if at.checked_add(there as u64).is_none_or(|end| end > size) {
            return outside(at, there as u64, size);
        }
        if own > here {
            return outside(0, own as u64, here as u64);
        }
        let step = if is_put { rows.to } else { rows.from } as u64;
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let ask = Ask { call, is_put, at, step, len: rows.len as u64, count: rows.count as u64 };
        self.messages.send(&ask.words(), rank, ASK, Deadline::after(self.timeout))?;
        Ok(Some(ask))
    }

    /// Waits for the owner's answer.
    fn heard(&self, ask: Ask, rank: usize, deadline: Deadline) -> Result<()> {
        let mut why = [0; ANSWER];
        let status = self.messages.recv(&mut why, rank, ask.answer(), deadline)?;
        if status.bytes == 0 {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&why[..status.bytes]);
        let op = format!(
            "{} memory that rank {rank} serves",
            if ask.is_put { "putting into" } else { "getting from" }
        );
        Err(Error::Mismatch { op, reason: reason.into_owned() })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // It has ended, or does so within a nap; a panic of it was printed.
        self.thread.take().map(JoinHandle::join);
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory of {} ranks that is served", self.lens.len())
    }
}
