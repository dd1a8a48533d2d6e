"""Fig. 2.15 and 2.16: memory and traffic of PipeDream's pipelines on four workers, by the models' shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.reproduce.dissertation.configurations import TFLOPS
from experiments.reproduce.dissertation.published import BATCH_SIZES_2
from experiments.reproduce.item import CaseOptions, Claim, Item, Row, Trend, cases_in, chosen_cases
from placements.models.zoo.convolutional import VISION_MODELS
from placements.planners.pipedream.computed_profile import computed_profile
from placements.planners.pipedream.plan import PipelinePlan
from placements.planners.pipedream.planner import best_plan, data_parallel_plan, straight_plan
from placements.planners.pipedream.profile_graph import ProfileGraph
from placements.planners.pipedream.topology import Level
from schedsearch.figures.bars import BarPanel, draw_bars

WORKERS = (Level(4, 1.25),)
"""At 10 Gb/s, between servers."""

MEMORY, TRAFFIC = "memory_mib", "mb_per_sample"

TOGETHER = "data parallel"


def traffic_mb(plan: PipelinePlan, samples: int) -> float:
    """Return the MB that all workers send for a sample: outputs, their gradients, and weights' gradients.

    Args:
        plan: On workers of one level.
        samples: Of an input.
    """
    (level,) = plan.levels
    sent = sum(stage.transfer_ms * level.gb_per_s * 1e6 for stage in plan.stages)
    sent += sum(2 * (stage.replicas - 1) / stage.replicas * stage.parameter_bytes for stage in plan.stages)
    return sent / samples / 1e6


def _profile(model: str) -> ProfileGraph:
    return computed_profile(VISION_MODELS[model](), BATCH_SIZES_2[model], TFLOPS)


def _cases(options: CaseOptions) -> list[str]:
    return chosen_cases(list(BATCH_SIZES_2), options.only)


def _memory_rows(_: CaseOptions, case: str) -> list[Row]:
    profile = _profile(case)
    (together,) = data_parallel_plan(profile, WORKERS).stages
    stages = straight_plan(profile, WORKERS).stages
    held = {f"stage {number}": stage.memory_mib for number, stage in enumerate(stages)}
    held[TOGETHER] = together.memory_mib
    return [Row(case, label, MEMORY, mib, digits=0) for label, mib in held.items()]


def _memory_trends(rows: Sequence[Row]) -> list[Trend]:
    ratios = {}
    for case in cases_in(rows):
        held = {row.label: row.ours or 0.0 for row in rows if row.case == case}
        ratios[case] = max(mib for label, mib in held.items() if label != TOGETHER) / held[TOGETHER]
    shown = ", ".join(f"{case} {ratio:.2f} times" for case, ratio in ratios.items())
    says = "the most that a stage holds is on par with data parallelism (within a quarter)"
    return [Trend(says, all(ratio <= 1.25 for ratio in ratios.values()), shown)]


def _traffic_rows(_: CaseOptions, case: str) -> list[Row]:
    profile, samples = _profile(case), BATCH_SIZES_2[case]
    plans = [straight_plan(profile, WORKERS), best_plan(profile, WORKERS)]
    pipeline = min((plan for plan in plans if len(plan.stages) > 1), key=lambda plan: plan.time_ms)
    together = data_parallel_plan(profile, WORKERS)
    return [
        Row(case, "pipeline", TRAFFIC, traffic_mb(pipeline, samples), digits=2, note=pipeline.configuration),
        Row(case, TOGETHER, TRAFFIC, traffic_mb(together, samples), digits=2),
    ]


def _traffic_trends(rows: Sequence[Row]) -> list[Trend]:
    sent = {(row.case, row.label): row.ours or 0.0 for row in rows}
    cases = cases_in(rows)
    ratios = {case: sent[case, "pipeline"] / sent[case, TOGETHER] for case in cases}
    shown = ", ".join(f"{case} {ratio:.2f} times" for case, ratio in ratios.items())
    far_less = all(ratio < 0.5 for case, ratio in ratios.items() if case != "resnet50")
    return [
        Trend("pipelines send far less than data parallelism, but for ResNet-50", far_less, shown),
        Trend("for ResNet-50 they send more", ratios.get("resnet50", 2.0) > 1, shown),
    ]


def _draw(label: str, rows: Sequence[Row]) -> Any:
    groups: dict[str, dict[str, float | None]] = {}
    for row in rows:
        groups.setdefault(row.case, {})[row.label] = row.ours
    return draw_bars([BarPanel("4 workers", groups)], label, width=7.0)


_SHAPES = (
    "The figure's values are measured and not in the text; ours are of the models' shapes and an "
    "assumed speed of the workers. GNMT has no shape here; AlexNet and ResNet-50 are not all in the figure. "
)

FOOTPRINT_ITEMS = (
    Item(
        "dissertation_figure2_15",
        "Narayanan's dissertation, Fig. 2.15",
        "Memory of straight pipelines on four workers",
        Claim.TREND,
        CaseOptions,
        CaseOptions(),
        _cases,
        _memory_rows,
        _memory_trends,
        lambda rows: _draw("memory (MiB)", rows),
        because=_SHAPES
        + "A first stage of a convolutional net has most of the activations, and holds those of "
        "four inputs; stages here are cut for speed alone, so that it needs twice the memory.",
    ),
    Item(
        "dissertation_figure2_16",
        "Narayanan's dissertation, Fig. 2.16",
        "Bytes sent for a sample by pipelines and data parallelism on four workers",
        Claim.TREND,
        CaseOptions,
        CaseOptions(),
        _cases,
        _traffic_rows,
        _traffic_trends,
        lambda rows: _draw("MB for a sample", rows),
        because=_SHAPES + "The pipeline is the faster of the straight one and the planner's.",
    ),
)
