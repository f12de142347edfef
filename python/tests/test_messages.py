"""Prepared messages over arrays of the host."""

import array
import signal
import threading
import time

import libmp
import numpy as np
import pytest

from conftest import TIMEOUT


def test_the_readme_ring(world, right, left):
    edge, ghost = np.full(100, world.rank, dtype=float), np.zeros(100)
    send, recv = right.send(edge, tag=7), left.recv(ghost, tag=7)
    for step in range(10):
        edge[:] = world.rank + 100 * step
        recv.start()
        send.start()
        libmp.wait_all([send, recv], timeout=TIMEOUT)
        assert (ghost == left.rank + 100 * step).all()


@pytest.mark.parametrize("size", [0, 1, 8, 1000, 100_000, 5_000_000])
def test_any_size_arrives_whole(world, right, left, size):
    edge = (np.arange(size) * (world.rank + 1)).astype(np.uint8)
    ghost = np.zeros(size, np.uint8)
    send, recv = right.send(edge), left.recv(ghost)
    for _ in range(3):
        ghost[:] = 0
        recv.start()
        send.start()
        libmp.wait_all([send, recv], TIMEOUT)
        assert (ghost == (np.arange(size) * (left.rank + 1)).astype(np.uint8)).all()


def test_memory_of_the_library_is_seen_by_numpy_in_place(world, right, left):
    edge, ghost = world.zeros((3, 4), "float32"), world.zeros((3, 4), np.float32)
    view = edge.numpy()
    assert view.shape == (3, 4) and view.dtype == np.float32 and edge.nbytes == 48
    view[:] = world.rank + 1
    assert np.asarray(edge)[2, 3] == world.rank + 1
    assert np.shares_memory(np.asarray(edge), view)
    send, recv = right.send(edge[1:]), left.recv(ghost[1:])
    recv.start()
    send.start()
    libmp.wait_all([send, recv], TIMEOUT)
    assert (ghost.numpy()[1:] == left.rank + 1).all() and (ghost.numpy()[0] == 0).all()
    # The view keeps the memory.
    del edge, send
    view[:] = 7
    assert view.sum() == 84


def test_arrays_with_strides_go_piece_by_piece(world, right, left):
    field = np.zeros((20, 30)) + world.rank
    field[:, 28] = np.arange(20) + 100 * world.rank
    send, recv = right.send(field[:, 28], tag=1), left.recv(field[:, 0], tag=1)
    for step in range(3):
        field[:, 28] += 1
        recv.start()
        send.start()
        libmp.wait_all([send, recv], TIMEOUT)
        assert (field[:, 0] == np.arange(20) + 100 * left.rank + step + 1).all()
        assert (field[:, 1] == world.rank).all()


def test_strides_of_any_kind_keep_the_order_of_the_array(world, right, left):
    base = np.arange(4 * 5 * 6).reshape(4, 5, 6) + 1000 * world.rank
    for cut in (base[::-1, :, 1], base[1:3, ::2, ::3], base.transpose(2, 0, 1), base[:, 4:1:-1]):
        into = np.zeros(cut.shape, cut.dtype)
        send, recv = right.send(cut, tag=2), left.recv(into, tag=2)
        recv.start()
        send.start()
        libmp.wait_all([send, recv], TIMEOUT)
        assert (into == cut + 1000 * (left.rank - world.rank)).all()


def test_whatever_has_buffers_is_memory(world, right, left):
    for make in (lambda: bytearray(24), lambda: array.array("d", [0.0] * 3), lambda: memoryview(bytearray(24))):
        edge, ghost = make(), make()
        memoryview(edge).cast("B")[5] = world.rank + 1
        send, recv = right.send(edge), left.recv(ghost)
        recv.start()
        send.start()
        libmp.wait_all([send, recv], TIMEOUT)
        assert memoryview(ghost).cast("B")[5] == left.rank + 1


def test_an_array_is_kept_and_kept_in_place(world):
    edge = bytearray(100)
    region = world.region(edge)
    with pytest.raises(BufferError):
        edge.extend(b"more")
    del region
    edge.extend(b"now it may move")


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c8", "c16"])
def test_types_of_numpy_come_back_as_they_went(world, dtype):
    region = world.region(np.zeros((2, 3), dtype))
    assert np.asarray(region).dtype == np.dtype(dtype) and region.shape == (2, 3)
    assert world.zeros(3, np.dtype(dtype)).dtype == np.dtype(dtype).name
    assert np.from_dlpack(world.zeros(4, np.dtype(dtype))).dtype == np.dtype(dtype)


