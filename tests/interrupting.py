"""Ctrl-C at a moment that is known: from a timer it may come late and end whatever runs by then."""

import math
from collections.abc import Callable
from signal import SIGINT, raise_signal
from threading import Event
from typing import TypeVar

from schedsearch.solver import interrupts

Result = TypeVar("Result")


def interrupted(
    solve: Callable[[], Result],
    stop: Callable[[], None],
    unwanted: Event | None = None,
    cpu_limit_s: float = math.inf,
) -> Result:
    """Stand in for `interruptible`: Ctrl-C comes when the solver has begun."""

    def begun() -> Result:
        raise_signal(SIGINT)
        return solve()

    return interrupts.interruptible(begun, stop, unwanted, cpu_limit_s)
