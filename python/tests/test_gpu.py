"""Arrays of PyTorch and CuPy on a GPU, their streams and their graphs. Two ranks may share one GPU."""

import gc

import libmp
import numpy as np
import pytest

from conftest import TIMEOUT, alone, job

FRAMEWORKS = ["torch", "cupy"]


class Torch:
    """What the tests need of PyTorch."""

    name = "torch"

    def __init__(self, gpu):
        self.torch = pytest.importorskip("torch", reason="needs PyTorch")
        if not self.torch.cuda.is_available():
            pytest.skip("needs PyTorch with CUDA")
        self.torch.cuda.set_device(gpu)
        self.gpu = gpu

    def zeros(self, shape, dtype="float64"):
        made = self.torch.zeros(shape, dtype=getattr(self.torch, dtype), device="cuda")
        self.torch.cuda.synchronize()
        return made

    def numpy(self, array):
        return array.cpu().numpy()

    def stream(self):
        return self.torch.cuda.Stream()

    def current(self, stream):
        return self.torch.cuda.stream(stream)

    def capture(self, stream, work):
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=stream):
            work()

        def replay():
            with self.torch.cuda.stream(stream):
                graph.replay()

        return replay


class CuPy:
    """What the tests need of CuPy."""

    name = "cupy"

    def __init__(self, gpu):
        self.cupy = pytest.importorskip("cupy", reason="needs CuPy")
        self.cupy.cuda.Device(gpu).use()
        self.gpu = gpu

    def zeros(self, shape, dtype="float64"):
        made = self.cupy.zeros(shape, dtype=dtype)
        self.cupy.cuda.Device().synchronize()
        return made

    def numpy(self, array):
        return self.cupy.asnumpy(array)

    def stream(self):
        return self.cupy.cuda.Stream(non_blocking=True)

    def current(self, stream):
        return stream

    def capture(self, stream, work):
        with stream:
            stream.begin_capture()
            work()
            graph = stream.end_capture()
        return lambda: graph.launch(stream)


@pytest.fixture(params=FRAMEWORKS)
def framework(request, gpu):
    return {"torch": Torch, "cupy": CuPy}[request.param](gpu)


@pytest.fixture
def torch(gpu):
    return Torch(gpu).torch


@pytest.fixture
def cupy(gpu):
    return CuPy(gpu).cupy


def test_regions_are_the_frameworks_own_memory(world, framework):
    array = framework.zeros((4, 5), "float32")
    region = world.region(array)
    assert region.device == f"cuda:{framework.gpu}" and region.shape == (4, 5) and region.dtype == "float32"
    pointer = array.data_ptr() if framework.name == "torch" else array.data.ptr
    assert region.__cuda_array_interface__["data"][0] == pointer
    part = world.region(array[1:3])
    assert part.__cuda_array_interface__["data"][0] == pointer + 20
    with pytest.raises(ValueError, match="pieces"):
        world.window(array[:, 1])


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "bool", "complex64"])
def test_dlpack_and_the_cuda_array_interface_have_the_types(world, torch, dtype):
    tensor = torch.zeros(8, dtype=getattr(torch, dtype), device="cuda")
    region = world.region(tensor)
    assert region.dtype == dtype and region.torch().dtype == tensor.dtype
    assert region.torch().data_ptr() == tensor.data_ptr()


def test_memory_of_the_library_is_seen_in_place(world, torch, cupy, gpu):
    region = world.zeros((3, 4), "float32", device=f"cuda:{gpu}")
    tensor, array = region.torch(), region.cupy()
    assert tensor.shape == (3, 4) and array.shape == (3, 4) and tensor.dtype == torch.float32
    assert tensor.data_ptr() == array.data.ptr == cupy.asarray(region).data.ptr
    tensor.fill_(2.5)
    torch.cuda.synchronize()
    assert (cupy.asnumpy(array) == 2.5).all()
    del region
    gc.collect()
    tensor.add_(1)
    torch.cuda.synchronize()
    assert (cupy.asnumpy(array) == 3.5).all()
    pinned = world.zeros(5, device="cuda", pinned=True)
    assert (np.asarray(pinned) == 0).all()


