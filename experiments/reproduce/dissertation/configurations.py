"""Table 2.2: the configurations that PipeDream's planner chooses for 16 workers, by the models' shapes."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.reproduce.dissertation.published import BATCH_SIZES_2, TABLE_2_2
from experiments.reproduce.item import CaseOptions, Claim, Item, Row, Trend, chosen_cases
from placements.models.zoo.convolutional import VISION_MODELS
from placements.planners.pipedream.computed_profile import computed_profile
from placements.planners.pipedream.planner import best_plan, data_parallel_plan
from placements.planners.pipedream.topology import Level

WORKERS = (Level(16, 1.25),)
"""At 10 Gb/s: two levels cannot express a stage on 15 of 4x4 workers (Sec. 2.4.1)."""

TFLOPS = 10.0
"""That a worker reaches: assumed; 8 to 20 give the same configurations."""

_SPEED_UPS = {"vgg16": 5.3, "alexnet": 5.0, "resnet50": 1.0}
SPEED_UP = "speed_up"


def _cases(options: CaseOptions) -> list[str]:
    return chosen_cases(list(TABLE_2_2), options.only)


def _rows(_: CaseOptions, case: str) -> list[Row]:
    profile = computed_profile(VISION_MODELS[case](), BATCH_SIZES_2[case], TFLOPS)
    plan, together = best_plan(profile, WORKERS), data_parallel_plan(profile, WORKERS)
    published = TABLE_2_2[case]
    found = [stage.replicas for stage in plan.stages]
    rows = [Row(case, f"{case}, stages", "stages", len(found), len(published), 0)]
    rows += [
        Row(case, f"{case}, stage {number}", "workers", ours, theirs, 0)
        for number, (ours, theirs) in enumerate(zip(found, published, strict=False))
    ]
    note = "planned, with costs by shape; the published was measured, where data parallelism stalled more"
    return [
        *rows,
        Row(
            case,
            f"{case}, over data parallelism",
            SPEED_UP,
            together.time_ms / plan.time_ms,
            _SPEED_UPS[case],
            1,
            note=note,
            claim=Claim.TREND,
        ),
    ]


def _trends(rows: Sequence[Row]) -> list[Trend]:
    faster = {row.case: row.ours or 0.0 for row in rows if row.metric == SPEED_UP}
    holds = all((value > 1) == (len(TABLE_2_2[case]) > 1) for case, value in faster.items())
    shown = ", ".join(f"{case} {value:.2f} times" for case, value in faster.items())
    return [Trend("pipelines are faster than data parallelism for all but ResNet-50", holds, shown)]


TABLE_2_2_ITEM = Item(
    "dissertation_table2_2",
    "Narayanan's dissertation, Table 2.2",
    "PipeDream's configurations for 16 workers",
    Claim.EXACT,
    CaseOptions,
    CaseOptions(),
    _cases,
    _rows,
    _trends,
    because=(
        "Configurations are exact, with the gradients of each worker counted once, as the text means it. "
        "Costs are computed from shapes, so that speed-ups are not the measured ones: only which is faster "
        "is claimed of them. GNMT, the language model and S2VT have no shapes here."
    ),
)
