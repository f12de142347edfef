//! Datatypes that the program has made of predefined ones – duplicates, and rows of them – and their attributes; those that say where a
//! message's memory is (`include/mpi_abi_memory.h`).

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use libmp::gdsync::{Buffer, opencl};
use libmp::tagged::Place;
use libmp::{Device, Stream};

use crate::abi::{DATATYPE_NULL, Handle};
use crate::kind::{Element, element, predefined};
use crate::state::fail;
use crate::world::{entries, put};

const KIND: c_int = 0x4d01;
const DEVICE: c_int = 0x4d02;
const STREAM: c_int = 0x4d03;
const QUEUE: c_int = 0x4d04;
const HOST: usize = 0;
const CUDA: usize = 1;
const OPENCL: usize = 2;

/// `MPI_KEYVAL_INVALID`, `MPI_TYPE_DUP_FN`.
const KEYVAL_INVALID: c_int = 0;
const DUP: usize = 1;

#[derive(Clone)]
struct Made {
    element: Element,
    /// Rows of elements, if it is not one.
    rows: Option<Rows>,
    attributes: HashMap<c_int, usize>,
}

/// Rows of so many bytes, one `step` bytes behind the other.
#[derive(Debug, Clone, Copy)]
struct Rows {
    count: usize,
    bytes: usize,
    step: usize,
}

impl Rows {
    /// Bytes without what lies between.
    fn size(self) -> usize {
        self.count * self.bytes
    }

    /// Bytes from one to the next.
    fn extent(self) -> usize {
        self.count.checked_sub(1).map_or(0, |before| before * self.step + self.bytes)
    }
}

/// The program's memory of a message of rows.
pub struct Strided {
    at: NonNull<u8>,
    rows: Rows,
    count: usize,
}

impl Strided {
    /// Bytes of the message.
    pub fn len(&self) -> usize {
        self.count * self.rows.size()
    }

    fn each(&self) -> impl Iterator<Item = *mut u8> {
        let (at, rows) = (self.at.as_ptr(), self.rows);
        (0..self.count).flat_map(move |number| {
            (0..rows.count)
                .map(move |row| at.wrapping_add(number * rows.extent() + row * rows.step))
        })
    }

    /// The message.
    ///
    /// # Safety
    /// The memory is there.
    pub unsafe fn packed(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        for row in self.each() {
            // SAFETY: the caller's promise.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(row, self.rows.bytes) });
        }
        bytes
    }

    /// Puts what has come where it goes, which may be less.
    ///
    /// # Safety
    /// The memory is there, and nobody else's.
    pub unsafe fn unpack(&self, bytes: &[u8]) {
        if self.rows.bytes == 0 {
            return;
        }
        for (row, part) in self.each().zip(bytes.chunks(self.rows.bytes)) {
            // SAFETY: the caller's promise; a part is no longer than a row.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), row, part.len()) };
        }
    }
}

#[derive(Default)]
struct Types {
    made: HashMap<Handle, Made>,
    /// Of the program's keyvals: whether a duplicate has the attribute, too.
    keyvals: HashMap<c_int, bool>,
}

/// The first handle and the first keyval that are not the ABI's or this library's.
const FIRST: usize = 0x10000;

static TYPES: LazyLock<RwLock<Types>> = LazyLock::new(RwLock::default);
static NEXT: AtomicUsize = AtomicUsize::new(FIRST);

fn change<R>(does: impl FnOnce(&mut Types) -> R) -> R {
    does(&mut TYPES.write().unwrap_or_else(PoisonError::into_inner))
}

fn look<R>(does: impl FnOnce(&Types) -> R) -> R {
    does(&TYPES.read().unwrap_or_else(PoisonError::into_inner))
}

/// What a datatype that the program has made is of. Ends the program for rows.
pub fn made(datatype: Handle) -> Option<Element> {
    let made = look(|types| types.made.get(&datatype).map(|made| (made.element, made.rows)));
    made.map(|(element, rows)| match rows {
        None => element,
        Some(_) => fail(
            "a datatype",
            "rows (MPI_Type_vector) are part of this subset in sends and receives only",
        ),
    })
}

fn rows(datatype: Handle) -> Option<Rows> {
    let is_made = is_made(datatype);
    is_made.then(|| look(|types| types.made.get(&datatype).and_then(|made| made.rows))).flatten()
}

