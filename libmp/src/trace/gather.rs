//! The way of a world's timeline into its file: opened in time to say that it cannot be, collected from all ranks over the
//! control plane, written by rank 0.

use std::fs::OpenOptions;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Part, Trace, write};
use crate::collective::{BLOB_MAX, RESULT_MAX};
use crate::communicator::Communicator;
use crate::config::Config;
use crate::error::{Error, Result};

/// Which timeline a world keeps: rank 0 decides, and tells all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct File {
    /// Rank 0's path.
    path: String,
    /// Events that each rank keeps.
    pub events: u64,
}

impl File {
    /// What `config` asks for, if it can be had; if not, that is said and the world goes on without.
    pub fn open(config: &Config) -> Option<File> {
        let path = config.trace.as_ref()?;
        if let Err(error) = OpenOptions::new().create(true).append(true).open(path) {
            complain(&format!("no timeline: {} cannot be written: {error}", path.display()));
            return None;
        }
        Some(File { path: path.to_string_lossy().into_owned(), events: config.trace_events as u64 })
    }

    /// Collects the ranks' parts and writes them: every rank calls it at the end. A file that cannot be written is said,
    /// and is no error.
    ///
    /// # Errors
    /// What ended the world.
    pub fn finish(&self, communicator: &Communicator, trace: &Trace) -> Result<()> {
        let Some(parts) = gather(communicator, trace.part())? else { return Ok(()) };
        let written = decode(&parts).and_then(|parts| write(&PathBuf::from(&self.path), &parts));
        match written {
            Ok(summary) => {
                let super::Summary { ranks, events, lost, bytes } = summary;
                tracing::info!(path = self.path, ranks, events, lost, bytes, "timeline written");
                if lost > 0 {
                    complain(&format!(
                        "the timeline {} lacks {lost} events: raise MP_TRACE_EVENTS={}",
                        self.path, self.events
                    ));
                }
            }
            Err(error) => complain(&format!("the timeline is lost: {error}")),
        }
        Ok(())
    }

    /// Writes what this rank knows by itself, in a world that has failed.
    pub fn salvage(&self, rank: usize, trace: &Trace) {
        let Some(part) = trace.part() else { return };
        let path = format!("{}.rank-{rank}", self.path);
        match write(&PathBuf::from(&path), &[part]) {
            Ok(_) => tracing::warn!(path, "the world has failed: this rank's timeline alone"),
            Err(error) => complain(&format!("the timeline is lost: {error}")),
        }
    }
}

/// Says it to whoever listens to the log and to whoever looks at the terminal: a program without a subscriber would
/// otherwise lose its timeline without a word.
fn complain(text: &str) {
    tracing::warn!("{text}");
    crate::patience::say(text);
}

/// The parts of all ranks as bytes, in rank order, at rank 0; `None` elsewhere. A collective call, in as many pieces as it
/// takes.
pub(crate) fn gather(
    communicator: &Communicator,
    part: Option<Part>,
) -> Result<Option<Vec<Vec<u8>>>> {
    let mine = part.map(|part| part.to_bytes()).unwrap_or_default();
    let piece = BLOB_MAX.min(RESULT_MAX / communicator.size() - 8);
    let rounds = communicator.max(mine.len().div_ceil(piece) as u64)?;
    let mut all = vec![Vec::new(); communicator.size()];
    for round in 0..rounds as usize {
        let from = (round * piece).min(mine.len());
        let blob = &mine[from..(from + piece).min(mine.len())];
        for (whole, blob) in all.iter_mut().zip(communicator.gather(0, blob)?.unwrap_or_default()) {
            whole.extend(blob);
        }
    }
    Ok((communicator.rank() == 0).then_some(all))
}

/// The parts of those ranks that have one.
pub(crate) fn decode(parts: &[Vec<u8>]) -> Result<Vec<Part>> {
    let parts = parts.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty());
    let decode = |(rank, bytes): (usize, &Vec<u8>)| {
        Part::from_bytes(bytes).ok_or_else(|| Error::Mismatch {
            op: "collecting the timeline".into(),
            reason: format!("what rank {rank} sent is no part of one"),
        })
    };
    parts.map(decode).collect()
}
