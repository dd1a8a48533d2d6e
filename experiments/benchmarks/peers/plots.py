"""Cost against size: CPU seconds of ours and of each peer, a figure for each thing that size counts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from experiments.benchmarks.comparison import PeerComparison
from experiments.benchmarks.results import BenchmarkRow
from schedsearch.figures.canvas import COLUMN_INCHES, save
from schedsearch.figures.panels import CurvePoint, Panel, draw_panels

OURS, THEIRS = "ours", "the peer"


def draw_costs(rows: Sequence[BenchmarkRow], output: Path) -> None:
    """Write a figure for each thing that sizes count, as PNG and SVG at the width of a column.

    Args:
        rows: Those without a comparison are left out, and tasks of one size.
        output: The results file; figures are beside it, as ``peers_devices.svg`` of ``peers.json``.
    """
    compared = [row.result.comparison for row in rows if row.result.comparison is not None]
    for size_name in dict.fromkeys(each.size_name for each in compared):
        panels = _panels([each for each in compared if each.size_name == size_name])
        if panels:
            figure = draw_panels(
                panels, size_name, "CPU seconds", "Cost", logarithmic=True, width=COLUMN_INCHES
            )
            save(figure, output.with_name(f"{output.stem}_{size_name.replace('-', '_')}"))


def _panels(compared: Sequence[PeerComparison]) -> list[Panel]:
    """Return a panel for each task that was measured at several sizes."""
    panels = []
    for task in dict.fromkeys(each.task for each in compared):
        points = sorted((each for each in compared if each.task == task), key=lambda each: each.size)
        if len(points) > 1:
            ours = [CurvePoint(each.size, statistics.median(each.ours_s)) for each in points]
            theirs = [CurvePoint(each.size, statistics.median(each.peer_s)) for each in points]
            panels.append(Panel(task, {OURS: ours, THEIRS: theirs}))
    return panels
