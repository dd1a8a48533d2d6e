"""One replica's micro-batches as a single large one: a bound, and orders of its blocks by a solver.

Knows no assignment to replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from placements import Block
from schedsearch.core.objective import FiniteObjective
from schedsearch.core.problem import Problem
from schedsearch.passes.lowered import Lowered
from schedsearch.procedures.neighbourhoods.improvement import (
    NEIGHBOURHOODS,
    QUERIES,
    STATES,
    Improvement,
    RoundBudget,
)
from schedsearch.proof.sequences import two_devices
from schedsearch.proof.timeline import Timeline
from schedsearch.schedule import Schedule
from schedsearch.solver.effort import Effort

WHOLE = 100
"""Blocks up to which all are ordered anew at once; with memory, models of more take a solver long to read."""

_SMALL = 0.1
"""Units of work of the solver's first steps on all blocks of a small batch, enough to prove it."""

Tell = Callable[[int, int, str], None]
"""Called with the best value, the bound and the move of an improvement."""


class BlockOrders:
    """The blocks of a batch, the objective, and the solver's state."""

    def __init__(self, batch: Problem, goal: FiniteObjective) -> None:
        """Take the micro-batches as one."""
        lowered = Lowered.of(batch.placement, batch.chosen)
        assert lowered is not None, "a batch has no streams"
        self.goal, self.lowered = goal, lowered
        self.improvement: Improvement | None = None

    def bound(self) -> int:
        """Return ticks that no order of the blocks beats."""
        bound = self.goal.bound(self.lowered.plain, 1)
        return max(bound, _in_a_row(self.lowered)) if self.goal.one_clock else bound

    def solver(self, schedule: Schedule, bound: int, effort: Effort, seed: int, tell: Tell) -> Improvement:
        """Return the improvement by a solver of the best schedule, which is `schedule` or a better one.

        It stops at `bound`.
        """
        plain = self.lowered.lowered_schedule(schedule)
        if self.improvement is None:
            is_small = len(self.lowered.plain.blocks) <= WHOLE
            work = _SMALL if is_small else 0.5
            budget = RoundBudget(work=work, work_of_states=_SMALL, whole_blocks=WHOLE)
            uses = (QUERIES, STATES, NEIGHBOURHOODS) if is_small else (NEIGHBOURHOODS,)
            goal = replace(self.goal, bound=lambda *_: 0)  # it is known already
            self.improvement = Improvement(plain, effort, goal, bound, seed, tell, budget, uses)
        elif self.goal.value(plain) < self.improvement.value:
            self.improvement.begin_with(plain)
        return self.improvement


def _in_a_row(lowered: Lowered) -> int:
    """Return a lower bound on the makespan: two blocks in a row on two devices, by Johnson's rule.

    Before the first of them there is at least the least head of all micro-batches, after the last the least
    tail. The shortest transfer is in between: it moves the second device by so much.
    """
    placement, bound = lowered.plain, 0
    whole = Timeline(placement, frozenset())
    rows: dict[tuple[str, str], list[tuple[Block, Block]]] = {}
    for block in placement.per_micro_batch.blocks:
        for before in (placement.by_name[name] for name in block.after):
            if not {*block.devices} & {*before.devices}:
                names = lowered.original(before.name)[0], lowered.original(block.name)[0]
                rows.setdefault(names, []).append((before, block))
    for row in rows.values():
        head, tail = min(whole.heads[a.name] for a, _ in row), min(whole.tails[b.name] for _, b in row)
        transfer = min(placement.transfer_time(a.name, b.name) for a, b in row)
        bound = max(bound, head + two_devices((a.time, b.time) for a, b in row) + transfer + tail)
    return bound
