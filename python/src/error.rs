//! Failures as exceptions: each error of libmp becomes an instance of a class of `_errors.py`, with its sentence and what it knows.

use libmp::Error;
use libmp::gdsync;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// What functions of this crate return.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why something failed.
#[derive(Debug)]
pub enum Failure {
    /// What libmp says.
    Libmp(Box<Error>),
    /// What Python, or this crate, raises.
    Python(PyErr),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Libmp(Box::new(error))
    }
}

impl From<gdsync::Error> for Failure {
    fn from(source: gdsync::Error) -> Failure {
        Error::Memory { op: "libmp".into(), source }.into()
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure::Python(error)
    }
}

impl From<std::convert::Infallible> for Failure {
    fn from(never: std::convert::Infallible) -> Failure {
        match never {}
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        match failure {
            Failure::Python(error) => error,
            Failure::Libmp(error) => {
                Python::attach(|py| raised(py, &error).unwrap_or_else(|failed| failed))
            }
        }
    }
}

/// An argument that cannot be used.
pub fn argument(name: &str, what: impl std::fmt::Display) -> Failure {
    Failure::Python(PyValueError::new_err(format!("argument `{name}`: {what}")))
}

/// The exception for an error.
fn raised(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let known = PyDict::new(py);
    let class = match error {
        Error::Variable { name, .. } | Error::MissingVariable { name, .. } => {
            known.set_item("variable", name)?;
            "StartError"
        }
        Error::Incomplete { missing, .. } => {
            known.set_item("missing", missing)?;
            "StartError"
        }
        Error::Launcher { .. }
        | Error::Interface { .. }
        | Error::Bind { .. }
        | Error::Unreachable { .. }
        | Error::Handshake { .. }
        | Error::Pmix { .. }
        | Error::Mpi { .. } => "StartError",
        Error::NotBuilt { .. } => "Unsupported",
        Error::PeerLost { rank, host, how, .. } => {
            known.set_item("rank", rank)?;
            known.set_item("host", host)?;
            known.set_item("cause", how.to_string())?;
            "PeerLost"
        }
        Error::Aborted { rank, host, reason, .. } => {
            known.set_item("rank", rank)?;
            known.set_item("host", host)?;
            known.set_item("cause", reason)?;
            "Aborted"
        }
        Error::Exited { rank, host, status, .. } => {
            known.set_item("rank", rank)?;
            known.set_item("host", host)?;
            known.set_item("cause", format!("exit status {status}"))?;
            "Aborted"
        }
        Error::Timeout { missing, .. } => {
            let ranks: Vec<usize> = missing.iter().map(|(rank, _)| *rank).collect();
            known.set_item("missing", ranks)?;
            "TimeoutError"
        }
        Error::Late { rank, host, tag, expected, seen, why, .. } => {
            known.set_item("rank", rank)?;
            known.set_item("host", host)?;
            known.set_item("tag", tag)?;
            known.set_item("expected", expected)?;
            known.set_item("seen", seen)?;
            known.set_item("cause", &**why)?;
            "Late"
        }
        Error::Waits { why, .. } => {
            known.set_item("cause", &**why)?;
            "Late"
        }
        Error::Memory { source: gdsync::Error::Timeout { .. }, .. } => "Late",
        Error::Protocol { .. } => "ProtocolError",
        Error::Mismatch { .. } => "Mismatch",
        Error::NoSuchRank { rank, .. } => {
            known.set_item("rank", rank)?;
            "OutOfRange"
        }
        Error::OutOfRange { .. } | Error::TooLarge { .. } => "OutOfRange",
        Error::NoOperations => "Mismatch",
        Error::Finished { .. } => "Finished",
        Error::NoPath { rank, .. } => {
            known.set_item("rank", rank)?;
            "NoPath"
        }
        Error::Nic { .. } => "NoPath",
        Error::Truncated { sent, posted, .. } => {
            known.set_item("sent", sent)?;
            known.set_item("posted", posted)?;
            "Truncated"
        }
        Error::Started { .. } => "Started",
        Error::Memory { source: gdsync::Error::Unsupported { .. }, .. } => "Unsupported",
        Error::Memory { source: gdsync::Error::OutOfRange { .. }, .. } => "OutOfRange",
        Error::Memory { .. } => "MemoryError",
        _ => "Error",
    };
    let class = py.import("libmp._errors")?.getattr(class)?;
    let exception = class.call1((error.to_string(),))?;
    for (name, value) in &known {
        exception.setattr(name.cast::<pyo3::types::PyString>()?, value)?;
    }
    Ok(PyErr::from_value(exception))
}
