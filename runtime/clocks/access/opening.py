"""The clock of a GPU by the way that this machine offers: the helper, or one's own right."""

from __future__ import annotations

import os
from pathlib import Path

from runtime.clocks.clock import ClockBackend, ClockError, HelperClock, NvmlClock, RecordingClock

SOCKET_VARIABLE = "SCHEDSEARCH_CLOCK_SOCKET"
"""Environment of a run: the socket of the clock helper; empty for none."""

DEFAULT_SOCKET = Path("/run/schedsearch/clock.sock")
"""Where the helper is looked for."""


def lock_clock(gpu: str, dwell_ms: float = 0.0) -> ClockBackend:
    """Return a clock that locks the GPU's; see `runtime.clocks.clock.NvmlClock`.

    Raises:
        ClockError: There is no GPU, no right, and nobody who has it and gives it; or the helper refuses.
    """
    given = os.environ.get(SOCKET_VARIABLE)
    if given or (given is None and DEFAULT_SOCKET.exists()):
        return HelperClock(gpu, given or DEFAULT_SOCKET, dwell_ms)
    return NvmlClock(gpu, dwell_ms)


def open_clock(gpu: str | None, dwell_ms: float = 0.0) -> ClockBackend:
    """Return a clock that locks the GPU's where there is a way, else, or without a GPU, one that records."""
    if gpu is None:
        return RecordingClock("the script runs on the CPU")
    try:
        return lock_clock(gpu, dwell_ms)
    except ClockError as error:
        return RecordingClock(str(error))
