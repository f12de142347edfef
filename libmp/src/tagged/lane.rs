//! A device's lane in one direction: by what it copies between its memory and the host's, how it is seen that a copy is done, and the pinned chunks that
//! nobody else uses. Which message gets which chunk is `staging.rs`'s.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gdsync::opencl;
use gdsync::{Buffer, Deadline, Device, Event, Result, Space, Stream};

use super::memory::Memory;
use super::staging::{CHUNK, CHUNKS};
use super::words::{Told, Words};

/// Bytes of a GPU's chunk that are tried.
const TRIED: [usize; 6] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20];
/// The smallest is taken with which copies are at least so fast as with the best one.
const ENOUGH: f64 = 0.95;
/// How often the driver is asked whether a copy has failed that is not seen done: it then never is. Questions are in the way of the process's other calls.
const ASKING: Duration = Duration::from_millis(1);
/// How long the end waits for copies under way, which wait for nobody.
const OWN_WORK: Duration = Duration::from_secs(60);

/// What says that a copy is done.
pub(super) enum Done {
    Told(Told),
    OpenCl(opencl::Event),
}

impl Done {
    /// Asks the driver also what it has to say of a stream that has not got there.
    fn is_reached(&self) -> Result<bool> {
        match self {
            Done::Told(told) if told.is_there() => Ok(true),
            Done::Told(told) => told.ask().map(|()| told.is_there()),
            Done::OpenCl(event) => event.is_reached(),
        }
    }

    /// Waits until it is done.
    pub fn finish(&self) -> Result<()> {
        let reached = Deadline::after(OWN_WORK).poll(|| match self.is_reached() {
            Ok(false) => None,
            other => Some(other.map(drop)),
        });
        reached.unwrap_or(Ok(()))
    }
}

/// A stream that copies between memory of its device and other memory that this reaches: a lane's, or one of the program's own.
pub(super) struct Copier {
    pub stream: Arc<Stream>,
    pub words: Arc<Words>,
}

pub(super) struct Lane {
    /// `None`: of OpenCL.
    pub ordinal: Option<Option<u32>>,
    /// From the device to the host, of sends.
    pub is_down: bool,
    /// None of OpenCL.
    pub copier: Option<Copier>,
    /// When the driver was asked last.
    asked: Instant,
    /// Bytes of a chunk, and the most of a piece of a ring.
    pub chunk: usize,
    /// Of OpenCL, whose chunks the CPU alone has to reach: the host.
    device: Device,
    /// Made when the first message needs a chunk, which those that go straight into the rings do not.
    pool: Option<Buffer<u8>>,
    pub free: Vec<usize>,
}

/// What was chosen for a device and direction: every communicator of the process has the same.
static CHOSEN: Mutex<Vec<(Key, usize)>> = Mutex::new(Vec::new());

/// A device's ordinal, and whether it is the way to the host.
type Key = (Option<u32>, bool);

impl Lane {
    /// Of a device, or of OpenCL, with chunks of the size that its user has chosen, or as its copies have it.
    pub fn new(
        device: Option<&Device>,
        is_down: bool,
        chosen: Option<usize>,
        words: &Arc<Words>,
    ) -> Result<Lane> {
        let (ordinal, free) = (device.map(Device::ordinal), (0..CHUNKS).collect());
        let stream = device.map(Device::stream).transpose()?;
        let copier = |stream| Copier { stream: Arc::new(stream), words: words.clone() };
        let chunk = match (chosen, device) {
            (Some(chosen), _) => chosen,
            (None, Some(device @ Device::Cuda(_))) => chunk_of(device, is_down)?,
            (None, _) => CHUNK,
        };
        let device = device.cloned().unwrap_or(Device::Host);
        let (copier, asked) = (stream.map(copier), Instant::now());
        Ok(Lane { ordinal, is_down, copier, asked, chunk, device, pool: None, free })
    }

