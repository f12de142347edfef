//! How a rank finds that its world is over, or ends it: what it sees of its neighbours, and what they break.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gdsync::process::Process;

use super::{HELP, Plane};
use crate::control::cause::{Cause, Loss};
use crate::data::name::{Progress, What};
use crate::data::wait::Backoff;
use crate::error::{Error, Result};

/// How long the news of a rank that left may take, on a busy machine too.
const NEWS: Duration = Duration::from_secs(5);

/// How long a process may take from the closing of its files to its end, also where it waits for a processor.
const ENDING: Duration = Duration::from_secs(2);

impl Plane {
    /// Whether the world is over. Cheap.
    #[inline]
    pub fn ended(&self) -> bool {
        self.control.abort_word().load(Ordering::Acquire) != 0 || self.control.finished()
    }

    /// An error if the world is over, for an operation that has been going on for `age`.
    #[inline]
    pub fn check_after(&self, age: Duration, op: impl FnOnce() -> String) -> Result<()> {
        if self.ended() { self.control.check_after(&op(), age) } else { Ok(()) }
    }

    /// Pauses, unless there is nothing to wait for any more: the world is over, or the deadline has passed. Whoever calls it
    /// looks for what he waits for *after* he has seen the world over, since what arrived before its end counts.
    pub fn pause(&self, backoff: &mut Backoff, progress: impl FnOnce() -> Progress) -> Result<()> {
        if backoff.world_ended() {
            let Progress { what, age, .. } = progress();
            return self.check_after(age, || what.to_string());
        }
        if self.ended() {
            backoff.end_world();
            return Ok(());
        }
        if backoff.pause() {
            return Ok(());
        }
        let Progress { what: What { name, expected, seen }, age, why } = progress();
        Err(Error::Late {
            op: name.to_string(),
            rank: name.rank,
            host: name.host.clone(),
            tag: name.tag,
            expected,
            seen,
            age,
            why: why.into(),
        })
    }

    /// A neighbour's memory could not be mapped: if that is because its process has ended, the world is over. Waits until it
    /// is known what has ended it, which may be another rank.
    pub fn suspect(&self, neighbour: usize, error: &gdsync::Error) {
        if let gdsync::Error::PeerUnreachable { pid, .. } = error {
            self.suspect_process(neighbour, *pid, error.to_string());
        }
    }

    /// The same of anything else of a neighbour's process that could not be had.
    pub fn suspect_process(&self, neighbour: usize, pid: u32, detail: String) {
        // Nobody, or the remains of somebody, has ended.
        if Process::of(pid).is_ok_and(|process| process.runs) {
            return;
        }
        let rank = self.neighbours[neighbour].rank;
        let host = self.peer(rank).host.clone();
        let cause = Cause::Lost { rank: rank as u32, host, how: Loss::Path { detail } };
        self.control.report(cause.clone());
        let until = Instant::now() + self.verdict;
        while !self.ended() {
            if Instant::now() > until {
                self.control.fail(cause);
                return;
            }
            std::thread::sleep(HELP);
        }
    }

    /// Waits until a process whose files are closed is seen to have ended, or the world has: it closes them before its end, and one
    /// that leaves a lost world does so, too. Not for the thread by which the news of the world come.
    pub fn await_ending(&self, pid: u32) {
        let until = Instant::now() + ENDING;
        let runs = || Process::of(pid).is_ok_and(|process| process.runs);
        while !self.ended() && runs() && Instant::now() < until {
            std::thread::sleep(HELP);
        }
    }

    /// The memory of rank `rank` could not be mapped: the error that `op` is to end with is what ended the world, if its process
    /// has ended, which is waited for as by [`suspect`](Self::suspect), else `failed`.
    pub fn unmapped(
        &self,
        rank: usize,
        op: impl FnOnce() -> String,
        source: gdsync::Error,
        failed: impl FnOnce(gdsync::Error) -> Error,
    ) -> Error {
        if let Ok(neighbour) = self.neighbour(rank) {
            self.suspect(neighbour, &source);
        }
        match self.check_after(Duration::ZERO, op) {
            Ok(()) => failed(source),
            Err(ended) => ended,
        }
    }

    /// A neighbour that leaves takes its arena and its queues along; the news of it, which say more, are on their way.
    pub(super) fn news_of_leaving(&self) -> Result<()> {
        let until = Instant::now() + NEWS;
        while Instant::now() < until {
            self.control.check("reaching a neighbour")?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// A neighbour breaks the protocol: the world is over.
    pub fn breach(&self, neighbour: usize, what: &str) -> Error {
        self.nonsense(self.neighbours[neighbour].rank, what)
    }

    pub fn not_introduced(&self, rank: usize) -> Error {
        self.nonsense(rank, "it was not introduced")
    }

    pub fn nonsense(&self, rank: usize, what: &str) -> Error {
        let host = &self.peer(rank).host;
        self.control.breach(format!("the data plane of rank {rank} on {host}: {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_that_has_ended_is_a_rank_lost_and_of_one_that_lives_memory() {
        let worlds = crate::World::threads(2).unwrap();
        let plane = worlds[0].plane();
        let unmapped = |pid| {
            let source = gdsync::Error::PeerUnreachable { pid, why: "a test".into() };
            let failed = |source| Error::Memory { op: "opening a window".into(), source };
            plane.unmapped(1, || "opening a window".into(), source, failed).to_string()
        };
        let living = unmapped(std::process::id());
        assert!(living.contains("cannot be mapped"), "{living}");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let ended = unmapped(child.id());
        assert!(ended.contains("rank 1") && ended.contains("is lost"), "{ended}");
    }
}