def test_calls_leave_the_current_context_alone(world, torch):
    world.stream("cuda")
    tensor = torch.ones(1000, device="cuda")
    assert tensor.sum().item() == 1000
    recv = world.peer(world.rank).recv(tensor, tag=40)
    assert torch.ones(10, device="cuda").sum().item() == 10
    del recv


def test_messages_by_the_host(world, right, left, framework):
    edge, ghost = framework.zeros(1000), framework.zeros(1000)
    send, recv = right.send(edge, tag=41), left.recv(ghost, tag=41)
    for step in range(3):
        edge += world.rank + 1
        framework.numpy(edge)
        recv.start()
        send.start()
        libmp.wait_all([send, recv], TIMEOUT)
        assert (framework.numpy(ghost) == (left.rank + 1) * (step + 1)).all()


@pytest.mark.parametrize("size", [1, 1000, 1_000_000])
def test_messages_on_the_current_stream(world, right, left, framework, size):
    edge, ghost, total = framework.zeros(size), framework.zeros(size), framework.zeros(size)
    send, recv = right.send(edge, tag=42), left.recv(ghost, tag=42)
    stream = framework.stream()
    with framework.current(stream):
        for step in range(4):
            edge += world.rank + 1
            recv.start_on("current")
            send.start_on("current")
            recv.wait_on("current")
            total += ghost
    world.adopt(stream, f"cuda:{framework.gpu}").synchronize(TIMEOUT)
    # 1 + 2 + 3 + 4 times what the left one adds.
    assert (framework.numpy(total) == 10 * (left.rank + 1)).all()


def test_the_default_stream_is_refused(world, right, framework):
    send = right.send(framework.zeros(3), tag=43)
    with pytest.raises(ValueError, match="default stream"):
        send.start_on(framework.name)


