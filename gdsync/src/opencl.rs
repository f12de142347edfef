//! OpenCL memory: what a `cl_mem` is, and copies between it and host memory that nobody has to wait for. The library `libOpenCL.so.1` is loaded
//! when it is first used; without it every call says so. Kernels, programs and images are not here.
//!
//! Copies need a queue of the memory's context. [`Queues`] keeps those of the contexts that were used last: making one anew for each copy
//! would cost more than the copy.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use cl3::types::{cl_command_queue, cl_context, cl_device_id, cl_event, cl_mem};
use cl3::{command_queue, context, device, error_codes, event, memory, platform};

use crate::error::{Error, Result};

/// What a call of OpenCL gives, as a value of this crate.
fn check<T>(call: &'static str, result: std::result::Result<T, i32>) -> Result<T> {
    result.map_err(|code| match code {
        error_codes::DLOPEN_RUNTIME_LOAD_FAILED => Error::NoOpenCl,
        code => Error::OpenCl { call, code, message: error_codes::error_text(code).to_owned() },
    })
}

/// A context of one device.
///
/// ```no_run
/// use gdsync::opencl::Context;
///
/// let memory = Context::open()?.alloc(3)?;
/// memory.write(&[1, 2, 3])?;
/// assert_eq!(memory.slice(1..3)?.to_vec()?, [2, 3]);
/// # Ok::<(), gdsync::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Context {
    inner: Arc<Counted>,
    device: cl_device_id,
}

/// A context that is counted here.
#[derive(Debug)]
struct Counted(cl_context);

// SAFETY: OpenCL's objects may be used from any thread.
unsafe impl Send for Counted {}
// SAFETY: as for Send.
unsafe impl Sync for Counted {}
// SAFETY: as for `Counted`; a device is a number that stays.
unsafe impl Send for Context {}
// SAFETY: as for Send.
unsafe impl Sync for Context {}

impl Drop for Counted {
    fn drop(&mut self) {
        // SAFETY: it was counted once for this value.
        let _ = unsafe { context::release_context(self.0) };
    }
}

impl Context {
    /// A new context of the first device of the first platform that has one.
    ///
    /// # Errors
    /// [`Error::NoOpenCl`]; [`Error::Unsupported`] without a device; what OpenCL says.
    pub fn open() -> Result<Context> {
        // Not every platform can be looked at by two threads at once for the first time.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let platforms = check("clGetPlatformIDs", platform::get_platform_ids());
        let platforms = match platforms {
            // What the loader says if no platform is installed.
            Err(Error::OpenCl { code: -1001, .. }) => Vec::new(),
            other => other?,
        };
        let devices = platforms.into_iter().find_map(|platform| {
            let all = device::get_device_ids(platform, device::CL_DEVICE_TYPE_ALL).ok()?;
            all.first().copied()
        });
        let Some(device) = devices else {
            return Err(Error::Unsupported {
                what: "an OpenCL context",
                place: "this machine".into(),
                why: "no platform has a device: install one, such as Debian's pocl-opencl-icd"
                    .into(),
            });
        };
        let made = context::create_context(&[device], std::ptr::null(), None, std::ptr::null_mut());
        Ok(Context { inner: Arc::new(Counted(check("clCreateContext", made)?)), device })
    }

    /// New memory of so many bytes, at least 1, with no particular contents.
    ///
    /// # Errors
    /// What OpenCL says.
    pub fn alloc(&self, len: usize) -> Result<Memory> {
        // SAFETY: no host memory is named.
        let made = unsafe {
            memory::create_buffer(
                self.inner.0,
                memory::CL_MEM_READ_WRITE,
                len,
                std::ptr::null_mut(),
            )
        };
        let made = check("clCreateBuffer", made)?;
        // SAFETY: it is new.
        let memory = unsafe { Memory::adopt(made) };
        // SAFETY: `adopt` counts it for itself.
        let _ = unsafe { memory::release_mem_object(made) };
        memory
    }

