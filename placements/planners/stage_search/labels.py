"""The search over layers from the last to the first: partial choices that no other one is better than.

A label is a choice for the layers from some layer on. Of its memory it knows the weight, what one micro-batch
keeps, and the transient memory above it; of two labels the one that is no better in cost and in every way in
which the layers before may need memory is dropped, and so is one that even a bound on the layers before
leaves above the best choice known. The module does not know runs: an order within equal layers is a choice
like any other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placements.planners.stage_search.deadline import Check, no_limit
from placements.planners.stage_search.stage_problem import ROUNDING
from placements.planners.stage_search.tables import (
    Floats,
    Ints,
    OptionTable,
    StageOptions,
    before,
    may_precede,
    min_transients,
)

_BLOCK = 256
"""Labels compared with others at a time."""


class StageChoice(NamedTuple):
    """The answer of one pass.

    Attributes:
        choice: Index of each layer's option, in the order of the layers.
        cost: Cost of the choice.
        held_mib: Its peak.
    """

    choice: tuple[int, ...]
    cost: float
    held_mib: float


@dataclass(frozen=True, eq=False)
class PrefixBounds:
    """Costs and memory that the layers before each layer need at least.

    Attributes:
        prices: Price of a MiB.
        costs: See `placements.planners.stage_search.tables.before`.
        weights_mib: The least that they weigh, at no cost; one more than there are layers.
        transients_mib: See `placements.planners.stage_search.tables.min_transients`.
    """

    prices: Floats
    costs: Sequence[Floats]
    weights_mib: Floats
    transients_mib: Sequence[float]


def bounds(stage: StageOptions, prices: Floats, floor_mib: float = 0.0) -> PrefixBounds:
    """Return the bounds of a stage.

    Args:
        stage: To bound.
        prices: Price of a MiB; any number.
        floor_mib: Room to leave above all kept memory.
    """
    lightest = np.cumsum([0.0, *(float(table.weight_mib.min()) for table in stage.layers)])
    transients = [max(floor_mib, each) for each in min_transients(stage)]
    return PrefixBounds(prices, before(stage, prices), lightest, transients)


@dataclass(frozen=True, eq=False)
class _Labels:
    """Partial choices, one of each array's entries each.

    Attributes:
        cost: So far.
        weight: Static memory and what all micro-batches keep.
        kept: What one micro-batch keeps.
        kept_after: What it keeps in the pieces after the first piece.
        above: Transient memory above the weight.
        piece: Piece of the first layer: twice the layout, and one more where it is recomputed.
        parent: Index among the labels of the layer after.
        option: Option of the first layer, as its index in the layer's table.
    """

    cost: Floats
    weight: Floats
    kept: Floats
    kept_after: Floats
    above: Floats
    piece: Ints
    parent: Ints
    option: Ints

    def __getitem__(self, which: Ints) -> _Labels:
        return _Labels(**{name: values[which] for name, values in vars(self).items()})


def search(
    stage: StageOptions,
    capacity_mib: float,
    limits: PrefixBounds,
    cutoff: float,
    width: int,
    free: bool = False,
    check: Check = no_limit,
) -> tuple[StageChoice | None, float]:
    """Return the cheapest choice that fits and costs less than a cutoff.

    Args:
        stage: The problem.
        capacity_mib: What it may hold.
        limits: See `bounds`; for the same capacity.
        cutoff: Only choices cheaper than this are looked for.
        width: Labels kept of each layer; those of the least bounds where there are more.
        free: Nothing costs anything, and the least peak is wanted.
        check: Called at each layer; ends the search by what it raises.

    Returns:
        The choice, None where there is none, and the least bound of all labels dropped for the width.
    """
    layers = stage.layers
    starts = [i == 0 for run in stage.problem.runs for i in range(run.num_layers)]
    needs = _needs_before(layers)
    history: list[tuple[Ints, Ints]] = []
    dropped = math.inf
    room = capacity_mib + ROUNDING * max(1.0, abs(capacity_mib))
    labels = _nothing(limits.transients_mib[0])
    for i in range(len(layers) - 1, -1, -1):
        check()
        equal = i + 1 < len(layers) and not starts[i + 1]
        labels, bound = _extended(stage, layers[i], labels, limits, i, room, cutoff, free, equal)
        if len(bound) > width:
            first = np.argpartition(bound, width)
            dropped = min(dropped, float(bound[first[width:]].min()))
            labels = labels[first[:width]]
        labels = labels[_undominated(labels, *needs[i], ordered=not starts[i])]
        if not len(labels.cost):
            return None, dropped
        history.append((labels.parent, labels.option))
    held = labels.weight + labels.above
    best = int(np.lexsort((held, labels.cost))[0]) if not free else int(np.argmin(held))
    found = StageChoice(_traced(layers, history, best), float(labels.cost[best]), float(held[best]))
    return found, dropped


def _nothing(floor_mib: float) -> _Labels:
    none, one = np.zeros(1), np.zeros(1, dtype=np.int64)
    return _Labels(none, none, none, none, none + floor_mib, one - 1, one, one)


def _needs_before(layers: Sequence[OptionTable]) -> list[tuple[float, float]]:
    """Return the most transient memory of all layers before each: not recomputed, and recomputed."""
    plain = recomputed = 0.0
    found = []
    for table in layers:
        found.append((plain, recomputed))
        plain = max(plain, float(np.max(table.transient_mib, where=~table.recomputed, initial=0.0)))
        recomputed = max(recomputed, float(np.max(table.transient_mib, where=table.recomputed, initial=0.0)))
    return found


def _extended(
    stage: StageOptions,
    table: OptionTable,
    labels: _Labels,
    limits: PrefixBounds,
    layer: int,
    room: float,
    cutoff: float,
    free: bool,
    equal: bool,
) -> tuple[_Labels, Floats]:
    """Return the labels with each option of the layer before, those that may lead to a better choice."""
    piece = table.piece
    same = labels.piece[:, None] == piece
    kept_after = np.where(same, labels.kept_after[:, None], labels.kept[:, None])
    above = np.maximum(
        labels.above[:, None], table.transient_mib - np.where(table.recomputed, kept_after, 0.0)
    )
    weight = labels.weight[:, None] + table.weight_mib
    needed = weight + np.maximum(above, limits.transients_mib[layer])
    alive = needed + limits.weights_mib[layer] <= room
    if equal:
        alive &= may_precede(table)[:, labels.option].T
    if free:
        cost = bound = np.zeros_like(weight)
    else:
        cost = labels.cost[:, None] + table.cost
        if labels.piece[0] >= 0:
            cost = cost + stage.transition[table.layout[None, :], (labels.piece // 2)[:, None]]
        bound = np.full_like(cost, -np.inf)
        for price, least in zip(limits.prices, limits.costs[layer], strict=True):
            np.maximum(bound, cost + price * (needed - room) + least, out=bound)
        alive &= bound < cutoff
    parent, option = np.nonzero(alive)
    kept = labels.kept[parent] + table.kept_mib[option]
    extended = _Labels(
        cost[alive], weight[alive], kept, kept_after[alive], above[alive], piece[option], parent, option
    )
    return extended, bound[alive]


def _undominated(labels: _Labels, plain: float, recomputed: float, ordered: bool) -> Ints:
    """Return which labels no other one of the same piece is better than, whatever comes before.

    Layers before may hold transient memory above the whole weight (plain), or recompute: above all that is
    not kept by later pieces. It may be from nothing to the most there is; it is enough to compare both ends.
    """
    held = labels.weight + labels.above
    ways = [labels.cost, held, labels.weight + np.maximum(labels.above, plain)]
    ways.append(np.maximum(held, labels.weight - labels.kept + recomputed))
    joined = np.maximum(held, labels.weight - labels.kept_after + recomputed)
    ways.append(np.where(labels.piece % 2 == 1, joined, held))
    different = ways[:2] + [way for way in ways[2:] if not np.array_equal(way, held)]
    if ordered:
        different.append(labels.option.astype(np.float64))
    order = np.lexsort((*reversed(different), labels.piece))
    columns, piece = np.stack(different, axis=1)[order], labels.piece[order]
    cuts = [0, *(np.flatnonzero(np.diff(piece)) + 1).tolist(), len(piece)]
    chosen = [order[first:end][pareto_rows(columns[first:end])] for first, end in itertools.pairwise(cuts)]
    return np.concatenate(chosen)


def pareto_rows(columns: Floats) -> Ints:
    """Return the rows that no other row is at most in all columns; they are sorted by the first ones."""
    if columns.shape[1] == 2:
        least = np.minimum.accumulate(columns[:, 1])
        return np.flatnonzero(columns[:, 1] < np.concatenate([[np.inf], least[:-1]]))
    left = np.arange(len(columns))
    found: list[Ints] = []
    while len(left):
        block, left = left[:_BLOCK], left[_BLOCK:]
        inside = (columns[block][:, None, 1:] <= columns[block][None, :, 1:]).all(axis=2)
        block = block[~np.triu(inside, 1).any(axis=0)]
        found.append(block)
        if len(left):
            beaten = (columns[block][:, None, 1:] <= columns[left][None, :, 1:]).all(axis=2).any(axis=0)
            left = left[~beaten]
    return np.concatenate(found) if found else left


def _traced(
    layers: Sequence[OptionTable], history: Sequence[tuple[Ints, Ints]], best: int
) -> tuple[int, ...]:
    choice = []
    for table, (parents, options) in zip(layers, reversed(history), strict=True):
        choice.append(int(table.index[options[best]]))
        best = int(parents[best])
    return tuple(choice)
