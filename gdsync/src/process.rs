//! What the kernel says of a process in `/proc/PID/stat`, proc(5), and what is in its memory. Nothing is done to it.

use std::fmt::Display;
use std::io;

/// A process, as it was when it was looked at. Looking costs some microseconds and changes nothing.
///
/// ```
/// use gdsync::process::Process;
///
/// let me = Process::of(std::process::id())?;
/// assert!(me.runs && !me.stopped);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The number of its process group.
    pub group: i32,
    /// It has not ended: it is no zombie, which nobody has waited for.
    pub runs: bool,
    /// A signal or a debugger has stopped it.
    pub stopped: bool,
    /// It is about to end, or a signal has killed it and its parent has not taken notice.
    pub dying: bool,
    /// When it began, in clock ticks since the machine started: tells it apart from others that have had its number.
    pub began: u64,
}

impl Process {
    /// Looks at the process with this number.
    ///
    /// # Errors
    /// There is no such process, it may not be seen, or `/proc` is not mounted.
    pub fn of(pid: u32) -> io::Result<Process> {
        Process::read(pid)
    }

    /// Looks at this process, also where `/proc` is that of another namespace of process numbers.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn own() -> io::Result<Process> {
        Process::read("self")
    }

    fn read(name: impl Display) -> io::Result<Process> {
        let stat = std::fs::read(format!("/proc/{name}/stat"))?;
        let unknown = || io::Error::new(io::ErrorKind::InvalidData, "not as proc(5) describes it");
        parse(&stat).ok_or_else(unknown)
    }
}

/// Copies `len` bytes at an address of another process to `to`, without that process, if the system lets this one
/// (`process_vm_readv(2)`: the same user, and `ptrace` is not restricted).
///
/// # Errors
/// What the system says: it may not, the process has ended, or has nothing there. Some of the bytes may have been copied.
///
/// # Safety
/// `len` bytes are valid for writes at `to`, and nobody else uses them meanwhile.
pub unsafe fn read_memory(pid: u32, address: u64, to: *mut u8, len: usize) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let local = libc::iovec { iov_base: to.wrapping_add(done).cast(), iov_len: len - done };
        let there = (address as usize).wrapping_add(done) as *mut libc::c_void;
        let remote = libc::iovec { iov_base: there, iov_len: len - done };
        // SAFETY: one range on each side; the caller's promise for this one, and the system checks the other.
        let copied = unsafe { libc::process_vm_readv(pid as i32, &local, 1, &remote, 1, 0) };
        match usize::try_from(copied) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(copied) => done += copied,
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}

/// `PID (NAME) STATE PPID PGRP SESSION TTY TPGID FLAGS …`, of which field 22 is the time of the start. The name may hold anything,
/// brackets and spaces too.
fn parse(stat: &[u8]) -> Option<Process> {
    // include/linux/sched.h.
    const PF_EXITING: u32 = 0x4;
    const PF_SIGNALED: u32 = 0x400;
    let behind_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let pid = std::str::from_utf8(stat.split(|byte| *byte == b' ').next()?).ok()?;
    let rest = std::str::from_utf8(&stat[behind_name..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    let flags: u32 = fields.nth(3)?.parse().ok()?;
    let runs = !matches!(state, "Z" | "X" | "x");
    Some(Process {
        pid: pid.parse().ok()?,
        group,
        runs,
        stopped: matches!(state, "T" | "t"),
        dying: flags & PF_SIGNALED != 0 || runs && flags & PF_EXITING != 0,
        began: fields.nth(12)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    /// The line of process 7 in group 5, which began at 1234.
    fn line(name: &[u8], state: &str, flags: u32) -> Vec<u8> {
        let rest = format!(") {state} 1 5 5 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 1234 4096 1");
        [b"7 (", name, rest.as_bytes()].concat()
    }

    #[test]
    fn numbers_are_found_behind_any_name() {
        for name in [&b"sh"[..], b"a) Z 1 9 (b)", b"\xff", b""] {
            let process = parse(&line(name, "R", 0)).unwrap();
            assert_eq!((process.pid, process.group, process.began), (7, 5, 1234));
        }
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"7 (sh) S 1 5 5 0"), None);
    }

    #[test]
    fn a_process_that_ends_is_told_from_one_that_runs_and_one_that_has_ended() {
        let found = |state: &str, flags: u32| {
            let process = parse(&line(b"sh", state, flags)).unwrap();
            (process.runs, process.stopped, process.dying)
        };
        assert_eq!(found("S", 0x40_0000), (true, false, false));
        assert_eq!(found("T", 0x40_0000), (true, true, false));
        assert_eq!(found("R", 0x40_0004), (true, false, true), "on its way out");
        assert_eq!(found("D", 0x40_0400), (true, false, true), "killed");
        assert_eq!(found("Z", 0x40_0404), (false, false, true), "killed, and not reaped");
        assert_eq!(found("Z", 0x40_0004), (false, false, false), "exited, and not reaped");
    }

    #[test]
    fn a_process_runs_until_it_has_ended_and_is_nobody_once_it_was_waited_for() {
        assert_eq!(Process::of(std::process::id()).unwrap(), Process::own().unwrap());
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(Process::of(child.id()).unwrap().runs);
        child.kill().unwrap();
        while Process::of(child.id()).unwrap().runs {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
        assert!(Process::of(child.id()).is_err());
    }
}
