"""The budget of one call of a solver: work, seconds and a seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

Spend = Callable[[float], None]
"""Is told how much work was done, as by `schedsearch.solver.effort.Effort.spend`."""


def uncounted(work: float) -> None:
    """Do not count work."""


@dataclass(frozen=True)
class SolverBudget:
    """Limits of one call of a solver, in work and in seconds, and its seed.

    Attributes:
        work: Units of work after which to give up, whatever the machine, about a second each; CP-SAT's
            deterministic time where a model of it is solved.
        timeout_s: Seconds after which to give up all the same.
        seed: Seed of the solver's random choices.
        spend: Called with the work done.
        unwanted: Set by another thread that needs no answer any more.
    """

    work: float = math.inf
    timeout_s: float = 60.0
    seed: int = 0
    spend: Spend = uncounted
    unwanted: Event | None = None


AMPLE = SolverBudget()
"""A minute, and any work."""
