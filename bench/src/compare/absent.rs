//! Who of the others is absent, why, and what is done so that a comparison goes on without them.
//!
//! A program of another library fails by itself and is asked for its last words ([`mp_program::peer`]). A library in this
//! process (MPI, NCCL) may take the process with it, or never return: then whoever started the ranks starts them again
//! without that library, and says what its last words were. What has to outlive a process is in a folder, the journal: which
//! library each rank is in, the points that libraries have so far, and who is absent from now on.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libmp::World;
use mp_program::peer::patience;
use serde::{Deserialize, Serialize};

use crate::perf::RANKS;
use crate::result::{Absent, Figure, Point, Role, Series};

/// The folder, in the environment of the ranks.
const JOURNAL: &str = "MP_PERF_JOURNAL";

/// Which library each rank of this process is in, and since when.
static INSIDE: Mutex<BTreeMap<usize, (&'static str, Instant)>> = Mutex::new(BTreeMap::new());

fn inside() -> MutexGuard<'static, BTreeMap<usize, (&'static str, Instant)>> {
    INSIDE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A library that is absent, as whoever started the ranks found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    pub library: String,
    pub reason: String,
    /// The points it had: a figure, a series of it, a point.
    points: Vec<(String, String, Point)>,
}

/// The journal of a comparison.
#[derive(Debug, Clone)]
pub struct Journal {
    folder: Option<PathBuf>,
}

impl Journal {
    /// The one of whoever started this process; none if it was a launcher that knows nothing of it.
    pub fn of_this_process() -> Journal {
        Journal { folder: std::env::var_os(JOURNAL).map(PathBuf::from) }
    }

    /// None: who fails in this process takes it along.
    #[cfg(test)]
    pub fn none() -> Journal {
        Journal { folder: None }
    }

    /// A new one in an empty folder.
    pub fn begin(folder: &Path) -> Journal {
        Journal { folder: Some(folder.to_owned()) }
    }

    /// What the ranks find it by.
    pub fn variable(&self) -> Option<(&'static str, &Path)> {
        self.folder.as_deref().map(|folder| (JOURNAL, folder))
    }

    /// Says that the ranks have found each other.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn ranks_are_here(&self) -> Result<()> {
        self.append("begun", "")
    }

    /// Whether they had.
    pub fn ranks_were_here(&self) -> bool {
        self.folder.as_ref().is_some_and(|folder| folder.join("begun").exists())
    }

    /// Notes that `rank` is in `library` until what this returns is dropped.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn enter(&self, rank: usize, library: &'static str) -> Result<Inside> {
        watch();
        let file = self.folder.as_ref().map(|folder| inside_file(folder, rank));
        if let Some(file) = &file {
            std::fs::write(file, library).with_context(|| format!("writing {}", file.display()))?;
        }
        inside().insert(rank, (library, Instant::now()));
        Ok(Inside { rank, file })
    }

    /// The library in which the first of the ranks was that were in one when they ended.
    pub fn was_in(&self) -> Option<String> {
        let folder = self.folder.as_ref()?;
        (0..*RANKS.end()).find_map(|rank| std::fs::read_to_string(inside_file(folder, rank)).ok())
    }

    /// Keeps a point of a library in this process.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep(&self, library: &str, figure: &str, series: &str, point: &Point) -> Result<()> {
        let line = serde_json::to_string(&(library, (figure, series, point)))?;
        self.append("points", &format!("{line}\n"))
    }

    /// Notes that `library` is absent from now on, keeps the points it has, and forgets everybody else's: they are measured
    /// again.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn lose(&self, library: &str, reason: &str) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let mut points = Vec::new();
        for line in std::fs::read_to_string(folder.join("points")).unwrap_or_default().lines() {
            // The last line may have been cut.
            let Ok((whose, point)) = serde_json::from_str::<(String, _)>(line) else { continue };
            if whose == library {
                points.push(point);
            }
        }
        let lost = Lost { library: library.into(), reason: reason.into(), points };
        for name in ["points", "begun"] {
            let _ = std::fs::remove_file(folder.join(name));
        }
        for rank in 0..*RANKS.end() {
            let _ = std::fs::remove_file(inside_file(folder, rank));
        }
        self.append("lost", &format!("{}\n", serde_json::to_string(&lost)?))
    }

    /// Who is absent.
    pub fn lost(&self) -> Vec<Lost> {
        let Some(folder) = &self.folder else { return Vec::new() };
        let text = std::fs::read_to_string(folder.join("lost")).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Why `library` is absent, if it is.
    pub fn why_lost(&self, library: &str) -> Option<String> {
        self.lost().into_iter().find(|lost| lost.library == library).map(|lost| lost.reason)
    }

    fn append(&self, name: &str, text: &str) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let path = folder.join(name);
        let file = std::fs::File::options().append(true).create(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.with_context(|| format!("writing {}", path.display()))
    }
}

