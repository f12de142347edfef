//! Open MPI as a peer, loaded at run time: nine functions of its C interface, by the names and the handles of its ABI
//! (libmpi.so.40, Open MPI 4 and 5: predefined handles are the addresses of exported objects, see its `mpi.h`).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use anyhow::{Context, Result, bail, ensure};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use gdsync::Buffer;

use super::{IN_FLIGHT, Player};
use crate::result::Role;

type Handle = *mut c_void;

/// MPI, initialised; finalised when dropped.
pub struct Mpi {
    functions: Functions,
    world: Handle,
    byte: Handle,
    version: String,
    _library: Library,
}

struct Functions {
    send: unsafe extern "C" fn(*const c_void, c_int, Handle, c_int, c_int, Handle) -> c_int,
    recv: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        Handle,
        c_int,
        c_int,
        Handle,
        *mut c_void,
    ) -> c_int,
    isend: unsafe extern "C" fn(
        *const c_void,
        c_int,
        Handle,
        c_int,
        c_int,
        Handle,
        *mut Handle,
    ) -> c_int,
    irecv: unsafe extern "C" fn(
        *mut c_void,
        c_int,
        Handle,
        c_int,
        c_int,
        Handle,
        *mut Handle,
    ) -> c_int,
    wait_all: unsafe extern "C" fn(c_int, *mut Handle, *mut c_void) -> c_int,
    barrier: unsafe extern "C" fn(Handle) -> c_int,
    finalize: unsafe extern "C" fn() -> c_int,
}

impl Mpi {
    /// Whether the library can be loaded here. Loads and unloads it, initialises nothing.
    pub fn is_installed() -> bool {
        load().is_ok()
    }

    /// Loads and initialises MPI. Once in a process, under `mpirun`.
    ///
    /// # Errors
    /// It is not installed, lacks a function, or fails to start.
    pub fn init() -> Result<Mpi> {
        let library = load()?;
        // SAFETY: the types are those of MPI's C interface (MPI 3.1, chapter 3 and 8) for Open MPI's ABI.
        unsafe {
            let functions = Functions {
                send: symbol(&library, c"MPI_Send")?,
                recv: symbol(&library, c"MPI_Recv")?,
                isend: symbol(&library, c"MPI_Isend")?,
                irecv: symbol(&library, c"MPI_Irecv")?,
                wait_all: symbol(&library, c"MPI_Waitall")?,
                barrier: symbol(&library, c"MPI_Barrier")?,
                finalize: symbol(&library, c"MPI_Finalize")?,
            };
            let world: Handle = symbol(&library, c"ompi_mpi_comm_world")?;
            let byte: Handle = symbol(&library, c"ompi_mpi_byte")?;
            let init: unsafe extern "C" fn(*mut c_int, *mut c_void) -> c_int =
                symbol(&library, c"MPI_Init")?;
            let name: unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int =
                symbol(&library, c"MPI_Get_library_version")?;
            check("MPI_Init", init(null_mut(), null_mut()))?;
            // MPI_MAX_LIBRARY_VERSION_STRING is 256.
            let mut text = [0 as c_char; 256];
            let mut length = 0;
            check("MPI_Get_library_version", name(text.as_mut_ptr(), &mut length))?;
            let version = CStr::from_ptr(text.as_ptr()).to_string_lossy();
            let version = version.split(',').next().unwrap_or_default().to_owned();
            Ok(Mpi { functions, world, byte, version, _library: library })
        }
    }

    /// As the library calls itself.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Sends a buffer of the host to `rank`; blocks.
    ///
    /// # Errors
    /// The buffer is none of the host's, or MPI fails.
    pub(super) fn send_from(&self, buffer: &Buffer<u8>, rank: usize) -> Result<()> {
        let (at, size) = of_host(buffer)?;
        // SAFETY: the buffer has `size` bytes.
        check("MPI_Send", unsafe {
            (self.functions.send)(at.cast(), size, self.byte, rank as c_int, 3, self.world)
        })
    }

