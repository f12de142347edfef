//! What the integration tests share: every test runs on the host, and, where there is one, on a GPU.

#![allow(dead_code)] // Each test file uses its part.

use std::time::Duration;

use gdsync::{CudaDevice, Deadline, Device, Module};

pub type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Long enough for any machine, short enough for a test that hangs.
pub fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// The GPU that a test runs on: the first, or the one that MP_TEST_GPU names.
pub fn gpu() -> Device {
    let ordinal = std::env::var("MP_TEST_GPU").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    Device::cuda(ordinal).expect("a CUDA GPU")
}

/// Kernels of `kernels/tests/cuda/module.cu`, which says how they are compiled.
pub fn kernels(
    gpu: &CudaDevice,
    names: &[&'static str],
) -> Result<Module, Box<dyn std::error::Error>> {
    let folder = std::env::var("TEST_KERNELS").map_err(|_| "TEST_KERNELS names no folder")?;
    let image = std::fs::read(std::path::Path::new(&folder).join("gdsync.fatbin"))?;
    Ok(gpu.load_module(image.leak(), names)?)
}

/// Makes two tests of each function `fn name(device: &Device) -> Outcome`: `host::name`, and `cuda::name` that is
/// ignored where there is no GPU.
macro_rules! on_host_and_cuda {
    ($($name:ident),+ $(,)?) => {
        mod host {
            $(#[test]
            fn $name() -> super::common::Outcome {
                super::$name(&gdsync::Device::Host)
            })+
        }
        mod cuda {
            $(#[test]
            #[ignore = "needs a CUDA GPU"]
            fn $name() -> super::common::Outcome {
                super::$name(&super::common::gpu())
            })+
        }
    };
}
pub(crate) use on_host_and_cuda;
