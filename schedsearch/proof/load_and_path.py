"""Bounds on the period by the work of streams, the best of all kinds, and on the span by the longest path."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from placements import Placement
from placements.block import COMPUTE
from placements.streams import lane_name
from schedsearch.proof.bound import Bound, repeated
from schedsearch.proof.memory_occupancy import MemoryOccupancy, memory_occupancy
from schedsearch.proof.mode_choice import ModeChoice, mode_choice
from schedsearch.proof.timeline import Timeline


@dataclass(frozen=True)
class Load(Bound):
    """The bound on the period by a stream's work for one micro-batch, since it runs one block at a time.

    Attributes:
        device: Device whose work it is.
        stream: Stream of the device.
    """

    name: ClassVar[str] = "load"
    device: int
    stream: str = COMPUTE

    def value(self, placement: Placement) -> Fraction:
        """Return the stream's ticks of work per micro-batch, each block in its quickest mode."""
        plain, lane = placement.per_micro_batch, (self.device, self.stream)
        if lane not in placement.lanes:
            raise ValueError(f"there is no device {lane_name(lane)}")
        number = placement.lanes.index(lane)
        here = (block.name for block in plain.blocks if number in placement.lanes_of(block))
        return Fraction(sum(min(run.time for run in plain.alternatives(name)) for name in here))

    def __str__(self) -> str:
        return f"load of device {lane_name((self.device, self.stream))}"


def load(placement: Placement) -> Load:
    """Return the load of the busiest stream."""
    return max((Load(*lane) for lane in placement.lanes), key=lambda bound: bound.value(placement))


@dataclass(frozen=True)
class SideBySide(Bound):
    """The bound on the period by the work of two streams of a device that slow each other down.

    Proof. Let the streams have C and M ticks of work for a micro-batch, and take f and g times as long side
    by side, which they are for x ticks of a period T per micro-batch. So the first runs for ``C + (1 - 1/f)
    x`` ticks, the second for ``M + (1 - 1/g) x``, and both sums less x fit into T. Of the two limits that
    hold T from below, ``C + (1 - 1/f) x`` and ``C + M - (1/f + 1/g - 1) x``, the first grows with x and the
    second falls; where they meet, at ``x = g M``, T is at least ``C + (1 - 1/f) g M``. Where ``1/f + 1/g`` is
    below 1 side by side never pays, and T is at least ``C + M``.

    Attributes:
        device: The device.
        stream: The stream whose work counts fully.
        other: The stream of whose work a share counts.
    """

    name: ClassVar[str] = "side_by_side"
    device: int
    stream: str
    other: str

    def value(self, placement: Placement) -> Fraction:
        """Return the first stream's work plus a share of the second's, in ticks per micro-batch."""
        first, others = (
            Load(self.device, stream).value(placement) if (self.device, stream) in placement.lanes else 0
            for stream in (self.stream, self.other)
        )
        f = placement.slowdown_of(self.stream, self.other)
        g = placement.slowdown_of(self.other, self.stream)
        return first + min(Fraction(1), (1 - 1 / f) * g) * others


def side_by_side(placement: Placement) -> SideBySide | None:
    """Return the greatest bound by two streams; None if no streams slow each other down."""
    pairs = [pair for slowdown in placement.slowdown for pair in (slowdown.streams, slowdown.streams[::-1])]
    bounds = (SideBySide(device, *pair) for pair in pairs for device in range(placement.num_devices))
    return max(bounds, key=lambda bound: bound.value(placement), default=None)


BOUNDS: dict[type[Bound], Callable[[Placement], Bound | None]] = {
    Load: load,
    SideBySide: side_by_side,
    ModeChoice: mode_choice,
    MemoryOccupancy: memory_occupancy,
}
"""Finder of each kind of bound, which returns None if it proves nothing; slower finders come later."""


def period_bounds(placement: Placement) -> list[Bound]:
    """Return the bounds that each prove more than all before; the load is the first."""
    bounds: list[Bound] = []
    best = Fraction(-1)
    for finder in BOUNDS.values():
        bound = finder(placement)
        if bound is not None and (value := bound.value(placement)) > best:
            best = value
            bounds.append(bound)
    return bounds


def period_bound(placement: Placement) -> Fraction:
    """Return the greatest bound on the period, in ticks per micro-batch."""
    return period_bounds(placement)[-1].value(placement)


def load_bound(placement: Placement) -> int:
    """Return the busiest stream's work per micro-batch in ticks."""
    return int(load(placement).value(placement))


def min_period(placement: Placement, micro_batches: int) -> int:
    """Return a lower bound, in whole ticks, on the period of repetends with `micro_batches` micro-batches.

    Proof: a period is a whole number of ticks, and a block that took longer would run into itself in the next
    round.
    """
    bound = math.ceil(period_bound(placement) * micro_batches)
    return max(bound, *(block.time for block in repeated(placement).blocks))


def critical_path(placement: Placement) -> int:
    """Return the ticks that one micro-batch needs on idle devices: no span is shorter.

    Proof: along a path of blocks that wait for each other, each starts after the one before it has ended and
    its output has been transferred.
    """
    whole = Timeline(placement.per_micro_batch.at_best, frozenset())
    return max(start + whole.length[name] for name, start in whole.heads.items())
