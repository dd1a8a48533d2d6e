"""The least period of a repetend by how many micro-batches it may span (Tessel, Fig. 11)."""

from __future__ import annotations

import time
from dataclasses import replace

from placements import Placement
from schedsearch.bounds.load_and_path import min_period
from schedsearch.bounds.memory_need import require_capacity
from schedsearch.modulo.result import InFlightPeriod
from schedsearch.repetend import Repetend
from schedsearch.solver.effort import Effort
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.solver.portfolio import SOLVERS
from schedsearch.solver.query import Answer, Query
from schedsearch.starts.serial import serial_period

_NEVER_S = 1e6
"""Seconds that no question takes: work limits it."""


def period_by_in_flight(
    placement: Placement,
    max_in_flight: int,
    *,
    solver: str = "portfolio",
    work_limit: float = 10.0,
    seed: int = 0,
) -> tuple[InFlightPeriod, ...]:
    """Search the least period for one micro-batch in flight, then two, and so on.

    All devices begin the repetend at the same time. Tessel's may begin it at different times (Tessel,
    Fig. 6b), which makes no difference to a placement with one first and one last block on the same device,
    as the V, M and NN-shape have; elsewhere the same period may need fewer micro-batches than it says here.

    Counting from the first start, a repetend spans R periods just if no block starts later than R periods
    after it. The last to start is one without followers, and where all of those take equally long, the span
    says when it starts. Where they do not, the shortest is taken, and the periods may be too long. A longer
    period is never worse, since each round can have an idle tick at its end, so bisection finds the least.

    Args:
        placement: What runs where; its `memory` is the capacity.
        max_in_flight: Where to end.
        solver: A key of `schedsearch.solver.portfolio.SOLVERS`.
        work_limit: Units of counted work for each number, of about a second on one core.
        seed: Seed of the solver's random choices.

    Raises:
        KeyboardInterrupt: The search was interrupted.
        CapacityError: A device's memory is too small for one micro-batch.
    """
    require_capacity(placement)
    placement = placement.per_micro_batch
    last = min(block.time for block in placement.blocks if not placement.successors[block.name])
    found: list[InFlightPeriod] = []
    with INTERRUPTS.watched():
        for in_flight in range(1, max_in_flight + 1):
            before = found[-1].repetend if found else None
            found.append(_least(placement, in_flight, last, before, (solver, work_limit, seed)))
    return tuple(found)


def in_flight_as_memory(placement: Placement, in_flight: int) -> Placement | None:
    """Return the placement with room for so many micro-batches in flight and no other limit on memory.

    A micro-batch allocates one unit when a block that waits for none starts, and releases it with one that
    none waits for, of the same devices. Branches with a first and a last block each count on their own.
    None where such blocks are not on the same devices. Unlike `period_by_in_flight` it counts over all time
    and not over one repetend, so it holds for any number of micro-batches per repetend.
    """
    placement = placement.per_micro_batch
    first = {block.devices: block.name for block in placement.blocks if not block.after}
    last = {block.devices: block.name for block in placement.blocks if not placement.successors[block.name]}
    if set(first) != set(last) or set(first.values()) & set(last.values()):
        return None
    change = dict.fromkeys(first.values(), 1) | dict.fromkeys(last.values(), -1)
    blocks = (replace(block, memory=change.get(block.name, 0), transient=0) for block in placement.blocks)
    room = (in_flight,) * placement.num_devices
    return replace(placement, blocks=tuple(blocks), memory=room, static_memory=())


def _least(
    placement: Placement,
    in_flight: int,
    last: int,
    best: Repetend | None,
    how: tuple[str, float, int],
) -> InFlightPeriod:
    """Bisect for the least period; one that gets no answer is passed over, and leaves the bound below it."""
    solver, work_limit, seed = how
    decide, effort, began = SOLVERS[solver](), Effort(limit=work_limit), time.monotonic()
    low = bound = min_period(placement, 1)
    high = best.period if best is not None else serial_period(placement) + 1
    while low < high:
        INTERRUPTS.raise_if_seen()
        if effort.is_over:
            break
        middle = (low + high) // 2
        query = Query(placement, 1, middle, span=in_flight * middle + last - 1)
        work = (work_limit - effort.spent) / 2
        answer, repetend = decide(query, timeout_s=_NEVER_S, seed=seed, work=work, spend=effort.spend)
        if repetend is not None:
            assert repetend.in_flight <= in_flight, "the span says when the last block starts"
            best, high = repetend, middle
        else:
            low = middle + 1
            if answer is Answer.NO:
                bound = low
    return InFlightPeriod(in_flight, best, bound, time.monotonic() - began)
