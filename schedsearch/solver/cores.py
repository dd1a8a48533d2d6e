"""Work on several cores at once; the same work is done with fewer, so that no answer depends on them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from schedsearch.solver.interrupts import INTERRUPTS

Result = TypeVar("Result")


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def together(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """Return what each of some calls returns, in their order; on one core they run one after the other.

    They gain only where most of their time is spent outside Python, in compiled code.
    """
    with INTERRUPTS.threads(min(usable_cores(), len(calls))) as executor:
        return list(executor.map(lambda call: call(), calls))
