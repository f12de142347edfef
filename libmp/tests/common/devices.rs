//! Tests of what a device does, from one list of names: each of them with the host as the device, and again with a GPU.

use libmp::Device;

/// Makes `on_the_host!` and `on_a_gpu!`, which a file calls where the tests are to be: `name;` is a test that calls the function
/// `name` of the file with the device, `name = run;` one that calls `run`. On the host a test runs by the function that stands
/// first; one for a GPU is ignored for want of what stands before it.
macro_rules! tests_of_devices {
    (@run $test:ident) => { crate::$test };
    (@run $test:ident = $run:expr) => { $run };
    ($by:path; $($needs:literal: $($test:ident $(= $run:expr)?;)+)+) => {
        macro_rules! on_the_host {
            () => { $($(
                #[test]
                fn $test() {
                    $by(|| crate::devices::with(&libmp::Device::Host, tests_of_devices!(@run $test $(= $run)?)));
                }
            )+)+ };
        }

        macro_rules! on_a_gpu {
            () => { $($(
                #[test]
                #[ignore = $needs]
                fn $test() {
                    crate::devices::with(&libmp::Device::cuda(0).unwrap(), tests_of_devices!(@run $test $(= $run)?));
                }
            )+)+ };
        }
    };
}

/// Runs a test with a device.
pub fn with<T>(device: &Device, test: impl Fn(&Device) -> T) {
    test(device);
}

/// Runs a test once, not on each path.
#[allow(dead_code, reason = "some files name each path")]
pub fn once(test: impl Fn()) {
    test();
}
