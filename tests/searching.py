"""Search states, budgets and shortened schedules, for tests of single procedures."""

from __future__ import annotations

import contextlib
import math
import time
from fractions import Fraction
from typing import Any

from placements import Placement
from schedsearch.core.budget import Account, Budget
from schedsearch.core.known import Known, Start
from schedsearch.procedures.neighbourhoods.improvement import Improvement
from schedsearch.proof.load_and_path import period_bound
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule
from schedsearch.solver.effort import Effort, OutOfTimeError
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.solver.portfolio import SOLVERS


def state_of(
    placement: Placement,
    repetend: Repetend | None = None,
    sizes: tuple[int, ...] = (1,),
    bound: Fraction | None = None,
    seed: int = 0,
) -> Known:
    """Return the state of a search that has at most one repetend."""
    state = Known(placement, sizes, period_bound(placement) if bound is None else bound, seed=seed)
    return state if repetend is None else state.taking(Start(repetend, "test"))


def budget(until: float = math.inf) -> Budget:
    """Return a budget with time enough, of a search that has done nothing."""
    account = Account(SOLVERS["portfolio"](), 0, 0.0, Effort(1e6 + time.monotonic()), lambda _: None)
    return Budget(account, until)


def improve(schedule: Schedule, effort: Effort, **options: Any) -> Improvement:
    """Reorder a schedule until a proof, a limit or a Ctrl-C; return the finished improvement."""
    running = Improvement(schedule, effort, **options)
    with INTERRUPTS.answered(), contextlib.suppress(OutOfTimeError):
        running.go_on()
    return running
