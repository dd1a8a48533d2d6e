"""The cheapest choice of options for a stage's layers that fits its memory, and the least memory of any.

The search goes from the last layer to the first. A label is a choice for the layers from some layer on. It is
dropped where another one is no worse in cost and in every way in which the layers before may need memory, and
where even a Lagrangian bound on the layers before, with memory at a price, leaves it above the best choice
known. The module does not know pipelines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from placements.planners.stage_search.deadline import Check, no_limit
from placements.planners.stage_search.stage_problem import (
    ROUNDING,
    Floats,
    Ints,
    StageProblem,
    StageSolution,
    StrategyCosts,
    weigh,
)

MAX_LABELS = 100, 5_000
"""Labels of a layer that the first pass keeps, to find a good choice, and the second, to prove it."""

_PRICES = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 32)])
"""Prices of a MiB, of what the options of a layer trade it for at most."""

_AROUND = np.array([0.0, 0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 2.0, 5.0])
"""Prices at which labels are bounded, of the best one for the whole stage."""

_BLOCK = 256
"""Rows compared with others at a time."""


class _Columns:
    """Arrays of equal shapes, of which some entries are taken together."""

    def __getitem__(self, which: object) -> Self:
        return type(self)(**{name: values[which] for name, values in vars(self).items()})


@dataclass(frozen=True, eq=False)
class _Options(_Columns):
    """Options of a layer that may be in a best choice; arrays of shape ``(num_options,)``.

    Attributes:
        index: Index in the problem's own options.
        cost: Time and synchronization, weighed.
        weight_mib: Static memory and what all micro-batches in flight keep.
        kept_mib: What one micro-batch keeps.
        transient_mib: While it runs.
        layout: Numbered from 0 in the whole stage.
        recomputed: Whether the backward runs the forward again.
    """

    index: Ints
    cost: Floats
    weight_mib: Floats
    kept_mib: Floats
    transient_mib: Floats
    layout: Ints
    recomputed: NDArray[np.bool_]

    @property
    def piece(self) -> Ints:
        """Twice the layout, and one more where the layer is recomputed."""
        return 2 * self.layout + self.recomputed


@dataclass(frozen=True, eq=False)
class _Labels(_Columns):
    """Choices for the layers from some layer on; one entry each in all arrays.

    Attributes:
        cost: So far.
        weight: Static memory and what all micro-batches keep.
        kept: What one micro-batch keeps.
        kept_after: What it keeps in the pieces after the first piece.
        above: Transient memory above the weight.
        piece: Piece of the first layer; -1 before there is one.
        parent: Index among the labels of the layer after.
        option: Option of the first layer, as its index in `_Options`.
    """

    cost: Floats
    weight: Floats
    kept: Floats
    kept_after: Floats
    above: Floats
    piece: Ints
    parent: Ints
    option: Ints


class _Choice(NamedTuple):
    cost: float
    options: tuple[int, ...]


def solve(problem: StageProblem, check: Check = no_limit) -> StageSolution | None:
    """Return the cheapest choice that fits; None where nothing does.

    Where more labels would be needed than are kept, which takes many different layers, the choice may not be
    the best, and the solution's `min_cost` says by how much at most.

    Args:
        problem: The stage.
        check: Called again and again; ends the search by what it raises.
    """
    stage = _Stage(problem)
    prices = stage.usual_price * _PRICES
    whole = stage.before(prices)[-1][:, 0] - prices * (stage.room_mib - stage.min_above_mib)
    prices = np.unique(prices[whole.argmax()] * _AROUND)
    best: _Choice | None = None
    cutoff = dropped = math.inf
    for max_labels in MAX_LABELS:
        found, dropped = _search(stage, prices, cutoff, max_labels, check)
        if found is not None:
            best, cutoff = found, found.cost * (1 - 1e-2 * ROUNDING)
        if dropped >= cutoff:
            break
    if best is not None:
        return weigh(problem, best.options, min(best.cost, dropped))
    if math.isinf(dropped):
        return None
    lightest = weigh(problem, _lightest(problem), dropped)
    return lightest if problem.fits(lightest.peak_mib) else None


def min_memory(problem: StageProblem) -> float:
    """Return the least capacity in which the layers fit, whatever they cost, in MiB."""
    return weigh(problem, _lightest(problem)).peak_mib


def _lightest(problem: StageProblem) -> tuple[int, ...]:
    """Return the choice of the least peak: where nothing costs anything, memory decides."""
    weights = [each.static_mib + problem.in_flight * each.kept_mib for each in problem.layer_options]
    enough_mib = weigh(problem, [int(each.argmin()) for each in weights]).peak_mib
    free = _Stage(replace(problem, weights=(0.0, 0.0), capacity_mib=enough_mib))
    found, _ = _search(free, np.ones(1), math.inf, MAX_LABELS[-1], no_limit)
    assert found is not None, "the lightest options fit"
    return found.options


class _Stage:
    """A stage's problem, ready for a search.

    Attributes:
        layers: The options of each layer, in order.
        transition: Cost of a layout (row) before another (column); infinite for none, 0 beside no layer
            (the last).
        room_mib: Capacity, with what rounding may add.
        min_above_mib: Transient memory above all kept memory that every choice needs. A layer that can be
            recomputed needs none: what later layers keep makes room for it.
        usual_price: Cost of a MiB where options differ the most in both.
    """

    def __init__(self, problem: StageProblem) -> None:
        """Prepare the options."""
        layouts = sorted({layout for run in problem.runs for layout in run.options.layout.tolist()})
        known = {id(options): _worthwhile(problem, options, layouts) for _, options in problem.runs}
        self.layers = [known[id(options)] for options in problem.layer_options]
        costs = np.array([[problem.transition(before, after) for after in layouts] for before in layouts])
        costs = np.where(np.isnan(costs), np.inf, problem.time_weight * costs)
        self.transition = np.pad(costs, (0, 1))
        self.room_mib = problem.capacity_mib + ROUNDING * max(1.0, abs(problem.capacity_mib))
        needs = [float(each.transient_mib.min()) for each in self.layers if not each.recomputed.any()]
        self.min_above_mib = max(needs, default=0.0)
        spread_mib = max(float(np.ptp(each.weight_mib)) for each in self.layers)
        costly = max(float(np.ptp(each.cost)) for each in self.layers)
        costly += float(np.max(costs, where=np.isfinite(costs), initial=0.0))
        self.usual_price = costly / spread_mib if spread_mib else 0.0

    def max_transient_mib(self, recomputed: bool) -> float:
        """Return the most transient memory of all options that are recomputed, or of all others."""
        each = [layer.transient_mib[layer.recomputed == recomputed] for layer in self.layers]
        return float(np.concatenate(each).max(initial=0.0))

    def before(self, prices: Floats) -> list[Floats]:
        """Return bounds on what the layers before each layer cost with memory at a price (Lagrangian).

        Args:
            prices: Cost of a MiB.

        Returns:
            For each layer an array by price and the layer's option: the least cost of all layers before it,
            their memory and the transition to it. At last the same of all layers, in one column.
        """
        found = [np.zeros((len(prices), len(self.layers[0].cost)))]
        layouts = [*(layer.layout for layer in self.layers[1:]), np.full(1, -1)]
        for layer, after in zip(self.layers, layouts, strict=True):
            through = found[-1] + layer.cost + prices[:, None] * layer.weight_mib
            steps = self.transition[layer.layout[:, None], after]
            found.append((through[:, :, None] + steps).min(axis=1))
        return found


def _worthwhile(problem: StageProblem, options: StrategyCosts, layouts: Sequence[int]) -> _Options:
    """Return the options that no other one is better than in all respects."""
    cost = problem.time_weight * options.time_ms + problem.sync_weight * options.sync_ms
    kept, transient = options.kept_mib, options.transient_mib
    weight = options.static_mib + problem.in_flight * kept
    layout = np.searchsorted(layouts, options.layout)
    every = _Options(np.arange(len(cost)), cost, weight, kept, transient, layout, options.recomputed)
    return every[_undominated([cost, weight, weight - kept, transient], every.piece)]


def _search(
    stage: _Stage, prices: Floats, cutoff: float, max_labels: int, check: Check
) -> tuple[_Choice | None, float]:
    """Return the cheapest choice that fits and costs less than a cutoff, and what is proved of all others.

    Args:
        stage: The problem.
        prices: Cost of a MiB, for bounds.
        cutoff: Only choices cheaper than this are looked for.
        max_labels: Labels kept of each layer; those of the least bounds where there are more.
        check: Called at each layer; ends the search by what it raises.

    Returns:
        The choice, None where there is none, and the least bound of all labels dropped for their number.
    """
    before = stage.before(prices)
    lightest = np.cumsum([0.0, *(float(layer.weight_mib.min()) for layer in stage.layers)])
    plain_mib, recomputed_mib = stage.max_transient_mib(False), stage.max_transient_mib(True)
    none, no = np.zeros(1), np.full(1, -1)
    labels = _Labels(none, none, none, none, none + stage.min_above_mib, no, no, no)
    history: list[_Labels] = []
    dropped = math.inf
    for i in reversed(range(len(stage.layers))):
        check()
        extended = _extended(stage, stage.layers[i], labels)
        over = extended.weight + extended.above - stage.room_mib
        bound = extended.cost + (np.multiply.outer(prices, over) + before[i][:, None]).max(axis=0)
        alive = np.nonzero((over + lightest[i] <= 0) & (bound < cutoff))
        if len(alive[0]) > max_labels:
            order = np.argpartition(bound[alive], max_labels)
            dropped = min(dropped, float(bound[alive][order[max_labels:]].min()))
            alive = alive[0][order[:max_labels]], alive[1][order[:max_labels]]
        if not len(alive[0]):
            return None, dropped
        labels = extended[alive]
        labels = labels[_undominated(_needs(labels, plain_mib, recomputed_mib), labels.piece)]
        history.append(labels)
    best = int(np.lexsort((labels.weight + labels.above, labels.cost))[0])
    cost, options = float(labels.cost[best]), []
    for layer, known in zip(stage.layers, reversed(history), strict=True):
        options.append(int(layer.index[known.option[best]]))
        best = int(known.parent[best])
    return _Choice(cost, tuple(options)), dropped


def _extended(stage: _Stage, layer: _Options, labels: _Labels) -> _Labels:
    """Return each label with each option of the layer before; arrays by label and option."""
    old = labels[:, None]
    kept_after = np.where(old.piece == layer.piece, old.kept_after, old.kept)
    steps = stage.transition[layer.layout, old.piece // 2]
    shape = kept_after.shape
    return _Labels(
        old.cost + layer.cost + steps,
        old.weight + layer.weight_mib,
        old.kept + layer.kept_mib,
        kept_after,
        np.maximum(old.above, layer.transient_mib - layer.recomputed * kept_after),
        np.broadcast_to(layer.piece, shape),
        *np.indices(shape),
    )


def _needs(labels: _Labels, plain_mib: float, recomputed_mib: float) -> list[Floats]:
    """Return the cost of labels and the memory that they may need, whatever comes before.

    Layers before may hold transient memory above the whole weight (plain), or recompute: above all that is
    not kept by later pieces. It may be from nothing to the most there is; it is enough to compare both ends.
    """
    held = labels.weight + labels.above
    recomputed = np.maximum(held, labels.weight - labels.kept + recomputed_mib)
    joined = np.maximum(held, labels.weight - labels.kept_after + recomputed_mib)
    joined = np.where(labels.piece % 2 == 1, joined, held)
    needs = [np.maximum(held, labels.weight + plain_mib), recomputed, joined]
    return [labels.cost, held, *(each for each in needs if not np.array_equal(each, held))]


def _undominated(values: Sequence[Floats], piece: Ints) -> Ints:
    """Return the indices at which no other one of the same piece has no greater values; one of equal ones."""
    order = np.lexsort((*reversed(values), piece))
    columns = np.stack(values, axis=1)[order]
    cuts = np.flatnonzero(np.diff(piece[order])) + 1
    chosen = [own[_minimal(columns[own])] for own in np.split(np.arange(len(order)), cuts)]
    return order[np.concatenate(chosen)]


def _minimal(rows: Floats) -> Ints:
    """Return which of sorted rows are not at least another row in all columns; the first of equal rows."""
    if rows.shape[1] == 2:
        least = np.minimum.accumulate(np.append(np.inf, rows[:, 1]))
        return np.flatnonzero(rows[:, 1] < least[:-1])
    kept = np.zeros(0, dtype=np.int64)
    for first in range(0, len(rows), _BLOCK):
        new = np.arange(first, min(first + _BLOCK, len(rows)))
        new = new[~_no_greater(rows[kept], rows[new]).any(axis=0)]
        kept = np.append(kept, new[~np.triu(_no_greater(rows[new], rows[new]), 1).any(axis=0)])
    return kept


def _no_greater(rows: Floats, others: Floats) -> NDArray[np.bool_]:
    """Return which row is at most which other one in all columns but the first, by which they are sorted."""
    columns = zip(rows.T[1:], others.T[1:], strict=True)
    return reduce(np.logical_and, (np.less_equal.outer(row, other) for row, other in columns))
