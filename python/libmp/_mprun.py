"""The launcher, as the program `mprun` of this package."""

import sys


def main() -> None:
    from . import _libmp  # type: ignore[attr-defined]

    _libmp.mprun(sys.argv)
