"""Table V's partitions, and the strategies of Fig. 6: the contents of the plans, and not their speed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from experiments.reproduce.galvatron.best_batches import MEMORY_BALANCED, METHODS, RESERVE_GIB
from experiments.reproduce.galvatron.tables import Cell, published_columns
from experiments.reproduce.item import CaseOptions, Row, Trend, described
from experiments.reproduce.rows import (
    grouped,
    in_all,
    published_table,
    rows_with,
    uninterrupted,
    value_of,
)
from placements.cluster import CLUSTERS
from placements.models.parallel import LayerStrategy
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.search.plan_search import search_plans

_BY_METHOD = (MEMORY_BALANCED, "1F1B+Time", "1F1B+Bi-obj")
_BOTH = _BY_METHOD[-1]


class PublishedPartition(NamedTuple):
    """Layers of each stage of a plan of Table V."""

    model: str
    memory_gb: int
    method: str
    stage_layers: tuple[int, ...]


PARTITIONS = {
    row[:3]: row.stage_layers for row in published_table(__file__, "partitions.csv", PublishedPartition)
}

NEAR = 0.1
"""Part of all layers by which a partition may differ from the paper's."""

_LAYERS, _MOVED, _RATE = "layers", "moved_layers", "samples_per_s"


def best_plan(cell: Cell, num_stages: int | None = None) -> tuple[Plan, float] | None:
    """Return a method's plan with the paper's batch, and its samples per second; None where none fits."""
    assert cell.batch is not None, "the paper has a plan"
    options = replace(METHODS[cell.method], memory_gib=cell.memory_gb, reserve_gib=RESERVE_GIB)
    if num_stages is not None:
        options = replace(options, num_stages=(num_stages,))
    plans = uninterrupted(search_plans(cell.costs, CLUSTERS[cell.cluster], cell.batch, options)).plans
    return (plans[0].plan, plans[0].samples_per_s) if plans else None


def _strategies(cell: Cell, plan: Plan) -> list[list[LayerStrategy]]:
    """Return the strategies of each stage's encoder and decoder layers."""
    layers = cell.costs.model.layers
    return [
        [
            strategy
            for i, strategy in zip(stage.layers, stage.strategies, strict=True)
            if isinstance(layers[i], TransformerLayer)
        ]
        for stage in plan.stages
    ]


def _partition_rows(_: CaseOptions, cells: Sequence[Cell]) -> Iterator[Row]:
    for cell in sorted(cells, key=lambda cell: _BY_METHOD.index(cell.method)):
        method, published = cell.method, PARTITIONS[cell.model, cell.memory_gb, cell.method]
        found = best_plan(cell, len(published))
        if found is None:
            yield Row(method, _MOVED, None, note="nothing fits with the paper's batch and stages")
            continue
        plan, samples_per_s = found
        layers = [len(stage) for stage in _strategies(cell, plan)]
        pairs = [*zip(layers, published, strict=True)]
        for number, (ours, printed) in enumerate(pairs, 1):
            yield Row(f"{method}, stage {number}", _LAYERS, ours, printed, 0, series=method)
        moved, whole = sum(abs(ours - printed) for ours, printed in pairs) / 2, sum(published)
        yield Row(method, _MOVED, moved, note=f"of {whole} layers", series=method, bound=whole)
        yield Row(method, _RATE, samples_per_s, cell.samples_per_s, 2, series=method)


def _partition_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    for method in _BY_METHOD:
        own = rows_with(rows, metric=_MOVED, series=method)
        near = [row.ours <= NEAR * (row.bound or 0) for row in own if row.ours is not None]
        says = f"{method}: at most {NEAR:.0%} of the layers are in another stage"
        yield in_all(says, near, "plans", start="")
    rate = value_of(rows_with(rows, metric=_RATE), "series", "case")
    cases = [case for method, case in rate if method == _BOTH]
    for other in _BY_METHOD[:2]:
        pairs = [(rate[_BOTH, case], rate[other, case]) for case in cases if (other, case) in rate]
        better = [both >= one * (1 - 1e-9) for both, one in pairs]
        yield in_all(f"both objectives are not slower than {other}", better, "columns", start="")


TABLE_5_PARTITIONS = described(
    "galvatron_table5",
    published_columns(("V",), _BY_METHOD),
    _partition_rows,
    conclude=_partition_trends,
    small=CaseOptions(only=("V, BERT-Huge-32, galvatron_a100_16, 8 GB",)),
)


@dataclass(frozen=True)
class DrawnPlan:
    """A plan of Fig. 6: its column, and the strategies that the text says it mixes or prefers."""

    column: str
    kinds: tuple[str, ...]


DRAWN = {
    "A": DrawnPlan("II, BERT-Huge-32, galvatron_titan_8, 8 GB", ("PP+DP+CKPT", "PP+SDP+CKPT")),
    "B": DrawnPlan("II, Swin-Huge-32, galvatron_titan_8, 8 GB", ("PP+DP", "PP+DP+CKPT", "PP+DP+TP")),
    "C_low": DrawnPlan("III, T5-512/4-32, galvatron_titan_16, 8 GB", ("PP+DP+TP",)),
    "C_high": DrawnPlan("III, T5-512/4-32, galvatron_a100_16, 8 GB", ("PP+DP", "PP+SDP", "PP+SDP+CKPT")),
}
"""Plans under 8 GB (Sec. VII-H), by case."""


def kind_of(strategy: LayerStrategy, num_stages: int) -> str:
    """Return a strategy as the paper writes it.

    >>> kind_of(LayerStrategy(2, 4, zero=3, recompute="full"), 2)
    'PP+SDP+TP+CKPT'
    """
    has = {
        "PP": num_stages > 1,
        "DP": strategy.data_parallel > 1 and strategy.zero < 3,
        "SDP": strategy.data_parallel > 1 and strategy.zero == 3,
        "TP": strategy.tensor_parallel > 1,
        "CKPT": strategy.recompute != "none",
    }
    return "+".join(name for name, is_there in has.items() if is_there)


def _drawn_rows(_: CaseOptions, drawn: DrawnPlan) -> Iterator[Row]:
    (cell,) = published_columns(methods=("Galvatron-BMW",))[drawn.column]
    found = best_plan(cell)
    if found is None:
        yield Row("Galvatron-BMW", _LAYERS, None, note="nothing fits with the paper's batch")
        return
    stages = _strategies(cell, found[0])
    counts = Counter(kind_of(each, len(stages)) for stage in stages for each in stage)
    for kind in sorted(counts.keys() | {*drawn.kinds}):
        note = "named by the text" if kind in drawn.kinds else "not named by the text"
        yield Row(kind, _LAYERS, counts[kind], digits=0, note=note)


def _drawn_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    for case, own in grouped(rows).items():
        _, model, cluster, _ = DRAWN[case].column.split(", ")
        kinds, count = DRAWN[case].kinds, {row.label: row.ours or 0 for row in own}
        shown = ", ".join(f"{kind} {number:g}" for kind, number in count.items() if number)
        holds = all(count.get(kind, 0) > 0 for kind in kinds)
        yield Trend(f"{model} on {cluster}: has {', '.join(kinds)}", holds, f"layers: {shown}")


FIGURE_6 = described(
    "galvatron_figure6",
    DRAWN,
    _drawn_rows,
    conclude=_drawn_trends,
    small=CaseOptions(only=("A",)),
)

ITEMS = (TABLE_5_PARTITIONS, FIGURE_6)
