"""Messages, puts, signals and collectives over arrays of NumPy, CuPy and PyTorch, started by the host and on CUDA streams.

    import libmp
    import numpy as np

    world = libmp.init()                      # under mprun, mpirun, srun or torchrun, or alone
    right = world.peer((world.rank + 1) % world.size)
    left = world.peer((world.rank - 1) % world.size)
    edge, ghost = np.full(100, world.rank, dtype=float), np.zeros(100)

    send, recv = right.send(edge, tag=7), left.recv(ghost, tag=7)    # prepared once
    for step in range(1000):
        recv.start()
        send.start()
        libmp.wait_all([send, recv], timeout=60)

A prepared operation is started again and again, by the host as here, or on a stream: `send.start_on(stream)`, `recv.wait_on(stream)`, also
while that is captured into a graph. Every wait ends: with what was waited for, or with an exception that says why not (`libmp.Error`).
"""

import atexit
import os
import sys

from ._errors import (
    Aborted,
    Error,
    Finished,
    Late,
    MemoryError,
    Mismatch,
    NoPath,
    OutOfRange,
    PeerLost,
    ProtocolError,
    StartError,
    Started,
    TimeoutError,
    Truncated,
    Unsupported,
)
from ._libmp import (
    BUILD,
    Collective,
    Communicator,
    Graph,
    Operation,
    Peer,
    Region,
    Request,
    Run,
    Status,
    Stream,
    Tagged,
    Window,
    World,
    __version__,
    enqueue,
    gpus,
    wait_all,
    wait_any,
)
from . import _libmp

__all__ = [
    "Aborted",
    "BUILD",
    "Collective",
    "Communicator",
    "Error",
    "Finished",
    "Graph",
    "Late",
    "MemoryError",
    "Mismatch",
    "NoPath",
    "Operation",
    "OutOfRange",
    "Peer",
    "PeerLost",
    "ProtocolError",
    "Region",
    "Request",
    "Run",
    "StartError",
    "Started",
    "Status",
    "Stream",
    "Tagged",
    "TimeoutError",
    "Truncated",
    "Unsupported",
    "Window",
    "World",
    "__version__",
    "enqueue",
    "gpus",
    "init",
    "wait_all",
    "wait_any",
]


def init() -> World:
    """Starts a world with the ranks that the launcher started: mprun, mpirun, srun, torchrun; or one rank alone.

    When the program ends, the world is finished; when an exception ends it, the world is aborted for all ranks, with that as the reason.
    """
    world = _libmp.start()
    atexit.register(_end, world)
    return world


def _end(world: World) -> None:
    if world.is_over:
        return
    # What the interpreter has printed before it came here: nobody handled it.
    error = getattr(sys, "last_value", None)
    if error is not None:
        world.abort(f"{type(error).__name__}: {error}")
        return
    try:
        world.finish()
    except Error as late:
        # What is raised here does not change the exit status.
        print(f"libmp: {late}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
