//! `mp-info` on made-up machines: one in order, and the same with one thing broken. Each is a tree of files such as
//! a machine with two GPUs and two adapters has; the built program examines it and must name what is broken, and the mend.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// A machine: a folder that `mp-info --root` examines.
struct Machine(tempfile::TempDir);

const SWITCHES: [&str; 2] =
    ["pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:80/0000:80:01.0/0000:81:00.0"];
const GPUS: [&str; 2] = ["0000:03:00.0", "0000:83:00.0"];
const ADAPTERS: [&str; 2] = ["0000:04:00.0", "0000:84:00.0"];
/// The port of the switch above a GPU, and above an adapter.
const PORTS: [[&str; 2]; 2] = [["0000:02:00.0", "0000:02:01.0"], ["0000:82:00.0", "0000:82:01.0"]];

impl Machine {
    /// Two processors, each with a switch that has a GPU and an adapter below it; everything in order, asked by a user
    /// without privileges.
    fn healthy() -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        for (node, switch) in SWITCHES.into_iter().enumerate() {
            let [gpu, adapter] = [GPUS[node], ADAPTERS[node]];
            machine.pci(
                node,
                &format!("{switch}/{}", PORTS[node][0]),
                "0x10b5",
                "0x060400",
                "pcieport",
            );
            machine.pci(
                node,
                &format!("{switch}/{}", PORTS[node][1]),
                "0x10b5",
                "0x060400",
                "pcieport",
            );
            machine.pci(
                node,
                &format!("{switch}/{}/{gpu}", PORTS[node][0]),
                "0x10de",
                "0x030200",
                "nvidia",
            );
            machine.pci(
                node,
                &format!("{switch}/{}/{adapter}", PORTS[node][1]),
                "0x15b3",
                "0x020700",
                "mlx5_core",
            );
            machine.write(
                &format!("proc/driver/nvidia/gpus/{gpu}/information"),
                format!("Model: \t\t GPU\nDevice Minor: \t {node}\n"),
            );
            machine.node(&format!("dev/nvidia{node}"), 0o666);
            let name = format!("mlx5_{node}");
            machine.link(
                &format!("sys/class/infiniband/{name}/device"),
                &format!("../../../devices/{switch}/{}/{adapter}", PORTS[node][1]),
            );
            machine.write(&format!("sys/class/infiniband/{name}/ports/1/state"), "4: ACTIVE\n");
            machine
                .write(&format!("sys/class/infiniband/{name}/ports/1/link_layer"), "InfiniBand\n");
            machine.write(
                &format!("sys/class/infiniband_verbs/uverbs{node}/ibdev"),
                format!("{name}\n"),
            );
            machine.node(&format!("dev/infiniband/uverbs{node}"), 0o666);
            machine.write(
                &format!("sys/devices/system/node/node{node}/distance"),
                if node == 0 { "10 21\n" } else { "21 10\n" },
            );
        }
        machine.node("dev/nvidiactl", 0o666);
        machine.node("dev/nvidia-uvm", 0o666);
        fs::create_dir_all(machine.path("dev/shm")).unwrap();
        machine.driver("Open Kernel Module for x86_64  580.65.06");
        machine.write(
            "proc/driver/nvidia/params",
            "EnableMSI: 1\nRegistryDwords: \"PeerMappingOverride=1;\"\nRmMsg: \"\"\n",
        );
        machine.library("libcuda.so.1", "libcuda.so.580.65.06");
        machine.library("libibverbs.so.1", "libibverbs.so.1.14.50.0");
        machine.library("libmlx5.so.1", "libmlx5.so.1.24.50.0");
        for module in ["nvidia", "nvidia_uvm", "mlx5_core", "mlx5_ib", "ib_uverbs"] {
            fs::create_dir_all(machine.path(&format!("sys/module/{module}"))).unwrap();
        }
        machine.write("proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
        machine.write("proc/cmdline", "root=/dev/sda1 ro quiet\n");
        machine
            .write("proc/meminfo", "MemTotal:       527000000 kB\nMemAvailable:   500000000 kB\n");
        machine.mounts("rw");
        machine.write("proc/self/cgroup", "0::/job\n");
        machine.group("max");
        machine.limits("unlimited", "1024");
        // Nobody whom a file of this test could belong to.
        machine.write("proc/self/status", "Uid:\t54321\t54321\t54321\t54321\nGid:\t54321\t54321\t54321\t54321\nGroups:\t54321 \nCapEff:\t0000000000000000\n");
        machine.write("proc/self/uid_map", "         0          0 4294967295\n");
        machine.write("proc/self/environ", "PATH=/usr/bin\0HOME=/root\0");
        machine
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn remove(&self, path: &str) {
        let path = self.path(path);
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if path.is_symlink() {
            fs::remove_file(&path).unwrap();
        }
        symlink(target, path).unwrap();
    }

    /// A device node, as a file with its mode.
    fn node(&self, path: &str, mode: u32) {
        self.write(path, "");
        fs::set_permissions(self.path(path), Permissions::from_mode(mode)).unwrap();
    }

    /// A device of the bus, at its place below the bridges.
    fn pci(&self, node: usize, place: &str, vendor: &str, class: &str, driver: &str) {
        let folder = format!("sys/devices/{place}");
        let address = Path::new(place).file_name().unwrap().to_str().unwrap();
        self.write(&format!("{folder}/vendor"), format!("{vendor}\n"));
        self.write(&format!("{folder}/class"), format!("{class}\n"));
        self.write(&format!("{folder}/numa_node"), format!("{node}\n"));
        self.write(&format!("{folder}/config"), acs(0));
        self.link(&format!("sys/bus/pci/devices/{address}"), &format!("../../../devices/{place}"));
        self.bind(address, driver);
    }

    fn bind(&self, address: &str, driver: &str) {
        self.link(
            &format!("sys/bus/pci/devices/{address}/driver"),
            &format!("../../../bus/pci/drivers/{driver}"),
        );
    }

    fn driver(&self, version: &str) {
        let line = format!(
            "NVRM version: NVIDIA UNIX {version}  Release Build  (root@host)\nGCC version:  gcc 13\n"
        );
        self.write("proc/driver/nvidia/version", line);
    }

    fn library(&self, name: &str, file: &str) {
        let folder = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        self.write(&format!("{folder}/{file}"), "");
        self.link(&format!("{folder}/{name}"), file);
    }

    fn no_library(&self, name: &str) {
        self.remove(&format!("usr/lib/{}-linux-gnu/{name}", std::env::consts::ARCH));
    }

    fn mounts(&self, shm: &str) {
        self.write(
            "proc/self/mountinfo",
            format!(
                "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
             25 22 0:23 / /dev/shm rw,nosuid,nodev shared:4 - tmpfs tmpfs {shm}\n\
             30 22 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
            ),
        );
    }

    fn limits(&self, locked: &str, files: &str) {
        self.write(
            "proc/self/limits",
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max open files            {files}                 1048576              files     \n\
             Max locked memory         {locked}             {locked}             bytes     \n"
            ),
        );
    }