    /// Receives a buffer of the host from `rank`; blocks.
    ///
    /// # Errors
    /// As [`Mpi::send_from`].
    pub(super) fn recv_into(&self, buffer: &Buffer<u8>, rank: usize) -> Result<()> {
        let (at, size) = of_host(buffer)?;
        // SAFETY: the buffer has `size` bytes and nobody else uses it now; null is MPI_STATUS_IGNORE.
        check("MPI_Recv", unsafe {
            let rank = rank as c_int;
            (self.functions.recv)(at.cast(), size, self.byte, rank, 3, self.world, null_mut())
        })
    }

    /// Sends one buffer of the host to `rank` and receives another from it, at the same time.
    ///
    /// # Errors
    /// As [`Mpi::send_from`].
    pub(super) fn exchange(&self, send: &Buffer<u8>, recv: &Buffer<u8>, rank: usize) -> Result<()> {
        let ((from, sent), (to, received)) = (of_host(send)?, of_host(recv)?);
        let Mpi { functions, world, byte, .. } = self;
        let (other, mut requests) = (rank as c_int, [null_mut(); 2]);
        // SAFETY: the buffers have those sizes and nobody else uses them until both requests are complete; null is
        // MPI_STATUSES_IGNORE.
        unsafe {
            let request = &mut requests[0];
            let code = (functions.irecv)(to.cast(), received, *byte, other, 4, *world, request);
            check("MPI_Irecv", code)?;
            let request = &mut requests[1];
            let code = (functions.isend)(from.cast(), sent, *byte, other, 4, *world, request);
            check("MPI_Isend", code)?;
            check("MPI_Waitall", (functions.wait_all)(2, requests.as_mut_ptr(), null_mut()))
        }
    }

    pub(super) fn player(&self, rank: usize) -> MpiPlayer<'_> {
        let requests = vec![null_mut(); IN_FLIGHT];
        MpiPlayer { mpi: self, rank, size: 0, buffers: Vec::new(), requests }
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        // SAFETY: initialised in `init`, and nothing of it is in flight.
        unsafe { (self.functions.finalize)() };
    }
}

fn of_host(buffer: &Buffer<u8>) -> Result<(*mut u8, c_int)> {
    let at = buffer.host_address().context("the buffer is not of the host")?;
    Ok((at.as_ptr(), c_int::try_from(buffer.size()).context("MPI counts in int")?))
}

fn load() -> Result<Library> {
    // SAFETY: MPI's initialisers start nothing. Its plug-ins look for its symbols: global.
    unsafe { Library::open(Some("libmpi.so.40"), RTLD_NOW | RTLD_GLOBAL) }
        .context("loading libmpi.so.40")
}

/// # Safety
/// `T` is the symbol's type.
unsafe fn symbol<T: Copy>(library: &Library, name: &CStr) -> Result<T> {
    // SAFETY: the caller's promise.
    let symbol = unsafe { library.get::<T>(name.to_bytes_with_nul()) };
    Ok(*symbol.with_context(|| format!("libmpi.so.40 lacks {name:?}"))?)
}

fn check(what: &str, code: c_int) -> Result<()> {
    ensure!(code == 0, "{what} returned {code}");
    Ok(())
}

pub struct MpiPlayer<'a> {
    mpi: &'a Mpi,
    rank: usize,
    size: c_int,
    /// One buffer for each message in flight.
    buffers: Vec<Vec<u8>>,
    requests: Vec<Handle>,
}

