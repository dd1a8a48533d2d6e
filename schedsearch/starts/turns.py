"""The automatic schedules of zero bubble: micro-batches take turns, and weight halves fill idle time.

A turn is one forward block on each device, first to last, and then one input half on each, last to first, of
a V-shape with split backward. It follows the heuristic that "Zero Bubble Pipeline Parallelism" describes
(Sec. 3.1) and calls ZB-1p and ZB-2p by its memory; which of two choices is better depends on the times. The
module knows no objective.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from itertools import pairwise

from placements import Placement
from schedsearch.baselines.structure import BaselineStage, UnsuitablePlacementError, V
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible

_FORWARD, _INPUT, _WEIGHT = range(3)


def in_turns(placement: Placement, num_micro_batches: int) -> Iterator[Schedule]:
    """Yield two schedules that keep the memory; none where the placement is no V-shape with split backward.

    In the first a device is rather idle before its first input half than late for it. Of what is open
    besides, a forward block is left to a later turn where the next device has input halves that matter more,
    and a longer weight half fills a gap only on the device that would be idle the most: the other choices
    were better by at most 0.1 % on 17 placements, the published ones among them.
    """
    with contextlib.suppress(UnsuitablePlacementError):
        stages = V.chains(placement, "turns", split=True)[0]
        for waits_for_first in (True, False):
            orders = _Turns(placement, num_micro_batches, stages, waits_for_first).orders()
            if orders is not None:
                yield as_soon_as_possible(placement, num_micro_batches, orders)


class _OutOfMemoryError(Exception):
    """A device has no weight half left that would make room."""


class _Turns:
    """The orders that devices have run so far, by their positions in the V-shape."""

    def __init__(
        self, placement: Placement, num_micro_batches: int, stages: list[BaselineStage], waits_for_first: bool
    ) -> None:
        self.number, self.stages, self.last = num_micro_batches, stages, len(stages) - 1
        self.waits_for_first = waits_for_first
        self.num_devices, free = placement.num_devices, placement.free_memory
        names = [(stage.forward, stage.backward, str(stage.weight)) for stage in stages]
        self.blocks = [[placement.by_name[name] for name in row] for row in names]
        self.time = [[block.time for block in row] for row in self.blocks]
        self.memory = [[block.memory_on(block.devices[0]) for block in row] for row in self.blocks]
        self.free = [math.inf if free is None else free[stage.device] for stage in stages]
        ways = list(pairwise(stages))
        self.forth = [0, *(placement.transfer_time(a.forward, b.forward) for a, b in ways)]
        self.back = [*(placement.transfer_time(b.backward, a.backward) for a, b in ways), 0]
        self.order: list[list[Instance]] = [[] for _ in stages]
        self.ran = [[0, 0, 0] for _ in stages]
        self.ends: list[tuple[list[int], list[int]]] = [([], []) for _ in stages]  # forward, input half
        self.idle_from, self.idle, self.held = ([0] * len(stages) for _ in range(3))

    def orders(self) -> list[list[Instance]] | None:
        """Return the order of each device of the placement; None if memory does not suffice."""
        try:
            self._first_turn()
            for _ in range(1, self.number):
                self._turn()
        except _OutOfMemoryError:
            return None
        for position in range(self.last + 1):
            self._run_weights(position)
        orders: list[list[Instance]] = [[] for _ in range(self.num_devices)]
        for stage, order in zip(self.stages, self.order, strict=True):
            orders[stage.device] = order
        return orders

    def _first_turn(self) -> None:
        """Run the forward blocks that fit in time and memory before the first input halves."""
        for position in range(self.last + 1):
            self._make_room(position, _FORWARD)
            self._run(position, _FORWARD)
        more = [0] * (self.last + 1)
        ends = self.idle_from[self.last] + self.time[self.last][_INPUT]
        for position in range(self.last - 1, -1, -1):
            more[position], tick = self._ahead(position, ends + self.back[position])
            ends = tick + self.time[position][_INPUT]
        for position in range(1, self.last + 1):  # fewer than on the device before, or its would come late
            fewer = 1 + more[position] < self.number
            more[position] = max(0, min(more[position], more[position - 1] - fewer))
        for position, number in enumerate(more):
            for _ in range(number):
                self._run(position, _FORWARD)
        for position in range(self.last, -1, -1):
            self._make_room(position, _INPUT)
            self._run(position, _INPUT)

    def _ahead(self, position: int, comes: int) -> tuple[int, int]:
        """Return the number of forward blocks of a device before its first input half, and this half's start.

        `comes` is the tick at which the half's gradient arrives.
        """
        time = self.time[position][_FORWARD]
        number, tick, held = 0, self.idle_from[position], self.held[position]
        while self.ran[position][_FORWARD] + number < self.number and self._fits(position, _FORWARD, held):
            if tick + time > comes if self.waits_for_first else tick >= comes:
                break
            number, tick, held = number + 1, tick + time, held + self.memory[position][_FORWARD]
        return number, max(tick, comes)

    def _turn(self) -> None:
        """Run a forward block on the devices from one on to the last, and an input half on all."""
        for position in range(self._first_forward(), self.last + 1):
            self._make_room(position, _FORWARD)
            if position > 0:
                self._fill(position, self._comes(position, _FORWARD))
            self._run(position, _FORWARD)
        for position in range(self.last, -1, -1):
            self._make_room(position, _INPUT)
            if position < self.last:
                self._fill(position, self._comes(position, _INPUT))
            if position == 0 and self.ran[0][_FORWARD] == self.number:
                self._run_weights(0)  # nothing waits for the first device any more
            self._run(position, _INPUT)

    def _first_forward(self) -> int:
        """Return the first device from which on all may run a forward block in this turn."""
        for position in range(self.last, -1, -1):
            if self.ran[position][_FORWARD] == self.number or self._is_held_back(position):
                return position + 1
        return 0

    def _is_held_back(self, position: int) -> bool:
        """Return whether a device leaves its forward block to a later turn: the next device has enough."""
        ran, later = self.ran[position], position + 1
        if later > self.last or ran[_FORWARD] < self.ran[later][_FORWARD] + 2:
            return False
        tick = self.idle_from[position]
        comes = self.idle_from[later] + sum(self.time[later][:_WEIGHT]) + self.back[position]
        if tick >= comes:
            return True
        ends, held = tick + self.time[position][_FORWARD], self.held[position]
        for _ in range(ran[_INPUT] - ran[_WEIGHT]):
            if self._fits(position, _FORWARD, held):
                break
            ends, held = ends + self.time[position][_WEIGHT], held + self.memory[position][_WEIGHT]
        return ends > comes and comes - tick <= max(self.idle) - self.idle[position]

    def _fill(self, position: int, comes: int) -> None:
        """Run weight halves until a tick, and one beyond it if the device would become the most idle one."""
        ran, time = self.ran[position], self.time[position][_WEIGHT]
        while ran[_WEIGHT] < ran[_INPUT] and self.idle_from[position] + time <= comes:
            self._run(position, _WEIGHT)
        gap = comes - self.idle_from[position]
        would_be_longest = self.idle[position] + gap > max(self.idle)
        if ran[_WEIGHT] < ran[_INPUT] and gap > 0 and would_be_longest:
            self._run(position, _WEIGHT)

    def _run_weights(self, position: int) -> None:
        """Run all the weight halves that can run on a device."""
        while self.ran[position][_WEIGHT] < self.ran[position][_INPUT]:
            self._run(position, _WEIGHT)

    def _make_room(self, position: int, half: int) -> None:
        """Run weight halves until a block's memory fits.

        Raises:
            _OutOfMemoryError: It does not even then.
        """
        while not self._fits(position, half, self.held[position]):
            if self.ran[position][_WEIGHT] == self.ran[position][_INPUT]:
                raise _OutOfMemoryError
            self._run(position, _WEIGHT)

    def _fits(self, position: int, half: int, held: int) -> bool:
        needed = held + self.memory[position][half] + self.blocks[position][half].transient
        return needed <= self.free[position]

    def _comes(self, position: int, half: int) -> int:
        """Return the tick at which the neighbour's output for a device's next block arrives."""
        micro_batch = self.ran[position][half]
        if half == _FORWARD and position > 0:
            return self.ends[position - 1][half][micro_batch] + self.forth[position]
        if half == _INPUT and position < self.last:
            return self.ends[position + 1][half][micro_batch] + self.back[position]
        return 0

    def _run(self, position: int, half: int) -> None:
        """Run the next block of a kind on a device, as early as possible."""
        micro_batch = self.ran[position][half]
        start = max(self.idle_from[position], self._comes(position, half))
        if self.ran[position][_FORWARD]:
            self.idle[position] += start - self.idle_from[position]
        self.idle_from[position] = start + self.time[position][half]
        if half != _WEIGHT:
            self.ends[position][half].append(self.idle_from[position])
        self.held[position] += self.memory[position][half]
        self.ran[position][half] += 1
        self.order[position].append((self.blocks[position][half].name, micro_batch))
