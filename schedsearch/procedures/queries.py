"""Questions about all blocks at once, and states: a first repetend, ever shorter ones, and proofs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from placements import Placement
from schedsearch.bounds.load_and_path import min_period
from schedsearch.core.answer import Status
from schedsearch.core.budget import Budget
from schedsearch.core.known import Finding, Known, NoRepetend, Start
from schedsearch.core.objective import Objective
from schedsearch.procedures.bisection import Bisection
from schedsearch.solver.effort import OutOfTimeError
from schedsearch.solver.query import Answer, Query
from schedsearch.starts.serial import serial_period, serial_repetend
from schedsearch.state_space import min_period as min_period_of_states
from schedsearch.state_space.min_cycle_ratio import MAX_STATES

_WORK_OF_REASON = 8.0
"""Work of each question on how much memory would do, in units of about a second."""

_WORK_OF_STATE = 4e-6
"""Units of work to look at a state."""

FIRST_REPETEND = "one block after another"
"""Name of what finds the first repetend, which no search is without."""


def first_repetend(known: Known, budget: Budget) -> Iterator[Finding]:
    """Find some repetend of one micro-batch: one block after another, or what the solver finds."""
    placement, answer = known.placement, Answer.YES
    if (repetend := serial_repetend(placement)) is None:
        answer, repetend = budget.ask(Query(placement, 1, serial_period(placement)), budget.left)
    if repetend is not None:
        yield Start(repetend.with_min_period(min_period(placement, 1)), FIRST_REPETEND)
    elif answer is Answer.NO:
        yield NoRepetend(Status.INFEASIBLE, "")  # should the reason not be found in time
        yield NoRepetend(Status.INFEASIBLE, _why_infeasible(placement, budget))


@dataclass
class Queries:
    """Bisects the period by questions about all blocks at once, which find and refute periods.

    Attributes:
        share_of_one: Share of the work that one micro-batch per repetend gets where more may follow.
    """

    name: ClassVar[str] = "queries"
    share_of_one: float = 0.6
    _of_size: defaultdict[int, Bisection] = field(
        default_factory=lambda: defaultdict(Bisection), init=False, repr=False
    )

    def of_bound(self, known: Known, budget: Budget) -> Iterator[Finding]:
        """Ask shortly whether the period of one micro-batch can meet its bound."""
        return self._of_size[1].look_at_bound(known.known_of(1), self._for_one(known, budget))

    def of_one(self, known: Known, budget: Budget) -> Iterator[Finding]:
        """Make the period of one micro-batch less, after the objectives before it.

        These are of the number of micro-batches that is asked for, where that is one number alone.
        """
        size, begun = 1, known.to_beat(1)
        if known.before:
            size = known.sizes[0]
            begun = known.known_of(size)
            if begun.repetend is None and known.best is not None:
                begun = known.best
        objectives = *known.before, Objective.PERIOD
        return self._of_size[size].minimise_in_turn(begun, objectives, self._for_one(known, budget))

    def of_more(self, known: Known, budget: Budget) -> Iterator[Finding]:
        """Make the period of more micro-batches less, where that beats the best."""
        larger = [size for size in known.sizes if size > 1]
        for i, size in enumerate(larger):
            if known.best is None or known.is_proved or budget.is_over:
                return
            part = budget.share(1 / (len(larger) - i))
            for found in self._of_size[size].minimise(known.to_beat(size), Objective.PERIOD, part):
                known = known.taking(found)
                yield found

    def _for_one(self, known: Known, budget: Budget) -> Budget:
        return budget.share(1.0 if known.sizes == (1,) else self.share_of_one)


@dataclass
class States:
    """Raises the bound to what the state-space search proves, where there are few enough states.

    Attributes:
        share: Share of the work left that it gets.
    """

    name: ClassVar[str] = "states"
    share: float = 0.2
    _looked_at: int = field(default=0, init=False, repr=False)

    def run(self, known: Known, budget: Budget) -> Iterator[Finding]:
        """Yield a greater bound, if there is one."""
        assert known.best is not None
        placement, earlier = known.placement, known.min_period
        is_known = earlier is not None and len(earlier.devices) == placement.num_devices
        most = min(MAX_STATES, int(budget.left * self.share / _WORK_OF_STATE))
        if is_known or not placement.is_plain or most <= self._looked_at:
            return
        found = min_period_of_states(
            placement,
            known=known.best.period_per_micro_batch,
            time_limit_s=budget.effort.require_s(),
            max_states=most,
        )
        self._looked_at = most
        budget.effort.spend(most * _WORK_OF_STATE)
        if found is not None and (earlier is None or found.ticks >= earlier.ticks):
            yield found


def _why_infeasible(placement: Placement, budget: Budget) -> str:
    """Return in one line why a placement with capacities has no schedule."""
    try:
        needs = list(_needs(placement, budget))
    except OutOfTimeError:
        needs = ["raise search.memory"]
    return " ".join(["one micro-batch alone does not fit the memory in any order;", *needs])


def _needs(placement: Placement, budget: Budget) -> Iterator[str]:
    """Yield what would make it fit: on one device, where that is enough, or else on all."""
    memory = placement.memory
    assert memory is not None, "without capacities everything fits"
    needed = [
        sum(max(block.memory_on(device), 0) + block.transient for block in placement.on(device))
        for device in range(len(memory))
    ]

    def min_more(high: int, devices: Sequence[int]) -> int | None:
        """Return how much more memory, at most `high`, on devices marked 1 lets one micro-batch fit."""
        low = 0

        def fits(more: int) -> bool:
            capacity = [each + more * mark for each, mark in zip(memory, devices, strict=True)]
            query = Query(placement.with_memory(capacity), 1, serial_period(placement))
            return budget.ask(query, _WORK_OF_REASON)[0] is Answer.YES

        if not fits(high):
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high

    for device, capacity in enumerate(memory):
        more = min_more(needed[device], [int(other == device) for other in range(len(memory))])
        if more is not None:
            instead = f"{capacity + more} instead of {capacity}"
            yield f"it would with {instead} on device {device}; raise search.memory"
            return
    more = min_more(max(needed), [1] * len(memory))
    yield (f"it would with {more} more on each device; " if more else "") + "raise search.memory"
