//! Host name, kernel, processor and memory, from the system's own files.

use std::fs;

use serde::Serialize;

/// The machine.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// Processor, as it calls itself.
    pub processor: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in bytes; 0 if unknown.
    pub memory: u64,
}

impl Machine {
    /// Looks at this machine.
    pub fn collect() -> Machine {
        let line = |path: &str| {
            fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
        };
        let field = |path: &str, name: &str| {
            let text = fs::read_to_string(path).ok()?;
            let value =
                text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix(':'))?;
            Some(value.trim().to_owned())
        };
        let kib = field("/proc/meminfo", "MemTotal")
            .and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
        Machine {
            host: line("/proc/sys/kernel/hostname"),
            kernel: line("/proc/sys/kernel/osrelease"),
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            memory: kib.unwrap_or(0) * 1024,
        }
    }
}
