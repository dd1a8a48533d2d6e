"""The pictures of a schedule: PNG, and PDF and SVG at the width of a paper's column."""

from __future__ import annotations

from pathlib import Path

from experiments.search.results import SearchStepResult
from placements import Placement
from schedsearch.figures import memory
from schedsearch.figures.canvas import NARROW_INCHES, image, save_drawing
from schedsearch.figures.comparison import draw_timelines, save_timelines, title_of
from schedsearch.schedule import Instance, as_soon_as_possible


def draw_placement(placement: Placement) -> bytes:
    """Return a PNG of one micro-batch alone on a placement, each block in its first mode."""
    placement = placement.per_micro_batch.as_run((0,) * len(placement.decisions))  # some blocks may not run
    orders: list[list[Instance]] = [[] for _ in placement.lanes]
    for block in placement.topological_order:
        for lane in placement.lanes_of(block):
            orders[lane].append((block.name, 0))
    alone = as_soon_as_possible(placement, 1, orders)
    title = f"one micro-batch alone: {placement.ms(alone.makespan):,.6g} ms"
    return image(draw_timelines({title: alone}, NARROW_INCHES), "png")


def draw_timeline(step: SearchStepResult, path: Path) -> None:
    """Draw the timeline of a schedule."""
    save_timelines({title_of(step.schedule): step.schedule}, path)


def draw_memory(step: SearchStepResult, path: Path) -> None:
    """Draw the memory that each device holds over time."""
    save_drawing(lambda axes: memory.memory(step.schedule, axes, title="Memory held"), path)
