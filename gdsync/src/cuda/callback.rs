//! Host functions in a CUDA stream: what the driver calls, and what happens when it panics.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use super::device::lock;
use crate::error::Error;
use crate::host::executor::panic_message;

/// A host function on its way through a stream.
pub(crate) struct Callback {
    call: Arc<dyn Fn() + Send + Sync>,
    stream: String,
    failure: Arc<Mutex<Option<Error>>>,
}

/// Runs a callback that is enqueued once, and lets go of it.
pub(super) unsafe extern "C" fn run_once(data: *mut c_void) {
    // SAFETY: `data` is the reference that `call` gave away.
    unsafe { Arc::from_raw(data.cast::<Callback>().cast_const()) }.run();
}

/// Runs a callback that a graph holds.
pub(super) unsafe extern "C" fn run_again(data: *mut c_void) {
    // SAFETY: the graph holds the callback while it can run; the reference here is not counted.
    ManuallyDrop::new(unsafe { Arc::from_raw(data.cast::<Callback>().cast_const()) }).run();
}

impl Callback {
    pub fn new(
        call: Arc<dyn Fn() + Send + Sync>,
        stream: String,
        failure: Arc<Mutex<Option<Error>>>,
    ) -> Callback {
        Callback { call, stream, failure }
    }

    fn run(&self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.call)())) {
            let error = Error::CallbackPanicked {
                stream: self.stream.clone(),
                message: panic_message(&*panic),
            };
            tracing::error!("{error}");
            lock(&self.failure).get_or_insert(error);
        }
    }
}
