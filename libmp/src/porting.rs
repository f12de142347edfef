//! For those who know LibMP, the library of NVIDIA's GPUDirect Async (2016), and its layer COMM: what takes the place of each
//! function, in Rust and in C (`mp.h` of crate `libmp-c`). Documentation only.
//!
//! What is different throughout:
//! * An operation is prepared once and started as often as wanted; there is no request per message, no pool of requests and no
//!   order between preparing and starting.
//! * A receive tells the sender where to put the message. So there are no ready tables to keep and no receiver-not-ready
//!   retries: a send waits for the buffer by itself, on the host, on the stream or in the kernel.
//! * Sizes and offsets have 64 bits, ranges are checked as a whole, and every wait has an end. Waits for words are `>=`, `==` or `&`, as said; those of messages and signals `>=`.
//! * Where bytes go is found out when the world starts; there are no lists of peers, flags for queues, or a GPU of the world.
//!   Memory says which device it belongs to.
//!
//! # Host
//! | LibMP | here | in C |
//! |---|---|---|
//! | `mp_query_param` (version) | [`BuildInfo::current`](crate::BuildInfo::current) | `mp_version` |
//! | `mp_init` | [`World::init`](crate::World::init); to share the ranks of an MPI program, feature `mpi` | `mp_init` |
//! | `mp_finalize` | [`World::finish`](crate::World::finish) | `mp_finish` |
//! | `mp_register`, `mp_deregister` | [`Region::from_buffer`](crate::Region::from_buffer) on memory of the caller, or [`Communicator::alloc`](crate::Communicator::alloc); dropping it | `mp_region_register_host`, `mp_region_register_cuda`, `mp_region_alloc`, `mp_region_free` |
//! | `mp_irecv` | [`Peer::recv`](crate::Peer::recv), [`Recv::start`](crate::Recv::start) | `mp_recv_prepare`, `mp_start` |
//! | `mp_irecvv` | [`Peer::recvv`](crate::Peer::recvv), which takes pieces of several regions | `mp_recvv_prepare`, `mp_start` |
//! | `mp_isend` | [`Peer::send`](crate::Peer::send), [`Send::start`](crate::Send::start) | `mp_send_prepare`, `mp_start` |
//! | `mp_isendv` | [`Peer::sendv`](crate::Peer::sendv) | `mp_sendv_prepare`, `mp_start` |
//! | `mp_wait`, `mp_wait_all` | [`Operation::wait`](crate::Operation::wait), [`wait_all`](crate::wait_all), [`wait_any`](crate::wait_any); nothing is released | `mp_wait`, `mp_wait_all`, `mp_wait_any` |
//! | `mp_progress_all` | [`Operation::test`](crate::Operation::test); not needed on streams | `mp_test` |
//! | `mp_send_on_stream`, `mp_isend_on_stream`, `mp_isendv_on_stream` | [`Send::start_on`](crate::Send::start_on): what comes after it on the stream may write the memory | `mp_start_on_stream` |
//! | `mp_irecv_on_stream` (refuses) | [`Recv::start_on`](crate::Recv::start_on) | `mp_start_on_stream` |
//! | `mp_wait_on_stream`, `mp_wait_all_on_stream` | [`Recv::wait_on`](crate::Recv::wait_on), any number of times | `mp_wait_on_stream`, `mp_wait_all_on_stream` |
//! | `mp_send_prepare`, `mp_sendv_prepare` | [`Message::prepare`](crate::Message::prepare), for graphs and kernels as well | `mp_send_prepare`, `mp_sendv_prepare` |
//! | `mp_send_post_on_stream`, `mp_isend_post_on_stream` | [`Send::start_on`](crate::Send::start_on) | `mp_start_on_stream`, `mp_enqueue` |
//! | `mp_send_post_all_on_stream`, `mp_isend_post_all_on_stream` | a list of steps for [`Communicator::enqueue`](crate::Communicator::enqueue), one launch | `mp_start_all_on_stream`, `mp_enqueue` |
//! | `mp_window_create`, `mp_window_destroy` | [`Communicator::window`](crate::Communicator::window); dropping it | `mp_window_create`, `mp_window_free` |
//! | `mp_iput`, `mp_iget` | [`Window::start_put`](crate::Window::start_put), [`Window::start_get`](crate::Window::start_get), waited for by [`Window::flush`](crate::Window::flush) and [`Window::quiet`](crate::Window::quiet); or [`Window::prepare_put`](crate::Window::prepare_put), [`Window::prepare_get`](crate::Window::prepare_get) and `start` | `mp_iput`, `mp_iget` with a request; `mp_put_start`, `mp_get_start`, then `mp_flush` or `mp_quiet` |
//! | `mp_iput_on_stream`, `mp_iget_on_stream` | [`Window::put_on`](crate::Window::put_on), [`Window::get_on`](crate::Window::get_on) | `mp_put_on_stream`, `mp_get_on_stream` |
//! | `mp_put_prepare`, `mp_iput_post_on_stream`, `mp_iput_post_all_on_stream` | [`Window::prepare_put`](crate::Window::prepare_put), in lists, graphs and kernels | `mp_put_prepare`, `mp_enqueue`, `mp_stream_begin_capture`, `mp_stream_launch_graph` |
//! | flags `MP_PUT_INLINE`, `MP_PUT_NOWAIT` | a signal with or without data: [`Window::signal`](crate::Window::signal), [`Window::put_signal`](crate::Window::put_signal) | `mp_signal`, `mp_put_signal` |
//! | `mp_wait32` | [`Communicator::wait32`](crate::Communicator::wait32) on any word; [`Window::wait_signal`](crate::Window::wait_signal) on a signal | `mp_wait32`, `mp_wait64`, `mp_wait_signal` |
//! | `mp_wait32_on_stream`, `mp_wait_dword_geq_on_stream`, `mp_wait_dword_eq_on_stream` | [`Stream::wait32`](crate::Stream::wait32) on any word; [`Window::wait_signal_on`](crate::Window::wait_signal_on) on a signal | `mp_wait32_on_stream`, `mp_wait64_on_stream`, `mp_wait_signal_on_stream` |
//! | `mp_desc_queue_alloc`, `mp_desc_queue_free`, `mp_desc_queue_add_send`, `mp_desc_queue_add_wait_send`, `mp_desc_queue_add_wait_recv` | a slice of [`Step`](crate::Step)s | `mp_step` |
//! | `mp_desc_queue_add_wait_value32`, `mp_desc_queue_add_write_value32` | [`Stream::batch`](crate::Stream::batch) of memory operations | `mp_wait32_on_stream`, `mp_write32_on_stream`, and for 64 bits |
//! | `mp_desc_queue_post_on_stream` | [`Communicator::enqueue`](crate::Communicator::enqueue) | `mp_enqueue` |
//! | branch `expose_send_params`: a kernel decides size and address | `mp::put`, `mp::put_signal` of `mp/window.cuh` on the [`handle`](crate::Window::handle) of a window | `mp_window_handle` |
//! | environment variables | [`config`](crate::config) | the same |
//!
//! # Kernels
//! | LibMP | here | handle in C |
//! |---|---|---|
//! | `isem32_t`, `isem64_t` | a signal of a [`Window`](crate::Window) | `mp_window_handle` |
//! | `mlx5::send_desc_t` and its `get_descriptors` | `mp::Send`, by [`Send::handle`](crate::Send::handle) | `mp_op_handle` |
//! | `mlx5::wait_desc_t` and its `get_descriptors` | `mp::Recv`, by [`Recv::handle`](crate::Recv::handle) | `mp_op_handle` |
//! | `device::mlx5::send` | `mp::send` of `mp/message.cuh`, by a thread, a warp, a block or several blocks | |
//! | `device::mlx5::wait` | `mp::recv`, or `mp::wait` on a signal of a window; what went wrong is in the result and in the next [`Communicator::synchronize`](crate::Communicator::synchronize) | |
//! | `device::mlx5::signal` (the host may poll again) | not needed: host and kernel wait for the same message without telling each other | |
//!
//! # COMM
//! | COMM | here | in C |
//! |---|---|---|
//! | `comm_init`, `comm_finalize` | [`World::init`](crate::World::init), [`World::finish`](crate::World::finish) | `mp_init`, `mp_finish` |
//! | `comm_use_comm`, `comm_use_async`, `comm_use_gpu_comm` | which of host, stream and kernel starts an operation is chosen call by call | |
//! | `comm_register` | a [`Region`](crate::Region) made once | `mp_region_register_host`, `mp_region_register_cuda` |
//! | `comm_irecv`, `comm_isend`, `comm_isend_on_stream` | as above; regions are typed | `mp_recv_prepare`, `mp_send_prepare`, `mp_start`, `mp_start_on_stream` |
//! | `comm_send_ready`, `comm_wait_ready`, `comm_test_ready`, and on streams | starting a receive tells the sender; sends wait for that | |
//! | `comm_wait`, `comm_wait_all`, `comm_flush` | [`wait_all`](crate::wait_all) | `mp_wait_all` |
//! | `comm_wait_all_on_stream` | [`Recv::wait_on`](crate::Recv::wait_on) | `mp_wait_all_on_stream` |
//! | `comm_progress` | [`Operation::test`](crate::Operation::test) | `mp_test` |
//! | `comm_prepare_wait_ready`, `comm_prepare_isend`, `comm_prepare_wait_all`, `comm_prepared_requests` | handles of operations, which stay as they are from start to start; there is no ring of descriptors | `mp_op_handle` |
//! | `comm_select_device` | [`World::assigned_gpu`](crate::World::assigned_gpu) | `mp_assigned_gpu` |
