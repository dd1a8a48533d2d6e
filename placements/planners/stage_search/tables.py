"""A stage's tables made ready for a search: one cost, one weight in memory, and bounds on what layers cost.

The module knows a layer's costs and the transitions. It does not know the order in which a search goes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from placements.planners.stage_search.stage_problem import StageProblem, StrategyCosts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class OptionTable:
    """The options of a layer that may be in a best choice; arrays of shape ``(num_options,)``.

    Attributes:
        index: Index in the problem's own options.
        cost: Time and synchronization, weighed.
        weight_mib: Static memory and what all micro-batches in flight keep.
        kept_mib: What one micro-batch keeps.
        transient_mib: While it runs.
        recomputed: Whether the backward runs the forward again.
        layout: Numbered from 0 in the whole stage.
    """

    index: Ints
    cost: Floats
    weight_mib: Floats
    kept_mib: Floats
    transient_mib: Floats
    recomputed: NDArray[np.bool_]
    layout: Ints

    def __len__(self) -> int:
        """Return how many options are left."""
        return len(self.index)

    @cached_property
    def piece(self) -> Ints:
        """Twice the layout, and one more where the layer is recomputed."""
        return 2 * self.layout + self.recomputed

    def only(self, which: NDArray[np.bool_]) -> OptionTable:
        """Return some of the options."""
        return (
            self if which.all() else OptionTable(*(getattr(self, each.name)[which] for each in fields(self)))
        )


@dataclass(frozen=True, eq=False)
class StageOptions:
    """A stage's problem, ready for a search.

    Attributes:
        problem: Problem as given.
        tables: Table of each run.
        transition: Cost of a layout (row) before another (column).
    """

    problem: StageProblem
    tables: tuple[OptionTable, ...]
    transition: Floats

    @property
    def runs(self) -> list[tuple[OptionTable, int]]:
        """The table and the number of layers of each run, in order."""
        return [(table, run.num_layers) for table, run in zip(self.tables, self.problem.runs, strict=True)]

    @property
    def layers(self) -> list[OptionTable]:
        """The table of each layer, in order."""
        return [table for table, num_layers in self.runs for _ in range(num_layers)]


def prepare(problem: StageProblem) -> StageOptions:
    """Return a problem's tables, without options that another one is better than in all respects."""
    layouts = sorted({layout for run in problem.runs for layout in run.options.layout.tolist()})
    known: dict[int, OptionTable] = {}
    tables = []
    for run in problem.runs:
        if id(run.options) not in known:
            known[id(run.options)] = _table(problem, run.options, layouts)
        tables.append(known[id(run.options)])
    transition = [[problem.transition(before, after) for after in layouts] for before in layouts]
    costs = problem.time_weight * np.array(transition)
    return StageOptions(problem, tuple(tables), np.where(np.isnan(costs), np.inf, costs))


def _table(problem: StageProblem, options: StrategyCosts, layouts: Sequence[int]) -> OptionTable:
    cost = problem.time_weight * options.time_ms + problem.sync_weight * options.sync_ms
    weight = options.static_mib + problem.in_flight * options.kept_mib
    without = weight - options.kept_mib
    columns = np.stack([cost, weight, without, options.transient_mib], axis=1)
    layout = np.searchsorted(layouts, options.layout)
    piece = 2 * layout + options.recomputed
    order = np.lexsort((without, options.transient_mib, weight, cost))
    columns, piece = columns[order], piece[order]
    no_worse = (columns[:, None, :] <= columns[None, :, :]).all(axis=2) & (piece[:, None] == piece[None, :])
    chosen = order[~np.triu(no_worse, 1).any(axis=0)]
    chosen = chosen[np.argsort(layout[chosen], kind="stable")]
    return OptionTable(
        chosen,
        cost[chosen],
        weight[chosen],
        options.kept_mib[chosen],
        options.transient_mib[chosen],
        options.recomputed[chosen],
        layout[chosen],
    )


def priced(table: OptionTable, num_layouts: int, prices: Floats) -> Floats:
    """Return the least of cost and priced weight by layout; shape ``(num_prices, num_layouts)``.

    Args:
        table: Table of a layer.
        num_layouts: Layouts in the whole stage.
        prices: Cost of a MiB.
    """
    found = np.full((len(prices), num_layouts), np.inf)
    values = table.cost + prices[:, None] * table.weight_mib
    first = np.flatnonzero(np.diff(table.layout, prepend=-1))
    found[:, table.layout[first]] = np.minimum.reduceat(values, first, axis=1)
    return found


def min_priced(stage: StageOptions, prices: Floats) -> Floats:
    """Return the least cost of the stage with memory at each price: Lagrangian bounds, before the room.

    Args:
        stage: Stage to bound.
        prices: Cost of a MiB.
    """
    later = np.zeros((len(prices), len(stage.transition), 1))
    for table, num_layers in stage.runs[:0:-1]:
        steps = stage.transition + priced(table, len(stage.transition), prices)[:, None, :]
        later = _repeated(steps, later, num_layers)
    values = priced(stage.tables[0], len(stage.transition), prices)
    steps = stage.transition + values[:, None, :]
    whole = _repeated(steps, later, stage.problem.runs[0].num_layers - 1)[:, :, 0]
    return np.asarray((values + whole).min(axis=1))


