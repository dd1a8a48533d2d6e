"""The least makespan of a number of micro-batches, over all schedules, periodic or not.

States are visited by increasing time. Of the states reached at the same tick, dominated ones are
dropped, and so are states that cannot end by the limit asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from placements import Placement
from schedsearch.schedule import Schedule, ScheduledBlock
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.state_space.model import Ints, StateSpaceModel, model_of
from schedsearch.state_space.transitions import Counts, States, Transitions, empty_state, joined

OF_PORTION = 20
"""Fixed cost of a portion of states, as a number of states per activity of the model."""

MAX_STATES = 50_000_000
"""Most states that one search may generate; it keeps about one in ten, in some bytes per block."""

_NEVER = 2**60

_MAX_AT_ONCE = 200_000
"""States whose followers are made in one go; bounds the memory."""


@dataclass(frozen=True)
class MinMakespan:
    """The least makespan or a bound on it, as the result of a search over states.

    Attributes:
        bound: Lower bound on the makespan in ticks.
        schedule: A schedule of least makespan, if it is at most the limit and was found; not validated.
        states: States generated, plus `OF_PORTION` per activity for each portion of them.
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

    It asks for schedules within ever later limits, from a known bound on; each limit that cannot be kept
    raises the bound, of which `on_progress` is told, and the first that can gives the least makespan. Unless
    it ends early, after so many seconds or states, its `bound` is the least makespan or above `at_most`
    ticks. Optimizer blocks are left out; it is None where states do not express the placement.
    """
    model = model_of(placement)
    if model is None:
        return None
    apart = num_micro_batches * model.apart
    search = _Search(model, num_micro_batches, time.monotonic() + time_limit_s, max_states)
    low = max(bound - apart, int(_least_rest(model, num_micro_batches, search.empty)[0]))
    step = 0
    while low <= at_most - apart:
        limit = min(low + step, at_most - apart)
        try:
            path = search.path(limit)
        except _OutOfBudgetError:
            break
        if path is not None:
            schedule = _schedule(model, num_micro_batches, path)
            return MinMakespan(schedule.makespan, schedule, search.used)
        low, step = limit + 1, max(1, 2 * step)
        if on_progress is not None:
            on_progress(low + apart)
    return MinMakespan(low + apart, None, search.used)


class _OutOfBudgetError(Exception):
    """Ends a search that takes too long, or too many states."""


def _least_rest(model: StateSpaceModel, number: int, states: States) -> Ints:
    """Return a lower bound on the remaining ticks of each state; shape ``(states,)``.

    Proof. A device first ends what it runs. It starts what is left of some of its blocks no sooner than the
    input of one of these can be there, and does that work; after the last of it, those that wait for that one
    must run. This holds for any part of its blocks.
    """
    rest = np.zeros(len(states), dtype=np.int64)
    # Ticks before which inputs of the next start are not there.
    ready = np.zeros((model.size, len(states)), dtype=np.int64)
    for i, after in enumerate(model.after):
        for j in after:
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


class _Search:
    """The search for schedules that end by a limit, within a time and a number of states.

    Attributes:
        used: States generated so far.
        empty: The state in which no block has run.
    """

    def __init__(self, model: StateSpaceModel, number: int, deadline: float, max_states: int) -> None:
        self.model, self.number, self.deadline, self.max_states = model, number, deadline, max_states
        self.transitions = Transitions(model, self._look)
        self.empty = empty_state(model, number)
        self.used = 0

    def _look(self, states: int) -> None:
        """End the search at a Ctrl-C, at the deadline, or if it has generated too many states."""
        INTERRUPTS.raise_if_seen()
        if self.used + states > self.max_states or time.monotonic() > self.deadline:
            raise _OutOfBudgetError

    def _use(self, states: int) -> None:
        """Count a portion of states, or end the search if they are too many."""
        states += OF_PORTION * self.model.size
        self._look(states)
        self.used += states

    def path(self, limit: int) -> list[tuple[int, Counts]] | None:
        """Return a path of (tick, starts of each activity) that ends by the limit; None if none does.

        States are numbered in the order in which they are kept, their parents before them.
        """
        pending = {0: [self.empty]}
        kept: list[tuple[int, int, States]] = []  # tick, number of the first of its states, and these
        number = 0
        while pending:
            tick = min(pending)
            states = joined(pending.pop(tick))
            self._use(len(states))
            states = self.transitions.unique(states)
            ended = (states.started == self.number).all(axis=0) & ~states.left.any(axis=0)
            if ended.any():
                return _path(tick, states.at(np.flatnonzero(ended)), kept)
            states = self.transitions.undominated(states)
            kept.append((tick, number, states))
            for begin in range(0, len(states), _MAX_AT_ONCE):
                part = states.at(np.arange(begin, min(begin + _MAX_AT_ONCE, len(states))))
                following, after = self.transitions.next_states(part, self.number)
                self._use(len(following))
                end = tick + after + _least_rest(self.model, self.number, following)
                for ticks in np.unique(after[end <= limit]).tolist():
                    which = following.at(np.flatnonzero((end <= limit) & (after == ticks)))
                    numbered = States(which.started, which.left, which.parent + begin + number)
                    pending.setdefault(tick + ticks, []).append(numbered)
            number += len(states)
        return None


def _path(tick: int, ended: States, kept: list[tuple[int, int, States]]) -> list[tuple[int, Counts]]:
    """Return the path of states to the first of some ended states."""
    path, number = [(tick, ended.started[:, 0])], int(ended.parent[0])
    for at, first, states in reversed(kept):
        if number >= first:
            path.append((at, states.started[:, number - first]))
            number = int(states.parent[number - first])
    return path[::-1]


def _schedule(model: StateSpaceModel, num_micro_batches: int, path: list[tuple[int, Counts]]) -> Schedule:
    """Return the schedule of a path of states; the n-th run of a block is for micro-batch n."""
    begin = num_micro_batches * sum(block.time for block in model.first)
    blocks = [
        ScheduledBlock(begin + tick, int(earlier[i]), name)
        for (tick, earlier), (_, later) in pairwise(path)
        for i, name in enumerate(model.names)
        if model.devices[i] and later[i] > earlier[i]
    ]
    end = max((start + model.placement.by_name[name].time for start, _, name in blocks), default=begin)
    for now, several in ((0, model.first), (end, model.last)):
        for micro_batch in range(num_micro_batches):
            for block in several:
                blocks.append(ScheduledBlock(now, micro_batch, block.name))
                now += block.time
    return Schedule(model.placement, num_micro_batches, tuple(blocks))
