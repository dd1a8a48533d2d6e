"""A batch on some replicas as arrays for `schedsearch.unequal.sequencing`, and its sequences as schedules."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from schedsearch.robust.annealing import annealed
from schedsearch.schedule import CyclicOrderError, Instance, Schedule, as_soon_as_possible, with_optimizer
from schedsearch.solver.effort import Effort
from schedsearch.unequal.micro_batches import UnequalBatch
from schedsearch.unequal.replica_work import ReplicaSchedules, ReplicaWork
from schedsearch.validate import InvalidScheduleError, validate

if TYPE_CHECKING:
    from schedsearch.unequal.sequencing import Sequences

_NO_LIMIT = 2**62

_WORK_OF_BLOCK = 3.0e-8
"""Units of work for a block in a step of the changes."""


def sequences_of(work: ReplicaWork, order: Sequence[Sequence[int]], span: bool = False) -> Sequences:
    """Return micro-batches in a sequence on each replica.

    Args:
        work: The micro-batches.
        order: The micro-batches of each replica in its sequence.
        span: As of `Sequences`.
    """
    from schedsearch.unequal.sequencing import Sequences  # loads numba, which is slow

    placement, names = work.placement, work.names
    devices, number = range(placement.num_devices), work.num_micro_batches
    kind_of = {name: i for i, name in enumerate(names)}
    delay = {(a, b): float(ticks) for a, b, ticks in placement.transfer}
    blocks = [placement.by_name[name] for name in names]
    inputs = [[each for each in block.after if each in kind_of] for block in blocks]
    outputs = [[later for later in names if name in placement.by_name[later].after] for name in names]
    times = work.times.astype(np.float64)
    tails = times.copy()
    for kind, later in ((k, later) for k in reversed(range(len(names))) for later in outputs[k]):
        through = times[:, kind] + delay.get((names[kind], later), 0.0) + tails[:, kind_of[later]]
        tails[:, kind] = np.maximum(tails[:, kind], through)
    table = np.full((len(times), number), -1, np.int64)
    for replica, own in enumerate(order):
        table[replica, : len(own)] = own
    return Sequences(
        times,
        work.memory,
        work.transient,
        tails,
        np.array(placement.free_memory or (_NO_LIMIT,) * len(devices), dtype=np.int64),
        np.array([block.devices[0] for block in blocks], dtype=np.int64),
        *_flat([[i for i, block in enumerate(blocks) if block.devices[0] == own] for own in devices]),
        *_flat([[kind_of[each] for each in own] for own in inputs]),
        np.array([delay.get((a, name), 0.0) for own, name in zip(inputs, names, strict=True) for a in own]),
        *_flat([[kind_of[each] for each in own] for own in outputs]),
        table,
        np.array([len(own) for own in order], dtype=np.int64),
        np.zeros(len(names)),
        work.weights,
        np.full(len(times), work.room),
        span,
    )


def _flat(lists: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each list begins and where the last ends, and all in a row."""
    return (
        np.cumsum([0, *map(len, lists)]).astype(np.int64),
        np.array(list(itertools.chain(*lists)), dtype=np.int64),
    )


def ticks_of(g: Sequences) -> float:
    """Return the ticks of the slowest replica; infinite where idle devices come to a standstill."""
    return max(_run(g, replica)[0] for replica in range(len(g.times)))


def _run(g: Sequences, replica: int) -> tuple[float, NDArray[np.int64]]:
    """Return the ticks of a replica, and its kinds and places in the order in which they start."""
    from schedsearch.unequal.sequencing import run_of  # loads numba, which is slow

    kinds, number = g.times.shape[1], int(g.size[replica])
    ran = np.zeros((kinds * number, 2), np.int64)
    return run_of(g, replica, np.zeros((kinds, number)), ran, 0, np.inf), ran


def resequenced(
    g: Sequences, effort: Effort, *, work: float, heat: float, seed: int, across: bool
) -> Iterator[float]:
    """Change sequences for so much work in parts; see `schedsearch.robust.annealing.annealed`.

    Args:
        g: Sequences; the best are left in them.
        effort: Counts the work, and says when to stop.
        work: Units of work.
        heat: Share of the value by which a step may be worse at first, on average.
        seed: Seed of the random choices.
        across: Whether micro-batches may go to other replicas.
    """
    from schedsearch.unequal.sequencing import anneal_sequences

    def take(steps: int, heat: float, cooling: float, seed: int) -> float:
        return anneal_sequences(g, steps, heat, cooling, seed, 2 * float(g.times.mean()), across)

    work_of_step = 1.5 * g.times[0].size / len(g.times) * _WORK_OF_BLOCK
    return annealed(take, effort, work=work, work_of_step=work_of_step, heat=heat, seed=seed)


def schedules_of(g: Sequences, work: ReplicaWork) -> ReplicaSchedules | None:
    """Return the schedules of all replicas, whose micro-batches are numbered by their places in its sequence.

    None where idle devices come to a standstill.
    """
    assigned, schedules = [], []
    for replica, size in enumerate(g.size):
        assigned.append(tuple(g.order[replica, :size].tolist()))
        ticks, ran = _run(g, replica)
        batch = work.part(replica, assigned[-1])
        schedules.append(None if math.isinf(ticks) or not size else _made(batch, ran, work.names))
        if size and schedules[-1] is None:
            return None
    return ReplicaSchedules(tuple(assigned), tuple(schedules))


def _made(batch: UnequalBatch, ran: NDArray[np.int64], names: Sequence[str]) -> Schedule | None:
    """Return the schedule of a batch whose kinds and places start in an order; None if that is not valid."""
    placement = batch.placement
    runs = [placement.as_run(chosen).by_name for chosen in batch.chosen]
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    for kind, place in ran.tolist():
        if not runs or names[kind] in runs[place]:
            orders[placement.by_name[names[kind]].devices[0]].append((names[kind], place))
    try:
        each = placement.per_micro_batch
        found = as_soon_as_possible(each, batch.num_micro_batches, orders, batch.chosen)
        return validate(with_optimizer(placement, found))
    except (CyclicOrderError, InvalidScheduleError):
        return None
