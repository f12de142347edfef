"""The tests run in every rank of a job: `mprun -n 2 python -m pytest python/tests`. One world serves all of them; whatever a test makes
by a collective call, all ranks make. A test that needs something this machine lacks is skipped, and says what."""

import faulthandler
import os
import subprocess
import sys

import pytest

import libmp

# Seconds: generous, for a machine that does something else, too. A test that hangs says where.
TIMEOUT = 60.0
faulthandler.dump_traceback_later(600, exit=True)


@pytest.fixture(scope="session")
def world():
    return libmp.init()


@pytest.fixture(autouse=True)
def together(request):
    """No rank is a test ahead of the others."""
    yield
    if "world" in request.fixturenames:
        request.getfixturevalue("world").barrier()


@pytest.fixture
def right(world):
    return world.peer((world.rank + 1) % world.size)


@pytest.fixture
def left(world):
    return world.peer((world.rank - 1) % world.size)


def pytest_report_header():
    count, why = libmp.gpus()
    rank = os.environ.get("MP_RANK", "0")
    return f"libmp {libmp.__version__}, rank {rank}, {count} GPUs" + (f" ({why})" if why else "")


@pytest.fixture(scope="session")
def gpu():
    count, why = libmp.gpus()
    if count == 0:
        pytest.skip(f"needs a GPU: {why or 'this process sees none'}")
    if "no GPU code" in libmp.BUILD:
        pytest.skip("needs GPU code, which this build does not hold")
    return int(os.environ.get("MP_LOCAL_RANK", "0")) % count


def job(tmp_path, ranks, program, *, status=0, environment=()):
    """Runs a program as a job; what the ranks print, sorted."""
    path = tmp_path / "program.py"
    path.write_text(program)
    mprun = [sys.executable, "-c", "from libmp._mprun import main; main()", "-n", str(ranks), "-l"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MP_")}
    ended = subprocess.run(
        mprun + [sys.executable, str(path)],
        env={**kept, **dict(environment)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=5 * TIMEOUT,
    )
    assert ended.returncode == status, ended
    return sorted(ended.stdout.splitlines()), ended.stderr


def alone(world):
    if world.rank != 0:
        pytest.skip("one rank starts a job of its own")