    fn group(&self, limit: &str) {
        self.write("sys/fs/cgroup/job/memory.max", format!("{limit}\n"));
        self.write("sys/fs/cgroup/job/memory.current", "104857600\n");
    }

    fn environment(&self, variables: &str) {
        self.write("proc/self/environ", variables);
    }

    /// Runs `mp-info --root` on it.
    fn examine(&self, options: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_mp-info"))
            .arg("--root")
            .arg(self.0.path())
            .args(options)
            .output()
            .unwrap()
    }

    /// The findings, and the exit status.
    fn findings(&self) -> (Vec<Value>, Option<i32>) {
        let output = self.examine(&["--json"]);
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        (json["diagnosis"]["findings"].as_array().unwrap().clone(), output.status.code())
    }
}

/// The configuration space of a bridge whose access control has this control word: two extended capabilities, the second is it.
fn acs(control: u16) -> Vec<u8> {
    let mut config = vec![0; 4096];
    config[0x100..0x104].copy_from_slice(&(0x0001_u32 | 1 << 16 | 0x148 << 20).to_le_bytes());
    config[0x148..0x14c].copy_from_slice(&(0x000d_u32 | 1 << 16).to_le_bytes());
    config[0x14e..0x150].copy_from_slice(&control.to_le_bytes());
    config
}

