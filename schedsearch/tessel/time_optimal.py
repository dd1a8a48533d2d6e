"""The time-optimal search over all blocks of all micro-batches at once: what Tessel calls TO."""

from __future__ import annotations

import time
from collections.abc import Callable

from placements import Placement
from schedsearch.core.answer import EndedBy, SearchProgress, SearchResult, Status
from schedsearch.core.objective import Objective
from schedsearch.proof.ends import device_span_bound
from schedsearch.proof.load_and_path import critical_path, load_bound, period_bound
from schedsearch.proof.makespan import makespan_bound
from schedsearch.schedule import Schedule, ScheduledBlock, with_optimizer
from schedsearch.solver.interrupts import INTERRUPTS, Ending
from schedsearch.tessel.arguments import DOES_NOT_FIT, LONGEST_S, OUT_OF_TIME, check_arguments
from schedsearch.tessel.queries import Budget, Least, PhaseQuery, QueryTimeError, minimise
from schedsearch.validate import validate


def time_optimal(
    placement: Placement,
    num_micro_batches: int,
    *,
    time_limit_s: float = 60.0,
    seed: int = 0,
    on_progress: Callable[[SearchProgress], None] | None = None,
) -> SearchResult:
    """Search the schedule of least makespan, knowing nothing of repetends (Tessel, Sec. III-A, Eq. 1).

    The encoding and the binary search are those of Tessel's warmup and cooldown. The search begins with no
    bound but the busiest device's work and the longest chain of blocks; the status is of the makespan against
    our own bound where that is greater. There is no repetend, and optimizer blocks come last.

    Args:
        placement: What runs where; its `memory` is the capacity.
        num_micro_batches: Number of micro-batches, at least 1.
        time_limit_s: Seconds; then the best so far is returned, with what is proved.
        seed: Seed of Z3's random choices.
        on_progress: Called after each question to the solver.

    Raises:
        SearchError: An argument is out of its range, or the placement has transient memory.
        CapacityError: A device's memory is too small for one micro-batch.
    """
    check_arguments("time_optimal", placement, num_micro_batches, time_limit_s)
    whole, placement = placement, placement.per_micro_batch
    began = time.monotonic()
    budget = Budget(began + min(time_limit_s, LONGEST_S), seed)
    low = max(num_micro_batches * load_bound(placement), critical_path(placement))
    known = makespan_bound(whole, num_micro_batches)
    least = Least(None, 0, low, decided=False)

    def note(found: Least) -> None:
        nonlocal least
        least = found
        if on_progress is not None:
            so_far = _schedule(whole, num_micro_batches, found)
            best = None if so_far is None else so_far.makespan
            elapsed_s = time.monotonic() - began
            bound = max(found.bound, known)
            on_progress(SearchProgress(Objective.MAKESPAN.value, best, bound, budget.calls, elapsed_s))

    with INTERRUPTS.answered() as ending:
        _minimise(placement, num_micro_batches, low, budget, note)
    schedule = _schedule(whole, num_micro_batches, least)
    bound = max(least.bound, known)
    status, reason = _verdict(least, schedule, bound, ending.interrupted)
    return SearchResult(
        status=status,
        repetend=None,
        schedule=schedule,
        period_bound=float(period_bound(whole)),
        span_bound=critical_path(placement),
        makespan_bound=bound,
        device_span_bound=device_span_bound(whole, num_micro_batches),
        queries=budget.calls,
        seconds=time.monotonic() - began,
        ended_by=EndedBy.of(
            Ending(ending.interrupted, out_of_time=budget.left_s <= 0),
            proved=status in (Status.OPTIMAL, Status.INFEASIBLE),
        ),
        reason=reason,
    )


def _minimise(
    placement: Placement, num_micro_batches: int, low: int, budget: Budget, note: Callable[[Least], None]
) -> None:
    instances = [(block.name, n) for block in placement.blocks for n in range(num_micro_batches)]
    try:
        query = PhaseQuery(placement, instances, [0] * placement.num_devices, budget)
    except QueryTimeError:
        return
    minimise(query, low, query.horizon, first_share=1, on_step=note)


def _verdict(least: Least, schedule: Schedule | None, bound: int, interrupted: bool) -> tuple[Status, str]:
    if schedule is not None:
        is_minimal = schedule.makespan <= bound and not interrupted
        return Status.OPTIMAL if is_minimal else Status.FEASIBLE, ""
    if least.decided:
        return Status.INFEASIBLE, DOES_NOT_FIT
    return Status.UNKNOWN, OUT_OF_TIME


def _schedule(placement: Placement, num_micro_batches: int, least: Least) -> Schedule | None:
    if least.starts is None:
        return None
    blocks = (ScheduledBlock(start, n, name) for (name, n), start in least.starts.items())
    schedule = validate(Schedule(placement.per_micro_batch, num_micro_batches, tuple(blocks)))
    return validate(with_optimizer(placement, schedule))
