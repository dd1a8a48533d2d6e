"""A periodic schedule of any length as a graph of constant size: its long middle is folded into one period.

    round    0 1 2 | 3 4 5 6 | 7 ... 93 | 94 95 96 | 97 98 99
             warmup| settles | folded   | settles  | cooldown
                      `--- one clock per block and micro-batch of it ---'

In the folded rounds every block starts exactly one period after it started the round before, so that any
number of them is one set of starts, and one more unknown, the period. A few rounds on both sides keep the
clocks of the folded ones but may start when they like, because what the warmup leaves late needs rounds to
catch up. Starts that keep this graph's edges are starts of the whole schedule; the whole schedule, which
starts everything as soon as it can, is never later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from placements import Placement
from schedsearch.energy.cost import CostCurve
from schedsearch.energy.graph import EnergyError, instance_graph
from schedsearch.energy.programs import Timing
from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance, Schedule, with_optimizer

MAX_MICRO_BATCHES_PER_REPETEND = 4
"""Micro-batches of a repetend up to which `repetend_of` looks for the pattern of a schedule."""


class ClockGroup(NamedTuple):
    """Instances that share one clock.

    Attributes:
        part: Part of the schedule.
        block: Name of the block.
        micro_batch: Number of the micro-batch in the repetend; 0 for an optimizer block.
        turn: Number of the round, in the warmup from that micro-batch's first on, in the cooldown from the
            schedule's last backwards; 0 in the steady part.
    """

    part: Literal["warmup", "steady", "cooldown"]
    block: str
    micro_batch: int
    turn: int


@dataclass(frozen=True)
class PeriodicSchedule:
    """A repetend as a schedule for each number of micro-batches, cut into warmup, steady part and cooldown.

    Round r of the schedule is where the repetend's pattern starts for the r-th time. Rounds in which the
    pattern is not whole, because micro-batches before the first or after the last would be in it, are
    warmup and cooldown.

    Attributes:
        repetend: The pattern.
        placement: The repetend's, or that with optimizer blocks besides.
        free_rounds: Whole rounds on each side that count as warmup and cooldown too.
    """

    repetend: Repetend
    placement: Placement
    free_rounds: int = 0

    def schedule(self, num_micro_batches: int) -> Schedule:
        """Return the schedule of this number of micro-batches.

        Raises:
            EnergyError: There are none.
        """
        if num_micro_batches < 1:
            raise EnergyError(f"num_micro_batches: {num_micro_batches} is not at least 1")
        return with_optimizer(self.placement, self.repetend.unroll(num_micro_batches))

    def num_rounds(self, num_micro_batches: int) -> int:
        """Return the number of rounds for a number of micro-batches; the last round may be partial."""
        return -(-num_micro_batches // self.repetend.micro_batches)

    def round(self, instance: Instance) -> int:
        """Return the round in which a block of one micro-batch runs."""
        name, micro_batch = instance
        turn, slot = divmod(micro_batch, self.repetend.micro_batches)
        if name not in self.repetend.modulo_stage:
            return turn + 2 * self.repetend.in_flight
        return turn + self.repetend.in_flight - 1 - self.repetend.modulo_stage[name][slot]

    def groups(self, instance: Instance, num_micro_batches: int) -> tuple[ClockGroup, ...]:
        """Return the clock groups of an instance: one, or two where the steady part is empty."""
        name, micro_batch = instance
        if name not in self.repetend.modulo_stage:
            return (ClockGroup("cooldown", name, 0, 0),)
        turn, slot = divmod(micro_batch, self.repetend.micro_batches)
        at, last = self.round(instance), self.num_rounds(num_micro_batches) - 1
        clock_groups = []
        if at < self.repetend.in_flight - 1 + self.free_rounds:
            clock_groups.append(ClockGroup("warmup", name, slot, turn))
        if at > last - self.free_rounds:
            clock_groups.append(ClockGroup("cooldown", name, slot, last - turn))
        return tuple(clock_groups) or (ClockGroup("steady", name, slot, 0),)


class Folded(NamedTuple):
    """The graph of a periodic schedule, its middle folded where that makes the graph smaller.

    Attributes:
        timing: Waits between instances; rounds are negative where an edge's head stands for an earlier round.
        groups: The clock groups, whose times vary.
        is_folded: Whether there is a period.
    """

    timing: Timing
    groups: tuple[ClockGroup, ...]
    is_folded: bool


def fold(
    periodic: PeriodicSchedule, curves: Mapping[str, CostCurve], num_micro_batches: int, settling_rounds: int
) -> Folded:
    """Return the graph of the schedule for `num_micro_batches`, folded if that makes the graph smaller.

    Settling rounds are left on each side of the folded rounds.

    Raises:
        EnergyError: There are no micro-batches.
    """
    in_flight = periodic.repetend.in_flight
    begin = in_flight - 1 + periodic.free_rounds + settling_rounds
    reach = max(in_flight - 1, 1)  # no block waits for one that is further back
    ends = 2 * begin - in_flight + 2
    left_out = max(periodic.num_rounds(num_micro_batches) - ends - reach, 0)
    number = num_micro_batches - left_out * periodic.repetend.micro_batches
    graph = instance_graph(periodic.schedule(number))
    at = np.array([periodic.round(instance) for instance in graph.instances])
    shared = [periodic.groups(instance, number)[-1] for instance in graph.instances]
    inside = np.array([group.part == "steady" for group in shared]) & (left_out > 0)
    inside &= (at >= begin) & (at <= begin + reach)
    at_node = np.where(inside, begin, at).tolist()  # a node of the folded rounds stands for the first of them
    groups = {group: i for i, group in enumerate(dict.fromkeys(shared))}
    keys = list(zip(shared, at_node, strict=True))
    nodes = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    node = np.array([nodes[key] for key in keys])
    since, tail, head = at - begin, graph.tail, graph.head
    rounds = np.where(inside[tail], since[tail] + np.where(inside[head], 0, left_out), 0)
    rounds -= np.where(inside[head], since[head], 0)
    arcs, which = np.unique(np.column_stack([node[head], node[tail], rounds]), axis=0, return_inverse=True)
    delay = np.zeros(len(arcs))
    np.maximum.at(delay, which.ravel(), graph.delay_ms)
    count = np.bincount([groups[group] for group in shared])
    steady = np.array([group.part == "steady" for group in groups])
    timing = Timing(
        arcs[:, 1],
        arcs[:, 0],
        delay,
        arcs[:, 2],
        np.array([groups[group] for group, _ in nodes]),
        [curves[group.block] for group in groups],
        (count + left_out * steady).astype(np.float64),
    )
    return Folded(timing, tuple(groups), left_out > 0)


def repetend_of(make: Callable[[int], Schedule], num_micro_batches: int) -> Repetend:
    """Return the repetend of a schedule that can be made for any number of micro-batches.

    In the middle of a long schedule every block must start a period after it did the round before, and
    unrolling that pattern must give the order that the schedule of that length has on every device.

    Raises:
        EnergyError: The schedule is not periodic.
    """
    schedule = make(num_micro_batches).per_micro_batch
    placement = schedule.placement
    size = max(8 * (placement.num_devices + MAX_MICRO_BATCHES_PER_REPETEND), num_micro_batches)
    start = make(size).per_micro_batch.start_of
    for number in range(1, MAX_MICRO_BATCHES_PER_REPETEND + 1):
        middle = size // 2 // number * number
        pattern = [(block.name, n) for block in placement.blocks for n in range(number)]
        first = {(name, n): start[name, middle + n] for name, n in pattern}
        periods = {start[name, middle + number + n] - first[name, n] for name, n in pattern}
        if len(periods) == 1 and min(periods) >= 1:
            repetend = Repetend.from_first_starts(placement, number, periods.pop(), first)
            if has_order_of(repetend, schedule):
                return repetend
    raise EnergyError(
        f"periodic: the schedule of {placement.name} repeats nothing of up to "
        f"{MAX_MICRO_BATCHES_PER_REPETEND} micro-batches; use one that is an unrolled repetend"
    )


def has_order_of(repetend: Repetend, schedule: Schedule) -> bool:
    """Tell whether a schedule is the repetend unrolled, and not shortened since."""
    schedule = schedule.per_micro_batch
    unrolled = repetend.unroll(schedule.num_micro_batches)
    return all(unrolled.order(d) == schedule.order(d) for d in range(schedule.placement.num_devices))
