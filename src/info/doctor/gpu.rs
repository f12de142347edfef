//! The CUDA driver: its kernel module, its library, the device nodes between them, and MPS.

use std::path::Path;

use gdsync::Error;

use super::facts::Access;
use super::{Facts, Finding, defect, unknown, warning};

/// The oldest driver release whose library has what `gdsync` calls and runs what this project's compiler makes.
const OLDEST: u32 = 580;

const INSTALL: &str = "install NVIDIA's driver 580 or newer (package nvidia-open, or nvidia-driver with nvidia-kernel-dkms), then: modprobe nvidia";
const TOOLKIT: &str = "in a container: start it with --gpus all (NVIDIA Container Toolkit) and NVIDIA_DRIVER_CAPABILITIES=compute,utility";

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let loaded = facts.exists("proc/driver/nvidia/version") || facts.exists("sys/module/nvidia");
    if !loaded {
        return facts.gpus.first().map(|_| no_module(facts)).into_iter().collect();
    }
    let mut findings = unbound(facts);
    let version = version(facts);
    findings.extend(match version.as_deref().map(release) {
        Some(Some(release)) if release >= OLDEST => None,
        Some(Some(_)) => Some(defect(
            "gpu-driver-old",
            format!("the NVIDIA driver is {}", version.as_deref().unwrap_or_default()),
            format!("release {OLDEST} or newer"),
            INSTALL,
        )),
        _ => Some(unknown(
            "gpu-driver-old",
            "/proc/driver/nvidia/version does not say which driver is loaded",
            format!("release {OLDEST} or newer"),
            "look at: modinfo -F version nvidia",
        )),
    });
    let missing = nodes(facts, &mut findings);
    if !missing {
        library(facts, version.as_deref(), &mut findings);
    }
    findings.extend(mps(facts));
    findings
}

fn no_module(facts: &Facts) -> Finding {
    let list: Vec<_> = facts.gpus.iter().map(|gpu| gpu.address.as_str()).collect();
    let list = list.join(" ");
    let holder = facts.gpus.iter().find_map(|gpu| gpu.driver.as_deref());
    let (found, mend) = match holder {
        Some("nouveau") => (
            format!("the kernel's driver nouveau has the GPU ({list}), which cannot run CUDA"),
            format!(
                "echo blacklist nouveau >/etc/modprobe.d/nouveau.conf; update-initramfs -u; restart; {INSTALL}"
            ),
        ),
        Some(driver) => (
            format!("the driver {driver} has the GPU ({list})"),
            format!(
                "echo {} >/sys/bus/pci/devices/{}/driver/unbind; {INSTALL}",
                facts.gpus[0].address, facts.gpus[0].address
            ),
        ),
        None => (format!("no driver has the GPU ({list})"), INSTALL.into()),
    };
    defect("gpu-driver", found, "the kernel module nvidia is loaded", mend)
}

/// GPUs that the loaded module has not taken.
fn unbound(facts: &Facts) -> Vec<Finding> {
    let others = facts.gpus.iter().filter(|gpu| gpu.driver.as_deref() != Some("nvidia"));
    others
        .map(|gpu| {
            let holder = gpu.driver.as_deref().map_or("no driver".into(), |d| format!("the driver {d}"));
            let address = &gpu.address;
            warning(
                "gpu-unbound",
                format!("{holder} has the GPU {address} though the NVIDIA driver is loaded"),
                "the driver nvidia has every GPU",
                format!("dmesg | grep -i nvrm says why; then: echo {address} >/sys/bus/pci/drivers/nvidia/bind"),
            )
        })
        .collect()
}

/// The version of the kernel module, such as `580.65.06`.
fn version(facts: &Facts) -> Option<String> {
    let text = facts.read("proc/driver/nvidia/version")?;
    let line = text.lines().find(|line| line.starts_with("NVRM version"))?;
    let is_version =
        |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    line.split_whitespace().find(is_version).map(Into::into)
}

fn release(version: &str) -> Option<u32> {
    version.split('.').next()?.parse().ok()
}

