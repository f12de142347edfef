//! Ranks as MPI processes: persistent requests for messages, `MPI_Iallreduce` for reductions.
//!
//! Waits poll with `MPI_Test` so that they can end at a deadline. MPI is used from one thread only.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use gdsync::{Buffer, Device, Space};
use mpi::environment::Universe;
use mpi::ffi;
use mpi::traits::{AsRaw, Communicator};

use super::{Comm, CommError, Exchange, Group, Message};

/// MPI as a rank sees it. MPI is finalised when the last user of it is dropped.
pub struct MpiComm {
    world: Rc<World>,
}

struct World {
    _universe: Universe,
    raw: ffi::MPI_Comm,
    rank: usize,
    size: usize,
    limit: Duration,
    /// Groups formed so far; the key order of the next split.
    groups: Cell<usize>,
}

impl MpiComm {
    /// Initialises MPI; no wait lasts longer than `limit`. `None` if MPI is already initialised.
    pub fn init(limit: Duration) -> Option<Self> {
        let (universe, _) = mpi::initialize_with_threading(mpi::Threading::Funneled)?;
        let world = universe.world();
        let (rank, size) = (world.rank() as usize, world.size() as usize);
        let raw = world.as_raw();
        // SAFETY: a valid communicator and a predefined handler; failures then come back as codes.
        unsafe { ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN) };
        let world = World { _universe: universe, raw, rank, size, limit, groups: Cell::new(0) };
        Some(Self { world: Rc::new(world) })
    }
}

impl MpiComm {
    /// Ends all processes of the job.
    pub fn abort(&self) -> ! {
        // SAFETY: a valid communicator.
        unsafe { ffi::MPI_Abort(self.world.raw, 1) };
        std::process::exit(1)
    }
}

impl World {
    fn check(&self, call: &'static str, code: i32) -> Result<(), CommError> {
        if code == 0 { Ok(()) } else { Err(CommError::Library { call, rank: self.rank, code }) }
    }

    /// Polls a request to completion.
    fn wait(
        &self,
        request: &mut ffi::MPI_Request,
        what: impl Fn() -> String,
    ) -> Result<(), CommError> {
        let mut start = None;
        let mut polls = 0u32;
        loop {
            let mut done = 0;
            // SAFETY: `request` is null or was made by MPI and not freed.
            let code = unsafe { ffi::MPI_Test(request, &mut done, ffi::RSMPI_STATUS_IGNORE) };
            self.check("MPI_Test", code)?;
            if done != 0 {
                return Ok(());
            }
            polls += 1;
            if polls < 1000 {
                continue;
            }
            let waited = start.get_or_insert_with(Instant::now).elapsed();
            if waited > self.limit {
                let (rank, limit) = (self.rank, self.limit);
                return Err(CommError::Timeout { rank, what: what(), waited, limit });
            }
            std::thread::yield_now();
        }
    }
}

impl Comm for MpiComm {
    fn rank(&self) -> usize {
        self.world.rank
    }

    fn size(&self) -> usize {
        self.world.size
    }

