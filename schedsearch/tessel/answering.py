"""Arguments and answers of Tessel's two searches: checks, and answers in the form of our own search."""

from __future__ import annotations

import time
from typing import Any

from placements import Placement
from schedsearch.core.answer import Answer, EndedBy, SearchError, Status
from schedsearch.core.problem import LONGEST_S
from schedsearch.proof.ends import device_span_bound
from schedsearch.proof.load_and_path import critical_path, period_bound
from schedsearch.proof.makespan import makespan_bound
from schedsearch.proof.memory_need import require_capacity
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule
from schedsearch.solver.interrupts import Ending
from schedsearch.tessel.queries import Budget


def seconds_of(method: str, placement: Placement, num_micro_batches: int, time_limit_s: float) -> float:
    """Check the arguments of both searches, and return the seconds of one search.

    Raises:
        SearchError: A number is not positive, or the placement has transient memory.
        CapacityError: A device's memory is too small for one micro-batch.
    """
    if num_micro_batches < 1:
        raise SearchError(f"search.num_micro_batches: {num_micro_batches} is not at least 1")
    if not time_limit_s > 0:
        raise SearchError(f"search.time_limit_s: {time_limit_s} is not a positive number of seconds")
    transient = next((block.name for block in placement.per_micro_batch.blocks if block.transient), None)
    if transient is not None:
        raise SearchError(
            f"search.method: {method} does not know transient memory, which block {transient} has; "
            "use search.method=modulo"
        )
    require_capacity(placement)
    return min(time_limit_s, LONGEST_S)


def answer(
    placement: Placement,
    num_micro_batches: int,
    schedule: Schedule | None,
    repetend: Repetend | None,
    *,
    least: float | None,
    bound: float,
    is_infeasible: bool,
    interrupted: bool,
    began: float,
    budget: Budget,
    **figures: Any,
) -> Answer:
    """Return the answer of one of Tessel's searches in the form of our own search, with our own bounds.

    The objective's value `least`, in ticks or None, is proved if it meets `bound`. `began` is in seconds of
    `time.monotonic`. `figures` are other fields, among them bounds that are greater than ours.
    """
    is_least = least is not None and least <= bound
    status, reason = Status.FEASIBLE, ""
    if schedule is None:
        status, reason = Status.UNKNOWN, "no schedule was found in the time given; raise search.time_limit_s"
    elif is_least and not interrupted:
        status = Status.OPTIMAL
    if is_infeasible and schedule is None:
        status = Status.INFEASIBLE
        reason = "one micro-batch alone does not fit the devices' memory in any order; raise search.memory"
    ending = Ending(interrupted, out_of_time=budget.left_s <= 0)
    known: dict[str, Any] = {
        "period_bound": float(period_bound(placement)),
        "span_bound": critical_path(placement.per_micro_batch),
        "makespan_bound": makespan_bound(placement, num_micro_batches),
        "device_span_bound": device_span_bound(placement, num_micro_batches),
        "queries": budget.calls,
        "seconds": time.monotonic() - began,
        "ended_by": EndedBy.of(ending, proved=is_infeasible or is_least),
    }
    return Answer(status, repetend, schedule, reason=reason, **(known | figures))
