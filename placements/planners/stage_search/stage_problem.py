"""A stage's problem as tables of costs, runs of equal layers with options for each, and an answer to it.

The module knows what an assignment of options costs and holds. It does not know what an option is, or a GPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUNDING = 1e-9
"""Relative difference of costs or memory that sums of floats may have."""


class StageError(ValueError):
    """A stage's problem is wrong; the message names the field, the value and the remedy in one line."""


@dataclass(frozen=True, eq=False)
class StrategyCosts:
    """Costs of each strategy open to a layer; arrays of shape ``(num_options,)``, given in any form.

    Attributes:
        time_ms: Forward and backward of one micro-batch, without the exchange of gradients.
        sync_ms: Once an iteration: gradients exchanged, weights updated.
        static_mib: Held all the time.
        kept_mib: Memory that one micro-batch holds from its forward to its backward.
        forward_mib: More, held only while the forward runs.
        backward_mib: Likewise, the backward.
        recomputed: The backward runs the forward again, which is what its `backward_mib` is for.
        layout: How the layer is shared, as a number; neighbors that differ in it pay a transition.

    Raises:
        StageError: A number is negative or not finite.
    """

    time_ms: Floats
    sync_ms: Floats
    static_mib: Floats
    kept_mib: Floats
    forward_mib: Floats
    backward_mib: Floats
    recomputed: NDArray[np.bool_]
    layout: Ints

    def __post_init__(self) -> None:
        """Check the numbers, and keep copies that nobody writes to."""
        kinds = {"recomputed": np.bool_, "layout": np.int64}
        for name in (each.name for each in fields(self)):
            found: NDArray[Any] = np.array(getattr(self, name), dtype=kinds.get(name, np.float64))
            if name not in kinds and not (np.isfinite(found) & (found >= 0)).all():
                raise StageError(f"options.{name}: {found.tolist()} are not all numbers from 0 on; give such")
            found.flags.writeable = False
            object.__setattr__(self, name, found)

    @cached_property
    def transient_mib(self) -> Floats:
        """The more that is held while the forward or the backward runs, whichever needs more."""
        return np.maximum(self.forward_mib, self.backward_mib)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.time_ms)


class LayerRun(NamedTuple):
    """Equal layers, one after the other.

    Attributes:
        num_layers: Number of layers, at least one.
        options: Options of each layer.
    """

    num_layers: int
    options: StrategyCosts


