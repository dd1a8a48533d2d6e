"""The picture of a plan: each chunk where it is, and labels that fit."""

from placements.cluster import read_cluster
from placements.models.zoo import read_model
from placements.planners.hybrid.plan_options import RatedPlan
from placements.planners.hybrid.uniform import Degrees, Layout
from schedsearch.figures.plan import draw_plan
from schedsearch.planning.uniform_run import UniformRun


def test_chunks_are_drawn_where_they_are_in_the_model() -> None:
    layout = Layout(Degrees(pipeline=2, data=4, chunks=2), 1, 4)
    run = UniformRun(read_model("llama3_8b", num_layers=14), read_cluster("h100_8"), layout)
    chunks = tuple(zip(run.devices, run.chunks, strict=True))
    names = dict.fromkeys(run.plan.strategies, "dp 4")
    drawn = draw_plan(RatedPlan(run.plan, 1.0, ()), names, [60.0, 60.0], [76.0, 76.0], chunks)
    axes, _ = drawn.axes
    bars = sorted((bar.get_x(), bar.get_y() + bar.get_height() / 2, bar.get_width()) for bar in axes.patches)
    assert [(x, round(y), width) for x, y, width in bars] == [
        *((0, 0, 1), (1, 0, 3), (4, 1, 4), (8, 0, 4), (12, 1, 3), (15, 1, 1))
    ]
    assert [text.get_text() for text in axes.texts if text.get_text()] == [
        *("3 layers", "4 layers", "4 layers", "3 layers")
    ]
    rows = [label.get_text() for label in axes.get_yticklabels()]
    assert rows == [f"stage {i}: GPUs {4 * i}-{4 * i + 3}, 8 layers in 2 chunks" for i in (0, 1)]
