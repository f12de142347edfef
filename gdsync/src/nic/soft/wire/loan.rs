//! Pages lent to a socket: the system sends them from where they are, instead of copying them first. They go through a pipe
//! (vmsplice(2), splice(2)), which unlike `MSG_ZEROCOPY` lends them over the loopback device as well.
//!
//! What is lent must not change until the other side has answered, so only payload is whose request that answer completes.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::pipe::{
    IoSliceRaw, PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
    vmsplice,
};

/// Payload from which lending costs less than a copy: pinning 16 pages and one more system call.
pub(super) const LENT: usize = 64 * 1024;
/// Bytes that a pipe should hold: as fast as more, and many of them fit into what a user may have in pipes (pipe(7)).
const HELD: usize = 256 * 1024;

/// The pipe that pages pass on their way to one socket.
pub(super) struct Loan {
    /// None: not asked for yet, or not to be had.
    pipe: Option<Pipe>,
    refused: bool,
}

struct Pipe {
    output: OwnedFd,
    input: OwnedFd,
    /// Bytes in it.
    inside: usize,
}

impl Loan {
    pub fn new() -> Loan {
        Loan { pipe: None, refused: false }
    }

    /// Whether there is a pipe that holds what makes lending worth it. Makes it when first asked.
    pub fn is_open(&mut self) -> bool {
        if self.pipe.is_none() && !self.refused {
            self.pipe = Pipe::new();
            self.refused = self.pipe.is_none();
        }
        self.pipe.is_some()
    }

    /// What is in the pipe goes nowhere, and nothing is lent any more.
    pub fn refuse(&mut self) {
        (self.pipe, self.refused) = (None, true);
    }

    /// Lends `part` to the socket `to`, or what that has room for: how many bytes it took. What is in the pipe goes out first,
    /// and is the beginning of `part`.
    ///
    /// # Safety
    /// What is in `part` stays as it is until the other side of the socket has taken it and said so.
    ///
    /// # Errors
    /// [`Unlent::Socket`] with what the socket says; [`Unlent::Memory`] where this is memory that cannot be lent, of which
    /// nothing is in the pipe then.
    pub unsafe fn send(&mut self, to: impl AsFd, part: &[u8]) -> Result<usize, Unlent> {
        let pipe = self.pipe.as_mut().ok_or(Unlent::Memory)?;
        if pipe.inside == 0 {
            let part = [IoSliceRaw::from_slice(part)];
            // SAFETY: into the pipe, so the memory is only read; that it stays as it is the caller answers for.
            let taken = unsafe { vmsplice(&pipe.input, &part, SpliceFlags::NONBLOCK) };
            pipe.inside = taken.map_err(|_| Unlent::Memory)?;
        }
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let sent = without_signal(|| splice(&pipe.output, None, to, None, pipe.inside, flags));
        let sent = sent.map_err(Unlent::Socket)?;
        pipe.inside -= sent;
        Ok(sent)
    }
}

/// Why nothing was lent.
#[derive(Debug)]
pub(super) enum Unlent {
    Memory,
    Socket(Errno),
}

impl Pipe {
    fn new() -> Option<Pipe> {
        let (output, input) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // A user with many pipes gets no more room than it has.
        let _ = fcntl_setpipe_size(&input, HELD);
        let room = fcntl_getpipe_size(&input).ok()?;
        (room >= LENT).then_some(Pipe { output, input, inside: 0 })
    }
}

/// Calls `write`, on a socket, without the SIGPIPE that splice(2) raises when the other side is gone and that would end a program
/// which does not ignore it.
fn without_signal<T>(write: impl FnOnce() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    let mut broken = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the sets are written before they are read, here and below.
    let was_blocked = unsafe {
        libc::sigemptyset(broken.as_mut_ptr());
        libc::sigaddset(broken.as_mut_ptr(), libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, broken.as_ptr(), before.as_mut_ptr());
        libc::sigismember(before.as_ptr(), libc::SIGPIPE) == 1
    };
    let result = write();
    if !was_blocked {
        // SAFETY: as above.
        unsafe {
            if matches!(result, Err(Errno::PIPE)) {
                let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                libc::sigtimedwait(broken.as_ptr(), std::ptr::null_mut(), &none);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        }
    }
    result
}
