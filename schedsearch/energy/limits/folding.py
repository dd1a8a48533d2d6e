"""A periodic schedule of any length as a graph of constant size: its long middle is folded into one period.

    round    0 1 2 | 3 4 5 6 | 7 ... 93 | 94 95 96 | 97 98 99
             warmup| settles | folded   | settles  | cooldown
                      `------- one clock for each block and lane -------'

In the folded rounds every block starts exactly one period after it started the round before, so that any
number of them is one set of starts, and one more unknown, the period. A few rounds on both sides keep the
clocks of the folded ones but may start when they like, because what the warmup leaves late needs rounds to
catch up. Starts that keep this graph's edges are starts of the whole schedule; the whole schedule, which
starts everything as soon as it can, is never later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placements import Placement
from schedsearch.energy.cost import CostCurve
from schedsearch.energy.graph import EnergyError, Floats, Ints, device_orders, instance_graph
from schedsearch.energy.limits.switching import SwitchingLimits
from schedsearch.energy.programs import Timing
from schedsearch.graph import DifferenceSystem
from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance, Schedule, with_optimizer

IterationPart = Literal["warmup", "steady", "cooldown"]


class ClockGroup(NamedTuple):
    """Instances that share one clock.

    Attributes:
        part: Part of the schedule.
        block: Name of the block.
        lane: Which micro-batch of the repetend; 0 for an optimizer block.
        turn: In the warmup rounds of the lane from its first on, in the cooldown from the schedule's last
            on backwards; 0 in the steady part.
    """

    part: IterationPart
    block: str
    lane: int
    turn: int


class SteadyGraph(NamedTuple):
    """One round of the steady part: which blocks wait for which, in this round or an earlier one.

    Attributes:
        nodes: Block and lane.
        tail: Node that is waited for, for each wait.
        head: Node that waits.
        rounds: Earlier, in which the tail runs.
        delay_ms: Least time from end to start.
        is_adjacent: Whether a device runs the head just after the tail.
    """

    nodes: tuple[tuple[str, int], ...]
    tail: Ints
    head: Ints
    rounds: Ints
    delay_ms: Floats
    is_adjacent: NDArray[np.bool_]

    def period_ms(self, time_ms: Floats, clock_mhz: Ints, limits: SwitchingLimits) -> float:
        """Return how long each round takes in the long run: the longest cycle of waits.

        Args:
            time_ms: How long each node runs; shape ``(nodes,)``.
            clock_mhz: Clock of each node.
            limits: Say what a change of clock takes.
        """
        latency_ms = limits.latencies_ms(clock_mhz[self.tail], clock_mhz[self.head])
        delay_ms = np.where(self.is_adjacent, np.maximum(self.delay_ms, latency_ms), self.delay_ms)
        weight = time_ms[self.tail] + delay_ms
        finest_ms = float(weight.sum()) * _FINEST or 1.0
        whole = np.rint(weight / finest_ms).astype(np.int64)
        cycle = DifferenceSystem(len(time_ms), self.tail, self.head, whole, self.rounds).critical_cycle()
        return float(weight[cycle].sum() / self.rounds[cycle].sum()) if cycle else 0.0


@dataclass(frozen=True)
class PeriodicSchedule:
    """A repetend as a schedule for each number of micro-batches, cut into warmup, steady part and cooldown.

    Round r of the schedule is where the repetend's pattern starts for the r-th time. Rounds in which the
    pattern is not whole, because micro-batches before the first or after the last would be in it, are
    warmup and cooldown.

    Attributes:
        repetend: The pattern.
        placement: The repetend's, or that with optimizer blocks besides.
        free_rounds: So many whole rounds on each side count as warmup and cooldown too.
    """

    repetend: Repetend
    placement: Placement
    free_rounds: int = 0

    def schedule(self, num_micro_batches: int) -> Schedule:
        """Return the schedule of so many micro-batches."""
        return with_optimizer(self.placement, self.repetend.unroll(num_micro_batches))

    def num_rounds(self, num_micro_batches: int) -> int:
        """Return how many rounds of micro-batches there are, the last one perhaps not whole."""
        return -(-num_micro_batches // self.repetend.micro_batches)

    @cached_property
    def steady(self) -> SteadyGraph:
        """The waits of the last round of a schedule that is long enough for all of them to be in it."""
        rounds = 3 * self.repetend.in_flight
        schedule = self.repetend.unroll(rounds * self.repetend.micro_batches)
        graph = instance_graph(schedule)
        positions = [self.position(instance) for instance in graph.instances]
        names = [(name, lane) for (name, _), (lane, _) in zip(graph.instances, positions, strict=True)]
        place = {node: i for i, node in enumerate(dict.fromkeys(names))}
        at, node = np.array([at for _, at in positions]), np.array([place[name] for name in names])
        pairs = {pair for order in device_orders(schedule, graph) for pair in pairwise(order.tolist())}
        waits = np.flatnonzero(at[graph.head] == rounds - 1)
        tail, head = graph.tail[waits], graph.head[waits]
        adjacent = [pair in pairs for pair in zip(tail.tolist(), head.tolist(), strict=True)]
        arcs = node[tail], node[head], rounds - 1 - at[tail], graph.delay_ms[waits]
        return SteadyGraph(tuple(place), *arcs, np.array(adjacent, dtype=np.bool_))

    def position(self, instance: Instance) -> tuple[int, int]:
        """Return the lane and the round of a block of one micro-batch."""
        name, micro_batch = instance
        turn, lane = divmod(micro_batch, self.repetend.micro_batches)
        if name not in self.repetend.modulo_stage:
            return 0, turn + 2 * self.repetend.in_flight
        return lane, turn + self.repetend.in_flight - 1 - self.repetend.modulo_stage[name][lane]

    def groups(self, instance: Instance, num_micro_batches: int) -> tuple[ClockGroup, ...]:
        """Return with what an instance shares its clock: one group, or two where the steady part is empty."""
        name, micro_batch = instance
        if name not in self.repetend.modulo_stage:
            return (ClockGroup("cooldown", name, 0, 0),)
        lane, at = self.position(instance)
        turn = micro_batch // self.repetend.micro_batches
        last = self.num_rounds(num_micro_batches) - 1
        found = []
        if at < self.repetend.in_flight - 1 + self.free_rounds:
            found.append(ClockGroup("warmup", name, lane, turn))
        if at > last - self.free_rounds:
            found.append(ClockGroup("cooldown", name, lane, last - turn))
        return tuple(found) or (ClockGroup("steady", name, lane, 0),)


_FINEST = 2.0**-40
"""Share of the sum of all times that is less than any real difference of times."""


class Folded(NamedTuple):
    """A periodic schedule with its middle folded, where that makes it smaller.

    Attributes:
        timing: Its waits; negative rounds where the head's start stands for that of an earlier round.
        groups: The clock groups, whose times vary.
        is_folded: Whether there is a period.
    """

    timing: Timing
    groups: tuple[ClockGroup, ...]
    is_folded: bool


def fold(
    periodic: PeriodicSchedule, curves: Mapping[str, CostCurve], num_micro_batches: int, settling_rounds: int
) -> Folded:
    """Return the graph of the schedule of so many micro-batches, folded if that makes it smaller.

    Args:
        periodic: The schedule.
        curves: Cost curve of each block.
        num_micro_batches: Micro-batches of the whole schedule.
        settling_rounds: Rounds on each side of the folded rounds.

    Raises:
        EnergyError: There are no micro-batches.
    """
    if num_micro_batches < 1:
        raise EnergyError(f"num_micro_batches: {num_micro_batches} is not at least 1")
    reach = int(periodic.steady.rounds.max(initial=0))
    begin = periodic.repetend.in_flight - 1 + periodic.free_rounds + settling_rounds
    ends = 2 * begin - periodic.repetend.in_flight + 2
    left_out = max(periodic.num_rounds(num_micro_batches) - ends - reach, 0)
    number = num_micro_batches - left_out * periodic.repetend.micro_batches
    window = range(begin, begin + reach + 1) if left_out else range(0)
    graph = instance_graph(periodic.schedule(number))
    positions = [periodic.position(instance) for instance in graph.instances]
    shared = [periodic.groups(instance, number)[-1] for instance in graph.instances]
    groups = {group: i for i, group in enumerate(dict.fromkeys(shared))}
    nodes: dict[tuple[str, int, int], int] = {}
    node_of, group_of, at_of = list[int](), list[int](), list[int]()
    for (name, _), (lane, at), group in zip(graph.instances, positions, shared, strict=True):
        node = nodes.setdefault((name, lane, window.start if at in window else at), len(nodes))
        node_of.append(node)
        at_of.append(at)
        if node == len(group_of):
            group_of.append(groups[group])
    edges: dict[tuple[int, int, int], float] = {}  # a node of the window stands for its first round
    for source, target, delay in graph.edges:
        before, after = at_of[source], at_of[target]
        rounds = 0
        if before in window:
            rounds = before - window.start + (0 if after in window else left_out)
        if after in window:
            rounds -= after - window.start
        edge = (node_of[target], node_of[source], rounds)
        edges[edge] = max(edges.get(edge, 0.0), delay)
    head, tail, rounds_of, delay_of = (
        np.array([(*edge, edges[edge]) for edge in sorted(edges)]).reshape(-1, 4).T
    )
    count = np.bincount([groups[group] for group in shared], minlength=len(groups))
    steady = np.array([group.part == "steady" for group in groups])
    timing = Timing(
        tail.astype(np.int64),
        head.astype(np.int64),
        delay_of,
        rounds_of.astype(np.int64),
        np.array(group_of),
        [curves[group.block] for group in groups],
        (count + left_out * steady).astype(np.float64),
    )
    return Folded(timing, tuple(groups), left_out > 0)


MOST_MICRO_BATCHES_PER_REPETEND = 4
"""Up to which `repetend_of` looks for the pattern of a schedule that does not say it."""


def repetend_of(make: Callable[[int], Schedule], num_micro_batches: int) -> Repetend:
    """Return the repetend of a schedule that is made for any number of micro-batches.

    In the middle of a long schedule every block must start a period after it did the round before, and
    unrolling that pattern must give the order that the schedule has on every device.

    Args:
        make: Makes the schedule of so many micro-batches.
        num_micro_batches: For which the orders are compared.

    Raises:
        EnergyError: The schedule is not periodic.
    """
    schedule = make(num_micro_batches).per_micro_batch
    size = 8 * (schedule.placement.num_devices + MOST_MICRO_BATCHES_PER_REPETEND)
    long = make(max(size, num_micro_batches)).per_micro_batch
    for lanes in range(1, MOST_MICRO_BATCHES_PER_REPETEND + 1):
        repetend = _pattern(long, lanes)
        if repetend is not None and has_order_of(repetend, schedule):
            return repetend
    raise EnergyError(
        f"periodic: the schedule of {schedule.placement.name} repeats nothing of up to "
        f"{MOST_MICRO_BATCHES_PER_REPETEND} micro-batches; use one that is an unrolled repetend"
    )


def has_order_of(repetend: Repetend, schedule: Schedule) -> bool:
    """Tell whether a schedule is the repetend unrolled, and not shortened since."""
    schedule = schedule.per_micro_batch
    unrolled = repetend.unroll(schedule.num_micro_batches)
    return all(
        unrolled.order(device) == schedule.order(device) for device in range(schedule.placement.num_devices)
    )


def _pattern(schedule: Schedule, lanes: int) -> Repetend | None:
    """Return what repeats in the middle of a schedule, or None where it does not repeat there."""
    placement, start = schedule.placement, schedule.start_of
    middle = schedule.num_micro_batches // 2 // lanes * lanes
    first = {
        (block.name, lane): start[block.name, middle + lane]
        for block in placement.blocks
        for lane in range(lanes)
    }
    periods = {start[name, middle + lanes + lane] - ticks for (name, lane), ticks in first.items()}
    period = periods.pop()
    if periods or period < 1:
        return None
    return Repetend.from_first_starts(placement, lanes, period, first)
