//! Datatypes that the program has made of predefined ones, and their attributes; those that say where a message's memory is
//! (`include/mpi_abi_memory.h`).

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
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
    attributes: HashMap<c_int, usize>,
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

/// What a datatype that the program has made is of.
pub fn made(datatype: Handle) -> Option<Element> {
    look(|types| types.made.get(&datatype).map(|made| made.element))
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
            format!("handle {datatype:#x} is no datatype that MPI_Type_dup has made")
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
    let len = count * made.element.size();
    let memory = |result: libmp::gdsync::Result<_>| match result {
        Ok(value) => value,
        Err(error) => fail(call, error),
    };
    match attribute(KIND).unwrap_or(HOST) {
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
        let element = element(from);
        let attributes = look(|types| {
            let all = types.made.get(&from).map(|made| made.attributes.clone()).unwrap_or_default();
            let kept = |keyval: &c_int| copies(types, *keyval) == Some(true);
            all.into_iter().filter(|(keyval, _)| kept(keyval)).collect()
        });
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        change(|types| types.made.insert(handle, Made { element, attributes }));
        put(to, handle);
    }

    fn MPI_Type_commit(datatype: *mut Handle) {
        element(*datatype);
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
