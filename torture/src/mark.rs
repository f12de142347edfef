//! How a rank of a storm makes itself heard: sentences on standard error with its rank in front, and a file that says that
//! the moment of its fault has come.

use std::path::PathBuf;

use crate::storm::Stop;

/// The folder in which a run's processes leave their marks; set by the supervisor.
pub const FOLDER: &str = "MP_TORTURE_FOLDER";
/// The file that the victim makes at its moment.
pub const STRUCK: &str = "struck";

/// What sentences begin with.
#[derive(Debug, Default)]
pub struct Mark {
    /// Known once there is a world.
    pub rank: Option<usize>,
    stopped: bool,
}

impl Mark {
    /// Says something.
    pub fn say(&self, text: &str) {
        match self.rank.map(|rank| rank.to_string()).or_else(|| std::env::var("MP_RANK").ok()) {
            Some(rank) => mp_program::errln!("storm: rank {rank}: {text}"),
            None => mp_program::errln!("storm: {text}"),
        }
    }

    /// Says why it stops, once.
    pub fn say_stop(&mut self, stop: &Stop) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        match stop {
            Stop::Failed(why) => self.say(why),
            Stop::Wrong(what) => self.say(&format!("WRONG: {what}")),
        }
    }

    /// The moment has come.
    pub fn announce(&self) {
        let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
        if let Err(error) = std::fs::write(folder.join(STRUCK), "") {
            self.say(&format!("cannot write {}: {error}", folder.join(STRUCK).display()));
        }
    }
}
