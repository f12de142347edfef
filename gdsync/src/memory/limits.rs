//! How much memory there is still to take, and who says so: the machine, every control group this process is in (version 1
//! and 2, up to the root), and the process's own limits. Asked before memory is taken, because the kernel does not refuse:
//! it gives what there is not and then kills.
//!
//! Ranks of a host take memory one after the other (`Turn`), so that two do not count on the same.

use std::fmt;
use std::fs::read_to_string;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::process::{Resource, getrlimit};

use crate::process::Process;

/// What can still be taken, and by whose account.
///
/// ```
/// use gdsync::limits;
///
/// if let Some(room) = limits::host_room() {
///     println!("{} MiB to take: {}", room.bytes >> 20, room.by);
/// }
/// // Before memory is taken: the kernel does not refuse, it ends processes later.
/// if let Err(shortage) = limits::check(1 << 20, 4 << 20) {
///     println!("{shortage}"); // both numbers, and whose limit it is
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// Bytes, without what has to stay free.
    pub bytes: u64,
    /// Whose limit it is.
    pub by: String,
}

/// Memory that is not there.
///
/// See [`Room`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Bytes that were wanted.
    pub wanted: u64,
    /// Bytes that there are, by the tightest limit.
    pub there: Room,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        let Shortage { wanted, there } = self;
        let (wanted, room) = (mib(*wanted), mib(there.bytes));
        write!(
            f,
            "{wanted:.1} MiB of memory are wanted and {room:.1} MiB are available ({})",
            there.by
        )
    }
}

impl std::error::Error for Shortage {}

/// Whether this process may take `process` more bytes and all ranks of this host together `host`.
///
/// # Errors
/// [`Shortage`] with the tightest limit.
pub fn check(process: u64, host: u64) -> Result<(), Shortage> {
    for (wanted, there) in [(process, process_room()), (host, host_room())] {
        if let Some(there) = there.filter(|there| wanted > there.bytes) {
            return Err(Shortage { wanted, there });
        }
    }
    Ok(())
}

/// What all processes of this host may still take together; `None` where nothing says.
pub fn host_room() -> Option<Room> {
    tightest(machine(Path::new("/")).into_iter().chain(control_groups(Path::new("/"))))
}

/// What this process may still take by its own limits (`ulimit -v`, `ulimit -d`).
pub fn process_room() -> Option<Room> {
    let status = read_to_string("/proc/self/status").unwrap_or_default();
    let used = |field: &str| kib(&status, field).unwrap_or(0);
    let limits = [
        (Resource::As, "VmSize:", "limit of the address space, ulimit -v"),
        (Resource::Data, "VmData:", "limit of the data segment, ulimit -d"),
    ];
    tightest(limits.into_iter().filter_map(|(resource, field, by)| {
        Some(room(getrlimit(resource).current?, used(field), by.into()))
    }))
}

fn tightest(rooms: impl Iterator<Item = Room>) -> Option<Room> {
    rooms.min_by_key(|room| room.bytes)
}

/// What `limit` leaves when `used` is taken and a sixteenth of it, at most 1 GiB, stays free.
fn room(limit: u64, used: u64, by: String) -> Room {
    let margin = (limit / 16).min(1 << 30);
    Room { bytes: limit.saturating_sub(used).saturating_sub(margin), by }
}

