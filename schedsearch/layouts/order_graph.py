"""The orders of a schedule as a graph of events, timed for many layouts at once.

The orders of 1F1B and interleaved 1F1B do not depend on times: they are those of stages of one tick, where
the start of a block is its level. A layout is timed by going up the levels, many layouts side by side. A
longest path of one layout is a path of every other, and so bounds its time from below.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placements import Kind, Placement
from placements.stages.stage_chain import Stage, StageChain, place
from schedsearch.baselines import interleaved_one_f_one_b, one_f_one_b
from schedsearch.schedule import Instance, Schedule

Ints = NDArray[np.int64]
"""Whole numbers."""

_AT_ONCE = 4_000_000
"""Events, over all layouts, timed at once; 32 MB."""


@dataclass(frozen=True)
class OrderGraph:
    """Events of a schedule, by level.

    Times of layouts have shape ``(2 * num_stages + 1, layouts)``: ticks of the forward of each stage, then of
    the backward of each, then of a transfer between devices.

    Attributes:
        num_devices: Devices of the pipeline.
        num_stages: Stages on all of them.
        kinds: The row of times of each event; shape ``(events,)``.
        before: The event before it on its device; the number of events for none.
        inputs: The event whose output it takes, likewise.
        crosses: 1 where that is on another device.
        levels: First event of each level, and the number of events.
        held: For each device the numbers of micro-batches that it may hold of each of its chunks at once, the
            largest ones; shape ``(any, chunks)``.
    """

    num_devices: int
    num_stages: int
    kinds: Ints
    before: Ints
    inputs: Ints
    crosses: Ints
    levels: Ints
    held: tuple[Ints, ...]

    def _ends(self, times: Ints) -> Ints:
        """Return the end of each event, and a last row of zeros."""
        ends = np.zeros((len(self.kinds) + 1, times.shape[1]), np.int64)
        late = (self.crosses * times[-1, 0])[:, None]  # the same for all layouts
        for first, end in zip(self.levels[:-1], self.levels[1:], strict=True):
            ready = ends[self.inputs[first:end]] + late[first:end]
            ends[first:end] = np.maximum(ready, ends[self.before[first:end]]) + times[self.kinds[first:end]]
        return ends

    def makespans(self, times: Ints) -> Ints:
        """Return the ticks of an iteration of each layout."""
        step = max(1, _AT_ONCE // len(self.kinds))
        parts = range(0, times.shape[1], step)
        return np.concatenate([self._ends(times[:, i : i + step]).max(0) for i in parts])

    def longest_path(self, times: Ints) -> Ints:
        """Return a longest path of one layout: the number of its events by row of times."""
        ends = self._ends(times)[:, 0]
        counts, at = np.zeros(len(times), np.int64), int(ends.argmax())
        while at < len(self.kinds):
            counts[self.kinds[at]] += 1
            source = self.inputs[at]
            is_input = ends[source] + self.crosses[at] * times[-1, 0] >= ends[self.before[at]]
            counts[-1] += is_input and self.crosses[at]
            at = int(source if is_input else self.before[at])
        return counts


def graph_of(num_devices: int, num_chunks: int, num_micro_batches: int, group: int | None) -> OrderGraph:
    """Return the graph of 1F1B, or with several chunks of interleaved 1F1B.

    Raises:
        UnsuitablePlacementError: There are too few micro-batches, or they do not go with the group.
    """
    num_stages = num_devices * num_chunks
    chain = StageChain((Stage(1.0, 1.0),) * num_stages, num_devices)
    shape = "v_shape" if num_chunks == 1 else "loop_shape"
    placement = place(chain, shape, num_chunks=num_chunks).placement
    schedule = run(placement, num_chunks, num_micro_batches, group)
    ordered = sorted((start, name, n) for start, n, name in schedule.blocks)
    number = {(name, n): i for i, (_, name, n) in enumerate(ordered)}
    none = len(ordered)
    before, inputs = np.full(none, none), np.full(none, none)
    crosses, kinds = np.zeros(none, np.int64), np.zeros(none, np.int64)
    orders = [schedule.order(device) for device in range(num_devices)]
    for order in orders:
        numbers = [number[instance] for instance in order]
        before[numbers[1:]] = numbers[:-1]
    for i, (_, name, n) in enumerate(ordered):
        block = placement.by_name[name]
        kinds[i] = int(name[1:]) + num_stages * (block.kind is not Kind.F)
        for source in block.after:
            inputs[i] = number[source, n]
            crosses[i] = placement.by_name[source].devices != block.devices
    starts = [start for start, *_ in ordered]
    levels = np.append(np.unique(starts, return_index=True)[1], none)
    held = tuple(_held(order, num_devices, num_chunks) for order in orders)
    return OrderGraph(num_devices, num_stages, kinds, before, inputs, crosses, levels, held)


def run(placement: Placement, num_chunks: int, num_micro_batches: int, group: int | None) -> Schedule:
    """Return the schedule that frameworks run: 1F1B, or with several chunks interleaved 1F1B."""
    if num_chunks == 1:
        return one_f_one_b(placement, num_micro_batches)
    return interleaved_one_f_one_b(placement, num_micro_batches, group)


def _held(order: tuple[Instance, ...], num_devices: int, num_chunks: int) -> Ints:
    """Return the maximal combinations of micro-batches of each chunk that a device holds at once."""
    changes = np.zeros((len(order), num_chunks), np.int64)
    for i, (name, _) in enumerate(order):
        changes[i, int(name[1:]) // num_devices] = 1 if name.startswith("F") else -1
    rows = np.unique(np.cumsum(changes, axis=0), axis=0)
    is_most = [not ((rows >= row).all(1) & (rows > row).any(1)).any() for row in rows]
    return np.asarray(rows[np.array(is_most)])
