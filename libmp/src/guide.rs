//! What holds for all of the library: paths, streams and kernels, failure, threads. Documentation only.
//!
//! # Paths
//! Ranks that share a host map each other's memory. Ranks on different hosts, or all if `MP_PATH` says so ([`config`]), reach
//! each other through the software NIC of `gdsync`: queue pairs whose entries have the format of mlx5 adapters, over TCP
//! between hosts and shared memory within one. Messages and windows are the same there, of host and GPU memory, from the host,
//! on streams and in kernels, which post to the queue pairs by themselves, the collectives of devices included;
//! [`Window`] says what differs. [`Communicator::path`] tells which path leads to a rank. Two ranks are connected when one first has
//! something for the other; the ranks of a process share as many NICs as it has cores.
//!
//! # Streams, graphs and kernels
//! A prepared operation ([`Send`], [`Recv`]) counts its starts in the memory of the device that its region belongs to, and
//! the signal that a side waits on lies in that side's device. So a stream starts and completes it with one small kernel
//! ([`Communicator::enqueue`] takes whole lists), a captured graph replays it, and a kernel of the user does it with
//! `mp::send` and `mp::recv` of `mp/mp.cuh` on a [`handle`](Send::handle) – in any mixture with each other and with the host, and
//! whatever starts the other end, which may be in a GPU's memory or in a host's. On a [`FusedStream`] adjacent operations become one
//! launch by themselves.
//! Messages of up to 8 KiB between GPUs travel as packets, which carry their epoch with their data and need no fence; larger
//! ones go straight into the posted buffer. A [`Window`] is the freely addressed form, and its puts
//! and signals are steps, too, when they are prepared ([`Put`], [`Get`], [`SignalWait`]); the kinds of a
//! [`Collective`] are started in the same three ways. Host streams follow the same protocol.
//!
//! Ranks that are threads and share a GPU share its allocator, too: what allocates or frees may wait for the kernels that
//! run. Prepare everything first, then let the ranks meet, then start.
//!
//! # Looking on
//! [`trace`] writes what all ranks and streams did when into one file for Perfetto. [`Communicator::counters`] says how much
//! went to whom, and `tracing` has events of worlds (info), operations prepared and counters (debug), starts, waits and
//! completions (trace).
//!
//! # Failure
//! Nothing waits for ever. A rank that dies, stops, panics or leaves without [`World::finish`] ends the world: every
//! waiting and every later call of every other rank returns [`Error::PeerLost`] with its rank and host. [`World::abort`]
//! does the same on purpose. [`World::abort_word`] is the same news for code that cannot call.
//!
//! What a stream has enqueued behind a wait that ended so was made of nothing. A host stream neither copies nor sends it. A
//! GPU's stream goes on: what is enqueued on it after the failed launch may still reach a peer that has posted a buffer and
//! has not heard of the end yet. A collective call that succeeds after the work says that no rank's had been cut short.
//!
//! # What it needs from whom
//! Ranks find each other by environment variables ([`config`] lists them all), PMIx, or MPI (feature `mpi`). They must be
//! built from the same sources; ranks of different builds refuse each other with a sentence. Where the launcher gives no
//! `MP_TOKEN` (torchrun), whoever reaches rank 0's port while the world starts can join it; nothing on the control plane is
//! encrypted.
//!
//! # Threads
//! Everything is `Send` and `Sync`. A communicator runs one collective at a time. Each process has one thread,
//! `mp-control`, for each world it is part of, each host stream has one, and a world with streams one more, which releases
//! their waits when the world fails. Where a path leads through the software NIC, that is a thread of each rank, `mp-nic`, with
//! a helper.

#[allow(unused_imports, reason = "the documentation names them")]
use crate::*;
