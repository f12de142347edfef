//! The thread that passes the ranks' output on. A thread of its own, so that whoever reads our output
//! slowly, or not at all, never keeps `mprun` from seeing signals and dead ranks. What `mprun` itself
//! has to say goes the same way and lands between the lines of the ranks, not in them.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};

use super::error::{Doing, LaunchError};
use super::lines::{LineBuffer, Sink};

/// The running relay.
pub(super) struct Relay {
    thread: JoinHandle<Outcome>,
    speaker: String,
    orders: Sender<Order>,
    bell: PipeWriter,
    done: PipeReader,
}

/// Why output could not be written, if so. A reader that went away is no failure of ours.
pub(super) type Outcome = Result<(), LaunchError>;

enum Order {
    Say(String),
    Finish,
}

/// What one rank writes.
pub(super) struct Streams {
    pub stdout: PipeReader,
    pub stderr: PipeReader,
}

impl Relay {
    /// Starts passing on what `ranks` write, each with what stands before every line of it. `speaker` is what this process
    /// calls itself.
    pub fn start(ranks: Vec<(Streams, Vec<u8>)>, speaker: String) -> Result<Relay, LaunchError> {
        let (listen, bell) = io::pipe().doing("make a pipe")?;
        let (done, end) = io::pipe().doing("make a pipe")?;
        let (orders, inbox) = channel();
        let size = ranks.len();
        let sources = ranks.into_iter().enumerate().flat_map(|(rank, (streams, prefix))| {
            let source = |to, pipe| Source {
                writer: rank,
                prefix: prefix.clone(),
                to,
                pipe: Some(pipe),
                lines: LineBuffer::default(),
            };
            [source(OUT, streams.stdout), source(ERR, streams.stderr)]
        });
        let mut worker =
            Worker { sources: sources.collect(), sinks: Sinks::new(), listen, inbox, size };
        let thread = thread::Builder::new().name("relay".to_owned()).spawn(move || {
            let outcome = worker.run();
            drop(end);
            outcome
        });
        Ok(Relay { thread: thread.doing("start a thread")?, speaker, orders, bell, done })
    }

    /// Tells the user something, on the standard error.
    pub fn say(&mut self, message: &str) {
        self.order(Order::Say(format!("{}: {message}\n", self.speaker)));
    }

    /// All ranks have ended: pass on what is left and stop.
    pub fn finish(&mut self) {
        self.order(Order::Finish);
    }

    /// Readable when the relay has stopped.
    pub fn done(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    /// How it went; waits until the relay has stopped.
    pub fn outcome(self) -> Outcome {
        self.thread.join().unwrap_or_else(|_| {
            Err(io::Error::other("the relay of the output panicked")).doing("pass output on")
        })
    }

    fn order(&mut self, order: Order) {
        // A relay that is gone has said why in its outcome.
        let _ = self.orders.send(order);
        let _ = self.bell.write_all(b"!");
    }
}

/// What stands before the lines of a rank.
pub(super) fn label(rank: usize, size: usize) -> Vec<u8> {
    let width = (size - 1).to_string().len();
    format!("[{rank:>width$}] ").into_bytes()
}

/// Indices of the two sinks.
const OUT: usize = 0;
const ERR: usize = 1;

/// One pipe from a rank.
struct Source {
    writer: usize,
    prefix: Vec<u8>,
    to: usize,
    pipe: Option<PipeReader>,
    lines: LineBuffer,
}

struct Worker {
    sources: Vec<Source>,
    sinks: Sinks,
    listen: PipeReader,
    inbox: Receiver<Order>,
    size: usize,
}

impl Worker {
    fn run(&mut self) -> Outcome {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let rung = self.wait_and_read(&mut buffer).doing("read the output of the ranks")?;
            // Only after the pipes: a rank's last words come before the news of its death.
            if rung && self.follow_orders().doing("read the output of the ranks")? {
                break;
            }
        }
        self.drain(&mut buffer).doing("read the output of the ranks")?;
        std::mem::replace(&mut self.sinks.failure, Ok(()))
    }

