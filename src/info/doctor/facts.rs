//! What the checks of the doctor look at: files below a root folder, read as they are asked for, and what several checks need
//! of them, parsed. Nothing here judges.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gdsync::Driver;

/// The facts of a machine.
#[derive(Debug)]
pub struct Facts {
    root: PathBuf,
    /// What the CUDA driver of this machine says: the number of GPUs, or its error; `None` where only files were read.
    pub(super) cuda: Option<gdsync::Result<u32>>,
    /// Error numbers of the device nodes that exist and could not be opened; only of this machine.
    pub(super) refused: BTreeMap<String, i32>,
    /// NVIDIA GPUs.
    pub(super) gpus: Vec<PciDevice>,
    /// RDMA devices of the kernel.
    pub(super) adapters: Vec<Adapter>,
    /// All PCI devices; `None` if they cannot be listed.
    pub(super) pci: Option<Vec<PciDevice>>,
    /// The process that asks.
    pub(super) process: Process,
}

/// A PCI device.
#[derive(Debug, Clone)]
pub(super) struct PciDevice {
    pub address: String,
    pub vendor: u32,
    /// Class, subclass and programming interface, a byte each.
    pub class: u32,
    /// The kernel driver that has it.
    pub driver: Option<String>,
    /// Its NUMA node; `None` if the firmware does not say.
    pub node: Option<u32>,
    /// Addresses of the bridges above it, from the root port down.
    pub bridges: Vec<String>,
}

/// An RDMA device.
#[derive(Debug)]
pub(super) struct Adapter {
    pub name: String,
    /// `None` for one made of software, such as rxe.
    pub pci: Option<PciDevice>,
}

/// What the kernel lets this process do.
#[derive(Debug, Default)]
pub(super) struct Process {
    user: u32,
    groups: Vec<u32>,
    capabilities: u64,
    /// Whether user numbers are those of the machine, not of a user namespace.
    of_the_machine: bool,
    /// Its environment.
    pub variables: BTreeMap<String, String>,
}

/// Whether a device node can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Access {
    Granted,
    Missing,
    /// Owner and mode forbid it.
    Mode(u32),
    /// The kernel refuses for another reason, this error number.
    Refused(i32),
}

const NVIDIA: u32 = 0x10de;
const DISPLAY: u32 = 0x03;
const DAC_OVERRIDE: u64 = 1 << 1;
const IPC_LOCK: u64 = 1 << 14;

impl Facts {
    /// Of this machine: reads its files, opens its device nodes, and asks the CUDA driver.
    pub fn here() -> Facts {
        let mut facts = Facts::below(Path::new("/"));
        facts.cuda = Some(Driver::load().map(|driver| driver.device_count()));
        for folder in ["dev", "dev/infiniband"] {
            for name in facts.list(folder).unwrap_or_default() {
                let path = format!("{folder}/{name}");
                let ours = ["dev/nvidia", "dev/infiniband/uverbs"];
                if !ours.iter().any(|ours| path.starts_with(ours)) || facts.path(&path).is_dir() {
                    continue;
                }
                if let Err(error) = File::options().read(true).write(true).open(facts.path(&path)) {
                    facts.refused.insert(path, error.raw_os_error().unwrap_or(0));
                }
            }
        }
        facts
    }

