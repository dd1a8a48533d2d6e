"""States, transitions between them, and dominance: states that need no search because of a better one.

A state has the number of starts of each activity, and the ticks for which a running one will still run.
Arrays hold one state per column, so that a row is one activity in all states. Knows neither the length of the
schedule nor the objective.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schedsearch.state_space.model import Ints, StateSpaceModel

Counts = NDArray[np.unsignedinteger]
"""Unsigned integers of the smallest type that holds them."""

Marks = NDArray[np.bool_]
"""One truth value for each state."""

Look = Callable[[int], None]
"""Called with the number of present states; raises an error if they are too many or take too long."""

_MAX_RIVALS = 500
"""Most states of a group, the best ones, with which each other state is compared; more drops few others."""


@dataclass(frozen=True, eq=False)
class States:
    """States, with one column each, at ticks at which activities may start.

    Attributes:
        started: Starts of each activity; shape ``(activities, states)``.
        left: Ticks until it ends, 0 if it does not run; same shape.
        parent: Index of each state's predecessor; shape ``(states,)``.
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


def empty_state(model: StateSpaceModel, num_micro_batches: int) -> States:
    """Return the single state in which no activity has started."""
    longer_than_any = int(model.time.max()) + 1  # see `Transitions.next_states`
    return States(
        np.zeros((model.size, 1), dtype=np.min_scalar_type(num_micro_batches)),
        np.zeros((model.size, 1), dtype=np.min_scalar_type(longer_than_any)),
        np.zeros(1, dtype=np.int64),
    )


def joined(several: list[States]) -> States:
    """Return the states of several groups in one."""
    if len(several) == 1:
        return several[0]
    return States(
        np.concatenate([states.started for states in several], axis=1),
        np.concatenate([states.left for states in several], axis=1),
        np.concatenate([states.parent for states in several]),
    )


