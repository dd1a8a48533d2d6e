"""The parts of a repetend that a solver orders anew while the rest keeps its order: segments of devices."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from schedsearch.graph import Edge, numbered
from schedsearch.model import rules
from schedsearch.model.cpsat_model import CpSatModel
from schedsearch.model.memory_precedence import checks
from schedsearch.model.variables import Variables
from schedsearch.repetend import Cycle, Repetend, input_edges
from schedsearch.schedule import Instance
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.cpsat import solve, within
from schedsearch.solver.query import Answer


@dataclass(frozen=True)
class Segment:
    """Some blocks in a row around the cycle of a device.

    Attributes:
        first: Position of the first in the device's cycle.
        number: How many; at most all of the cycle.
    """

    first: int
    number: int

    def with_positions(self, low: int, high: int, length: int) -> Segment:
        """Return the shortest segment around a cycle of some length that also has two positions in a row."""
        begin, end = min(
            (
                (min(self.first, low + turn), max(self.first + self.number - 1, high + turn))
                for turn in range(-2 * length, 3 * length, length)
            ),
            key=lambda ends: ends[1] - ends[0],
        )
        return Segment(begin % length, min(length, end - begin + 1))


@dataclass
class Segments:
    """A repetend and the segments of it that are free.

    Attributes:
        repetend: Repetend being improved.
        free: Each device's segment; devices without one keep their order.
    """

    repetend: Repetend
    free: dict[int, Segment] = field(default_factory=dict)

    def __post_init__(self) -> None:
        devices = range(self.repetend.placement.num_devices)
        self.cycles: list[Cycle] = [self.repetend.cycle(device) for device in devices]

    @property
    def size(self) -> int:
        """How many blocks are free."""
        return sum(segment.number for segment in self.free.values())

    def around(self, device: int) -> Cycle:
        """Return a device's cycle from its segment on; rounds go on counting where the cycle begins again."""
        cycle, first = self.cycles[device], self.free[device].first if device in self.free else 0
        return [
            (instance, round_ + again)
            for again, part in enumerate((cycle[first:], cycle[:first]))
            for instance, round_ in part
        ]

    def edges(self) -> tuple[list[Edge[Instance]], dict[int, tuple[int, int, int]]]:
        """Return what the fixed orders and the inputs ask, and where an edge is part of a fixed order.

        Returns:
            The edges; by their position the device and the two neighbouring positions of its cycle, freeing
            which would remove the edge.
        """
        placement = self.repetend.placement
        edges = input_edges(placement, self.repetend.micro_batches)
        places: dict[int, tuple[int, int, int]] = {}
        for device in range(len(self.cycles)):
            around = self.around(device)
            first = self.free[device].first if device in self.free else 0
            for a, b, rounds, place in self._orders(device):
                (source, early), (target, late) = around[a], around[b]
                if place is not None:
                    places[len(edges)] = device, first + place, first + place + 1
                edges.append(Edge(source, target, placement.by_name[source[0]].time, late - early + rounds))
        return edges, places

    def _orders(self, device: int) -> Iterator[tuple[int, int, int, int | None]]:
        """Yield what stays in order on a device, by positions in `around`: the segment comes first there.

        Yields:
            Position before, position after, how many rounds later, and where the two positions are that would
            have to be free for another order; None where that would be of no use.
        """
        length = len(self.cycles[device])
        number = self.free[device].number if device in self.free else 0
        if number < length:
            for a in range(number, length - 1):
                yield a, a + 1, 0, a
            for a in range(number):
                yield length - 1, a, 1, -1
                yield a, number, 0, number - 1
            if number == 0:
                yield length - 1, 0, 1, -1
        else:
            for a, b in itertools.permutations(range(number), 2):
                yield a, b, 1, None
        latest: dict[str, int] = {}
        for a, ((name, _), _) in enumerate(self.around(device)[:number]):
            if name in latest:
                yield latest[name], a, 0, None
            latest[name] = a

    def grow_until_free(self, period: int, most: int, choice: random.Random) -> bool:
        """Free what forbids a period, place by place; return whether nothing does, within so many blocks."""
        while True:
            edges, places = self.edges()
            forbidding = numbered(edges)[1].forbidding(period)
            if not forbidding:
                return True
            known = [places[edge] for edge in forbidding if edge in places]
            if not known or self.size >= most:
                return False
            self.include(*choice.choice(known))

    def grow(self, size: int, choice: random.Random) -> None:
        """Free more next to what is free, up to a size: on the same device, or then on the next."""
        for _ in range(4 * size):
            if self.size >= size or not self.free:
                return
            device = choice.choice(sorted(self.free))
            segment = self.free[device]
            if choice.random() < 0.5:
                self.include(device, segment.first - 1, segment.first + segment.number)
                continue
            other = device + choice.choice((-1, 1))
            if 0 <= other < len(self.cycles) and other not in self.free and self.cycles[other]:
                middle = self.cycles[device][
                    (segment.first + segment.number // 2) % len(self.cycles[device])
                ][0]
                near = self._position_at(other, self._start(middle))
                self.include(other, near - 1, near + 1)

    def include(self, device: int, low: int, high: int) -> None:
        """Free two positions of a device's cycle, and all between."""
        length = len(self.cycles[device])
        old = self.free.get(device, Segment(low % length, min(length, high - low + 1)))
        self.free[device] = old.with_positions(low, high, length)

    def _start(self, instance: Instance) -> int:
        name, n = instance
        return self.repetend.start[name][n]

    def _position_at(self, device: int, ticks: int) -> int:
        """Return the position of the block of a device that starts nearest to some tick of the period."""
        period = self.repetend.period
        away = [(self._start(instance) - ticks) % period for instance, _ in self.cycles[device]]
        return min(range(len(away)), key=lambda i: min(away[i], period - away[i]))

    def held_before(self, device: int) -> int:
        """Return what a device holds before the first block of its segment, without static memory."""
        repetend = self.repetend
        first, at = repetend.first_starts, self.around(device)[0][0]
        memory: Mapping[Instance, int] = {
            instance: repetend.placement.by_name[instance[0]].memory_on(device)
            for instance, _ in self.cycles[device]
        }
        rounds = {instance: (first[at] - first[instance]) // repetend.period for instance in memory}
        return sum(memory[instance] * rounds[instance] for instance in memory) - memory[at]


def order_anew(segments: Segments, period: int, budget: SolverBudget) -> Repetend | None:
    """Return a repetend of a period, or less, that differs in the order of the segments' blocks alone.

    Within a segment each pair of blocks is in one order or the other; what was before the segment stays
    before it. So everything is a job shop on the clock of round 0, in which a period that is given only
    shifts the constraints between rounds, and memory is that before the segment and a sum over the pairs.

    Returns:
        The repetend, with the least period of its order; None where the solver finds none.

    Raises:
        KeyboardInterrupt: The solver was interrupted from the keyboard.
    """
    repetend = segments.repetend
    placement, first = repetend.placement, repetend.first_starts
    model = CpSatModel()
    last = max(first.values()) + 4 * period
    start = {instance: model.new_int_var(0, last, f"start {instance}") for instance in first}
    for instance, ticks in first.items():
        model.add_hint(start[instance], ticks)
    everything = Variables(model, placement, start, first)
    for edge in segments.edges()[0]:
        if edge.source != edge.target:
            everything.wait(edge.source, edge.target, edge.ticks - edge.rounds * period)
    for device, segment in segments.free.items():
        here = segments.around(device)[: segment.number]
        free = Variables(
            model,
            placement,
            {instance: start[instance] + round_ * period for instance, round_ in here},
            {instance: first[instance] + round_ * repetend.period for instance, round_ in here},
            {device: segments.held_before(device)},
        )
        rules.run_one_at_a_time(free, device)
        for check in checks(placement, device):
            rules.count_memory(free, check)
    solver = within(budget)
    if solve(solver, model, budget.spend) is not Answer.YES:
        return None
    found = {instance: solver.value(variable) for instance, variable in start.items()}
    return Repetend.from_first_starts(placement, repetend.micro_batches, period, found).with_least_period()
