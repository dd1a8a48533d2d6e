"""A batch on some replicas as arrays for `schedsearch.unequal.sequencing`, and its sequences as schedules."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from schedsearch.core.problem import Problem
from schedsearch.robust.annealing import annealed
from schedsearch.schedule import Instance, Schedule
from schedsearch.solver.effort import Effort
from schedsearch.unequal.replica_work import ReplicaSchedules, ReplicaWork
from schedsearch.unequal.starts import executed

if TYPE_CHECKING:
    from schedsearch.unequal.sequencing import Sequences

_NO_LIMIT = 2**62

_WORK_OF_BLOCK = 3.0e-8
"""Units of work for a block in a step of the changes."""


def sequences_of(work: ReplicaWork, order: Sequence[Sequence[int]], span: bool = False) -> Sequences:
    """Return the micro-batches of each replica in a sequence."""
    from schedsearch.unequal.sequencing import Sequences  # loads numba, which is slow

    placement, names, devices = work.placement, work.names, range(work.placement.num_devices)
    kind_of = {name: i for i, name in enumerate(names)}
    delay = {(a, b): float(ticks) for a, b, ticks in placement.transfer}
    device = [placement.by_name[name].devices[0] for name in names]
    inputs = [[source for source in placement.by_name[name].after if source in kind_of] for name in names]
    outputs = [[later for later in names if name in placement.by_name[later].after] for name in names]
    times = work.times.astype(np.float64)
    tails = times.copy()
    for kind, later in ((k, later) for k in reversed(range(len(names))) for later in outputs[k]):
        through = times[:, kind] + delay.get((names[kind], later), 0.0) + tails[:, kind_of[later]]
        tails[:, kind] = np.maximum(tails[:, kind], through)
    table = np.full((len(times), work.num_micro_batches), -1, np.int64)
    for replica, sequence in enumerate(order):
        table[replica, : len(sequence)] = sequence
    return Sequences(
        times,
        work.memory,
        work.transient,
        tails,
        np.array(placement.free_memory or (_NO_LIMIT,) * len(devices), dtype=np.int64),
        np.array(device, dtype=np.int64),
        *_flat([[kind for kind, where in enumerate(device) if where == d] for d in devices]),
        *_flat([[kind_of[source] for source in sources] for sources in inputs]),
        np.array([delay.get((a, b), 0.0) for before, b in zip(inputs, names, strict=True) for a in before]),
        *_flat([[kind_of[target] for target in targets] for targets in outputs]),
        table,
        np.array([len(sequence) for sequence in order], dtype=np.int64),
        np.zeros(len(names)),
        work.most,
        span,
    )


def _flat(lists: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the offsets of the lists in their concatenation, with its length last, and the concatenation."""
    return (
        np.cumsum([0, *map(len, lists)]).astype(np.int64),
        np.array(list(itertools.chain(*lists)), dtype=np.int64),
    )


def ticks_of(g: Sequences) -> float:
    """Return the ticks of the slowest replica; infinite if idle devices deadlock."""
    return max(_run(g, replica)[0] for replica in range(len(g.times)))


def _run(g: Sequences, replica: int) -> tuple[float, NDArray[np.int64]]:
    """Return the ticks of a replica, and its blocks as (kind, place) rows in the order of their starts."""
    from schedsearch.unequal.sequencing import run_of  # loads numba, which is slow

    kinds, number = g.times.shape[1], int(g.size[replica])
    ran = np.zeros((kinds * number, 2), np.int64)
    return run_of(g, replica, np.zeros((kinds, number)), ran, 0, np.inf), ran


def resequenced(
    g: Sequences, effort: Effort, *, work: float, heat: float, seed: int, across: bool
) -> Iterator[float]:
    """Anneal sequences in parts of counted work, and leave the best ones in the arrays.

    Micro-batches go to other replicas too if `across`; see `schedsearch.robust.annealing.annealed`.
    """
    from schedsearch.unequal.sequencing import anneal_sequences

    def take(steps: int, heat: float, cooling: float, seed: int) -> float:
        return anneal_sequences(g, steps, heat, cooling, seed, 2 * float(g.times.mean()), across)

    work_of_step = 1.5 * g.times[0].size / len(g.times) * _WORK_OF_BLOCK
    return annealed(take, effort, work=work, work_of_step=work_of_step, heat=heat, seed=seed)


def schedules_of(g: Sequences, work: ReplicaWork) -> ReplicaSchedules | None:
    """Return the schedules of all replicas, with micro-batches numbered by their places in the sequences.

    None where idle devices come to a standstill.
    """
    assigned = tuple(tuple(order[:size].tolist()) for order, size in zip(g.order, g.size, strict=True))
    schedules: list[Schedule | None] = [None] * len(assigned)
    for replica, numbers in enumerate(assigned):
        if numbers:
            ticks, ran = _run(g, replica)
            if math.isinf(ticks):
                return None
            schedules[replica] = _made(work.part(replica, numbers), ran, work.names)
            if schedules[replica] is None:
                return None
    return ReplicaSchedules(assigned, tuple(schedules))


def _made(batch: Problem, ran: NDArray[np.int64], names: Sequence[str]) -> Schedule | None:
    """Return a batch's schedule with a given order of starts of (kind, place) rows; None if not valid."""
    orders: list[list[Instance]] = [[] for _ in range(batch.placement.num_devices)]
    for kind, place in ran.tolist():
        orders[batch.placement.by_name[names[kind]].devices[0]].append((names[kind], place))
    return executed(batch, orders, range(batch.num_micro_batches))
