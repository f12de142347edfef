//! A point in a stream that other streams and the CPU can wait for.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use cudarc::driver::sys;

use crate::cuda::device::{CudaDevice, lock};
use crate::cuda::driver::cu;
use crate::cuda::graveyard::Grave;
use crate::deadline::Deadline;
use crate::device::Device;
use crate::error::{Error, Result};

/// A point in a stream, set by [`Stream::record`](crate::Stream::record). Clones are the same event.
///
/// ```
/// use std::time::Duration;
///
/// use gdsync::{Deadline, Device, Event};
///
/// let device = Device::Host; // or Device::best()
/// let (one, two, event) = (device.stream()?, device.stream()?, Event::new(&device)?);
/// one.record(&event)?;
/// two.wait_event(&event)?; // what comes after it on `two` is behind what came before on `one`
/// event.synchronize(Deadline::after(Duration::from_secs(10)))?;
/// # Ok::<(), gdsync::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Event {
    pub(crate) inner: Inner,
}

#[derive(Debug, Clone)]
pub(crate) enum Inner {
    Host(Arc<HostEvent>),
    Cuda(Arc<CudaEvent>),
}

/// An event of host streams: a count of records asked for and of records reached.
#[derive(Debug, Default)]
pub(crate) struct HostEvent {
    state: Mutex<HostState>,
    reached: Condvar,
}

#[derive(Debug, Default)]
struct HostState {
    recorded: u64,
    reached: u64,
    at: Option<Instant>,
}

#[derive(Debug)]
pub(crate) struct CudaEvent {
    device: CudaDevice,
    pub event: sys::CUevent,
}

// SAFETY: a CUevent may be used from any thread with its context current.
unsafe impl Send for CudaEvent {}
// SAFETY: as for Send.
unsafe impl Sync for CudaEvent {}

impl Event {
    /// A new event for streams of `device`.
    ///
    /// # Errors
    /// What the driver says.
    pub fn new(device: &Device) -> Result<Event> {
        let inner = match device {
            Device::Host => Inner::Host(Arc::default()),
            Device::Cuda(cuda) => {
                cuda.bind()?;
                let mut event = std::ptr::null_mut();
                // SAFETY: writes one handle; released through the graveyard.
                unsafe {
                    cu!(cuEventCreate(&mut event, sys::CUevent_flags::CU_EVENT_DEFAULT as u32))?
                };
                Inner::Cuda(Arc::new(CudaEvent { device: cuda.clone(), event }))
            }
        };
        Ok(Event { inner })
    }

    /// Whether the stream has passed the last record. An event never recorded counts as passed.
    ///
    /// # Errors
    /// What the driver says, for example that a kernel before the event failed.
    pub fn is_reached(&self) -> Result<bool> {
        match &self.inner {
            Inner::Host(event) => {
                let state = lock(&event.state);
                Ok(state.reached >= state.recorded)
            }
            Inner::Cuda(event) => {
                event.device.bind()?;
                // SAFETY: the event lives as long as `self`.
                match unsafe { sys::cuEventQuery(event.event) } {
                    sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
                    result => crate::cuda::driver::check("cuEventQuery", result).map(|()| true),
                }
            }
        }
    }

    /// Waits on the CPU until the stream has passed the last record.
    ///
    /// # Errors
    /// [`Error::Timeout`], or as [`Event::is_reached`].
    pub fn synchronize(&self, deadline: Deadline) -> Result<()> {
        let reached = match &self.inner {
            Inner::Host(event) => event.wait_until(deadline).then_some(Ok(())),
            Inner::Cuda(_) => deadline.poll(|| match self.is_reached() {
                Ok(false) => None,
                Ok(true) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            }),
        };
        let after = deadline.timeout();
        reached.unwrap_or(Err(Error::Timeout {
            what: "event".into(),
            after,
            detail: String::new(),
        }))
    }

    /// Time between two recorded and reached events of the same kind of device: on a GPU measured by the GPU, with a
    /// resolution of about half a microsecond.
    ///
    /// # Errors
    /// If one was not recorded or not reached, or the two are of different devices.
    pub fn since(&self, earlier: &Event) -> Result<Duration> {
        let mixed = || Error::Unsupported {
            what: "a time between events",
            place: "two devices".into(),
            why: "no common clock".into(),
        };
        match (&self.inner, &earlier.inner) {
            (Inner::Host(end), Inner::Host(begin)) => match (end.at(), begin.at()) {
                (Some(end), Some(begin)) => Ok(end.saturating_duration_since(begin)),
                _ => Err(Error::Unsupported {
                    what: "a time between events",
                    place: "host".into(),
                    why: "one was not reached".into(),
                }),
            },
            (Inner::Cuda(end), Inner::Cuda(begin))
                if end.device.ordinal() == begin.device.ordinal() =>
            {
                end.device.bind()?;
                let mut milliseconds = 0f32;
                // SAFETY: both events live; writes one float.
                unsafe { cu!(cuEventElapsedTime_v2(&mut milliseconds, begin.event, end.event))? };
                Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) * 1e-3))
            }
            _ => Err(mixed()),
        }
    }
}

impl HostEvent {
    /// A record was enqueued; its number goes with the operation.
    pub fn enqueue(&self) -> u64 {
        let mut state = lock(&self.state);
        state.recorded += 1;
        state.recorded
    }

    /// The number of the last record enqueued: what a wait enqueued now waits for.
    pub fn last(&self) -> u64 {
        lock(&self.state).recorded
    }

    /// The stream passed record `number`.
    pub fn reach(&self, number: u64) {
        let mut state = lock(&self.state);
        state.reached = state.reached.max(number);
        state.at = Some(Instant::now());
        self.reached.notify_all();
    }

    /// Whether record `number` was passed.
    pub fn passed(&self, number: u64) -> bool {
        lock(&self.state).reached >= number
    }

    fn at(&self) -> Option<Instant> {
        lock(&self.state).at
    }

    fn wait_until(&self, deadline: Deadline) -> bool {
        let mut state = lock(&self.state);
        while state.reached < state.recorded {
            let left = deadline.remaining();
            if left.is_zero() {
                return false;
            }
            state = self.reached.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0;
        }
        true
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        self.device.bury(Grave::Event(self.event));
    }
}