/// Bytes of one, without what lies between rows. Ends the program for what is no datatype.
pub fn size(datatype: Handle) -> usize {
    rows(datatype).map_or_else(|| element(datatype).size(), Rows::size)
}

/// The memory of a message of rows, if it is one.
pub fn strided(call: &str, datatype: Handle, at: *const c_void, count: c_int) -> Option<Strided> {
    let rows = rows(datatype)?;
    let Ok(count) = usize::try_from(count) else { fail(call, format!("a count of {count}")) };
    let strided = |at| Strided { at, rows, count };
    match NonNull::new(at.cast_mut().cast()) {
        Some(at) => Some(strided(at)),
        None if strided(NonNull::dangling()).len() == 0 => Some(strided(NonNull::dangling())),
        None => fail(call, "the buffer is NULL"),
    }
}

/// Makes rows of a datatype whose elements follow each other.
fn make(call: &str, [count, length, stride]: [c_int; 3], old: Handle, to: *mut Handle) {
    let element = element(old);
    let [count, length, stride] = [count, length, stride].map(|number| {
        usize::try_from(number)
            .unwrap_or_else(|_| fail(call, format!("{number} is part of this subset from 0 on")))
    });
    let [bytes, step] = [length, stride].map(|number| number * element.size());
    let (rows, attributes) = (Some(Rows { count, bytes, step }), HashMap::new());
    let handle = NEXT.fetch_add(1, Ordering::Relaxed);
    change(|types| types.made.insert(handle, Made { element, rows, attributes }));
    // SAFETY: the program's pointer, as MPI has it.
    unsafe { put(to, handle) };
}

/// Whether a duplicate has an attribute, too; none for what is no keyval.
fn copies(types: &Types, keyval: c_int) -> Option<bool> {
    match keyval {
        KIND..=QUEUE => Some(true),
        _ => types.keyvals.get(&keyval).copied(),
    }
}

/// The attributes of a datatype of the program.
fn with<R>(call: &str, datatype: Handle, keyval: c_int, does: impl FnOnce(&mut Made) -> R) -> R {
    let done = change(|types| {
        copies(types, keyval).ok_or_else(|| format!("{keyval} is no keyval"))?;
        let made = types.made.get_mut(&datatype);
        let made = made.ok_or_else(|| {
            format!("handle {datatype:#x} is no datatype that the program has made")
        })?;
        Ok::<R, String>(does(made))
    });
    done.unwrap_or_else(|what| fail(call, what))
}

/// Whether the program has made a datatype, which may say where memory is.
#[inline]
pub fn is_made(datatype: Handle) -> bool {
    datatype >= FIRST
}

/// Where the memory of a message is, if it is not the host's.
pub fn place(
    call: &str,
    datatype: Handle,
    at: *const c_void,
    count: c_int,
) -> Option<Place<'static>> {
    if !is_made(datatype) {
        return None;
    }
    let made = look(|types| types.made.get(&datatype).cloned())?;
    let attribute = |keyval: c_int| made.attributes.get(&keyval).copied();
    let Ok(count) = usize::try_from(count) else { fail(call, format!("a count of {count}")) };
    let kind = attribute(KIND).unwrap_or(HOST);
    if kind != HOST && made.rows.is_some() {
        fail(call, "rows (MPI_Type_vector) of memory of a device are not part of this subset");
    }
    let len = count * made.element.size();
    let memory = |result: libmp::gdsync::Result<_>| match result {
        Ok(value) => value,
        Err(error) => fail(call, error),
    };
    match kind {
        HOST => None,
        CUDA => {
            let ordinal = attribute(DEVICE).unwrap_or(0);
            let device = u32::try_from(ordinal).ok().map(Device::cuda);
            let device = match device {
                Some(Ok(device)) => device,
                Some(Err(error)) => fail(call, error),
                None => fail(call, format!("{ordinal} is no device")),
            };
            // SAFETY: the program keeps the memory until the request is complete, as MPI has it.
            let buffer = unsafe { Buffer::<u8>::from_cuda_memory(&device, at as u64, len, ()) };
            let buffer = match buffer {
                Ok(buffer) => buffer,
                Err(error) => fail(call, error),
            };
            let place = Place::from(&buffer);
            Some(match attribute(STREAM) {
                Some(stream) => place.on(adopted(call, &device, stream)),
                None => place,
            })
        }
        OPENCL => {
            // SAFETY: the program says that it is a `cl_mem`, which it keeps.
            let all = memory(unsafe { opencl::Memory::adopt(at.cast_mut()) });
            let place = Place::from(&memory(all.slice(0..len)));
            let Some(queue) = attribute(QUEUE) else { return Some(place) };
            // SAFETY: the program says that it is a `cl_command_queue`, which it keeps.
            match unsafe { opencl::Event::of_queue(queue as *mut c_void) } {
                Ok(event) => Some(place.after_opencl(&Arc::new(event))),
                Err(error) => fail(call, error),
            }
        }
        other => fail(call, format!("MPIX_MEMORY_KIND is {other}, expected 0, 1 or 2")),
    }
}

