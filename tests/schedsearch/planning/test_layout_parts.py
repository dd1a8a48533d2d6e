"""Time and memory of layouts by part: the parts add up, and each is where it belongs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_up_layouts import BATCH, COSTS, routed, sixteen

from placements.models.layers import PRECISIONS
from placements.models.parallel import Recompute
from placements.models.zoo import MODELS, read_model
from placements.planners.hybrid.uniform import Degrees, Layout
from schedsearch.planning.layout_parts import (
    MEMORY_PARTS,
    busiest_stage,
    memory_by_part,
    memory_part,
    time_by_part,
)
from schedsearch.planning.uniform_run import StageTensor, UniformRun


def run(degrees: Degrees, recompute: Recompute = "none", zero: int = 1) -> UniformRun:
    layout = Layout(degrees, 1, BATCH // degrees.data, zero, recompute)
    return UniformRun(routed(), sixteen(), layout, COSTS, True)


RUNS = {
    "pipeline": lambda: run(Degrees(2, 4, 2, chunks=2)),
    "experts": lambda: run(Degrees(1, 2, 8, expert=8), "full"),
    "context": lambda: run(Degrees(2, 2, 2, context=2), "full"),
    "alone": lambda: run(Degrees(1, 1, 16), "full", zero=3),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_parts_add_up(name: str) -> None:
    """What is told by part is the time and the memory that are told in all."""
    one = RUNS[name]()
    times = time_by_part(one)
    assert sum(times.values()) == pytest.approx(one.iteration_ms, rel=1e-9)
    assert min(times.values()) >= -1e-6
    for stage, gib in enumerate(one.gib_by_stage):
        parts = memory_by_part(one, stage)
        assert sum(parts.values()) == pytest.approx(gib, rel=1e-9)
        assert abs(parts["rounding"]) <= 0.001 * gib + 2 * len(one.chunks) / 1024


def test_each_exchange_has_its_part() -> None:
    pipeline, experts, context, alone = (time_by_part(RUNS[name]()) for name in list(RUNS)[:4])
    assert pipeline["tensor-parallel exchanges"] > 0 == experts["tensor-parallel exchanges"]
    assert experts["expert-parallel exchanges"] > 0 == pipeline["expert-parallel exchanges"]
    assert context["context-parallel exchanges"] > 0 == pipeline["context-parallel exchanges"]
    assert alone["weights and gradients of ZeRO-3"] > 0 == pipeline["weights and gradients of ZeRO-3"]
    assert experts["recomputation"] > 0 == pipeline["recomputation"]
    assert alone["ends of the pipeline"] == pytest.approx(0, abs=1e-6)
    assert pipeline["ends of the pipeline"] > 0


def test_every_kept_tensor_has_a_part() -> None:
    """Of all models in all precisions; what measured or embedding layers keep is of no named part."""
    others = {"input and other tensors", "input of the norm", "input of the projection"}
    names = {
        tensor.name
        for model in map(read_model, MODELS)
        for layer in {layer for _, layer in model.runs}
        for precision in PRECISIONS.values()
        for tensor in layer.on(1, precision=precision).kept
    }
    parts = {name: memory_part(StageTensor("kept", name, 1.0, 1, "")) for name in names}
    assert {name for name, part in parts.items() if part == "other activations"} <= others
    assert set(parts.values()) < set(MEMORY_PARTS)


def test_the_busiest_stage_computes_longest() -> None:
    """Cross entropy and the output layer are on the last stage, experts on the others."""
    one = run(Degrees(1, 4, 4))
    loads = [
        sum(one.placement.by_name[f"{kind}{stage}"].time for kind in "FB")
        for stage in range(one.plan.num_stages)
    ]
    assert busiest_stage(one) == loads.index(max(loads))
    assert busiest_stage(replace(one, layout=replace(one.layout, num_micro_batches=4))) == busiest_stage(one)
