//! Another library's program that takes part: its output is caught, so that it can be asked line by line and its last words are
//! at hand when it fails. It knows nothing of what is measured.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow};

/// How long a program that has closed its output may take to end, and its last words to arrive.
const AT_ITS_END: Duration = Duration::from_secs(2);
/// Lines that wait to be read; a program that says more waits, too.
const UNREAD: usize = 1024;
/// Bytes of a line; what is longer is several.
const LINE: u64 = 4096;
/// Lines and characters of last words.
const WORDS: (usize, usize) = (3, 400);

/// See [`patience`].
const PATIENCE: Duration = Duration::from_secs(60);

/// A program with its input and output; killed when dropped.
///
/// ```
/// use std::process::Command;
/// use std::time::{Duration, Instant};
///
/// use mp_program::peer::Program;
///
/// # fn main() -> anyhow::Result<()> {
/// let soon = Instant::now() + Duration::from_secs(60);
/// let mut cat = Program::start("cat", &mut Command::new("cat"))?;
/// cat.say("ok 42")?;
/// assert_eq!(cat.answer("ok", soon)?, "42");
/// cat.end(soon)?;
/// # Ok(())
/// # }
/// ```
pub struct Program {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    /// The last lines of its output and of its errors.
    last: [Tail; 2],
}

/// The last lines of a stream that say something, and whether it has ended.
#[derive(Clone, Default)]
struct Tail(Arc<Mutex<(VecDeque<String>, bool)>>);

impl Tail {
    /// Reads a stream to its end, on a thread; each line goes to `lines` and, if wished, to standard error, too.
    fn follow(
        &self,
        stream: impl Read + Send + 'static,
        lines: Option<SyncSender<String>>,
        aloud: bool,
    ) {
        let tail = self.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut bytes = Vec::new();
            while matches!(reader.by_ref().take(LINE).read_until(b'\n', &mut bytes), Ok(1..)) {
                let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
                bytes.clear();
                if aloud {
                    crate::errln!("{line}");
                }
                tail.keep(&line);
                // Where nobody reads any more, only its last words count.
                if let Some(lines) = &lines {
                    let _ = lines.send(line);
                }
            }
            tail.0.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        });
    }

    fn keep(&self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.0.len() == WORDS.0 {
            kept.0.pop_front();
        }
        kept.0.push_back(line.chars().filter(|c| !c.is_control()).take(WORDS.1).collect());
    }

    fn ended(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    fn words(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" / ")
    }
}

