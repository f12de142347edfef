//! What the kernel says of other processes of this host. Decides nothing.

use std::fs::read_to_string;

/// Whether process `pid` is stopped, by a signal or a debugger, as far as can be known: proc_pid_stat(5).
pub(crate) fn is_stopped(pid: u32) -> bool {
    let status = read_to_string(format!("/proc/{pid}/stat")).ok();
    // The state follows the name, which is in brackets and may have any in it.
    let state = status.and_then(|text| text.rsplit_once(')')?.1.trim().chars().next());
    matches!(state, Some('T' | 't'))
}
