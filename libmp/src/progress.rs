//! A thread that calls in a rank's place: what only calls of the rank move on goes on while it computes. Nothing needs it; it takes a share of a core.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::communicator::Communicator;
use crate::data::plane::{EAGER, Plane};
use crate::error::{Error, Result};

/// How often it looks when nothing has moved for as long as [`EAGER`].
const NAP: Duration = Duration::from_micros(50);

/// The thread, until it is dropped or the world is over: [`Communicator::progress`].
///
/// ```
/// use std::time::Duration;
///
/// use libmp::tagged::Options;
/// use libmp::{Deadline, Device, World};
///
/// # fn main() -> libmp::Result<()> {
/// # let world = World::init()?;
/// let progress = world.progress()?;
/// let messages = world.tagged(&Options::default())?;
/// let (out, into) = (world.alloc::<u8>(&Device::Host, 1 << 20)?, world.alloc::<u8>(&Device::Host, 1 << 20)?);
/// let right = (world.rank() + 1) % world.size();
/// let mut recv = messages.irecv(&into, libmp::tagged::Source::Any, 7)?;
/// let mut send = messages.isend(&out, right, 7)?;
/// // Compute here for a long time: both go on meanwhile.
/// libmp::tagged::wait_all([&mut recv, &mut send], Deadline::after(Duration::from_secs(10)))?;
/// drop(progress);
/// # drop((send, recv));
/// # world.finish()
/// # }
/// ```
#[must_use = "the thread ends when this is dropped"]
pub struct ProgressThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Communicator {
    /// Starts a thread that moves on everything of this rank that otherwise only its calls do: tagged messages, started operations that wait for
    /// credit, links through a NIC. For ranks that compute for long between calls; calls go on as before, and take a lock then that they do without
    /// when they are alone.
    ///
    /// # Errors
    /// [`Error::Io`] if the system starts no thread; what ended the world.
    pub fn progress(&self) -> Result<ProgressThread> {
        let plane = self.plane().clone();
        plane.check_after(Duration::ZERO, || "starting a thread for progress".into())?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("mp-progress".into());
        let thread = thread.spawn(move || run(&plane, &stopped));
        let thread = thread.map_err(Error::io("starting a thread for progress"))?;
        Ok(ProgressThread { stop, thread: Some(thread) })
    }
}

fn run(plane: &Plane, stopped: &AtomicBool) {
    let mut moved = Instant::now();
    let mut seen = plane.helpers.moved();
    while !stopped.load(Ordering::Relaxed) && !plane.ended() {
        plane.progress();
        plane.helpers.help_now();
        let now = plane.helpers.moved();
        if now != seen {
            (seen, moved) = (now, Instant::now());
        }
        match moved.elapsed() < EAGER {
            true => std::thread::yield_now(),
            false => std::thread::sleep(NAP),
        }
    }
}

impl Drop for ProgressThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It has ended, or does so within a nap; a panic of it was printed.
        self.thread.take().map(JoinHandle::join);
    }
}

impl fmt::Debug for ProgressThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a thread for progress")
    }
}
