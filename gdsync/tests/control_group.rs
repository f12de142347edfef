//! Memory that the control group of a process does not have is an error with numbers: the kernel would give it and then kill.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gdsync::Device;

const GROUP: &str = "MP_TEST_GROUP";
const MIB: usize = 1 << 20;

/// A group of its own with this limit, of whichever version the machine has; gone with the value.
struct Group(PathBuf);

impl Group {
    fn new(limit: usize) -> std::io::Result<Group> {
        let name = format!("mp-test-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory");
        let (path, file) = match first.is_dir() {
            true => (first.join(name), "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup").join(name), "memory.max"),
        };
        fs::create_dir(&path)?;
        let group = Group(path);
        fs::write(group.0.join(file), limit.to_string())?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// In the group; does nothing unless the test below started it.
#[test]
#[ignore = "started by another test"]
fn member() {
    let Ok(group) = std::env::var(GROUP) else { return };
    fs::write(Path::new(&group).join("cgroup.procs"), std::process::id().to_string()).unwrap();
    Device::Host.alloc_pinned::<u8>(8 * MIB).expect("there is room for this");
    let refused = Device::Host.alloc_pinned::<u8>(256 * MIB).unwrap_err().to_string();
    assert!(refused.contains("are available (control group /"), "{refused}");
}

#[test]
#[ignore = "needs root and control groups that can be made"]
fn memory_that_the_control_group_does_not_have_is_an_error() {
    let group = Group::new(64 * MIB).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["member", "--exact", "--ignored", "--nocapture"])
        .env(GROUP, &group.0)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}
