"""Latency of a message between two ranks from Python: prepared sends of libmp beside mpi4py and torch.distributed.

    python python/bench/latency.py                      every peer that is installed, one after the other, as a table
    python python/bench/latency.py --only libmp,gloo    only these
    python python/bench/latency.py --gpu                memory of two GPUs, on streams: libmp, libmp in a CUDA graph, NCCL

A message goes there and back; shown is half of that, in microseconds: the median of the repeats, with the smallest and the largest of
them. Both ranks compute nothing else. Each repeat is as many rounds as take about a tenth of a second. On a GPU a round is
enqueued without waiting for it, and the rounds of a repeat are timed together, by events of the stream.
"""

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

SIZES = [8, 1024, 8192, 65536, 1 << 20]
REPEATS = 11
LIMIT = 300


def rounds_for(once, agree):
    """As many rounds as take a tenth of a second, the same on both ranks."""
    once(10)
    begun = time.perf_counter()
    once(10)
    took = (time.perf_counter() - begun) / 10
    return agree(max(10, min(20_000, int(0.1 / max(took, 1e-7)))))


def measured(once, agree, timed=None):
    """Microseconds one way, of each repeat."""
    rounds = rounds_for(once, agree)

    def by_the_clock(rounds):
        begun = time.perf_counter()
        once(rounds)
        return time.perf_counter() - begun

    timed = timed or by_the_clock
    return [timed(rounds) / rounds / 2 * 1e6 for _ in range(REPEATS)]


def there_and_back(first, send, recv):
    """What blocking calls do: one rank sends first, the other receives first."""
    one, two = (send, recv) if first else (recv, send)

    def once(rounds):
        for _ in range(rounds):
            one()
            two()

    return once


# The peers. Each gives, for a size, what does a number of rounds, and how the ranks agree on that number.


def libmp_host(library_memory):
    import libmp
    import numpy as np

    world = libmp.init()
    first = world.rank == 0
    other = world.peer(1 - world.rank)

    def size(size):
        made = [world.zeros(size, "uint8") if library_memory else np.zeros(size, np.uint8) for _ in range(2)]
        send, recv = other.send(made[0], tag=size), other.recv(made[1], tag=size)

        def once(rounds):
            for _ in range(rounds):
                recv.start()
                if first:
                    send.start()
                recv.wait()
                if not first:
                    send.start()
                send.wait()

        return once, lambda rounds: world.min(rounds), None

    return first, size


def mpi4py_host(persistent):
    import numpy as np
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    first, other = world.rank == 0, 1 - world.rank

    def size(size):
        out, into = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
        send, recv = world.Send_init(out, other), world.Recv_init(into, other)

        def again(rounds):
            for _ in range(rounds):
                recv.Start()
                if first:
                    send.Start()
                recv.Wait()
                if not first:
                    send.Start()
                send.Wait()

        each = there_and_back(first, lambda: world.Send(out, other), lambda: world.Recv(into, other))
        return again if persistent else each, lambda rounds: world.allreduce(rounds, MPI.MIN), None

    return first, size


def gloo_host():
    import torch
    import torch.distributed as distributed

    distributed.init_process_group("gloo")
    first, other = distributed.get_rank() == 0, 1 - distributed.get_rank()

    def agree(rounds):
        number = torch.tensor([rounds])
        distributed.all_reduce(number, distributed.ReduceOp.MIN)
        return int(number)

    def size(size):
        out, into = torch.zeros(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)
        once = there_and_back(first, lambda: distributed.send(out, other), lambda: distributed.recv(into, other))
        return once, agree, None

    return first, size


def on_a_gpu(make):
    """Times what is enqueued, by events of the stream."""
    import torch

    torch.cuda.set_device(int(os.environ.get("MP_LOCAL_RANK", os.environ.get("LOCAL_RANK", "0"))) % torch.cuda.device_count())
    stream = torch.cuda.Stream()
    first, enqueue_for, agree = make(torch, stream)

    def size(size):
        out = torch.zeros(size, dtype=torch.uint8, device="cuda")
        into = torch.zeros_like(out)
        torch.cuda.synchronize()
        enqueue = enqueue_for(out, into)

        def once(rounds):
            with torch.cuda.stream(stream):
                enqueue(rounds)
            stream.synchronize()

        def timed(rounds):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            with torch.cuda.stream(stream):
                begin.record()
                enqueue(rounds)
                end.record()
            stream.synchronize()
            return begin.elapsed_time(end) / 1e3

        return once, agree, timed

    return first, size