    /// The `cl_context`.
    pub fn as_raw(&self) -> *mut c_void {
        self.inner.0
    }

    /// The `cl_device_id`.
    pub fn device(&self) -> *mut c_void {
        self.device
    }
}

/// A stretch of a `cl_mem`, which it keeps. Clones and slices share the memory.
///
/// See [`Context`] for an example.
#[derive(Clone)]
pub struct Memory {
    object: Arc<Object>,
    at: usize,
    len: usize,
}

struct Object {
    mem: cl_mem,
    /// Kept by `mem`.
    context: cl_context,
    device: cl_device_id,
    is_writable: bool,
}

// SAFETY: as for `Counted`.
unsafe impl Send for Object {}
// SAFETY: as for Send.
unsafe impl Sync for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: it was counted once for this value.
        let _ = unsafe { memory::release_mem_object(self.mem) };
    }
}

impl Memory {
    /// The memory of a buffer or a sub-buffer that somebody else has made.
    ///
    /// # Errors
    /// [`Error::NoOpenCl`]; [`Error::Unsupported`] for NULL and for an image; what OpenCL says.
    ///
    /// # Safety
    /// It is a `cl_mem` that has not been released, or NULL.
    pub unsafe fn adopt(mem: *mut c_void) -> Result<Memory> {
        let refused = |why: &str| Error::Unsupported {
            what: "OpenCL memory",
            place: "a copy".into(),
            why: why.into(),
        };
        if mem.is_null() {
            return Err(refused("the cl_mem is NULL"));
        }
        let info = |what| check("clGetMemObjectInfo", memory::get_mem_object_info(mem, what));
        if info(memory::CL_MEM_TYPE)?.to_uint() != memory::CL_MEM_OBJECT_BUFFER {
            return Err(refused("the cl_mem is an image or a pipe, not a buffer"));
        }
        let len = info(memory::CL_MEM_SIZE)?.to_size();
        let context = info(memory::CL_MEM_CONTEXT)?.to_ptr() as cl_context;
        // A sub-buffer has its parent's flags where it has none.
        let is_writable = info(memory::CL_MEM_FLAGS)?.to_ulong() & memory::CL_MEM_READ_ONLY == 0;
        let devices = check(
            "clGetContextInfo",
            context::get_context_info(context, context::CL_CONTEXT_DEVICES),
        )?;
        let devices = devices.to_vec_intptr();
        let Some(&device) = devices.first() else {
            return Err(refused("its context has no device"));
        };
        // SAFETY: the caller's promise.
        check("clRetainMemObject", unsafe { memory::retain_mem_object(mem) })?;
        let object = Object { mem, context, device: device as cl_device_id, is_writable };
        Ok(Memory { object: Arc::new(object), at: 0, len })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether kernels, and so messages, may write it: not if it was made with `CL_MEM_READ_ONLY`.
    pub fn is_writable(&self) -> bool {
        self.object.is_writable
    }

    /// The bytes `range`, sharing the memory.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn slice(&self, range: Range<usize>) -> Result<Memory> {
        self.within("a slice", range.start, range.len())?;
        if range.start > range.end {
            return Err(self.outside("a slice", range.start, 0));
        }
        Ok(Memory { object: self.object.clone(), at: self.at + range.start, len: range.len() })
    }

    /// The `cl_mem`.
    pub fn as_raw(&self) -> *mut c_void {
        self.object.mem
    }

