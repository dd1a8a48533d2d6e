"""The micro-batches of one batch on data-parallel replicas: times and memory, and schedules of replicas.

Knows no search. One pipeline is one replica.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placements import Block, Kind, Placement
from schedsearch.core.objective import FINITE, Objective
from schedsearch.core.problem import Problem
from schedsearch.schedule import Schedule
from schedsearch.unequal.micro_batches import MicroBatchError


@dataclass(frozen=True, eq=False)
class ReplicaWork:
    """Ticks and memory of each block of each micro-batch, by replica.

    Attributes:
        placement: Placement of one replica; with several replicas, each block is on one device.
        times: Ticks; 0 if a block does not run; shape ``(replicas, blocks, number)``. Blocks are in
            topological order.
        memory: Units that each block allocates or, below 0, releases; shape ``(blocks, number)``.
        transient: Units that each block needs only while it runs; same shape.
        part: Returns the batch of some micro-batches on a replica, by the replica and their numbers.
        most: Most micro-batches of one replica.
    """

    placement: Placement
    times: NDArray[np.int64]
    memory: NDArray[np.int64]
    transient: NDArray[np.int64]
    part: Callable[[int, Sequence[int]], Problem]
    most: float = float("inf")

    @property
    def num_replicas(self) -> int:
        """Number of replicas."""
        return len(self.times)

    @property
    def num_micro_batches(self) -> int:
        """Number of micro-batches, over all replicas."""
        return int(self.times.shape[2])

    @property
    def names(self) -> list[str]:
        """The blocks of a micro-batch, in topological order."""
        return [block.name for block in self.placement.per_micro_batch.topological_order]


@dataclass(frozen=True)
class ReplicaSchedules:
    """A schedule for each replica.

    Attributes:
        assigned: The micro-batches of each replica, as they are numbered in its schedule.
        schedules: One for each replica; None for a replica without micro-batches.
    """

    assigned: tuple[tuple[int, ...], ...]
    schedules: tuple[Schedule | None, ...]

    def values(self, objective: Objective) -> list[int]:
        """Return the objective of each replica in ticks; -1 for a replica without micro-batches."""
        return [-1 if schedule is None else FINITE[objective].value(schedule) for schedule in self.schedules]

    def value(self, objective: Objective) -> int:
        """Return the objective of the slowest replica in ticks."""
        return max(self.values(objective))

    def of_slowest(self, objective: Objective) -> Schedule:
        """Return the schedule of the slowest replica."""
        values = self.values(objective)
        schedule = self.schedules[values.index(max(values))]
        assert schedule is not None, "it has micro-batches"
        return schedule


def replica_work(batch: Problem, num_replicas: int, max_micro_batches: int | None = None) -> ReplicaWork:
    """Return the micro-batches of a batch on replicas that are alike.

    Args:
        batch: All micro-batches.
        num_replicas: At least 1.
        max_micro_batches: Most micro-batches of a replica; None for no limit.

    Raises:
        MicroBatchError: A block is on several devices, or the replicas cannot have all micro-batches.
    """
    placement, number = batch.placement, batch.num_micro_batches
    shared = next((block for block in placement.blocks if len(block.devices) > 1), None)
    if num_replicas > 1 and shared is not None:
        raise MicroBatchError(
            f"search.replicas: block {shared.name} is on {len(shared.devices)} devices; give placements "
            "whose blocks are on one each"
        )
    if max_micro_batches is not None and max_micro_batches * num_replicas < number:
        raise MicroBatchError(
            f"search.max_micro_batches: {num_replicas} replicas of {max_micro_batches} micro-batches cannot "
            f"have all {number}; give at least {-(-number // num_replicas)}"
        )
    runs = [placement.as_run(chosen) if chosen else placement for chosen in batch.chosen or ((),) * number]
    absent = Block("", Kind.F, (0,), 0)
    names = [block.name for block in placement.per_micro_batch.topological_order]
    rows = [[run.by_name.get(name, absent) for run in runs] for name in names]

    def table(figure: Callable[[Block], int]) -> NDArray[np.int64]:
        return np.array([[figure(block) for block in row] for row in rows], dtype=np.int64)

    def part(replica: int, numbers: Sequence[int]) -> Problem:
        chosen = tuple(batch.chosen[n] for n in numbers) if batch.chosen else ()
        return Problem(placement, len(numbers), chosen)

    times = np.repeat(table(lambda block: block.time)[None], num_replicas, axis=0)
    memory = table(lambda block: block.memory_on(block.devices[0]))
    most = float(max_micro_batches or "inf")
    return ReplicaWork(placement, times, memory, table(lambda b: b.transient), part, most)
