"""The cheapest choice of options for a stage's layers that fits its memory, from tables of costs.

The search goes from the last layer to the first. A label is a choice for the layers from some layer on. It is
dropped where another one is no worse in cost and in every way in which the layers before may need memory, and
where even a Lagrangian bound on the layers before, with memory at a price, leaves it above the best choice
known. The module does not know what an option is, or a GPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placements.planners.division import ROUNDING, Floats

Ints = NDArray[np.int64]
Figures = NDArray[Any]

Check = Callable[[], None]
"""Ends a search by what it raises, as when the time is over."""

MAX_LABELS = 100, 5_000
"""Labels of a layer that the first pass keeps, to find a good choice, and the second, to prove it."""

_PRICES = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 32)])
"""Prices of a MiB, of what the options of a layer trade it for at most."""

_AROUND = np.array([0.0, 0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 2.0, 5.0])
"""Prices at which labels are bounded, of the best one for the whole stage."""

_BLOCK = 256
"""Rows compared with others at a time."""


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

    def weight_mib(self, in_flight: int) -> Floats:
        """Return what the layer holds between two blocks, with so many micro-batches at once."""
        held: Floats = self.static_mib + in_flight * self.kept_mib
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


class _Options(NamedTuple):
    """Options of a layer that may be in a best choice, by their place in the problem; see `StrategyCosts`."""

    place: Figures
    cost: Figures
    weight: Figures
    kept: Figures
    transient: Figures
    piece: Figures


class _Labels(NamedTuple):
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

    cost: Figures
    weight: Figures
    kept: Figures
    kept_after: Figures
    above: Figures
    piece: Figures
    parent: Figures
    option: Figures


def solve(problem: StageProblem, check: Check = lambda: None) -> StageSolution | None:
    """Return the cheapest choice that fits; None where nothing does.

    Where more labels would be needed than are kept, which takes many different layers, the choice may not be
    the best, and the solution's `min_cost` says by how much at most.

    Args:
        problem: The stage.
        check: Called at each layer.
    """
    stage = _Stage(problem)
    prices = stage.usual_price * _PRICES
    whole = stage.before(prices)[-1][:, 0] - prices * stage.room
    prices = np.unique(prices[whole.argmax()] * _AROUND)
    best: tuple[float, list[int]] | None = None
    cutoff = dropped = math.inf
    for max_labels in MAX_LABELS:
        found, dropped = _search(stage, prices, cutoff, max_labels, check)
        if found is not None:
            best, cutoff = found, found[0] * (1 - 1e-2 * ROUNDING)
        if dropped >= cutoff:
            break
    if best is not None:
        return weigh(problem, best[1], min(best[0], dropped))
    weights = [each.weight_mib(problem.in_flight) for each in problem.layers]
    lightest = weigh(problem, [int(each.argmin()) for each in weights], dropped)
    return lightest if lightest.peak_mib <= stage.room else None


class _Stage:
    """A stage's problem, ready for a search.

    Attributes:
        transition: Cost of a layout (row) before another (column); 0 beside no layer (the last).
        room: Capacity in MiB, with what rounding may add.
        usual_price: Cost of a MiB where options differ the most in both.
        max_transient: Of layers that are not recomputed, and of those that are.
    """

    def __init__(self, problem: StageProblem) -> None:
        unequal = {id(options): options for options in problem.layers}
        known = {key: _worthwhile(problem, options) for key, options in unequal.items()}
        every = list(known.values())
        self.layers = [known[id(options)] for options in problem.layers]
        self.transition = np.pad(problem.transition_ms, (0, 1))
        self.room = problem.room_mib
        spread = max(float(np.ptp(each.weight)) for each in every)
        costly = max(float(np.ptp(each.cost)) for each in every) + float(self.transition.max())
        self.usual_price = costly / spread if spread else 0.0
        self.max_transient = [
            max(float(each.transient[each.piece % 2 == i].max(initial=0.0)) for each in every) for i in (0, 1)
        ]

    def before(self, prices: Floats) -> list[Floats]:
        """Return bounds on what the layers before each layer cost with memory at a price (Lagrangian).

        For each layer an array by price of a MiB and the layer's option: the least cost of all layers before
        it, their memory and the transition to it. At last the same of all layers, in one column.
        """
        found = [np.zeros((len(prices), len(self.layers[0].cost)))]
        after = [*(layer.piece // 2 for layer in self.layers[1:]), np.full(1, -1)]
        for layer, layouts in zip(self.layers, after, strict=True):
            through = found[-1] + layer.cost + prices[:, None] * layer.weight
            steps = self.transition[layer.piece[:, None] // 2, layouts]
            found.append((through[:, :, None] + steps).min(axis=1))
        return found


def _worthwhile(problem: StageProblem, options: StrategyCosts) -> _Options:
    """Return the options that no other one is better than in all respects."""
    cost, kept, transient = options.cost_ms, options.kept_mib, options.transient_mib
    weight = options.weight_mib(problem.in_flight)
    which = undominated([cost, weight, weight - kept, transient], options.piece)
    own = (np.arange(len(cost)), cost, weight, kept, transient, options.piece)
    return _Options(*(each[which] for each in own))


def _search(
    stage: _Stage, prices: Floats, cutoff: float, max_labels: int, check: Check
) -> tuple[tuple[float, list[int]] | None, float]:
    """Return the cost and the choice that is the cheapest that fits, of those below a cutoff.

    Labels are bounded at some prices of a MiB, and those of the least bounds kept where there are too many;
    also returned is the least bound of all that were dropped for that.
    """
    before = stage.before(prices)
    lightest = np.cumsum([0.0, *(float(layer.weight.min()) for layer in stage.layers)])
    none, no = np.zeros(1), np.full(1, -1)
    labels = _Labels(none, none, none, none, none, no, no, no)
    history: list[_Labels] = []
    dropped = math.inf
    for i in reversed(range(len(stage.layers))):
        check()
        extended = _extended(stage, stage.layers[i], labels)
        over = extended.weight + extended.above - stage.room
        bound = extended.cost + (np.multiply.outer(prices, over) + before[i][:, None]).max(axis=0)
        alive = np.nonzero((over + lightest[i] <= 0) & (bound < cutoff))
        if len(alive[0]) > max_labels:
            order = np.argpartition(bound[alive], max_labels)
            dropped = min(dropped, float(bound[alive][order[max_labels:]].min()))
            alive = alive[0][order[:max_labels]], alive[1][order[:max_labels]]
        if not len(alive[0]):
            return None, dropped
        labels = _Labels(*(each[alive] for each in extended))
        which = undominated(_needs(labels, *stage.max_transient), labels.piece)
        labels = _Labels(*(each[which] for each in labels))
        history.append(labels)
    best = int(np.lexsort((labels.weight + labels.above, labels.cost))[0])
    cost, choice = float(labels.cost[best]), list[int]()
    for layer, known in zip(stage.layers, reversed(history), strict=True):
        choice.append(int(layer.place[known.option[best]]))
        best = int(known.parent[best])
    return (cost, choice), dropped


def _extended(stage: _Stage, layer: _Options, labels: _Labels) -> _Labels:
    """Return each label with each option of the layer before; arrays by label and option."""
    old = _Labels(*(each[:, None] for each in labels))
    kept_after = np.where(old.piece == layer.piece, old.kept_after, old.kept)
    return _Labels(
        old.cost + layer.cost + stage.transition[layer.piece // 2, old.piece // 2],
        old.weight + layer.weight,
        old.kept + layer.kept,
        kept_after,
        np.maximum(old.above, layer.transient - layer.piece % 2 * kept_after),
        np.broadcast_to(layer.piece, kept_after.shape),
        *np.indices(kept_after.shape),
    )


def _needs(labels: _Labels, plain: float, recomputed: float) -> list[Floats]:
    """Return the cost of labels and the memory that they may need, whatever comes before.

    Layers before may hold transient memory above the whole weight (plain), or recompute: above all that is
    not kept by later pieces. It may be from nothing to the most there is; it is enough to compare both ends.
    """
    held = labels.weight + labels.above
    joined = np.maximum(held, labels.weight - labels.kept_after + recomputed)
    needs = [
        np.maximum(held, labels.weight + plain),
        np.maximum(held, labels.weight - labels.kept + recomputed),
        np.where(labels.piece % 2 == 1, joined, held),
    ]
    return [labels.cost, held, *(each for each in needs if not np.array_equal(each, held))]


def undominated(values: Sequence[Figures], group: Ints) -> Ints:
    """Return the indices at which no other one of the same group has no greater values; one of equal ones."""
    order = np.lexsort((*reversed(values), group))
    columns = np.stack(values, axis=1)[order]
    cuts = np.flatnonzero(np.diff(group[order])) + 1
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