    fn name(&self) -> &'static str {
        "mpi"
    }

    fn prepare_for(
        &self,
        device: &Device,
        tag: i32,
        messages: &[Message],
    ) -> Result<Box<dyn Exchange>, CommError> {
        let world = &self.world;
        let alloc = |len| match device {
            Device::Host => Buffer::new(device, Space::Host, len),
            Device::Cuda(_) => device.alloc_pinned(len),
        };
        let address = |buffer: &Buffer<f64>| {
            buffer.host_address().map_or(std::ptr::null_mut(), |address| address.as_ptr())
        };
        let mut links = Vec::with_capacity(messages.len());
        for m in messages {
            let mut link = Link {
                peer: m.peer,
                send_buffer: alloc(m.send)?,
                receive_buffer: alloc(m.receive)?,
                // SAFETY: reading a constant of the library.
                send: unsafe { ffi::RSMPI_REQUEST_NULL },
                // SAFETY: as above.
                receive: unsafe { ffi::RSMPI_REQUEST_NULL },
            };
            if m.send > 0 {
                // SAFETY: the buffer's memory stays where it is until the request is freed (`Drop`).
                let code = unsafe {
                    ffi::MPI_Send_init(
                        address(&link.send_buffer).cast(),
                        m.send as i32,
                        ffi::RSMPI_DOUBLE,
                        m.peer as i32,
                        tag,
                        world.raw,
                        &mut link.send,
                    )
                };
                world.check("MPI_Send_init", code)?;
            }
            if m.receive > 0 {
                // SAFETY: as above.
                let code = unsafe {
                    ffi::MPI_Recv_init(
                        address(&link.receive_buffer).cast(),
                        m.receive as i32,
                        ffi::RSMPI_DOUBLE,
                        m.peer as i32,
                        tag,
                        world.raw,
                        &mut link.receive,
                    )
                };
                world.check("MPI_Recv_init", code)?;
            }
            links.push(link);
        }
        Ok(Box::new(MpiExchange { world: world.clone(), tag, links }))
    }

    fn group(&self, members: &[usize]) -> Result<Option<Box<dyn Group>>, CommError> {
        let world = &self.world;
        world.groups.set(world.groups.get() + 1);
        let member = members.binary_search(&world.rank).is_ok();
        // SAFETY: reading constants of the library.
        let (undefined, mut raw) = unsafe { (ffi::RSMPI_UNDEFINED, ffi::RSMPI_COMM_NULL) };
        let colour = if member { 0 } else { undefined };
        // SAFETY: collective over the world, as this function is.
        let code = unsafe { ffi::MPI_Comm_split(world.raw, colour, world.rank as i32, &mut raw) };
        world.check("MPI_Comm_split", code)?;
        if !member {
            return Ok(None);
        }
        Ok(Some(Box::new(MpiGroup {
            world: world.clone(),
            raw,
            number: world.groups.get(),
            size: members.len(),
            input: Vec::with_capacity(64),
            maximum: Vec::with_capacity(64),
        })))
    }
}

struct Link {
    peer: usize,
    send_buffer: Buffer<f64>,
    receive_buffer: Buffer<f64>,
    send: ffi::MPI_Request,
    receive: ffi::MPI_Request,
}

struct MpiExchange {
    world: Rc<World>,
    tag: i32,
    links: Vec<Link>,
}

impl Exchange for MpiExchange {
    fn begin(&mut self) -> Result<(), CommError> {
        for link in &mut self.links {
            if !link.receive_buffer.is_empty() {
                // SAFETY: an inactive persistent request; its buffer is not borrowed.
                let code = unsafe { ffi::MPI_Start(&mut link.receive) };
                self.world.check("MPI_Start", code)?;
            }
        }
        self.sent()
    }

    fn send_buffer(&mut self, index: usize) -> &mut [f64] {
        // SAFETY: `begin` has seen the last send of it complete, the next is not started before `start`, and `&mut self`
        // keeps this the only slice; memory that the CPU reaches by construction.
        unsafe { self.links[index].send_buffer.as_mut_slice() }.unwrap_or_default()
    }

    fn buffers(&self, index: usize) -> Option<[Buffer<f64>; 2]> {
        let link = &self.links[index];
        Some([link.send_buffer.clone(), link.receive_buffer.clone()])
    }

    fn start(&mut self, index: usize) -> Result<(), CommError> {
        let link = &mut self.links[index];
        if link.send_buffer.is_empty() {
            return Ok(());
        }
        // SAFETY: an inactive persistent request; `begin` has seen the last send complete.
        let code = unsafe { ffi::MPI_Start(&mut link.send) };
        self.world.check("MPI_Start", code)
    }

