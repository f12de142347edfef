"""The launcher, as the program `mprun` of this package."""

import sys


def main() -> None:
    from . import _libmp

    _libmp.mprun(sys.argv)
