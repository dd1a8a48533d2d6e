"""The time-optimal search (Tessel's TO), over all blocks of all micro-batches at once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from placements import Placement
from schedsearch.core.answer import Answer, SearchProgress
from schedsearch.core.objective import Objective
from schedsearch.proof.load_and_path import critical_path, load_bound
from schedsearch.proof.makespan import makespan_bound
from schedsearch.schedule import Schedule, ScheduledBlock, with_optimizer
from schedsearch.solver.effort import OutOfTimeError
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.tessel.answering import answer, seconds_of
from schedsearch.tessel.queries import Budget, Least, minimise, phase_query
from schedsearch.validate import validate


def time_optimal(
    placement: Placement,
    num_micro_batches: int,
    *,
    time_limit_s: float = 60.0,
    seed: int = 0,
    on_progress: Callable[[SearchProgress], None] | None = None,
) -> Answer:
    """Search the schedule of least makespan, knowing nothing of repetends (Tessel, Sec. III-A, Eq. 1).

    The encoding and the binary search are those of Tessel's warmup and cooldown. The search begins with no
    bound but the busiest device's work and the longest chain of blocks; the status is of the makespan against
    our own bound where that is greater. There is no repetend, and optimizer blocks come last.

    Arguments and errors are those of `schedsearch.tessel.algorithm.tessel`.
    """
    limit_s = seconds_of("time_optimal", placement, num_micro_batches, time_limit_s)
    plain, began = placement.per_micro_batch, time.monotonic()
    budget = Budget(began + limit_s, seed=seed)
    known = makespan_bound(placement, num_micro_batches)
    least = Least(None, 0, max(num_micro_batches * load_bound(plain), critical_path(plain)), decided=False)

    def note(reached: Least) -> None:
        nonlocal least
        least = reached
        if on_progress is not None:
            so_far = _schedule(placement, num_micro_batches, reached)
            best, bound = None if so_far is None else so_far.makespan, max(reached.bound, known)
            elapsed_s = time.monotonic() - began
            on_progress(SearchProgress(Objective.MAKESPAN.value, best, bound, budget.calls, elapsed_s))

    with INTERRUPTS.answered() as ending, contextlib.suppress(OutOfTimeError):
        instances = [(block.name, n) for block in plain.blocks for n in range(num_micro_batches)]
        query = phase_query(plain, instances, [0] * plain.num_devices, budget)
        minimise(query, least.bound, query.horizon, first_share=1, on_step=note)
    schedule = _schedule(placement, num_micro_batches, least)
    return answer(
        placement,
        num_micro_batches,
        schedule,
        None,
        least=None if schedule is None else schedule.makespan,
        bound=max(least.bound, known),
        is_infeasible=schedule is None and least.decided,
        interrupted=ending.interrupted,
        began=began,
        budget=budget,
        makespan_bound=max(least.bound, known),
    )


def _schedule(placement: Placement, num_micro_batches: int, least: Least) -> Schedule | None:
    if least.starts is None:
        return None
    blocks = (ScheduledBlock(start, n, name) for (name, n), start in least.starts.items())
    schedule = validate(Schedule(placement.per_micro_batch, num_micro_batches, tuple(blocks)))
    return validate(with_optimizer(placement, schedule))
