"""The pictures of a schedule: PNG, and PDF and SVG at the width of a paper's column."""

from __future__ import annotations

from pathlib import Path

from experiments.search.results import SearchStepResult
from schedsearch.figures import memory
from schedsearch.figures.canvas import COLUMN_INCHES, save_drawing, save_widths
from schedsearch.figures.comparison import draw_timelines, title_of


def draw_schedule(solution: SearchStepResult, directory: Path) -> None:
    """Draw the timeline and the memory of a schedule at the times of its placement."""
    draw_timeline(solution, directory / "timeline")
    draw_memory(solution, directory / "memory")


def draw_timeline(solution: SearchStepResult, path: Path) -> None:
    """Draw the timeline of a schedule."""
    timelines = {title_of(solution.schedule): solution.schedule}
    save_widths(draw_timelines(timelines), draw_timelines(timelines, COLUMN_INCHES), path)


def draw_memory(solution: SearchStepResult, path: Path) -> None:
    """Draw the memory that each device holds over time."""
    schedule, unit = solution.schedule, solution.memory_unit
    save_drawing(lambda axes: memory.memory(schedule, axes, unit=unit, title="Memory held"), path)
