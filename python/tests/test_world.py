"""Worlds, communicators, and how jobs end."""

import os
import subprocess
import sys

import libmp
import pytest

from conftest import TIMEOUT, alone, job


def test_ranks_know_who_they_are(world):
    assert 0 <= world.rank < world.size
    assert world.size == int(os.environ.get("MP_SIZE", "1"))
    assert world.host(world.rank)
    assert world.timeout > 0 and world.with_timeout(5.5).timeout == 5.5
    assert world.local_size <= world.size
    assert world.sum(1) == world.size
    assert world.max(world.rank) == world.size - 1 and world.min(0.5 + world.rank) == 0.5
    assert isinstance(world.sum(1), int) and isinstance(world.sum(1.0), float)
    with pytest.raises(TypeError, match="str"):
        world.sum("one")


def test_blobs_travel_through_rank_0(world):
    assert world.broadcast(b"hello" if world.rank == 0 else None) == b"hello"
    assert world.all_gather(bytes([world.rank])) == [bytes([rank]) for rank in range(world.size)]


def test_teams_have_ranks_of_their_own(world):
    parity = world.split(world.rank % 2, key=-world.rank)
    members = [rank for rank in range(world.size) if rank % 2 == world.rank % 2][::-1]
    assert parity.size == len(members) and parity.world_rank(parity.rank) == world.rank
    assert [parity.world_rank(rank) for rank in range(parity.size)] == members
    assert parity.sum(world.rank) == sum(members)
    assert world.split(None) is None
    team = world.team(list(range(world.size))[::-1])
    assert team.rank == world.size - 1 - world.rank and team.sum(1) == world.size
    assert world.node_local().size == world.local_size
    with pytest.raises(libmp.Mismatch, match="named twice"):
        world.team([world.rank, world.rank])


def test_collectives_that_differ_are_a_mismatch_for_all(world):
    if world.size == 1:
        pytest.skip("needs two ranks")
    with pytest.raises(libmp.Mismatch):
        world.barrier() if world.rank == 0 else world.all_gather(b"")


# What follows starts jobs of its own, from one rank.


def test_a_lost_rank_is_named_by_all(world, tmp_path):
    alone(world)
    out, _ = job(
        tmp_path,
        3,
        """
import os, libmp, numpy as np
world = libmp.init()
recv = world.peer(1).recv(np.zeros(3))
world.barrier()
if world.rank == 1:
    os._exit(0)
try:
    recv.start()
    recv.wait(60)
except libmp.PeerLost as lost:
    print(lost.rank, bool(lost.cause), isinstance(lost, libmp.Error))
    os._exit(0)
""",
    )
    assert out == ["[0] 1 True True", "[2] 1 True True"]


def test_an_exception_ends_the_others_with_its_sentence(world, tmp_path):
    alone(world)
    program = """
import libmp, numpy as np
{}
if world.rank == 1:
    raise RuntimeError("out of ideas")
try:
    recv = world.peer(1).recv(np.zeros(3))
    recv.start()
    recv.wait(60)
except libmp.Aborted as aborted:
    print(aborted.rank, aborted.cause)
"""
    # mprun ends the others once a rank has failed: they get the time to say why.
    out, err = job(tmp_path, 2, program.format("world = libmp.init()"), status=1)
    assert "RuntimeError: out of ideas" in err
    assert out in ([], ["[0] 1 RuntimeError: out of ideas"])
    inside = """
import libmp, numpy as np
with libmp.init() as world:
    try:
        with world:
            if world.rank == 1:
                raise RuntimeError("out of ideas")
            recv = world.peer(1).recv(np.zeros(3))
            recv.start()
            recv.wait(60)
    except RuntimeError:
        pass
    except libmp.Aborted as aborted:
        print(aborted.rank, aborted.cause)
"""
    out, _ = job(tmp_path, 2, inside)
    assert out == ["[0] 1 RuntimeError: out of ideas"]


def test_a_world_that_is_finished_says_so(world, tmp_path):
    alone(world)
    out, _ = job(
        tmp_path,
        2,
        """
import libmp, numpy as np
world = libmp.init()
peer = world.peer(1 - world.rank)
world.finish()
world.finish()
try:
    world.barrier()
except libmp.Finished as finished:
    print(finished)
print(world.is_over)
""",
    )
    assert [line.split(" ", 1)[1] for line in out].count("True") == 2
    assert sum("this world is finished" in line for line in out) == 2


def test_a_world_that_cannot_be_finished_at_the_end_fails_the_program(world, tmp_path):
    alone(world)
    program = """
import os, libmp
world = libmp.init()
world.barrier()
if world.rank == 1:
    os._exit(0)
"""
    _, err = job(tmp_path, 2, program, status=1)
    assert "libmp: rank 1" in err


def test_torchrun_s_variables_are_enough(world, tmp_path):
    alone(world)
    program = tmp_path / "program.py"
    program.write_text("import libmp\nworld = libmp.init()\nprint(world.rank, world.size, world.sum(1))\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MP_")}
    port = str(20_000 + os.getpid() % 10_000)
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common["TORCHELASTIC_RUN_ID"] = "test"
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program)],
            env={**kept, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    out = sorted(rank.communicate(timeout=5 * TIMEOUT)[0].strip() for rank in ranks)
    assert out == ["0 2 2", "1 2 2"]


def test_a_wait_of_a_stream_that_gives_up_is_late_at_once(world, tmp_path):
    """Nobody sends: the wait on the stream ends by the communicator's timeout, long before that of the synchronisation."""
    alone(world)
    out, _ = job(
        tmp_path,
        1,
        """
import time
import libmp, numpy as np
world = libmp.init()
recv, send = (end(np.zeros(3)) for end in (world.with_timeout(0.5).peer(0).recv, world.peer(0).send))
stream = world.stream()
libmp.enqueue([(recv, "start"), (recv, "wait")], stream)
begun = time.monotonic()
try:
    stream.synchronize(200)
except libmp.Late as late:
    print("recv tag 0 from rank 0" in str(late), time.monotonic() - begun < 100)
""",
    )
    assert out == ["[0] True True"]


def test_a_bad_variable_is_an_error_of_the_start(world, tmp_path):
    alone(world)
    out, _ = job(
        tmp_path,
        1,
        """
import libmp
try:
    libmp.init()
except libmp.StartError as error:
    print(error.variable, "expected" in str(error))
""",
        environment={"MP_TIMEOUT": "soon"}.items(),
    )
    assert out == ["[0] MP_TIMEOUT True"]


def test_everything_is_documented(world):
    for name in libmp.__all__:
        thing = getattr(libmp, name)
        if not callable(thing):
            continue
        assert thing.__doc__, name
        for method, value in vars(thing).items() if isinstance(thing, type) else ():
            if not method.startswith("_") and callable(value):
                assert value.__doc__, f"{name}.{method}"
