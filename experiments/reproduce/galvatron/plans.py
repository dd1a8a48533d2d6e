"""Table V's partitions, and the strategies of Fig. 6: what is in the plans, and not how fast they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from experiments.reproduce.galvatron.best_batches import METHODS, RESERVE_GIB
from experiments.reproduce.galvatron.published_columns import (
    MEMORY_BALANCED,
    PublishedColumn,
    published_columns,
)
from experiments.reproduce.galvatron.trend_items import costs_of
from experiments.reproduce.item import CaseOptions, Claim, Item, Row, Trend
from experiments.reproduce.rows import grouped, in_all, rows_with, value_of
from placements.cluster import CLUSTERS
from placements.models.parallel import LayerStrategy
from placements.models.transformer import TransformerLayer
from placements.planners.hybrid.plan import Plan
from placements.planners.hybrid.search.plan_search import search_plans

_BY_METHOD = (MEMORY_BALANCED, "1F1B+Time", "1F1B+Bi-obj")

PARTITIONS: dict[tuple[str, int], tuple[tuple[int, ...], ...]] = {
    ("BERT-Huge-32", 8): ((11, 21), (16, 16), (14, 18)),
    ("BERT-Huge-48", 8): ((6, 9, 13, 20), (24, 24), (7, 9, 13, 19)),
    ("T5-512/4-32", 8): ((6, 26), (14, 18), (8, 24)),
    ("T5-512/4-48", 8): ((9, 39), (10, 10, 13, 15), (12, 36)),
    ("BERT-Huge-32", 16): ((10, 22), (16, 16), (16, 16)),
    ("BERT-Huge-48", 16): ((16, 32), (24, 24), (22, 26)),
    ("T5-512/4-32", 16): ((6, 26), (11, 21), (11, 21)),
    ("T5-512/4-48", 16): ((9, 39), (17, 31), (11, 37)),
}
"""Layers of each stage by model and memory, of the methods of Table V in its order."""

NEAR = 0.1
"""Part of all layers by which a partition may differ from the paper's."""

_LAYERS, _MOVED, _RATE = "layers", "moved_layers", "samples_per_s"


def best_plan(
    column: PublishedColumn, method: str, num_stages: int | None = None
) -> tuple[Plan, float] | None:
    """Return a method's plan with the paper's batch, and its samples per second; None where none fits."""
    costs, best = costs_of(column.model_name, column.cluster), column.best[method]
    assert best is not None, "the paper has a plan"
    options = replace(METHODS[method], memory_gib=column.memory_gb, reserve_gib=RESERVE_GIB)
    if num_stages is not None:
        options = replace(options, num_stages=(num_stages,))
    found = search_plans(costs, CLUSTERS[column.cluster], best.batch, options)
    if found.interrupted:
        raise KeyboardInterrupt
    return (found.plans[0].plan, found.plans[0].samples_per_s) if found.plans else None


def _strategies(column: PublishedColumn, plan: Plan) -> list[list[LayerStrategy]]:
    """Return the strategies of each stage's encoder and decoder layers."""
    layers = costs_of(column.model_name, column.cluster).model.layers
    return [
        [
            strategy
            for i, strategy in zip(stage.layers, stage.strategies, strict=True)
            if isinstance(layers[i], TransformerLayer)
        ]
        for stage in plan.stages
    ]


def _partition_cases(_: CaseOptions) -> dict[str, PublishedColumn]:
    return {column.name: column for column in published_columns(("V",), only=_BY_METHOD)}


def _partition_rows(_: CaseOptions, column: PublishedColumn) -> Iterator[Row]:
    for method, published in zip(_BY_METHOD, PARTITIONS[column.model, column.memory_gb], strict=True):
        paper = column.best[method]
        assert paper is not None
        found = best_plan(column, method, len(published))
        if found is None:
            yield Row(method, _MOVED, None, note="nothing fits with the paper's batch and stages")
            continue
        plan, samples_per_s = found
        layers = [len(stage) for stage in _strategies(column, plan)]
        for number, (ours, printed) in enumerate(zip(layers, published, strict=True), 1):
            yield Row(f"{method}, stage {number}", _LAYERS, ours, printed, 0, series=method)
        moved = sum(abs(ours - printed) for ours, printed in zip(layers, published, strict=True)) / 2
        yield Row(
            method, _MOVED, moved, note=f"of {sum(published)} layers", series=method, bound=sum(published)
        )
        yield Row(method, _RATE, samples_per_s, paper.samples_per_s, 2, series=method)


