"""Strategies that ask about all blocks at once: a first repetend, ever shorter ones, and proofs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from placements import Placement
from schedsearch.core.answer import Status
from schedsearch.core.budget import Account
from schedsearch.core.known import Finding, Known, NoRepetend, Start
from schedsearch.core.objective import Objective
from schedsearch.procedures.queries import Bisection
from schedsearch.proof.load_and_path import min_period
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


def first_repetend(state: Known, oracle: Account, work: float) -> Iterator[Finding]:
    """Find some repetend of one micro-batch: one block after another, or what the solver finds.

    Args:
        state: What is known of the period.
        oracle: Solver to ask where nothing runs one block after another.
        work: Work of the question.
    """
    placement, answer = state.placement, Answer.YES
    if (repetend := serial_repetend(placement)) is None:
        answer, repetend = oracle(Query(placement, 1, serial_period(placement)), work)
    if repetend is not None:
        yield Start(repetend.with_min_period(min_period(placement, 1)), FIRST_REPETEND)
    elif answer is Answer.NO:
        yield NoRepetend(Status.INFEASIBLE, "")  # should the reason not be found in time
        yield NoRepetend(Status.INFEASIBLE, why_infeasible(placement, oracle))


@dataclass
class Queries:
    """Bisects the period by questions about all blocks at once, which find and refute periods.

    Attributes:
        share_of_one: Share of the work that one micro-batch per repetend gets where more may follow.
    """

    name: ClassVar[str] = "queries"
    share_of_one: float = 0.6
    _of_size: defaultdict[int, dict[tuple[Objective, int], float]] = field(
        default_factory=lambda: defaultdict(dict), init=False, repr=False
    )

    def of_bound(self, state: Known, oracle: Account, until: float) -> Iterator[Finding]:
        """Ask shortly whether the period of one micro-batch can meet its bound."""
        return self._of(1, oracle).look_at_bound(state.known_of(1), self._end_of_one(state, oracle, until))

    def of_one(self, state: Known, oracle: Account, until: float) -> Iterator[Finding]:
        """Make the period of one micro-batch less, after the objectives before it.

        These are of the number of micro-batches that is asked for, where that is one number alone.
        """
        size, known = 1, state.to_beat(1)
        if state.before:
            size = state.sizes[0]
            known = state.known_of(size)
            if known.repetend is None and state.best is not None:
                known = state.best
        end = self._end_of_one(state, oracle, until)
        return self._of(size, oracle).minimise_in_turn(known, (*state.before, Objective.PERIOD), end)

    def of_more(self, state: Known, oracle: Account, until: float) -> Iterator[Finding]:
        """Make the period of more micro-batches less, where that beats the best."""
        larger = [size for size in state.sizes if size > 1]
        for i, size in enumerate(larger):
            if state.best is None or state.is_proved or oracle.effort.spent >= until:
                return
            end = oracle.effort.share(until, 1 / (len(larger) - i))
            for known in self._of(size, oracle).minimise(state.to_beat(size), Objective.PERIOD, end):
                state = state.taking(known)
                yield known

    def _end_of_one(self, state: Known, oracle: Account, until: float) -> float:
        return oracle.effort.share(until, 1.0 if state.sizes == (1,) else self.share_of_one)

    def _of(self, size: int, oracle: Account) -> Bisection:
        return Bisection(oracle, self._of_size[size])


@dataclass
class StatesStrategy:
    """Raises the bound to what the state-space search proves, where there are few enough states.

    Attributes:
        share: Share of the work left that it gets.
    """

    name: ClassVar[str] = "states"
    share: float = 0.2
    _looked_at: int = field(default=0, init=False, repr=False)

    def run(self, state: Known, oracle: Account, until: float) -> Iterator[Finding]:
        """Yield a greater bound, if there is one."""
        assert state.best is not None
        earlier, effort = state.min_period, oracle.effort
        if not state.placement.is_plain:
            return
        if earlier is not None and len(earlier.devices) == state.placement.num_devices:
            return  # that of all devices together
        most = min(MAX_STATES, int((until - effort.spent) * self.share / _WORK_OF_STATE))
        if most <= self._looked_at:
            return
        found = min_period_of_states(
            state.placement,
            known=state.best.period_per_micro_batch,
            time_limit_s=effort.require_s(),
            max_states=most,
        )
        self._looked_at = most
        effort.spend(most * _WORK_OF_STATE)
        if found is not None and (earlier is None or found.ticks >= earlier.ticks):
            yield found


def why_infeasible(placement: Placement, oracle: Account) -> str:
    """Return in one line why a placement has no schedule.

    Args:
        placement: Placement without optimizer blocks, with capacities; one micro-batch alone does not fit
            these.
        oracle: Solver to ask.
    """
    try:
        needs = list(_needs(placement, oracle))
    except OutOfTimeError:
        needs = ["raise search.memory"]
    return " ".join(["one micro-batch alone does not fit the memory in any order;", *needs])


def _needs(placement: Placement, oracle: Account) -> Iterator[str]:
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
            return oracle(query, _WORK_OF_REASON)[0] is Answer.YES

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
