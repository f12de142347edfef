"""Windows, tagged messages and collectives over arrays of the host."""

import libmp
import numpy as np
import pytest

from conftest import TIMEOUT


def test_puts_gets_and_signals(world):
    share = world.zeros(4 * world.size, "int64")
    window = world.window(share, signals=2)
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    mine = np.arange(4) + 10 * world.rank
    window.put_signal(right, mine, signal=0, value=1, at=4 * world.rank)
    window.wait_signal(0, 1, TIMEOUT)
    assert (share.numpy()[4 * left : 4 * left + 4] == np.arange(4) + 10 * left).all()
    world.barrier()
    got = np.zeros(4, np.int64)
    window.get(right, got, at=4 * world.rank)
    assert (got == mine).all()
    assert window.len(right) == 4 * world.size and window.read_signal(0) == 1
    window.signal_add(0, 1, 5)
    if world.rank == 0:
        window.wait_signal(1, 5 * world.size, TIMEOUT, compare="==")
    with pytest.raises(IndexError):
        window.put(right, mine, at=4 * world.size - 1)
    with pytest.raises(ValueError, match="expected >="):
        window.wait_signal(0, 1, compare="~")
    with pytest.raises(libmp.Late):
        window.wait_signal(0, 99, timeout=0.05)
    # Another rank's memory, mapped.
    if world.path(right) == "direct":
        assert (window.memory_of(right).numpy()[4 * world.rank : 4 * world.rank + 4] == mine).all()
    world.barrier()


def test_atomic_operations(world):
    share = world.zeros(2, "int64")
    window = world.window(share)
    seen = [window.fetch_add(0, 1, 2) for _ in range(10)]
    assert len(set(seen)) == 10
    world.barrier()
    assert window.fetch(0, 1) == 20 * world.size
    winner = window.compare_swap(0, 0, 0, world.rank + 1) == 0
    assert world.sum(int(winner)) == 1
    assert window.swap(world.rank, 1, -5) in (0, 20 * world.size)
    world.barrier()
    with pytest.raises(libmp.Mismatch, match="int8"):
        world.window(world.zeros(8, "int8")).fetch(0, 0)


def test_prepared_puts_with_signals(world):
    right = (world.rank + 1) % world.size
    left = (world.rank - 1) % world.size
    share = world.zeros(8)
    window = world.window(share, signals=1)
    mine = np.zeros(8)
    put, arrived = window.prepare_put(right, mine, signal=0), window.prepare_wait(0)
    get = window.prepare_get(right, np.zeros(4), at=2)
    stream = world.stream()
    for step in range(3):
        mine[:] = world.rank + step
        put.start()
        arrived.start()
        libmp.wait_all([put, arrived], TIMEOUT)
        assert (share.numpy() == left + step).all()
        world.barrier()
    mine[:] = 50 + world.rank
    libmp.enqueue([(put, "start"), (arrived, "wait")], stream)
    stream.synchronize(TIMEOUT)
    assert (share.numpy() == 50 + left).all()
    get.start()
    get.wait(TIMEOUT)
    world.barrier()
    window.put_on(stream, right, np.full(8, 7.0))
    window.signal_on(stream, right, 0, 100)
    window.wait_signal_on(stream, 0, 100)
    stream.synchronize(TIMEOUT)
    assert (share.numpy() == 7).all()


def test_memory_that_others_cannot_map_makes_no_window(world):
    if world.size == 1:
        pytest.skip("needs two ranks")
    if world.path((world.rank + 1) % world.size) != "direct":
        pytest.skip("needs ranks that map each other's memory")
    with pytest.raises(libmp.Error, match="private host memory"):
        world.window(np.zeros(8))