def _partition_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    for method in _BY_METHOD:
        own = [row for row in rows_with(rows, metric=_MOVED, series=method) if row.ours is not None]
        near = [row.ours <= NEAR * row.bound for row in own if row.ours is not None and row.bound is not None]
        yield in_all(
            f"{method}: at most {NEAR:.0%} of the layers are in another stage", near, "plans", start=""
        )
    rate = value_of(rows_with(rows, metric=_RATE), "series", "case")
    cases = [case for method, case in rate if method == "1F1B+Bi-obj"]
    for other in _BY_METHOD[:2]:
        better = [
            rate["1F1B+Bi-obj", case] >= rate[other, case] * (1 - 1e-9)
            for case in cases
            if (other, case) in rate
        ]
        yield in_all(f"both objectives are not slower than {other}", better, "columns", start="")


TABLE_5_PARTITIONS = Item(
    name="galvatron_table5",
    paper="Galvatron-BMW",
    part="Table V, partitions",
    title="layers of each stage by what is balanced",
    claim=Claim.TREND,
    known=_partition_cases,
    make=_partition_rows,
    conclude=_partition_trends,
    small=CaseOptions(only=("V, BERT-Huge-32, galvatron_a100_16, 8 GB",)),
    because=(
        "costs are of data sheets; plans have the paper's batch and number of stages, and the best number of "
        "micro-batches. Encoder and decoder layers are counted, without embeddings and output layer"
    ),
)
"""Three methods, eight columns."""


@dataclass(frozen=True)
class DrawnPlan:
    """A plan of Fig. 6, as the text describes it.

    Attributes:
        model: As in Table I.
        cluster: One of `placements.cluster.CLUSTERS`.
        table: Where its batch is.
        kinds: Strategies that the text says the plan mixes, or prefers.
    """

    model: str
    cluster: str
    table: str
    kinds: tuple[str, ...]


DRAWN = {
    "A": DrawnPlan("BERT-Huge-32", "galvatron_titan_8", "II", ("PP+DP+CKPT", "PP+SDP+CKPT")),
    "B": DrawnPlan("Swin-Huge-32", "galvatron_titan_8", "II", ("PP+DP", "PP+DP+CKPT", "PP+DP+TP")),
    "C_low": DrawnPlan("T5-512/4-32", "galvatron_titan_16", "III", ("PP+DP+TP",)),
    "C_high": DrawnPlan("T5-512/4-32", "galvatron_a100_16", "III", ("PP+DP", "PP+SDP", "PP+SDP+CKPT")),
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
    (column,) = (
        column
        for column in published_columns((drawn.table,), only=("Galvatron-BMW",))
        if (column.model, column.cluster, column.memory_gb) == (drawn.model, drawn.cluster, 8)
    )
    found = best_plan(column, "Galvatron-BMW")
    if found is None:
        yield Row("Galvatron-BMW", _LAYERS, None, note="nothing fits with the paper's batch")
        return
    stages = _strategies(column, found[0])
    counts = Counter(kind_of(each, len(stages)) for stage in stages for each in stage)
    for kind in sorted(counts.keys() | {*drawn.kinds}):
        note = "named by the text" if kind in drawn.kinds else "not named by the text"
        yield Row(kind, _LAYERS, counts[kind], digits=0, note=note)


def _drawn_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    for case, own in grouped(rows).items():
        drawn, count = DRAWN[case], {row.label: row.ours or 0 for row in own}
        shown = ", ".join(f"{kind} {number:g}" for kind, number in count.items() if number)
        yield Trend(
            f"{drawn.model} on {drawn.cluster}: has {', '.join(drawn.kinds)}",
            all(count.get(kind, 0) > 0 for kind in drawn.kinds),
            f"layers: {shown}",
        )


FIGURE_6 = Item(
    name="galvatron_figure6",
    paper="Galvatron-BMW",
    part="Fig. 6",
    title="strategies in the best plans under 8 GB",
    claim=Claim.TREND,
    known=DRAWN,
    make=_drawn_rows,
    conclude=_drawn_trends,
    small=CaseOptions(only=("A",)),
    because=(
        "costs are of data sheets. The plans are in a picture; the text names the strategies that they mix, "
        "so that numbers of layers are not compared. Plans have the batch of the tables. Ours have many "
        "small micro-batches, with which nothing else is needed to fit; the paper's number is not printed"
    ),
)
"""Four plans."""
