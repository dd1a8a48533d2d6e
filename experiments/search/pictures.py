"""The pictures of a schedule: PNG, and PDF and SVG at the width of a paper's column."""

from __future__ import annotations

from pathlib import Path

from experiments.search.results import SearchStepResult
from schedsearch.figures import memory
from schedsearch.figures.canvas import COLUMN_INCHES, save_drawing, save_widths
from schedsearch.figures.comparison import draw_timelines, title_of


def draw_schedule(found: SearchStepResult, directory: Path) -> None:
    """Draw the timeline and the memory of a schedule at the times of its placement."""
    timelines = {title_of(found.schedule): found.schedule}
    save_widths(draw_timelines(timelines), draw_timelines(timelines, COLUMN_INCHES), directory / "timeline")
    save_drawing(
        lambda axes: memory.memory(found.schedule, axes, unit=found.memory_unit, title="Memory held"),
        directory / "memory",
    )
