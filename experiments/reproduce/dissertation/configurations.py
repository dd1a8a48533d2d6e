"""Table 2.2: the configurations that PipeDream's planner chooses for 16 workers, by the models' shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.reproduce.dissertation.figure import SOURCE
from experiments.reproduce.dissertation.published import BATCH_SIZES_2, SPEED_UPS_2_2, TABLE_2_2
from experiments.reproduce.item import CaseOptions, Claim, Item, Row, Trend
from experiments.reproduce.rows import listed, rows_with, value_of
from placements.models.zoo.convolutional import VISION_MODELS
from placements.planners.pipedream.computed_profile import computed_profile
from placements.planners.pipedream.planner import best_plan, data_parallel_plan
from placements.planners.pipedream.profile_graph import ProfileGraph
from placements.planners.pipedream.topology import Level

WORKERS = (Level(16, 1.25),)
"""At 10 Gb/s: two levels cannot express a stage on 15 of 4x4 workers (Sec. 2.4.1)."""

TFLOPS = 10.0
"""What a worker reaches is assumed; 8 to 20 give the same configurations."""

SPEED_UP = "speed_up"


def profile_of(model: str) -> ProfileGraph:
    """Return the profile of a model with the batch of the dissertation."""
    return computed_profile(VISION_MODELS[model](), BATCH_SIZES_2[model], TFLOPS)


def _rows(_: CaseOptions, case: str) -> Iterator[Row]:
    profile, published = profile_of(case), TABLE_2_2[case]
    plan, together = best_plan(profile, WORKERS), data_parallel_plan(profile, WORKERS)
    found = [stage.replicas for stage in plan.stages]
    yield Row(f"{case}, stages", "stages", len(found), len(published), 0)
    for number, (ours, theirs) in enumerate(zip(found, published, strict=False)):
        yield Row(f"{case}, stage {number}", "workers", ours, theirs, 0)
    note = "planned, with costs by shape; the published was measured, where data parallelism stalled more"
    label, ratio = f"{case}, over data parallelism", together.time_ms / plan.time_ms
    yield Row(label, SPEED_UP, ratio, SPEED_UPS_2_2[case], 1, note=note, claim=Claim.TREND)


def _trends(rows: Sequence[Row]) -> Iterator[Trend]:
    faster = value_of(rows_with(rows, metric=SPEED_UP), "case")
    holds = all((value > 1) == (len(TABLE_2_2[case]) > 1) for case, value in faster.items())
    says = "pipelines are faster than data parallelism for all but ResNet-50"
    yield Trend(says, holds, listed(faster))


TABLE_2_2_ITEM = Item(
    "dissertation_table2_2",
    SOURCE,
    "Table 2.2",
    "PipeDream's configurations for 16 workers",
    Claim.EXACT,
    tuple(TABLE_2_2),
    _rows,
    _trends,
    because=(
        "Configurations are exact, with the gradients of each worker counted once, as the text means it. "
        "Costs are computed from shapes, so that speed-ups are not the measured ones: only which is faster "
        "is claimed of them. GNMT, the language model and S2VT have no shapes here."
    ),
)
