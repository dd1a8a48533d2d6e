"""A schedule: the start of every block of every micro-batch, for a fixed number of micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from placements import Placement


class ScheduledBlock(NamedTuple):
    """One block of one micro-batch at its start.

    Attributes:
        start: Ticks from the begin of the iteration; at least 0.
        micro_batch: ``0 .. num_micro_batches - 1``.
        block: The block's name in the placement.
    """

    start: int
    micro_batch: int
    block: str


Instance = tuple[str, int]
"""A block of one micro-batch: (block name, micro-batch)."""


@dataclass(frozen=True)
class Schedule:
    """An answer for a fixed number of micro-batches; see `schedsearch.validate.validate` for its rules.

    Attributes:
        placement: What runs where.
        num_micro_batches: How many micro-batches the schedule runs.
        blocks: Every block of every micro-batch, by increasing start, then micro-batch and name.
    """

    placement: Placement
    num_micro_batches: int
    blocks: tuple[ScheduledBlock, ...]

    def __post_init__(self) -> None:
        """Sort the blocks, so that equal schedules compare equal."""
        object.__setattr__(self, "blocks", tuple(sorted(ScheduledBlock(*block) for block in self.blocks)))

    @cached_property
    def start_of(self) -> Mapping[Instance, int]:
        """Map (block, micro-batch) to its start in ticks."""
        return {(block.block, block.micro_batch): block.start for block in self.blocks}

    @cached_property
    def makespan(self) -> int:
        """End of the last block in ticks."""
        by_name = self.placement.by_name
        return max((start + by_name[block].time for start, _, block in self.blocks), default=0)

    def order(self, device: int) -> tuple[Instance, ...]:
        """Return the (block, micro-batch) pairs that run on a device, in the order in which they start."""
        return self._orders[device]

    @cached_property
    def _orders(self) -> tuple[tuple[Instance, ...], ...]:
        orders: list[list[Instance]] = [[] for _ in range(self.placement.num_devices)]
        for _, micro_batch, name in self.blocks:
            for device in self.placement.by_name[name].devices:
                orders[device].append((name, micro_batch))
        return tuple(tuple(order) for order in orders)


class DeadlockError(ValueError):
    """The blocks wait for each other in a cycle, so no start times exist."""


def as_soon_as_possible(
    placement: Placement, num_micro_batches: int, orders: Sequence[Iterable[Instance]]
) -> Schedule:
    """Return the schedule that keeps each device's order and starts every block as soon as it can.

    Args:
        placement: What runs where.
        num_micro_batches: How many micro-batches the orders hold.
        orders: For each device the (block, micro-batch) pairs in the order in which it runs them.

    Raises:
        DeadlockError: The orders and the dependencies make a cycle.
    """
    waiting_for: dict[Instance, int] = {}
    next_on_device: dict[Instance, list[Instance]] = {}
    for micro_batch in range(num_micro_batches):
        for block in placement.blocks:
            waiting_for[block.name, micro_batch] = len(block.after)
    for order in orders:
        previous: Instance | None = None
        for instance in order:
            if previous is not None:
                next_on_device.setdefault(previous, []).append(instance)
                waiting_for[instance] += 1
            previous = instance
    start = dict.fromkeys(waiting_for, 0)
    ready = [instance for instance, count in waiting_for.items() if count == 0]
    done = 0
    while ready:
        name, micro_batch = instance = ready.pop()
        done += 1
        end = start[instance] + placement.by_name[name].time
        followers = [((f, micro_batch), placement.transfer_time(name, f)) for f in placement.successors[name]]
        followers += [(follower, 0) for follower in next_on_device.get(instance, [])]
        for follower, transfer in followers:
            start[follower] = max(start[follower], end + transfer)
            waiting_for[follower] -= 1
            if waiting_for[follower] == 0:
                ready.append(follower)
    if done < len(start):
        stuck = [f"{name} of micro-batch {n}" for (name, n), count in waiting_for.items() if count > 0]
        raise DeadlockError(
            f"{', '.join(stuck[:4])} wait for each other; the orders of the devices make a cycle"
        )
    blocks = (ScheduledBlock(ticks, micro_batch, name) for (name, micro_batch), ticks in start.items())
    return Schedule(placement, num_micro_batches, tuple(blocks))