class Transitions:
    """Transitions of a model: the states that may follow a state.

    Every start can be moved to a tick at which an activity ends: on a device, memory changes only at a
    start there, so a block that starts as soon as its inputs and devices are ready keeps each device's
    order, and with it the memory. So it is enough to decide at these ticks.

    Args:
        model: Model with the activities.
        look: Called from time to time.
    """

    def __init__(self, model: StateSpaceModel, look: Look = lambda _: None) -> None:
        self.model, self.look = model, look
        random = np.random.default_rng(0)
        self._mix = random.integers(1, 2**63, size=2 * model.size, dtype=np.uint64) | np.uint64(1)
        self._longest = int(model.time.max())
        self._transfers = [i for i, devices in enumerate(model.devices) if not devices]
        shared = [i for i, devices in enumerate(model.devices) if len(devices) > 1]
        alone = [tuple(i for i in here if i not in shared) for here in model.on]
        self._exclusive = (*((i,) for i in shared), *(here for here in alone if here))

    def _inputs_are_there(self, states: States, i: int) -> Marks:
        """Return for each state whether an activity does not run, and its next run's inputs have ended."""
        there: Marks = states.left[i] == 0
        for j in self.model.after[i]:
            ended = states.started[j] - (states.left[j] > 0)
            there &= ended > states.started[i]
        return there

    def _can_start(self, states: States, i: int, limit: int | None) -> Ints:
        """Return the indices of the states in which a block can start, ascending."""
        model = self.model
        can = self._inputs_are_there(states, i)
        if limit is not None:
            can &= states.started[i] < limit
        for device in model.devices[i]:
            for j in model.on[device]:
                can &= states.left[j] == 0
        which = np.flatnonzero(can)
        if model.capacity is None:
            return which
        for device in model.devices[i]:
            needed = int(model.memory[device, i] + model.transient[device, i])
            if len(which) and (model.memory[device, i] > 0 or model.transient[device, i] > 0):
                in_use = np.full(len(which), needed, dtype=np.int64)
                for j in model.on[device]:
                    if model.memory[device, j]:
                        in_use += model.memory[device, j] * states.started[j, which].astype(np.int64)
                which = which[in_use <= model.capacity[device]]
        return which

    def next_states(self, states: States, limit: int | None) -> tuple[States, Ints]:
        """Return the following states, each at the next end of an activity, and the ticks until then.

        In none of the states may a transfer that could start not have started. `limit` is the number of
        micro-batches, None for no end of them.
        """
        states = States(states.started, states.left, np.arange(len(states)))
        for exclusive in self._exclusive:
            groups = [states]
            for i in exclusive:
                which = self._can_start(states, i, limit)
                if len(which):
                    after = states.at(which)  # copies
                    self._start(after, i, np.arange(len(which)))
                    groups.append(after)
            states = joined(groups)
            self.look(len(states))
        states = states.at(np.flatnonzero(states.left.any(axis=0)))
        longer_than_any = self._longest + 1
        ticks = np.where(states.left > 0, states.left, longer_than_any).min(axis=0, initial=longer_than_any)
        left = np.where(states.left > 0, states.left - ticks, 0).astype(states.left.dtype)
        states = States(states.started, left, states.parent)
        for i in self._transfers:  # at once: they need no device, so to wait gains nothing
            self._start(states, i, np.flatnonzero(self._inputs_are_there(states, i)))
        return states, ticks.astype(np.int64)

    def _start(self, states: States, i: int, which: Ints) -> None:
        """Start an activity, in place, in some of the states."""
        states.started[i, which] += 1
        states.left[i, which] = self.model.time[i]

    def unique(self, states: States) -> States:
        """Return the distinct states: sorted by a hash, so that equal states are neighbours.

        Different states with one hash may separate equal ones; then a state is kept twice, which is harmless.
        """
        hashes = np.zeros(len(states), dtype=np.uint64)  # per state
        for row, mix in zip([*states.started, *states.left], self._mix, strict=True):
            hashes += row.astype(np.uint64) * mix
        states = states.at(np.argsort(hashes, kind="stable"))
        hashes.sort()
        later = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1  # indices of states hashed as the one before
        repeated = (states.started[:, later] == states.started[:, later - 1]).all(axis=0)
        repeated &= (states.left[:, later] == states.left[:, later - 1]).all(axis=0)
        keep = np.ones(len(states), dtype=bool)
        keep[later[repeated]] = False
        return states.at(np.flatnonzero(keep))

    def undominated(self, states: States) -> States:
        """Return the states without dominated ones, which lead to no better schedule than another state.

        State a dominates state b, at the same tick, if in a

        - each device is free no later,
        - each activity has started as often or more often, and where as often, ends no later,
        - those of `StateSpaceModel.must_agree` have started equally often.

        Proof. Continue from a as from b, leaving out what a has started already. On each device what is
        left is part of what runs there from b, at the same ticks. An input that both have started is there
        no later in a: one that runs ends no later, and if a has started the activity more often, all that
        b has started have ended, as an activity never runs twice at once. An input that only a has
        started ends while its device runs it in a, so no later than it can from b, where it is yet to
        start. Memory: at any later start, a block that releases memory, or allocates none, has started no
        less often than from b. One that allocates has started equally often; or, where it is the only one on
        its device and nothing there needs more while it runs, it has as soon as it is its turn to start,
        and memory matters to no other. The continuation can then start everything as soon as possible.

        Dominance is transitive, so a state that is dropped never was the only reason to drop another.

        Args:
            states: All at the same tick, none there twice.
        """
        scores = self._scores(states)
        order, group_begin = self._grouped_best_first(states, scores)
        scores = np.ascontiguousarray(scores[:, order])
        rank = np.arange(len(order)) - group_begin  # in its group; 0 is the best
        kept = np.ones(len(order), dtype=bool)
        undecided = np.arange(len(order))  # kept so far, and worse in rank than all rivals so far
        for rival_rank in range(min(int(rank.max(initial=0)), _MAX_RIVALS)):
            self.look(0)
            undecided = undecided[(rank[undecided] > rival_rank) & kept[undecided]]
            if not len(undecided):
                break
            rival = group_begin[undecided] + rival_rank
            # Pairs of a state and its rival, if that is kept; each score leaves the pairs that it orders so.
            worse, better = undecided[kept[rival]], rival[kept[rival]]
            for row in scores:
                in_order = row[worse] <= row[better]
                worse, better = worse[in_order], better[in_order]
            kept[worse] = False
        return states.at(order[kept])

    def _scores(self, states: States) -> Ints:
        """Return scores: a state that dominates another has no lower score; shape ``(scores, states)``.

        One row for each activity, then one for each device. As ``left <= longest``, an activity's score is
        greater for more starts, whatever is left, and for as many starts, where less is left. States of one
        group with equal scores are equal.
        """
        left = states.left.astype(np.int64)
        free_in = [left[list(here)].max(axis=0, initial=0) for here in self.model.on]
        return np.concatenate(
            [states.started.astype(np.int64) * (self._longest + 1) - left, -np.stack(free_in)]
        )

    def _grouped_best_first(self, states: States, scores: Ints) -> tuple[Ints, Ints]:
        """Return the order of states by groups, best first, and the first index of each state's group in it.

        The states of a group have started each of `StateSpaceModel.must_agree` equally often: only such
        states can dominate each other. In a group they are sorted by the sum of their scores, so that none
        dominates an earlier one. Both arrays have the shape ``(states,)``.
        """
        same_counts = states.started[list(self.model.must_agree)]
        order = np.lexsort((-scores.sum(axis=0), *same_counts))
        same_counts = same_counts[:, order]
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = (same_counts[:, 1:] != same_counts[:, :-1]).any(axis=0)
        first = np.flatnonzero(begins)
        return order, np.repeat(first, np.diff(np.r_[first, len(order)]))