/// A field of proc(5), in bytes.
fn kib(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn machine(root: &Path) -> Option<Room> {
    let text = read_to_string(root.join("proc/meminfo")).ok()?;
    let (total, available) = (kib(&text, "MemTotal:")?, kib(&text, "MemAvailable:")?);
    Some(room(total, total.saturating_sub(available), "what this machine has left".into()))
}

/// The names of a control group's limit and use.
const VERSIONS: [(&str, [&str; 2]); 2] = [
    ("cgroup2", ["memory.max", "memory.current"]),
    ("cgroup", ["memory.limit_in_bytes", "memory.usage_in_bytes"]),
];

/// What the control groups of this process leave, each level by itself, as the files below `root` (`/` for this machine) say.
pub fn control_groups(root: &Path) -> Vec<Room> {
    let read = |path: &str| read_to_string(root.join(path)).unwrap_or_default();
    let (member, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let mut rooms = Vec::new();
    for mount in mounts.lines() {
        // ID PARENT DEVICE ROOT POINT OPTIONS … - TYPE SOURCE OPTIONS, proc(5).
        let Some((front, back)) = mount.split_once(" - ") else { continue };
        let (front, back): (Vec<_>, Vec<_>) =
            (front.split_whitespace().collect(), back.split_whitespace().collect());
        let ([_, _, _, top, point, ..], [kind, _, options]) = (&front[..], &back[..]) else {
            continue;
        };
        let Some((_, names)) = VERSIONS.iter().find(|(version, _)| version == kind) else {
            continue;
        };
        let memory = |list: &str| list.split(',').any(|controller| controller == "memory");
        if *kind == "cgroup" && !memory(options) {
            continue;
        }
        // ID:CONTROLLERS:PATH; version 2 has no controllers there, cgroups(7).
        let path = member.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let ours = if *kind == "cgroup" { memory(controllers) } else { controllers.is_empty() };
            ours.then_some(path)
        });
        let Some(path) = path else { continue };
        let below = Path::new(path).strip_prefix(top).unwrap_or(Path::new(""));
        let point = root.join(point.trim_start_matches('/'));
        let folder: PathBuf = point.join(below);
        for level in folder.ancestors().take_while(|level| level.starts_with(&point)) {
            let number = |name: &str| -> Option<u64> {
                read_to_string(level.join(name)).ok()?.trim().parse().ok()
            };
            if let (Some(limit), Some(used)) = (number(names[0]), number(names[1])) {
                let stat = read_to_string(level.join("memory.stat")).unwrap_or_default();
                let field = |name: &str| -> Option<u64> {
                    let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
                    line.strip_prefix(' ')?.trim().parse().ok()
                };
                // Pages of files that the group can do without count as used. Version 1 says, too, what groups above
                // allow that a container does not see.
                let (inactive, above) = match *kind {
                    "cgroup" => ("total_inactive_file", field("hierarchical_memory_limit")),
                    _ => ("inactive_file", None),
                };
                let (limit, inactive) = (limit.min(above.unwrap_or(limit)), field(inactive));
                let used = used.saturating_sub(inactive.unwrap_or(0));
                let name = level.strip_prefix(root).unwrap_or(level);
                rooms.push(room(limit, used, format!("control group /{}", name.display())));
            }
        }
    }
    rooms
}