impl Program {
    /// Starts `command`, which is called `name` in errors, and catches what it says.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Result<Program> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Program::begin(name, command, false)
    }

    /// Starts `command` with this program's own input and output; its errors are passed on as they come.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_aloud(name: &str, command: &mut Command) -> Result<Program> {
        Program::begin(name, command, true)
    }

    fn begin(name: &str, command: &mut Command, aloud: bool) -> Result<Program> {
        let started = command.stderr(Stdio::piped()).spawn();
        let mut child = started.with_context(|| format!("{name} does not start"))?;
        let (input, last) = (child.stdin.take(), [Tail::default(), Tail::default()]);
        let (to, lines) = sync_channel(UNREAD);
        match child.stdout.take() {
            Some(output) => last[0].follow(output, Some(to), false),
            None => last[0].0.lock().unwrap_or_else(PoisonError::into_inner).1 = true,
        }
        if let Some(errors) = child.stderr.take() {
            last[1].follow(errors, None, aloud);
        }
        Ok(Program { name: name.into(), child, input, lines, last })
    }

    /// Gives it a line.
    ///
    /// # Errors
    /// It does not read any more: how it ended and its last words.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let said =
            self.input.as_mut().map(|input| writeln!(input, "{line}").and_then(|()| input.flush()));
        match said {
            Some(Ok(())) => Ok(()),
            _ => Err(self.failure("reads no more", AT_ITS_END)),
        }
    }

    /// What follows `word` in the next line that begins with it; libraries may print others before.
    ///
    /// # Errors
    /// A line that begins with `error`; it ended, or there is no answer by `deadline`: with its last words.
    pub fn answer(&mut self, word: &str, deadline: Instant) -> Result<String> {
        loop {
            let patience = deadline.saturating_duration_since(Instant::now());
            if let Some(answer) = self.hear(word, patience)? {
                return Ok(answer);
            }
            if Instant::now() >= deadline {
                return Err(self.silent(word));
            }
        }
    }

    /// What each of the programs answers, as [`Program::answer`]. One that fails is heard although the others wait for it.
    ///
    /// # Errors
    /// As [`Program::answer`], of the one that failed first.
    pub fn answers(all: &mut [Program], word: &str, deadline: Instant) -> Result<Vec<String>> {
        let mut answers = vec![None; all.len()];
        loop {
            for (program, answer) in all.iter_mut().zip(&mut answers) {
                if answer.is_none() {
                    *answer = program.hear(word, Duration::from_millis(2))?;
                }
            }
            let Some(late) = answers.iter().position(Option::is_none) else {
                return Ok(answers.into_iter().flatten().collect());
            };
            if Instant::now() >= deadline {
                return Err(all[late].silent(word));
            }
        }
    }

    /// The answer, if the next line is one; none if that says something else, or does not come within `patience`.
    fn hear(&mut self, word: &str, patience: Duration) -> Result<Option<String>> {
        let line = match self.lines.recv_timeout(patience) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(self.failure("says no more", AT_ITS_END));
            }
        };
        match line.split_once(' ') {
            Some((first, rest)) if first == word => Ok(Some(rest.to_owned())),
            Some(("error", rest)) => Err(anyhow!("{}: {rest}", self.name)),
            _ => Ok(None),
        }
    }

    fn silent(&mut self, word: &str) -> Error {
        self.failure(&format!("gave no {word:?} in time"), Duration::ZERO)
    }

    /// No more lines for it.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// All lines it says from now on, and that it ended well.
    ///
    /// # Errors
    /// It ended otherwise, or not by `deadline`: with its last words.
    pub fn end(mut self, deadline: Instant) -> Result<Vec<String>> {
        self.close();
        let mut lines = Vec::new();
        while let Ok(line) =
            self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            // What nobody will read is as good as silence.
            if Instant::now() >= deadline {
                break;
            }
            if lines.len() < UNREAD {
                lines.push(line);
            }
        }
        match self.status(deadline.max(Instant::now() + AT_ITS_END)) {
            Some(status) if status.success() => Ok(lines),
            _ => Err(self.failure("did not end in time", Duration::ZERO)),
        }
    }

    /// Waits for its end as long as it takes.
    ///
    /// # Errors
    /// It did not end well: how, and its last words.
    pub fn wait(mut self) -> Result<()> {
        let status = self.child.wait().with_context(|| format!("waiting for {}", self.name))?;
        if !status.success() {
            return Err(self.failure("failed", AT_ITS_END));
        }
        self.hear_out();
        Ok(())
    }

    /// Waits a while for what it wrote before its end, which is on its way; somebody it started may keep the stream open.
    fn hear_out(&self) {
        let patience = Instant::now() + AT_ITS_END;
        while !self.last.iter().all(Tail::ended) && Instant::now() < patience {
            while self.lines.try_recv().is_ok() {}
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How it ended, if it has by `deadline`.
    fn status(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What is said of it when it fails: how it ended, or else `complaint` if it has not within `patience`, and its last
    /// words: of standard error, or of standard output where that is silent. It is ended if it has not.
    fn failure(&mut self, complaint: &str, patience: Duration) -> Error {
        let ended = match self.status(Instant::now() + patience) {
            Some(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => format!("was killed by {}", signal_name(signal)),
                (None, Some(code)) => format!("exited with status {code}"),
                (None, None) => complaint.to_owned(),
            },
            None => format!("{complaint} and was ended"),
        };
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.hear_out();
        let words = self.last.iter().rev().map(Tail::words).find(|words| !words.is_empty());
        match words {
            Some(words) => anyhow!("{} {ended}; its last words: {words}", self.name),
            None => anyhow!("{} {ended} without a word", self.name),
        }
    }
}

/// How long another library may take for what it is asked: a minute, or `MP_PERF_PATIENCE` seconds.
pub fn patience() -> Duration {
    let seconds = std::env::var("MP_PERF_PATIENCE").ok().and_then(|text| text.parse().ok());
    seconds.map_or(PATIENCE, Duration::from_secs)
}

/// The folders where Python's packages are, in which NVIDIA's wheels put their libraries: of every `python3` in `PATH`,
/// since mpirun puts its own folder before a virtual environment's.
pub fn site_packages() -> Vec<PathBuf> {
    let program = "import sys; print('\\n'.join(sys.path))";
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let pythons = std::env::split_paths(&folders).map(|folder| folder.join("python3"));
    let mut found = Vec::new();
    for python in pythons.filter(|python| python.is_file()) {
        let python = Program::start("python3", Command::new(python).args(["-c", program]));
        let lines = python.and_then(|python| python.end(Instant::now() + patience()));
        let lines = lines.unwrap_or_default().into_iter();
        found.extend(lines.filter(|line| !line.is_empty()).map(PathBuf::from));
    }
    found
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `SIGSEGV`, or `signal 44` where there is no name.
fn signal_name(signal: i32) -> String {
    let name = signal_hook::low_level::signal_name(signal);
    name.map_or_else(|| format!("signal {signal}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_in::stand_in;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// What is said of a program of one line when it is asked for "ok".
    fn asked(body: &str, deadline: Instant) -> String {
        let folder = tempfile::tempdir().unwrap();
        let peer = stand_in(folder.path(), "peer", body);
        let mut peer = Program::start("peer", &mut Command::new(peer)).unwrap();
        let _ = peer.say("measure");
        peer.answer("ok", deadline).unwrap_err().to_string()
    }

    #[test]
    fn every_way_to_fail_is_told_with_the_last_words() {
        let error = asked("echo banner; echo 'init.cu:77: no transport' >&2; exit 3", soon());
        assert_eq!(error, "peer exited with status 3; its last words: init.cu:77: no transport");
        let error = asked("echo 'only this'; echo; kill -SEGV $$", soon());
        assert_eq!(error, "peer was killed by SIGSEGV; its last words: only this");
        assert_eq!(asked("exit 1", soon()), "peer exited with status 1 without a word");
        assert_eq!(asked("echo error no such GPU; exit 1", soon()), "peer: no such GPU");
        let error = asked("read -r line; exec >&-; echo closed >&2; exec sleep 1000", soon());
        assert_eq!(error, "peer says no more and was ended; its last words: closed");
    }

    #[test]
    fn a_peer_that_hangs_or_talks_without_an_end_is_ended_at_the_deadline() {
        let shortly = || Instant::now() + Duration::from_millis(300);
        let error = asked("echo waiting >&2; exec sleep 1000", shortly());
        assert_eq!(error, "peer gave no \"ok\" in time and was ended; its last words: waiting");
        let error = asked("while :; do echo never; done", shortly());
        assert!(error.starts_with("peer gave no \"ok\" in time and was ended"), "{error}");
        assert!(error.contains("never"), "{error}");
        // A line without an end, and bytes that are no text. Its question is read first: a peer that has closed its input before
        // it is asked reads no more, which is another failure.
        let error = asked("read -r line; exec tr '\\0' '\\377' </dev/zero", shortly());
        assert!(error.starts_with("peer gave no \"ok\" in time and was ended"), "{error}");
        assert!(error.chars().count() < 2000, "{error}");
    }

    #[test]
    fn a_peer_that_is_no_program_is_told_from_one_that_fails() {
        let error = Program::start("peer", &mut Command::new("/none/peer")).err().unwrap();
        assert!(format!("{error:#}").starts_with("peer does not start: No such file"), "{error:#}");
    }

    #[test]
    fn what_is_on_its_way_when_a_peer_has_ended_is_heard() {
        let folder = tempfile::tempdir().unwrap();
        let peer = stand_in(folder.path(), "peer", "(sleep 0.3; echo late >&2) & exit 0");
        let peer = Program::start_aloud("peer", &mut Command::new(peer)).unwrap();
        let last = peer.last.clone();
        peer.wait().unwrap();
        assert_eq!(last[1].words(), "late");
    }

    #[test]
    fn the_end_of_a_peer_is_waited_for_and_judged() {
        let folder = tempfile::tempdir().unwrap();
        let start = |body: &str| {
            let peer = stand_in(folder.path(), "peer", body);
            Program::start("peer", &mut Command::new(peer)).unwrap()
        };
        assert_eq!(start("read -r x; echo a; echo b").end(soon()).unwrap(), ["a", "b"]);
        let error = start("read -r x; echo a; exit 4").end(soon()).unwrap_err().to_string();
        assert_eq!(error, "peer exited with status 4; its last words: a");
        let shortly = Instant::now() + Duration::from_millis(100);
        let error = start("exec sleep 1000").end(shortly).unwrap_err().to_string();
        assert_eq!(error, "peer did not end in time and was ended without a word");
    }
}
