"""Standard output kept clean of what a compiled library prints past Python.

HiGHS writes ``HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();`` with a plain
``printf`` whatever its options are: scipy's ``disp=False``, the default, turns off only its log.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_STDOUT = 1
"""File descriptor of standard output, in C as in Python."""


@contextlib.contextmanager
def quiet_stdout() -> Iterator[None]:
    """Drop what anything in this process, threads included, writes to standard output meanwhile.

    Does nothing where there is no standard output, and outside POSIX.
    """
    try:
        kept = os.dup(_STDOUT) if os.name == "posix" else None
    except OSError:
        kept = None
    if kept is None:
        yield
        return
    _flush()
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), _STDOUT)
        yield
    finally:
        _flush()
        os.dup2(kept, _STDOUT)
        os.close(kept)


def _flush() -> None:
    """Write out what Python and C hold back, to where standard output leads now."""
    if sys.stdout is not None:
        sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
