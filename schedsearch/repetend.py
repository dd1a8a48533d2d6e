"""A repetend: the pattern of blocks that repeats every period, and its extension to any number of rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placements import Placement
from schedsearch.schedule import Instance, Schedule, ScheduledBlock, as_soon_as_possible


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
        modulo_stage: Likewise, how many rounds further on the block runs; the least is 0.
    """

    placement: Placement
    micro_batches: int
    period: int
    start: Mapping[str, tuple[int, ...]]
    modulo_stage: Mapping[str, tuple[int, ...]]

    @classmethod
    def from_first_starts(
        cls, placement: Placement, micro_batches: int, period: int, first: Mapping[Instance, int]
    ) -> Repetend:
        """Build a repetend from the starts of the blocks of round 0 on a common clock.

        Args:
            placement: What runs where.
            micro_batches: Micro-batches per repetend.
            period: Ticks.
            first: For each (block, micro-batch of the repetend) its start in ticks, of any sign.
        """
        origin = min(first.values())
        rounds = {instance: divmod(ticks - origin, period) for instance, ticks in first.items()}
        last = max(round_ for round_, _ in rounds.values())
        numbers = range(micro_batches)
        names = [block.name for block in placement.blocks]
        return cls(
            placement,
            micro_batches,
            period,
            start={name: tuple(rounds[name, n][1] for n in numbers) for name in names},
            modulo_stage={name: tuple(last - rounds[name, n][0] for n in numbers) for name in names},
        )

    @cached_property
    def in_flight(self) -> int:
        """How many rounds of micro-batches one repetend spans (Tessel's N_R when `micro_batches` is 1)."""
        return 1 + max(max(modulo_stage) for modulo_stage in self.modulo_stage.values())

    @property
    def period_per_micro_batch(self) -> float:
        """Ticks per micro-batch in the steady state."""
        return self.period / self.micro_batches

    @property
    def bubble_rate(self) -> float:
        """Idle share of the steady state (Tessel, Table II)."""
        placement = self.placement
        work = self.micro_batches * sum(placement.load(device) for device in range(placement.num_devices))
        return 1 - work / (placement.num_devices * self.period)

    @cached_property
    def first_starts(self) -> Mapping[Instance, int]:
        """Starts in round 0 of each (block, micro-batch of the repetend), in ticks; at least 0."""
        return {
            (name, n): (self.in_flight - 1 - self.modulo_stage[name][n]) * self.period + self.start[name][n]
            for name in self.start
            for n in range(self.micro_batches)
        }

    @cached_property
    def span(self) -> int:
        """Ticks from the first start to the last end of one round's micro-batches."""
        by_name = self.placement.by_name
        end = max(ticks + by_name[name].time for (name, _), ticks in self.first_starts.items())
        return end - min(self.first_starts.values())

    @cached_property
    def latency(self) -> int:
        """Ticks from the first start to the last end of the micro-batch for which that is longest."""
        by_name = self.placement.by_name
        longest = 0
        for n in range(self.micro_batches):
            starts = {name: self.first_starts[name, n] for name in self.start}
            end = max(start + by_name[name].time for name, start in starts.items())
            longest = max(longest, end - min(starts.values()))
        return longest

    @cached_property
    def peak_memory(self) -> tuple[int, ...]:
        """The most that each device holds in the steady state; shape ``(num_devices,)``."""
        peaks = []
        for device in range(self.placement.num_devices):
            blocks = self.placement.on(device)
            here = [
                (block, self.first_starts[block.name, i])
                for block in blocks
                for i in range(self.micro_batches)
            ]
            held = [
                sum(other.memory_on(device) * ((start - earlier) // self.period) for other, earlier in here)
                + block.transient
                for block, start in here
            ]
            peaks.append(self.placement.static[device] + max(held, default=0))
        return tuple(peaks)

    def repeated(self, times: int) -> Repetend:
        """Return the same steady state written as a repetend of so many times the micro-batches."""
        first = {
            (name, n + i * self.micro_batches): start + i * self.period
            for (name, n), start in self.first_starts.items()
            for i in range(times)
        }
        return Repetend.from_first_starts(
            self.placement, times * self.micro_batches, times * self.period, first
        )

    def at_initiation_interval(self, num_micro_batches: int) -> Schedule:
        """Return the schedule in which every block runs once per period, exactly as in the repetend."""
        origin = min(self.first_starts.values())
        blocks = []
        for (name, n), ticks in self.first_starts.items():
            for micro_batch in range(n, num_micro_batches, self.micro_batches):
                start = ticks - origin + micro_batch // self.micro_batches * self.period
                blocks.append(ScheduledBlock(start, micro_batch, name))
        return Schedule(self.placement, num_micro_batches, tuple(blocks))

    def unroll(self, num_micro_batches: int) -> Schedule:
        """Return the schedule of any number of micro-batches: the order of the repetend, as early as can be.

        Starting every block as soon as its device's order and its inputs allow is never later than at the
        repetend's initiation interval. The memory of a device depends on its order alone, so it is that of
        the steady state, less what the micro-batches before the first and after the last would hold; that is
        never negative for placements that pass `schedsearch.bounds.memory_need.require_capacity`.
        """
        steady = self.at_initiation_interval(num_micro_batches)
        orders = [steady.order(device) for device in range(self.placement.num_devices)]
        return as_soon_as_possible(self.placement, num_micro_batches, orders)

    def with_least_period(self, shortest: int = 1) -> Repetend:
        """Return the repetend of the same order on every device that has the shortest period and least span.

        In that order every block of round 0 starts at the earliest of a system of difference constraints;
        the shortest period is the greatest ratio of time to rounds over the cycles of its graph, found by
        bisection over Bellman-Ford.

        Args:
            shortest: A lower bound on the period in ticks.
        """
        system = _DifferenceSystem(self)
        low, high = min(max(shortest, system.longest_block), self.period), self.period
        while low < high:
            middle = (low + high) // 2
            if system.earliest(middle) is None:
                low = middle + 1
            else:
                high = middle
        starts = system.earliest(high)
        assert starts is not None, "a repetend keeps its own order"
        return Repetend.from_first_starts(self.placement, self.micro_batches, high, starts)


class _DifferenceSystem:
    """The constraints ``start[b] >= start[a] + ticks - rounds * period`` between the blocks of round 0."""

    def __init__(self, repetend: Repetend) -> None:
        placement = repetend.placement
        self.instances = list(repetend.first_starts)
        index = {instance: i for i, instance in enumerate(self.instances)}
        edges: list[tuple[int, int, int, int]] = []
        for block in placement.blocks:
            for name in block.after:
                ticks = placement.by_name[name].time + placement.transfer_time(name, block.name)
                for n in range(repetend.micro_batches):
                    edges.append((index[name, n], index[block.name, n], ticks, 0))
        for device in range(placement.num_devices):
            edges += _cycle_of_device(repetend, device, index)
        self.source, self.target, self.ticks, self.rounds = np.array(
            edges or [(0, 0, 0, 0)], dtype=np.int64
        ).T
        self.longest_block = max(block.time for block in placement.blocks)

    def earliest(self, period: int) -> dict[Instance, int] | None:
        """Return the earliest starts from 0 on at a period, or None where there are none."""
        starts = np.zeros(len(self.instances), dtype=np.int64)
        weights = self.ticks - self.rounds * period
        for _ in range(len(self.instances) + 1):
            pushed = starts.copy()
            np.maximum.at(pushed, self.target, starts[self.source] + weights)
            if np.array_equal(pushed, starts):
                return {instance: int(start) for instance, start in zip(self.instances, starts, strict=True)}
            starts = pushed
        return None


def _cycle_of_device(
    repetend: Repetend, device: int, index: Mapping[Instance, int]
) -> list[tuple[int, int, int, int]]:
    """Return the order of a device's blocks within one period as a closed chain of constraints."""
    placement = repetend.placement
    around = sorted(
        (
            repetend.start[block.name][n],
            repetend.first_starts[block.name, n] // repetend.period,
            block.name,
            n,
        )
        for block in placement.on(device)
        for n in range(repetend.micro_batches)
    )
    edges = []
    for i, (_, round_, name, n) in enumerate(around):
        _, next_round, next_name, next_n = around[(i + 1) % len(around)]
        wraps = 1 if i + 1 == len(around) else 0
        time = placement.by_name[name].time
        edges.append((index[name, n], index[next_name, next_n], time, round_ - next_round + wraps))
    return edges
