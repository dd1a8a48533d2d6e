"""CPU seconds of a measured function; solvers are loaded before, so that no case pays for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

from placements.shapes import v_shape
from schedsearch.searches.search import search

Answer = TypeVar("Answer")


class CpuClock:
    """CPU seconds since it was made, of this process, its threads and the children that have ended."""

    def __init__(self) -> None:
        self._began = _cpu_s()

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return _cpu_s() - self._began


def _cpu_s() -> float:
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


def timed(work: Callable[[], Answer]) -> tuple[Answer, float]:
    """Return the result of a function, and its CPU seconds."""
    clock = CpuClock()
    return work(), clock.seconds


def load_solvers() -> None:
    """Load each solver and put a question to it, and compile annealing, so that no case pays for it."""
    placement = v_shape(2).with_memory(1)
    for solver in ("z3", "cpsat"):
        search(placement, 2, solver=solver, time_limit_s=0.2)
    search(v_shape(4).with_memory(3), 4, strategies=["annealing"], objectives=["period"], work_limit=1e-6)
