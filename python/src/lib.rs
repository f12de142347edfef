//! `libmp` for Python: the module `libmp._libmp`, which the package `libmp` shows. It describes arrays and streams of other libraries to
//! libmp, waits without the interpreter's lock, and holds no transport.
#![allow(
    missing_docs,
    reason = "the documentation is for Python: the stubs, and what `help` shows"
)]

mod array;
mod collective;
mod dlpack;
mod dtype;
mod error;
mod operation;
mod region;
mod stream;
mod tagged;
mod wait;
mod window;
mod world;

use clap::Parser;
use pyo3::prelude::*;

/// The launcher: its command line, its own name first. Does not return.
#[pyfunction]
fn mprun(py: Python<'_>, arguments: Vec<std::path::PathBuf>) {
    py.detach(|| {
        // `--help` and what is wrong end the process here.
        let mut options = mp::launch::Options::parse_from(&arguments);
        options.program = arguments.first().and_then(|program| std::path::absolute(program).ok());
        let status = mp::launch::run(&options).unwrap_or_else(|error| {
            eprintln!("mprun: {error}");
            error.exit_status()
        });
        std::process::exit(status)
    })
}

/// The number of GPUs that this process sees, and the sentence that says why there are none.
#[pyfunction]
fn gpus() -> (u32, Option<String>) {
    match libmp::gdsync::CudaDevice::count() {
        Ok(count) => (count, None),
        Err(error) => (0, Some(error.to_string())),
    }
}

#[pymodule]
fn _libmp(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("BUILD", mp::version_string())?;
    module.add_function(wrap_pyfunction!(mprun, module)?)?;
    module.add_function(wrap_pyfunction!(gpus, module)?)?;
    module.add_function(wrap_pyfunction!(world::start, module)?)?;
    module.add_function(wrap_pyfunction!(operation::wait_all, module)?)?;
    module.add_function(wrap_pyfunction!(operation::wait_any, module)?)?;
    module.add_function(wrap_pyfunction!(operation::enqueue, module)?)?;
    module.add_class::<world::PyCommunicator>()?;
    module.add_class::<world::PyWorld>()?;
    module.add_class::<world::PyPeer>()?;
    module.add_class::<operation::PyOperation>()?;
    module.add_class::<region::PyRegion>()?;
    module.add_class::<stream::PyStream>()?;
    module.add_class::<stream::PyGraph>()?;
    module.add_class::<window::PyWindow>()?;
    module.add_class::<tagged::PyTagged>()?;
    module.add_class::<tagged::PyRequest>()?;
    module.add_class::<tagged::PyStatus>()?;
    module.add_class::<collective::PyCollective>()?;
    module.add_class::<collective::PyRun>()?;
    Ok(())
}