    /// Whether a copy is done. The driver is not asked at each look.
    pub fn is_done(&mut self, done: &Done) -> Result<bool> {
        if let Done::Told(told) = done
            && !told.is_there()
        {
            if self.asked.elapsed() <= ASKING {
                return Ok(false);
            }
            self.asked = Instant::now();
        }
        done.is_reached()
    }

    /// Bytes of its chunks.
    pub fn size(&self) -> usize {
        self.pool.as_ref().map_or(0, Buffer::len)
    }

    /// The chunks.
    pub fn pool(&mut self) -> Result<Buffer<u8>> {
        let pool = match self.pool.take() {
            Some(pool) => pool,
            None => Buffer::new(&self.device, Space::Pinned, CHUNKS * self.chunk)?,
        };
        Ok(self.pool.insert(pool).clone())
    }

    /// The bytes of a chunk from `at` on.
    pub fn chunk(&self, chunk: usize, at: usize) -> Memory {
        let base = self.pool.as_ref().and_then(Buffer::host_address).unwrap_or(NonNull::dangling());
        // SAFETY: the pool is there when a chunk was taken, and has so many chunks of so many bytes.
        let address = unsafe { base.add(chunk * self.chunk + at) };
        Memory::Lent { address, len: self.chunk - at, stays: false }
    }
}

/// The best size of a chunk for a device's copies in a direction, tried once.
fn chunk_of(device: &Device, is_down: bool) -> Result<usize> {
    let mut chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (device.ordinal(), is_down);
    if let Some((_, chunk)) = chosen.iter().find(|(known, _)| *known == key) {
        return Ok(*chunk);
    }
    let chunk = best_chunk(device, is_down)?;
    chosen.push((key, chunk));
    Ok(chunk)
}

/// The best size of a chunk for a device's copies in a direction: each size is tried, two copies at a time as a message has them.
fn best_chunk(device: &Device, is_down: bool) -> Result<usize> {
    const TIMES: usize = 8;
    let (stream, most) = (device.stream()?, *TRIED.last().unwrap_or(&CHUNK));
    let host = Buffer::<u8>::new(device, Space::Pinned, 2 * most)?;
    let memory = Buffer::<u8>::new(device, Space::Device, 2 * most)?;
    let done = Event::new(device)?;
    let mut rates = [0.0; TRIED.len()];
    for (rate, size) in rates.iter_mut().zip(TRIED) {
        let mut best = f64::INFINITY;
        for _ in 0..TIMES {
            let since = Instant::now();
            for half in [0..size, size..2 * size] {
                let (host, memory) = (host.slice(half.clone())?, memory.slice(half)?);
                match is_down {
                    true => stream.copy(&host, &memory)?,
                    false => stream.copy(&memory, &host)?,
                }
            }
            stream.record(&done)?;
            done.synchronize(Deadline::after(OWN_WORK))?;
            best = best.min(since.elapsed().as_secs_f64());
        }
        *rate = (2 * size) as f64 / best / 1e9;
    }
    let chunk = enough(&rates);
    let way = if is_down { "to the host" } else { "from the host" };
    tracing::info!(%device, way, ?rates, chunk, "GB/s of copies of 64 KiB to 2 MiB, and the chunk of tagged messages");
    Ok(chunk)
}

/// The smallest of the sizes that were tried whose rate is enough.
fn enough(rates: &[f64; TRIED.len()]) -> usize {
    let best = rates.iter().copied().fold(0.0, f64::max);
    let first = rates.iter().position(|rate| *rate >= ENOUGH * best);
    TRIED[first.unwrap_or(TRIED.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_chunk_is_taken_with_which_copies_are_about_as_fast_as_they_get() {
        assert_eq!(enough(&[10.0, 20.0, 30.0, 38.5, 40.0, 40.2]), 512 << 10);
        assert_eq!(enough(&[40.0, 39.0, 38.0, 37.0, 36.0, 35.0]), 64 << 10);
        assert_eq!(enough(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]), 2 << 20);
        assert_eq!(enough(&[f64::NAN; 6]), 2 << 20);
    }
}
