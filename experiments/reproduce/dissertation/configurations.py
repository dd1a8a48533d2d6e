"""Table 2.2: the configurations that PipeDream's planner chooses, on the paper's clusters and a flat network.

Costs are those of the models' shapes; GNMT's are in the profile that PipeDream's authors published.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiments.reproduce.item import Claim, DataOptions, Row, Trend, described
from experiments.reproduce.rows import listed, published_table, rows_with
from placements.models.zoo import read_model
from placements.planners.pipedream.plan import Level
from placements.planners.pipedream.planner import Sync, best_plan
from placements.planners.pipedream.profile_graph import ProfileGraph, computed_profile, read_profile_graph

GNMT = "gnmt"

CLUSTERS = {
    "1x4 (A)": (Level(4, 12.0),),
    "3x4 (A)": (Level(4, 12.0), Level(3, 1.25)),
    "4x4 (A)": (Level(4, 12.0), Level(4, 1.25)),
    "2x8 (B)": (Level(8, 25.0), Level(2, 3.125)),
}
"""Servers x GPUs (Table 2.1). 10 and 25 Gb/s between servers; speeds within one are assumed."""

FLAT = "flat network of 16"

NETWORKS = {FLAT: (Level(16, 1.25),), **CLUSTERS}
"""The flat one is ours: all links at 10 Gb/s, so that a stage may have 15 workers."""

TFLOPS = 10.0
"""What a worker reaches is assumed; 8 to 20 give the same configurations."""

SPEED_UP, STAGES, FIRST = "speed_up", "stages", "workers_of_first_stage"

BATCH_SIZES = {"vgg16": 64, "alexnet": 256, "resnet50": 128, "gnmt": 32}
"""Images on each worker (Sec. 2.5.1); sequences of the published profile of GNMT-8, where the text has 64."""


class PublishedConfiguration(NamedTuple):
    """Workers of each stage of a model on a cluster, and the speed-up over data parallelism; GNMT-8."""

    model: str
    cluster: str
    workers: tuple[int, ...]
    speed_up: float


TABLE_2_2 = {row[:2]: row for row in published_table(__file__, "table2_2.csv", PublishedConfiguration)}


def models_of(options: DataOptions) -> list[str]:
    """Return the models of which there is a shape or, in the data, a profile."""
    if options.data is not None:
        options.file(f"{GNMT}.csv")
    return [model for model in BATCH_SIZES if model != GNMT or options.data is not None]


def profile_of(model: str, options: DataOptions | None = None) -> ProfileGraph:
    """Return the profile of a model with the batch of the dissertation, or of the measured profile."""
    if model == GNMT:
        assert options is not None, "of a model without a shape"
        return read_profile_graph(options.file(f"{GNMT}.csv"))
    return computed_profile(read_model(model).layers, BATCH_SIZES[model], TFLOPS)


def planned(profile: ProfileGraph, network: str, sync: Sync) -> list[int]:
    """Return the workers of each stage that the planner chooses."""
    return [stage.replicas for stage in best_plan(profile, NETWORKS[network], sync).stages]


def _rows(options: DataOptions, case: str) -> Iterator[Row]:
    profile = profile_of(case, options)
    for network, levels in NETWORKS.items():
        published = TABLE_2_2.get((case, "4x4 (A)" if network == FLAT and case != GNMT else network))
        if published is None:
            continue
        workers, speed_up = published[2:]
        chosen, printed = planned(profile, network, "per_worker"), planned(profile, network, "printed")
        note = f"{_named(chosen)}; by the formula as printed {_named(printed)}; published {_named(workers)}"
        claim = Claim.TREND if network == FLAT else None
        yield Row(network, STAGES, len(chosen), len(workers), 0, series=network, claim=claim)
        yield Row(network, FIRST, chosen[0], workers[0], 0, note=note, series=network, claim=claim)
        ratio = best_plan(profile, levels, is_cut=False).time_ms / best_plan(profile, levels).time_ms
        note = "planned; the published was measured"
        yield Row(network, SPEED_UP, ratio, speed_up, 1, note=note, series=network, claim=Claim.TREND)


def _named(workers: Sequence[int]) -> str:
    return "-".join(map(str, workers))


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    for network in NETWORKS:
        faster = {row.case: row.ours for row in rows_with(rows, metric=SPEED_UP, series=network) if row.ours}
        if len(faster) > 1:
            holds = all((value > 1) == (case != "resnet50") for case, value in faster.items() if case != GNMT)
            conclusion = f"{network}: pipelines are faster than data parallelism for all but ResNet-50"
            yield Trend(conclusion, holds, listed(faster))


ITEMS = (described("dissertation_table2_2", models_of, _rows, _trends, small=DataOptions()),)