    /// Replaces the first bytes, and waits for that.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; what OpenCL says.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let queue = Queue::new(self)?;
        // SAFETY: the bytes are there until the copy has ended.
        let done = unsafe { queue.write(self, 0, bytes.as_ptr(), bytes.len())? };
        done.finish(queue.write)
    }

    /// A copy of all bytes.
    ///
    /// # Errors
    /// What OpenCL says.
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let queue = Queue::new(self)?;
        let mut bytes = vec![0; self.len];
        // SAFETY: as in `write`.
        let done = unsafe { queue.read(self, 0, bytes.as_mut_ptr(), bytes.len())? };
        done.finish(queue.read)?;
        Ok(bytes)
    }

    fn within(&self, what: &'static str, at: usize, len: usize) -> Result<()> {
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(self.outside(what, at, len)),
        }
    }

    fn outside(&self, what: &'static str, offset: usize, len: usize) -> Error {
        Error::OutOfRange { what, offset, len, size: self.len }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of OpenCL memory", self.len)
    }
}

/// A point in a queue of OpenCL's.
///
/// ```no_run
/// use gdsync::opencl::{Context, Queues};
///
/// let memory = Context::open()?.alloc(8)?;
/// let (queue, bytes) = (Queues::new(4).of(&memory)?, [7u8; 8]);
/// // SAFETY: the bytes are there until the copy has ended.
/// let done = unsafe { queue.write(&memory, 0, bytes.as_ptr(), 8)? };
/// while !done.is_reached()? {}
/// # Ok::<(), gdsync::Error>(())
/// ```
pub struct Event {
    /// None: of nothing.
    event: Option<cl_event>,
}

// SAFETY: as for `Counted`.
unsafe impl Send for Event {}
// SAFETY: as for Send.
unsafe impl Sync for Event {}

impl Event {
    /// The point that a queue has been given commands up to, all of them or, in a queue without order, each of them.
    ///
    /// # Errors
    /// What OpenCL says.
    ///
    /// # Safety
    /// It is a `cl_command_queue` that has not been released.
    pub unsafe fn of_queue(queue: *mut c_void) -> Result<Event> {
        // SAFETY: the caller's promise; no events are waited for but those of the queue.
        let marker =
            unsafe { command_queue::enqueue_marker_with_wait_list(queue, 0, std::ptr::null()) };
        let event = Event { event: Some(check("clEnqueueMarkerWithWaitList", marker)?) };
        // Or nobody else may ever see it reached.
        check("clFlush", command_queue::flush(queue))?;
        Ok(event)
    }

    /// An event of somebody else, which is kept.
    ///
    /// # Errors
    /// What OpenCL says.
    ///
    /// # Safety
    /// It is a `cl_event` that has not been released; the queue that it is of has been flushed.
    pub unsafe fn adopt(event: *mut c_void) -> Result<Event> {
        // SAFETY: the caller's promise.
        check("clRetainEvent", unsafe { event::retain_event(event) })?;
        Ok(Event { event: Some(event) })
    }

    /// Whether its queue has come so far.
    ///
    /// # Errors
    /// That the command before it failed; what OpenCL says.
    pub fn is_reached(&self) -> Result<bool> {
        let Some(event) = self.event else { return Ok(true) };
        let status = event::get_event_info(event, event::CL_EVENT_COMMAND_EXECUTION_STATUS);
        match check("clGetEventInfo", status)?.to_int() {
            failed if failed < 0 => check("a command of a queue", Err(failed)),
            status => Ok(status == event::CL_COMPLETE),
        }
    }

    fn finish(&self, queue: cl_command_queue) -> Result<()> {
        check("clFinish", command_queue::finish(queue))?;
        self.is_reached().map(drop)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(event) = self.event {
            // SAFETY: it was counted once for this value.
            let _ = unsafe { event::release_event(event) };
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a point in a queue of OpenCL's")
    }
}

/// Copies of one context: a queue for each direction, both in order.
///
/// See [`Event`] for an example.
#[derive(Debug)]
pub struct Queue {
    /// Kept by the queues.
    context: cl_context,
    read: cl_command_queue,
    write: cl_command_queue,
}

// SAFETY: as for `Counted`.
unsafe impl Send for Queue {}
// SAFETY: as for Send.
unsafe impl Sync for Queue {}

impl Queue {
    fn new(memory: &Memory) -> Result<Queue> {
        let Object { context, device, .. } = *memory.object;
        let make = || {
            // SAFETY: the memory keeps its context, and its device is one of that.
            let made = unsafe { command_queue::create_command_queue(context, device, 0) };
            check("clCreateCommandQueue", made)
        };
        let read = make()?;
        match make() {
            Ok(write) => Ok(Queue { context, read, write }),
            Err(error) => {
                // SAFETY: it is new, and nobody else's.
                let _ = unsafe { command_queue::release_command_queue(read) };
                Err(error)
            }
        }
    }