@dataclass(frozen=True, eq=False)
class StageProblem:
    """Layers of one stage, each to be given one of its options so that the stage fits and is fast.

    Attributes:
        runs: Runs in the order of the model; layers of a run may take their options in any order.
        transition_ms: Times by the layouts of a layer and the next: what both passes of a micro-batch pay
            between them. For all that can be neighbors; a layout beside itself pays nothing.
        in_flight: Micro-batches whose activations the stage holds at its peak.
        capacity_mib: What it may hold.
        num_micro_batches: Micro-batches of an iteration.
        weights: Weights in the cost: of a millisecond of `StrategyCosts.time_ms` (and of a transition), and
            of one of `StrategyCosts.sync_ms`. None for 1 and ``1 / num_micro_batches``: an iteration's share
            of each.

    Raises:
        StageError: A number is out of its range, or a transition is missing.
    """

    runs: tuple[LayerRun, ...]
    transition_ms: Mapping[tuple[int, int], float]
    in_flight: int
    capacity_mib: float
    num_micro_batches: int = 1
    weights: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Check all numbers."""
        object.__setattr__(self, "runs", tuple(LayerRun(*run) for run in self.runs))
        if not self.runs:
            raise StageError("runs: is empty; give at least one run of layers")
        for i, run in enumerate(self.runs):
            _check_count(f"runs[{i}].num_layers", run.num_layers)
        _check_count("in_flight", self.in_flight)
        _check_count("num_micro_batches", self.num_micro_batches)
        if not math.isfinite(self.capacity_mib):
            raise StageError(f"capacity_mib: {self.capacity_mib} is not finite; give what the GPU holds")
        for weight in self.weights or ():
            if not 0 <= weight < math.inf:
                raise StageError(f"weights: {weight} is not a number from 0 on; give one")
        for pair in sorted(_neighbors(self.runs)):
            if not 0 <= self.transition(*pair) < math.inf:
                raise StageError(
                    f"transition_ms[{pair}]: {self.transition(*pair)} is not a number from 0 on; give what "
                    "neighbors in these layouts pay"
                )

    @property
    def num_layers(self) -> int:
        """How many layers the stage has."""
        return sum(run.num_layers for run in self.runs)

    @property
    def time_weight(self) -> float:
        """Cost of a millisecond of each micro-batch."""
        return self.weights[0] if self.weights else 1.0

    @property
    def sync_weight(self) -> float:
        """Cost of a millisecond once an iteration."""
        return self.weights[1] if self.weights else 1.0 / self.num_micro_batches

    @cached_property
    def layer_options(self) -> tuple[StrategyCosts, ...]:
        """The options of each layer, in order."""
        return tuple(run.options for run in self.runs for _ in range(run.num_layers))

    def transition(self, layout: int, after: int) -> float:
        """Return what a layer and the one after it pay, in ms; not a number where nobody said."""
        return 0.0 if layout == after else self.transition_ms.get((layout, after), math.nan)

    def fits(self, peak_mib: float) -> bool:
        """Return whether the capacity is enough, but for rounding."""
        return peak_mib <= self.capacity_mib + ROUNDING * max(1.0, abs(self.capacity_mib))


def _check_count(where: str, number: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise StageError(f"{where}: {number!r} is not a whole number from 1 on; give one")


def _neighbors(runs: Sequence[LayerRun]) -> set[tuple[int, int]]:
    layouts = [np.unique(run.options.layout).tolist() for run in runs]
    inside = [each for each, run in zip(layouts, runs, strict=True) if run.num_layers > 1]
    pairs = [*zip(inside, inside, strict=True), *itertools.pairwise(layouts)]
    return {pair for before, after in pairs for pair in itertools.product(before, after)}


@dataclass(frozen=True)
class StageSolution:
    """An option for each layer of a stage.

    Attributes:
        choice: Index of each layer's option, in the order of the layers.
        time_ms: Time of one micro-batch, transitions included, without the exchange of gradients.
        sync_ms: Once an iteration.
        cost: Both, weighed; see `StageProblem.weights`.
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
    """Return a choice with what it costs and holds.

    Args:
        problem: The stage.
        choice: Index of each layer's option, in the order of the layers.
        min_cost: See `StageSolution`; at most the choice's own cost.
    """
    layers = list(zip(problem.layer_options, choice, strict=True))
    layouts = [int(options.layout[i]) for options, i in layers]
    time_ms = math.fsum(float(options.time_ms[i]) for options, i in layers)
    time_ms += math.fsum(problem.transition(*pair) for pair in itertools.pairwise(layouts))
    sync_ms = math.fsum(float(options.sync_ms[i]) for options, i in layers)
    cost = problem.time_weight * time_ms + problem.sync_weight * sync_ms
    return StageSolution(
        tuple(int(i) for i in choice),
        time_ms,
        sync_ms,
        cost,
        peak_mib(problem, choice),
        min(cost, min_cost),
    )


def grouped(problem: StageProblem, solution: StageSolution) -> StageSolution:
    """Return a solution with layers of one option together in each run, where it fits and costs as much.

    Args:
        problem: The stage.
        solution: An option for each layer.
    """
    for is_recomputed_last in (False, True):
        choice: list[int] = []
        for run in problem.runs:
            own = solution.choice[len(choice) : len(choice) + run.num_layers]
            choice += sorted(own, key=lambda i: (run.options.recomputed[i] != is_recomputed_last, i))
        found = weigh(problem, choice, solution.min_cost)
        if problem.fits(found.peak_mib) and found.cost <= solution.cost * (1 + ROUNDING):
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

    Args:
        problem: The stage.
        choice: Index of each layer's option, in the order of the layers.
    """
    layers = list(zip(problem.layer_options, choice, strict=True))
    static = math.fsum(float(options.static_mib[i]) for options, i in layers)
    kept = math.fsum(float(options.kept_mib[i]) for options, i in layers)
    pieces = itertools.groupby(layers, key=lambda each: _piece(*each))
    held = so_far = 0.0
    for (_, recomputed), piece in pieces:
        members = list(piece)
        so_far += math.fsum(float(options.kept_mib[i]) for options, i in members)
        transient = max(float(options.transient_mib[i]) for options, i in members)
        own = so_far if recomputed else kept
        held = max(held, static + (problem.in_flight - 1) * kept + own + transient)
    return held


def _piece(options: StrategyCosts, option: int) -> tuple[int, bool]:
    return int(options.layout[option]), bool(options.recomputed[option])