/// Looks at the device nodes that libcuda opens; whether one cannot be used.
fn nodes(facts: &Facts, findings: &mut Vec<Finding>) -> bool {
    let gpus = facts.list("proc/driver/nvidia/gpus").unwrap_or_default();
    let node = |address: &String| {
        let file = format!("proc/driver/nvidia/gpus/{address}/information");
        Some(format!("dev/nvidia{}", facts.field(&file, "Device Minor")?))
    };
    let ours: Vec<String> = gpus.iter().filter_map(node).collect();
    // A container has the nodes of the GPUs that were given to it.
    let given = ours.iter().filter(|node| facts.exists(node)).count();
    let wanted = ours.into_iter().filter(|node| given == 0 || facts.exists(node));
    let wanted = ["dev/nvidiactl", "dev/nvidia-uvm"].into_iter().map(String::from).chain(wanted);
    let before = findings.len();
    for node in wanted {
        let found = match facts.access(&node) {
            Access::Granted => continue,
            Access::Missing => defect(
                "gpu-nodes",
                format!("/{node} is missing though the driver is loaded"),
                "/dev/nvidiactl, /dev/nvidia-uvm and a /dev/nvidiaN for every GPU",
                format!("as root: modprobe nvidia-uvm; nvidia-modprobe -u -c 0; {TOOLKIT}"),
            ),
            Access::Mode(mode) => defect(
                "gpu-permission",
                format!("this user may not read and write /{node} (mode {mode:04o})"),
                "read and write for who runs the program (mode 0666, or a group of the user)",
                format!(
                    "chmod a+rw /{node}; to stay: options nvidia NVreg_DeviceFileMode=0666 in /etc/modprobe.d/nvidia.conf"
                ),
            ),
            Access::Refused(error) => super::refused("gpu-device-cgroup", &node, error, TOOLKIT),
        };
        findings.push(found);
    }
    findings.len() > before
}

/// The library of the driver: there, of the module's version, and able to start.
fn library(facts: &Facts, module: Option<&str>, findings: &mut Vec<Finding>) {
    let expected = "libcuda.so.1 of the same version as the kernel module";
    let file = facts.library("libcuda.so.1");
    if matches!(facts.cuda, Some(Err(Error::NoDriver))) || (facts.cuda.is_none() && file.is_none())
    {
        findings.push(defect(
            "gpu-library",
            "the driver is loaded, but libcuda.so.1 is not found",
            expected,
            format!(
                "install the driver's library (package libcuda1 or libnvidia-compute); {TOOLKIT}"
            ),
        ));
        return;
    }
    // libcuda.so.1 is a link to libcuda.so.VERSION.
    let resolved = file.as_deref().and_then(|file| Path::new(file).canonicalize().ok());
    let name = resolved.as_deref().and_then(|file| file.file_name()?.to_str());
    let library = name.and_then(|name| name.strip_prefix("libcuda.so."));
    if let (Some(module), Some(library)) = (module, library)
        && library.contains('.')
        && library != module
        // NVIDIA's forward compatibility: a library of a later release on purpose.
        && !file.as_deref().is_some_and(|file| file.iter().any(|folder| folder == "compat"))
    {
        findings.push(defect(
            "gpu-driver-mismatch",
            format!("the kernel module is {module}, libcuda.so.1 is {library}"),
            expected,
            "restart the machine, or stop all CUDA programs and: rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia; modprobe nvidia nvidia_uvm",
        ));
        return;
    }
    let hidden = facts.process.variables.get("CUDA_VISIBLE_DEVICES");
    let nothing_seen = match &facts.cuda {
        Some(Ok(count)) => *count == 0,
        Some(Err(Error::Cuda { code, .. })) => *code == 100,
        _ => hidden.is_some_and(|list| list.is_empty() || list.starts_with('-')),
    };
    match (&facts.cuda, hidden) {
        (_, Some(list)) if nothing_seen => findings.push(defect(
            "gpu-hidden",
            format!("CUDA_VISIBLE_DEVICES={list} leaves no GPU visible"),
            "numbers or UUIDs of GPUs that are there (nvidia-smi --list-gpus)",
            "unset CUDA_VISIBLE_DEVICES, or name GPUs: CUDA_VISIBLE_DEVICES=0",
        )),
        (Some(Err(error)), _) => findings.push(defect(
            "gpu-start",
            error.to_string(),
            "the CUDA driver starts and shows a GPU",
            match error {
                Error::Cuda { code, .. } => mend_of(*code),
                _ => INSTALL,
            },
        )),
        (Some(Ok(0)), None) => findings.push(defect(
            "gpu-start",
            "the CUDA driver starts and sees no GPU",
            "the CUDA driver starts and shows a GPU",
            mend_of(100),
        )),
        _ => {}
    }
}

/// What mends an error that cuInit gives; the numbers are CUresult's.
fn mend_of(code: u32) -> &'static str {
    match code {
        46 => {
            "another process has the GPU for itself (compute mode): nvidia-smi --compute-mode=DEFAULT"
        }
        100 => "nvidia-smi --list-gpus; where it shows none: dmesg | grep -i nvrm",
        802 => {
            "the NVSwitches are not set up: systemctl start nvidia-fabricmanager (of the driver's version)"
        }
        803 => "restart the machine: the kernel module and libcuda.so.1 are of different versions",
        804 => {
            "take the folder of cuda-compat out of LD_LIBRARY_PATH: this GPU or driver cannot use it"
        }
        805..=809 => "restart MPS: echo quit | nvidia-cuda-mps-control; nvidia-cuda-mps-control -d",
        _ => {
            "dmesg | grep -i nvrm says what the driver missed; then: rmmod nvidia_uvm; modprobe nvidia_uvm"
        }
    }
}