/// The turn of this process, or thread, to look at what there is and to take of it. Others of the host wait meanwhile, at
/// most half a minute, and not for a process that is stopped in its turn.
pub(crate) struct Turn(#[expect(dead_code, reason = "its lock is held")] Option<OwnedFd>);

impl Turn {
    pub(crate) fn take() -> Turn {
        let until = Instant::now() + Duration::from_secs(30);
        // A folder that all processes of a host have, if memory can be shared there at all; nothing is written.
        let folder =
            open("/dev/shm", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let Ok(folder) = folder else { return Turn(None) };
        let mut looks = 0u32;
        loop {
            match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Turn(Some(folder)),
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR)
                    if Instant::now() < until =>
                {
                    looks += 1;
                    if looks.is_multiple_of(100) && is_held_by_a_stopped_process(&folder) {
                        return Turn(None);
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(_) => return Turn(None),
            }
        }
    }
}

/// Whether who has locked this file is stopped, as far as the kernel says: `/proc/locks`, proc(5).
fn is_held_by_a_stopped_process(file: &OwnedFd) -> bool {
    let Ok(stat) = rustix::fs::fstat(file) else { return false };
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    let place = format!("{major:02x}:{minor:02x}:{}", stat.st_ino);
    let locks = read_to_string("/proc/locks").unwrap_or_default();
    // Number, kind, how, what, process, place, range; who waits has an arrow before the kind.
    let holder = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let held = fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&place.as_str());
        held.then(|| fields[4].parse().ok())?
    });
    holder.is_some_and(|pid| Process::of(pid).is_ok_and(|holder| holder.stopped))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_process_that_is_stopped_in_its_turn_is_not_waited_for() {
        use std::process::Command;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("turn");
        fs::write(&path, "").unwrap();
        let file: OwnedFd = fs::File::open(&path).unwrap().into();
        let held = || flock(&file, FlockOperation::NonBlockingLockExclusive).is_err();
        let mut holder =
            Command::new("flock").arg("-F").arg(&path).args(["sleep", "60"]).spawn().unwrap();
        let since = Instant::now();
        while !held() && since.elapsed() < Duration::from_secs(20) {
            let _ = flock(&file, FlockOperation::Unlock);
            std::thread::sleep(Duration::from_millis(5));
        }
        let runs = is_held_by_a_stopped_process(&file);
        let pid = rustix::process::Pid::from_child(&holder);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let since = Instant::now();
        let mut stopped = false;
        while !stopped && since.elapsed() < Duration::from_secs(20) {
            stopped = is_held_by_a_stopped_process(&file);
        }
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert!(!runs && stopped, "while it runs: {runs}, once it is stopped: {stopped}");
    }

    /// A root with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_machine_leaves_what_it_calls_available_but_for_a_sixteenth_of_all() {
        let root = root(&[(
            "proc/meminfo",
            "MemTotal:       1024000 kB\nMemFree: 1 kB\nMemAvailable:    512000 kB\n",
        )]);
        assert_eq!(machine(root.path()).unwrap().bytes, (512_000 - 64_000) * 1024);
    }

    #[test]
    fn a_limit_of_any_group_above_counts_in_version_2() {
        let root = root(&[
            ("proc/self/cgroup", "0::/jobs/one/rank\n"),
            ("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/jobs/one/rank/memory.max", "max\n"),
            ("sys/fs/cgroup/jobs/one/rank/memory.current", "4096\n"),
            ("sys/fs/cgroup/jobs/one/memory.max", "67108864\n"),
            ("sys/fs/cgroup/jobs/one/memory.current", "33554432\n"),
            ("sys/fs/cgroup/jobs/one/memory.stat", "anon 1\ninactive_file 16777216\n"),
            ("sys/fs/cgroup/jobs/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/jobs/memory.current", "33554432\n"),
        ]);
        let rooms = control_groups(root.path());
        assert_eq!(rooms.len(), 2, "{rooms:?}");
        let found = tightest(rooms.into_iter()).unwrap();
        let expected = Room { bytes: 44 * MIB, by: "control group /sys/fs/cgroup/jobs/one".into() };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_container_sees_its_group_of_version_1_as_the_root_of_the_mount() {
        let root = root(&[
            ("proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/docker/ab/deep\n"),
            (
                "proc/self/mountinfo",
                "31 24 0:27 /docker/ab /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n\
                 32 24 0:28 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/memory/deep/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/deep/memory.usage_in_bytes", "4096\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "4194304\n"),
        ]);
        let found = tightest(control_groups(root.path()).into_iter()).unwrap();
        let expected = Room { bytes: 56 * MIB, by: "control group /sys/fs/cgroup/memory".into() };
        assert_eq!(found, expected);
    }

    #[test]
    fn a_limit_above_what_a_container_sees_counts_in_version_1() {
        let root = root(&[
            ("proc/self/cgroup", "4:memory:/docker/ab\n"),
            (
                "proc/self/mountinfo",
                "32 24 0:28 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "4194304\n"),
            (
                "sys/fs/cgroup/memory/memory.stat",
                "cache 1\nhierarchical_memory_limit 67108864\ntotal_inactive_file 1048576\n",
            ),
        ]);
        let found = tightest(control_groups(root.path()).into_iter()).unwrap();
        assert_eq!(found.bytes, 57 * MIB);
    }

    #[test]
    fn a_shortage_says_what_is_wanted_what_there_is_and_who_says_so() {
        let shortage = check(0, u64::MAX).unwrap_err().to_string();
        assert!(
            shortage.contains("are wanted and") && shortage.contains("are available ("),
            "{shortage}"
        );
        assert_eq!(check(0, 0), Ok(()));
    }

    #[test]
    fn turns_come_one_after_the_other() {
        let count = std::sync::atomic::AtomicUsize::new(0);
        let taken = |_| {
            let turn = Turn::take();
            assert_eq!(count.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
            std::thread::sleep(Duration::from_millis(2));
            count.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            drop(turn);
        };
        let taken = &taken;
        std::thread::scope(|scope| (0..4).for_each(|i| drop(scope.spawn(move || taken(i)))));
    }
}
