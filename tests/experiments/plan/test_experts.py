"""The memory of a recipe with experts that ran."""

from __future__ import annotations

from placements.cluster import read_cluster
from placements.models.costing.options import CostOptions
from placements.models.memory import FRAMEWORKS
from placements.models.zoo import read_model
from placements.planners.hybrid.uniform import Degrees, Layout
from schedsearch.planning.uniform_run import UniformRun


def test_a_recipe_of_experts_fits_where_it_ran() -> None:
    """Qwen3 30B on 16 H100 in 8 bits (Megatron-Bridge, release 25.11), with gradients of 32 bits."""
    model = read_model("qwen3_30b_a3b", precision="fp8", causal=True)
    costs = CostOptions(precision=model.precision, framework=FRAMEWORKS["megatron"])
    layout = Layout(Degrees(1, 2, 8, expert=8, chunks=24), 2, 32)
    assert max(UniformRun(model, read_cluster("h100_16"), layout, costs).gib_by_stage) < 80 - 4
