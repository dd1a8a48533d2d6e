"""A stage's problem as tables of costs, for each layer options to choose from, and an answer to it.

The module knows what a choice of options costs and holds. It does not know what an option is, or a GPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placements.planners.division import ROUNDING, Floats

Ints = NDArray[np.int64]
Figures = NDArray[Any]

Check = Callable[[], None]
"""Ends a search by what it raises, as when the time is over."""


class StrategyCosts(NamedTuple):
    """Costs of each strategy open to a layer; arrays of shape ``(num_options,)``.

    Attributes:
        cost_ms: A micro-batch's share of what the layer takes of an iteration.
        time_ms: Forward and backward of one micro-batch, without the exchange of gradients.
        sync_ms: Once an iteration: gradients exchanged, weights updated.
        static_mib: Held all the time.
        kept_mib: Memory that one micro-batch holds from its forward to its backward.
        transient_mib: More, held only while the forward or the backward runs, whichever needs more.
        piece: Twice how the layer is shared, as a number, and one more where its backward runs the forward
            again; see `peak_mib`. Neighbors that are shared otherwise pay a transition.
    """

    cost_ms: Figures
    time_ms: Figures
    sync_ms: Figures
    static_mib: Figures
    kept_mib: Figures
    transient_mib: Figures
    piece: Figures

    def weight_mib(self, in_flight: int) -> Figures:
        """Return what the layer holds between two blocks, with so many micro-batches at once."""
        held: Figures = self.static_mib + in_flight * self.kept_mib
        return held


@dataclass(frozen=True, eq=False)
class StageProblem:
    """Layers of one stage, each to be given one of its options so that the stage fits and is fast.

    Attributes:
        layers: Options of each layer in order, the same object for equal layers.
        transition_ms: What both passes of a micro-batch pay between a layer shared in one way (row) and the
            next in another (column).
        in_flight: Micro-batches whose activations the stage holds at its peak.
        capacity_mib: What it may hold.
    """

    layers: tuple[StrategyCosts, ...]
    transition_ms: Floats
    in_flight: int
    capacity_mib: float

    @property
    def room_mib(self) -> float:
        """The capacity, with what rounding may add."""
        return self.capacity_mib + ROUNDING * max(1.0, abs(self.capacity_mib))


@dataclass(frozen=True)
class StageSolution:
    """An option for each layer of a stage.

    Attributes:
        choice: Index of each layer's option, in the order of the layers.
        time_ms: Time of one micro-batch, transitions included, without the exchange of gradients.
        sync_ms: Once an iteration.
        cost: The time, and a micro-batch's share of what comes once.
        peak_mib: See `peak_mib`.
        min_cost: No choice that fits costs less than this, but for rounding; below `cost` where the search
            gave up on proving the choice best.
    """

    choice: tuple[int, ...]
    time_ms: float
    sync_ms: float
    cost: float
    peak_mib: float
    min_cost: float


def weigh(problem: StageProblem, choice: Sequence[int], min_cost: float = -math.inf) -> StageSolution:
    """Return a choice with what it costs and holds; see `StageSolution`."""
    chosen = tuple(map(int, choice))
    layers = list(zip(problem.layers, chosen, strict=True))
    cost, time_ms, sync_ms = (math.fsum(float(each[column][i]) for each, i in layers) for column in range(3))
    layouts = [int(options.piece[i]) // 2 for options, i in layers]
    between_ms = math.fsum(float(problem.transition_ms[pair]) for pair in itertools.pairwise(layouts))
    cost, peak = cost + between_ms, peak_mib(problem, chosen)
    return StageSolution(chosen, time_ms + between_ms, sync_ms, cost, peak, min(cost, min_cost))


def grouped(problem: StageProblem, solution: StageSolution) -> StageSolution:
    """Return a solution with equal neighbors of one option together, where it fits and costs as much."""
    for is_recomputed_last in (False, True):
        choice: list[int] = []
        for _, run in itertools.groupby(problem.layers, key=id):
            equal = list(run)
            own, piece = solution.choice[len(choice) : len(choice) + len(equal)], equal[0].piece % 2
            choice += sorted(own, key=lambda i: (piece[i] != is_recomputed_last, i))
        found = weigh(problem, choice, solution.min_cost)
        if found.peak_mib <= problem.room_mib and found.cost <= solution.cost * (1 + ROUNDING):
            return found
    return solution


def peak_mib(problem: StageProblem, choice: Sequence[int]) -> float:
    """Return the most that a stage holds at any one time.

    Consecutive layers with one layout that all are recomputed, or all are not, make one forward and one
    backward block: a piece. While the newest micro-batch's forward of a piece runs, or the oldest's
    backward, the stage holds what is static, all that `in_flight - 1` other micro-batches keep, what the
    pieces up to this one keep of its own micro-batch, and the piece's transient memory (Galvatron-BMW,
    Eq. 2, by pieces). A piece without recomputation is given its transient above all kept memory, so that
    a schedule may run it at any time; recomputation is what Eq. 2 gives back memory for.
    """
    layers = list(zip(problem.layers, choice, strict=True))
    static = math.fsum(float(options.static_mib[i]) for options, i in layers)
    kept = math.fsum(float(options.kept_mib[i]) for options, i in layers)
    held = so_far = 0.0
    for piece, equal in itertools.groupby(layers, key=lambda each: int(each[0].piece[each[1]])):
        members = list(equal)
        so_far += math.fsum(float(options.kept_mib[i]) for options, i in members)
        transient = max(float(options.transient_mib[i]) for options, i in members)
        own = so_far if piece % 2 else kept
        held = max(held, static + (problem.in_flight - 1) * kept + own + transient)
    return held