    /// Of the machine whose `/proc`, `/sys`, `/dev` and libraries stand below `root`. Reads files and nothing else.
    pub fn below(root: &Path) -> Facts {
        let mut facts = Facts {
            root: root.to_owned(),
            cuda: None,
            refused: BTreeMap::new(),
            gpus: Vec::new(),
            adapters: Vec::new(),
            pci: None,
            process: Process::default(),
        };
        facts.process = facts.process();
        facts.pci = facts.list("sys/bus/pci/devices").map(|addresses| {
            addresses.into_iter().filter_map(|address| facts.pci_device(address)).collect()
        });
        let devices = facts.pci.as_deref().unwrap_or_default();
        let is_gpu = |device: &&PciDevice| device.vendor == NVIDIA && device.class >> 16 == DISPLAY;
        facts.gpus = devices.iter().filter(is_gpu).cloned().collect();
        let adapter = |name: String| {
            let address = facts.target(&format!("sys/class/infiniband/{name}/device"));
            let pci = devices.iter().find(|device| Some(&device.address) == address.as_ref());
            Adapter { name, pci: pci.cloned() }
        };
        let names = facts.list("sys/class/infiniband").unwrap_or_default();
        facts.adapters = names.into_iter().map(adapter).collect();
        facts
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The root folder.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A file, without white space at its ends.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let bytes = self.bytes(path)?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    pub(super) fn bytes(&self, path: &str) -> Option<Vec<u8>> {
        fs::read(self.path(path)).ok()
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The names in a folder, sorted.
    pub(super) fn list(&self, path: &str) -> Option<Vec<String>> {
        let entries = fs::read_dir(self.path(path)).ok()?;
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.sort();
        Some(names)
    }

    /// The last name that a symbolic link points to.
    pub(super) fn target(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// A field of a file with lines of the form `name: value`.
    pub(super) fn field(&self, path: &str, name: &str) -> Option<String> {
        let text = self.read(path)?;
        let value =
            text.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_prefix(':'))?;
        Some(value.trim().to_owned())
    }

    /// The first number that a file holds.
    pub(super) fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.read(path)?.parse().ok()
    }

    /// Bytes of memory of the machine.
    pub(super) fn memory(&self) -> Option<u64> {
        let text = self.field("proc/meminfo", "MemTotal")?;
        text.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    /// The soft limit with this name in `/proc/self/limits`; `u64::MAX` for unlimited.
    pub(super) fn limit(&self, name: &str) -> Option<u64> {
        let text = self.read("proc/self/limits")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        match line.split_whitespace().next()? {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        }
    }

    /// Whether this process can use a device node.
    pub(super) fn access(&self, path: &str) -> Access {
        let Ok(node) = fs::metadata(self.path(path)) else { return Access::Missing };
        let mode = node.mode() & 0o777;
        let process = &self.process;
        let granted = match mode {
            _ if process.capabilities & DAC_OVERRIDE != 0 => 0o6,
            mode if process.user == node.uid() => mode >> 6,
            mode if process.groups.contains(&node.gid()) => mode >> 3,
            mode => mode,
        };
        match self.refused.get(path) {
            _ if granted & 0o6 != 0o6 => Access::Mode(mode),
            Some(error) => Access::Refused(*error),
            None => Access::Granted,
        }
    }

    /// The file of a shared library, as the loader finds it.
    pub(super) fn library(&self, name: &str) -> Option<PathBuf> {
        let folders = self.process.variables.get("LD_LIBRARY_PATH");
        let folders: Vec<PathBuf> = folders.iter().flat_map(std::env::split_paths).collect();
        library(&self.root, name, &folders)
    }

    fn process(&self) -> Process {
        let field = |name: &str| self.field("proc/self/status", name).unwrap_or_default();
        // Real, effective, saved, of the file system.
        let effective = |name: &str| field(name).split_whitespace().nth(1)?.parse().ok();
        let groups = field("Groups");
        let groups = groups.split_whitespace().filter_map(|group| group.parse().ok());
        let environment = self.bytes("proc/self/environ").unwrap_or_default();
        let variables = String::from_utf8_lossy(&environment);
        let variables = variables.split('\0').filter_map(|pair| pair.split_once('='));
        let map = self.read("proc/self/uid_map").unwrap_or_default();
        Process {
            user: effective("Uid").unwrap_or(u32::MAX),
            groups: groups.chain(effective("Gid")).collect(),
            capabilities: u64::from_str_radix(&field("CapEff"), 16).unwrap_or(0),
            of_the_machine: map.split_whitespace().eq(["0", "0", "4294967295"]),
            variables: variables.map(|(name, value)| (name.into(), value.into())).collect(),
        }
    }

    fn pci_device(&self, address: String) -> Option<PciDevice> {
        let folder = format!("sys/bus/pci/devices/{address}");
        let hexadecimal = |name: &str| {
            let text = self.read(&format!("{folder}/{name}"))?;
            u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()
        };
        let place = fs::canonicalize(self.path(&folder)).ok()?;
        let above = place.parent().into_iter().flat_map(|above| above.iter());
        let bridge = |name: &&str| name.len() == address.len() && name.contains('.');
        Some(PciDevice {
            vendor: hexadecimal("vendor")?,
            class: hexadecimal("class")?,
            driver: self.target(&format!("{folder}/driver")),
            node: self.number(&format!("{folder}/numa_node")),
            bridges: above
                .filter_map(|name| name.to_str())
                .filter(bridge)
                .map(Into::into)
                .collect(),
            address,
        })
    }
}

impl Process {
    /// Whether it may lock any amount of memory. The kernel asks that of the machine's user namespace.
    pub fn may_lock_memory(&self) -> bool {
        self.of_the_machine && self.capabilities & IPC_LOCK != 0
    }
}

/// The file of a shared library below `root`: in `first`, where the loader's cache says, or in the usual folders.
pub(in super::super) fn library(root: &Path, name: &str, first: &[PathBuf]) -> Option<PathBuf> {
    let below = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let cache = fs::read(root.join("etc/ld.so.cache")).unwrap_or_default();
    // Whatever its version, the cache holds the paths as strings that end with a zero.
    let cached = cache.split(|byte| *byte == 0).filter_map(|text| {
        let path = Path::new(std::str::from_utf8(text).ok()?);
        (path.is_absolute() && path.file_name()? == name).then(|| path.to_owned())
    });
    let architecture = std::env::consts::ARCH;
    let usual = [
        format!("/usr/lib/{architecture}-linux-gnu"),
        format!("/lib/{architecture}-linux-gnu"),
        "/usr/lib64".into(),
        "/usr/lib".into(),
        "/usr/local/lib".into(),
    ];
    let first = first.iter().map(|folder| folder.join(name));
    let usual = usual.iter().map(|folder| Path::new(folder).join(name));
    first.chain(cached).chain(usual).map(|path| below(&path)).find(|path| path.is_file())
}