    fn receive(&mut self, index: usize) -> Result<&[f64], CommError> {
        let link = &mut self.links[index];
        if !link.receive_buffer.is_empty() {
            let (peer, tag) = (link.peer, self.tag);
            let what = || format!("message tag {tag} from rank {peer}");
            self.world.wait(&mut link.receive, what)?;
        }
        // SAFETY: the receive is complete, and is not started again before `begin`, which needs `&mut self`.
        Ok(unsafe { link.receive_buffer.as_slice() }?)
    }

    fn sent(&mut self) -> Result<(), CommError> {
        let tag = self.tag;
        for link in self.links.iter_mut().filter(|link| !link.send_buffer.is_empty()) {
            let peer = link.peer;
            self.world.wait(&mut link.send, || format!("rank {peer} to take message tag {tag}"))?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), CommError> {
        Ok(())
    }
}

impl Drop for MpiExchange {
    fn drop(&mut self) {
        for link in &mut self.links {
            for (request, buffer) in
                [(&mut link.send, &link.send_buffer), (&mut link.receive, &link.receive_buffer)]
            {
                if buffer.is_empty() {
                    continue;
                }
                let idle = self.world.wait(request, || "a message to end".into()).is_ok();
                if idle {
                    // SAFETY: an inactive persistent request.
                    unsafe { ffi::MPI_Request_free(request) };
                } else {
                    // MPI may still write there: the memory is never given back.
                    std::mem::forget(buffer.clone());
                }
            }
        }
    }
}

struct MpiGroup {
    world: Rc<World>,
    raw: ffi::MPI_Comm,
    number: usize,
    size: usize,
    input: Vec<f64>,
    maximum: Vec<f64>,
}

impl MpiGroup {
    fn reduce(&mut self, values: &mut [f64], op: ffi::MPI_Op) -> Result<(), CommError> {
        if self.size == 1 {
            return Ok(());
        }
        self.input.clear();
        self.input.extend_from_slice(values);
        // SAFETY: reading a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: both buffers live until the request has completed; when it does not complete in
        // time, the error ends the run.
        let code = unsafe {
            ffi::MPI_Iallreduce(
                self.input.as_ptr().cast(),
                values.as_mut_ptr().cast(),
                values.len() as i32,
                ffi::RSMPI_DOUBLE,
                op,
                self.raw,
                &mut request,
            )
        };
        self.world.check("MPI_Iallreduce", code)?;
        let number = self.number;
        self.world.wait(&mut request, || format!("a reduction of group {number}"))
    }
}

impl Group for MpiGroup {
    fn size(&self) -> usize {
        self.size
    }

    fn max(&mut self, values: &mut [f64]) -> Result<(), CommError> {
        // What MPI_MAX makes of NaN is the library's affair: beside every number goes whether it is one.
        let count = values.len();
        let mut both = std::mem::take(&mut self.maximum);
        both.clear();
        both.extend(values.iter().map(|v| if v.is_nan() { f64::NEG_INFINITY } else { *v }));
        both.extend(values.iter().map(|v| f64::from(u8::from(v.is_nan()))));
        // SAFETY: reading a constant of the library.
        let reduced = self.reduce(&mut both, unsafe { ffi::RSMPI_MAX });
        let (numbers, flags) = both.split_at(count);
        for ((value, number), flag) in values.iter_mut().zip(numbers).zip(flags) {
            *value = if *flag > 0.0 { f64::NAN } else { *number };
        }
        self.maximum = both;
        reduced
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<(), CommError> {
        // SAFETY: reading a constant of the library.
        self.reduce(values, unsafe { ffi::RSMPI_SUM })
    }
}

impl Drop for MpiGroup {
    fn drop(&mut self) {
        // Freeing is collective; all ranks drop their levels in the same order.
        // SAFETY: made by `MPI_Comm_split` and not freed.
        unsafe { ffi::MPI_Comm_free(&mut self.raw) };
    }
}
