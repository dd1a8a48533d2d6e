"""Memory of layouts by part: the parts add up, and each tensor has one."""

from __future__ import annotations

import pytest
from made_up_layouts import BATCH, COSTS, routed, sixteen

from placements.models.layers import PRECISIONS
from placements.models.zoo import MODELS, read_model
from placements.planners.hybrid.uniform import Degrees, Layout
from schedsearch.planning.uniform_run import StageTensor, UniformRun


@pytest.mark.parametrize(
    ("degrees", "again", "zero"),
    [
        (Degrees(2, 4, 2, chunks=2), "none", 1),
        (Degrees(1, 2, 8, expert=8), "full", 1),
        (Degrees(2, 2, 2, context=2), "full", 1),
        (Degrees(1, 1, 16), "full", 3),
    ],
)
def test_the_parts_add_up(degrees: Degrees, again: str, zero: int) -> None:
    layout = Layout(degrees, 1, BATCH // degrees.data, zero, again)  # type: ignore[arg-type]
    run = UniformRun(routed(), sixteen(), layout, COSTS, True)
    for stage, gib in enumerate(run.gib_by_stage):
        parts = run.memory_by_part(stage)
        assert sum(parts.values()) == pytest.approx(gib, rel=1e-9)
        assert abs(parts["rounding"]) <= 0.001 * gib + 2 * len(run.chunks) / 1024


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
    parts = {name: StageTensor("kept", name, 1.0, 1, "").part for name in names}
    assert {name for name, part in parts.items() if part == "other activations"} <= others
