//! What a job may leave behind, and must not: processes, names in /dev/shm, sockets on its port.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How long the system may take to remove what has ended.
const PATIENCE: Duration = Duration::from_secs(2);

/// What there was before a job.
#[derive(Debug)]
pub struct Before {
    names: BTreeSet<String>,
}

/// What a job has left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Left {
    /// Its processes that still run.
    pub processes: Vec<u32>,
    /// New names in /dev/shm, and sockets on its port that are not merely being forgotten.
    pub others: Vec<String>,
}

impl Before {
    /// Looks.
    pub fn look() -> Result<Before> {
        Ok(Before { names: names()? })
    }

    /// What is there now that was not, of the job whose processes have `folder` in their environment and met at `address`.
    pub fn left(&self, folder: &Path, address: Option<&str>) -> Result<Left> {
        let until = Instant::now() + PATIENCE;
        loop {
            let new = |name: &String| !self.names.contains(name) && !is_of_others(name);
            let mut others: Vec<String> =
                names()?.into_iter().filter(new).map(|name| format!("/dev/shm/{name}")).collect();
            others.extend(address.map(sockets).transpose()?.into_iter().flatten());
            let left = Left { processes: processes(folder)?, others };
            if left == Left::default() || Instant::now() >= until {
                return Ok(left);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Names that libmp's own tests and other programs make: ours have no names at all, so only what looks like ours counts.
fn is_of_others(name: &str) -> bool {
    !(name.contains("mp") || name.contains("torture") || name.contains("storm"))
}

fn names() -> Result<BTreeSet<String>> {
    let folder = std::fs::read_dir("/dev/shm").context("/dev/shm")?;
    Ok(folder.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

/// Processes, zombies excepted, that were started with `folder` in their environment.
pub fn processes(folder: &Path) -> Result<Vec<u32>> {
    let mark = format!("{}={}", crate::mark::FOLDER, folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").context("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // What ends meanwhile, or belongs to somebody else, cannot be read: it is not ours.
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Sockets at `address` (127.0.0.1:PORT) that somebody still holds: any state but those of a connection that was closed.
fn sockets(address: &str) -> Result<Vec<String>> {
    let Some(port) = address.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()) else {
        return Ok(Vec::new());
    };
    let table = std::fs::read_to_string("/proc/net/tcp").context("/proc/net/tcp")?;
    Ok(held(&table, port))
}

/// Lines of `/proc/net/tcp`: the second field is the local address, the third the remote one, the fourth the state.
fn held(table: &str, port: u16) -> Vec<String> {
    const ESTABLISHED: &str = "01";
    const CLOSE_WAIT: &str = "08";
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    let ours = |line: &&str| {
        let field: Vec<&str> = line.split_whitespace().collect();
        field.len() > 3
            && (field[1].ends_with(&port) || field[2].ends_with(&port))
            && [ESTABLISHED, CLOSE_WAIT, LISTEN].contains(&field[3])
    };
    table.lines().filter(ours).map(|line| format!("a socket: {}", line.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_found_and_one_that_was_closed_is_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert_eq!(sockets(&address).unwrap().len(), 1);
        drop(listener);
        // A program that another test starts holds what this process had open until it is executed.
        let until = Instant::now() + PATIENCE;
        while !sockets(&address).unwrap().is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(sockets(&address).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn time_wait_is_no_leak() {
        let line =
            "   1: 0100007F:1F90 0100007F:C350 06 00000000:00000000 03:00001770 00000000 0 0 0 3";
        assert!(held(line, 0x1f90).is_empty());
        assert_eq!(held(&line.replace(" 06 ", " 08 "), 0x1f90).len(), 1);
    }

    #[test]
    fn a_process_is_found_by_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env(crate::mark::FOLDER, folder.path())
            .spawn()
            .unwrap();
        // A program that has just been started has no environment yet for a moment.
        let until = Instant::now() + PATIENCE;
        let found = loop {
            let found = processes(folder.path()).unwrap();
            if !found.is_empty() || Instant::now() >= until {
                break found;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [child.id()]);
        assert!(processes(folder.path()).unwrap().is_empty());
    }
}
