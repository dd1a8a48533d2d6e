"""Pipelines of four stages divided for memory, for time, and for both (Galvatron-BMW, Fig. 4)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from experiments.reproduce.item import CaseOptions, Row, Trend, described
from experiments.reproduce.rows import cases_in, in_all, value_of
from placements.cluster import CLUSTERS
from placements.forms.meaning import option
from placements.models.parallel import LayerStrategy
from placements.models.zoo import MODELS
from placements.planners.bmw import memory_balanced
from placements.planners.division import min_largest, spans
from placements.planners.hybrid.shape_costs import ShapeCosts

STAGES = 4

MICRO_BATCHES = 8

RATE = "samples_per_s"
"""Metric of the throughput."""

PLANS = ("memory-balanced", "time-balanced", "optimal")
"""The divisions of the figure."""


class FigureModel(NamedTuple):
    """A model of the figure: its key in the zoo, and the samples of an iteration."""

    key: str
    batch: int


FIGURE_4 = {
    "BERT-Huge-48": FigureModel("bert_huge_48", 32),
    "T5-512/4-48": FigureModel("t5_512_4_48", 64),
}
"""Models by the paper's name."""


@dataclass(frozen=True)
class PartitionOptions(CaseOptions):
    """Options of the figure."""

    memory_gib: float = option(16.0, "memory of a GPU, for the optimal division", "GiB", above=0, max=1e6)


@dataclass(frozen=True)
class Layers:
    """Costs of a model's layers on one GPU each, for one micro-batch.

    Attributes:
        times_ms: Forward and backward.
        static_mib: Parameters, gradients and optimizer.
        kept_mib: Activations.
    """

    times_ms: tuple[float, ...]
    static_mib: tuple[float, ...]
    kept_mib: tuple[float, ...]

    def stages(self, division: Sequence[int]) -> list[tuple[float, float]]:
        """Return the time and the memory of each stage, of which the first holds the most micro-batches."""
        return [
            (
                sum(self.times_ms[first:end]),
                sum(self.static_mib[first:end]) + (STAGES - stage) * sum(self.kept_mib[first:end]),
            )
            for stage, first, end in spans(division)
        ]

    def divisions(self, memory_mib: float) -> dict[str, tuple[int, ...]]:
        """Return the division of each of `PLANS`; no optimal one where none fits."""
        by_memory = memory_balanced(self.static_mib, self.kept_mib, range(STAGES, 0, -1))
        found = {"memory-balanced": by_memory, "time-balanced": min_largest(self.times_ms, STAGES)}
        best = min(self._fitting(memory_mib), key=lambda each: iteration_ms(self.stages(each)), default=None)
        return found | ({} if best is None else {"optimal": best})

    def _fitting(self, memory_mib: float) -> Iterator[tuple[int, ...]]:
        for ends in itertools.combinations(range(1, len(self.times_ms)), STAGES - 1):
            division = tuple(b - a for a, b in itertools.pairwise((0, *ends, len(self.times_ms))))
            if max(mib for _, mib in self.stages(division)) <= memory_mib:
                yield division


def iteration_ms(stages: Sequence[tuple[float, float]]) -> float:
    """Return the time of an iteration (Galvatron-BMW, Eq. 5), without transfers."""
    times_ms = [time_ms for time_ms, _ in stages]
    return (MICRO_BATCHES - 1) * max(times_ms) + sum(times_ms)


def balance(values: Sequence[float]) -> float:
    """Return the balance degree of the stages' times or memories (Galvatron-BMW, Eq. 6).

    >>> balance([1.0, 1.0, 1.0, 1.0])
    0.75
    """
    return 1 - max(values) / sum(values)


def layers_of(model: FigureModel) -> Layers:
    """Return the costs of a model's layers on A100s, each on one GPU."""
    shape, cluster = MODELS[model.key], CLUSTERS["galvatron_a100_16"]
    group, samples = cluster.group(0, 1), model.batch // MICRO_BATCHES
    costs = ShapeCosts(shape)
    each = [costs.cost(layer, LayerStrategy(), samples, MICRO_BATCHES, group) for layer in shape.layers]
    return Layers(
        tuple(cost.forward.time_ms + cost.backward.time_ms for cost in each),
        tuple(cost.static_bytes / 2**20 for cost in each),
        tuple(cost.kept_bytes / 2**20 for cost in each),
    )


def _rows(options: PartitionOptions, model: FigureModel) -> Iterator[Row]:
    layers = layers_of(model)
    divisions = layers.divisions(1024 * options.memory_gib)
    for plan in PLANS:
        if plan not in divisions:
            yield Row(plan, RATE, None, note=f"no division fits {options.memory_gib:g} GiB")
            continue
        stages = layers.stages(divisions[plan])
        times_ms, mib = zip(*stages, strict=True)
        values = {
            "time_balance": balance(times_ms),
            "memory_balance": balance(mib),
            "most_memory_gib": max(mib) / 1024,
            RATE: 1e3 * model.batch / iteration_ms(stages),
        }
        note = "layers " + "/".join(map(str, divisions[plan]))
        yield from (Row(plan, metric, value, note=note) for metric, value in values.items())


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    value = value_of(rows, "label", "metric", "case")
    models = [case for case in cases_in(rows) if ("optimal", RATE, case) in value]
    if not models:
        return

    def found(plan: str, metric: str) -> list[float]:
        return [value[plan, metric, case] for case in models]

    nearly_even = found("time-balanced", "time_balance")
    says = "the time-balanced pipeline's balance of time is close to 0.75"
    yield Trend(says, min(nearly_even) > 0.72, _listed(nearly_even))
    between = [
        low <= middle <= high
        for metric, first, last in (("time_balance", *PLANS[:2]), ("memory_balance", *PLANS[1::-1]))
        for low, middle, high in zip(*(found(plan, metric) for plan in (first, "optimal", last)), strict=True)
    ]
    says = "the optimal division is between the other two in both balances"
    yield in_all(says, between, "", start="")
    rates = zip(found("optimal", RATE), found("memory-balanced", RATE), strict=True)
    gains = [optimal / balanced - 1 for optimal, balanced in rates]
    says = "the optimal division is faster than the memory-balanced one, by up to 19.2 %"
    yield Trend(says, min(gains) > 0, ", ".join(f"{gain:.1%}" for gain in gains))
    less, more = found("optimal", "most_memory_gib"), found("time-balanced", "most_memory_gib")
    yield Trend(
        "it needs less memory than the time-balanced one",
        all(a < b for a, b in zip(less, more, strict=True)),
        f"{_listed(less)} GiB, not {_listed(more)} GiB",
    )


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


PARTITIONS = described(
    "galvatron_figure4",
    FIGURE_4,
    _rows,
    conclude=_trends,
    small=PartitionOptions(("BERT-Huge-48",)),
)

ITEMS = (PARTITIONS,)
