"""Fig. 2.15 and 2.16: memory and traffic of PipeDream's pipelines on four workers, by the models' shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.reproduce.dissertation.configurations import INPUTS, ProfileOptions, models_of, profile_of
from experiments.reproduce.dissertation.figure import figure
from experiments.reproduce.dissertation.published import BATCH_SIZES_2
from experiments.reproduce.item import Claim, Row, Trend
from experiments.reproduce.rows import bars, grouped, listed, value_of
from placements.planners.pipedream.plan import PipelinePlan
from placements.planners.pipedream.planner import best_plan, data_parallel_plan, straight_plan
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
        samples: Samples of an input.
    """
    (level,) = plan.levels
    sent = sum(stage.transfer_ms * level.gb_per_s * 1e6 for stage in plan.stages)
    sent += sum(2 * (stage.replicas - 1) / stage.replicas * stage.parameter_bytes for stage in plan.stages)
    return sent / samples / 1e6


def _memory_rows(options: ProfileOptions, case: str) -> Iterator[Row]:
    profile = profile_of(case, options)
    (together,) = data_parallel_plan(profile, WORKERS).stages
    for number, stage in enumerate(straight_plan(profile, WORKERS).stages):
        yield Row(f"stage {number}", MEMORY, stage.memory_mib, digits=0)
    yield Row(TOGETHER, MEMORY, together.memory_mib, digits=0)


def _memory_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    ratios = {}
    for case, own in grouped(rows).items():
        held = value_of(own, "label")
        together = held.pop(TOGETHER)
        ratios[case] = max(held.values()) / together
    says = "the most that a stage holds is on par with data parallelism (within a quarter)"
    yield Trend(says, all(ratio <= 1.25 for ratio in ratios.values()), listed(ratios))


def _traffic_rows(options: ProfileOptions, case: str) -> Iterator[Row]:
    profile, samples = profile_of(case, options), BATCH_SIZES_2[case]
    plans = [straight_plan(profile, WORKERS), best_plan(profile, WORKERS)]
    pipeline = min((plan for plan in plans if len(plan.stages) > 1), key=lambda plan: plan.time_ms)
    together = data_parallel_plan(profile, WORKERS)
    yield Row("pipeline", TRAFFIC, traffic_mb(pipeline, samples), digits=2, note=pipeline.configuration)
    yield Row(TOGETHER, TRAFFIC, traffic_mb(together, samples), digits=2)


def _traffic_trends(rows: Sequence[Row]) -> Iterator[Trend]:
    sent = {case: value_of(own, "label") for case, own in grouped(rows).items()}
    ratios = {case: own["pipeline"] / own[TOGETHER] for case, own in sent.items()}
    far_less = all(ratio < 0.5 for case, ratio in ratios.items() if case != "resnet50")
    says = "pipelines send far less than data parallelism, but for ResNet-50"
    yield Trend(says, far_less, listed(ratios))
    yield Trend("for ResNet-50 they send more", ratios.get("resnet50", 2.0) > 1, listed(ratios))


def _draw(label: str, rows: Sequence[Row]) -> Any:
    return draw_bars([BarPanel("4 workers", bars(rows))], label, width=7.0)


_SHAPES = (
    "The figure's values are measured and not in the text; ours are of the models' shapes and an "
    "assumed speed of the workers, and for GNMT-8 of its published profile. AlexNet and ResNet-50 are not "
    "all in the figure. "
)

FOOTPRINT_ITEMS = (
    figure(
        "2.15",
        "Memory of straight pipelines on four workers",
        Claim.TREND,
        models_of,
        _memory_rows,
        _memory_trends,
        lambda rows: _draw("memory (MiB)", rows),
        small=ProfileOptions(),
        optional_inputs=INPUTS,
        supported_by="test_the_first_stage_of_vgg_holds_the_activations_of_four_inputs",
        because=_SHAPES
        + "GNMT-8 is on par, as in the paper. A first stage of a convolutional net has most of the "
        "activations, and holds those of four inputs; stages here are cut for speed alone, so that it "
        "needs twice the memory.",
    ),
    figure(
        "2.16",
        "Bytes sent for a sample by pipelines and data parallelism on four workers",
        Claim.TREND,
        models_of,
        _traffic_rows,
        _traffic_trends,
        lambda rows: _draw("MB for a sample", rows),
        small=ProfileOptions(),
        optional_inputs=INPUTS,
        because=_SHAPES + "The pipeline is the faster of the straight one and the planner's.",
    ),
)
