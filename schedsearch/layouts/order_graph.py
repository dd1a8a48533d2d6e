"""The orders of a schedule as a graph of events, timed for many layouts at once.

1F1B and interleaved 1F1B run their blocks in orders that do not depend on times. So the orders are asked once
of the hand-made schedule, of stages that all take one tick: the start of a block is then its level, and the
blocks of a level wait only for those of lower ones. A layout is timed by going up the levels, with many
layouts side by side in arrays.

The longest path of a layout is a sum of times of stages. It is a path for every other layout too, whose time
is thus no shorter than the sum of its own stages' times along it: the module returns such paths as bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placements import Kind, Placement
from placements.stages.stage_chain import Stage, StageChain, place
from schedsearch.baselines import interleaved_one_f_one_b, one_f_one_b
from schedsearch.schedule import Instance, Schedule

Ints = NDArray[np.int64]
"""Whole numbers."""

_AT_ONCE = 4_000_000
"""Events of all layouts that are timed at once; 32 MB."""


class LongestPath(NamedTuple):
    """A path through the events of a schedule: no layout is faster than the sum along it.

    Attributes:
        counts: How often it goes through the forward of each stage, then the backward of each;
            shape ``(2 * num_stages,)``.
        num_transfers: How often it goes from a device to another.
    """

    counts: Ints
    num_transfers: int


@dataclass(frozen=True)
class OrderGraph:
    """Events of a schedule, by level.

    Attributes:
        num_devices: Devices of the pipeline.
        num_stages: Stages on all of them.
        kinds: The stage of each event, plus the number of stages for a backward; shape ``(events,)``.
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

    @property
    def num_events(self) -> int:
        """Blocks of all micro-batches."""
        return len(self.kinds)

    def ends(self, times: Ints, transfer: int) -> Ints:
        """Return the end of each event, and a last row of zeros.

        Args:
            times: Ticks of each kind, for each layout; shape ``(2 * num_stages, layouts)``.
            transfer: Ticks between devices.
        """
        ends = np.zeros((self.num_events + 1, times.shape[1]), np.int64)
        late = (self.crosses * transfer)[:, None]
        for first, end in zip(self.levels[:-1], self.levels[1:], strict=True):
            ready = ends[self.inputs[first:end]] + late[first:end]
            ends[first:end] = np.maximum(ready, ends[self.before[first:end]]) + times[self.kinds[first:end]]
        return ends

    def makespans(self, times: Ints, transfer: int) -> Ints:
        """Return the ticks of an iteration of each layout; see `ends`."""
        step = max(1, _AT_ONCE // self.num_events)
        parts = [times[:, i : i + step] for i in range(0, times.shape[1], step)]
        return np.concatenate([self.ends(part, transfer).max(0) for part in parts])

    def longest_path(self, times: Ints, transfer: int) -> LongestPath:
        """Return a longest path of a layout; see `ends`, of one layout."""
        ends = self.ends(times.reshape(-1, 1), transfer)[:, 0]
        counts, num_transfers, at = np.zeros(2 * self.num_stages, np.int64), 0, int(ends.argmax())
        while at < self.num_events:
            counts[self.kinds[at]] += 1
            source, late = self.inputs[at], self.crosses[at] * transfer
            is_input = ends[source] + late >= ends[self.before[at]]
            num_transfers += int(is_input and self.crosses[at])
            at = int(source if is_input else self.before[at])
        return LongestPath(counts, num_transfers)


def graph_of(num_devices: int, num_chunks: int, num_micro_batches: int, group: int | None) -> OrderGraph:
    """Return the graph of 1F1B, or of interleaved 1F1B where there are several chunks.

    Raises:
        UnsuitablePlacementError: There are too few micro-batches, or they do not go with the group.
    """
    num_stages = num_devices * num_chunks
    chain = StageChain((Stage(1.0, 1.0),) * num_stages, num_devices)
    shape = "v_shape" if num_chunks == 1 else "loop_shape"
    placement = place(chain, shape, num_chunks=num_chunks).placement
    schedule = run(placement, num_chunks, num_micro_batches, group)
    ordered = [(start, (name, n)) for start, n, name in schedule.blocks]
    ordered.sort()
    number = {instance: i for i, (_, instance) in enumerate(ordered)}
    none = len(ordered)
    before, inputs = np.full(none, none), np.full(none, none)
    for device in range(num_devices):
        order = [number[each] for each in schedule.order(device)]
        before[order[1:]] = order[:-1]
    kinds, crosses = np.empty(none, np.int64), np.zeros(none, np.int64)
    for i, (_, (name, n)) in enumerate(ordered):
        block = placement.by_name[name]
        kinds[i] = _stage(name) + num_stages * (block.kind is not Kind.F)
        for source in block.after:
            inputs[i] = number[source, n]
            crosses[i] = placement.by_name[source].devices != block.devices
    starts = np.array([start for start, _ in ordered])
    levels = np.append(np.searchsorted(starts, np.unique(starts)), none)
    held = tuple(_held(schedule.order(device), num_devices, num_chunks) for device in range(num_devices))
    return OrderGraph(num_devices, num_stages, kinds, before, inputs, crosses, levels, held)


def run(placement: Placement, num_chunks: int, num_micro_batches: int, group: int | None) -> Schedule:
    """Return the schedule that frameworks run: 1F1B, interleaved where there are several chunks."""
    if num_chunks == 1:
        return one_f_one_b(placement, num_micro_batches)
    return interleaved_one_f_one_b(placement, num_micro_batches, group)


def _stage(name: str) -> int:
    return int(name[1:])


def _held(order: tuple[Instance, ...], num_devices: int, num_chunks: int) -> Ints:
    """Return how many micro-batches of each chunk a device holds at once, the largest numbers only."""
    held, found = [0] * num_chunks, set[tuple[int, ...]]()
    for name, _ in order:
        is_forward = name.startswith("F")
        held[_stage(name) // num_devices] += 1 if is_forward else -1
        if is_forward:
            found.add(tuple(held))
    rows = np.array(sorted(found))
    is_most = [not ((rows >= row).all(1) & (rows > row).any(1)).any() for row in rows]
    return np.asarray(rows[np.array(is_most)])
