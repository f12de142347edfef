//! Limits of the host that every job meets: shared memory, the memory of control groups, open files.

use gdsync::limits;

use super::{Facts, Finding, defect, unknown, warning};

/// Less than this of shared memory, or of a control group's, is met by small jobs.
const SMALL: u64 = 1 << 30;
/// Connections, files and devices of a rank, and of rank 0 a connection to each of hundreds of others.
const FEWEST_FILES: u64 = 1024;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    [shared_memory(facts), memory_group(facts), files(facts)].into_iter().flatten().collect()
}

fn shared_memory(facts: &Facts) -> Option<Finding> {
    let expected = "a tmpfs at /dev/shm of 1 GiB or more";
    let mend = "mount -o remount,size=50% /dev/shm; in a container: start it with --shm-size=16g, or --ipc=host";
    let Some(mounts) = facts.read("proc/self/mountinfo") else {
        let found = "/proc/self/mountinfo cannot be read: how large /dev/shm is is not known";
        return Some(unknown("shm", found, expected, "look at: df -h /dev/shm"));
    };
    // ID PARENT DEVICE ROOT POINT OPTIONS … - TYPE SOURCE OPTIONS, proc(5). The last one at a point is what is seen.
    let at_shm = |line: &&str| line.split_whitespace().nth(4) == Some("/dev/shm");
    let Some((_, back)) = mounts.lines().rfind(at_shm).and_then(|line| line.split_once(" - "))
    else {
        let found = "nothing is mounted at /dev/shm";
        let mend =
            "mount -t tmpfs -o mode=1777 tmpfs /dev/shm; in a container: start it with --ipc=host";
        return (!facts.exists("dev/shm")).then(|| defect("shm", found, expected, mend));
    };
    // Without a size a tmpfs takes half of the memory.
    let size = back.split([',', ' ']).find_map(|option| option.strip_prefix("size="))?;
    let (number, unit) = match size.char_indices().last()? {
        (at, 'k') => (&size[..at], 1 << 10),
        (at, 'm') => (&size[..at], 1 << 20),
        (at, 'g') => (&size[..at], 1 << 30),
        _ => (size, 1),
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (bytes < SMALL).then(|| {
        warning(
            "shm",
            format!(
                "/dev/shm holds {} MiB: libmp does without it, but NCCL, NVSHMEM and MPI keep their shared memory there",
                bytes >> 20
            ),
            expected,
            mend,
        )
    })
}

fn memory_group(facts: &Facts) -> Option<Finding> {
    let rooms = limits::control_groups(facts.root());
    let room = rooms.iter().min_by_key(|room| room.bytes).filter(|room| room.bytes < SMALL)?;
    // A machine that has no more itself loses nothing by its control groups.
    facts.memory().filter(|memory| *memory > 2 * SMALL)?;
    Some(warning(
        "memory-cgroup",
        format!("the {} leaves {} MiB of memory", room.by, room.bytes >> 20),
        "1 GiB or more",
        "in a container: a larger --memory; in Slurm: --mem; in systemd: systemctl set-property UNIT MemoryMax=",
    ))
}

fn files(facts: &Facts) -> Option<Finding> {
    let expected = format!("{FEWEST_FILES} or more");
    let Some(limit) = facts.limit("Max open files") else {
        let found = "/proc/self/limits does not say how many files may be open";
        return Some(unknown("files", found, expected, "look at: ulimit -n"));
    };
    (limit < FEWEST_FILES).then(|| {
        warning(
            "files",
            format!("a process may have {limit} files open; rank 0 holds one for every other rank, a window one for each rank of the host"),
            expected,
            "ulimit -n 65536; to stay: echo '* - nofile 65536' >/etc/security/limits.d/files.conf; in a container --ulimit nofile=65536",
        )
    })
}