impl MpiPlayer<'_> {
    fn other(&self) -> c_int {
        1 - self.rank as c_int
    }

    fn send(&self, size: c_int) -> Result<()> {
        let buffer = &self.buffers[0];
        let Mpi { functions, world, byte, .. } = self.mpi;
        // SAFETY: `size` is at most the buffer's length.
        let code = unsafe {
            (functions.send)(buffer.as_ptr().cast(), size, *byte, self.other(), 1, *world)
        };
        check("MPI_Send", code)
    }

    fn recv(&mut self, size: c_int) -> Result<()> {
        let other = self.other();
        let buffer = &mut self.buffers[0];
        let Mpi { functions, world, byte, .. } = self.mpi;
        // SAFETY: as in `send`; null is MPI_STATUS_IGNORE.
        let code = unsafe {
            let buffer = buffer.as_mut_ptr().cast();
            (functions.recv)(buffer, size, *byte, other, 1, *world, null_mut())
        };
        check("MPI_Recv", code)
    }
}

impl Player for MpiPlayer<'_> {
    fn name(&self) -> String {
        self.mpi.version.clone()
    }

    fn role(&self) -> Role {
        Role::Peer
    }

    fn library(&self) -> Option<&'static str> {
        Some("MPI")
    }

    fn prepare(&mut self, size: usize) -> Result<()> {
        self.size = c_int::try_from(size).context("MPI counts in int")?;
        self.buffers = vec![vec![7; size]; IN_FLIGHT];
        Ok(())
    }

    fn ping_pong(&mut self, rounds: usize) -> Result<()> {
        for _ in 0..rounds {
            if self.rank == 0 {
                self.send(self.size)?;
                self.recv(self.size)?;
            } else {
                self.recv(self.size)?;
                self.send(self.size)?;
            }
        }
        Ok(())
    }

    fn stream(&mut self, rounds: usize) -> Result<Option<()>> {
        let Mpi { functions, world, byte, .. } = self.mpi;
        let other = self.other();
        for _ in 0..rounds {
            for (buffer, request) in self.buffers.iter_mut().zip(&mut self.requests) {
                let at = buffer.as_mut_ptr().cast();
                // SAFETY: the buffer holds `size` bytes and is not touched before the requests are complete.
                let code = unsafe {
                    if self.rank == 0 {
                        (functions.isend)(at, self.size, *byte, other, 2, *world, request)
                    } else {
                        (functions.irecv)(at, self.size, *byte, other, 2, *world, request)
                    }
                };
                check("MPI_Isend or MPI_Irecv", code)?;
            }
            let requests = self.requests.as_mut_ptr();
            // SAFETY: as many requests as were started; null is MPI_STATUSES_IGNORE.
            check("MPI_Waitall", unsafe {
                (functions.wait_all)(IN_FLIGHT as c_int, requests, null_mut())
            })?;
            if self.rank == 0 {
                self.recv(0)?;
            } else {
                self.send(0)?;
            }
        }
        Ok(Some(()))
    }

    fn exchange(&mut self, rounds: usize) -> Result<Option<()>> {
        let Mpi { functions, world, byte, .. } = self.mpi;
        let other = self.other();
        for _ in 0..rounds {
            let [out, here, ..] = self.buffers.as_mut_slice() else { bail!("not prepared") };
            let (out, here) = (out.as_mut_ptr().cast(), here.as_mut_ptr().cast());
            // SAFETY: the buffers hold `size` bytes and are not touched before the requests are complete; null is
            // MPI_STATUSES_IGNORE.
            unsafe {
                let request = &mut self.requests[0];
                let code = (functions.irecv)(here, self.size, *byte, other, 4, *world, request);
                check("MPI_Irecv", code)?;
                let request = &mut self.requests[1];
                let code = (functions.isend)(out, self.size, *byte, other, 4, *world, request);
                check("MPI_Isend", code)?;
                let requests = self.requests.as_mut_ptr();
                check("MPI_Waitall", (functions.wait_all)(2, requests, null_mut()))?;
            }
        }
        Ok(Some(()))
    }

    fn meet(&mut self, rounds: usize) -> Result<Option<()>> {
        for _ in 0..rounds {
            // SAFETY: MPI is initialised.
            check("MPI_Barrier", unsafe { (self.mpi.functions.barrier)(self.mpi.world) })?;
        }
        Ok(Some(()))
    }
}