@pytest.mark.parametrize("warm", [True, False])
def test_messages_captured_in_the_framework_s_graph(world, right, left, framework, warm):
    size = 5000
    edge, ghost, total = framework.zeros(size), framework.zeros(size), framework.zeros(size)
    send, recv = right.send(edge, tag=44), left.recv(ghost, tag=44)
    stream = framework.stream()

    def step():
        nonlocal edge, total
        edge += world.rank + 1
        libmp.enqueue([(recv, "start"), (send, "start"), (recv, "wait")], stream)
        total += ghost

    with framework.current(stream):
        if warm:
            step()
    ours = world.adopt(stream, f"cuda:{framework.gpu}")
    ours.synchronize(TIMEOUT)
    # Both have prepared: nothing in the capture waits for the other.
    world.barrier()
    replay = framework.capture(stream, step)
    # The graph keeps what its operations use.
    del send, recv
    gc.collect()
    with framework.current(stream):
        for _ in range(5):
            replay()
    ours.synchronize(TIMEOUT)
    starts = 6 if warm else 5
    assert (framework.numpy(edge) == starts * (world.rank + 1)).all()
    assert (framework.numpy(total) == starts * (starts + 1) // 2 * (left.rank + 1)).all()
    world.barrier()
    del replay
    gc.collect()


def test_collectives_on_a_stream_and_in_a_graph(world, framework):
    every = world.collective(8000, device=f"cuda:{framework.gpu}")
    values, out = framework.zeros(1000), framework.zeros(1000)
    run = every.all_reduce(values, out)
    stream = framework.stream()
    ours = world.adopt(stream, f"cuda:{framework.gpu}")
    with framework.current(stream):
        values += world.rank + 1
        run.start_on("current")
    ours.synchronize(TIMEOUT)
    everybody = world.size * (world.size + 1) // 2
    assert (framework.numpy(out) == everybody).all()

    def step():
        nonlocal values
        values += world.rank + 1
        run.start_on(stream)

    replay = framework.capture(stream, step)
    with framework.current(stream):
        for _ in range(3):
            replay()
    ours.synchronize(TIMEOUT)
    assert (framework.numpy(out) == 4 * everybody).all()
    gathered = framework.zeros((world.size, 1000))
    every.all_gather(values, gathered).run(TIMEOUT)
    assert (framework.numpy(gathered)[:, 0] == [4 * (rank + 1) for rank in range(world.size)]).all()
    world.barrier()


def test_windows_on_a_stream_and_in_a_graph(world, framework):
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    share, mine = framework.zeros(100), framework.zeros(100)
    window = world.window(share, signals=2)
    stream = framework.stream()
    ours = world.adopt(stream, f"cuda:{framework.gpu}")
    put, arrived = window.prepare_put(right, mine, signal=0), window.prepare_wait(0)
    with framework.current(stream):
        mine += world.rank + 1
        put.start_on("current")
        arrived.wait_on("current")
    ours.synchronize(TIMEOUT)
    assert (framework.numpy(share) == left + 1).all()
    world.barrier()
    with framework.current(stream):
        mine += 10
        window.put_on("current", right, mine)
        window.signal_on("current", right, 1, 5)
        window.wait_signal_on("current", 1, 5)
    ours.synchronize(TIMEOUT)
    assert (framework.numpy(share) == left + 11).all()
    assert window.read_signal(1) == 5

    def wait():
        window.wait_signal_on(stream, 1, 5)

    replay = framework.capture(stream, wait)
    replay()
    ours.synchronize(TIMEOUT)
    world.barrier()


def test_tagged_messages_of_gpu_memory(world, framework):
    messages = world.tagged()
    right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    edge, ghost = framework.zeros(10_000), framework.zeros(10_000)
    stream = framework.stream()
    with framework.current(stream):
        edge += world.rank + 1
        # In this order: what the stream is given behind the receive waits for it.
        send = messages.isend(edge, right, 3, stream="current")
        recv = messages.irecv(ghost, left, 3, stream="current")
        ghost += 100
    send.wait(TIMEOUT)
    assert recv.wait(TIMEOUT).nbytes == 80_000
    world.adopt(stream, f"cuda:{framework.gpu}").synchronize(TIMEOUT)
    assert (framework.numpy(ghost) == left + 101).all()


def test_the_library_s_stream_is_the_frameworks_stream(world, right, left, torch):
    edge, ghost = torch.zeros(100, device="cuda"), torch.zeros(100, device="cuda")
    torch.cuda.synchronize()
    send, recv = right.send(edge, tag=45), left.recv(ghost, tag=45)
    stream = world.stream(f"cuda:{torch.cuda.current_device()}")
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
        edge.fill_(world.rank + 1)
        libmp.enqueue([(recv, "start"), (send, "start"), (recv, "wait")], stream)
        ghost.mul_(2)
    stream.synchronize(TIMEOUT)
    assert ghost.sum().item() == 200 * (left.rank + 1)


def test_a_wait_in_a_graph_ends_and_is_late(world, torch, tmp_path):
    """Nobody sends: the wait gives up at the timeout, and the synchronisation says so."""
    alone(world)
    out, _ = job(
        tmp_path,
        1,
        """
import libmp, torch
world = libmp.init()
short = world.with_timeout(1.0)
ghost, edge = torch.zeros(10, device="cuda"), torch.zeros(10, device="cuda")
torch.cuda.synchronize()
recv, send = short.peer(0).recv(ghost), short.peer(0).send(edge)
stream = torch.cuda.Stream()
ours = short.adopt(stream)
libmp.enqueue([(recv, "start"), (send, "start"), (recv, "wait")], stream)
ours.synchronize(60)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=stream):
    libmp.enqueue([(recv, "start"), (recv, "wait")], stream)
with torch.cuda.stream(stream):
    graph.replay()
try:
    ours.synchronize(60)
except libmp.Late as late:
    print(late)
""",
    )
    assert len(out) == 1 and "recv tag 0 from rank 0" in out[0], out
