//! The doctor of `mp-info`: what of a machine cannot work or costs speed, what would be right, and the command or setting that
//! mends it. A check is a function of [`Facts`], which are read from files below a root folder; only on the machine itself are
//! device nodes opened and the CUDA driver asked, too. What the files do not say is a finding of its own, [`Severity::Unknown`].

mod facts;
mod gpu;
mod host;
mod pci;
mod rdma;

use std::fmt::Write;

use serde::Serialize;

pub use facts::Facts;
pub(super) use facts::library;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something that is there cannot work.
    Defect,
    /// It works, but slower, or less of it, than it could.
    Warning,
    /// What would have to be known cannot be read here.
    Unknown,
}

/// One thing that is wrong, or not known.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// Name of the check that found it; the same in all versions.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub found: String,
    /// What would be right.
    pub expected: String,
    /// The command or setting that mends it.
    pub mend: String,
}

/// What was looked at, and what was found.
#[derive(Debug, Serialize)]
pub struct Diagnosis {
    /// PCI addresses of the NVIDIA GPUs.
    pub gpus: Vec<String>,
    /// Names of the RDMA adapters.
    pub adapters: Vec<String>,
    /// The findings, the worst first.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Examines what is known.
    pub fn of(facts: &Facts) -> Diagnosis {
        let checks = [gpu::check, rdma::check, pci::check, host::check];
        let mut findings: Vec<Finding> = checks.iter().flat_map(|check| check(facts)).collect();
        findings.sort_by_key(|finding| finding.severity);
        Diagnosis {
            gpus: facts.gpus.iter().map(|gpu| gpu.address.clone()).collect(),
            adapters: facts.adapters.iter().map(|adapter| adapter.name.clone()).collect(),
            findings,
        }
    }

    /// Whether something that is there cannot work.
    pub fn defective(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Defect)
    }

    /// The findings as text for people.
    pub fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let list = |names: &[String]| match names {
            [] => "none".to_owned(),
            names => names.join(" "),
        };
        let (gpus, adapters) = (list(&self.gpus), list(&self.adapters));
        writeln!(out, "Diagnosis of GPUs: {gpus}; RDMA adapters: {adapters}; this host")?;
        for Finding { id, severity, found, expected, mend } in &self.findings {
            let severity = match severity {
                Severity::Defect => "defect",
                Severity::Warning => "warning",
                Severity::Unknown => "unknown",
            };
            writeln!(out, "  {severity} {id}: {found}")?;
            writeln!(out, "    expected: {expected}\n    mend: {mend}")?;
        }
        if self.findings.is_empty() {
            writeln!(out, "  nothing is wrong")?;
        }
        Ok(())
    }
}

fn defect(
    id: &'static str,
    found: impl Into<String>,
    expected: impl Into<String>,
    mend: impl Into<String>,
) -> Finding {
    let (found, expected, mend) = (found.into(), expected.into(), mend.into());
    Finding { id, severity: Severity::Defect, found, expected, mend }
}

fn warning(
    id: &'static str,
    found: impl Into<String>,
    expected: impl Into<String>,
    mend: impl Into<String>,
) -> Finding {
    Finding { severity: Severity::Warning, ..defect(id, found, expected, mend) }
}

fn unknown(
    id: &'static str,
    found: impl Into<String>,
    expected: impl Into<String>,
    mend: impl Into<String>,
) -> Finding {
    Finding { severity: Severity::Unknown, ..defect(id, found, expected, mend) }
}

/// A device node whose mode allows what the kernel then refuses with `error`.
fn refused(id: &'static str, node: &str, error: i32, container: &str) -> Finding {
    let text = std::io::Error::from_raw_os_error(error);
    let mend = match rustix::io::Errno::from_raw_os_error(error) {
        rustix::io::Errno::PERM => format!(
            "the device cgroup forbids it: in Slurm ask for the device (--gres), in a systemd unit DeviceAllow=/{node} rw; {container}"
        ),
        _ => "dmesg says what the driver of the device missed".into(),
    };
    defect(
        id,
        format!("/{node} cannot be opened: {text}"),
        "it opens for reading and writing",
        mend,
    )
}
