"""States: how often each activity has started, and how long those that run will still take.

Arrays hold one state per column, so that a row is one activity in all states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schedsearch.state_space.model import Ints, Model

Counts = NDArray[np.unsignedinteger]
"""Small numbers, in as few bytes as they need."""

_MOST_RIVALS = 500
"""States of a group that each other one is compared with; more would find little more to drop."""


@dataclass(frozen=True, eq=False)
class States:
    """States at which something may start.

    Attributes:
        started: How often each activity has started; shape ``(activities, states)``.
        left: Ticks until it ends, 0 where it does not run; same shape.
        parent: Index of the state that each comes from; shape ``(states,)``.
    """

    started: Counts
    left: Counts
    parent: Ints

    def __len__(self) -> int:
        """Return the number of states."""
        return int(self.started.shape[1])

    def at(self, which: Ints) -> States:
        """Return some of the states, by their indices or marks."""
        return States(self.started[:, which], self.left[:, which], self.parent[which])


def empty_state(model: Model, num_micro_batches: int) -> States:
    """Return the one state in which nothing has run."""
    longest = int(model.time.max())
    return States(
        np.zeros((model.size, 1), dtype=np.min_scalar_type(num_micro_batches)),
        np.zeros((model.size, 1), dtype=np.min_scalar_type(longest)),
        np.zeros(1, dtype=np.int64),
    )


def joined(several: list[States]) -> States:
    """Return the states of several groups in one."""
    if len(several) == 1:
        return several[0]
    return States(
        np.concatenate([each.started for each in several], axis=1),
        np.concatenate([each.left for each in several], axis=1),
        np.concatenate([each.parent for each in several]),
    )


class Transitions:
    """What may follow a state, in a model.

    Every start can be put off or brought forward to a tick at which something ends: on a device, memory
    changes only when something starts there, so a block that starts as soon as its inputs and devices are
    there keeps each device's order, and with it the memory. So it is enough to decide at these ticks.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        random = np.random.default_rng(0)
        self._mix = random.integers(1, 2**63, size=2 * model.size, dtype=np.uint64) | np.uint64(1)
        self._longest = int(model.time.max())
        shared = [i for i in model.blocks if len(model.activities[i].devices) > 1]
        alone = [tuple(i for i in here if i not in shared) for here in model.on]
        self._exclusive = (*((i,) for i in shared), *(here for here in alone if here))

    def busy(self, states: States, device: int) -> Counts:
        """Return how long a device will still run what it runs."""
        here = self.model.on[device]
        if not here:
            return np.zeros(len(states), dtype=states.left.dtype)
        busy: Counts = states.left[list(here)].max(axis=0)
        return busy

    def _can_start(self, states: States, i: int, limit: int | None) -> Ints:
        """Return the indices of the states in which an activity can start."""
        model, activity = self.model, self.model.activities[i]
        started, left = states.started, states.left
        can = np.ones(len(states), dtype=bool) if limit is None else started[i] < limit
        can &= left[i] == 0
        for j in activity.after:
            can &= started[j] - (left[j] > 0) > started[i]
        for device in activity.devices:
            for j in model.on[device]:
                can &= left[j] == 0
        which = np.flatnonzero(can)
        for device in activity.devices:
            if model.capacity is None or not len(which):
                break
            more = int(model.memory[device, i] + model.transient[device, i])
            if model.memory[device, i] > 0 or model.transient[device, i] > 0:
                held = np.zeros(len(which), dtype=np.int64)
                for j in model.on[device]:
                    if model.memory[device, j]:
                        held += model.memory[device, j] * started[j, which].astype(np.int64)
                which = which[held + more <= model.capacity[device]]
        return which

    def next_states(
        self, states: States, limit: int | None, undominated: bool = False
    ) -> tuple[States, Ints]:
        """Return the states that follow, each when the next activity ends, and the ticks until then.

        Args:
            states: In none of them has a transfer that could start not started.
            limit: Number of micro-batches; None for no end of them.
            undominated: Leave out some that `undominated` would drop: those in which a block could have
                started that would end by then, and that is not one of `Model.must_agree`.
        """
        model = self.model
        states = States(states.started, states.left, np.arange(len(states)))
        for together in self._exclusive:
            states = self._with_one_of(states, together, limit, undominated)
        states = states.at(np.flatnonzero(states.left.any(axis=0)))
        never = self._longest + 1
        ticks = np.where(states.left > 0, states.left, never).min(axis=0, initial=never)
        if undominated:
            idle = np.zeros(len(states), dtype=bool)
            for i in model.blocks:
                if i not in model.must_agree:
                    which = self._can_start(states, i, limit)
                    idle[which[ticks[which] >= model.time[i]]] = True
            states, ticks = states.at(np.flatnonzero(~idle)), ticks[~idle]
        left = np.where(states.left > 0, states.left - ticks.astype(states.left.dtype), 0)
        states = States(states.started, left.astype(states.left.dtype), states.parent)
        for i in model.transfers:
            can = (states.left[i] == 0) & np.logical_and.reduce(
                [
                    states.started[j] - (states.left[j] > 0) > states.started[i]
                    for j in model.activities[i].after
                ]
            )
            which = np.flatnonzero(can)
            if len(which):
                states.started[i, which] += 1
                states.left[i, which] = model.time[i]
        return states, ticks.astype(np.int64)

    def _with_one_of(
        self, states: States, together: tuple[int, ...], limit: int | None, undominated: bool
    ) -> States:
        """Return the states, and those in which one of some activities that exclude each other starts."""
        waiting = np.ones(len(states), dtype=bool)
        found = []
        for i in together:
            which = self._can_start(states, i, limit)
            if len(which):
                found.append(self._start(states.at(which), i))
                if undominated and self.model.time[i] == 1 and i not in self.model.must_agree:
                    waiting[which] = False  # nothing ends before it would
        return joined([states.at(np.flatnonzero(waiting)), *found]) if found else states

    def _start(self, states: States, i: int) -> States:
        """Return copies of states in which an activity has just started."""
        started, left = states.started.copy(), states.left.copy()
        started[i] += 1
        left[i] = self.model.time[i]
        return States(started, left, states.parent)

    def unique(self, states: States) -> States:
        """Return the states without those that are there twice."""
        rows = [*states.started, *states.left]
        key = np.zeros(len(states), dtype=np.uint64)
        for row, mix in zip(rows, self._mix, strict=True):
            key += row.astype(np.uint64) * mix
        states = states.at(np.argsort(key, kind="stable"))
        key.sort()
        twice = np.flatnonzero(key[1:] == key[:-1]) + 1
        same = (states.started[:, twice] == states.started[:, twice - 1]).all(axis=0) & (
            states.left[:, twice] == states.left[:, twice - 1]
        ).all(axis=0)
        keep = np.ones(len(states), dtype=bool)
        keep[twice[same]] = False
        return states.at(np.flatnonzero(keep))

    def undominated(self, states: States) -> States:
        """Return the states without some of those from which nothing better can follow than from another.

        State a is at least as good as state b, at the same tick, if in a each device is free no later, each
        activity has started as often or more often, and where as often, ends no later; but those of
        `Model.must_agree` have started equally often.

        Proof. Continue from a as from b, leaving out what a has started already. On each device what is
        left is part of what runs there from b, at the same ticks. An input that both have started is there
        no later in a: one that runs ends no later, and if a has started the activity more often, all that
        b has started have ended, as an activity never runs twice at once. An input that only a has
        started ends while its device is busy in a, so no later than it can from b, where it is yet to
        start. Memory: at any later start, a block that gives back, or does not take, has started no less
        often than from b. One that takes has started equally often; or, where it is the only one on its
        device and nothing there needs more while it runs, it has as soon as it is its turn to start, and
        memory matters to no other. The continuation can then start everything as soon as possible.
        """
        model = self.model
        agree = list(model.must_agree)
        others = [i for i in range(model.size) if i not in set(agree)]
        scale = self._longest + 1
        values = np.concatenate(
            [
                states.started[others].astype(np.int64) * scale - states.left[others],
                -states.left[agree].astype(np.int64),
                -np.stack([self.busy(states, device).astype(np.int64) for device in range(len(model.on))]),
            ]
        )
        group = np.zeros(len(states), dtype=np.uint64)
        for i in agree:
            group += states.started[i].astype(np.uint64) * self._mix[i]
        order = np.lexsort((-values.sum(axis=0), group))
        values, group = np.ascontiguousarray(values[:, order]), group[order]
        same = states.started[agree][:, order]
        first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]]) if len(order) else order
        begin = np.repeat(first, np.diff(np.r_[first, len(order)]))
        place = np.arange(len(order)) - begin
        kept = np.ones(len(order), dtype=bool)
        left = np.arange(len(order))
        for rank in range(min(int(place.max(initial=0)), _MOST_RIVALS)):
            left = left[(place[left] > rank) & kept[left]]
            if not len(left):
                break
            rival = begin[left] + rank
            compared = kept[rival]
            worse, better = left[compared], rival[compared]
            for row in values:
                at_most = row[worse] <= row[better]
                worse, better = worse[at_most], better[at_most]
            equal = (same[:, worse] == same[:, better]).all(axis=0)
            kept[worse[equal]] = False
        return states.at(order[kept])