/// What says which library a rank is in.
fn inside_file(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("inside-{rank}"))
}

/// A rank is in a library of another.
pub struct Inside {
    rank: usize,
    file: Option<PathBuf>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        inside().remove(&self.rank);
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Ends this process when a library does not return. One thread for the process.
fn watch() {
    static WATCH: std::sync::Once = std::sync::Once::new();
    WATCH.call_once(|| {
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(Duration::from_millis(500));
                let late =
                    inside().values().find(|(_, since)| since.elapsed() > patience()).copied();
                if let Some((library, _)) = late {
                    mp_program::errln!("{library} did not return within {:?}", patience());
                    // Not `exit`: the library's own handlers may wait for it, too.
                    std::process::abort();
                }
            }
        });
    });
}

/// Lets all ranks know what became of a player on each, so that all go on with it or all without: the reason of the
/// first that failed. Collective.
///
/// # Errors
/// The world has failed.
pub fn agree<T>(world: &World, outcome: Result<T>) -> Result<Result<T, String>> {
    let mine = match &outcome {
        Ok(_) => String::new(),
        Err(error) => mp_program::sentence(error.as_ref()),
    };
    let all = world.all_gather(mine.as_bytes())?;
    let reason = all.iter().find(|said| !said.is_empty());
    Ok(match (reason, outcome) {
        (None, Ok(value)) => Ok(value),
        (Some(reason), _) => Err(String::from_utf8_lossy(reason).into_owned()),
        (None, Err(_)) => Err("it failed without a word".into()),
    })
}

/// The players of a figure, in the order of `failed`, that have failed and lack points or samples of it.
pub fn missing((title, all): (&str, &[Series]), failed: &[Option<String>]) -> Vec<Absent> {
    let size =
        |series: &Series| series.points.iter().map(|point| point.samples.len()).sum::<usize>();
    let most = all.iter().map(size).max().unwrap_or(0);
    let lacking = all.iter().zip(failed).filter(|(series, _)| size(series) < most);
    lacking
        .filter_map(|(series, reason)| {
            let (figure, player) = (title.to_owned(), series.name.clone());
            Some(Absent { figure, player, reason: reason.clone()? })
        })
        .collect()
}

/// Puts the points back into the figures that libraries had before they took their process along. A library that had all
/// points of a figure is not absent from it.
pub fn settle(figures: &mut [Figure], absent: &mut Vec<Absent>, lost: Vec<Lost>) {
    for Lost { library, points, .. } in lost {
        for figure in figures.iter_mut() {
            let most = figure.series.iter().map(|series| series.points.len()).max().unwrap_or(0);
            for (_, name, point) in points.iter().filter(|(title, ..)| *title == figure.title) {
                match figure.series.iter_mut().find(|series| series.name == *name) {
                    Some(series) => series.points.push(point.clone()),
                    None => {
                        let (name, points) = (name.clone(), vec![point.clone()]);
                        figure.series.push(Series { name, role: Role::Peer, points });
                    }
                }
            }
            let whole = |name: &String| {
                let series = figure.series.iter().find(|series| series.name == *name);
                series.is_some_and(|series| series.points.len() >= most)
            };
            let mut its = points.iter().filter(|(title, ..)| *title == figure.title).peekable();
            if its.peek().is_some() && its.all(|(_, name, _)| whole(name)) {
                absent.retain(|one| one.figure != figure.title || one.player != library);
            }
        }
    }
}
