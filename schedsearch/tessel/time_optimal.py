"""The time-optimal search over all blocks of all micro-batches at once: what Tessel calls TO."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from placements import Placement
from schedsearch import bounds
from schedsearch.modulo.result import Status
from schedsearch.schedule import Schedule, ScheduledBlock
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.tessel.arguments import DOES_NOT_FIT, LONGEST_S, OUT_OF_TIME, check_arguments
from schedsearch.tessel.queries import Budget, Least, OutOfTimeError, PhaseQuery, minimise
from schedsearch.validate import validate


@dataclass(frozen=True)
class TimeOptimalProgress:
    """How far a search is.

    Attributes:
        best: Least makespan found, in ticks; None before the first.
        bound: Ticks that no schedule beats.
        solver_calls: Questions put to the solver so far.
        elapsed_s: Seconds since the search began.
    """

    best: int | None
    bound: int
    solver_calls: int
    elapsed_s: float


@dataclass(frozen=True)
class TimeOptimalResult:
    """A schedule of least makespan, or the best found.

    Attributes:
        status: Of the makespan: OPTIMAL when it meets `makespan_bound`.
        schedule: Validated; None when there is none.
        makespan_bound: Ticks that no schedule of as many micro-batches beats.
        solver_calls: Questions put to the solver.
        seconds: Wall-clock time.
        cpu_seconds: Processor time of this process.
        interrupted: Whether it was interrupted from the keyboard.
        reason: Why there is no schedule; empty when there is one.
    """

    status: Status
    schedule: Schedule | None
    makespan_bound: int
    solver_calls: int
    seconds: float
    cpu_seconds: float
    interrupted: bool
    reason: str


def time_optimal(
    placement: Placement,
    num_micro_batches: int,
    *,
    time_limit_s: float = 60.0,
    seed: int = 0,
    on_progress: Callable[[TimeOptimalProgress], None] | None = None,
) -> TimeOptimalResult:
    """Search the schedule of least makespan, knowing nothing of repetends (Tessel, Sec. III-A, Eq. 1).

    The encoding and the binary search are those of Tessel's warmup and cooldown. The bound known from the
    start is the busiest device's work, or the longest chain of blocks; no other is used.

    Args:
        placement: What runs where; its `memory` is the capacity.
        num_micro_batches: At least 1.
        time_limit_s: Seconds; then the best so far is returned, with what is proved.
        seed: Of Z3's random choices.
        on_progress: Called after each question to the solver.

    Raises:
        SearchError: An argument is out of its range.
        CapacityError: A device's memory is too small for one micro-batch.
    """
    check_arguments(num_micro_batches, time_limit_s)
    bounds.require_capacity(placement)
    began, cpu_began = time.monotonic(), time.process_time()
    budget = Budget(began + min(time_limit_s, LONGEST_S), seed)
    low = max(num_micro_batches * bounds.load_bound(placement), bounds.critical_path(placement))
    least, interrupted = Least(None, 0, low, decided=False), False

    def note(found: Least) -> None:
        nonlocal least
        least = found
        if on_progress is not None:
            best = found.value if found.starts is not None else None
            on_progress(TimeOptimalProgress(best, found.bound, budget.calls, time.monotonic() - began))

    INTERRUPTS.watch()
    try:
        _minimise(placement, num_micro_batches, low, budget, note)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        INTERRUPTS.unwatch()
    status, reason = _verdict(least)
    return TimeOptimalResult(
        status,
        _schedule(placement, num_micro_batches, least),
        least.bound,
        budget.calls,
        time.monotonic() - began,
        time.process_time() - cpu_began,
        interrupted,
        reason,
    )


def _minimise(
    placement: Placement, num_micro_batches: int, low: int, budget: Budget, note: Callable[[Least], None]
) -> None:
    instances = [(block.name, n) for block in placement.blocks for n in range(num_micro_batches)]
    try:
        query = PhaseQuery(placement, instances, [0] * placement.num_devices, budget)
    except OutOfTimeError:
        return
    minimise(query, low, query.horizon, first_share=1, on_step=note)


def _verdict(least: Least) -> tuple[Status, str]:
    if least.starts is not None:
        return Status.OPTIMAL if least.decided else Status.FEASIBLE, ""
    if least.decided:
        return Status.INFEASIBLE, DOES_NOT_FIT
    return Status.UNKNOWN, OUT_OF_TIME


def _schedule(placement: Placement, num_micro_batches: int, least: Least) -> Schedule | None:
    if least.starts is None:
        return None
    blocks = (ScheduledBlock(start, n, name) for (name, n), start in least.starts.items())
    return validate(Schedule(placement, num_micro_batches, tuple(blocks)))
