"""A repetend: the pattern of blocks that repeats every period, and its extension to any number of rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placements import Block, Placement
from placements.modes import Chosen
from schedsearch.graph import Edge, numbered
from schedsearch.memory_order import Run, memory_edges
from schedsearch.schedule import Instance, Schedule, ScheduledBlock, as_soon_as_possible

Cycle = Sequence[tuple[Instance, int]]
"""The order of a lane in one period: (block, micro-batch of the repetend), each with its round.

The rounds of one period count from any number, on all devices from the same.
"""


@dataclass(frozen=True)
class Repetend:
    """The steady state of a schedule (Tessel, Sec. III-C), as a modulo schedule.

    Micro-batch ``n`` is number ``n % micro_batches`` of round ``n // micro_batches``. In the round that
    runs the blocks of `modulo_stage` 0 of its own micro-batches, every other block runs `modulo_stage` rounds
    of micro-batches further on; compilers call the repetend a kernel and the period an initiation interval.

    Attributes:
        placement: What runs where.
        micro_batches: Micro-batches per repetend (1 in Tessel).
        period: Ticks from one repetend to the next.
        start: For each block, for each micro-batch of the repetend, ticks within the period;
            ``0 <= start < period``.
        modulo_stage: Likewise, the rounds further on in which the block runs; the least is 0.
        chosen: For each micro-batch of the repetend the choice of each decision of the placement; empty where
            it has none. A block that a mode leaves out has a start nevertheless, which says nothing.
    """

    placement: Placement
    micro_batches: int
    period: int
    start: Mapping[str, tuple[int, ...]]
    modulo_stage: Mapping[str, tuple[int, ...]]
    chosen: tuple[Chosen, ...] = ()

    @classmethod
    def from_first_starts(
        cls,
        placement: Placement,
        micro_batches: int,
        period: int,
        first: Mapping[Instance, int],
        chosen: tuple[Chosen, ...] = (),
    ) -> Repetend:
        """Build a repetend from the starts of the blocks of round 0 on a common clock, in ticks of any sign.

        Starts of those (block, micro-batch of the repetend) that a mode leaves out may be missing.
        """
        origin = min(first.values())
        rounds = {instance: divmod(ticks - origin, period) for instance, ticks in first.items()}
        last = max(round_ for round_, _ in rounds.values())
        numbers, missing = range(micro_batches), (last, 0)
        names = [block.name for block in placement.blocks]
        return cls(
            placement,
            micro_batches,
            period,
            start={name: tuple(rounds.get((name, n), missing)[1] for n in numbers) for name in names},
            modulo_stage={
                name: tuple(last - rounds.get((name, n), missing)[0] for n in numbers) for name in names
            },
            chosen=chosen,
        )

    @cached_property
    def in_flight(self) -> int:
        """Rounds of micro-batches that one repetend spans (Tessel's N_R when `micro_batches` is 1)."""
        return 1 + max(max(modulo_stage) for modulo_stage in self.modulo_stage.values())

    @property
    def period_per_micro_batch(self) -> float:
        """Ticks per micro-batch in the steady state."""
        return self.period / self.micro_batches

    @property
    def bubble_rate(self) -> float:
        """Idle share of the steady state (Tessel, Table II)."""
        placement = self.placement
        work = sum(
            self.as_run(n).load(device)
            for n in range(self.micro_batches)
            for device in range(placement.num_devices)
        )
        return 1 - work / (placement.num_devices * self.period)

    def as_run(self, micro_batch: int) -> Placement:
        """Return the placement with the decisions of one micro-batch of the repetend taken."""
        return self.placement.as_run(self.chosen[micro_batch]) if self.chosen else self.placement

    @cached_property
    def blocks(self) -> Mapping[Instance, Block]:
        """The block, in its chosen mode, of every (name, micro-batch of the repetend) that runs."""
        as_run = [self.as_run(n).by_name for n in range(self.micro_batches)]
        return {(name, n): run[name] for name in self.start for n, run in enumerate(as_run) if name in run}

    @cached_property
    def first_starts(self) -> Mapping[Instance, int]:
        """Starts in round 0 of each (block, micro-batch of the repetend), in ticks; at least 0."""
        return {
            (name, n): (self.in_flight - 1 - self.modulo_stage[name][n]) * self.period + self.start[name][n]
            for name, n in self.blocks
        }

    @cached_property
    def span(self) -> int:
        """Ticks from the first start to the last end of one round's micro-batches."""
        end = max(ticks + self.blocks[instance].time for instance, ticks in self.first_starts.items())
        return end - min(self.first_starts.values())

    @cached_property
    def latency(self) -> int:
        """Longest ticks from the first start to the last end of one micro-batch."""
        longest = 0
        for n in range(self.micro_batches):
            starts = {block: self.first_starts[block.name, n] for block in self.as_run(n).blocks}
            end = max(start + block.time for block, start in starts.items())
            longest = max(longest, end - min(starts.values()))
        return longest

    @cached_property
    def peak_memory(self) -> tuple[int, ...]:
        """Peak memory of each device in the steady state; shape ``(num_devices,)``."""
        peaks = []
        for device in range(self.placement.num_devices):
            here = [(instance, block) for instance, block in self.blocks.items() if device in block.devices]
            starts = np.array([self.first_starts[instance] for instance, _ in here], dtype=np.int64)
            memory = np.array([block.memory_on(device) for _, block in here], dtype=np.int64)
            transient = np.array([block.transient for _, block in here], dtype=np.int64)
            begun = (starts[:, None] - starts) // self.period
            held = begun @ memory
            if len(self.placement.memory_streams[device]) > 1:  # others may be running, too
                ends = starts + np.array([block.time for _, block in here], dtype=np.int64)
                held += (begun - (starts[:, None] - ends) // self.period) @ transient
            else:
                held += transient
            peaks.append(self.placement.static[device] + int(held.max(initial=0)))
        return tuple(peaks)

    def repeated(self, times: int) -> Repetend:
        """Return the same steady state as a repetend with `times` times as many micro-batches."""
        first = {
            (name, n + i * self.micro_batches): start + i * self.period
            for (name, n), start in self.first_starts.items()
            for i in range(times)
        }
        return Repetend.from_first_starts(
            self.placement, times * self.micro_batches, times * self.period, first, self.chosen * times
        )

    def at_initiation_interval(self, num_micro_batches: int) -> Schedule:
        """Return the schedule in which every block runs once per period, exactly as in the repetend."""
        origin = min(self.first_starts.values())
        blocks = []
        for (name, n), ticks in self.first_starts.items():
            for micro_batch in range(n, num_micro_batches, self.micro_batches):
                start = ticks - origin + micro_batch // self.micro_batches * self.period
                blocks.append(ScheduledBlock(start, micro_batch, name))
        chosen = tuple(self.chosen[n % self.micro_batches] for n in range(num_micro_batches) if self.chosen)
        return Schedule(self.placement, num_micro_batches, tuple(blocks), chosen)

    def unroll(self, num_micro_batches: int) -> Schedule:
        """Return the schedule of any number of micro-batches in the repetend's order, as early as possible.

        Starting every block as soon as its device's order and its inputs allow is never later than at the
        repetend's initiation interval. The memory of a device depends on its order alone, so it is the memory
        of the steady state, less the memory of micro-batches before the first and after the last, which is
        never negative for placements that pass `schedsearch.proof.memory_need.require_capacity`.
        """
        steady = self.at_initiation_interval(num_micro_batches)
        return as_soon_as_possible(
            self.placement, num_micro_batches, steady.lane_orders, steady.chosen, steady.memory_waits
        )

    def with_min_period(self, shortest: int = 1) -> Repetend:
        """Return the repetend of the same order on every device that has the shortest period and least span.

        `shortest` is a lower bound on the period in ticks.
        """
        cycles = [self.cycle(lane) for lane in range(len(self.placement.lanes))]
        waits: list[Edge[Instance]] = []
        if self.placement.has_streams:
            runs = (Run(i, self.blocks[i], start) for i, start in self.first_starts.items())
            waits = list(memory_edges(self.placement, runs, self.period))
        repetend = Repetend.of_min_period(
            self.placement, self.micro_batches, cycles, shortest, self.period, self.chosen, waits
        )
        assert repetend is not None, "a repetend keeps its own order"
        return repetend

    @classmethod
    def of_min_period(
        cls,
        placement: Placement,
        micro_batches: int,
        cycles: Sequence[Cycle],
        shortest: int,
        longest: int,
        chosen: tuple[Chosen, ...] = (),
        waits: Sequence[Edge[Instance]] = (),
    ) -> Repetend | None:
        """Return the repetend of an order on every device that has the shortest period and least span.

        In that order every block of round 0 starts at the earliest of a system of difference constraints;
        the shortest period is the greatest ratio of time to rounds over the cycles of its graph.

        Args:
            placement: What runs where.
            micro_batches: Micro-batches per repetend.
            cycles: The course of each lane (a device with one stream) in one period.
            shortest: A lower bound on the period in ticks.
            longest: A period that the orders can keep, if any.
            chosen: The choices of each micro-batch.
            waits: Further edges, such as waits between streams that share a memory.

        Returns:
            The repetend; None where the orders make a circle, or need a longer period.
        """
        as_run = [placement.as_run(modes) for modes in chosen] or [placement] * micro_batches
        edges = input_edges(as_run)
        for cycle in cycles:
            edges += order_edges(as_run, cycle)
        instances, system = numbered([*edges, *waits])
        longest_block = max(block.time for plain in as_run for block in plain.blocks)
        solution = system.min_period(min(max(shortest, longest_block), longest), longest)
        if solution is None:
            return None
        period, ticks = solution
        starts = dict(zip(instances, ticks, strict=True))
        every = {(block.name, n): 0 for n, plain in enumerate(as_run) for block in plain.blocks}
        return cls.from_first_starts(placement, micro_batches, period, every | starts, chosen)

    def cycle(self, lane: int) -> Cycle:
        """Return the instances of a lane in one period, in order, each with its round."""
        around = sorted(
            (self.start[name][n], self.modulo_stage[name][n], name, n)
            for (name, n), block in self.blocks.items()
            if lane in self.placement.lanes_of(block)
        )
        return [((name, n), round_) for _, round_, name, n in around]


def input_edges(as_run: Sequence[Placement]) -> list[Edge[Instance]]:
    """Return the edges from each block's inputs to the block, for a repetend's micro-batches as they run."""
    edges_of: dict[str, list[tuple[int, int, Edge[Instance]]]] = {}
    for n, plain in enumerate(as_run):
        for block in plain.blocks:
            edges = edges_of.setdefault(block.name, [])
            for i, name in enumerate(block.after):
                ticks = plain.by_name[name].time + plain.transfer_time(name, block.name)
                edges.append((i, n, Edge((name, n), (block.name, n), ticks, 0)))
    return [edge for edges in edges_of.values() for _, _, edge in sorted(edges)]


def order_edges(as_run: Sequence[Placement], cycle: Cycle) -> list[Edge[Instance]]:
    """Return the edges that make a device run its blocks in the order of a cycle, period after period."""
    edges = []
    for i, (instance, round_) in enumerate(cycle):
        following, next_round = cycle[(i + 1) % len(cycle)]
        rounds = next_round - round_ + (i + 1 == len(cycle))
        edges.append(Edge(instance, following, as_run[instance[1]].by_name[instance[0]].time, rounds))
    return edges
