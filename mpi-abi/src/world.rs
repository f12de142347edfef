//! Starting and ending, communicators, time, names.

use std::ffi::{c_char, c_double, c_int, c_void};
use std::sync::OnceLock;
use std::time::Instant;

use crate::abi::{
    COMM_NULL, Handle, NAME, SUCCESS, Status, THREAD_MULTIPLE, THREAD_SINGLE, UNDEFINED,
};
use crate::datatype;
use crate::kind::predefined;
use crate::state::{self, comm, expect, fail};

/// Declares entry points. What a pointer of C has to be is MPI's.
macro_rules! entries {
    ($( $(#[doc = $doc:literal])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block )+) => {
        $(
            $(#[doc = $doc])*
            ///
            /// # Safety
            /// As MPI has it.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
                #[allow(unused, reason = "not all use it")]
                const CALL: &str = stringify!($name);
                #[allow(unused_unsafe, unreachable_code, reason = "not all read memory of the program, or return")]
                {
                    // SAFETY: the caller keeps MPI's rules.
                    unsafe { $body }
                    crate::abi::SUCCESS
                }
            }
        )+
    };
}
pub(crate) use entries;

/// Writes a result, if it is wanted.
///
/// # Safety
/// The pointer is NULL or valid for a write.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write(value) }
    }
}

/// An array of the program.
///
/// # Safety
/// It has so many elements, which nobody else writes.
pub(crate) unsafe fn list<'a, T>(call: &str, count: c_int, first: *const T) -> &'a [T] {
    let len = usize::try_from(count).unwrap_or_else(|_| fail(call, format!("a count of {count}")));
    if len == 0 {
        return &[];
    }
    if first.is_null() {
        fail(call, "an array is NULL");
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(first, len) }
}

/// Writes a text of at most `NAME - 1` bytes and its end.
///
/// # Safety
/// The pointers are valid for writes of `NAME` bytes and an int.
unsafe fn put_text(to: *mut c_char, len: *mut c_int, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(NAME - 1)];
    // SAFETY: the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len());
        to.add(bytes.len()).write(0);
        put(len, bytes.len() as c_int);
    }
}

fn since() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

#[unsafe(no_mangle)]
extern "C" fn MPI_Wtime() -> c_double {
    since().elapsed().as_secs_f64()
}

#[unsafe(no_mangle)]
extern "C" fn MPI_Wtick() -> c_double {
    1e-9
}

entries! {
    fn MPI_Init(_argc: *mut c_int, _argv: *mut c_void) {
        state::init(CALL);
        since();
    }

    fn MPI_Init_thread(_argc: *mut c_int, _argv: *mut c_void, required: c_int, provided: *mut c_int) {
        if !(THREAD_SINGLE..=THREAD_MULTIPLE).contains(&required) {
            fail(CALL, format!("{required} is no level of thread support"));
        }
        state::init(CALL);
        since();
        put(provided, THREAD_MULTIPLE);
    }

    fn MPI_Query_thread(provided: *mut c_int) {
        put(provided, THREAD_MULTIPLE);
    }

    fn MPI_Initialized(flag: *mut c_int) {
        put(flag, state::is_initialized().into());
    }

    fn MPI_Finalized(flag: *mut c_int) {
        put(flag, state::is_finalized().into());
    }

    fn MPI_Finalize() {
        state::finalize(CALL);
    }

    fn MPI_Abort(_comm: Handle, status: c_int) {
        state::abort(status);
    }

    fn MPI_Comm_rank(handle: Handle, rank: *mut c_int) {
        put(rank, comm(CALL, handle).rank() as c_int);
    }

    fn MPI_Comm_size(handle: Handle, size: *mut c_int) {
        put(size, comm(CALL, handle).size() as c_int);
    }

    fn MPI_Comm_split(handle: Handle, color: c_int, key: c_int, new: *mut Handle) {
        let color = match u64::try_from(color) {
            Ok(color) => Some(color),
            Err(_) if color == UNDEFINED => None,
            Err(_) => fail(CALL, format!("{color} is no colour")),
        };
        let split = comm(CALL, handle).communicator.split(color, key.into());
        put(new, state::add(CALL, expect(CALL, split), None));
    }

    fn MPI_Comm_dup(handle: Handle, new: *mut Handle) {
        let comm = comm(CALL, handle);
        let same = expect(CALL, comm.communicator.split(Some(0), comm.rank() as i64));
        put(new, state::add(CALL, same, comm.grid.clone()));
    }

    fn MPI_Comm_free(handle: *mut Handle) {
        state::remove(CALL, *handle);
        handle.write(COMM_NULL);
    }

    fn MPI_Comm_set_errhandler(_comm: Handle, _handler: Handle) {
        // Errors are fatal whatever is chosen.
    }

    fn MPI_Get_processor_name(name: *mut c_char, len: *mut c_int) {
        let all = comm(CALL, crate::abi::COMM_WORLD);
        let host = expect(CALL, all.communicator.host(all.rank()));
        put_text(name, len, host);
    }

    fn MPI_Get_version(version: *mut c_int, subversion: *mut c_int) {
        put(version, 5);
        put(subversion, 0);
    }

    fn MPI_Get_library_version(text: *mut c_char, len: *mut c_int) {
        let version = env!("CARGO_PKG_VERSION");
        put_text(text, len, &format!("libmp {version}: a subset of the MPI ABI, not an MPI"));
    }

    fn MPI_Error_string(code: c_int, text: *mut c_char, len: *mut c_int) {
        put_text(text, len, &format!("error {code}"));
    }

    fn MPI_Type_size(datatype: Handle, size: *mut c_int) {
        put(size, datatype::size(datatype) as c_int);
    }

    fn MPI_Type_get_name(datatype: Handle, name: *mut c_char, len: *mut c_int) {
        datatype::size(datatype);
        // One that the program has made has none.
        let known = predefined(datatype).map(|(_, name)| name);
        put_text(name, len, known.unwrap_or_default());
    }

    fn MPI_Get_count(status: *const Status, datatype: Handle, count: *mut c_int) {
        let (bytes, size) = ((*status).bytes(), datatype::size(datatype));
        let count_of = |bytes: usize| bytes.is_multiple_of(size).then(|| bytes / size);
        put(count, if size == 0 { 0 } else { count_of(bytes).map_or(UNDEFINED, |count| count as c_int) });
    }
}

const _: () = assert!(SUCCESS == 0 && size_of::<Status>() == 32);