/// A stream of the program, which is adopted once.
fn adopted(call: &str, device: &Device, stream: usize) -> &'static Stream {
    type Adopted = HashMap<(Option<u32>, usize), &'static Stream>;
    static ADOPTED: LazyLock<Mutex<Adopted>> = LazyLock::new(Mutex::default);
    let mut adopted = ADOPTED.lock().unwrap_or_else(PoisonError::into_inner);
    adopted.entry((device.ordinal(), stream)).or_insert_with(|| {
        // SAFETY: the program says that it is a stream of the device; it stays adopted, and so is never given up while it is busy.
        let stream = unsafe { Stream::adopt(device, stream as _, None) };
        match stream {
            Ok(stream) => Box::leak(Box::new(stream)),
            Err(error) => fail(call, error),
        }
    })
}

entries! {
    fn MPI_Type_dup(from: Handle, to: *mut Handle) {
        size(from);
        let of = look(|types| types.made.get(&from).map(|made| (made.element, made.rows)));
        let (element, rows) = of.unwrap_or_else(|| (element(from), None));
        let attributes = look(|types| {
            let all = types.made.get(&from).map(|made| made.attributes.clone()).unwrap_or_default();
            let kept = |keyval: &c_int| copies(types, *keyval) == Some(true);
            all.into_iter().filter(|(keyval, _)| kept(keyval)).collect()
        });
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        change(|types| types.made.insert(handle, Made { element, rows, attributes }));
        put(to, handle);
    }

    fn MPI_Type_vector(count: c_int, length: c_int, stride: c_int, old: Handle, to: *mut Handle) {
        make(CALL, [count, length, stride], old, to);
    }

    fn MPI_Type_contiguous(count: c_int, old: Handle, to: *mut Handle) {
        make(CALL, [1, count, count], old, to);
    }

    fn MPI_Type_commit(datatype: *mut Handle) {
        size(*datatype);
    }

    fn MPI_Type_free(datatype: *mut Handle) {
        if change(|types| types.made.remove(&*datatype)).is_none() {
            fail(CALL, format!("handle {:#x} is no datatype that can be freed", *datatype));
        }
        put(datatype, DATATYPE_NULL);
    }

    fn MPI_Type_create_keyval(
        copy: usize,
        delete: usize,
        keyval: *mut c_int,
        _extra: *mut c_void,
    ) {
        if copy > DUP || delete != 0 {
            fail(CALL, "functions of the program for attributes are not part of this subset");
        }
        let made = NEXT.fetch_add(1, Ordering::Relaxed) as c_int;
        change(|types| types.keyvals.insert(made, copy == DUP));
        put(keyval, made);
    }

    fn MPI_Type_free_keyval(keyval: *mut c_int) {
        // Attributes that are set stay, as MPI has it, and are found by nobody.
        if change(|types| types.keyvals.remove(&*keyval)).is_none() {
            fail(CALL, format!("{} is no keyval that can be freed", *keyval));
        }
        put(keyval, KEYVAL_INVALID);
    }

    fn MPI_Type_set_attr(datatype: Handle, keyval: c_int, value: usize) {
        with(CALL, datatype, keyval, |made| made.attributes.insert(keyval, value));
    }

    fn MPI_Type_get_attr(datatype: Handle, keyval: c_int, value: *mut usize, flag: *mut c_int) {
        let predefined = predefined(datatype).is_some();
        let found = match predefined {
            true => None,
            false => with(CALL, datatype, keyval, |made| made.attributes.get(&keyval).copied()),
        };
        put(flag, found.is_some().into());
        if let Some(found) = found {
            put(value, found);
        }
    }

    fn MPI_Type_delete_attr(datatype: Handle, keyval: c_int) {
        if with(CALL, datatype, keyval, |made| made.attributes.remove(&keyval)).is_none() {
            fail(CALL, "the datatype has no such attribute");
        }
    }
}
