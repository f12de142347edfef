//! What the integration tests share: every test runs on the host, and, where there is one, on a GPU.

#![allow(dead_code)] // Each test file uses its part.

use std::time::Duration;

use gdsync::{Deadline, Device};

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