    /// Waits for something to read and reads once from every pipe that has something. Has an order
    /// come?
    fn wait_and_read(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let open: Vec<usize> =
            (0..self.sources.len()).filter(|i| self.sources[*i].pipe.is_some()).collect();
        let mut polled = vec![PollFd::new(&self.listen, PollFlags::IN)];
        let pipes = open.iter().filter_map(|i| self.sources[*i].pipe.as_ref());
        polled.extend(pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        match poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => return Ok(false),
            result => result?,
        };
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        for (i, _) in open.iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
            self.sources[*i].read(buffer, &mut self.sinks);
        }
        self.close_streams_without_reader();
        Ok(ready[0])
    }

    /// Is this the end?
    fn follow_orders(&mut self) -> io::Result<bool> {
        let mut rings = [0; 64];
        // The pipe is readable, so this does not wait; zero: `Relay` was dropped.
        let mut end = self.listen.read(&mut rings)? == 0;
        for order in self.inbox.try_iter() {
            match order {
                Order::Say(message) => self.sinks.write(ERR, self.size, b"", message.as_bytes()),
                Order::Finish => end = true,
            }
        }
        Ok(end)
    }

    /// Passes on what the pipes hold now. The ranks are gone; whatever may still hold a pipe open is
    /// not part of the job and is not waited for.
    fn drain(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        for source in &mut self.sources {
            let Some(pipe) = &source.pipe else { continue };
            let mut left = rustix::io::ioctl_fionread(pipe)?;
            while left > 0 && source.pipe.is_some() {
                left = left.saturating_sub(source.read(buffer, &mut self.sinks) as u64);
            }
            source.close(&mut self.sinks);
        }
        Ok(())
    }

    /// Nobody reads what we write: close the pipes, so that the ranks learn it as they would have
    /// without us (SIGPIPE).
    fn close_streams_without_reader(&mut self) {
        for source in &mut self.sources {
            if self.sinks.to[source.to].is_none() {
                source.pipe = None;
            }
        }
    }
}

impl Source {
    /// Reads once; returns how many bytes.
    fn read(&mut self, buffer: &mut [u8], sinks: &mut Sinks) -> usize {
        let Some(pipe) = &mut self.pipe else { return 0 };
        match pipe.read(buffer) {
            Ok(count) if count > 0 => {
                let _ = self.lines.feed(&buffer[..count], |lines| {
                    sinks.write(self.to, self.writer, &self.prefix, lines);
                    Ok::<_, ()>(())
                });
                count
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            _ => {
                self.close(sinks);
                0
            }
        }
    }

    fn close(&mut self, sinks: &mut Sinks) {
        self.pipe = None;
        let _ = self.lines.flush(|rest| {
            sinks.write(self.to, self.writer, &self.prefix, rest);
            Ok::<_, ()>(())
        });
    }
}

/// Standard output and standard error of `mprun`; `None` after a write failed.
struct Sinks {
    to: [Option<Sink<Patient>>; 2],
    failure: Result<(), LaunchError>,
}

impl Sinks {
    fn new() -> Sinks {
        let out = Sink::new(Patient(rustix::stdio::stdout()));
        let err = Sink::new(Patient(rustix::stdio::stderr()));
        Sinks { to: [Some(out), Some(err)], failure: Ok(()) }
    }

    fn write(&mut self, to: usize, from: usize, prefix: &[u8], bytes: &[u8]) {
        let Some(sink) = &mut self.to[to] else { return };
        if let Err(error) = sink.write(from, prefix, bytes) {
            self.to[to] = None;
            if error.kind() != io::ErrorKind::BrokenPipe && self.failure.is_ok() {
                let doing = ["write the standard output", "write the standard error"][to];
                self.failure = Err(error).doing(doing);
            }
        }
    }
}

/// Writes to a descriptor that somebody may have made non-blocking, and waits for room there.
struct Patient(BorrowedFd<'static>);

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(self.0, bytes) {
                Err(rustix::io::Errno::AGAIN) => {
                    let _ = poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None);
                }
                result => return Ok(result?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn labels_of_one_job_are_of_one_width() {
        assert_eq!(label(3, 4), b"[3] ");
        assert_eq!(label(3, 10), b"[3] ");
        assert_eq!(label(3, 11), b"[ 3] ");
        assert_eq!(label(63, 64), b"[63] ");
    }
}
