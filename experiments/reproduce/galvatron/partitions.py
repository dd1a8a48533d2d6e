"""Layers of each stage in the plans of Table V, by the method that divides them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from experiments.reproduce.galvatron.best_batches import MEMORY_BALANCED, METHODS, RESERVE_GIB
from experiments.reproduce.galvatron.tables import Cell, published_columns
from experiments.reproduce.item import CaseOptions, Row, Trend, described
from experiments.reproduce.rows import in_all, published_table, rows_with, uninterrupted, value_of
from placements.cluster import CLUSTERS
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.search.plan_search import search_plans

_METHODS = (MEMORY_BALANCED, "1F1B+Time", "1F1B+Bi-obj")
_BOTH = _METHODS[-1]


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


def _rows(_: CaseOptions, cells: Sequence[Cell]) -> Iterator[Row]:
    """Yield the plan of each method with the paper's batch and number of stages."""
    for cell in sorted(cells, key=lambda cell: _METHODS.index(cell.method)):
        method, published = cell.method, PARTITIONS[cell.model, cell.memory_gb, cell.method]
        options = replace(METHODS[method], memory_gib=cell.memory_gb, reserve_gib=RESERVE_GIB)
        options = replace(options, num_stages=(len(published),))
        assert cell.batch is not None, "the paper has a plan"
        plans = uninterrupted(search_plans(cell.costs, CLUSTERS[cell.cluster], cell.batch, options)).plans
        if not plans:
            yield Row(method, _MOVED, None, note="nothing fits with the paper's batch and stages")
            continue
        plan, layers = plans[0].plan, cell.costs.model.layers
        counts = [sum(isinstance(layers[i], TransformerLayer) for i in stage.layers) for stage in plan.stages]
        pairs = [*zip(counts, published, strict=True)]
        for number, (ours, printed) in enumerate(pairs, 1):
            yield Row(f"{method}, stage {number}", _LAYERS, ours, printed, 0, series=method)
        moved, whole = sum(abs(ours - printed) for ours, printed in pairs) / 2, sum(published)
        yield Row(method, _MOVED, moved, note=f"of {whole} layers", series=method, bound=whole)
        yield Row(method, _RATE, plans[0].samples_per_s, cell.samples_per_s, 2, series=method)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    for method in _METHODS:
        moved = rows_with(rows, metric=_MOVED, series=method)
        near = [row.ours <= NEAR * (row.bound or 0) for row in moved if row.ours is not None]
        says = f"{method}: at most {NEAR:.0%} of the layers are in another stage"
        yield in_all(says, near, "plans", start="")
    rate = value_of(rows_with(rows, metric=_RATE), "series", "case")
    cases = [case for method, case in rate if method == _BOTH]
    for other in _METHODS[:2]:
        pairs = [(rate[_BOTH, case], rate[other, case]) for case in cases if (other, case) in rate]
        better = [both >= one * (1 - 1e-9) for both, one in pairs]
        yield in_all(f"both objectives are not slower than {other}", better, "columns", start="")


TABLE_5_PARTITIONS = described(
    "galvatron_table5",
    published_columns(("V",), _METHODS),
    _rows,
    conclude=_trends,
    small=CaseOptions(only=("V, BERT-Huge-32, galvatron_a100_16, 8 GB",)),
)

ITEMS = (TABLE_5_PARTITIONS,)