def libmp_gpu(in_a_graph):
    import libmp

    world = libmp.init()

    def make(torch, stream):
        first, other = world.rank == 0, world.peer(1 - world.rank)

        def enqueue_for(out, into):
            send, recv = other.send(out, tag=out.numel()), other.recv(into, tag=out.numel())
            there = [(recv, "start"), (send, "start"), (recv, "wait")]
            steps = there if first else [there[0], there[2], there[1]]

            def each(rounds):
                for _ in range(rounds):
                    libmp.enqueue(steps, stream)

            if not in_a_graph:
                return each
            each(1)
            world.adopt(stream).synchronize()
            world.barrier()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                each(10)

            def replay(rounds):
                for _ in range(rounds // 10):
                    graph.replay()

            return replay

        return first, enqueue_for, lambda rounds: world.min(rounds) // 10 * 10

    return on_a_gpu(make)


def nccl_gpu():
    import torch.distributed as distributed

    def make(torch, stream):
        distributed.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
        first, other = distributed.get_rank() == 0, 1 - distributed.get_rank()

        def enqueue_for(out, into):
            return there_and_back(first, lambda: distributed.send(out, other), lambda: distributed.recv(into, other))

        def agree(rounds):
            number = torch.tensor([rounds], device="cuda")
            distributed.all_reduce(number, distributed.ReduceOp.MIN)
            return int(number)

        return first, enqueue_for, agree

    return on_a_gpu(make)


MPRUN = [sys.executable, "-c", "from libmp._mprun import main; main()", "-n", "2"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
MPIRUN = ["mpirun", "-n", "2", sys.executable]
# Name: what it is called in the table, the module it needs, its launcher, what measures it.
HOST = {
    "libmp": ("libmp, prepared, memory of the library", "libmp", [*MPRUN, sys.executable], lambda: libmp_host(True)),
    "libmp-numpy": ("libmp, prepared, NumPy's memory", "libmp", [*MPRUN, sys.executable], lambda: libmp_host(False)),
    "mpi4py": ("mpi4py, persistent requests", "mpi4py", MPIRUN, lambda: mpi4py_host(True)),
    "mpi4py-send": ("mpi4py, Send and Recv", "mpi4py", MPIRUN, lambda: mpi4py_host(False)),
    "gloo": ("torch.distributed, gloo", "torch", TORCHRUN, gloo_host),
}
GPU = {
    "libmp": ("libmp, prepared, on PyTorch's stream", "libmp", [*MPRUN, sys.executable], lambda: libmp_gpu(False)),
    "libmp-graph": ("libmp, in PyTorch's CUDA graph", "libmp", [*MPRUN, sys.executable], lambda: libmp_gpu(True)),
    "nccl": ("torch.distributed, NCCL", "torch", TORCHRUN, nccl_gpu),
}


def rank(peer):
    """What a rank does."""
    first, size_of = peer()
    for size in SIZES:
        once, agree, timed = size_of(size)
        times = measured(once, agree, timed)
        if first:
            print(json.dumps({"size": size, "times": times}), flush=True)
    # Some clean up at exit, some complain: nothing is left to measure.


def compare(peers, chosen, extra):
    rows = {}
    for name, (title, module, launcher, _) in peers.items():
        if chosen and name not in chosen:
            continue
        if importlib.util.find_spec(module) is None or not shutil.which(launcher[0]):
            print(f"{name}: left out, needs {module} and {launcher[0]}", file=sys.stderr)
            continue
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
        command = [*launcher, os.path.abspath(__file__), "--rank", name, *extra]
        ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
        lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
        if not lines:
            print(f"{name}: failed with status {ended.returncode}", file=sys.stderr)
        rows[title] = {line["size"]: line["times"] for line in lines}
    print("µs one way: median (smallest to largest of", REPEATS, "repeats)")
    print("| | " + " | ".join(f"{size} B" for size in SIZES) + " |")
    print("|---|" + "--:|" * len(SIZES))
    for title, row in rows.items():
        cells = []
        for size in SIZES:
            times = row.get(size)
            cells.append(f"{statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f})" if times else "–")
        print(f"| {title} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", action="store_true", help="memory of two GPUs, on streams")
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of peers, separated by commas")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    peers = GPU if arguments.gpu else HOST
    if arguments.rank:
        rank(peers[arguments.rank][3])
        return
    unknown = set(arguments.only or []) - set(peers)
    if unknown:
        parser.error(f"no peer {', '.join(sorted(unknown))}; there are {', '.join(peers)}")
    compare(peers, arguments.only, ["--gpu"] if arguments.gpu else [])


if __name__ == "__main__":
    main()
