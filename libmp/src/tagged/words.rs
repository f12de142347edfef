//! Points of streams that memory of messages comes behind, and words that streams wait for or write, of which each is used again.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use gdsync::opencl;
use gdsync::{Buffer, Device, Event, Result, Space, Stream, Word64};

/// A point that has to be reached before bytes are looked at.
pub(super) enum Point {
    Event(Event),
    Mark(Mark),
    OpenCl(Arc<opencl::Event>),
}

impl Point {
    pub fn is_reached(&self) -> Result<bool> {
        match self {
            Point::Event(event) => event.is_reached(),
            Point::Mark(mark) => mark.is_reached(),
            Point::OpenCl(event) => event.is_reached(),
        }
    }
}

/// A word for which a stream waits; it is raised when this is dropped, whatever became of the request.
pub(super) struct Release {
    words: Arc<Words>,
    word: Option<(Word64, u64)>,
}

impl Drop for Release {
    fn drop(&mut self) {
        if let Some((word, value)) = self.word.take() {
            // The CPU reaches it: it is pinned.
            let _ = word.store(value);
            self.words.free.lock().unwrap_or_else(PoisonError::into_inner).push((word, value));
        }
    }
}

/// A point of a stream; the event is used again when this is dropped.
pub(super) struct Mark {
    words: Arc<Words>,
    device: Option<u32>,
    event: Option<Event>,
}

impl Mark {
    pub fn is_reached(&self) -> Result<bool> {
        self.event.as_ref().map_or(Ok(true), Event::is_reached)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let event = self.event.take().map(|event| (self.device, event));
        self.words.events.lock().unwrap_or_else(PoisonError::into_inner).extend(event);
    }
}

/// A word that a stream writes when it has come so far, behind which a look asks no driver.
pub(super) struct Told {
    /// Its owner may be done with it as soon as the request is over.
    stream: Weak<Stream>,
    words: Arc<Words>,
    word: Option<(Word64, u64)>,
}

impl Told {
    /// What the driver says of a stream that has not got there.
    pub fn ask(&self) -> Result<()> {
        self.stream.upgrade().map_or(Ok(()), |stream| stream.is_idle().map(drop))
    }

    pub fn is_there(&self) -> bool {
        self.word.as_ref().is_none_or(|(word, value)| word.load().is_some_and(|it| it >= *value))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        // One that is still to be written is nobody else's.
        if self.is_there() {
            let mut free = self.words.free.lock().unwrap_or_else(PoisonError::into_inner);
            free.extend(self.word.take());
        }
    }
}

/// Words that streams wait for or write, of which one is used again with a higher value, and events.
#[derive(Default)]
pub(super) struct Words {
    free: Mutex<Vec<(Word64, u64)>>,
    events: Mutex<Vec<(Option<u32>, Event)>>,
}

impl Words {
    /// Marks what a stream has been given so far.
    pub fn mark(self: &Arc<Words>, stream: &Stream) -> Result<Mark> {
        let device = stream.device().ordinal();
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let known = events.iter().position(|(of, _)| *of == device);
        let known = known.map(|at| events.swap_remove(at).1);
        drop(events);
        let event = known.map_or_else(|| Event::new(stream.device()), Ok)?;
        stream.record(&event)?;
        Ok(Mark { words: self.clone(), device, event: Some(event) })
    }

    /// A word for a stream to wait for, and the value.
    pub fn take(self: &Arc<Words>, device: &Device) -> Result<(Release, Word64, u64)> {
        let (word, value) = self.word(device)?;
        let release = Release { words: self.clone(), word: Some((word.clone(), value)) };
        Ok((release, word, value))
    }

    /// Has a stream say when it has done what it has been given so far.
    pub fn tell(self: &Arc<Words>, stream: &Arc<Stream>) -> Result<Told> {
        let (word, value) = self.word(stream.device())?;
        stream.write64(&word, value)?;
        let stream = Arc::downgrade(stream);
        Ok(Told { stream, words: self.clone(), word: Some((word, value)) })
    }

    /// One that a device reaches, and a value that it has not had.
    fn word(&self, device: &Device) -> Result<(Word64, u64)> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let known = free.iter().position(|(word, _)| word.device().ordinal() == device.ordinal());
        let (word, value) = match known {
            Some(at) => free.swap_remove(at),
            None => {
                let words = Buffer::<u64>::new(device, Space::Pinned, 64)?;
                for at in 1..64 {
                    free.push((words.word(at)?, 0));
                }
                (words.word(0)?, 0)
            }
        };
        Ok((word, value + 1))
    }
}
