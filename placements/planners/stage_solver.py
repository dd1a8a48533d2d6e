"""The cheapest choice of options for a stage's layers that fits its memory, from tables of costs.

The search goes from the last layer to the first. A label is a choice for the layers from some layer on. It is
dropped where another one is no worse in cost and in every way in which the layers before may need memory, and
where even a Lagrangian bound on the layers before, with memory at a price, leaves it above the best choice
known. The module does not know options, or GPUs.
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
"""Callback that ends a search by raising an exception, as when the time is over."""

MAX_LABELS = 100, 2_000
"""Labels of a layer that the first pass keeps, to find a good choice, and the second, to prove it."""

_PRICES = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 32)])
"""Prices of a MiB, as multiples of the price at which options trade memory for time."""

_AROUND = np.array([0.0, 0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 2.0, 5.0])
"""Prices at which labels are bounded, of the best one for the whole stage."""


class StrategyCosts(NamedTuple):
    """Costs of each strategy open to a layer; arrays of shape ``(num_options,)``.

    Attributes:
        cost_ms: A micro-batch's share of the layer's time in an iteration.
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

    def weight_mib(self, in_flight: int) -> Floats:
        """Return the memory of each option between two blocks, with `in_flight` micro-batches at once."""
        held: Floats = self.static_mib + in_flight * self.kept_mib
        return held


@dataclass(frozen=True, eq=False)
class StageProblem:
    """Layers of one stage, each to be given one of its options so that the stage fits and is fast.

    Attributes:
        layers: Options of each layer in order, the same object for equal layers.
        transition_ms: Time of both passes of a micro-batch between a layer shared in one way (row) and the
            next in another (column).
        in_flight: Micro-batches whose activations the stage holds at its peak.
        capacity_mib: Memory that the stage may hold.
    """

    layers: tuple[StrategyCosts, ...]
    transition_ms: Floats
    in_flight: int
    capacity_mib: float

    @property
    def room_mib(self) -> float:
        """The capacity, with a margin for rounding."""
        return self.capacity_mib + ROUNDING * max(1.0, abs(self.capacity_mib))


