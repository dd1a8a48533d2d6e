"""The least makespan of a number of micro-batches, over all schedules, periodic or not.

States are visited by increasing time. Of those that are reached at the same tick the dominated ones are
dropped, and so are those that cannot end by the limit asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from placements import Placement
from schedsearch.schedule import Schedule, ScheduledBlock
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.state_space.model import Ints, StateSpaceModel, model_of
from schedsearch.state_space.transitions import Counts, States, Transitions, empty_state, joined

OF_PORTION = 20
"""States that take as long as a portion of them takes beside its states, for each activity of the model."""

MAX_STATES = 50_000_000
"""States that one search may look at; of every ten or so it keeps one, in some bytes per block."""

_NEVER = 2**60

_MAX_AT_ONCE = 200_000
"""States whose followers are made in one go; bounds the memory."""


@dataclass(frozen=True)
class MinMakespan:
    """The result of a search over states.

    Attributes:
        bound: Ticks that no schedule beats.
        schedule: One of least makespan, if it is at most the limit and was found; not validated.
        states: How many were looked at, and for each portion of them `OF_PORTION` for each activity.
    """

    bound: int
    schedule: Schedule | None = None
    states: int = 0


def min_makespan(
    placement: Placement,
    num_micro_batches: int,
    *,
    at_most: int,
    bound: int = 0,
    time_limit_s: float = 60.0,
    max_states: int = MAX_STATES,
    on_progress: Callable[[int], None] | None = None,
) -> MinMakespan | None:
    """Search a schedule of least makespan, or prove that none is at most so long.

    It asks for schedules within ever later limits, from the bound on; each limit that cannot be kept raises
    the bound, and the first that can gives the least makespan. Unless it ends early, its `bound` is the
    least makespan or above `at_most`.

    Args:
        placement: What runs where; optimizer blocks are left out.
        num_micro_batches: At least 1.
        at_most: Ticks; schedules that are longer are not looked for.
        bound: Ticks that are known to be a lower bound.
        time_limit_s: Seconds after which it ends with the bound reached.
        max_states: Likewise, number of states to look at.
        on_progress: Called with the bound whenever it rises.

    Returns:
        None where states do not express the placement.
    """
    model = model_of(placement)
    if model is None:
        return None
    apart = num_micro_batches * model.apart
    budget = _Budget(time.monotonic() + time_limit_s, max_states, OF_PORTION * model.size)
    start = empty_state(model, num_micro_batches)
    low = max(bound - apart, int(_least_rest(model, num_micro_batches, start)[0]))
    step = 0
    while low <= at_most - apart:
        limit = min(low + step, at_most - apart)
        try:
            found = _LimitedSearch(model, num_micro_batches, limit, budget).run()
        except _OutOfBudgetError:
            break
        if found is not None:
            schedule = _schedule(model, num_micro_batches, found)
            return MinMakespan(schedule.makespan, schedule, budget.used)
        low, step = limit + 1, max(1, 2 * step)
        if on_progress is not None:
            on_progress(low + apart)
    return MinMakespan(low + apart, None, budget.used)


class _OutOfBudgetError(Exception):
    """Ends a search that takes too long, or too many states."""


@dataclass
class _Budget:
    """The time and the states that a search may still use."""

    deadline: float
    max_states: int
    portion: int
    used: int = 0

    def use(self, states: int) -> None:
        """Count a portion of states."""
        self.look(states + self.portion)
        self.used += states + self.portion

    def look(self, states: int) -> None:
        """End the search if there was a Ctrl-C, time is up, or it has made more states than it may use."""
        INTERRUPTS.raise_if_seen()
        if self.used + states > self.max_states or time.monotonic() > self.deadline:
            raise _OutOfBudgetError


def _least_rest(model: StateSpaceModel, number: int, states: States) -> Ints:
    """Return the ticks that no continuation of a state beats; shape ``(states,)``.

    Proof. A device first ends what it runs. It starts what is left of some of its blocks no sooner than the
    input of one of these can be there, and does that work; after the last of it, those that wait for that one
    must run. This holds for any part of its blocks.
    """
    rest = np.zeros(len(states), dtype=np.int64)
    ready = np.zeros(
        (model.size, len(states)), dtype=np.int64
    )  # before, inputs of the next start are not there
    for i, activity in enumerate(model.activities):
        for j in activity.after:
            ends = np.where(
                states.started[j] > states.started[i],
                np.where(states.started[j] - (states.left[j] > 0) > states.started[i], 0, states.left[j]),
                ready[j] + model.time[j],
            )
            np.maximum(ready[i], ends, out=ready[i])
        left = states.left[i].astype(np.int64)
        np.maximum(rest, np.where(left > 0, left + model.tail[i], 0), out=rest)
    for here in model.on:
        work = np.zeros(len(states), dtype=np.int64)
        first = states.left[list(here)].max(axis=0, initial=0).astype(np.int64)
        start = np.full(len(states), _NEVER)
        for i in sorted(here, key=lambda i: -model.tail[i]):
            missing = number - states.started[i].astype(np.int64)
            work += missing * model.time[i]
            start = np.where(missing > 0, np.minimum(start, ready[i]), start)
            end = np.maximum(first, start) + work + model.tail[i]
            np.maximum(rest, np.where(missing > 0, end, 0), out=rest)
    return rest


@dataclass(eq=False)
class _LimitedSearch:
    """The search of a schedule that ends by a limit.

    Attributes:
        kept: For each tick, in order, the number of the first of its states, and the states; they are
            numbered in the order in which they are kept, and their parents were kept before them.
    """

    model: StateSpaceModel
    num_micro_batches: int
    limit: int
    budget: _Budget
    kept: list[tuple[int, int, States]] = field(default_factory=list)

    def run(self) -> list[tuple[int, Counts]] | None:
        """Return ticks and how often each activity has started by then, or None if none ends in time."""
        transitions = Transitions(self.model)
        pending = {0: [empty_state(self.model, self.num_micro_batches)]}
        number = 0
        while pending:
            tick = min(pending)
            states = joined(pending.pop(tick))
            self.budget.use(len(states))
            states = transitions.unique(states)
            ended = (states.started == self.num_micro_batches).all(axis=0) & ~states.left.any(axis=0)
            if ended.any():
                return self._path(tick, states.at(np.flatnonzero(ended)))
            states = transitions.undominated(states, self.budget.look)
            self.kept.append((tick, number, states))
            for after, following in self._following(transitions, states, tick):
                numbered = States(following.started, following.left, following.parent + number)
                pending.setdefault(tick + after, []).append(numbered)
            number += len(states)
        return None

    def _following(self, transitions: Transitions, states: States, tick: int) -> Iterator[tuple[int, States]]:
        """Yield the states that follow after so many ticks, and can still end by the limit."""
        for begin in range(0, len(states), _MAX_AT_ONCE):
            part = states.at(np.arange(begin, min(begin + _MAX_AT_ONCE, len(states))))
            following, ticks = transitions.next_states(
                part, self.num_micro_batches, undominated=True, look=self.budget.look
            )
            self.budget.use(len(following))
            in_time = np.flatnonzero(
                tick + ticks + _least_rest(self.model, self.num_micro_batches, following) <= self.limit
            )
            following, ticks = following.at(in_time), ticks[in_time]
            for after in np.unique(ticks).tolist():
                which = following.at(np.flatnonzero(ticks == after))
                yield after, States(which.started, which.left, which.parent + begin)

    def _path(self, tick: int, ended: States) -> list[tuple[int, Counts]]:
        """Return the states that lead to the first of some, and that one."""
        path, number = [(tick, ended.started[:, 0])], int(ended.parent[0])
        for at, first, states in reversed(self.kept):
            if number >= first:
                path.append((at, states.started[:, number - first]))
                number = int(states.parent[number - first])
                if at == 0:
                    break
        return path[::-1]


def _schedule(model: StateSpaceModel, num_micro_batches: int, path: list[tuple[int, Counts]]) -> Schedule:
    """Return the schedule of a path from state to state; the n-th run of a block is that of micro-batch n."""
    blocks: list[ScheduledBlock] = []
    now = 0
    for micro_batch in range(num_micro_batches):
        for block in model.first:
            blocks.append(ScheduledBlock(now, micro_batch, block.name))
            now += block.time
    begin = end = now
    for (tick, earlier), (_, later) in pairwise(path):
        for i in model.blocks:
            if later[i] > earlier[i]:
                blocks.append(ScheduledBlock(begin + tick, int(earlier[i]), model.activities[i].name))
                end = max(end, begin + tick + model.activities[i].time)
    now = end
    for micro_batch in range(num_micro_batches):
        for block in model.last:
            blocks.append(ScheduledBlock(now, micro_batch, block.name))
            now += block.time
    return Schedule(model.placement, num_micro_batches, tuple(blocks))