def test_read_only_arrays_are_sent_and_not_received(world, right, left):
    edge = np.full(5, float(world.rank))
    edge.flags.writeable = False
    ghost = np.zeros(5)
    with pytest.raises(ValueError, match="read-only"):
        left.recv(edge)
    send, recv = right.send(edge), left.recv(ghost)
    recv.start()
    send.start()
    libmp.wait_all([send, recv], TIMEOUT)
    assert (ghost == left.rank).all()


def test_what_is_no_array_is_named(world, right):
    with pytest.raises(ValueError, match="int is no array"):
        right.send(7)
    with pytest.raises(ValueError, match="65536"):
        right.send(np.zeros((70_000, 2))[:, 0])
    with pytest.raises(IndexError, match="rank 99 does not exist"):
        world.peer(99)
    with pytest.raises(ValueError, match="float65"):
        world.zeros(3, "float65")


def test_a_host_stream_and_its_graph(world, right, left):
    edge, ghost = np.zeros(10), np.zeros(10)
    send, recv = right.send(edge, tag=3), left.recv(ghost, tag=3)
    stream = world.stream()
    edge[:] = world.rank
    recv.start_on(stream)
    send.start_on(stream)
    recv.wait_on(stream)
    stream.synchronize(TIMEOUT)
    assert (ghost == left.rank).all()
    stream.begin_capture()
    libmp.enqueue([(recv, "start"), (send, "start"), (recv, "wait")], stream)
    graph = stream.end_capture()
    for step in range(1, 4):
        edge[:] = world.rank + step
        stream.launch(graph)
        stream.synchronize(TIMEOUT)
        assert (ghost == left.rank + step).all()


def test_the_interpreter_runs_while_one_thread_waits(world, right, left):
    edge, ghost = np.zeros(10), np.zeros(10)
    send, recv = right.send(edge, tag=4), left.recv(ghost, tag=4)
    recv.start()
    done = threading.Event()

    def wait():
        recv.wait(TIMEOUT)
        done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    # This thread goes on although the other one waits in the library, for what nobody sends before all have come here.
    assert not done.is_set()
    world.barrier()
    send.start()
    send.wait(TIMEOUT)
    thread.join(TIMEOUT)
    assert done.is_set()


def test_control_c_ends_a_wait(world, left):
    recv = left.recv(np.zeros(10), tag=5)
    recv.start()
    # The main thread takes it, as it takes the terminal's.
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
    begun = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        recv.wait(timeout=10 * TIMEOUT)
    assert time.monotonic() - begun < TIMEOUT


def test_a_deadline_is_late_and_says_why(world, left):
    recv = left.recv(np.zeros(10), tag=6)
    recv.start()
    with pytest.raises(libmp.Late, match="recv tag 6") as late:
        recv.wait(timeout=0.05)
    error = late.value
    assert isinstance(error, libmp.TimeoutError) and isinstance(error, TimeoutError) and isinstance(error, libmp.Error)
    assert error.rank == left.rank and error.tag == 6 and error.expected == 1 and error.seen == 0
    assert "prepared" in error.cause
    with pytest.raises(libmp.Started):
        recv.start()
    with pytest.raises(ValueError, match="-1"):
        recv.wait(timeout=-1)


def test_a_message_that_is_too_long_is_refused_on_both_sides(world, right, left):
    send, recv = right.send(np.zeros(20), tag=8), left.recv(np.zeros(10), tag=8)
    for start in (recv.start, send.start):
        try:
            start()
        except libmp.Truncated:
            pass
    with pytest.raises(libmp.Truncated) as refused:
        recv.wait(TIMEOUT)
    assert (refused.value.sent, refused.value.posted) == (160, 80)


def test_wait_any_says_which(world, right, left):
    ghosts = [np.zeros(1), np.zeros(1)]
    recvs = [left.recv(ghost, tag=10 + number) for number, ghost in enumerate(ghosts)]
    send = right.send(np.ones(1), tag=11)
    for recv in recvs:
        recv.start()
    send.start()
    assert libmp.wait_any(recvs, TIMEOUT) == 1
    assert recvs[1].test() and not recvs[0].test()
    send.wait(TIMEOUT)
    with pytest.raises(libmp.Error, match="no operations"):
        libmp.wait_any([])


def test_a_stream_for_gpus_is_not_taken_for_host_memory(world, right):
    send = right.send(np.zeros(3))
    with pytest.raises(ValueError, match="memory of the host"):
        send.start_on(12345)
    with pytest.raises(ValueError, match="neither PyTorch's nor CuPy's"):
        send.start_on("current")
    with pytest.raises(ValueError, match="no stream"):
        send.start_on(3.5)
