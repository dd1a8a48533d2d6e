"""Standard output kept clean of what a compiled library prints past Python.

HiGHS writes ``HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();`` with a plain
``printf`` whatever its options are: scipy's ``disp=False``, the default, turns off only its log.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_STDOUT = 1
"""File descriptor of standard output, in C as in Python."""


_LOCK = threading.Lock()
_inside: list[int] = []  # for each thread that is inside, where standard output led when the first came


@contextlib.contextmanager
def quiet_stdout() -> Iterator[None]:
    """Drop what anything in this process, threads included, writes to standard output meanwhile.

    Does nothing where there is no standard output, and outside POSIX.
    """
    with _LOCK:
        try:
            kept = _inside[0] if _inside else os.dup(_STDOUT) if os.name == "posix" else None
        except OSError:
            kept = None
        if kept is not None:
            _flush()
            _inside.append(kept)
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), _STDOUT)
    try:
        yield
    finally:
        with _LOCK:
            if kept is not None:
                _inside.pop()
                if not _inside:  # the last to leave
                    _flush()
                    os.dup2(kept, _STDOUT)
                    os.close(kept)


def _flush() -> None:
    """Write out what Python and C hold back, to where standard output leads now."""
    if sys.stdout is not None:
        sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