@dataclass(frozen=True)
class StageSolution:
    """An option for each layer of a stage.

    Attributes:
        choice: Index of each layer's option, in the order of the layers.
        time_ms: Time of one micro-batch, transitions included, without the exchange of gradients.
        sync_ms: Once an iteration.
        cost: The time, with a micro-batch's share of the time once an iteration.
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
    """Return a choice with its cost, times and peak memory; see `StageSolution`."""
    chosen = tuple(map(int, choice))
    layers = list(zip(problem.layers, chosen, strict=True))
    cost, time_ms, sync_ms = (math.fsum(float(options[k][i]) for options, i in layers) for k in range(3))
    layouts = [int(options.piece[i]) // 2 for options, i in layers]
    between_ms = math.fsum(float(problem.transition_ms[pair]) for pair in itertools.pairwise(layouts))
    cost, peak = cost + between_ms, peak_mib(problem, chosen)
    return StageSolution(chosen, time_ms + between_ms, sync_ms, cost, peak, min(cost, min_cost))


def grouped(problem: StageProblem, solution: StageSolution) -> StageSolution:
    """Return a solution with equal options of equal neighbours together, if it fits and costs no more."""
    for is_recomputed_last in (False, True):
        choice: list[int] = []
        for _, run in itertools.groupby(problem.layers, key=id):
            equal = list(run)
            part, piece = solution.choice[len(choice) : len(choice) + len(equal)], equal[0].piece % 2
            choice += sorted(part, key=lambda i: (piece[i] != is_recomputed_last, i))
        other = weigh(problem, choice, solution.min_cost)
        if other.peak_mib <= problem.room_mib and other.cost <= solution.cost * (1 + ROUNDING):
            return other
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
    layers = zip(problem.layers, choice, strict=True)
    rows = [[float(column[i]) for column in options[3:]] for options, i in layers]  # from static memory on
    static, kept = (math.fsum(row[column] for row in rows) for column in (0, 1))
    held = so_far = 0.0
    for piece, equal in itertools.groupby(rows, key=lambda row: row[3]):
        _, piece_kept, transient, _ = zip(*equal, strict=True)
        so_far += math.fsum(piece_kept)
        newest = so_far if piece % 2 else kept
        held = max(held, static + (problem.in_flight - 1) * kept + newest + max(transient))
    return held


class _Labels(NamedTuple):
    """Choices for the layers from some layer on; one entry each in all arrays.

    Attributes:
        weight: Static memory and the memory kept by all micro-batches.
        kept: Memory kept by one micro-batch.
        kept_after: Its part in the pieces after the first piece.
        above: Transient memory above the weight.
        piece: Piece of the first layer; -1 before there is one.
        parent: Index among the labels of the layer after.
        option: Option of the first layer.
    """

    cost: Figures
    weight: Figures
    kept: Figures
    kept_after: Figures
    above: Figures
    piece: Figures
    parent: Figures
    option: Figures

    def where(self, index: Any) -> _Labels:
        """Return the labels at these indices."""
        return _Labels(*(column[index] for column in self))


def solve(problem: StageProblem, check: Check = lambda: None) -> StageSolution | None:
    """Return the cheapest choice that fits; None if no choice does. The check is called at each layer.

    Where more labels would be needed than are kept, which takes many different layers, the choice may not be
    the best, and the solution's `min_cost` says by how much at most.
    """
    search = _Search(problem, check)
    best, cutoff, dropped = None, math.inf, math.inf
    for max_labels in MAX_LABELS:
        cheapest, dropped = search.cheapest(cutoff, max_labels)
        if cheapest is not None:
            best, cutoff = cheapest, cheapest[0] * (1 - 1e-2 * ROUNDING)
        if dropped >= cutoff:
            break
    if best is not None:
        return weigh(problem, best[1], min(best[0], dropped))
    lightest = weigh(problem, [int(weight.argmin()) for weight in search.weights], dropped)
    return lightest if lightest.peak_mib <= problem.room_mib else None


class _Search:
    """A search in a stage.

    Attributes:
        weights: Memory of each option of each layer between two blocks.
        transition: Cost of a layout (row) before another (column); 0 beside no layer (the last).
        max_transient: Of layers that are not recomputed, and of those that are.
        prices: Of a MiB; labels are bounded at them, by `before` of all layers before each.
    """

    def __init__(self, problem: StageProblem, check: Check) -> None:
        self.layers, self.room, self.check = problem.layers, problem.room_mib, check
        unequal = {id(options): options for options in problem.layers}
        known = {key: options.weight_mib(problem.in_flight) for key, options in unequal.items()}
        self.weights = [known[id(options)] for options in problem.layers]
        self.transition = np.pad(problem.transition_ms, (0, 1))
        self.max_transient = [
            max(float(kind.transient_mib[kind.piece % 2 == i].max(initial=0.0)) for kind in unequal.values())
            for i in (0, 1)
        ]
        prices = memory_prices(list(unequal.values()), problem.in_flight)
        whole = self._bounds(prices)[-1][:, 0] - prices * self.room
        self.prices = np.unique(prices[whole.argmax()] * _AROUND)
        self.before = self._bounds(self.prices)

    def _bounds(self, prices: Floats) -> list[Floats]:
        """Return lower bounds of the cost of layers before each layer, memory at a price (Lagrangian).

        For each layer an array by price of a MiB and the layer's option: the least cost of all layers before
        it, their memory and the transition to it. At last the same of all layers, in one column.
        """
        bounds = [np.zeros((len(prices), len(self.layers[0].cost_ms)))]
        after = [*(layer.piece // 2 for layer in self.layers[1:]), np.full(1, -1)]
        for layer, weight, layouts in zip(self.layers, self.weights, after, strict=True):
            through = bounds[-1] + layer.cost_ms + prices[:, None] * weight
            steps = self.transition[layer.piece[:, None] // 2, layouts]
            bounds.append((through[:, :, None] + steps).min(axis=1))
        return bounds

    def cheapest(self, cutoff: float, max_labels: int) -> tuple[tuple[float, list[int]] | None, float]:
        """Return the cheapest choice that fits and its cost, below a cutoff; None if none is found.

        Where there are too many labels those of the least bounds are kept; also returned is the least bound
        of all that were dropped for that.
        """
        lightest = np.cumsum([0.0, *(float(weight.min()) for weight in self.weights)])
        none, no = np.zeros(1), np.full(1, -1)
        labels, history = _Labels(none, none, none, none, none, no, no, no), list[_Labels]()
        dropped = math.inf
        for i in reversed(range(len(self.layers))):
            self.check()
            extended = self._extended(i, labels)
            over = extended.weight + extended.above - self.room
            priced = np.multiply.outer(self.prices, over) + self.before[i][:, None]
            bound = extended.cost + priced.max(axis=0)
            alive = np.nonzero((over + lightest[i] <= 0) & (bound < cutoff))
            if len(alive[0]) > max_labels:
                order = np.argpartition(bound[alive], max_labels)
                dropped = min(dropped, float(bound[alive][order[max_labels:]].min()))
                alive = alive[0][order[:max_labels]], alive[1][order[:max_labels]]
            if not len(alive[0]):
                return None, dropped
            labels = extended.where(alive)
            labels = labels.where(undominated(self._needs(labels), labels.piece))
            history.append(labels)
        best = int(np.lexsort((labels.weight + labels.above, labels.cost))[0])
        cost, choice = float(labels.cost[best]), list[int]()
        for known in reversed(history):
            choice.append(int(known.option[best]))
            best = int(known.parent[best])
        return (cost, choice), dropped

    def _extended(self, i: int, labels: _Labels) -> _Labels:
        """Return each label with each option of the layer before, i; arrays by label and option."""
        layer, old = self.layers[i], labels.where(np.s_[:, None])
        kept_after = np.where(old.piece == layer.piece, old.kept_after, old.kept)
        return _Labels(
            old.cost + layer.cost_ms + self.transition[layer.piece // 2, old.piece // 2],
            old.weight + self.weights[i],
            old.kept + layer.kept_mib,
            kept_after,
            np.maximum(old.above, layer.transient_mib - layer.piece % 2 * kept_after),
            np.broadcast_to(layer.piece, kept_after.shape),
            *np.indices(kept_after.shape),
        )

    def _needs(self, labels: _Labels) -> list[Floats]:
        """Return the cost of labels and the memory that they may need, whatever comes before.

        Layers before may hold transient memory above the whole weight (plain), or recompute: above all that
        is not kept by later pieces. It may be from nothing to the most there is; it is enough to compare both
        ends.
        """
        plain, recomputed = self.max_transient
        held = labels.weight + labels.above
        joined = np.maximum(held, labels.weight - labels.kept_after + recomputed)
        needs = [
            np.maximum(held, labels.weight + plain),
            np.maximum(held, labels.weight - labels.kept + recomputed),
            np.where(labels.piece % 2 == 1, joined, held),
        ]
        return [labels.cost, held, *(need for need in needs if not np.array_equal(need, held))]


def memory_prices(options: Sequence[StrategyCosts], in_flight: int) -> Floats:
    """Return prices of a MiB in ms, from 0 on, around the rate at which options trade memory for time."""
    spread = max(float(np.ptp(costs.weight_mib(in_flight))) for costs in options)
    costly = max(max(float(np.ptp(costs.cost_ms)), 1e-9 * float(costs.cost_ms.max())) for costs in options)
    return (costly / spread if spread else 0.0) * _PRICES


def undominated(values: Sequence[Figures], group: Ints) -> Ints:
    """Return the indices of the undominated columns within each group; one of equal ones."""
    order = np.lexsort((*reversed(values), group))
    others = [column[order] for column in values[1:]]  # by the first they are sorted
    no_greater = np.equal.outer(group[order], group[order])
    for column in others:
        no_greater &= np.less_equal.outer(column, column)
    return order[~np.triu(no_greater, 1).any(axis=0)]
