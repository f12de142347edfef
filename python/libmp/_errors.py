"""What can go wrong: one class for each kind of failure. The text of each is one sentence that names the operation, the value and what
was expected; what the library knows besides is in attributes."""

import builtins


class Error(Exception):
    """Any failure of the library."""

    rank: int | None = None
    """The rank that it is about, in the world, if it is about one."""
    host: str | None = None
    """The host of that rank."""
    cause: str | None = None
    """How it came about, as far as is known."""


class StartError(Error):
    """The ranks did not find each other: the launcher, an environment variable, the network, or a rank that did not come."""

    variable: str | None = None
    missing: list[int] = []


class PeerLost(Error, ConnectionError):
    """A rank died, hangs, disconnected, or left without finishing. The world is over for all ranks."""


class Aborted(Error):
    """A rank ended the world for all, with a reason. The world is over."""


class ProtocolError(Error):
    """A rank, or the library, broke the protocol. The world is over."""


class Finished(Error):
    """This world is finished."""


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed. If it was that of a collective call of the host, the world is over; `missing` are the ranks that did not enter it."""

    missing: list[int] = []


class Late(TimeoutError):
    """The deadline of a wait passed. The world goes on, and the operation stays started."""

    tag: int | None = None
    expected: int | None = None
    seen: int | None = None


class Mismatch(Error, ValueError):
    """What the ranks do, or operations, streams and memory, do not fit together. The world goes on."""


class Truncated(Error, ValueError):
    """A message is longer than the memory that was posted for it."""

    sent: int | None = None
    posted: int | None = None


class Started(Error):
    """An operation was started again before its last start was seen complete."""


class OutOfRange(Error, IndexError):
    """A rank, elements or a signal that do not exist, or too much at once."""


class NoPath(Error):
    """There is no way to a rank for what was asked, or it failed."""


class MemoryError(Error, builtins.MemoryError):
    """Memory, a stream or a device refused."""


class Unsupported(Error, NotImplementedError):
    """What this build, or this kind of memory or stream, does not do."""