def test_tagged_messages_match_by_source_and_tag(world):
    messages = world.tagged()
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    got = np.zeros(100_000)
    request = messages.irecv(got, left, 5)
    assert messages.isend(np.full(100_000, float(world.rank)), right, 5).wait(TIMEOUT).nbytes == 800_000
    status = request.wait(TIMEOUT)
    assert (status.source, status.tag, status.nbytes) == (left, 5, 800_000)
    assert (got == left).all() and request.test() == status
    messages.send(np.arange(3), right, 1, TIMEOUT)
    messages.send(np.arange(5), right, 2, TIMEOUT)
    small = np.zeros(5, int)
    assert messages.recv(small, tag=2, timeout=TIMEOUT).nbytes == 40 and (small == np.arange(5)).all()
    assert messages.probe(timeout=TIMEOUT).tag == 1 and messages.iprobe(tag=9) is None
    data, status = messages.recv_bytes(timeout=TIMEOUT)
    assert data == np.arange(3).tobytes() and status.source == left
    waiting = messages.irecv(small, tag=77)
    with pytest.raises(libmp.Late):
        waiting.wait(timeout=0.05)
    assert waiting.cancel()
    with pytest.raises(ValueError, match="pieces"):
        messages.send(np.zeros((4, 4))[:, 0], right)
    messages.isend(np.zeros(20), right, 3)
    with pytest.raises(libmp.Truncated):
        messages.recv(np.zeros(2), left, 3, TIMEOUT)


def test_a_receive_is_enqueued_on_a_stream_when_its_message_has_come(world):
    messages, stream = world.tagged(), world.stream()
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    got = np.zeros(4)
    for step in range(3):
        recv = messages.irecv(got, left, 6, stream=stream, enqueued=True)
        messages.send(np.full(4, 10.0 * step + world.rank), right, 6, TIMEOUT)
        assert recv.wait(TIMEOUT).nbytes == 32
        stream.synchronize(TIMEOUT)
        assert (got == 10 * step + left).all()
    with pytest.raises(ValueError, match="enqueued"):
        messages.irecv(got, left, 6, enqueued=True)


def check(run, out, expected):
    for _ in range(3):
        run.run(TIMEOUT)
        assert (np.asarray(out) == expected).all()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "uint64", "uint32"])
def test_collectives(world, dtype):
    ranks, me = range(world.size), world.rank
    every = world.collective(8192)
    each = np.arange(10).astype(dtype)
    out = np.zeros(10, dtype)
    check(every.all_reduce(each + me, out), out, sum(each + rank for rank in ranks))
    check(every.all_reduce(each + me, out, op="max"), out, each + world.size - 1)
    check(every.scan(each + me, out), out, sum(each + rank for rank in range(me + 1)))
    all_of = np.zeros((world.size, 10), dtype)
    check(every.all_gather(each + me, all_of), all_of, [each + rank for rank in ranks])
    back = np.zeros((world.size, 10), dtype)
    check(every.all_to_all(all_of * (me + 1), back), back, [(each + me) * (rank + 1) for rank in ranks])
    check(every.reduce_scatter(all_of, out), out, world.size * (each + me))
    values = each + me
    check(every.broadcast(values, root=world.size - 1), values, each + world.size - 1)
    gathered = np.zeros((world.size, 10), dtype)
    check(every.gather(each + me, gathered if me == 0 else None), gathered, [each + rank for rank in ranks] if me == 0 else 0)
    check(every.scatter(all_of if me == 0 else None, out), out, each + me)
    total = np.zeros(10, dtype)
    check(every.reduce(each + me, total, root=0), total, sum(each + rank for rank in ranks) if me == 0 else 0)
    run = every.all_reduce(values)
    run.start()
    run.wait(TIMEOUT)
    assert (values == world.size * (each + world.size - 1)).all()
    every.barrier().run(TIMEOUT)
    stream = world.stream()
    again = every.all_reduce(each + me, out)
    again.start_on(stream)
    stream.synchronize(TIMEOUT)
    assert (out == sum(each + rank for rank in ranks)).all()


def test_collectives_refuse_what_does_not_fit(world):
    every = world.collective(64)
    with pytest.raises(libmp.Mismatch, match="combined"):
        every.all_reduce(np.zeros(4, np.int8)).run(TIMEOUT)
    with pytest.raises(libmp.Mismatch):
        every.all_reduce(np.zeros(100)).run(TIMEOUT)
    with pytest.raises(libmp.Mismatch, match="integers"):
        every.all_reduce(np.zeros(4), op="and").run(TIMEOUT)
    with pytest.raises(ValueError, match="expected sum"):
        every.all_reduce(np.zeros(4), op="mean")
    with pytest.raises(ValueError, match="float32"):
        every.all_gather(np.zeros(4), np.zeros(8, np.float32))
    bytes_too = np.full(3, world.rank, np.int8)
    out = np.zeros(3 * world.size, np.int8)
    every.all_gather(bytes_too, out).run(TIMEOUT)
    assert (out == np.repeat(np.arange(world.size), 3)).all()