    /// Starts to copy `len` bytes from byte `at` of the memory on to the host.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; what OpenCL says, as for memory of another context.
    ///
    /// # Safety
    /// `len` bytes at `to` are valid, and nobody else's, until the event is reached.
    pub unsafe fn read(&self, from: &Memory, at: usize, to: *mut u8, len: usize) -> Result<Event> {
        from.within("reading OpenCL memory", at, len)?;
        if len == 0 {
            return Ok(Event { event: None });
        }
        let (mem, at) = (from.object.mem, from.at + at);
        // SAFETY: the range lies inside the memory; the caller's promise.
        let copied = unsafe {
            let none = std::ptr::null();
            command_queue::enqueue_read_buffer(self.read, mem, 0, at, len, to.cast(), 0, none)
        };
        let event = Event { event: Some(check("clEnqueueReadBuffer", copied)?) };
        check("clFlush", command_queue::flush(self.read))?;
        Ok(event)
    }

    /// Starts to copy `len` bytes of the host to byte `at` of the memory.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Safety
    /// `len` bytes at `from` are valid, and nobody writes them, until the event is reached.
    pub unsafe fn write(
        &self,
        to: &Memory,
        at: usize,
        from: *const u8,
        len: usize,
    ) -> Result<Event> {
        to.within("writing OpenCL memory", at, len)?;
        if len == 0 {
            return Ok(Event { event: None });
        }
        let (mem, at) = (to.object.mem, to.at + at);
        // SAFETY: as in `read`.
        let copied = unsafe {
            let none = std::ptr::null();
            command_queue::enqueue_write_buffer(self.write, mem, 0, at, len, from.cast(), 0, none)
        };
        let event = Event { event: Some(check("clEnqueueWriteBuffer", copied)?) };
        check("clFlush", command_queue::flush(self.write))?;
        Ok(event)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        for queue in [self.read, self.write] {
            // SAFETY: made here; what it has been given runs to its end.
            let _ = unsafe { command_queue::release_command_queue(queue) };
        }
    }
}

/// The queues of the contexts that were used last. What is in use stays, also if it is not among them any more; a context whose user has released
/// it stays as long as its queues do.
///
/// See [`Event`] for an example.
#[derive(Debug)]
pub struct Queues {
    most: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Those used last at the end.
    queues: Vec<Arc<Queue>>,
    made: u64,
}

impl Queues {
    /// Of so many contexts, at least 1.
    pub fn new(most: usize) -> Queues {
        Queues { most: most.max(1), kept: Mutex::default() }
    }

    /// The queues of the memory's context.
    ///
    /// # Errors
    /// What OpenCL says.
    pub fn of(&self, memory: &Memory) -> Result<Arc<Queue>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let context = memory.object.context;
        let queue = match kept.queues.iter().position(|queue| queue.context == context) {
            Some(at) => kept.queues.remove(at),
            None => {
                let made = Arc::new(Queue::new(memory)?);
                kept.made += 1;
                if kept.queues.len() >= self.most {
                    kept.queues.remove(0);
                }
                made
            }
        };
        kept.queues.push(queue.clone());
        Ok(queue)
    }

    /// How many were made so far.
    pub fn made(&self) -> u64 {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).made
    }
}
