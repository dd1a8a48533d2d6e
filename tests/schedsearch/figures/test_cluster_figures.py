"""Figures of a cluster: axes with units, and every mark in its place."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from schedsearch.figures.cluster import BusyGpus, draw_busy_gpus, draw_completion_times

BUSY = BusyGpus(
    np.array([0.0, 1.0, 2.0]),
    {"v100": np.array([2.0, 1.0]), "k80": np.array([0.0, 3.0])},
    {"v100": 2, "k80": 4},
)


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_completion_times_rise_to_all_jobs_at_the_longest() -> None:
    figure = draw_completion_times({"las": [4.0, 1.0, 2.0, 5.0]})
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("job completion time (h)", "share of jobs")
    curve = axes.lines[0]
    assert list(curve.get_xdata()) == [1, 1, 2, 4, 5]
    assert list(curve.get_ydata()) == [0, 0.25, 0.5, 0.75, 1]
    assert axes.get_xscale() == "log"
    assert legend(figure) == ["las, mean 3 h"]


def test_busy_gpus_of_types_stand_above_each_other() -> None:
    figure = draw_busy_gpus(BUSY)
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time (h)", "busy GPUs")
    first, second = (patch.get_data() for patch in axes.patches)
    assert first.values.tolist() == [2, 1]
    assert second.baseline.tolist() == [2, 1]
    assert second.values.tolist() == [2, 4]
    assert axes.lines[0].get_ydata()[0] == 6
    assert legend(figure) == ["v100 (2 GPUs)", "k80 (4 GPUs)", "all 6 GPUs"]