/// Ranks that share a GPU take turns of milliseconds without MPS.
fn mps(facts: &Facts) -> Option<Finding> {
    let variable = |name: &str| facts.process.variables.get(name);
    let pipes = variable("CUDA_MPS_PIPE_DIRECTORY");
    let folder = pipes.map_or("/tmp/nvidia-mps", String::as_str);
    let control = format!("{}/control", folder.trim_start_matches('/').trim_end_matches('/'));
    if facts.exists(&control) {
        return None;
    }
    let start = format!(
        "CUDA_MPS_PIPE_DIRECTORY={folder} nvidia-cuda-mps-control -d, on the host and as the user of the ranks"
    );
    if pipes.is_some() {
        return Some(warning(
            "mps",
            format!(
                "CUDA_MPS_PIPE_DIRECTORY={folder}, but there is no MPS daemon: /{control} is missing"
            ),
            "a running MPS daemon, or the variable unset",
            start,
        ));
    }
    let nodes = facts.list("dev").unwrap_or_default();
    let is_gpu =
        |name: &&String| name.strip_prefix("nvidia").is_some_and(|n| n.parse::<u32>().is_ok());
    let gpus = match facts.cuda {
        Some(Ok(count)) => count as usize,
        _ => nodes.iter().filter(is_gpu).count(),
    };
    let ranks = ["MP_LOCAL_SIZE", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"];
    let ranks: usize = ranks.into_iter().find_map(variable)?.parse().ok()?;
    (gpus > 0 && ranks > gpus).then(|| {
        warning(
            "mps",
            format!("{ranks} ranks share {gpus} GPU(s) without MPS: their kernels take turns of about 2 ms"),
            "MPS, under which kernels of several processes run at once, or a rank a GPU",
            start,
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::Diagnosis;
    use super::*;

    /// A machine with a GPU, and its facts.
    fn machine() -> (tempfile::TempDir, Facts) {
        let root = tempfile::tempdir().unwrap();
        let files = [
            (
                "proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Release\n",
            ),
            ("proc/driver/nvidia/gpus/0000:01:00.0/information", "Device Minor: \t 0\n"),
            ("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n"),
            ("dev/nvidiactl", ""),
            ("dev/nvidia-uvm", ""),
            ("dev/nvidia0", ""),
        ];
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut facts = Facts::below(root.path());
        facts.cuda = Some(Ok(1));
        (root, facts)
    }

    fn ids(facts: &Facts) -> Vec<(&'static str, String)> {
        check(facts).into_iter().map(|finding| (finding.id, finding.mend)).collect()
    }

    #[test]
    fn a_driver_that_starts_is_in_order() {
        let (_root, facts) = machine();
        assert_eq!(ids(&facts), []);
    }

    #[test]
    fn a_node_that_the_kernel_refuses_though_its_mode_allows_is_a_matter_of_the_device_cgroup() {
        let (_root, mut facts) = machine();
        facts.refused.insert("dev/nvidia-uvm".into(), 1);
        let found = ids(&facts);
        assert!(
            matches!(&found[..], [("gpu-device-cgroup", mend)] if mend.contains("--gpus all")),
            "{found:?}"
        );
        facts.refused = [("dev/nvidia-uvm".into(), 6)].into();
        let found = check(&facts);
        assert!(found[0].found.contains("No such device or address"), "{found:?}");
        assert!(Diagnosis::of(&facts).defective());
    }

    #[test]
    fn what_the_driver_says_when_it_starts_has_a_mend() {
        for (code, part) in [
            (802, "fabricmanager"),
            (803, "restart"),
            (804, "cuda-compat"),
            (805, "mps"),
            (999, "dmesg"),
        ] {
            let (_root, mut facts) = machine();
            let message = "text of the driver".to_owned();
            facts.cuda = Some(Err(Error::Cuda { call: "cuInit", code, message }));
            let found = ids(&facts);
            assert!(
                matches!(&found[..], [("gpu-start", mend)] if mend.contains(part)),
                "{code}: {found:?}"
            );
        }
        let (_root, mut facts) = machine();
        facts.cuda = Some(Ok(0));
        facts.process.variables.insert("CUDA_VISIBLE_DEVICES".into(), "7".into());
        assert!(matches!(&ids(&facts)[..], [("gpu-hidden", _)]));
        facts.cuda = Some(Err(Error::NoDriver));
        assert!(matches!(&ids(&facts)[..], [("gpu-library", _)]));
    }
}
