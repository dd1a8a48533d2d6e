"""A batch on some replicas as arrays for `schedsearch.unequal.sequencing`, and its sequences as schedules."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from schedsearch.schedule import CyclicOrderError, Instance, Schedule, as_soon_as_possible, with_optimizer
from schedsearch.unequal.micro_batches import UnequalBatch
from schedsearch.unequal.replica_work import ReplicaWork
from schedsearch.validate import InvalidScheduleError, validate

if TYPE_CHECKING:
    from schedsearch.unequal.sequencing import Sequences

_NO_LIMIT = 2**62

_PART = 0.1
"""Units of work between two looks for a Ctrl-C."""

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


def anneal_in_parts(
    g: Sequences, work: float, seed: int, heat: float, across: bool = False
) -> Iterator[float]:
    """Change sequences for so many units of work, in parts; yield the work of each before it is done.

    Args:
        g: Sequences; the best are left in them.
        work: Units, each of about a second.
        seed: Seed of the random choices.
        heat: Share of the value by which a step may be worse at first, on average.
        across: Whether micro-batches may go to other replicas.
    """
    from schedsearch.unequal.sequencing import anneal_sequences

    work_of_step = 1.5 * g.times[0].size / len(g.times) * _WORK_OF_BLOCK
    total, part = max(1, round(work / work_of_step)), max(1, round(_PART / work_of_step))
    scale = 2 * float(g.times.mean())
    for i, done in enumerate(range(0, total, part)):
        steps = min(part, total - done)
        yield steps * work_of_step
        anneal_sequences(g, steps, heat * (1 - done / total), heat / total, seed + i, scale, across)


def order_of(g: Sequences, replica: int) -> tuple[int, ...]:
    """Return the micro-batches of a replica in their sequence."""
    return tuple(g.order[replica, : g.size[replica]].tolist())


def schedule_of(g: Sequences, replica: int, work: ReplicaWork) -> Schedule | None:
    """Return the schedule of a replica, whose micro-batches are numbered by their places in its sequence.

    None where idle devices come to a standstill.
    """
    from schedsearch.unequal.sequencing import run_of

    numbers, kinds = order_of(g, replica), work.times.shape[1]
    ran = np.zeros((kinds * len(numbers), 2), np.int64)
    ends = np.zeros((kinds, len(numbers)))
    if not np.isfinite(run_of(g, replica, ends, ran, 0, np.inf)):
        return None
    return made(work.part(replica, numbers), [(work.names[kind], place) for kind, place in ran.tolist()])


def made(batch: UnequalBatch, order: Sequence[Instance]) -> Schedule | None:
    """Return the schedule of a batch whose blocks start in an order; None where that is not valid."""
    placement = batch.placement
    each = placement.per_micro_batch
    runs = [placement.as_run(chosen).by_name for chosen in batch.chosen]
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    for name, number in order:
        if not runs or name in runs[number]:
            for device in placement.by_name[name].devices:
                orders[device].append((name, number))
    try:
        found = as_soon_as_possible(each, batch.num_micro_batches, orders, batch.chosen)
        return validate(with_optimizer(placement, found))
    except (CyclicOrderError, InvalidScheduleError):
        return None