def _repeated(steps: Floats, later: Floats, times: int) -> Floats:
    """Return the least sums of so many steps and what comes after them."""
    while times:
        if times % 2:
            later = _then(steps, later)
        times //= 2
        if times:
            steps = _then(steps, steps)
    return later


def _then(first: Floats, second: Floats) -> Floats:
    """Return the least sums over what is between: one product of matrices in which to add is to multiply."""
    return np.asarray((first[:, :, :, None] + second[:, None, :, :]).min(axis=2))


def before(stage: StageOptions, prices: Floats) -> list[Floats]:
    """Return bounds on what the layers before each layer cost with memory at a price (Lagrangian).

    Args:
        stage: Stage to bound.
        prices: Cost of a MiB.

    Returns:
        For each layer an array by price and the layer's option: the least cost of all layers before it and
        the transition to it, where an order is as in `may_precede`.
    """
    values = {id(table): table.cost + prices[:, None] * table.weight_mib for table in stage.tables}
    inside = {id(table): _steps(stage, table, table) + _disorder(table) for table in stage.tables}
    found = [np.zeros_like(values[id(stage.tables[0])])]
    for i, (table, run) in enumerate(zip(stage.tables, stage.problem.runs, strict=True)):
        for _ in range(run.num_layers - 1):
            found.append(_least(found[-1] + values[id(table)], inside[id(table)]))
        if i + 1 < len(stage.tables):
            steps = _steps(stage, table, stage.tables[i + 1])
            found.append(_least(found[-1] + values[id(table)], steps))
    return found


def _steps(stage: StageOptions, table: OptionTable, after: OptionTable) -> Floats:
    return stage.transition[table.layout[:, None], after.layout]


def may_precede(table: OptionTable) -> NDArray[np.bool_]:
    """Return for options of equal layers which (row) may come right before which (column).

    Within a piece any order costs and holds the same, so that one is enough: the order of the table,
    descending.
    """
    index = np.arange(len(table))
    return np.asarray((table.piece[:, None] != table.piece) | (index[:, None] >= index))


def _disorder(table: OptionTable) -> Floats:
    return np.where(may_precede(table), 0.0, np.inf)


def _least(values: Floats, steps: Floats) -> Floats:
    return np.asarray((values[:, :, None] + steps).min(axis=1))


def min_transients(stage: StageOptions) -> list[float]:
    """Return the least transient memory above all kept memory that the layers before each layer need.

    A layer that can be recomputed needs none: what later layers keep makes room for it.
    """
    each = [0.0 if table.recomputed.any() else float(table.transient_mib.min()) for table in stage.layers]
    return list(itertools.accumulate(each, max, initial=0.0))


def plain_transients(stage: StageOptions) -> list[float]:
    """Return all there is of transient memory above all kept memory, in order, and none at all."""
    each = [table.transient_mib[~table.recomputed].tolist() for table in stage.tables]
    return sorted({0.0, *itertools.chain.from_iterable(each)})


def with_transients_up_to(stage: StageOptions, max_mib: float) -> StageOptions | None:
    """Return a stage without the options that need more above all kept memory; None for none."""
    known: dict[int, OptionTable] = {}
    for table in stage.tables:
        if id(table) not in known:
            known[id(table)] = table.only(table.recomputed | (table.transient_mib <= max_mib))
    tables = tuple(known[id(table)] for table in stage.tables)
    return StageOptions(stage.problem, tables, stage.transition) if all(map(len, tables)) else None


def first_prices(stage: StageOptions) -> Floats:
    """Return prices of a MiB from far too low to far too high, and none."""
    spread = max(float(np.ptp(table.weight_mib)) for table in stage.tables)
    costly = max(float(np.ptp(table.cost)) for table in stage.tables) + float(
        np.max(stage.transition, where=np.isfinite(stage.transition), initial=0.0)
    )
    if not spread or not costly:
        return np.zeros(1)
    return costly / spread * np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 32)])


def best_price(stage: StageOptions, prices: Floats, room_mib: float) -> tuple[Floats, float]:
    """Return prices of a MiB at which the bound on the whole cost is greatest, or nearly.

    Args:
        stage: Stage to bound.
        prices: Prices to begin with, ascending.
        room_mib: What the weights may add up to.

    Returns:
        The best found, with one on each side of it, and the bound.
    """
    for _ in range(2):
        values = min_priced(stage, prices) - prices * room_mib
        best = int(np.argmax(values))
        around = prices[[max(best - 1, 0), best, min(best + 1, len(prices) - 1)]]
        prices = np.linspace(around[0], around[2], 9)
    return around, float(values[best])