type Change = fn(&Machine);

/// What is broken, how, the finding's name and severity, what its text names, and what its mend has.
type Case = (&'static str, Change, &'static str, &'static str, &'static str, &'static str);

const CASES: &[Case] = &[
    (
        "no driver is installed",
        |m| {
            m.remove("proc/driver");
            m.remove("sys/module/nvidia");
            for gpu in GPUS {
                m.remove(&format!("sys/bus/pci/devices/{gpu}/driver"));
            }
        },
        "gpu-driver",
        "defect",
        "no driver has the GPU (0000:03:00.0 0000:83:00.0)",
        "modprobe nvidia",
    ),
    (
        "nouveau has the GPUs",
        |m| {
            m.remove("proc/driver");
            m.remove("sys/module/nvidia");
            for gpu in GPUS {
                m.bind(gpu, "nouveau");
            }
        },
        "gpu-driver",
        "defect",
        "nouveau",
        "blacklist nouveau",
    ),
    (
        "one GPU did not start",
        |m| m.remove("sys/bus/pci/devices/0000:83:00.0/driver"),
        "gpu-unbound",
        "warning",
        "0000:83:00.0",
        "drivers/nvidia/bind",
    ),
    (
        "the driver is too old",
        |m| {
            m.driver("Open Kernel Module for x86_64  535.183.01");
            m.library("libcuda.so.1", "libcuda.so.535.183.01");
        },
        "gpu-driver-old",
        "defect",
        "535.183.01",
        "580 or newer",
    ),
    (
        "the library is older than the module",
        |m| m.library("libcuda.so.1", "libcuda.so.580.40.01"),
        "gpu-driver-mismatch",
        "defect",
        "libcuda.so.1 is 580.40.01",
        "rmmod nvidia_drm",
    ),
    (
        "the library is missing",
        |m| m.no_library("libcuda.so.1"),
        "gpu-library",
        "defect",
        "libcuda.so.1 is not found",
        "NVIDIA_DRIVER_CAPABILITIES=compute",
    ),
    (
        "a container has no nodes of GPUs",
        |m| {
            m.remove("dev/nvidia0");
            m.remove("dev/nvidia1");
        },
        "gpu-nodes",
        "defect",
        "/dev/nvidia0",
        "--gpus all",
    ),
    (
        "nvidia-uvm has no node",
        |m| m.remove("dev/nvidia-uvm"),
        "gpu-nodes",
        "defect",
        "/dev/nvidia-uvm is missing",
        "nvidia-modprobe -u",
    ),
    (
        "GPUs are for root only",
        |m| m.node("dev/nvidiactl", 0o660),
        "gpu-permission",
        "defect",
        "/dev/nvidiactl (mode 0660)",
        "NVreg_DeviceFileMode=0666",
    ),
    (
        "a variable hides the GPUs",
        |m| m.environment("CUDA_VISIBLE_DEVICES=-1\0"),
        "gpu-hidden",
        "defect",
        "CUDA_VISIBLE_DEVICES=-1",
        "unset CUDA_VISIBLE_DEVICES",
    ),
    (
        "ranks share a GPU without MPS",
        |m| m.environment("MP_LOCAL_SIZE=4\0MP_SIZE=4\0"),
        "mps",
        "warning",
        "4 ranks share 2 GPU(s)",
        "nvidia-cuda-mps-control -d",
    ),
    (
        "MPS is asked for and not there",
        |m| m.environment("CUDA_MPS_PIPE_DIRECTORY=/run/mps\0"),
        "mps",
        "warning",
        "/run/mps/control is missing",
        "CUDA_MPS_PIPE_DIRECTORY=/run/mps nvidia-cuda-mps-control -d",
    ),
    (
        "the closed module without peermem",
        |m| m.driver("x86_64 Kernel Module  580.65.06"),
        "gpudirect-rdma",
        "defect",
        "nvidia-peermem is not loaded",
        "modprobe nvidia-peermem",
    ),
    (
        "a kernel before dma-buf without peermem",
        |m| m.write("proc/sys/kernel/osrelease", "5.4.0-100-generic"),
        "gpudirect-rdma",
        "defect",
        "Linux 5.4.0-100-generic",
        "modprobe nvidia-peermem",
    ),
    (
        "the driver maps no doorbells",
        |m| m.write("proc/driver/nvidia/params", "RegistryDwords: \"\"\n"),
        "gpu-doorbell",
        "warning",
        "mlx5_0",
        "NVreg_RegistryDwords=\"PeerMappingOverride=1;\"",
    ),
    (
        "the driver's parameters cannot be read",
        |m| m.remove("proc/driver/nvidia/params"),
        "gpu-doorbell",
        "unknown",
        "cannot be read",
        "grep RegistryDwords",
    ),
    (
        "little memory may be locked",
        |m| m.limits("8388608", "1024"),
        "memlock",
        "defect",
        "8192 KiB",
        "memlock unlimited",
    ),
    (
        "less may be locked than there is",
        |m| m.limits("68719476736", "1024"),
        "memlock",
        "warning",
        "67108864 KiB",
        "--ulimit memlock=-1",
    ),
    (
        "a container has no nodes of adapters",
        |m| {
            m.remove("dev/infiniband/uverbs0");
        },
        "rdma-nodes",
        "defect",
        "/dev/infiniband/uverbs0, the node of mlx5_0, is missing",
        "--device=/dev/infiniband",
    ),
    (
        "adapters are for root only",
        |m| m.node("dev/infiniband/uverbs1", 0o600),
        "rdma-permission",
        "defect",
        "/dev/infiniband/uverbs1 (mode 0600)",
        "MODE=\"0666\"",
    ),
    (
        "ib_uverbs is not loaded",
        |m| m.remove("sys/class/infiniband_verbs/uverbs1"),
        "rdma-module",
        "defect",
        "mlx5_1",
        "modprobe ib_uverbs",
    ),
    (
        "mlx5_ib is not loaded",
        |m| {
            m.remove("sys/class/infiniband");
            m.remove("sys/module/mlx5_ib");
        },
        "rdma-driver",
        "defect",
        "0000:84:00.0",
        "modprobe mlx5_ib",
    ),
    (
        "RDMA is off in an adapter",
        |m| m.remove("sys/class/infiniband"),
        "rdma-driver",
        "defect",
        "0000:84:00.0",
        "enable_roce",
    ),
    (
        "the library of the adapter is missing",
        |m| m.no_library("libmlx5.so.1"),
        "rdma-library",
        "defect",
        "libmlx5.so.1",
        "apt-get install libibverbs1 ibverbs-providers",
    ),
    (
        "the fabric has no subnet manager",
        |m| {
            for port in ["mlx5_0", "mlx5_1"] {
                m.write(&format!("sys/class/infiniband/{port}/ports/1/state"), "2: INIT\n");
            }
        },
        "rdma-port",
        "defect",
        "mlx5_0 port 1: INIT, mlx5_1 port 1: INIT",
        "opensm",
    ),
    (
        "the IOMMU translates",
        |m| m.write(&format!("sys/bus/pci/devices/{}/iommu_group/type", GPUS[0]), "DMA-FQ\n"),
        "iommu",
        "warning",
        "0000:03:00.0",
        "iommu=pt",
    ),
    (
        "what the IOMMU does is not said",
        |m| {
            fs::create_dir(m.path(&format!("sys/bus/pci/devices/{}/iommu_group", GPUS[0]))).unwrap()
        },
        "iommu",
        "unknown",
        "0000:03:00.0",
        "dmesg",
    ),
    (
        "a switch redirects",
        |m| m.write(&format!("sys/bus/pci/devices/{}/config", PORTS[1][1]), acs(1 << 2)),
        "pci-acs",
        "warning",
        "0000:82:01.0",
        "setpci -s $bridge ECAP_ACS+6.w=0",
    ),
    (
        "a user does not see what switches do",
        |m| m.write(&format!("sys/bus/pci/devices/{}/config", PORTS[0][0]), vec![0; 64]),
        "pci-acs",
        "unknown",
        "0000:02:00.0",
        "lspci -s 0000:02:00.0 -vvv",
    ),
    (
        "both adapters are at one processor",
        |m| m.write(&format!("sys/bus/pci/devices/{}/numa_node", ADAPTERS[1]), "0\n"),
        "numa-distance",
        "warning",
        "the GPU 0000:83:00.0 is on NUMA node 1, the nearest adapter mlx5_0 on node 0, at distance 21",
        "slot of node 1",
    ),
    (
        "the firmware names no node",
        |m| m.write(&format!("sys/bus/pci/devices/{}/numa_node", GPUS[1]), "-1\n"),
        "numa-distance",
        "unknown",
        "0000:83:00.0",
        "firmware",
    ),
    (
        "shared memory as containers have it",
        |m| m.mounts("rw,size=65536k"),
        "shm",
        "warning",
        "64 MiB",
        "--shm-size",
    ),
    (
        "no shared memory",
        |m| {
            m.write("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
            m.remove("dev/shm");
        },
        "shm",
        "defect",
        "nothing is mounted at /dev/shm",
        "mount -t tmpfs",
    ),
    (
        "a control group with little memory",
        |m| m.group("536870912"),
        "memory-cgroup",
        "warning",
        "control group /sys/fs/cgroup/job leaves 380 MiB",
        "--memory",
    ),
    (
        "few files may be open",
        |m| m.limits("unlimited", "256"),
        "files",
        "warning",
        "256",
        "ulimit -n",
    ),
    (
        "the bus is not shown",
        |m| m.remove("sys/bus"),
        "pci",
        "unknown",
        "/sys/bus/pci/devices",
        "mount",
    ),
];

#[test]
fn a_machine_in_order_has_no_findings_and_says_what_was_examined() {
    let machine = Machine::healthy();
    let (findings, status) = machine.findings();
    assert_eq!((findings, status), (vec![], Some(0)));
    let text = String::from_utf8(machine.examine(&[]).stdout).unwrap();
    assert!(
        text.contains("GPUs: 0000:03:00.0 0000:83:00.0; RDMA adapters: mlx5_0 mlx5_1"),
        "{text}"
    );
    assert!(text.contains("nothing is wrong"), "{text}");
}

#[test]
fn one_thing_broken_is_named_with_its_mend_and_nothing_else_is() {
    for (what, break_it, id, severity, found, mend) in CASES {
        let machine = Machine::healthy();
        break_it(&machine);
        let (findings, status) = machine.findings();
        let of = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        let named = findings.iter().find(|finding| of(finding, "found").contains(found));
        let Some(named) = named else { panic!("{what}: {found:?} is not in {findings:#?}") };
        assert_eq!(
            (of(named, "id"), of(named, "severity")),
            (id.to_string(), severity.to_string()),
            "{what}"
        );
        assert!(of(named, "mend").contains(mend), "{what}: {named:#}");
        assert!(findings.iter().all(|finding| of(finding, "id") == *id), "{what}: {findings:#?}");
        assert_eq!(status, Some(i32::from(*severity == "defect")), "{what}");
    }
}

#[test]
fn a_finding_as_text_has_its_severity_its_name_and_the_mend() {
    let machine = Machine::healthy();
    machine.remove("dev/nvidia-uvm");
    let text = String::from_utf8(machine.examine(&[]).stdout).unwrap();
    let found = "  defect gpu-nodes: /dev/nvidia-uvm is missing though the driver is loaded\n    expected: ";
    assert!(
        text.contains(found) && text.contains("\n    mend: as root: modprobe nvidia-uvm;"),
        "{text}"
    );
}

#[test]
fn what_mends_a_machine_otherwise_is_no_finding() {
    let mended: &[(&str, Change)] = &[
        ("peermem with the closed module", |m| {
            m.driver("x86_64 Kernel Module  580.65.06");
            m.write("sys/module/nvidia_peermem/refcnt", "0\n");
        }),
        ("privileges lock any memory", |m| {
            m.limits("65536", "1024");
            m.write(
                "proc/self/status",
                "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nGroups:\t\nCapEff:\t000001ffffffffff\n",
            );
        }),
        ("a group of the user may use the GPU", |m| {
            use std::os::unix::fs::MetadataExt;
            m.node("dev/nvidiactl", 0o660);
            let group = fs::metadata(m.path("dev/nvidiactl")).unwrap().gid();
            m.write("proc/self/status", format!("Uid:\t54321\t54321\t54321\t54321\nGid:\t5\t5\t5\t5\nGroups:\t{group}\nCapEff:\t0\n"));
        }),
        ("a container with one of two GPUs", |m| m.remove("dev/nvidia1")),
        ("one of two ports is down", |m| {
            m.write("sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n")
        }),
        ("the IOMMU passes through", |m| {
            m.write(&format!("sys/bus/pci/devices/{}/iommu_group/type", GPUS[0]), "identity\n")
        }),
        ("MPS runs", |m| {
            m.environment("MP_LOCAL_SIZE=4\0");
            m.write("tmp/nvidia-mps/control", "");
        }),
        ("the loader's cache names the library", |m| {
            m.no_library("libcuda.so.1");
            m.write("opt/driver/libcuda.so.580.65.06", "");
            m.link("opt/driver/libcuda.so.1", "libcuda.so.580.65.06");
            m.write(
                "etc/ld.so.cache",
                "glibc-ld.so.cache1.1\0\x01\x02libcuda.so.1\0/opt/driver/libcuda.so.1\0",
            );
        }),
    ];
    for (what, change) in mended {
        let machine = Machine::healthy();
        change(&machine);
        assert_eq!(machine.findings(), (vec![], Some(0)), "{what}");
    }
}

#[test]
fn a_machine_without_gpu_and_adapter_has_nothing_that_could_be_wrong_with_them() {
    let machine = Machine(tempfile::tempdir().unwrap());
    fs::create_dir_all(machine.path("sys/bus/pci/devices")).unwrap();
    fs::create_dir_all(machine.path("dev/shm")).unwrap();
    machine.mounts("rw");
    machine.limits("65536", "1024");
    assert_eq!(machine.findings(), (vec![], Some(0)));
}

#[test]
fn a_folder_that_says_nothing_is_unknown_and_not_in_order() {
    let machine = Machine(tempfile::tempdir().unwrap());
    let (findings, status) = machine.findings();
    assert!(
        findings.len() >= 3 && findings.iter().all(|finding| finding["severity"] == "unknown"),
        "{findings:#?}"
    );
    assert_eq!(status, Some(0));
}

#[test]
fn a_root_that_is_no_folder_is_wrong_usage() {
    let output = Command::new(env!("CARGO_BIN_EXE_mp-info"))
        .args(["--root", "/no/such/folder"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && text.contains("expected a folder that exists"),
        "{text}"
    );
}
